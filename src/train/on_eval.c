/* Listener: has the loss on held-out text evaluated, every eval.interval and at
 * the end. How it is computed is trainer_eval.c's.
 *
 * Results go to the record and to RUN/eval.jsonl: attempt, step, eval_loss
 * (nats per token, %.9g; null where it is not finite), tokens, seconds. A stop
 * signal ends an evaluation early, without a result; the last step's is then
 * made up for by the next attempt, which the listener asks for. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/fsio.h"
#include "src/base/lines.h"
#include "src/base/log.h"
#include "src/train/trainer.h"
#include "src/train/trainer_eval.h"

#define EVAL_FILE "eval.jsonl"

struct on_eval {
    struct trainer *trainer;
    struct trainer_eval *eval; /* NULL: there is nothing to evaluate */
    double since;              /* rank 0's clock when the interval began */
    int64_t last_step;         /* evaluated last, in any attempt; -1: never */
};

static enum err on_eval_create(void *self, struct trainer *trainer)
{
    struct on_eval *on = self;
    on->trainer = trainer;
    on->last_step = -1;
    return trainer_eval_create(trainer, &on->eval);
}

static void on_eval_destroy(void *self)
{
    struct on_eval *on = self;
    trainer_eval_destroy(on->eval);
}

static enum err eval_write(const char *run_dir, int attempt,
                           const struct step_eval *result)
{
    char path[FSIO_PATH_MAX];
    char line[256];
    char value[32] = "null"; /* JSON has no NaN and no infinity */
    int fd = -1;
    if (isfinite(result->loss))
        snprintf(value, sizeof value, "%.9g", result->loss);
    TRY(lines_open(run_dir, EVAL_FILE, path, &fd));
    snprintf(line, sizeof line,
             "{\"attempt\": %d, \"step\": %lld, \"eval_loss\": %s, "
             "\"tokens\": %lld, \"seconds\": %.3f}",
             attempt, (long long)result->step, value, (long long)result->tokens,
             result->seconds);
    enum err rc = lines_append(fd, path, line);
    close(fd);
    return rc;
}

/* Rank 0: has an earlier attempt written a result for this step? */
static enum err eval_find(const struct trainer *trainer, bool *found)
{
    char path[FSIO_PATH_MAX];
    char key[48];
    char *line = NULL;
    size_t capacity = 0;
    TRY(fsio_path(path, "%s/" EVAL_FILE, trainer->settings.run.dir));
    snprintf(key, sizeof key, "\"step\": %lld,", (long long)trainer->step);
    FILE *file = fopen(path, "re");
    if (file == NULL && errno != ENOENT)
        return err_errno("%s: open", path);
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
static enum err eval_resume(struct on_eval *on, struct trainer *trainer)
{
    enum err rc = ERR_OK;
    bool found = false;
    int64_t step = -1;
    if (trainer->rank == 0)
        rc = eval_find(trainer, &found);
    TRY(comm_agree(trainer->comm, rc));
    if (found)
        step = trainer->step;
    TRY(comm_all_reduce_i64(trainer->comm, &step, 1, COMM_MAX));
    on->last_step = step;
    return rc;
}

static enum err eval_now(struct on_eval *on, bool *done)
{
    const struct trainer *trainer = on->trainer;
    const struct step_eval *result = &trainer->record.eval;
    enum err rc = ERR_OK;
    TRY(trainer_eval_run(on->eval, done));
    if (!*done)
        return ERR_OK;
    on->last_step = result->step;
    if (trainer->rank == 0) {
        log_info("step %lld eval loss %.4f (%lld tokens, %.1fs)",
                 (long long)result->step, result->loss,
                 (long long)result->tokens, result->seconds);
        tracking_list_add(trainer->record.scalars, "eval/loss", result->loss);
        tracking_list_add(trainer->record.scalars, "time/eval",
                          result->seconds);
        rc = eval_write(trainer->settings.run.dir, trainer->attempt, result);
    }
    return comm_agree(trainer->comm, rc);
}

/* After a step that is due, or the last one. */
static enum err eval_step(struct on_eval *on, const struct step_record *step,
                          bool last, struct asks *asks)
{
    const struct trainer *trainer = on->trainer;
    bool done = false;
    if (on->last_step == step->step)
        return ERR_OK;
    if (last ? !step->finished
             : step->agreed[ASK_EVALUATE] == 0 &&
                   !trainer_due(trainer, trainer->settings.eval.interval))
        return ERR_OK;
    /* the time that a signal leaves is for the checkpoint */
    if (step->stop_signal == 0)
        TRY(eval_now(on, &done));
    if (last)
        events_ask(asks, ASK_CONTINUE, !done);
    return ERR_OK;
}

static enum err eval_handle(void *self, enum event event,
                            const struct step_record *step, struct asks *asks)
{
    struct on_eval *on = self;
    if (on->eval == NULL)
        return ERR_OK;
    switch (event) {
    case EVENT_AFTER_LOAD:
        return eval_resume(on, on->trainer);
    case EVENT_FIT_START:
        on->since = clock_now();
        return ERR_OK;
    case EVENT_BATCH_ASK:
        if (step->rank == 0)
            events_ask(asks, ASK_EVALUATE,
                       step_record_seconds_due(
                           on->trainer->settings.eval.interval, &on->since));
        return ERR_OK;
    default:
        return eval_step(on, step, event == EVENT_FIT_END, asks);
    }
}

const struct listener_ops on_eval_ops = {
    .bytes = sizeof(struct on_eval),
    .create = on_eval_create,
    .destroy = on_eval_destroy,
    .handle = eval_handle,
};
