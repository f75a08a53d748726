/* Restores a run from its own checkpoint, or begins it with another's. */
#include "src/train/state/on_checkpoint_restore.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/files/ckpt_index.h"
#include "src/base/log.h"
#include "src/train/state/on_checkpoint_items.h"
#include "src/train/state/state_parts.h"
#include "src/train/start/start_fixed.h"
#include "src/train/start/start_weights.h"
#include "src/train/start/trainer_memory.h"
#include "src/train/state/trainer_moments.h"
#include "src/train/loop/trainer_rollback.h"
#include "src/train/start/trainer_weights.h"

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
static enum err resume(struct trainer *trainer,
                       const struct on_checkpoint_from *from, int64_t *step,
                       struct on_checkpoint_restored *out)
{
    enum err rc = ERR_OK;
    json_t *state = NULL;
    struct state_run run = { .trainer = trainer };
    static const char *const left_alone[] = { ON_CHECKPOINT_TOKENIZER };
    struct ckpt_load_options options = { .accept = state_parts_accept,
                                         .accept_arg = &run,
                                         .ignore = left_alone,
                                         .ignore_count = 1,
                                         .memory = from->memory,
                                         .local_dir = from->local_dir,
                                         .local_key = from->local_key };
    struct ckpt_load_stats stats;
    TRY_OUT(ckpt_load(trainer->comm, trainer->settings.run.dir, &options,
                      from->items, from->count, step, &state, &stats));
    if (*step < 0)
        goto out;
    int64_t microbatch = start_fixed_microbatch(trainer, state);
    if (microbatch != trainer->settings.train.microbatch)
        TRY_OUT(trainer_memory_adopt(trainer, microbatch));
    TRY_OUT(comm_agree(trainer->comm, state_parts_restore(&run, *step, state)));
    out->committed = stats.local ? -1 : *step;
    struct start_from other = start_weights_from(&trainer->settings);
    if (trainer->rank == 0)
        log_info("step %lld came from %s in %.2fs", (long long)*step,
                 stats.local ? "the nodes' own folders" : "the run directory",
                 stats.seconds);
    if (trainer->rank == 0 && other.path[0] != '\0')
        log_info("%s is for the first start only and is not read: %s",
                 other.key, other.path);
    TRY_OUT(replica_loaded(trainer->replica));
    out->arithmetics = json_incref(run.arithmetics);
out:
    json_decref(run.arithmetics);
    json_decref(state);
    return rc;
}

/* --- another's --- */

/* A position counts batches, so that these must be as large. */
static enum err accept_other(void *arg, int64_t step, const json_t *state)
{
    struct state_run *run = arg;
    const struct train_settings *s = &run->trainer->settings;
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
    return state_parts_accept(run, step, state);
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

static enum err check_other(struct trainer *trainer, struct weights *weights)
{
    const struct weights_about *about = weights_about(weights);
    const struct dataset *data = trainer->train_data[0];
    if (about->kind != WEIGHTS_CHECKPOINT)
        return err_set(ERR_USAGE,
                       "checkpoint.load: %s has weights alone: give it as "
                       "model.weights",
                       about->path);
    if (strchr(trainer->settings.checkpoint.load, '#') != NULL)
        return err_set(ERR_USAGE,
                       "checkpoint.load: what a run goes on with is its own "
                       "weights, not their mean: leave out what follows '#', "
                       "or set checkpoint.load_weights_only");
    TRY(start_weights_check(&trainer->settings, weights, NULL));
    const struct start_weights_data tokens = start_weights_data(data);
    return start_weights_tokens(&trainer->settings, about, &tokens);
}

static enum err load_other(struct trainer *trainer,
                           const struct on_checkpoint_from *from)
{
    enum err rc = ERR_OK;
    json_t *state = NULL;
    struct weights *weights = NULL;
    struct state_run run = { .trainer = trainer };
    struct globs globs = { 0 };
    struct ckpt_load_stats stats;
    int64_t step = -1;
    TRY(trainer_weights_open(trainer, &weights));
    run.other = weights_about(weights)->path;
    rc = trainer->rank == 0 ? check_other(trainer, weights) : ERR_OK;
    if (rc == ERR_OK)
        rc = cut_globs(trainer->settings.checkpoint.load_ignore, &globs);
    TRY_OUT(comm_agree(trainer->comm, rc));
    struct ckpt_load_options options = { .accept = accept_other,
                                         .accept_arg = &run,
                                         .ignore = globs.list,
                                         .ignore_count = globs.count,
                                         .ignore_told = globs.count - 1,
                                         .memory = from->memory };
    /* for what is ignored */
    TRY_OUT(replica_init(trainer->replica,
                         (uint64_t)trainer->settings.train.seed, NULL));
    TRY_OUT(name_ignore(
        ckpt_load_from(trainer->comm, weights_about(weights)->path, &options,
                       from->items, from->count, &step, &state, &stats)));
    /* another run's rules have judged another run's figures */
    json_object_del(state, "finish");
    TRY_OUT(comm_agree(trainer->comm, state_parts_restore(&run, step, state)));
    int begun = trainer_moments_begin(
        trainer, trainer->settings.checkpoint.load_ignore, step);
    TRY_OUT(replica_loaded(trainer->replica));
    if (trainer->rank == 0 && begun > 0)
        log_info("checkpoint.load_ignore leaves out %d tensors of the "
                 "optimizer's state: they begin at 0, and what corrects for "
                 "that counts from this step",
                 begun);
    if (trainer->rank == 0) {
        log_info("step %lld of %s in %.2fs%s%s: the run goes on from there",
                 (long long)step, weights_about(weights)->path, stats.seconds,
                 globs.count > 1 ? ", but for " : "",
                 trainer->settings.checkpoint.load_ignore);
        rc = trainer_weights_record(trainer, weights, "load");
    }
    TRY_OUT(comm_agree(trainer->comm, rc));
out:
    weights_close(weights);
    free(globs.text);
    json_decref(state);
    return rc;
}

/* --- a start --- */

/* A run that has begun here and has no checkpoint yet is the same one when it
 * begins again, and has gone back by its ledger. */
static enum err find_uuid(struct trainer *trainer)
{
    char known[CKPT_UUID_BYTES];
    TRY(ckpt_index_uuid_read(trainer->settings.run.dir, known));
    if (strlen(known) + 1 != sizeof trainer->run_uuid)
        return make_uuid(trainer->run_uuid);
    memcpy(trainer->run_uuid, known, sizeof trainer->run_uuid);
    return ERR_OK;
}

static enum err begin(struct trainer *trainer,
                      const struct on_checkpoint_from *from)
{
    struct start_from other = start_weights_from(&trainer->settings);
    enum err rc = trainer->rank == 0 ? find_uuid(trainer) : ERR_OK;
    TRY(comm_agree(trainer->comm, rc));
    TRY(comm_broadcast(trainer->comm, trainer->run_uuid,
                       sizeof trainer->run_uuid, 0));
    if (other.state)
        return load_other(trainer, from);
    return comm_agree(trainer->comm,
                      rollback_restore(&trainer->rollbacks, 0, NULL,
                                       trainer->rollback_events,
                                       trainer->run_uuid));
}

enum err on_checkpoint_restore(struct trainer *trainer,
                               const struct on_checkpoint_from *from,
                               struct on_checkpoint_restored *out)
{
    int64_t step = -1;
    *out = (struct on_checkpoint_restored){ .committed = -1 };
    TRY(trainer_rollback_find(trainer));
    TRY(resume(trainer, from, &step, out));
    if (step < 0)
        TRY(begin(trainer, from));
    TRY(trainer_rollback_begin(trainer));
    enum err rc = trainer->rank == 0 ? ckpt_identify(trainer->settings.run.dir,
                                                     trainer->run_uuid)
                                     : ERR_OK;
    TRY(comm_agree(trainer->comm, rc));
    if (out->arithmetics == NULL)
        out->arithmetics = json_array();
    size_t n = json_array_size(out->arithmetics);
    const char *last =
        json_string_value(json_array_get(out->arithmetics, n > 0 ? n - 1 : 0));
    if (last == NULL || strcmp(last, trainer->arithmetic) != 0)
        json_array_append_new(out->arithmetics,
                              json_string(trainer->arithmetic));
    return ERR_OK;
}
