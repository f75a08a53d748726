/* The loop of a run: made, started, trained and ended on this rank. */
#pragma once

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

/* The step took so long. */
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
enum err train_run(struct comm *comm, const struct train_settings *settings,
                   int *exit_code, bool *adrift);
