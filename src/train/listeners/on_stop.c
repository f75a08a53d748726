/* Listener: when to stop. A rank that a signal has asked to stop asks the
 * others to, and rank 0 where the run directory has a file STOP; rank 0 fails
 * when another process has taken the run over, which ends all of them with
 * ERR_BUSY. Signals set the flag of src/job/stop.c.
 *
 * In a job with a time limit (src/job/time_left.c) rank 0 asks to stop by
 * itself when what is left is less than 1.5 of the longest of
 * the last 64 steps (with evaluation and what a step waits for a save) and what
 * listeners need at the end, and at least half a minute. So a run whose steps
 * or saves take longer than the signal of its job's script leads loses nothing
 * either. */
#include <assert.h>
#include <math.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/job/lock.h"
#include "src/job/slurm.h"
#include "src/job/stop.h"
#include "src/train/run/run.h"

#define STOP_LEAD_S_MIN 30.0
#define LOOKS 64

struct on_stop {
    struct lock *lock;     /* lent; NULL: not rank 0 */
    const char *run_dir;   /* lent */
    struct time_left left; /* rank 0's */
    double look_at;        /* rank 0's clock at the last look */
    double look_s[LOOKS];  /* times between the last looks, in turn */
    int looks;
};

/* Is the job's end so near that another step might not be saved? */
static void look_at_time(struct on_stop *stop, double end_s)
{
    double now = clock_now();
    double longest_s = 0;
    assert(end_s >= 0.0 && now >= stop->look_at);
    stop->look_s[stop->looks++ % LOOKS] = now - stop->look_at;
    stop->look_at = now;
    for (int i = 0; i < LOOKS; i++)
        longest_s = fmax(longest_s, stop->look_s[i]);
    double need_s = fmax(STOP_LEAD_S_MIN, 1.5 * longest_s + end_s);
    if (stop_requested() != 0 || !time_left_under(&stop->left, need_s))
        return;
    log_info("the job ends in less than %.0f s, which a step and a checkpoint "
             "may take",
             need_s);
    stop_request(STOP_BY_TIME);
}

static enum err stop_handle(void *self, enum event event,
                            const struct step_record *step, struct asks *asks)
{
    struct on_stop *stop = self;
    if (event == EVENT_FIT_START) {
        stop->look_at = clock_now();
        return ERR_OK;
    }
    if (step->rank == 0) {
        stop_look_for_file(stop->run_dir);
        look_at_time(stop, asks->end_s);
    }
    events_ask(asks, ASK_STOP, stop_requested());
    return stop->lock != NULL && lock_lost(stop->lock) ? lock_check(stop->lock)
                                                       : ERR_OK;
}

static enum err stop_create(void *self, const struct run *run)
{
    struct on_stop *stop = self;
    stop->lock = run->lock;
    stop->run_dir = run->settings.run.dir;
    if (run->rank == 0) {
        struct slurm slurm;
        slurm_read(&slurm);
        time_left_begin(&stop->left, slurm.job_id);
    }
    return ERR_OK;
}

const struct listener_ops on_stop_ops = { LISTENER_OF(struct on_stop),
                                          .create = stop_create,
                                          .handle = stop_handle };
