/* tessera-bench data: reads batches ahead of a trainer that is a hundred times as
 * fast as this machine, from files and from a server that thinks 50 ms before it
 * answers. Samples of 2048 tokens, eight in a batch, in 32 shards of 256 KiB, in
 * the canonical order. */

#include "src/base/clock.h"
#include "src/base/fsio.h"
#include "src/base/real.h"
#include "src/base/rng.h"
#include "src/data/mds/mds_writer.h"
#include "src/data/set/loader_ahead.h"
#include "tests/bench/bench.h"
#include "tests/bench/bench_model.h"
#include "tests/http_server.h"

#define LATENCY "* delay 0.05 -"
#define STEP_SAMPLES 32 /* of the step that is measured, and how often */
#define STEP_TIMES 10
#define TIMES_FASTER 100.0
#define SEQ_LEN 2048
#define SAMPLES 1024
#define ROWS 8
#define SHARD_BYTES ((int64_t)256 << 10)
#define STEPS 150
#define DEPTH 2
#define VOCABULARY 50000

/* Of mpt-tiny, the shortest step of all presets. */
static enum err step_rate(int threads, double *step_s, double *tokens_per_s)
{
    enum err rc = ERR_OK;
    struct bench_model_kind kind = { .name = "mpt-tiny",
                                     .samples = STEP_SAMPLES };
    struct bench_model *bench = NULL;
    double loss, seconds[STEP_TIMES];
    TRY_OUT(model_config_preset("mpt-tiny", &kind.config));
    kind.seq_len = (int)kind.config.max_seq_len;
    TRY_OUT(bench_model_create(&kind, threads, 1, &bench));
    for (int i = -1; i < STEP_TIMES; i++) /* the first one touches memory */
        TRY_OUT(bench_model_step(bench, &loss, &seconds[i < 0 ? 0 : i]));
    *step_s = real_median(seconds, STEP_TIMES);
    *tokens_per_s = STEP_SAMPLES * kind.seq_len / *step_s;
out:
    bench_model_destroy(bench);
    return rc;
}

static enum err make_set(const char *folder)
{
    enum err rc = ERR_OK;
    struct mds_writer *writer = NULL;
    struct sidecar sidecar = { .vocab_size = VOCABULARY,
                               .tokenizer = "made",
                               .samples = SAMPLES,
                               .tokens = (int64_t)SAMPLES * SEQ_LEN,
                               .eos_token = 0,
                               .bos_token = -1 };
    int32_t tokens[SEQ_LEN];
    memset(sidecar.tokenizer_sha256, '0', 64);
    TRY(fsio_mkdirs(folder));
    TRY(mds_writer_create_tokens(folder, SHARD_BYTES, true, &writer));
    for (int64_t s = 0; s < SAMPLES; s++) {
        for (int t = 0; t < SEQ_LEN; t++)
            tokens[t] =
                (int32_t)(rng_u64(1, (uint64_t)s, (uint64_t)t) % VOCABULARY);
        TRY_OUT(mds_writer_add(writer, tokens, SEQ_LEN));
    }
    TRY_OUT(mds_writer_finish(writer));
    TRY_OUT(sidecar_write(folder, &sidecar));
out:
    mds_writer_destroy(writer);
    return rc;
}

/* The share of waiting in `steps` steps of `step_s` from the position on. */
static enum err run_steps(struct loader_ahead *ahead, int64_t first, int steps,
                          double step_s, struct batch *batch, double *share)
{
    double waited = 0.0, begin = clock_now();
    for (int64_t s = first; s < first + steps; s++) {
        double asked = clock_now();
        TRY(loader_ahead_read(ahead, s * ROWS, batch));
        waited += clock_now() - asked;
        clock_sleep(step_s);
    }
    *share = waited / (clock_now() - begin);
    return ERR_OK;
}

/* shares[2]: of the first epoch and of what follows it. */
static enum err measure_ahead(struct dataset *data, double step_s,
                              double *shares, double *first_s)
{
    enum err rc = ERR_OK;
    int64_t offset = 0;
    struct order *order = NULL;
    struct batch *batch = NULL;
    struct loader_ahead *ahead = NULL;
    struct stream stream = { .samples = SAMPLES };
    struct order_spec spec = {
        .kind = ORDER_CANONICAL, .seed = 17, .count = 1, .streams = &stream
    };
    double begin = clock_now();
    TRY_OUT(order_create(&spec, &order));
    TRY_OUT(batch_create(ROWS, SEQ_LEN, &batch));
    struct loader_ahead_plan plan = {
        .datasets = &data,
        .dataset_count = 1,
        .order = order,
        .depth = DEPTH,
        .samples = ROWS,
        .seq_len = SEQ_LEN,
        .stride = ROWS,
        .offsets = &offset,
        .count = 1,
    };
    TRY_OUT(loader_ahead_create(&plan, &ahead));
    TRY_OUT(loader_ahead_read(ahead, 0, batch));
    *first_s = clock_now() - begin;
    TRY_OUT(run_steps(ahead, 1, SAMPLES / ROWS, step_s, batch, &shares[0]));
    TRY_OUT(
        run_steps(ahead, 1 + SAMPLES / ROWS, STEPS, step_s, batch, &shares[1]));
out:
    loader_ahead_destroy(ahead);
    batch_destroy(batch);
    order_destroy(order);
    return rc;
}

static enum err measure_alone(struct dataset *data, double *tokens_per_s)
{
    enum err rc = ERR_OK;
    struct order *order = NULL;
    struct batch *batch = NULL;
    struct stream stream = { .samples = SAMPLES };
    struct order_spec spec = {
        .kind = ORDER_CANONICAL, .seed = 17, .count = 1, .streams = &stream
    };
    TRY_OUT(order_create(&spec, &order));
    TRY_OUT(batch_create(ROWS, SEQ_LEN, &batch));
    double begin = clock_now();
    for (int64_t b = 0; b < SAMPLES / ROWS; b++)
        TRY_OUT(loader_read(&data, order, b * ROWS, ROWS, batch));
    *tokens_per_s = (double)SAMPLES * SEQ_LEN / (clock_now() - begin);
out:
    batch_destroy(batch);
    order_destroy(order);
    return rc;
}

static enum err measure_remote(const char *set, const char *cache,
                               double step_s, double shares[2], double *start_s)
{
    enum err rc = ERR_OK;
    char address[64];
    double first_s = 0.0;
    struct dataset *data = NULL;
    static struct http_server server;
    struct cache_options options = cache_defaults;
    http_server_start(&server, set);
    http_server_rules(&server, LATENCY);
    options.folder = cache;
    snprintf(address, sizeof address, "http://127.0.0.1:%d", server.port);
    double begin = clock_now();
    TRY_OUT(dataset_open_as(address, NULL, false, &options, &data));
    *start_s = clock_now() - begin;
    TRY_OUT(measure_ahead(data, step_s, shares, &first_s));
    *start_s += first_s;
out:
    dataset_close(data);
    http_server_stop(&server);
    return rc;
}

enum err bench_data(const struct bench_options *options, json_t **result)
{
    enum err rc = ERR_OK;
    char set[FSIO_PATH_MAX], cache[FSIO_PATH_MAX];
    double local[2], remote[2], alone = 0.0, start_s = 0.0, first_s = 0.0;
    double slow_s = 0.0, rate = 0.0;
    struct dataset *data = NULL;
    TRY_OUT(fsio_path(set, "%s/set", options->dir));
    TRY_OUT(fsio_path(cache, "%s/cache", options->dir));
    TRY_OUT(step_rate(options->threads, &slow_s, &rate));
    double step_s = ROWS * SEQ_LEN / (TIMES_FASTER * rate);
    TRY_OUT(make_set(set));
    TRY_OUT(dataset_open(set, &data));
    TRY_OUT(measure_alone(data, &alone));
    TRY_OUT(measure_ahead(data, step_s, local, &first_s));
    TRY_OUT(measure_remote(set, cache, step_s, remote, &start_s));
    *result =
        json_pack("{s:s, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "bench",
                  "data", "steps", STEP_TIMES, "step_ms", slow_s * 1e3,
                  "step_tokens_per_s", rate, "loader_100x_share", local[1],
                  "loader_alone_tokens_per_s", alone, "remote_share", remote[1],
                  "remote_cold_share", remote[0], "remote_start_s", start_s);
out:
    dataset_close(data);
    return rc;
}
