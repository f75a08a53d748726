/* Batches read ahead by a thread: the same as without, wherever one begins, and
 * errors where they belong. */
#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/data/set/loader_ahead.h"
#include "tests/data_fixture.h"
#include "tests/http_server.h"

#define SAMPLES 97
#define SEQ_LEN 40
#define ROWS 3
#define STRIDE 12

static const char *folder;
static struct http_server server;
static const int64_t offsets[] = { 0, 3, 9 };

static struct order *make_order(const struct dataset *set)
{
    struct order *order = NULL;
    struct stream stream = { .samples = dataset_contents(set)->samples };
    struct order_spec spec = {
        .kind = ORDER_CANONICAL, .seed = 5, .count = 1, .streams = &stream
    };
    fixture_need(order_create(&spec, &order));
    return order;
}

static struct loader_ahead *make_ahead(struct dataset **set,
                                       struct order *order, int depth)
{
    struct loader_ahead *ahead = NULL;
    struct loader_ahead_plan plan = {
        .datasets = set,
        .dataset_count = 1,
        .order = order,
        .depth = depth,
        .samples = ROWS,
        .seq_len = SEQ_LEN,
        .truncate = true,
        .stride = STRIDE,
        .offsets = offsets,
        .count = 3,
    };
    fixture_need(loader_ahead_create(&plan, &ahead));
    return ahead;
}

static struct batch *make_batch(void)
{
    struct batch *batch = NULL;
    fixture_need(batch_create(ROWS, SEQ_LEN, &batch));
    batch->truncate = true;
    return batch;
}

static bool same(const struct batch *a, const struct batch *b)
{
    size_t cells = (size_t)(a->samples * a->seq_len) * sizeof(int32_t);
    return a->samples == b->samples && a->loss_tokens == b->loss_tokens &&
           memcmp(a->tokens, b->tokens, cells) == 0 &&
           memcmp(a->labels, b->labels, cells) == 0 &&
           memcmp(a->sequence_ids, b->sequence_ids, cells) == 0 &&
           memcmp(a->sample_ids, b->sample_ids,
                  (size_t)a->samples * sizeof a->sample_ids[0]) == 0;
}

static int64_t begin_of(int64_t number)
{
    return number / 3 * STRIDE + offsets[number % 3];
}

static void test_same(struct dataset *set, struct dataset *plain)
{
    struct order *order = make_order(set);
    struct batch *got = make_batch(), *want = make_batch();
    for (int depth = 1; depth <= 5; depth += 2) {
        struct loader_ahead *ahead = make_ahead(&set, order, depth);
        bool right = true;
        int64_t number = 0;
        uint32_t random = (uint32_t)depth;
        for (int i = 0; i < 200 && right; i++) {
            random = random * 1664525 + 1013904223;
            if (random >> 28 == 0) /* elsewhere, or the same again */
                number = random >> 20 & 127;
            if (random >> 28 == 1)
                clock_sleep(0.0005);
            fixture_need(
                loader_read(&plain, order, begin_of(number), ROWS, want));
            right = loader_ahead_read(ahead, begin_of(number), got) == ERR_OK &&
                    same(got, want);
            number++;
        }
        tap_ok(right, "%d batches ahead: the same ones", depth);
        loader_ahead_destroy(ahead);
    }
    batch_destroy(got);
    batch_destroy(want);
    order_destroy(order);
}

/* One sample cannot be read. */
static void test_error(void)
{
    int64_t lengths[SAMPLES];
    struct dataset *set = NULL, *plain = NULL;
    for (int i = 0; i < SAMPLES; i++)
        lengths[i] = 20;
    fixture_dataset(folder, "bad", lengths, SAMPLES, 1 << 20, false);
    set = fixture_open(fixture_path(folder, "bad"));
    plain = fixture_open(fixture_path(folder, "bad"));
    FILE *file = fopen(fixture_path(folder, "bad/shard.00000.mds"), "r+");
    uint32_t end = 0;
    /* the last token of sample 50 is none of the vocabulary: where a sample lies
     * is looked at when the shard is opened */
    if (file == NULL || fseek(file, 4 + 4 * 51, SEEK_SET) != 0 ||
        fread(&end, 4, 1, file) != 1 ||
        fseek(file, (long)end - 2, SEEK_SET) != 0 ||
        fwrite("\xff\xff", 2, 1, file) != 1 || fclose(file) != 0)
        tap_ok(false, "a damaged file");
    struct order *order = make_order(set);
    struct batch *batch = make_batch();
    struct loader_ahead *ahead = make_ahead(&set, order, 4);
    int failed = 0;
    bool right = true;
    for (int64_t n = 0; n < 24; n++) {
        enum err want = loader_read(&plain, order, begin_of(n), ROWS, batch);
        char text[ERR_TEXT_BYTES];
        snprintf(text, sizeof text, "%s", err_text());
        enum err rc = loader_ahead_read(ahead, begin_of(n), batch);
        failed += rc != ERR_OK;
        right = right && rc == want &&
                (rc == ERR_OK || strcmp(err_text(), text) == 0);
    }
    tap_ok(right && failed >= 1 && failed <= 4,
           "%d errors, each at its batch, and reading goes on", failed);
    loader_ahead_destroy(ahead);
    batch_destroy(batch);
    order_destroy(order);
    dataset_close(set);
    dataset_close(plain);
}

static double wait_of(struct loader_ahead *ahead, int64_t from, int64_t to,
                      struct batch *batch)
{
    double waited = 0.0;
    for (int64_t n = from; n < to; n++) {
        double begin = clock_now();
        fixture_need(loader_ahead_read(ahead, begin_of(n), batch));
        waited += clock_now() - begin;
        clock_sleep(0.02); /* a step */
    }
    return waited;
}

static void test_remote(struct dataset *plain)
{
    char url[64];
    struct dataset *set = NULL;
    struct cache_options options = cache_defaults;
    options.folder = fixture_path(folder, "cache");
    options.deadline_s = 30.0;
    snprintf(url, sizeof url, "http://127.0.0.1:%d/set", server.port);
    fixture_need(dataset_open_as(url, NULL, false, &options, &set));
    test_same(set, plain);
    dataset_close(set);
    fsio_remove_tree(options.folder);
    http_server_rules(&server, "* delay 0.05 -");
    fixture_need(dataset_open_as(url, NULL, false, &options, &set));
    struct order *order = make_order(set);
    struct batch *batch = make_batch();
    struct loader_ahead *ahead = make_ahead(&set, order, 4);
    double cold = wait_of(ahead, 0, 20, batch);
    double warm = wait_of(ahead, 20, 60, batch);
    tap_note("waited %.1f ms for 20 batches of a remote set of 50 ms, then "
             "%.1f ms for 40",
             cold * 1e3, warm * 1e3);
    loader_ahead_destroy(ahead);
    dataset_close(set);
    fsio_remove_tree(options.folder);
    /* the end does not wait for what stalls */
    http_server_rules(&server, "shard stall 5 -");
    fixture_need(dataset_open_as(url, NULL, false, &options, &set));
    ahead = make_ahead(&set, order, 2);
    options.deadline_s = 4.0;
    clock_sleep(0.05);
    double begin = clock_now();
    loader_ahead_destroy(ahead);
    dataset_close(set);
    tap_ok(clock_now() - begin < 15.0, "an end without a read");
    fixture_need(dataset_open_as(url, NULL, false, &options, &set));
    ahead = make_ahead(&set, order, 2);
    tap_ok(loader_ahead_read(ahead, 0, batch) == ERR_IO &&
               strstr(err_text(), "data.remote_deadline") != NULL,
           "a stalled remote is an error of the batch");
    begin = clock_now();
    loader_ahead_destroy(ahead);
    dataset_close(set);
    tap_ok(clock_now() - begin < options.deadline_s, "and an end after it");
    http_server_rules(&server, "");
    batch_destroy(batch);
    order_destroy(order);
}

int main(void)
{
    int64_t lengths[SAMPLES];
    struct dataset *set = NULL;
    log_init("test", -1, LOG_ERROR);
    unsetenv("http_proxy");
    folder = tap_folder();
    for (int i = 0; i < SAMPLES; i++)
        lengths[i] = 1 + i * 13 % (SEQ_LEN + 5);
    fixture_dataset(folder, "set", lengths, SAMPLES, 1200, true);
    http_server_start(&server, folder);
    set = fixture_open(fixture_path(folder, "set"));
    struct dataset *again = fixture_open(fixture_path(folder, "set"));
    test_same(set, again);
    test_error();
    test_remote(again);
    dataset_close(set);
    dataset_close(again);
    http_server_stop(&server);
    return tap_done();
}
