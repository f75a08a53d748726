/* Listener: has the loss on held-out text evaluated, every eval.interval and at
 * the end. How it is computed is trainer_eval.c's.
 *
 * Results go to the record and to RUN/eval.jsonl: attempt, step, eval_loss
 * (nats per token; null where it is not finite), tokens, all of data.eval, which
 * decides what is best, and seconds of all; "sets" has loss and tokens of
 * each of eval.sets by its name. A stop signal ends an evaluation early, without a
 * result for any set. */
#include <stdio.h>
#include <stdlib.h>

#include "checkpoint/files/ckpt_index.h"
#include "src/base/clock.h"
#include "src/base/fsio.h"
#include "src/base/jsontext.h"
#include "src/base/lines.h"
#include "src/base/log.h"
#include "src/train/listeners/eval_due.h"
#include "src/train/loop/trainer.h"
#include "src/train/start/run_data.h"

struct on_eval {
    const struct run_data *sets; /* NULL: there is nothing to evaluate */
    struct trainer_eval *evals[STREAMS_MAX]; /* of each */
    struct step_eval results[STREAMS_MAX];
    struct eval_due due;
};

/* Takes `sets`. */
static enum err eval_write(const struct run *run,
                           const struct step_eval *result, json_t *sets)
{
    char path[FSIO_PATH_MAX];
    int fd = -1;
    json_t *all = json_pack("{s:i, s:I, s:o, s:I, s:o, s:o*}", "attempt",
                            run->attempt, "step", (json_int_t)result->step,
                            "eval_loss", jsontext_real(result->loss), "tokens",
                            (json_int_t)result->tokens, "seconds",
                            jsontext_real(result->seconds), "sets", sets);
    char *line = json_dumps(all, 0);
    enum err rc = lines_open(run->settings.run.dir, EVAL_DUE_FILE, path, &fd);
    if (rc == ERR_OK)
        rc = line != NULL ? lines_append(fd, path, line)
                          : err_set(ERR_MEMORY, "%s: no memory", path);
    fsio_close(fd);
    free(line);
    json_decref(all);
    return rc;
}

/* Rank 0: to the log, the step's figures and the file. */
static enum err eval_tell(const struct on_eval *on)
{
    const struct run *run = on->due.run;
    json_t *sets = on->sets->count > 1 ? json_object() : NULL;
    for (int i = 0; i < on->sets->count; i++) {
        const struct step_eval *result = &on->results[i];
        const char *name = i > 0 ? on->sets->text.entries[i - 1].name : "";
        char key[96];
        log_info("step %lld eval loss %.4f%s%s (%lld tokens, %.1fs)",
                 (long long)result->step, result->loss, i > 0 ? " of " : "",
                 name, (long long)result->tokens, result->seconds);
        snprintf(key, sizeof key, "eval/%s%sloss", name, i > 0 ? "/" : "");
        tracking_list_add(run->now.record.scalars, key, result->loss);
        if (i > 0)
            jsontext_set(&sets, name, step_eval_json(result));
    }
    return eval_write(run, &on->results[0], sets);
}

static enum err eval_now(void *self, bool *done)
{
    struct on_eval *on = self;
    struct run *run = on->due.run;
    const struct step_eval *result = &run->now.record.eval;
    enum err rc = ERR_OK;
    double begin = clock_now();
    TRY(trainer_event(run, EVENT_EVAL_START));
    *done = true;
    for (int i = 0; i < on->sets->count && *done; i++)
        TRY(trainer_eval_run(on->evals[i], &on->results[i], done));
    on->results[0].seconds = clock_now() - begin; /* of all */
    if (*done)
        run->now.record.eval = on->results[0];
    TRY(trainer_event(run, EVENT_EVAL_END));
    if (!*done)
        return ERR_OK;
    if (run->rank == 0) {
        rc = eval_tell(on);
        tracking_list_add(run->now.record.scalars, "time/eval",
                          result->seconds);
        json_t *eval = step_eval_json(result); /* behind the last step's save */
        ckpt_index_loss_write(run->settings.run.dir, result->step, eval);
        json_decref(eval);
    }
    return comm_agree(run->comm, rc);
}

static enum err on_eval_create(void *self, struct run *run)
{
    struct on_eval *on = self;
    on->due = (struct eval_due){ .run = run,
                                 .ask = ASK_EVALUATE,
                                 .interval = run->settings.eval.interval,
                                 .before = "\"step\": ",
                                 .behind = ",",
                                 .evaluate = eval_now,
                                 .self = on,
                                 .last_step = -1 };
    on->sets = run->inputs.eval_sets;
    for (int i = 0; on->sets != NULL && i < on->sets->count; i++)
        TRY(trainer_eval_create(run, i, &on->evals[i]));
    return ERR_OK;
}

static void on_eval_destroy(void *self)
{
    struct on_eval *on = self;
    for (int i = 0; i < STREAMS_MAX; i++)
        trainer_eval_destroy(on->evals[i]);
}

static enum err eval_handle(void *self, enum event event,
                            const struct step_record *step, struct asks *asks)
{
    struct on_eval *on = self;
    return on->sets != NULL ? eval_due_handle(&on->due, event, step, asks)
                            : ERR_OK;
}

const struct listener_ops on_eval_ops = { LISTENER_OF(struct on_eval),
                                          .create_together = on_eval_create,
                                          .destroy = on_eval_destroy,
                                          .handle = eval_handle };
