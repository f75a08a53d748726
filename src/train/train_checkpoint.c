#include "src/train/train_checkpoint.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "checkpoint/ckpt.h"
#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/job/ledger.h"
#include "src/job/slurm.h"

struct train_checkpoint {
    int64_t last_step;   /* committed or restored; -1: none */
    json_t *arithmetics; /* all that this run has computed with, in order */
};

static enum err make_uuid(char uuid[37])
{
    unsigned char b[16];
    if (getrandom(b, sizeof b, 0) != (ssize_t)sizeof b)
        return err_errno("getrandom");
    b[6] = (unsigned char)((b[6] & 0x0f) | 0x40);
    b[8] = (unsigned char)((b[8] & 0x3f) | 0x80);
    snprintf(uuid, 37,
             "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-"
             "%02x%02x%02x%02x%02x%02x",
             b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10],
             b[11], b[12], b[13], b[14], b[15]);
    return ERR_OK;
}

/* What must be the same for the whole run, by the names of the settings. */
static json_t *fixed_state(const struct trainer *trainer)
{
    const struct train_settings *s = &trainer->settings;
    json_t *fixed = json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:s, "
        "s:s}",
        "model.d_model", (json_int_t)s->model.d_model, "model.n_heads",
        (json_int_t)s->model.n_heads, "model.n_layers",
        (json_int_t)s->model.n_layers, "model.vocab_size",
        (json_int_t)s->model.vocab_size, "model.max_seq_len",
        (json_int_t)s->model.max_seq_len, "model.expansion_ratio",
        (json_int_t)s->model.expansion_ratio, "data.seq_len",
        (json_int_t)s->data.seq_len, "train.global_batch",
        (json_int_t)s->train.global_batch, "train.microbatch",
        (json_int_t)s->train.microbatch, "train.seed",
        (json_int_t)s->train.seed, "parallel.slots",
        (json_int_t)s->parallel.slots, "parallel.determinism",
        s->parallel.determinism, "data.train",
        dataset_id(trainer->train_data), "tokenizer",
        dataset_tokenizer_sha256(trainer->train_data));
    /* "run" promises the same bits on the same topology only */
    if (fixed != NULL && strcmp(s->parallel.determinism, "run") == 0)
        json_object_set_new(fixed, "ranks", json_integer(trainer->ranks));
    return fixed;
}

static enum err check_fixed(const struct trainer *trainer, const json_t *state)
{
    enum err rc = ERR_OK;
    json_t *now = fixed_state(trainer);
    const json_t *then = json_object_get(state, "fixed");
    const char *key;
    json_t *value;
    if (now == NULL) {
        rc = err_set(ERR_MEMORY, "out of memory");
        goto out;
    }
    json_object_foreach(now, key, value)
    {
        const json_t *old = json_object_get(then, key);
        if (json_equal(value, old))
            continue;
        char *was = json_dumps(old, JSON_ENCODE_ANY);
        char *is = json_dumps(value, JSON_ENCODE_ANY);
        rc = err_set(ERR_CHECKPOINT,
                     "the run in %s was started with %s = %s, now it is %s: "
                     "use the old value, or another run.dir for a new run",
                     trainer->settings.run.dir, key, was ? was : "nothing",
                     is ? is : "nothing");
        free(was);
        free(is);
        goto out;
    }
out:
    json_decref(now);
    return rc;
}

static enum err check_arithmetic(const struct trainer *trainer,
                                 const json_t *state)
{
    const struct train_settings *s = &trainer->settings;
    const json_t *list = json_object_get(state, "arithmetic");
    size_t count = json_array_size(list);
    const char *then =
        count > 0 ? json_string_value(json_array_get(list, count - 1)) : NULL;
    if (then != NULL && strcmp(then, trainer->arithmetic) == 0)
        return ERR_OK;
    if (strcmp(s->parallel.determinism, "fast") == 0 ||
        s->parallel.allow_arithmetic_change) {
        if (trainer->rank == 0)
            log_warn("arithmetic changes from %s to %s: bits will differ from "
                     "an undisturbed run",
                     then ? then : "?", trainer->arithmetic);
        return ERR_OK;
    }
    return err_set(ERR_CHECKPOINT,
                   "the checkpoint was computed with %s, this machine would use "
                   "%s: set hardware.kernel_set to match, or "
                   "parallel.allow_arithmetic_change=true to give up the "
                   "promise of the same bits",
                   then ? then : "?", trainer->arithmetic);
}

static enum err accept_state(void *arg, int64_t step, const json_t *state)
{
    enum err rc = ERR_OK;
    const struct trainer *trainer = arg;
    (void)step;
    TRY(check_fixed(trainer, state));
    TRY(check_arithmetic(trainer, state));
out:
    return rc;
}

static enum err restore_state(struct train_checkpoint *checkpoint,
                              struct trainer *trainer, int64_t step,
                              const json_t *state)
{
    char hash[65];
    enum err rc = train_settings_hash(&trainer->settings, hash);
    if (rc != ERR_OK)
        return rc;
    const char *uuid = json_string_value(json_object_get(state, "run_uuid"));
    const char *old = json_string_value(json_object_get(state, "config_sha256"));
    snprintf(trainer->run_uuid, sizeof trainer->run_uuid, "%s",
             uuid ? uuid : "");
    trainer->step = step;
    trainer->elapsed_s =
        json_number_value(json_object_get(state, "elapsed_s"));
    trainer->lr0 = json_number_value(json_object_get(state, "lr0"));
    checkpoint->arithmetics =
        json_deep_copy(json_object_get(state, "arithmetic"));
    checkpoint->last_step = step;
    if (trainer->rank == 0) {
        log_info("resumed at step %lld (attempt %d, %d ranks)",
                 (long long)step, trainer->attempt, trainer->ranks);
        if (old == NULL || strcmp(old, hash) != 0)
            log_warn("the configuration has changed since the last checkpoint; "
                     "see config.cfg in the run directory");
    }
    return ERR_OK;
}

static enum err checkpoint_restore(struct train_checkpoint *checkpoint,
                                   struct trainer *trainer)
{
    enum err rc = ERR_OK;
    json_t *state = NULL;
    int count = 0;
    int64_t step = -1;
    const struct ckpt_item *items = replica_items(trainer->replica, &count);
    struct ckpt_load_options options = { .accept = accept_state,
                                         .accept_arg = trainer };
    TRY(ckpt_load(trainer->comm, trainer->settings.run.dir, &options, items,
                  count, &step, &state, NULL));
    if (step >= 0) {
        TRY(comm_agree(trainer->comm,
                       restore_state(checkpoint, trainer, step, state)));
        TRY(replica_loaded(trainer->replica));
    } else {
        rc = trainer->rank == 0 ? make_uuid(trainer->run_uuid) : ERR_OK;
        TRY(comm_agree(trainer->comm, rc));
        TRY(comm_broadcast(trainer->comm, trainer->run_uuid,
                           sizeof trainer->run_uuid, 0));
    }
    if (checkpoint->arithmetics == NULL)
        checkpoint->arithmetics = json_array();
    size_t n = json_array_size(checkpoint->arithmetics);
    const char *last = json_string_value(
        json_array_get(checkpoint->arithmetics, n > 0 ? n - 1 : 0));
    if (last == NULL || strcmp(last, trainer->arithmetic) != 0)
        json_array_append_new(checkpoint->arithmetics,
                              json_string(trainer->arithmetic));
out:
    json_decref(state);
    return rc;
}

static enum err make_state(const struct train_checkpoint *checkpoint,
                           const struct trainer *trainer, json_t **out)
{
    char hash[65];
    enum err rc = train_settings_hash(&trainer->settings, hash);
    if (rc != ERR_OK)
        return rc;
    *out = json_pack(
        "{s:s, s:s, s:s, s:I, s:I, s:I, s:f, s:f, s:i, s:O, s:o}", "run_uuid",
        trainer->run_uuid, "code_version", TESSERA_VERSION, "config_sha256",
        hash, "step", (json_int_t)trainer->step, "samples",
        (json_int_t)(trainer->step * trainer->settings.train.global_batch),
        "tokens", (json_int_t)trainer_tokens(trainer), "elapsed_s",
        trainer->elapsed_s, "lr0", trainer->lr0, "attempt", trainer->attempt,
        "arithmetic", checkpoint->arithmetics, "fixed", fixed_state(trainer));
    return *out != NULL ? ERR_OK : err_set(ERR_MEMORY, "out of memory");
}

static enum err checkpoint_commit(struct train_checkpoint *checkpoint,
                                  struct trainer *trainer)
{
    enum err rc = ERR_OK;
    json_t *state = NULL;
    char attempt[64];
    struct slurm slurm;
    struct ckpt_result result = { 0 };
    int count = 0;
    const struct ckpt_item *items = replica_items(trainer->replica, &count);
    slurm_read(&slurm);
    snprintf(attempt, sizeof attempt, "%ld.%d", slurm.job_id,
             trainer->attempt);
    struct ckpt_options options = {
        .attempt = attempt,
        .keep = (int)trainer->settings.checkpoint.keep,
    };
    TRY(comm_agree(trainer->comm, make_state(checkpoint, trainer, &state)));
    TRY(ckpt_save(trainer->comm, trainer->settings.run.dir, trainer->step,
                  state, items, count, &options, &result));
    checkpoint->last_step = trainer->step;
    if (trainer->rank == 0) {
        char size[32];
        units_bytes((double)result.bytes, size, sizeof size);
        log_info("step %lld committed: %s in %.2fs", (long long)trainer->step,
                 size, result.persist_s);
        rc = ledger_append(trainer->settings.run.dir, "commit",
                           trainer->attempt,
                           json_pack("{s:I, s:I, s:f}", "step",
                                     (json_int_t)trainer->step, "bytes",
                                     (json_int_t)result.bytes, "seconds",
                                     result.persist_s));
    }
    TRY(comm_agree(trainer->comm, rc));
out:
    json_decref(state);
    return rc;
}

static enum err checkpoint_handle(void *self, enum event event,
                                  struct trainer *trainer)
{
    struct train_checkpoint *checkpoint = self;
    if (event == EVENT_BEFORE_LOAD)
        return checkpoint_restore(checkpoint, trainer);
    bool due = trainer->commit_due || trainer->finished ||
               trainer->stop_signal != 0 ||
               trainer_due(trainer, trainer->settings.checkpoint.interval);
    if (!due || checkpoint->last_step == trainer->step || trainer->step == 0)
        return ERR_OK;
    return checkpoint_commit(checkpoint, trainer);
}

enum err train_checkpoint_create(struct train_checkpoint **out)
{
    *out = calloc(1, sizeof **out);
    if (*out == NULL)
        return err_set(ERR_MEMORY, "out of memory");
    (*out)->last_step = -1;
    return ERR_OK;
}

void train_checkpoint_destroy(struct train_checkpoint *checkpoint)
{
    if (checkpoint == NULL)
        return;
    json_decref(checkpoint->arithmetics);
    free(checkpoint);
}

struct listener train_checkpoint_listener(struct train_checkpoint *checkpoint)
{
    return (struct listener){
        .name = "checkpoint",
        .events = EVENT_BIT(EVENT_BEFORE_LOAD) |
                  EVENT_BIT(EVENT_BATCH_CHECKPOINT),
        .handle = checkpoint_handle,
        .self = checkpoint,
    };
}
