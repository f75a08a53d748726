/* A plug-in for a run: writes the loss of every step as CSV, and ends the run
 * when the loss has been below a target for some steps.
 *
 *     cc -std=gnu17 -shared -fPIC $(pkg-config --cflags tessera) \
 *         plugin.c -o plugin.so
 *
 *     plugins = ( { path = "plugin.so"; options = "target=2.5 patience=3"; } );
 *
 * Its count of steps below the target is a figure of every step, for
 * metrics.jsonl and trackers, and in every checkpoint, so that a run that
 * was killed ends at the same step. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tessera_plugin.h"

struct target {
    const struct tessera_host *host;
    FILE *csv;
    double loss;
    long patience, below;
};

/* The number behind "name=" in the options. */
static double option(const char *options, const char *name, double otherwise)
{
    const char *found = strstr(options, name);
    return found != NULL && found[strlen(name)] == '='
               ? atof(found + strlen(name) + 1)
               : otherwise;
}

static int create(const struct tessera_host *host, const char *options,
                  void **self)
{
    char path[4096];
    struct target *target = calloc(1, sizeof *target);
    *self = target;
    if (target == NULL)
        return 1;
    target->host = host;
    target->loss = option(options, "target", 0);
    target->patience = (long)option(options, "patience", 1);
    if (target->loss <= 0) {
        host->fail(host, "options need target=LOSS, above 0");
        return 1;
    }
    snprintf(path, sizeof path, "%s/loss.csv", host->run_dir);
    target->csv = fopen(path, "a");
    if (target->csv == NULL) {
        host->fail(host, "cannot write loss.csv in the run directory");
        return 1;
    }
    return 0;
}

static void destroy(void *self)
{
    struct target *target = self;
    if (target != NULL && target->csv != NULL)
        fclose(target->csv);
    free(target);
}

static int handle(void *self, int32_t event, const struct tessera_step *step,
                  void (*ask)(void *, int32_t, int64_t), void *asks)
{
    struct target *target = self;
    (void)event;
    /* the step at hand is not counted yet */
    fprintf(target->csv, "%lld,%.9g\n", (long long)step->step + 1, step->loss);
    target->below = step->loss < target->loss ? target->below + 1 : 0;
    target->host->scalar(target->host, "loss_target/below",
                         (double)target->below);
    if (target->below < target->patience)
        return 0;
    target->host->info(target->host, "the loss has reached its target");
    ask(asks, TESSERA_ASK_FINISH, 1);
    return 0;
}

static int store(const void *self, char **text)
{
    const struct target *target = self;
    char number[32];
    snprintf(number, sizeof number, "%ld", target->below);
    *text = strdup(number);
    return *text == NULL;
}

static int restore(void *self, const char *text)
{
    struct target *target = self;
    target->below = atol(text);
    return 0;
}

static const struct tessera_listener listener = {
    .bytes = sizeof listener,
    .name = "target",
    .events = TESSERA_EVENT_BIT(TESSERA_AFTER_TRAIN_BATCH),
    .create = create,
    .destroy = destroy,
    .handle = handle,
    .store = store,
    .restore = restore,
};
static const struct tessera_listener *const listeners[] = { &listener, NULL };
static const struct tessera_plugin plugin = {
    .abi = TESSERA_PLUGIN_ABI,
    .bytes = sizeof plugin,
    .name = "loss_target",
    .version = "1.0",
    .about = "ends a run at a loss, and writes loss.csv",
    .listeners = listeners,
};

const struct tessera_plugin *tessera_plugin(void)
{
    return &plugin;
}
