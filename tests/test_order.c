/* An order asked through its object: streams, samples, straight epochs. */
#include "src/data/order.h"

#include <stdlib.h>

#include "src/data/order_canonical.h"
#include "tests/tap.h"

static struct order *make(enum order_kind kind, uint64_t seed, int64_t samples)
{
    struct order *order = NULL;
    struct order_stream stream = { samples };
    struct order_spec spec = { kind, seed, 1, &stream };
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
    tap_is_int(order_streams(canonical), 1, "one stream");
    tap_is_int(order_samples(canonical, 0), 13, "of so many samples");
    order_destroy(straight);
    order_destroy(canonical);
    order_destroy(NULL);
}

int main(void)
{
    test_one();
    return tap_done();
}
