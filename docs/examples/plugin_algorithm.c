/* An algorithm for a run: multiplies the gradients of tensors whose names have a
 * word in them, and keeps their weights within a limit.
 *
 *     cc -std=gnu17 -shared -fPIC $(pkg-config --cflags tessera) \
 *         plugin_algorithm.c -o mine.so
 *
 *     algorithms = ( { name = "plugin"; path = "mine.so";
 *                      options = "tensors=wte scale=0.5 limit=0.1"; } );
 *
 * Both are functions of an element alone, so that the run has the same bits on
 * any number of ranks. How many steps it has seen is a figure of each, and goes
 * through kills. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tessera_plugin.h"

struct taming {
    const struct tessera_host *host;
    char tensors[64];
    float scale, limit;
    long steps;
};

static double option(const char *options, const char *name, double otherwise)
{
    const char *found = strstr(options, name);
    return found != NULL ? atof(found + strlen(name)) : otherwise;
}

static int create(const struct tessera_host *host, const char *options,
                  void **self)
{
    struct taming *taming = calloc(1, sizeof *taming);
    const char *tensors = strstr(options, "tensors=");
    *self = taming;
    if (taming == NULL)
        return 1;
    taming->host = host;
    if (tensors == NULL ||
        sscanf(tensors, "tensors=%63s", taming->tensors) != 1) {
        host->fail(host, "options need tensors=WORD");
        return 1;
    }
    taming->scale = (float)option(options, "scale=", 1);
    taming->limit = (float)option(options, "limit=", 1e30);
    return 0;
}

static int before_batch(void *self, const struct tessera_batch *batch)
{
    struct taming *taming = self;
    (void)batch;
    taming->steps++;
    taming->host->scalar(taming->host, "taming/steps", (double)taming->steps);
    return 0;
}

static int change_gradient(void *self, const struct tessera_batch *batch,
                           const struct tessera_span *span)
{
    const struct taming *taming = self;
    (void)batch;
    if (strstr(span->tensor, taming->tensors) == NULL)
        return 0;
    for (int64_t i = 0; i < span->elements; i++)
        span->gradient[i] *= taming->scale;
    return 0;
}

static int after_update(void *self, const struct tessera_batch *batch,
                        const struct tessera_span *span)
{
    const struct taming *taming = self;
    (void)batch;
    if (strstr(span->tensor, taming->tensors) == NULL)
        return 0;
    for (int64_t i = 0; i < span->elements; i++) {
        float *weight = &span->weights[i];
        if (*weight > taming->limit)
            *weight = taming->limit;
        if (*weight < -taming->limit)
            *weight = -taming->limit;
    }
    return 0;
}

static int store(const void *self, char **text)
{
    const struct taming *taming = self;
    char number[32];
    snprintf(number, sizeof number, "%ld", taming->steps);
    *text = strdup(number);
    return *text == NULL;
}

static int restore(void *self, const char *text)
{
    struct taming *taming = self;
    taming->steps = atol(text);
    return 0;
}

static const struct tessera_algorithm algorithm = {
    .bytes = sizeof algorithm,
    .name = "taming",
    .create = create,
    .destroy = free,
    .before_batch = before_batch,
    .change_gradient = change_gradient,
    .after_update = after_update,
    .store = store,
    .restore = restore,
};
static const struct tessera_algorithm *const algorithms[] = { &algorithm,
                                                              NULL };
static const struct tessera_plugin plugin = {
    .abi = TESSERA_PLUGIN_ABI,
    .bytes = sizeof plugin,
    .name = "taming",
    .version = "1.0",
    .about = "scales gradients and limits weights",
    .algorithms = algorithms,
};

const struct tessera_plugin *tessera_plugin(void)
{
    return &plugin;
}
