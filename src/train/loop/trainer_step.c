/* Loads and computes the leaves of this rank microstep by microstep, then all
 * ranks add gradients, judge the step and update. Events around a step come
 * from trainer.c.
 *
 * One optimizer step: slots, reduction, clipping, update. */
#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/base/timeline.h"
#include "src/train/loop/trainer_ahead.h"
#include "src/train/loop/trainer_leaf.h"
#include "src/train/start/trainer_memory.h"
#include "src/train/start/trainer_optimizer.h"
#include "src/train/loop/trainer_rollback.h"

/* The first sample of the microbatch whose chunks begin with this leaf. */
static int64_t first_sample(const struct trainer *trainer, int leaf)
{
    return trainer_rollback_position(trainer, trainer->step) +
           trainer_ahead_offset(trainer, leaf);
}

static enum err read_leaf(struct trainer *trainer, int leaf)
{
    struct timeline_span span;
    TRY(trainer_event(trainer, EVENT_BEFORE_DATALOADER));
    double begin = clock_now();
    timeline_begin(trainer->timeline, &span, TIMELINE_LOADER);
    TRY(trainer_ahead_read(trainer, first_sample(trainer, leaf)));
    timeline_end(&span, NULL);
    trainer->record.loader_s += clock_now() - begin;
    return trainer_event(trainer, EVENT_AFTER_DATALOADER);
}

/* Somebody may want to look at the slot's first microbatch. */
static void let_look(struct trainer *trainer, int number)
{
    struct trainer_look *look = trainer->look;
    bool first =
        look != NULL && number >= 0 && number % look->leaves < look->chunks;
    if (first)
        look->of_leaf.figures =
            look->all +
            (number / look->leaves * look->chunks + number % look->leaves) *
                trainer->settings.model.n_layers;
    model_look(trainer->model, first ? &look->of_leaf : NULL);
}

/* This rank's leaves of the microbatch; -1: only for others. */
static enum err train_leaf(struct trainer *trainer, int number,
                           int64_t *loss_tokens)
{
    const struct train_settings *s = &trainer->settings;
    struct batch *batch = trainer->batch;
    if (number < 0)
        trainer_leaf_empty(s->train.microbatch, batch);
    struct leaf leaf =
        trainer_leaf(trainer, number < 0 ? 0 : first_sample(trainer, number));
    trainer_leaf_shorten(batch, trainer->seq_len, &leaf, &batch->loss_tokens);
    if (trainer->left_out != NULL && number >= 0)
        trainer_leaf_choose(
            batch, trainer->left_out + trainer_ahead_offset(trainer, number),
            &leaf, &batch->loss_tokens);
    let_look(trainer, number);
    TRY(model_train_leaf(trainer->model, replica_access(trainer->replica),
                         &leaf, trainer_losses_at(&trainer->losses, number)));
    /* the ranks of a sequence have read the same labels */
    if (number >= 0 && number % s->parallel.sequence_chunks == 0)
        *loss_tokens += batch->loss_tokens;
    return ERR_OK;
}

/* A leaf that fails is the rank's last in this batch, but the others need the
 * rank until the end of it. Those with which it computes can't go on without
 * what it has not computed. */
static enum err train_microstep(struct trainer *trainer, int microstep,
                                bool wanted, struct err_kept *failed,
                                int64_t *loss_tokens)
{
    struct replica *replica = trainer->replica;
    int leaf = wanted && failed->code == ERR_OK
                   ? replica_leaf(replica, microstep)
                   : -1;
    TRY(replica_begin_leaf(replica, microstep));
    if (leaf >= 0)
        err_keep(failed, read_leaf(trainer, leaf));
    bool computes = leaf >= 0 && failed->code == ERR_OK;
    if (computes || replica_serves(replica)) {
        enum err rc = train_leaf(trainer, computes ? leaf : -1, loss_tokens);
        trainer->adrift = rc != ERR_OK && replica_shares(replica);
        if (rc == ERR_COMM || trainer->adrift)
            return rc;
        if (rc != ERR_OK)
            err_keep(failed, rc);
    }
    return replica_end_leaf(replica);
}

static enum err train_leaves(struct trainer *trainer, int microsteps,
                             int64_t *loss_tokens)
{
    struct err_kept failed = { ERR_OK, "" };
    struct timeline_span span;
    struct timeline_detail detail = { .dims = "microstep" };
    for (int m = 0; m < replica_microsteps(trainer->replica); m++) {
        detail.dim[0] = m;
        TRY(trainer_stop_look(trainer, m));
        /* a batch that is given up has all microsteps, but no leaves */
        bool wanted = m < microsteps && trainer->stop.agreed == 0;
        timeline_begin(trainer->timeline, &span, TIMELINE_MICROBATCH);
        TRY(train_microstep(trainer, m, wanted, &failed, loss_tokens));
        timeline_end(&span, &detail);
    }
    bool given_up = trainer->stop.agreed != 0;
    TRY(trainer_stop_end(trainer));
    if (!given_up)
        trainer->stop.agreed = 0;
    return err_again(&failed);
}

/* The leaves of this rank in so many microsteps, again in smaller ones when
 * they do not fit. */
static enum err train_batch(struct trainer *trainer, int microsteps,
                            int64_t *loss_tokens)
{
    enum err rc = ERR_OK;
    for (;;) {
        *loss_tokens = 0;
        replica_begin_batch(trainer->replica);
        rc = model_expert_counts_clear(trainer->model);
        if (rc == ERR_OK)
            rc = model_fp8_clear(trainer->model);
        if (rc == ERR_OK)
            rc = train_leaves(trainer, microsteps, loss_tokens);
        if (rc == ERR_OK)
            rc = trainer_losses_fetch(&trainer->losses, trainer->stream);
        if (rc == ERR_OK)
            rc = model_expert_counts_fetch(trainer->model);
        if (rc == ERR_OK && trainer->fp8 != NULL)
            rc = model_fp8_download(trainer->model,
                                    trainer_fp8_found(trainer->fp8));
        if (!trainer->adrift)
            rc = comm_agree(trainer->comm, rc);
        if (rc != ERR_MEMORY || trainer->adrift)
            return rc;
        TRY(trainer_memory_shrink(trainer));
    }
    return rc;
}

/* What the leaves have left on the device, after it was waited for. */
static enum err sum_leaves(struct trainer *trainer, double *loss_sum,
                           double *balance_sum)
{
    const struct train_settings *s = &trainer->settings;
    const struct leaf_loss *host = trainer_losses_host(&trainer->losses);
    size_t experts = (size_t)(s->model.n_layers * s->model.experts);
    for (int64_t i = 0; i < trainer->losses.count; i++) {
        trainer->leaf_loss[i] = host[i].cross_entropy;
        trainer->leaf_balance[i] = host[i].balance;
    }
    TRY(replica_leaf_sum(trainer->replica, trainer->leaf_loss, loss_sum));
    if (experts == 0)
        return ERR_OK;
    TRY(replica_leaf_sum(trainer->replica, trainer->leaf_balance, balance_sum));
    memcpy(trainer->expert_counts, model_expert_counts(trainer->model),
           experts * sizeof trainer->expert_counts[0]);
    return comm_all_reduce_i64(trainer->comm, trainer->expert_counts, experts,
                               COMM_SUM);
}

/* Whether there may be a step without numbers (train.on_nan). */
static enum err check_finite(const struct trainer *trainer)
{
    const struct step_record *record = &trainer->record;
    if (!record->diverged || trainer->settings.train.on_nan != ON_NAN_STOP)
        return ERR_OK;
    return err_set(ERR_NUMERIC,
                   "step %lld: loss %g, gradient norm %g: training diverged; "
                   "lower optimizer.lr, or check the data; train.on_nan can "
                   "leave such batches out",
                   (long long)trainer->step + 1, record->loss,
                   record->grad_norm);
}

enum err trainer_warm_up(struct trainer *trainer)
{
    enum err rc = ERR_OK;
    int64_t tokens = 0;
    /* later leaves may be of either kind, and attention is another */
    if (trainer->kernels->memory->device &&
        trainer->settings.model.attn_uses_sequence_id) {
        trainer->whole_samples = true;
        rc = train_batch(trainer, 1, &tokens);
        trainer->whole_samples = false;
        TRY(rc);
    }
    return train_batch(trainer, 1, &tokens);
}

/* From what was fetched and waited for to the scales of the next batch. */
static enum err learn_scales(struct trainer *trainer)
{
    TRY(trainer_fp8_learn(trainer->fp8, trainer->comm));
    return trainer_fp8_give(trainer->fp8, trainer->model);
}

enum err trainer_calibrate(struct trainer *trainer)
{
    int64_t tokens = 0;
    if (trainer->fp8 == NULL || trainer->step > 0)
        return ERR_OK;
    TRY(train_batch(trainer, INT_MAX, &tokens));
    TRY(replica_settle(trainer->replica));
    return learn_scales(trainer);
}

/* What all ranks know of the batch when its gradients are summed: the record's
 * part of it, and what the gradients are to be multiplied by. */
static enum err sum_batch(struct trainer *trainer, int64_t tokens,
                          double *scale)
{
    double loss_sum = 0.0;
    double balance_sum = 0.0;
    double norm = 0.0;
    struct step_record *record = &trainer->record;
    /* the one place of a step at which the host waits for a device */
    TRY(replica_gradient_norm(trainer->replica, &norm));
    TRY(sum_leaves(trainer, &loss_sum, &balance_sum));
    TRY(comm_all_reduce_i64(trainer->comm, &tokens, 1, COMM_SUM));
    *scale = tokens > 0 ? 1.0 / (double)tokens : 0.0;
    record->loss_tokens = tokens;
    record->loss = loss_sum * *scale;
    record->balance_loss = balance_sum * *scale;
    record->grad_norm = norm * *scale;
    record->lr = trainer->settings.optimizer.lr *
                 schedule_multiplier(&trainer->schedule, trainer->step);
    return ERR_OK;
}

/* Such as of prompts that are longer than what a step trains on. */
static void warn_of_no_labels(struct trainer *trainer)
{
    long long whole = (long long)trainer->settings.data.seq_len;
    if (trainer->told_empty || trainer->rank != 0)
        return;
    trainer->told_empty = true;
    if (trainer->seq_len < whole)
        log_warn("step %lld trains on nothing: no label is among the first "
                 "%lld of the %lld tokens of its samples: raise min_seq_len of "
                 "seq_length_warmup above the length of prompts; later steps "
                 "without labels are not told (train/loss_tokens)",
                 (long long)trainer->step + 1, (long long)trainer->seq_len,
                 whole);
    else
        log_warn("step %lld trains on nothing: none of its samples has a "
                 "label; later ones like it are not told (train/loss_tokens)",
                 (long long)trainer->step + 1);
}

/* The summed gradient of the batch, with the weights as they are. */
static enum err find_gradient(struct trainer *trainer,
                              struct algorithm_step *step)
{
    int64_t tokens = 0;
    struct timeline_span span;
    TRY(train_batch(trainer, INT_MAX, &tokens));
    if (trainer->stop.agreed != 0)
        return ERR_OK;
    timeline_begin(trainer->timeline, &span, TIMELINE_GRADIENTS);
    TRY(replica_finish_batch(trainer->replica));
    TRY(sum_batch(trainer, tokens, &step->scale));
    timeline_end(&span, NULL);
    step->norm = trainer->record.grad_norm;
    if (trainer->record.loss_tokens == 0)
        warn_of_no_labels(trainer);
    trainer->record.diverged =
        !isfinite(trainer->record.loss) || !isfinite(trainer->record.grad_norm);
    return check_finite(trainer);
}

/* The gradient that counts, which may be a second one: the loss is the first
 * one's. */
static enum err step_gradient(struct trainer *trainer,
                              struct algorithm_step *step)
{
    struct step_record *record = &trainer->record;
    trainer_stop_begin(trainer, true);
    TRY(find_gradient(trainer, step));
    if (trainer->stop.agreed != 0)
        return ERR_OK;
    TRY(trainer->kernels->memory->event_await(trainer->copied,
                                              trainer->stream));
    if (record->diverged)
        return ERR_OK;
    trainer_stop_begin(trainer, false);
    TRY(algorithms_after_gradient(&trainer->algorithms, step));
    if (!step->again)
        return ERR_OK;
    double loss = record->loss, balance = record->balance_loss;
    TRY(find_gradient(trainer, step));
    record->loss = loss;
    record->balance_loss = balance;
    return algorithms_after_again(&trainer->algorithms);
}

/* Clips, and what else changes the gradient before the update. */
static enum err change_gradient(struct trainer *trainer,
                                struct algorithm_step *step)
{
    const struct train_settings *s = &trainer->settings;
    double limit = s->needs.clips ? 0.0 : s->train.clip_norm;
    if (limit > 0.0 && step->norm > limit) {
        step->scale *= limit / step->norm;
        step->norm = limit;
    }
    return algorithms_change_gradient(&trainer->algorithms, step);
}

/* The optimizer's, or none where there are no numbers: moments stay, too, and
 * the weights at work are made anew of the masters, as a second gradient may
 * have been elsewhere. */
static enum err update(struct trainer *trainer, double scale)
{
    struct optimizer_step steps[1 + OPTIMIZER_GROUPS];
    if (trainer->record.diverged)
        return replica_publish(trainer->replica);
    trainer_optimizer_steps(trainer, scale, steps);
    TRY(replica_update(trainer->replica, steps));
    return trainer->fp8 != NULL ? learn_scales(trainer) : ERR_OK;
}

enum err trainer_step(struct trainer *trainer)
{
    struct step_record *record = &trainer->record;
    int64_t *skip = &trainer->events.asks.of[ASK_SKIP];
    const struct train_settings *s = &trainer->settings;
    struct algorithm_step at = { .seq_len = s->data.seq_len,
                                 .samples = s->train.global_batch };
    struct timeline_span span;

    *skip = 0;
    record->loader_s = 0.0;
    TRY(algorithms_before_batch(&trainer->algorithms, &at));
    trainer->seq_len = at.seq_len;
    trainer->samples = at.samples;
    trainer->left_out = at.left_out;
    TRY(step_gradient(trainer, &at));
    if (trainer->stop.agreed != 0) {
        trainer->left_out = NULL;
        return ERR_OK;
    }
    TRY(trainer_event(trainer, EVENT_AFTER_TRAIN_BATCH));
    if (trainer->back.asked)
        return ERR_OK;
    record->skipped = *skip != 0;
    assert(record->skipped || !record->diverged);
    timeline_begin(trainer->timeline, &span, TIMELINE_UPDATE);
    if (!record->skipped)
        TRY(change_gradient(trainer, &at));
    TRY(update(trainer, at.scale));
    timeline_end(&span, NULL);
    trainer->step++;
    trainer->left_out = NULL;
    trainer->tokens_left_out +=
        trainer->rates.tokens_per_step - at.samples * at.seq_len;
    return algorithms_after_update(&trainer->algorithms);
}
