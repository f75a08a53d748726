/* Restores a run from its own checkpoint, or begins it with another's.
 *
 * The order of it: what the ledger has of rollbacks comes first, for it says which
 * checkpoints are of steps that were given up. A checkpoint is judged by its state
 * before a tensor of it is read, and the next older one is tried where one is
 * damaged (checkpoint/), but not where one is of another run: that is an error. Only
 * when tensors are there do the state's parts change the run. */
#include "src/train/state/on_checkpoint_parts.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/files/ckpt_index.h"
#include "src/base/log.h"
#include "src/train/state/state_parts.h"
#include "src/train/start/start.h"
#include "src/train/start/start_weights.h"

static enum err make_uuid(char uuid[37])
{
    FILE *file = fopen("/proc/sys/kernel/random/uuid", "re");
    bool read = file != NULL && fread(uuid, 36, 1, file) == 1;
    enum err rc = read ? ERR_OK : err_errno("/proc/sys/kernel/random/uuid");
    uuid[36] = '\0';
    if (file != NULL)
        fclose(file);
    return rc;
}

/* --- the run's own --- */

/* *step -1: the run has none. */
static enum err resume(struct run *run, const struct on_checkpoint_from *from,
                       int64_t *step, struct on_checkpoint_restored *out)
{
    enum err rc = ERR_OK;
    json_t *state = NULL;
    struct state_run its = { .run = run };
    static const char *const left_alone[] = { ON_CHECKPOINT_TOKENIZER };
    struct ckpt_load_options options = { .accept = state_parts_accept,
                                         .accept_arg = &its,
                                         .ignore = left_alone,
                                         .ignore_count = 1,
                                         .memory = from->memory,
                                         .local_dir = from->local_dir,
                                         .local_key = from->local_key };
    struct ckpt_load_stats stats;
    TRY_OUT(ckpt_load(run->comm, run->settings.run.dir, &options, from->items,
                      from->count, step, &state, &stats));
    if (*step < 0)
        goto out;
    int64_t microbatch = start_fixed_microbatch(run, state);
    if (microbatch != run->settings.train.microbatch)
        TRY_OUT(trainer_memory_adopt(run, microbatch));
    TRY_OUT(comm_agree(run->comm, state_parts_restore(&its, *step, state)));
    out->committed = stats.local ? -1 : *step;
    struct start_from other = train_settings_from(&run->settings);
    if (run->rank == 0)
        log_info("step %lld came from %s in %.2fs", (long long)*step,
                 stats.local ? "the nodes' own folders" : "the run directory",
                 stats.seconds);
    if (run->rank == 0 && other.path[0] != '\0')
        log_info("%s is for the first start only and is not read: %s",
                 other.key, other.path);
    TRY_OUT(replica_loaded(run->engine.replica));
    out->arithmetics = json_incref(its.arithmetics);
out:
    json_decref(its.arithmetics);
    json_decref(state);
    return rc;
}

/* --- another's --- */

/* A position counts batches, so that these must be as large. */
static enum err accept_other(void *arg, int64_t step, const json_t *state)
{
    struct state_run *its = arg;
    const struct train_settings *s = &its->run->settings;
    const json_t *fixed = json_object_get(state, "fixed");
    const struct {
        const char *key;
        int64_t now;
    } list[] = { { "train.global_batch", s->train.global_batch },
                 { "data.seq_len", s->data.seq_len } };
    if (step < 1)
        return err_set(ERR_CHECKPOINT,
                       "checkpoint.load: %s is of step 0 and has weights "
                       "alone: give it as model.weights",
                       s->checkpoint.load);
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        json_int_t then =
            json_integer_value(json_object_get(fixed, list[i].key));
        if (then != list[i].now)
            return err_set(ERR_CHECKPOINT,
                           "checkpoint.load: %s was saved with %s = %lld, now "
                           "it is %lld, and its position cannot be kept: use "
                           "the same, or checkpoint.load_weights_only = true",
                           s->checkpoint.load, list[i].key, (long long)then,
                           (long long)list[i].now);
    }
    return state_parts_accept(its, step, state);
}

#define GLOBS_MAX 128

struct globs {
    char *text; /* the words' */
    const char *list[GLOBS_MAX];
    int count;
};

/* The words of checkpoint.load_ignore, and what no load reads. */
static enum err cut_globs(const char *ignore, struct globs *out)
{
    char *rest = NULL;
    assert(out->text == NULL && out->count == 0);
    out->text = strdup(ignore);
    if (out->text == NULL)
        return err_set(ERR_MEMORY, "out of memory");
    out->list[out->count++] = ON_CHECKPOINT_TOKENIZER;
    for (char *word = strtok_r(out->text, " \t\r\n", &rest); word != NULL;
         word = strtok_r(NULL, " \t\r\n", &rest)) {
        if (out->count == GLOBS_MAX)
            return err_set(ERR_USAGE,
                           "checkpoint.load_ignore has more than %d globs",
                           GLOBS_MAX - 1);
        out->list[out->count++] = word;
    }
    return ERR_OK;
}

/* A mismatch of what the methods of the one run keep and those of the other do
 * not, which the user can do without. */
static enum err name_ignore(enum err rc)
{
    static const char *const kept[] = { "algorithms/", "optimizer/" };
    for (size_t i = 0; rc == ERR_CHECKPOINT && i < 2; i++)
        if (strstr(err_text(), kept[i]) != NULL)
            return err_prefix(rc,
                              "checkpoint.load: checkpoint.load_ignore = "
                              "\"%s*\" leaves out what does not match: it "
                              "begins anew",
                              kept[i]);
    return rc;
}

static enum err check_other(struct run *run, struct weights *weights)
{
    const struct weights_about *about = weights_about(weights);
    const struct dataset *data = run->inputs.train_data[0];
    if (about->kind != WEIGHTS_CHECKPOINT)
        return err_set(ERR_USAGE,
                       "checkpoint.load: %s has weights alone: give it as "
                       "model.weights",
                       about->path);
    if (strcmp(about->named, about->place) != 0)
        return err_set(ERR_USAGE,
                       "checkpoint.load: what a run goes on with is its own "
                       "weights, not their mean: leave out what follows '#', "
                       "or set checkpoint.load_weights_only");
    TRY(start_weights_check(&run->settings, weights, NULL));
    const struct start_weights_data tokens = start_weights_data(data);
    return start_weights_tokens(&run->settings, about, &tokens);
}

static enum err load_other(struct run *run,
                           const struct on_checkpoint_from *from)
{
    enum err rc = ERR_OK;
    json_t *state = NULL;
    struct weights *weights = NULL;
    struct state_run its = { .run = run };
    struct globs globs = { 0 };
    struct ckpt_load_stats stats;
    int64_t step = -1;
    assert(run->position.step == 0);
    TRY(trainer_weights_open(run, &weights));
    its.other = weights_about(weights)->path;
    rc = run->rank == 0 ? check_other(run, weights) : ERR_OK;
    if (rc == ERR_OK)
        rc = cut_globs(run->settings.checkpoint.load_ignore, &globs);
    TRY_OUT(comm_agree(run->comm, rc));
    struct ckpt_load_options options = { .accept = accept_other,
                                         .accept_arg = &its,
                                         .ignore = globs.list,
                                         .ignore_count = globs.count,
                                         .ignore_told = globs.count - 1,
                                         .memory = from->memory };
    /* for what is ignored */
    TRY_OUT(replica_init(run->engine.replica,
                         (uint64_t)run->settings.train.seed, NULL));
    TRY_OUT(name_ignore(ckpt_load_from(run->comm, weights_about(weights)->path,
                                       &options, from->items, from->count,
                                       &step, &state, &stats)));
    /* another run's rules have judged another run's figures */
    json_object_del(state, "finish");
    TRY_OUT(comm_agree(run->comm, state_parts_restore(&its, step, state)));
    int begun =
        trainer_moments_begin(run, run->settings.checkpoint.load_ignore, step);
    TRY_OUT(replica_loaded(run->engine.replica));
    if (run->rank == 0 && begun > 0)
        log_info("checkpoint.load_ignore leaves out %d tensors of the "
                 "optimizer's state: they begin at 0, and what corrects for "
                 "that counts from this step",
                 begun);
    if (run->rank == 0) {
        log_info("step %lld of %s in %.2fs%s%s: the run goes on from there",
                 (long long)step, weights_about(weights)->place, stats.seconds,
                 globs.count > 1 ? ", but for " : "",
                 run->settings.checkpoint.load_ignore);
        rc = trainer_weights_record(run, weights, "load");
    }
    TRY_OUT(comm_agree(run->comm, rc));
out:
    weights_close(weights);
    free(globs.text);
    json_decref(state);
    return rc;
}

/* --- a start --- */

/* A run that has begun here and has no checkpoint yet is the same one when it
 * begins again, and has gone back by its ledger. */
static enum err find_uuid(struct run *run)
{
    char known[CKPT_UUID_BYTES];
    TRY(ckpt_index_uuid_read(run->settings.run.dir, known));
    if (strlen(known) + 1 != sizeof run->uuid)
        return make_uuid(run->uuid);
    memcpy(run->uuid, known, sizeof run->uuid);
    return ERR_OK;
}

static enum err begin(struct run *run, const struct on_checkpoint_from *from)
{
    struct start_from other = train_settings_from(&run->settings);
    enum err rc = run->rank == 0 ? find_uuid(run) : ERR_OK;
    TRY(comm_agree(run->comm, rc));
    TRY(comm_broadcast(run->comm, run->uuid, sizeof run->uuid, 0));
    if (other.state)
        return load_other(run, from);
    return comm_agree(
        run->comm, rollback_restore(&run->position.rollbacks, 0, NULL,
                                    run->position.rollback_events, run->uuid));
}

enum err on_checkpoint_restore(struct run *run,
                               const struct on_checkpoint_from *from,
                               struct on_checkpoint_restored *out)
{
    int64_t step = -1;
    assert(from->count > 0 && run->position.step == 0);
    *out = (struct on_checkpoint_restored){ .committed = -1 };
    TRY(trainer_rollback_find(run));
    TRY(resume(run, from, &step, out));
    if (step < 0)
        TRY(begin(run, from));
    TRY(trainer_rollback_begin(run));
    enum err rc = run->rank == 0
                      ? ckpt_index_uuid_write(run->settings.run.dir, run->uuid)
                      : ERR_OK;
    TRY(comm_agree(run->comm, rc));
    if (out->arithmetics == NULL)
        out->arithmetics = json_array();
    size_t n = json_array_size(out->arithmetics);
    const char *last =
        json_string_value(json_array_get(out->arithmetics, n > 0 ? n - 1 : 0));
    if (last == NULL || strcmp(last, run->engine.arithmetic) != 0)
        json_array_append_new(out->arithmetics,
                              json_string(run->engine.arithmetic));
    return ERR_OK;
}
