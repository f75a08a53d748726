/* One optimizer step. Events around it come from trainer.c.
 *
 * A batch is cut into slots and a slot into leaves: microbatches, or chunks of
 * them. A leaf is the unit of arithmetic. Whoever computes it, its gradient has
 * the same bits, and the replica adds leaves within a slot and slots in one order,
 * so ranks decide who computes what and nothing else. All ranks go through the
 * same number of microsteps, each with one leaf of its own or without: weights,
 * experts and gradients come from ranks that are in the same one.
 *
 * The order of a step:
 *   algorithms say which samples and how much of them there is to train on;
 *   the leaves' gradients are summed, and where an algorithm asks a second time;
 *   the step is judged, and may leave out the update or have the run go back;
 *   clipping, the algorithms' changes, the optimizer, the algorithms again.
 * The position counts the step behind the update. Whatever ends it before that
 * leaves position, weights and moments as they were, but for what the replica
 * makes anew of its masters. */
#include <assert.h>
#include <limits.h>
#include <math.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/base/timeline.h"
#include "src/train/loop/trainer.h"
#include "src/train/start/start.h"

/* The first sample of the microbatch whose chunks begin with this leaf. */
static int64_t first_sample(const struct run *run, int leaf)
{
    assert(leaf >= 0);
    return trainer_rollback_position(run, run->position.step) +
           trainer_ahead_offset(run, leaf);
}

static enum err read_leaf(struct run *run, int leaf)
{
    struct timeline_span span;
    TRY(trainer_event(run, EVENT_BEFORE_DATALOADER));
    double begin = clock_now();
    timeline_begin(run->timeline, &span, TIMELINE_LOADER);
    trainer_pace_rest(run, true);
    TRY(trainer_ahead_read(run, first_sample(run, leaf)));
    trainer_pace_rest(run, false);
    timeline_end(&span, NULL);
    run->now.record.loader_s += clock_now() - begin;
    return trainer_event(run, EVENT_AFTER_DATALOADER);
}

/* Somebody may want to look at the slot's first microbatch. */
static void let_look(struct run *run, int number)
{
    struct run_look *look = run->engine.look;
    bool first =
        look != NULL && number >= 0 && number % look->leaves < look->chunks;
    if (first)
        look->of_leaf.figures =
            look->all +
            (number / look->leaves * look->chunks + number % look->leaves) *
                run->settings.model.n_layers;
    model_look(run->engine.model, first ? &look->of_leaf : NULL);
}

/* This rank's leaves of the microbatch; -1: only for others. */
static enum err train_leaf(struct run *run, int number, int64_t *loss_tokens)
{
    const struct train_settings *s = &run->settings;
    struct batch *batch = run->inputs.batch;
    assert(number < run->engine.losses.count);
    assert(run->now.seq_len > 0 && run->now.seq_len <= s->data.seq_len);
    if (number < 0)
        trainer_leaf_empty(s->train.microbatch, batch);
    struct leaf leaf =
        trainer_leaf(run, number < 0 ? 0 : first_sample(run, number));
    trainer_leaf_shorten(batch, run->now.seq_len, &leaf, &batch->loss_tokens);
    if (run->now.left_out != NULL && number >= 0)
        trainer_leaf_choose(
            batch, run->now.left_out + trainer_ahead_offset(run, number), &leaf,
            &batch->loss_tokens);
    let_look(run, number);
    TRY(model_train_leaf(run->engine.model, replica_access(run->engine.replica),
                         &leaf,
                         trainer_losses_at(&run->engine.losses, number)));
    /* the ranks of a sequence have read the same labels */
    if (number >= 0 && number % s->parallel.sequence_chunks == 0)
        *loss_tokens += batch->loss_tokens;
    return ERR_OK;
}

/* A leaf that fails is the rank's last in this batch, but the others need the
 * rank until the end of it. Those with which it computes can't go on without
 * what it has not computed. */
static enum err train_microstep(struct run *run, int microstep, bool wanted,
                                struct err_kept *failed, int64_t *loss_tokens)
{
    struct replica *replica = run->engine.replica;
    assert(microstep >= 0 && microstep < replica_microsteps(replica));
    int leaf = wanted && failed->code == ERR_OK
                   ? replica_leaf(replica, microstep)
                   : -1;
    TRY(replica_begin_leaf(replica, microstep));
    if (leaf >= 0)
        err_keep(failed, read_leaf(run, leaf));
    bool computes = leaf >= 0 && failed->code == ERR_OK;
    if (computes || replica_serves(replica)) {
        enum err rc = train_leaf(run, computes ? leaf : -1, loss_tokens);
        run->engine.adrift = rc != ERR_OK && replica_shares(replica);
        if (rc == ERR_COMM || run->engine.adrift)
            return rc;
        if (rc != ERR_OK)
            err_keep(failed, rc);
    }
    return replica_end_leaf(replica);
}

static enum err train_leaves(struct run *run, int microsteps,
                             int64_t *loss_tokens)
{
    struct err_kept failed = { ERR_OK, "" };
    struct timeline_span span;
    struct timeline_detail detail = { .dims = "microstep" };
    for (int m = 0; m < replica_microsteps(run->engine.replica); m++) {
        detail.dim[0] = m;
        TRY(trainer_stop_look(run, m));
        /* a batch that is given up has all microsteps, but no leaves */
        bool wanted = m < microsteps && run->now.stop.agreed == 0;
        if (run->now.stop.agreed != 0)
            replica_give_up(run->engine.replica);
        timeline_begin(run->timeline, &span, TIMELINE_MICROBATCH);
        TRY(train_microstep(run, m, wanted, &failed, loss_tokens));
        timeline_end(&span, &detail);
    }
    bool given_up = run->now.stop.agreed != 0;
    TRY(trainer_stop_end(run));
    if (!given_up)
        run->now.stop.agreed = 0;
    return err_again(&failed);
}

/* The leaves of this rank in so many microsteps, and the way of what they leave
 * beside gradients to the host. */
static enum err compute_batch(struct run *run, int microsteps,
                              int64_t *loss_tokens)
{
    struct model *model = run->engine.model;
    *loss_tokens = 0;
    replica_begin_batch(run->engine.replica);
    TRY(model_expert_counts_clear(model));
    TRY(model_fp8_clear(model));
    TRY(train_leaves(run, microsteps, loss_tokens));
    TRY(trainer_losses_fetch(&run->engine.losses, run->engine.stream));
    TRY(model_expert_counts_fetch(model));
    return run->engine.fp8 != NULL
               ? model_fp8_download(model, trainer_fp8_found(run->engine.fp8))
               : ERR_OK;
}

/* Again in smaller ones when they do not fit on some rank. */
static enum err train_batch(struct run *run, int microsteps,
                            int64_t *loss_tokens)
{
    assert(!run->engine.adrift && microsteps > 0);
    for (;;) {
        enum err rc = compute_batch(run, microsteps, loss_tokens);
        if (!run->engine.adrift)
            rc = comm_agree(run->comm, rc);
        if (rc != ERR_MEMORY || run->engine.adrift)
            return rc;
        TRY(trainer_memory_shrink(run));
    }
}

/* What the leaves have left on the device, after it was waited for. */
static enum err sum_leaves(struct run *run, double *loss_sum,
                           double *balance_sum)
{
    const struct train_settings *s = &run->settings;
    const struct leaf_loss *host = trainer_losses_host(&run->engine.losses);
    size_t experts = (size_t)(s->model.n_layers * s->model.experts);
    for (int64_t i = 0; i < run->engine.losses.count; i++) {
        run->engine.leaf_loss[i] = host[i].cross_entropy;
        run->engine.leaf_balance[i] = host[i].balance;
    }
    TRY(replica_leaf_sum(run->engine.replica, run->engine.leaf_loss, loss_sum));
    if (experts == 0)
        return ERR_OK;
    TRY(replica_leaf_sum(run->engine.replica, run->engine.leaf_balance,
                         balance_sum));
    memcpy(run->engine.expert_counts, model_expert_counts(run->engine.model),
           experts * sizeof run->engine.expert_counts[0]);
    return comm_all_reduce_i64(run->comm, run->engine.expert_counts, experts,
                               COMM_SUM);
}

/* Whether there may be a step without numbers (train.on_nan). */
static enum err check_finite(const struct run *run)
{
    const struct step_record *record = &run->now.record;
    if (!record->diverged || run->settings.train.on_nan != ON_NAN_STOP)
        return ERR_OK;
    return err_set(ERR_NUMERIC,
                   "step %lld: loss %g, gradient norm %g: training diverged; "
                   "lower optimizer.lr, or check the data; train.on_nan can "
                   "leave such batches out",
                   (long long)run->position.step + 1, record->loss,
                   record->grad_norm);
}

enum err trainer_warm_up(struct run *run)
{
    enum err rc = ERR_OK;
    int64_t tokens = 0;
    /* later leaves may be of either kind, and attention is another */
    if (run->engine.kernels->memory->device &&
        run->settings.model.attn_uses_sequence_id) {
        run->inputs.whole_samples = true;
        rc = train_batch(run, 1, &tokens);
        run->inputs.whole_samples = false;
        TRY(rc);
    }
    return train_batch(run, 1, &tokens);
}

/* From what was fetched and waited for to the scales of the next batch. */
static enum err learn_scales(struct run *run)
{
    TRY(trainer_fp8_learn(run->engine.fp8, run->comm));
    return trainer_fp8_give(run->engine.fp8, run->engine.model);
}

enum err trainer_calibrate(struct run *run)
{
    int64_t tokens = 0;
    if (run->engine.fp8 == NULL || run->position.step > 0)
        return ERR_OK;
    TRY(train_batch(run, INT_MAX, &tokens));
    TRY(replica_settle(run->engine.replica));
    return learn_scales(run);
}

/* What all ranks know of the batch when its gradients are summed: the record's
 * part of it, and what the gradients are to be multiplied by. */
static enum err sum_batch(struct run *run, int64_t tokens, double *scale)
{
    double loss_sum = 0.0;
    double balance_sum = 0.0;
    double norm = 0.0;
    struct step_record *record = &run->now.record;
    /* the one place of a step at which the host waits for a device */
    TRY(replica_gradient_norm(run->engine.replica, &norm));
    TRY(sum_leaves(run, &loss_sum, &balance_sum));
    TRY(comm_all_reduce_i64(run->comm, &tokens, 1, COMM_SUM));
    /* the mean is over labels and not over samples: a batch whose samples differ
     * in that has the same gradient however it is cut */
    *scale = tokens > 0 ? 1.0 / (double)tokens : 0.0;
    record->loss_tokens = tokens;
    record->loss = loss_sum * *scale;
    record->balance_loss = balance_sum * *scale;
    record->grad_norm = norm * *scale;
    record->lr = run->settings.optimizer.lr *
                 schedule_multiplier(&run->plan.schedule, run->position.step);
    return ERR_OK;
}

/* Such as of prompts that are longer than what a step trains on. */
static void warn_of_no_labels(struct run *run)
{
    long long whole = (long long)run->settings.data.seq_len;
    if (run->now.told_empty || run->rank != 0)
        return;
    run->now.told_empty = true;
    if (run->now.seq_len < whole)
        log_warn("step %lld trains on nothing: no label is among the first "
                 "%lld of the %lld tokens of its samples: raise min_seq_len of "
                 "seq_length_warmup above the length of prompts; later steps "
                 "without labels are not told (train/loss_tokens)",
                 (long long)run->position.step + 1, (long long)run->now.seq_len,
                 whole);
    else
        log_warn("step %lld trains on nothing: none of its samples has a "
                 "label; later ones like it are not told (train/loss_tokens)",
                 (long long)run->position.step + 1);
}

/* The summed gradient of the batch, with the weights as they are. */
static enum err find_gradient(struct run *run, struct algorithm_step *step)
{
    int64_t tokens = 0;
    struct timeline_span span;
    TRY(train_batch(run, INT_MAX, &tokens));
    if (run->now.stop.agreed != 0)
        return ERR_OK;
    timeline_begin(run->timeline, &span, TIMELINE_GRADIENTS);
    TRY(replica_finish_batch(run->engine.replica));
    TRY(sum_batch(run, tokens, &step->scale));
    timeline_end(&span, NULL);
    step->norm = run->now.record.grad_norm;
    if (run->now.record.loss_tokens == 0)
        warn_of_no_labels(run);
    run->now.record.diverged =
        !isfinite(run->now.record.loss) || !isfinite(run->now.record.grad_norm);
    return check_finite(run);
}

/* The gradient that counts, which may be a second one: the loss is the first
 * one's. */
static enum err step_gradient(struct run *run, struct algorithm_step *step)
{
    struct step_record *record = &run->now.record;
    trainer_stop_begin(run, true);
    TRY(find_gradient(run, step));
    if (run->now.stop.agreed != 0)
        return ERR_OK;
    TRY(run->engine.kernels->memory->event_await(run->engine.copied,
                                                 run->engine.stream));
    if (record->diverged)
        return ERR_OK;
    trainer_stop_begin(run, false);
    TRY(algorithms_after_gradient(&run->algorithms, step));
    if (!step->again)
        return ERR_OK;
    double loss = record->loss, balance = record->balance_loss;
    TRY(find_gradient(run, step));
    record->loss = loss;
    record->balance_loss = balance;
    return algorithms_after_again(&run->algorithms);
}

/* Clips, and what else changes the gradient before the update. */
static enum err change_gradient(struct run *run, struct algorithm_step *step)
{
    const struct train_settings *s = &run->settings;
    assert(!run->now.record.diverged && step->scale >= 0.0);
    double limit = s->needs.clips ? 0.0 : s->train.clip_norm;
    if (limit > 0.0 && step->norm > limit) {
        step->scale *= limit / step->norm;
        step->norm = limit;
    }
    return algorithms_change_gradient(&run->algorithms, step);
}

/* The optimizer's, or none where there are no numbers: moments stay, too, and
 * the weights at work are made anew of the masters, as a second gradient may
 * have been elsewhere. */
static enum err update(struct run *run, double scale)
{
    struct optimizer_step steps[1 + OPTIMIZER_GROUPS];
    if (run->now.record.diverged)
        return replica_publish(run->engine.replica);
    trainer_groups_steps(run, scale, steps);
    TRY(replica_update(run->engine.replica, steps));
    return run->engine.fp8 != NULL ? learn_scales(run) : ERR_OK;
}

enum err trainer_step(struct run *run)
{
    struct step_record *record = &run->now.record;
    int64_t *skip = &run->events.asks.of[ASK_SKIP];
    const struct train_settings *s = &run->settings;
    struct algorithm_step at = { .seq_len = s->data.seq_len,
                                 .samples = s->train.global_batch };
    struct timeline_span span;

    assert(!run->now.back.asked && !run->engine.adrift);
    *skip = 0;
    record->loader_s = 0.0;
    TRY(algorithms_before_batch(&run->algorithms, &at));
    assert(at.seq_len > 0 && at.seq_len <= s->data.seq_len);
    assert(at.samples > 0 && at.samples <= s->train.global_batch);
    run->now.seq_len = at.seq_len;
    run->now.samples = at.samples;
    run->now.left_out = at.left_out;
    TRY(step_gradient(run, &at));
    if (run->now.stop.agreed != 0) {
        run->now.left_out = NULL;
        return ERR_OK;
    }
    TRY(trainer_event(run, EVENT_AFTER_TRAIN_BATCH));
    if (run->now.back.asked)
        return ERR_OK;
    record->skipped = *skip != 0;
    assert(record->skipped || !record->diverged);
    timeline_begin(run->timeline, &span, TIMELINE_UPDATE);
    if (!record->skipped)
        TRY(change_gradient(run, &at));
    TRY(update(run, at.scale));
    timeline_end(&span, NULL);
    run->position.step++;
    run->now.left_out = NULL;
    run->position.tokens_left_out +=
        run->plan.rates.tokens_per_step - at.samples * at.seq_len;
    return algorithms_after_update(&run->algorithms);
}
