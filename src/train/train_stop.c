/* The listener by which all ranks agree, once a step, on whether to stop, save
 * or evaluate. Signals set the flag of src/job/stop.c; how long the job has
 * left is src/job/time_left.c. */
#include "src/train/train_stop.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/job/slurm.h"
#include "src/job/stop.h"
#include "src/job/time_left.h"

#define STOP_LEAD_S_MIN 30.0
#define LOOKS 64

struct train_stop {
    struct train_interval *interval; /* lent; NULL: none on this rank */
    struct lock *lock;               /* lent; NULL: not rank 0 */
    struct time_left left;           /* rank 0's */
    double look_at;                  /* rank 0's clock at the last look */
    double look_s[LOOKS];            /* times between the last looks, in turn */
    int looks;
    double commit_at; /* rank 0's clock when the interval began */
    double local_at;
    double eval_at;
};

enum {
    WORD_SIGNAL,
    WORD_FINISHED,
    WORD_COMMIT,
    WORD_LOCAL,
    WORD_EVAL,
    WORD_HOPELESS,
    WORD_LOST,
    WORDS
};

static bool seconds_due(struct duration interval, double *since)
{
    if (interval.unit != UNIT_SEC || interval.value <= 0 ||
        clock_now() - *since < interval.value)
        return false;
    *since = clock_now();
    return true;
}

/* Is the job's end so near that another step might not be saved? */
static void look_at_time(struct train_stop *stop, const struct trainer *trainer)
{
    double now = clock_now();
    double longest_s = 0;
    stop->look_s[stop->looks++ % LOOKS] = now - stop->look_at;
    stop->look_at = now;
    for (int i = 0; i < LOOKS; i++)
        longest_s = fmax(longest_s, stop->look_s[i]);
    double need_s =
        fmax(STOP_LEAD_S_MIN, 1.5 * longest_s + 2 * trainer->save_s);
    if (stop_requested() != 0 || !time_left_under(&stop->left, need_s))
        return;
    log_info("the job ends in less than %.0f s, which a step and a checkpoint "
             "may take",
             need_s);
    stop_request(SIGUSR1);
}

static enum err stop_agree(struct train_stop *stop, struct trainer *trainer)
{
    const struct train_settings *s = &trainer->settings;
    int64_t words[WORDS] = { 0 };
    if (trainer->rank == 0)
        look_at_time(stop, trainer);
    words[WORD_SIGNAL] = stop_requested();
    if (trainer->max_steps >= 0)
        words[WORD_FINISHED] = trainer->step >= trainer->max_steps;
    words[WORD_HOPELESS] = trainer->saves_failed >= s->checkpoint.failures_max;
    if (stop->lock != NULL)
        words[WORD_LOST] = lock_lost(stop->lock);
    if (trainer->rank == 0) {
        if (trainer->max_steps < 0)
            words[WORD_FINISHED] =
                trainer->elapsed_s >= s->train.max_duration.value;
        words[WORD_COMMIT] =
            seconds_due(s->checkpoint.interval, &stop->commit_at) ||
            train_interval_due(stop->interval, trainer->step);
        words[WORD_LOCAL] =
            seconds_due(s->checkpoint.local_interval, &stop->local_at);
        words[WORD_EVAL] = seconds_due(s->eval.interval, &stop->eval_at);
    }
    TRY(comm_all_reduce_i64(trainer->comm, words, WORDS, COMM_MAX));
    if (words[WORD_LOST] != 0)
        return stop->lock != NULL
                   ? lock_check(stop->lock)
                   : err_set(ERR_BUSY, "rank 0 has lost the run's lock");
    trainer->stop_signal = (int)words[WORD_SIGNAL];
    trainer->finished = words[WORD_FINISHED] != 0;
    trainer->commit_due = words[WORD_COMMIT] != 0;
    trainer->local_due = words[WORD_LOCAL] != 0;
    trainer->eval_due = words[WORD_EVAL] != 0;
    trainer->saves_hopeless = words[WORD_HOPELESS] != 0;
    if (trainer->stop_signal != 0 && trainer->rank == 0)
        log_info("signal %d: stopping after step %lld", trainer->stop_signal,
                 (long long)trainer->step);
    return ERR_OK;
}

static enum err stop_handle(void *self, enum event event,
                            struct trainer *trainer)
{
    struct train_stop *stop = self;
    if (event == EVENT_FIT_START) {
        /* a signal may have come while data and weights were loaded */
        train_interval_begin(stop->interval, trainer->step);
        stop->look_at = clock_now();
        stop->commit_at = stop->local_at = stop->eval_at = stop->look_at;
        return trainer->finished ? ERR_OK : stop_agree(stop, trainer);
    }
    return stop_agree(stop, trainer);
}

enum err train_stop_create(struct train_interval *interval, struct lock *lock,
                           struct train_stop **out)
{
    *out = calloc(1, sizeof **out);
    if (*out == NULL)
        return err_set(ERR_MEMORY, "out of memory");
    (*out)->interval = interval;
    (*out)->lock = lock;
    if (lock != NULL) {
        struct slurm slurm;
        slurm_read(&slurm);
        time_left_begin(&(*out)->left, slurm.job_id);
    }
    return ERR_OK;
}

void train_stop_destroy(struct train_stop *stop)
{
    free(stop);
}

struct listener train_stop_listener(struct train_stop *stop)
{
    return (struct listener){
        .name = "stop",
        .events = EVENT_BIT(EVENT_FIT_START) | EVENT_BIT(EVENT_BATCH_END),
        .handle = stop_handle,
        .self = stop,
    };
}
