/* A plug-in that waits WAIT_S seconds, which a signal may end, before each step from
 * step $WAIT_FROM on, or all: the tests compile it where they need it. On all ranks it makes steps
 * longer, whatever computes; what else a run does goes on. */
#include <stdlib.h>
#include <unistd.h>

#include "tessera_plugin.h"

static int create(const struct tessera_host *host, const char *options,
                  void **self)
{
    (void)host;
    (void)options;
    (void)self;
    return 0;
}

static int handle(void *self, int32_t event, const struct tessera_step *step,
                  void (*ask)(void *, int32_t, int64_t), void *asks)
{
    const char *from = getenv("WAIT_FROM");
    (void)self;
    (void)event;
    (void)ask;
    (void)asks;
    if (from == NULL || step->step >= atoi(from))
        usleep((useconds_t)(WAIT_S * 1e6));
    return 0;
}

static const struct tessera_listener one = { .bytes = sizeof one,
                                             .name = "waits",
                                             .every_rank = 1,
                                             .events = TESSERA_EVENT_BIT(
                                                 TESSERA_BEFORE_TRAIN_BATCH),
                                             .create = create,
                                             .handle = handle };
static const struct tessera_listener *const all[] = { &one, NULL };
static const struct tessera_plugin plugin = {
    TESSERA_PLUGIN_ABI, sizeof plugin, "waits", "0", "waits", all, NULL
};

const struct tessera_plugin *tessera_plugin(void)
{
    return &plugin;
}
