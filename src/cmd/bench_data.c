/* tessera-bench data; see bench_step.h. */
#include <stdio.h>

#include "src/base/clock.h"
#include "src/cmd/bench_data_mds.h"
#include "src/cmd/bench_data_remote.h"
#include "src/cmd/bench_data_text.h"
#include "src/cmd/bench_data_order.h"
#include "src/cmd/bench_text.h"
#include "src/train/loop/trainer.h"

#define STEPS 30

static enum err measure(const struct bench_options *options, struct comm *comm,
                        const struct train_settings *settings, json_t **result)
{
    enum err rc = ERR_OK;
    struct trainer *trainer = NULL;
    double loader_s = 0.0, step_s = 0.0;
    TRY_OUT(trainer_create(comm, settings, 1, &trainer));
    TRY_OUT(trainer_start(trainer));
    TRY_OUT(trainer_step(trainer)); /* first touch, not counted */
    for (int i = 0; i < STEPS; i++) {
        double begin = clock_now();
        TRY_OUT(trainer_step(trainer));
        step_s += clock_now() - begin;
        loader_s += trainer->record.loader_s;
    }
    double tokens = (double)trainer->rates.tokens_per_step * STEPS;
    *result = json_pack(
        "{s:s, s:i, s:f, s:f, s:f, s:f, s:f}", "bench", "data", "steps", STEPS,
        "step_ms", step_s * 1e3 / STEPS, "loader_ms", loader_s * 1e3 / STEPS,
        "loader_share", loader_s / step_s, "loader_tokens_per_s",
        tokens / loader_s, "step_tokens_per_s", tokens / step_s);
    TRY_OUT(bench_data_mds(options, *result));
    TRY_OUT(bench_data_order(*result));
out:
    trainer_destroy(trainer);
    return rc;
}

enum err bench_data(const struct bench_options *options, json_t **result)
{
    char threads[64];
    snprintf(threads, sizeof threads, "hardware.threads=%d", options->threads);
    char *overrides[] = { threads, "train.max_duration=100ba",
                          "train.global_batch=32" };
    TRY(bench_text_train(options, overrides,
                         sizeof overrides / sizeof overrides[0], measure,
                         result));
    TRY(bench_data_text(*result));
    return bench_data_remote(options->dir, *result);
}
