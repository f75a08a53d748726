/* tessera-bench data; see bench_step.h. */
#include <stdio.h>
#include <stdlib.h>

#include "src/base/clock.h"
#include "src/base/fsio.h"
#include "src/cmd/bench_step.h"
#include "src/cmd/bench_text.h"
#include "src/comm/comm.h"
#include "src/train/trainer.h"

#define STEPS 30

static enum err measure(struct comm *comm,
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
out:
    trainer_destroy(trainer);
    return rc;
}

enum err bench_data(const struct bench_options *options, json_t **result)
{
    enum err rc = ERR_OK;
    char data[FSIO_PATH_MAX];
    char train[FSIO_PATH_MAX + 32];
    char threads[64];
    struct comm *comm = NULL;
    struct train_settings *settings = calloc(1, sizeof *settings);
    if (settings == NULL)
        return err_set(ERR_MEMORY, "out of memory");
    TRY_OUT(fsio_path(data, "%s/data", options->dir));
    snprintf(train, sizeof train, "data.train=%s", data);
    snprintf(threads, sizeof threads, "hardware.threads=%d", options->threads);
    char *overrides[] = { "run.dir=unused", train, threads,
                          "train.max_duration=100ba", "train.global_batch=32" };
    TRY_OUT(bench_text(options->dir, data, 128));
    TRY_OUT(train_settings_load(
        NULL, overrides, sizeof overrides / sizeof overrides[0], settings));
    TRY_OUT(comm_create("self", NULL, NULL, 60.0, &comm));
    TRY_OUT(measure(comm, settings, result));
out:
    comm_destroy(comm);
    free(settings);
    return rc;
}
