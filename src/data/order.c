/* Finds the sample at a position, whatever the order is. */
#include "src/data/order.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/data/order_canonical.h"

struct order {
    enum order_kind kind;
    uint64_t seed;
    int count;
    struct order_stream streams[];
};

enum err order_create(const struct order_spec *spec, struct order **out)
{
    assert(spec->count == 1 && spec->streams[0].samples > 0);
    size_t bytes = (size_t)spec->count * sizeof spec->streams[0];
    struct order *order = calloc(1, sizeof *order + bytes);
    if (order == NULL)
        return err_set(ERR_MEMORY, "out of memory");
    order->kind = spec->kind;
    order->seed = spec->seed;
    order->count = spec->count;
    memcpy(order->streams, spec->streams, bytes);
    *out = order;
    return ERR_OK;
}

void order_destroy(struct order *order)
{
    free(order);
}

int order_streams(const struct order *order)
{
    return order->count;
}

int64_t order_samples(const struct order *order, int stream)
{
    assert(stream >= 0 && stream < order->count);
    return order->streams[stream].samples;
}

enum err order_sample(struct order *order, int64_t position, int *stream,
                      int64_t *sample)
{
    assert(position >= 0);
    int64_t samples = order->streams[0].samples;
    *stream = 0;
    *sample = order->kind == ORDER_STRAIGHT
                  ? position % samples
                  : order_canonical(order->seed, samples, position);
    return ERR_OK;
}
