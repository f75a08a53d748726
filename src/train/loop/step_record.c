/* Makes the record of a step from the trainer and from the ranks' exchange at
 * the step's end. Loss, norm and rate are put there by trainer_step.c, the
 * results of an evaluation by trainer_eval.c. */
#include "src/train/loop/step_record.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/model/model_flops.h"
#include "src/train/start/trainer_backend.h"
#include "src/train/loop/trainer.h"

enum err step_record_create(struct trainer *trainer)
{
    size_t experts = (size_t)(trainer->settings.model.n_layers *
                              trainer->settings.model.experts);
    trainer->of_rank =
        calloc((size_t)trainer->ranks, sizeof trainer->of_rank[0]);
    if (experts > 0)
        trainer->expert_counts =
            calloc(experts, sizeof trainer->expert_counts[0]);
    if (trainer->of_rank == NULL ||
        (experts > 0 && trainer->expert_counts == NULL))
        return err_set(ERR_MEMORY, "out of memory");
    trainer->record = (struct step_record){
        .rank = trainer->rank,
        .ranks = trainer->ranks,
        .attempt = trainer->attempt,
        .max_steps = trainer->max_steps,
        .expert_counts = trainer->expert_counts,
        .expert_count = experts,
        .of_rank = trainer->of_rank,
        .eval.step = -1,
        .log_interval = trainer->settings.log.interval,
    };
    return trainer->rank == 0 ? tracking_list_create(&trainer->record.scalars)
                              : ERR_OK;
}

void step_record_destroy(struct trainer *trainer)
{
    tracking_list_destroy(trainer->record.scalars);
    free(trainer->of_rank);
    free(trainer->expert_counts);
}

bool step_record_logs(const struct step_record *step)
{
    return step->step % step->log_interval == 0 || step->finished ||
           step->stop_signal != 0;
}

void step_record_find_peak(struct trainer *trainer)
{
    const struct train_settings *s = &trainer->settings;
    const struct kernels *kernels = trainer->kernels;
    struct step_record *record = &trainer->record;
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
            kernels->peak_flops(&trainer->ctx, trainer_backend_dtype(s),
                                trainer_backend_fp8(s), &record->peak_source);
    units_count(record->peak_flops, rate, sizeof rate);
    if (record->peak_flops > 0.0)
        log_info("mfu is of %s FLOP/s per rank (%s)", rate,
                 record->peak_source);
    else
        log_info("mfu is not known: give hardware.peak_flops");
}

void step_record_position(struct trainer *trainer)
{
    struct step_record *record = &trainer->record;
    record->step = trainer->step;
    record->samples = trainer->step * trainer->settings.train.global_batch;
    record->tokens = trainer_tokens(trainer);
    record->elapsed_s = trainer->elapsed_s;
    record->finished = trainer->finished;
    record->stop_signal = trainer->stop_signal;
}

void step_record_time(struct trainer *trainer, double step_s)
{
    const struct train_settings *s = &trainer->settings;
    const struct model_config *config = &s->model;
    struct step_record *record = &trainer->record;
    double peak = record->peak_flops * trainer->ranks;
    double sequences_per_s = (double)trainer->samples / step_s;
    record->step_s = step_s;
    record->tokens_per_s =
        (double)(trainer->samples * trainer->seq_len) / step_s;
    if (peak <= 0.0)
        return;
    record->mfu =
        model_flops_per_sequence(config, trainer->params, trainer->seq_len) *
        sequences_per_s / peak;
    record->mfu_causal = model_flops_per_sequence_causal(
                             config, trainer->params, trainer->seq_len) *
                         sequences_per_s / peak;
}

/* Joins the ranks' rows; false: they do not ask alike for what all must. */
static bool answer(struct step_record *record)
{
    const struct step_rank *all = record->of_rank;
    bool alike = true;
    record->step_s_sum = record->loader_s_sum = 0.0;
    memset(record->agreed, 0, sizeof record->agreed);
    for (int r = 0; r < record->ranks; r++) {
        record->step_s_sum += all[r].step_s;
        record->loader_s_sum += all[r].loader_s;
        for (int i = 0; i < ASK_COUNT; i++)
            if (all[r].asks[i] > record->agreed[i])
                record->agreed[i] = all[r].asks[i];
        alike = alike && all[r].asks[ASK_SKIP] == all[0].asks[ASK_SKIP];
    }
    return alike;
}

/* The reason of the first rank that asks for the run's end. Collective, where
 * one does. */
static enum err learn_why(struct trainer *trainer, const char *mine)
{
    struct step_record *record = &trainer->record;
    int asking = 0;
    if (record->agreed[ASK_FINISH] == 0)
        return ERR_OK;
    while (record->of_rank[asking].asks[ASK_FINISH] == 0)
        asking++;
    memcpy(record->why, mine, sizeof record->why);
    return comm_broadcast(trainer->comm, record->why, sizeof record->why,
                          asking);
}

enum err step_record_exchange(struct trainer *trainer)
{
    struct events *events = &trainer->events;
    struct step_record *record = &trainer->record;
    struct step_rank *mine = &trainer->of_rank[trainer->rank];
    size_t *bytes = comm_sizes(trainer->comm, 0);
    size_t *offsets = comm_sizes(trainer->comm, 1);
    bool failed = false;
    *mine = (struct step_rank){ .step_s = record->step_s,
                                .loader_s = record->loader_s,
                                .elapsed_s = trainer->elapsed_s,
                                .failed = events->held.code };
    struct asks asks = events->asks;
    memcpy(mine->asks, asks.of, sizeof mine->asks);
    events->asks = (struct asks){ .of = { 0 } };
    for (int r = 0; r < trainer->ranks; r++) {
        bytes[r] = sizeof *mine;
        offsets[r] = (size_t)r * sizeof *mine;
    }
    TRY(comm_all_gather(trainer->comm, trainer->of_rank, bytes, offsets));
    bool alike = answer(record);
    for (int r = 0; r < trainer->ranks; r++)
        failed = failed || trainer->of_rank[r].failed != ERR_OK;
    if (failed)
        return comm_agree(trainer->comm, err_again(&events->held));
    if (!alike)
        return err_set(ERR_INTERNAL,
                       "step %lld: not all ranks have left out the update: go "
                       "on from the last checkpoint",
                       (long long)trainer->step);
    return learn_why(trainer, asks.why);
}

bool step_record_seconds_due(struct duration interval, double *since)
{
    if (interval.unit != UNIT_SEC || interval.value <= 0 ||
        clock_now() - *since < interval.value)
        return false;
    *since = clock_now();
    return true;
}
