/* The loop of a run: made, started, trained and ended on this rank. */
#pragma once

#include "src/data/set/loader.h"
#include "src/train/run/run.h"

/* Borrow comm, make everything that a run needs: data, model, memory. No file
 * is written. Collective. */
enum err trainer_create(struct comm *comm,
                        const struct train_settings *settings, int attempt,
                        struct run **out);
/* With what listeners do in the background, which ends on all ranks together.
 * false: it does not end, nothing was freed, and the process should end soon.
 * NULL is fine. */
bool trainer_destroy(struct run *run);

/* Run init, before_load, after_load: fresh weights, or those that the settings
 * name, unless a listener restored a state (step > 0). Collective. */
enum err trainer_start(struct run *run);

/* Train until max_duration or an agreed stop, or until the run is to go back
 * (run->now.back.asked): then without fit_end. A run that is finished already
 * goes from fit_start to fit_end. Collective. */
enum err trainer_fit(struct run *run);

/* Computes the first microbatch of every rank and gives the batch up; on a
 * device also as if each of its samples were one document, for which there may
 * be other algorithms. The run's state stays. Collective. */
enum err trainer_warm_up(struct run *run);

/* What the first step of a run needs to know besides, when algorithms are
 * chosen, for they decide bits: with train.precision = "fp8" the first batch is
 * computed, all of it, with scales of 1, and given up, but for the magnitudes
 * that it has shown. Nothing happens in other precisions and later.
 * Collective. */
enum err trainer_calibrate(struct run *run);

/* One optimizer step; increments run->position.step (trainer_step.c), unless the run
 * is to go back, or the step was given up (run->now.stop.agreed). */
enum err trainer_step(struct run *run);

/* After a failure of the run, rc: where ranks compute together they find out
 * what all of them end with (replica_roll_call()), and run->engine.adrift is set;
 * otherwise it is rc. */
enum err trainer_roll_call(struct run *run, enum err rc);

/* Tell the listeners, with the record at the trainer's position. */
enum err trainer_event(struct run *run, enum event event);

/* Fills in the record of a step (step_record.h), for which the ranks exchange
 * what they know.
 *
 * Room for the run's record and what does not change in it. */
enum err trainer_record_create(struct run *run);
void trainer_record_destroy(struct run *run);

/* Where utilization (MFU) is to be known: finds the peak, and logs it. */
void trainer_record_find_peak(struct run *run);

/* The run's position, which every event has. */
void trainer_record_position(struct run *run);

void trainer_record_time(struct run *run, double step_s);

/* The exchange, and the asks' end. A failure that a rank has held back is
 * everybody's. Collective. */
enum err trainer_record_exchange(struct run *run);

/* A stop amid a step: between the microsteps of a batch the ranks agree to give
 * it up, so that a run whose steps take long is saved soon after a signal, with
 * the state of its last finished step.
 * 
 * They look about once a second, by the time of the step before, which all ranks
 * know: a step of less than a second is finished, and so is any where ranks
 * compute together (experts or sequences that are shared), and where there are
 * plug-ins, which have heard of the step already. On several ranks what one look
 * has asked the next one hears, so that nobody waits. A device's microsteps are
 * enqueued faster than they are computed: there it is the batch's end.
 *
 * The batch that follows may be given up, or not. */
void trainer_stop_begin(struct run *run, bool may);
/* Before each microstep, and after the last. Collective. */
enum err trainer_stop_look(struct run *run, int microstep);
enum err trainer_stop_end(struct run *run);

/* What a rank computes has a limit, five times the longest of the last 64 steps: who
 * passes it is named (comm_work()), long before others have waited for
 * parallel.timeout_s. It holds after the first three steps of an attempt, for a step's
 * own work: not for data, listeners and what lies between two steps.
 *
 * The step at hand begins. */
void trainer_pace_begin(struct run *run);
/* What may take long begins within it, or is over. */
void trainer_pace_rest(const struct run *run, bool rests);
/* The step has taken step_s. */
void trainer_pace_end(struct run *run, double step_s);

/* Algorithms that decide bits and speed (kernels->measure): chosen once per
 * run, before its first step, by what rank 0 measures. RUN/choices and every
 * checkpoint have them as text, and all ranks and attempts take them from
 * there: first from the checkpoint that was loaded, else from RUN/choices.
 *
 * After the load, before the first step. Without a text the first microbatch is
 * computed and given up, so that ops know what they will be asked for. Nothing
 * happens where the table has nothing to choose. Sets run->engine.choices.
 * Collective. */
enum err trainer_choices_settle(struct run *run);

/* --- one attempt, from the lock on the run directory to the exit code --- */

/* Take the run lock, sweep leftovers, resume or start, train, record. On return
 * *exit_code is EXIT_DONE or EXIT_REQUEUE (agreed by all ranks) if ERR_OK;
 * otherwise every rank has the same error, and those that saw it first have
 * written RUN/reasons/attempt-NNNN.rank-NNNN with code and text. Collective.
 * *adrift: the ranks are not together any more, after ERR_COMM or a failure
 * amid a computation that they share: only comm_abort() may follow. */
struct train_stages;
enum err train_run(struct comm *comm, const struct train_settings *settings,
                   struct train_stages *stages, int *exit_code, bool *adrift);

/* --- losses (trainer_eval.c, trainer_samples.c) ---
 *
 * Losses without a gradient: an evaluation is the loss on held-out text, and an
 * algorithm may ask for the loss of each sample of the step at hand.
 *
 * The data set of an evaluation is read in its own order in leaves of
 * train.microbatch samples, dealt in contiguous ranges to the ranks, or to
 * groups of parallel.sequence_degree ranks that compute one together. A leaf has a loss
 * for each of its parallel.sequence_chunks; losses are summed in the order of
 * leaves and their chunks, so the result does not depend on the number of
 * ranks, nor on how many share a sequence. */

struct trainer_eval;

/* Borrows the trainer; of this one of its eval_sets eval.samples are
 * evaluated. After an error *out is to be destroyed, too. */
enum err trainer_eval_create(struct run *run, int set,
                             struct trainer_eval **out);
/* NULL is fine. */
void trainer_eval_destroy(struct trainer_eval *eval);

/* *done is false when a stop signal has cut it short; else *out is the result, the
 * same on all ranks but for seconds. Collective. */
enum err trainer_eval_run(struct trainer_eval *eval, struct step_eval *out,
                          bool *done);

/* The loss of each sample of the step at hand, with the weights as they are and
 * without a gradient: the forward pass of an evaluation, one sample at a time,
 * by the ranks that will train on it. A sample's number has the same bits
 * whatever the microbatch, the ranks and the strategy. */
struct trainer_samples;

/* Borrows the trainer. Fails on one rank alone. */
enum err trainer_samples_create(struct run *run, struct trainer_samples **out);
/* NULL is fine. */
void trainer_samples_destroy(struct trainer_samples *samples);

/* Mean losses of the labels among each sample's first seq_len tokens,
 * [train.global_batch] by their places in the batch; below 0 where there is no
 * label. Lent until the next call; the same on every rank. Collective. */
enum err trainer_samples_losses(struct trainer_samples *samples,
                                int64_t seq_len, const double **out);

/* --- the batch as the model's leaf (trainer_leaf.c) --- */

/* first_sample: number of the first one in the whole run. Lends the batch's
 * arrays. */
struct leaf trainer_leaf(const struct run *run, int64_t first_sample);

/* The first seq_len tokens of each of the leaf's samples, in the place of the
 * batch's; *loss_tokens becomes the number of labels. Nothing happens where they
 * have no more. */
void trainer_leaf_shorten(struct batch *batch, int64_t seq_len,
                          struct leaf *leaf, int64_t *loss_tokens);

/* The leaf's samples but those that are left_out[samples], in the place of the
 * batch's; where all are, one that bears no loss stays. *loss_tokens becomes the
 * number of labels. */
void trainer_leaf_choose(struct batch *batch, const bool *left_out,
                         struct leaf *leaf, int64_t *loss_tokens);

/* A batch of nobody: no position bears loss. For a rank that has no leaf, or
 * could not read it, but is needed in the model by those with which it shares
 * experts or sequences. */
void trainer_leaf_empty(int64_t samples, struct batch *batch);
