/* Decides whether it is time to evaluate.
 *
 * Two attempts must not write two lines for one step, and an evaluation that a
 * kill has prevented is made up for. So the file of results itself says what was
 * done: a start looks whether it has a whole line for the step at which it stands.
 * Intervals in steps follow from the step alone, those in seconds from rank 0's
 * clock, of which the others hear in the exchange. */
#include "src/train/listeners/eval_due.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/base/fsio.h"
#include "src/base/regular.h"

/* Rank 0: has an earlier attempt written a result for this step? */
static enum err due_find(const struct eval_due *due, bool *found)
{
    char path[FSIO_PATH_MAX], key[64];
    char *line = NULL;
    FILE *file = NULL;
    size_t capacity = 0;
    const struct run *run = due->run;
    assert(run->rank == 0);
    TRY(fsio_path(path, "%s/" EVAL_DUE_FILE, run->settings.run.dir));
    snprintf(key, sizeof key, "%s%lld%s", due->before,
             (long long)run->position.step, due->behind);
    TRY(regular_stream(path, &file));
    *found = false;
    while (file != NULL && !*found && getline(&line, &capacity, file) >= 0)
        *found = strstr(line, key) != NULL && strstr(line, "}\n") != NULL;
    if (file != NULL)
        fclose(file);
    free(line);
    return ERR_OK;
}

/* An attempt may have ended between the last commit and the evaluation that
 * was to follow it. */
static enum err due_resume(struct eval_due *due)
{
    const struct run *run = due->run;
    enum err rc = ERR_OK;
    bool found = false;
    if (run->rank == 0)
        rc = due_find(due, &found);
    TRY(comm_agree(run->comm, rc));
    due->last_step = found ? run->position.step : -1;
    return comm_all_reduce_i64(run->comm, &due->last_step, 1, COMM_MAX);
}

/* After a step that is due, or the last one. */
static enum err due_step(struct eval_due *due, const struct step_record *step,
                         bool last, struct asks *asks)
{
    bool done = false;
    assert(step->step == due->run->position.step);
    assert(due->last_step <= step->step); /* what is ahead was never done */
    if (due->last_step == step->step)
        return ERR_OK;
    if (last ? !step->finished
             : step->agreed[due->ask] == 0 && !run_due(due->run, due->interval))
        return ERR_OK;
    /* the time that a signal leaves is for the checkpoint */
    if (step->stop_signal == 0) {
        TRY(run_swap(due->run));
        TRY(due->evaluate(due->self, &done));
        TRY(run_swap(due->run));
    }
    if (done)
        due->last_step = step->step;
    if (last)
        events_ask(asks, ASK_CONTINUE, !done);
    return ERR_OK;
}

enum err eval_due_handle(struct eval_due *due, enum event event,
                         const struct step_record *step, struct asks *asks)
{
    switch (event) {
    case EVENT_AFTER_LOAD:
        return due_resume(due);
    case EVENT_FIT_START:
        due->since = clock_now();
        return ERR_OK;
    case EVENT_BATCH_ASK:
        if (step->rank == 0)
            events_ask(asks, due->ask,
                       step_record_seconds_due(due->interval, &due->since));
        return ERR_OK;
    default:
        return due_step(due, step, event == EVENT_FIT_END, asks);
    }
}
