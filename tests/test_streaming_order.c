/* Orders of the Streaming library. Golden values are its own (0.13, NumPy 1.24
 * and 2.4); tests/interop/order.sh compares thousands of epochs. */
#include "src/data/set/streaming_order.h"

#include "tests/tap.h"

static const int64_t shards[] = { 5, 4, 6 };

static void test_golden(void)
{
    static const struct {
        enum streaming_algorithm algorithm;
        uint64_t epoch;
        int64_t want[15];
    } list[] = {
        { STREAMING_PY1S,
          0,
          { 5, 11, 10, 13, 14, 12, 9, 8, 7, 6, 2, 0, 3, 4, 1 } },
        { STREAMING_PY1S,
          1,
          { 5, 9, 12, 13, 11, 14, 10, 4, 3, 0, 2, 1, 7, 8, 6 } },
        { STREAMING_PY1E,
          0,
          { 11, 5, 10, 13, 14, 12, 9, 6, 3, 8, 2, 7, 4, 1, 0 } },
        { STREAMING_PY1E,
          1,
          { 9, 12, 5, 13, 11, 14, 10, 3, 0, 1, 2, 7, 6, 4, 8 } },
    };
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        int64_t ids[15];
        struct streaming_shuffle how = { list[i].algorithm, 2, 8, 9176,
                                         list[i].epoch };
        enum err rc = streaming_shuffle(&how, shards, 3, ids);
        tap_ok(rc == ERR_OK && memcmp(ids, list[i].want, sizeof ids) == 0,
               "%s, epoch %d",
               list[i].algorithm == STREAMING_PY1S ? "py1s" : "py1e",
               (int)list[i].epoch);
    }
}

/* Every shuffle of every shape is a permutation. */
static void test_permutations(void)
{
    int bad = 0;
    for (int kind = STREAMING_PY1E; kind <= STREAMING_UNSHUFFLED; kind++)
        for (int64_t nodes = 1; nodes <= 17; nodes += 4)
            for (uint64_t epoch = 0; epoch < 20; epoch++) {
                int64_t ids[121], units[11], samples = 0;
                char seen[121] = { 0 };
                for (int u = 0; u < 11; u++)
                    samples += units[u] = 1 + (u * 7 + (int)epoch * 3) % 20;
                if (samples > 121)
                    continue;
                struct streaming_shuffle how = { (enum streaming_algorithm)kind,
                                                 nodes, 30, 5, epoch };
                bad += streaming_shuffle(&how, units, 11, ids) != ERR_OK;
                for (int64_t k = 0; k < samples; k++)
                    bad +=
                        ids[k] < 0 || ids[k] >= samples || seen[ids[k]]++ != 0;
            }
    tap_is_int(bad, 0, "all shuffles are permutations");
}

static struct streaming_order *make(struct streaming_order_spec spec,
                                    const struct stream *streams, int count)
{
    struct streaming_order *order = NULL;
    return streaming_order_create(&spec, streams, count, &order) == ERR_OK
               ? order
               : NULL;
}

/* 61 samples on 4 nodes: columns of one sample of each, short nodes repeat
 * their last. */
static void test_nodes(void)
{
    static const int64_t one[] = { 61 };
    const struct stream stream = { 61, one, 1, STREAM_ALL, 0 };
    struct streaming_order *order = make(
        (struct streaming_order_spec){
            .algorithm = STREAMING_UNSHUFFLED, .nodes = 4, .batch = 16 },
        &stream, 1);
    int64_t ids[64];
    int count[61] = { 0 }, twice = 0;
    tap_is_int(streaming_order_batches(order), 4, "batches of 61 samples");
    tap_is_int(streaming_order_epoch(order, 0, ids), ERR_OK, "an epoch");
    tap_ok(ids[0] == 0 && ids[1] == 15 && ids[2] == 30 && ids[3] == 45 &&
               ids[4] == 1,
           "one of each node in turn");
    for (int k = 0; k < 64; k++)
        count[ids[k]]++;
    for (int k = 0; k < 61; k++)
        twice += count[k] == 2;
    tap_is_int(twice, 3, "three are repeated");
    streaming_order_destroy(order);
}

/* { 3, 2 } samples of two streams in every batch of 5. */
static void test_stratified(void)
{
    static const int64_t a[] = { 20, 0, 10 }, b[] = { 20 };
    const struct stream streams[] = { { 30, a, 3, STREAM_ALL, 0 },
                                      { 20, b, 1, STREAM_ALL, 0 } };
    struct streaming_order *order =
        make((struct streaming_order_spec){ .algorithm = STREAMING_PY1E,
                                            .batching = BATCHING_STRATIFIED,
                                            .nodes = 1,
                                            .batch = 5 },
             streams, 2);
    int64_t ids[50];
    int bad = 0;
    tap_is_int(streaming_order_batches(order), 10, "stratified batches");
    for (int64_t epoch = 0; epoch < 3; epoch++) {
        char seen[50] = { 0 };
        bad += streaming_order_epoch(order, epoch, ids) != ERR_OK;
        for (int k = 0; k < 50; k++)
            bad += (ids[k] >= 30) != (k % 5 >= 3) || seen[ids[k]]++ != 0;
    }
    tap_is_int(bad, 0, "each has three samples of one and two of the other");
    streaming_order_destroy(order);
}

static void test_refused(void)
{
    static const int64_t one[] = { 10 };
    const struct stream plain[] = { { 10, one, 1, STREAM_ALL, 0 },
                                    { 10, one, 1, STREAM_PROPORTION, 1 } };
    const struct stream none = { 10, one, 1, STREAM_REPEAT, 0 };
    const struct stream rare[] = { { 10, one, 1, STREAM_CHOOSE, 1 },
                                   { 10, one, 1, STREAM_CHOOSE, 99 } };
    const struct stream much = { 10, one, 1, STREAM_REPEAT, 1e15 };
    const struct {
        const char *what, *says;
        const struct stream *streams;
        int count;
        struct streaming_order_spec spec;
    } list[] = {
        { "a batch beyond an epoch", "batch of 11", plain, 1,
          TUPLE(.algorithm = STREAMING_PY1S, .nodes = 1, .batch = 11) },
        { "some proportions", "1 of 2", plain, 2,
          TUPLE(.algorithm = STREAMING_PY1S, .nodes = 1, .batch = 1) },
        { "no sample at all", "no sample", &none, 1,
          TUPLE(.algorithm = STREAMING_PY1S, .nodes = 1, .batch = 1) },
        { "an endless epoch", "too long", &much, 1,
          TUPLE(.algorithm = STREAMING_PY1S, .nodes = 1, .batch = 1) },
        { "py1e beyond the samples", "canonical_nodes", plain, 1,
          TUPLE(.algorithm = STREAMING_PY1E, .nodes = 11, .batch = 1) },
        { "a tiny block",
          "shuffle_block",
          plain,
          1,
          { .algorithm = STREAMING_PY1BR,
            .nodes = 1,
            .batch = 1,
            .block = 1 } },
        { "no room in a batch",
          "stratified",
          rare,
          2,
          { .algorithm = STREAMING_PY1S,
            .batching = BATCHING_STRATIFIED,
            .nodes = 1,
            .batch = 4 } },
        { "no batch of a stream",
          "batch of 4",
          rare,
          2,
          { .algorithm = STREAMING_PY1S,
            .batching = BATCHING_PER_STREAM,
            .nodes = 1,
            .batch = 4 } },
        { "both lengths",
          "epoch_size",
          &rare[0],
          1,
          { .algorithm = STREAMING_PY1S,
            .nodes = 1,
            .batch = 1,
            .epoch_size = 5 } },
    };
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        struct streaming_order *order = NULL;
        tap_ok(streaming_order_create(&list[i].spec, list[i].streams,
                                      list[i].count, &order) == ERR_USAGE &&
                   strstr(err_text(), list[i].says) != NULL,
               "%s: %s", list[i].what, err_text());
    }
}

int main(void)
{
    test_golden();
    test_permutations();
    test_nodes();
    test_stratified();
    test_refused();
    return tap_done();
}
