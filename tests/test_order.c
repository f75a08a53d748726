/* An order asked through its object: streams, samples, straight epochs. */
#include "src/data/set/order.h"

#include <pthread.h>

#include "tests/tap.h"

static struct order *make(enum order_kind kind, uint64_t seed, int64_t samples)
{
    struct order *order = NULL;
    struct stream stream = { .samples = samples };
    struct order_spec spec = {
        .kind = kind, .seed = seed, .count = 1, .streams = &stream
    };
    if (order_create(&spec, &order) != ERR_OK)
        abort();
    return order;
}

static int64_t at(struct order *order, int64_t position)
{
    int stream = -1;
    int64_t sample = -1;
    if (order_sample(order, position, &stream, &sample) != ERR_OK ||
        stream != 0)
        return -1;
    return sample;
}

static void test_one(void)
{
    struct order *straight = make(ORDER_STRAIGHT, 17, 13);
    struct order *canonical = make(ORDER_CANONICAL, 17, 13);
    int bad = 0, moved = 0;
    for (int64_t p = 0; p < 50; p++) {
        bad += at(straight, p) != p % 13;
        bad += at(canonical, p) != order_canonical(17, 13, p);
        moved += at(canonical, p) != p % 13;
    }
    tap_is_int(bad, 0, "straight is 0, 1, 2, ...; canonical as it always was");
    tap_ok(moved > 35, "and shuffled");
    tap_is_int(order_samples(canonical, 0), 13, "so many samples");
    order_destroy(straight);
    order_destroy(canonical);
    order_destroy(NULL);
}

/* Streaming's: two sets, their samples told apart, epochs kept and made anew,
 * in whatever order they are asked for. */
static void test_streaming(void)
{
    static const int64_t a[] = { 20, 10 }, b[] = { 15 };
    const struct stream streams[] = { { 30, a, 2, STREAM_ALL, 0 },
                                      { 15, b, 1, STREAM_ALL, 0 } };
    struct order_spec spec = { .kind = ORDER_PY1E,
                               .first = 100,
                               .batch = 4,
                               .count = 2,
                               .streams = streams,
                               .streaming = { .seed = 9176, .nodes = 2 } };
    struct streaming_order_spec same = spec.streaming;
    struct streaming_order *plain = NULL;
    struct order *order = NULL;
    int64_t ids[7][44];
    int bad = order_create(&spec, &order) != ERR_OK;
    same.algorithm = STREAMING_PY1E;
    same.batch = 4;
    bad += streaming_order_create(&same, streams, 2, &plain) != ERR_OK;
    tap_is_int(order_epoch(order), 44, "whole batches of 45 samples");
    tap_is_int((int64_t)order_bytes(order), 8 * (2 * 44 + 2 * 45 + 4 * 22),
               "two epochs kept, and what makes one");
    for (int epoch = 0; epoch < 7; epoch++)
        bad += streaming_order_epoch(plain, epoch, ids[epoch]) != ERR_OK;
    for (int64_t k = 0; k < 2000; k++) {
        int64_t place = k * 131 % (7 * 44), sample = 0;
        int stream = 0;
        bad += order_sample(order, 100 + place, &stream, &sample) != ERR_OK;
        bad += sample + (stream == 1 ? 30 : 0) != ids[place / 44][place % 44];
    }
    tap_is_int(bad, 0, "Streaming's samples at any position");
    order_destroy(order);
    streaming_order_destroy(plain);
}

static void *ask(void *arg)
{
    struct order *order = arg;
    for (int64_t p = 0; p < 3000; p++) {
        int stream = 0;
        int64_t sample = 0;
        if (order_sample(order, p * 7 % 900, &stream, &sample) != ERR_OK)
            return arg;
    }
    return NULL;
}

/* What order_sample() keeps is behind its lock: thread sanitizers and valgrind
 * see this test. */
static void test_threads(void)
{
    static const int64_t a[] = { 64 };
    const struct stream stream = { 64, a, 1, STREAM_ALL, 0 };
    const struct order_spec spec = { .kind = ORDER_PY1S,
                                     .batch = 4,
                                     .count = 1,
                                     .streams = &stream,
                                     .streaming = { .nodes = 1 } };
    pthread_t thread[4];
    struct order *order = NULL;
    int bad = order_create(&spec, &order) != ERR_OK;
    for (int i = 0; i < 4; i++)
        bad += pthread_create(&thread[i], NULL, ask, order) != 0;
    for (int i = 0; i < 4; i++) {
        void *failed = NULL;
        bad += pthread_join(thread[i], &failed) != 0 || failed != NULL;
    }
    tap_is_int(bad, 0, "four threads ask one order");
    order_destroy(order);
}

int main(void)
{
    test_one();
    test_streaming();
    test_threads();
    return tap_done();
}
