/* Listener: has the loss on held-out text evaluated, every eval.interval and at
 * the end. How it is computed is trainer_eval.c's.
 *
 * Results go to the record and to RUN/eval.jsonl: attempt, step, eval_loss
 * (nats per token; null where it is not finite), tokens, seconds. A stop
 * signal ends an evaluation early, without a result. */
#include <assert.h>
#include <stdio.h>
#include <unistd.h>

#include "checkpoint/files/ckpt_index.h"
#include "src/base/fsio.h"
#include "src/base/jsontext.h"
#include "src/base/lines.h"
#include "src/base/log.h"
#include "src/train/listeners/eval_due.h"
#include "src/train/loop/trainer.h"

struct on_eval {
    struct trainer_eval *eval; /* NULL: there is nothing to evaluate */
    struct eval_due due;
};

static enum err eval_write(const char *run_dir, int attempt,
                           const struct step_eval *result)
{
    char path[FSIO_PATH_MAX];
    char line[256];
    char value[JSONTEXT_NUMBER_BYTES];
    int fd = -1;
    jsontext_number(result->loss, value);
    TRY(lines_open(run_dir, EVAL_DUE_FILE, path, &fd));
    snprintf(line, sizeof line,
             "{\"attempt\": %d, \"step\": %lld, \"eval_loss\": %s, "
             "\"tokens\": %lld, \"seconds\": %.3f}",
             attempt, (long long)result->step, value, (long long)result->tokens,
             result->seconds);
    enum err rc = lines_append(fd, path, line);
    close(fd);
    return rc;
}

/* Behind the save of the last step: beside what is saved. Without it the step is
 * none of the best, that is all. */
static void eval_keep(const struct run *run, const struct step_eval *result)
{
    json_t *eval = step_eval_json(result);
    if (eval != NULL && ckpt_index_loss_write(run->settings.run.dir,
                                              result->step, eval) != ERR_OK)
        log_warn("step %lld: its checkpoint does not have its loss: %s",
                 (long long)result->step, err_text());
    json_decref(eval);
}

static enum err eval_now(void *self, bool *done)
{
    struct on_eval *on = self;
    const struct run *run = on->due.run;
    const struct step_eval *result = &run->now.record.eval;
    enum err rc = ERR_OK;
    TRY(trainer_eval_run(on->eval, done));
    if (!*done)
        return ERR_OK;
    assert(result->step == run->position.step);
    if (run->rank == 0) {
        log_info("step %lld eval loss %.4f (%lld tokens, %.1fs)",
                 (long long)result->step, result->loss,
                 (long long)result->tokens, result->seconds);
        tracking_list_add(run->now.record.scalars, "eval/loss", result->loss);
        tracking_list_add(run->now.record.scalars, "time/eval",
                          result->seconds);
        rc = eval_write(run->settings.run.dir, run->attempt, result);
        eval_keep(run, result);
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
    return trainer_eval_create(run, &on->eval);
}

static void on_eval_destroy(void *self)
{
    struct on_eval *on = self;
    trainer_eval_destroy(on->eval);
}

static enum err eval_handle(void *self, enum event event,
                            const struct step_record *step, struct asks *asks)
{
    struct on_eval *on = self;
    return on->eval != NULL ? eval_due_handle(&on->due, event, step, asks)
                            : ERR_OK;
}

const struct listener_ops on_eval_ops = {
    .bytes = sizeof(struct on_eval),
    .create_together = on_eval_create,
    .destroy = on_eval_destroy,
    .handle = eval_handle,
};
