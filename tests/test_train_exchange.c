/* What a rank of 64, eight a node, exchanges in a step, in GB or by strategies, and what of
 * it stays within the node. */
#include "src/train/plan/train_exchange.h"

#include <math.h>
#include <stdlib.h>

#include "src/train/plan/train_memory.h"
#include "src/train/plan/trainer_backend.h"
#include "tests/run_settings.h"
#include "tests/tap.h"

#define RANKS 64
#define NODE 8

static bool load(const char *more, struct train_settings *s)
{
    return tap_ok(run_settings(s,
                               "run.dir=/tmp/x data.train=/tmp/y %s "
                               "train.max_duration=60ba parallel.slots=64",
                               more) == ERR_OK,
                  "%s: %s", more, err_text());
}

/* Bytes to one's node, and beyond, by hand. */
static void test_sent(void)
{
    static const struct {
        struct train_exchange of;
        double near, far;
    } rows[] = {
        /* each to each: 7 of 64 parts within the node, 56 beyond */
        { { 64, 1, 64, 1, true }, 7, 56 },
        /* in levels: 7 of 8 parts, then 7 of a rank's eight */
        { { 64, 1, 64, 1, false }, 56, 7 },
        { { 64, 1, 8, 1, false }, 56, 0 },
        { { 64, 1, 8, 1, true }, 56, 0 },
        { { 64, 1, 1, 1, false }, 0, 0 },
        /* each eighth: alone on its node */
        { { 64, 1, 8, 8, false }, 0, 56 },
        { { 64, 1, 8, 8, true }, 0, 56 },
        /* each fourth: two on a node */
        { { 64, 1, 16, 4, false }, 32, 28 },
        { { 64, 1, 16, 4, true }, 4, 56 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct train_exchange_sent sent =
            train_exchange_sent(&rows[i].of, NODE);
        tap_ok(sent.near == rows[i].near && sent.far == rows[i].far,
               "%d ranks, each %d, %s: %g and %g", rows[i].of.ranks,
               rows[i].of.stride, rows[i].of.flat ? "flat" : "in levels",
               sent.near, sent.far);
    }
}

/* Which of the eight there are, and which go in levels: '-' there is none. */
static void test_levels(struct train_settings *s)
{
    static const struct {
        const char *settings;
        enum replica_strategy strategy;
        int degree;
        bool once, device, uneven;
        const char *want; /* 'l'evels, 'f'lat */
    } rows[] = {
        { "", REPLICA_ZERO2, 0, false, true, false, "-l-l----" },
        { "", REPLICA_ZERO2, 0, false, true, true, "-f-f----" },
        { "", REPLICA_ZERO1, 0, false, true, false, "-f-l----" },
        { "", REPLICA_DDP, 0, false, true, false, "-f-f----" },
        { "", REPLICA_ZERO1, 0, false, false, false, "-l-l----" },
        { "", REPLICA_ZERO3, RANKS, false, true, false, "ll------" },
        { "", REPLICA_ZERO3, NODE, true, true, false, "fllf----" },
        { "", REPLICA_ZERO3, NODE, false, true, false, "fl-f----" },
        { "parallel.reduce_precision=bf16 parallel.determinism=run",
          REPLICA_ZERO2, 0, false, true, false, "-f-l----" },
        { "parallel.determinism=fast", REPLICA_ZERO2, 0, false, true, false,
          "-f-l----" },
    };
    char settings[256];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct train_memory_place place = { .threads = 1,
                                            .ranks = RANKS,
                                            .node_ranks = NODE,
                                            .uneven = rows[i].uneven ? 8 : 0 };
        struct train_exchange list[TRAIN_EXCHANGES];
        struct params *params = NULL;
        char got[TRAIN_EXCHANGES + 1] = "";
        snprintf(settings, sizeof settings,
                 "model.preset=mpt-125m train.precision=%s "
                 "train.global_batch=128 train.microbatch=1 "
                 "hardware.backend=%s %s",
                 rows[i].device ? "bf16" : "fp32",
                 rows[i].device ? "cuda" : "cpu", rows[i].settings);
        if (!load(settings, s))
            continue;
        if (trainer_backend_plan(s, &place.kernels) != ERR_OK) {
            tap_skip("built without CUDA");
            continue;
        }
        struct train_memory_way way = { .strategy = rows[i].strategy,
                                        .shard_degree = rows[i].degree,
                                        .once = rows[i].once,
                                        .ranks = RANKS,
                                        .microbatch = 1 };
        (void)train_settings_params(s, &params);
        train_exchanges(s, &place, params, &way, list);
        for (int j = 0; j < TRAIN_EXCHANGES; j++) {
            bool none = list[j].times == 0 || list[j].ranks < 2;
            got[j] = none ? '-' : list[j].flat ? 'f' : 'l';
        }
        /* what has one rank on a node is the same both ways */
        tap_is_str(got, rows[i].want, "%s of %d, %s%s",
                   replica_strategy_names[way.strategy], way.shard_degree,
                   rows[i].device ? "a device" : "processors",
                   rows[i].settings);
        params_destroy(params);
    }
}

/* A leaf of two samples, one a rank: rows there and back, and with their gradients; and
 * keys and values of a sequence on four ranks. */
static void test_groups(struct train_settings *s)
{
    struct train_exchange list[TRAIN_EXCHANGES];
    struct train_memory_place place = { .ranks = 8, .node_ranks = 8 };
    struct train_memory_way way = { .strategy = REPLICA_ZERO2,
                                    .ranks = 8,
                                    .microbatch = 1 };
    struct params *params = NULL;
    if (!load("model.preset=moe-tiny train.global_batch=64 train.microbatch=1 "
              "parallel.strategy=zero2 parallel.expert_degree=2",
              s) ||
        trainer_backend_plan(s, &place.kernels) != ERR_OK ||
        train_settings_params(s, &params) != ERR_OK)
        return;
    const struct model_config *m = &s->model;
    train_exchanges(s, &place, params, &way, list);
    double row = 4.0 * (double)m->d_model;
    double apart = 0.0;
    for (int b = 0; b < params->block_count; b++)
        if (params->blocks[b].kind == PARAM_BLOCK_EXPERTS)
            apart += (double)params->blocks[b].elements;
    tap_ok(apart > 0 &&
               list[1].bytes == 4 * ((double)params->elements - apart) &&
               list[4].bytes == 4 * apart / 2 && list[4].ranks == 4 &&
               list[4].stride == 2 && list[4].times == 8 && list[5].times == 1,
           "experts are summed by the ranks that have the same, %g bytes",
           list[4].bytes);
    tap_ok(list[6].times == 8 * 5 && list[7].times == 0 &&
               list[6].bytes ==
                   (double)(s->data.seq_len * m->experts_top_k * m->n_layers) *
                       row,
           "experts: %g bytes, %g times", list[6].bytes, list[6].times);
    params_destroy(params);
    params = NULL;
    if (!load("model.preset=mpt-tiny train.global_batch=64 train.microbatch=1 "
              "parallel.strategy=zero2 parallel.sequence_degree=4 "
              "parallel.sequence_chunks=4",
              s) ||
        train_settings_params(s, &params) != ERR_OK)
        return;
    train_exchanges(s, &place, params, &way, list);
    double kv =
        2.0 * (double)(model_config_kv(m) * s->data.seq_len * m->n_layers);
    tap_ok(list[6].times == 0 && list[7].times == 32 && list[7].ranks == 4 &&
               fabs(list[7].bytes - kv * (2 * 0.75 * 4 + 4)) <
                   1e-6 * list[7].bytes,
           "sequences: %g bytes, %g times", list[7].bytes, list[7].times);
    params_destroy(params);
}

int main(void)
{
    struct train_settings *s = calloc(1, sizeof *s);
    test_sent();
    test_levels(s);
    test_groups(s);
    free(s);
    return tap_done();
}
