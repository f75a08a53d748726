/* Makes the record of a step from the trainer and from the ranks' exchange at
 * the step's end. Loss, norm and rate are put there by trainer_step.c, the
 * results of an evaluation by trainer_eval.c.
 *
 * The exchange is one all-gather of a row per rank, whatever the number of
 * listeners: they ask by raising a number (the largest of all ranks counts), and
 * fail by having their failure held. Before it a rank knows only its own asks,
 * behind it all know the same, so each can go on by itself. */
#include "src/train/loop/trainer.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/log.h"
#include "src/base/new.h"
#include "src/train/plan/trainer_backend.h"

enum err trainer_record_create(struct run *run)
{
    size_t experts =
        (size_t)(run->settings.model.n_layers * run->settings.model.experts);
    TRY(new_zeroed(&run->now.of_rank, (size_t)run->ranks));
    if (experts > 0)
        TRY(new_zeroed(&run->engine.expert_counts, experts));
    run->now.record = (struct step_record){
        .rank = run->rank,
        .ranks = run->ranks,
        .attempt = run->attempt,
        .max_steps = run->plan.max_steps,
        .expert_counts = run->engine.expert_counts,
        .expert_count = experts,
        .of_rank = run->now.of_rank,
        .eval.step = -1,
        .log_interval = run->settings.log.interval,
    };
    return run->rank == 0 ? tracking_list_create(&run->now.record.scalars)
                          : ERR_OK;
}

void trainer_record_destroy(struct run *run)
{
    tracking_list_destroy(run->now.record.scalars);
    free(run->now.of_rank);
    free(run->engine.expert_counts);
}

void trainer_record_find_peak(struct run *run)
{
    const struct train_settings *s = &run->settings;
    const struct kernels *kernels = run->engine.kernels;
    struct step_record *record = &run->now.record;
    char rate[32];
    record->peak_flops = s->hardware.peak_flops;
    record->peak_source = "setting";
    if (record->peak_flops > 0.0)
        return;
    /* The processor's, whatever the kernel set makes of it. */
    if (strcmp(kernels->backend, "cpu") == 0 &&
        kernels_find("cpu", "auto", &kernels) != ERR_OK)
        return;
    if (kernels->peak_flops != NULL)
        record->peak_flops =
            kernels->peak_flops(&run->engine.ctx, trainer_backend_dtype(s),
                                trainer_backend_fp8(s), &record->peak_source);
    units_count(record->peak_flops, rate, sizeof rate);
    if (record->peak_flops > 0.0)
        log_info("mfu is of %s FLOP/s per rank (%s)", rate,
                 record->peak_source);
    else
        log_info("mfu is not known: give hardware.peak_flops");
}

void trainer_record_position(struct run *run)
{
    struct step_record *record = &run->now.record;
    assert(run->position.step >= record->step); /* one that goes back ends */
    record->step = run->position.step;
    record->samples = run->position.step * run->settings.train.global_batch;
    record->tokens = run_tokens(run);
    record->elapsed_s = run->position.elapsed_s;
    record->finished = run->now.finished;
    record->stop_signal = run->now.stop_signal;
}

void trainer_record_time(struct run *run, double step_s)
{
    const struct train_settings *s = &run->settings;
    const struct model_config *config = &s->model;
    struct step_record *record = &run->now.record;
    double peak = record->peak_flops * run->ranks;
    assert(run->now.samples > 0 && run->now.seq_len > 0);
    double sequences_per_s = (double)run->now.samples / step_s;
    record->step_s = step_s;
    record->tokens_per_s =
        (double)(run->now.samples * run->now.seq_len) / step_s;
    if (peak <= 0.0)
        return;
    record->mfu =
        model_flops_per_sequence(config, run->engine.params, run->now.seq_len) *
        sequences_per_s / peak;
    record->mfu_causal = model_flops_per_sequence_causal(
                             config, run->engine.params, run->now.seq_len) *
                         sequences_per_s / peak;
}

/* Joins the ranks' rows; false: they do not ask alike for what all must. */
static bool answer(struct step_record *record)
{
    const struct step_rank *all = record->of_rank;
    bool alike = true;
    memset(record->agreed, 0, sizeof record->agreed);
    for (int r = 0; r < record->ranks; r++) {
        for (int i = 0; i < ASK_COUNT; i++)
            if (all[r].asks[i] > record->agreed[i])
                record->agreed[i] = all[r].asks[i];
        alike = alike && all[r].asks[ASK_SKIP] == all[0].asks[ASK_SKIP];
    }
    return alike;
}

/* The reason of the first rank that asks for the run's end. Collective, where
 * one does. */
static enum err learn_why(struct run *run, const char *mine)
{
    struct step_record *record = &run->now.record;
    int asking = 0;
    if (record->agreed[ASK_FINISH] == 0)
        return ERR_OK;
    while (record->of_rank[asking].asks[ASK_FINISH] == 0)
        asking++;
    assert(asking < record->ranks);
    memcpy(record->why, mine, sizeof record->why);
    return comm_broadcast(run->comm, record->why, sizeof record->why, asking);
}

enum err trainer_record_exchange(struct run *run)
{
    struct events *events = &run->events;
    struct step_record *record = &run->now.record;
    struct step_rank *mine = &run->now.of_rank[run->rank];
    bool failed = false;
    *mine = (struct step_rank){ .step_s = record->step_s,
                                .loader_s = record->loader_s,
                                .wait_s = record->wait_s,
                                .elapsed_s = run->position.elapsed_s,
                                .failed = events->held.code };
    struct asks asks = events->asks;
    memcpy(mine->asks, asks.of, sizeof mine->asks);
    events->asks = (struct asks){ .of = { 0 } };
    TRY(comm_gather_rows(run->comm, run->now.of_rank, sizeof *mine));
    bool alike = answer(record);
    for (int r = 0; r < run->ranks; r++)
        failed = failed || run->now.of_rank[r].failed != ERR_OK;
    if (failed)
        return comm_agree(run->comm, err_again(&events->held));
    if (!alike)
        return err_set(ERR_INTERNAL,
                       "step %lld: not all ranks have left out the update: go "
                       "on from the last checkpoint",
                       (long long)run->position.step);
    return learn_why(run, asks.why);
}
