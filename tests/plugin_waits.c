/* A plug-in that waits WAIT_S seconds, which a signal may end, and then for as long as the
 * file $WAIT_WHILE is there, behind step $WAIT_FROM and each later one, or all: the tests
 * compile it where they need it. On all ranks it makes steps longer, whatever computes;
 * what else a run does goes on. */
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
    const char *from = getenv("WAIT_FROM"), *file = getenv("WAIT_WHILE");
    (void)self;
    (void)event;
    (void)ask;
    (void)asks;
    if (from != NULL && step->step < atoi(from))
        return 0;
    usleep((useconds_t)(WAIT_S * 1e6));
    while (file != NULL && access(file, F_OK) == 0)
        usleep(20000);
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
