/* Listener: scores in-context tasks with the model as it is, every
 * eval.tasks_interval and at the end.
 *
 * The weights are the replica's, so nothing is copied; a call of infer_forward()
 * is an evaluation's microstep, which all ranks make. Results go to
 * RUN/eval.jsonl, one line for all tasks: attempt, step, "tasks" and "gauntlet"
 * (src/eval/eval_report.h). A stop signal ends it early, without a result. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/fsio.h"
#include "src/base/jsontext.h"
#include "src/base/lines.h"
#include "src/base/log.h"
#include "src/base/memory.h"
#include "src/base/new.h"
#include "src/data/set/dataset.h"
#include "src/eval/eval_report.h"
#include "src/infer/infer.h"
#include "src/job/stop.h"
#include "src/train/listeners/eval_due.h"
#include "src/train/plan/trainer_backend.h"
#include "src/train/start/start_weights.h"

#define TASKS_MAX 256
/* Tokens of a call. */
#define ROWS 512

struct on_tasks {
    struct eval_due due;
    char text[SETTINGS_TEXT_BYTES]; /* eval.tasks, cut into pieces */
    struct icl_task *tasks;         /* of it, then the gauntlet's */
    int task_count, own_count;
    struct gauntlet *gauntlet; /* NULL: there is none */
    struct tokenizer *tokenizer;
    struct icl_set *set; /* NULL: there is nothing to score */
    struct infer *infer;
    bool stopped; /* by a signal, agreed */
};

/* --- tasks --------------------------------------------------------------- */

static enum err tasks_read(struct on_tasks *on)
{
    const struct train_settings *s = &on->due.run->settings;
    char *rest = on->text;
    struct icl_task task;
    assert(on->tasks == NULL && on->own_count == 0);
    icl_task_default(&task);
    if (s->eval.gauntlet[0] != '\0')
        TRY(gauntlet_read(s->eval.gauntlet,
                          s->eval.tasks_data[0] != '\0' ? s->eval.tasks_data
                                                        : NULL,
                          task.seed, &on->gauntlet));
    int more = on->gauntlet != NULL ? on->gauntlet->task_count : 0;
    TRY(new_zeroed(&on->tasks, (size_t)(TASKS_MAX + more)));
    memcpy(on->text, s->eval.tasks, sizeof on->text);
    for (char *word; (word = strtok_r(rest, " \t\n", &rest)) != NULL;) {
        if (on->own_count == TASKS_MAX)
            return err_set(ERR_USAGE, "eval.tasks: more than %d", TASKS_MAX);
        icl_task_default(&task);
        TRY(err_prefix(icl_task_parse(word, &task), "eval.tasks"));
        on->tasks[on->own_count++] = task;
    }
    if (more > 0)
        memcpy(on->tasks + on->own_count, on->gauntlet->tasks,
               (size_t)more * sizeof on->tasks[0]);
    on->task_count = on->own_count + more;
    return ERR_OK;
}

static enum err tasks_tokenizer(struct on_tasks *on)
{
    const struct dataset *data = on->due.run->inputs.train_data[0];
    TRY(tokenizer_create(start_weights_data(data).tokenizer, &on->tokenizer));
    if (strcmp(tokenizer_sha256(on->tokenizer),
               dataset_sidecar(data)->tokenizer_sha256) != 0)
        return err_set(ERR_DATA,
                       "eval.tasks: %s has no tokenizer.json, and its "
                       "tokenizer '%s' is not the one that is known by this "
                       "name",
                       dataset_path(data), dataset_sidecar(data)->tokenizer);
    return ERR_OK;
}

/* Whether this rank has room when the run has taken what it plans with. */
static enum err tasks_room(const struct run *run, size_t bytes)
{
    const struct kernel_memory *memory = run->engine.kernels->memory;
    size_t available = SIZE_MAX;
    char text[2][32];
    if (!memory->device)
        available = memory_available("") / (size_t)comm_local_size(run->comm);
    else if (memory->available != NULL && memory->available() > 0)
        available = memory->available();
    units_bytes((double)bytes, text[0], sizeof text[0]);
    units_bytes((double)available, text[1], sizeof text[1]);
    if (bytes > available)
        return err_set(ERR_MEMORY,
                       "eval.tasks and eval.gauntlet need %s of memory on each "
                       "rank, and %s are left: lower eval.tasks_batch, or "
                       "score checkpoints with tessera-eval",
                       text[0], text[1]);
    if (run->rank == 0)
        log_info("scoring tasks takes %s of memory on each rank, beside what "
                 "the run plans with",
                 text[0]);
    return ERR_OK;
}

static enum err tasks_infer(struct on_tasks *on)
{
    const struct run *run = on->due.run;
    const struct train_settings *s = &run->settings;
    size_t cache, held, total;
    const struct infer_options options = {
        .threads = run->engine.threads,
        .sequences = s->eval.tasks_batch,
        .positions = icl_set_positions(on->set),
        .rows = ROWS,
        .stream = run->engine.stream,
        .dtype = trainer_backend_dtype(s),
        .lora_alpha = s->lora.alpha,
        .experts = replica_experts(run->engine.replica),
    };
    TRY(infer_plan(&s->model, run->engine.params, run->engine.kernels, &options,
                   INFER_F32, &cache, &held, &total));
    TRY(tasks_room(run, total - held));
    return infer_create(&s->model, run->engine.params, run->engine.kernels,
                        &options, &on->infer);
}

/* --- the model ----------------------------------------------------------- */

/* All ranks make this call; who has nothing to compute only lends its part,
 * that of the experts within the call. */
static enum err tasks_forward(void *self, const struct infer_tokens *list,
                              int count)
{
    struct on_tasks *on = self;
    struct replica *replica = on->due.run->engine.replica;
    bool experts = replica_experts(replica) != NULL;
    struct err_kept kept = { ERR_OK, "" };
    replica_begin_eval(replica);
    if (count > 0 || experts)
        err_keep(&kept, infer_forward(on->infer, replica_access(replica), list,
                                      count));
    if (kept.code == ERR_COMM)
        return err_again(&kept);
    /* logits that are no numbers are found when all experts have come; after
     * another failure the others wait for some of this rank's */
    if (experts && kept.code != ERR_OK && kept.code != ERR_NUMERIC) {
        on->due.run->engine.adrift = true;
        return err_set(ERR_COMM, "%s", kept.text);
    }
    TRY(replica_end_eval(replica));
    return err_again(&kept);
}

static void tasks_cut(void *self, int64_t slot, int64_t length)
{
    struct on_tasks *on = self;
    infer_cut(on->infer, slot, length);
}

/* They end together, when all are done or a signal has come to one. */
static enum err tasks_any(void *self, bool mine, bool *any)
{
    struct on_tasks *on = self;
    int64_t words[2] = { mine, stop_requested() != 0 };
    TRY(comm_all_reduce_i64(on->due.run->comm, words, 2, COMM_MAX));
    on->stopped = on->stopped || words[1] != 0;
    *any = words[0] != 0 && !on->stopped;
    return ERR_OK;
}

/* --- results ------------------------------------------------------------- */

static void tasks_tell(const struct on_tasks *on, struct tracking_list *scalars)
{
    char name[256], key[TRACKING_NAME_BYTES];
    for (int t = 0; t < on->task_count; t++) {
        icl_task_name(&on->tasks[t], name, sizeof name);
        snprintf(key, sizeof key, "eval/%.150s/%lld-shot", name,
                 (long long)on->tasks[t].shots);
        tracking_list_add(scalars, key, icl_set_accuracy(on->set, t));
    }
    for (int a = 0; on->gauntlet != NULL && a < on->gauntlet->average_count;
         a++) {
        const struct gauntlet_average *average = &on->gauntlet->averages[a];
        snprintf(key, sizeof key, "eval/gauntlet/%.150s", average->name);
        if (average->there > 0)
            tracking_list_add(scalars, key, average->score);
    }
}

static enum err tasks_write(const struct on_tasks *on)
{
    const struct run *run = on->due.run;
    const struct eval_report report = { .tasks = on->tasks,
                                        .task_count = on->task_count,
                                        .set = on->set };
    char path[FSIO_PATH_MAX], *text = NULL;
    int fd = -1;
    json_t *tasks = json_array();
    for (int t = 0; t < on->task_count; t++)
        json_array_append_new(tasks, eval_report_task(&report, t));
    json_t *line =
        json_pack("{s:i, s:I, s:o, s:o}", "attempt", run->attempt, "step",
                  (json_int_t)run->position.step, "tasks", tasks, "gauntlet",
                  on->gauntlet != NULL ? eval_report_gauntlet(on->gauntlet)
                                       : json_null());
    enum err rc = ERR_OK;
    TRY_OUT(jsontext_make(line, 0, &text));
    TRY_OUT(lines_open(run->settings.run.dir, EVAL_DUE_FILE, path, &fd));
    TRY_OUT(lines_append(fd, path, text));
out:
    fsio_close(fd);
    free(text);
    json_decref(line);
    return rc;
}

/* --- when ---------------------------------------------------------------- */

static enum err tasks_score(void *self, bool *done)
{
    struct on_tasks *on = self;
    const struct run *run = on->due.run;
    const struct icl_model model = {
        .self = on,
        .slots = run->settings.eval.tasks_batch,
        .positions = icl_set_positions(on->set),
        .rows = ROWS,
        .forward = tasks_forward,
        .cut = tasks_cut,
        .any = tasks_any,
    };
    assert(on->task_count > 0 && run->now.left_out == NULL);
    on->stopped = false;
    enum err rc = icl_set_score(on->set, &model, run->comm, NULL);
    *done = !on->stopped;
    if (rc == ERR_NUMERIC) {
        /* what becomes of such a run is decided elsewhere */
        if (run->rank == 0)
            log_warn("step %lld: tasks are not scored: %s",
                     (long long)run->position.step, err_text());
        return ERR_OK;
    }
    TRY(rc);
    if (!*done)
        return ERR_OK;
    if (on->gauntlet != NULL)
        gauntlet_score(on->gauntlet, on->set, on->own_count);
    tasks_tell(on, run->now.record.scalars);
    return comm_agree(run->comm, run->rank == 0 ? tasks_write(on) : ERR_OK);
}

/* --- the listener -------------------------------------------------------- */

static enum err on_tasks_create(void *self, struct run *run)
{
    struct on_tasks *on = self;
    const struct train_settings *s = &run->settings;
    on->due = (struct eval_due){ .run = run,
                                 .ask = ASK_TASKS,
                                 .interval = s->eval.tasks_interval,
                                 .before = "\"step\":",
                                 .behind = ",\"tasks\":",
                                 .evaluate = tasks_score,
                                 .self = on,
                                 .last_step = -1 };
    if (s->eval.tasks[0] == '\0' && s->eval.gauntlet[0] == '\0')
        return ERR_OK;
    TRY(tasks_read(on));
    TRY(tasks_tokenizer(on));
    const struct icl_set_options options = { s->model.max_seq_len,
                                             s->eval.tasks_limit };
    TRY(icl_set_create(on->tasks, on->task_count, on->tokenizer, &options, NULL,
                       &on->set));
    return tasks_infer(on);
}

static void on_tasks_destroy(void *self)
{
    struct on_tasks *on = self;
    infer_destroy(on->infer);
    icl_set_destroy(on->set);
    tokenizer_destroy(on->tokenizer);
    gauntlet_destroy(on->gauntlet);
    free(on->tasks);
}

static enum err tasks_handle(void *self, enum event event,
                             const struct step_record *step, struct asks *asks)
{
    struct on_tasks *on = self;
    if (on->set == NULL)
        return ERR_OK;
    if (event == EVENT_AFTER_LOAD)
        TRY(icl_set_agree(on->set, on->due.run->comm));
    return eval_due_handle(&on->due, event, step, asks);
}

const struct listener_ops on_tasks_ops = { LISTENER_OF(struct on_tasks),
                                           .create_together = on_tasks_create,
                                           .destroy = on_tasks_destroy,
                                           .handle = tasks_handle };
