/* Times of seeks in sample orders. */
#include "src/cmd/bench_data_order.h"

#include <math.h>

#include "src/base/clock.h"
#include "src/data/set/order.h"

#define SETS 10
#define SHARDS 100
#define BATCH 1024
#define SEEKS 5

/* An order made, asked once, and given back. */
static enum err seek(const struct order_spec *spec, int64_t position,
                     double *most_s)
{
    enum err rc = ERR_OK;
    struct order *order = NULL;
    int stream = 0;
    int64_t sample = 0;
    double begin = clock_now();
    TRY(order_create(spec, &order));
    TRY_OUT(order_sample(order, position, &stream, &sample));
    *most_s = fmax(*most_s, clock_now() - begin);
out:
    order_destroy(order);
    return rc;
}

static enum err seek_canonical(double *most_s)
{
    const struct stream stream = { .samples = 10000000000 };
    const struct order_spec spec = {
        .kind = ORDER_CANONICAL, .seed = 17, .count = 1, .streams = &stream
    };
    for (int64_t i = 0; i < SEEKS; i++)
        TRY(seek(&spec, 1999999999 * (2 * i + 1), most_s));
    return ERR_OK;
}

static enum err seek_mixture(double *most_s)
{
    static const char *const names[SETS] = { "a", "b", "c", "d", "e",
                                             "f", "g", "h", "i", "j" };
    struct stream streams[SETS] = { { 0 } };
    struct mixture_curve curves[SETS] = { { 0 } };
    for (int i = 0; i < SETS; i++) {
        streams[i].samples = 1000000000;
        curves[i] = (struct mixture_curve){
            2, { { 0, 1.0 + i, false }, { 1000000, 10.0 - i, false } }
        };
    }
    const struct order_spec spec = { .kind = ORDER_CANONICAL,
                                     .seed = 17,
                                     .batch = BATCH,
                                     .count = SETS,
                                     .streams = streams,
                                     .curves = curves,
                                     .names = names };
    for (int64_t i = 0; i < SEEKS; i++)
        TRY(seek(&spec, (int64_t)BATCH * 1000000 + i, most_s));
    return ERR_OK;
}

static enum err seek_streaming(double *most_s)
{
    int64_t shards[SHARDS];
    for (int i = 0; i < SHARDS; i++)
        shards[i] = 1000000 / SHARDS;
    const struct stream stream = { 1000000, shards, SHARDS, STREAM_ALL, 0 };
    const struct order_spec spec = { .kind = ORDER_PY1E,
                                     .batch = BATCH,
                                     .count = 1,
                                     .streams = &stream,
                                     .streaming = { .seed = 9176,
                                                    .nodes = 8 } };
    for (int64_t i = 0; i < SEEKS; i++)
        TRY(seek(&spec, 999000 * i, most_s));
    return ERR_OK;
}

enum err bench_data_order(json_t *result)
{
    static const struct {
        const char *name;
        enum err (*seek)(double *most_s);
    } list[] = {
        { "seek_1e10_ms", seek_canonical },
        { "seek_mixture_1e6_ms", seek_mixture },
        { "streaming_epoch_1e6_ms", seek_streaming },
    };
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        double most_s = 0.0;
        TRY(list[i].seek(&most_s));
        if (json_object_set_new(result, list[i].name,
                                json_real(most_s * 1e3)) != 0)
            return err_set(ERR_MEMORY, "out of memory");
    }
    return ERR_OK;
}
