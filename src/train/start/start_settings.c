/* Checks between settings each of which is valid by itself. What depends on the
 * data set or on the number of ranks is checked where that is known.
 *
 * Three moments, each judged as early as it can be:
 *   reading    every rank by itself, without a file of the model: folders, batch,
 *              durations, contradictions (check_alone). --print and the launch
 *              script stop here, before a job has begun;
 *   the shape  rank 0 looks at the weights where only they say it, and tells the
 *              others, so that a thousand ranks do not open one folder;
 *   completed  what the shape decides: defaults of the model, the sequence length,
 *              what algorithms need, whether strategy and model go together
 *              (check_whole), and last the microbatch, which is a matter of
 *              memory and so of everything before it. */
#include "src/train/start/start_settings.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "checkpoint/files/ckpt_index.h"
#include "src/base/globs.h"
#include "src/base/new.h"
#include "src/base/output.h"
#include "src/tracking/tracking_sink.h"
#include "src/train/profile/profile.h"
#include "src/train/start/run_data.h"
#include "src/train/start/start_weights.h"
#include "src/train/start/start.h"
#include "src/train/plan/trainer_backend.h"

/* The longest path of a run directory, which leaves room for the names of
 * files. */
#define RUN_DIR_MAX (SETTINGS_TEXT_BYTES - 128)

/* Before anything is made there: every file of a run is below it. */
static enum err check_run_dir(const char *dir)
{
    if (dir[0] == '\0')
        return err_set(ERR_USAGE, "run.dir is empty: name a folder");
    if (dir[strspn(dir, "/")] == '\0')
        return err_set(ERR_USAGE, "run.dir is /: a run needs a folder of its "
                                  "own");
    if (strlen(dir) > RUN_DIR_MAX)
        return err_set(
            ERR_USAGE,
            "run.dir has %zu bytes, more than %d: use a shorter path",
            strlen(dir), RUN_DIR_MAX);
    return ERR_OK;
}

/* Whether both name one folder: by the name, or where both are there by what
 * they are. */
static bool same_folder(const char *a, const char *b)
{
    struct stat first;
    struct stat second;
    if (a[0] == '\0' || b[0] == '\0')
        return false;
    return strcmp(a, b) == 0 ||
           (stat(a, &first) == 0 && stat(b, &second) == 0 &&
            first.st_dev == second.st_dev && first.st_ino == second.st_ino);
}

/* A run writes into its folder and prunes there, so it is nobody else's. */
static enum err check_data(const struct train_settings *s)
{
    if (s->data.train[0] == '\0')
        return err_set(ERR_USAGE, "data.train is empty: name the folder of a "
                                  "data set");
    if (same_folder(s->run.dir, s->data.train) ||
        same_folder(s->run.dir, s->data.eval))
        return err_set(ERR_USAGE,
                       "run.dir is the folder of a data set (data.train, "
                       "data.eval): a run needs a folder of its own");
    return ERR_OK;
}

/* What an order does not ask for must not look as if it did anything. */
static enum err check_order(const struct train_settings *s)
{
    bool canonical = s->data.order == ORDER_CANONICAL;
    bool blocks = s->data.order == ORDER_PY1E || s->data.order == ORDER_PY1BR;
    for (int i = 0; i < train_settings_count; i++) {
        const struct setting *setting = &train_settings_schema[i];
        bool block = strcmp(setting->key, "data.shuffle_block") == 0;
        if ((setting->flags & TRAIN_STAYS_OF_ORDER) == 0 ||
            strcmp(setting->key, "data.order") == 0 ||
            strcmp(setting->key, "data.mixture") == 0 ||
            train_settings_default(s, setting))
            continue;
        if (canonical || (block && !blocks))
            return err_set(ERR_USAGE,
                           "%s does nothing with data.order = %s: leave it "
                           "out, or choose another order%s",
                           setting->key, order_kind_names[s->data.order],
                           strcmp(setting->key, "data.shuffle_seed") == 0
                               ? " (canonical goes by train.seed)"
                               : "");
    }
    if (s->data.batching != BATCHING_RANDOM && s->data.mixture[0] == '\0')
        return err_set(ERR_USAGE, "data.batching does nothing without "
                                  "data.mixture: leave it out, or give the "
                                  "data sets");
    return ERR_OK;
}

/* The sets' folders as they are written; whether there are data in them is found
 * when they are opened. */
static enum err check_mixture(const struct train_settings *s, bool held_out)
{
    enum err rc = ERR_OK;
    char path[FSIO_PATH_MAX];
    struct mixture_text *text = NULL;
    if ((held_out ? s->eval.sets : s->data.mixture)[0] == '\0')
        return ERR_OK;
    TRY(new_room(&text, 1));
    TRY_OUT(run_data_parse(s, held_out, text));
    if (text->scheduled && s->data.order != ORDER_CANONICAL)
        TRY_OUT(err_set(ERR_USAGE,
                        "data.mixture: weights that change need data.order = "
                        "canonical, not %s",
                        order_kind_names[s->data.order]));
    for (int i = 0; i < text->count; i++) {
        TRY_OUT(run_data_folder(s, &text->entries[i], held_out, path));
        if (!same_folder(s->run.dir, path))
            continue;
        TRY_OUT(err_set(
            ERR_USAGE,
            "run.dir is the folder of a data set (%s in "
            "data.mixture or eval.sets): a run needs a folder of its own",
            text->entries[i].name));
    }
out:
    free(text);
    return rc;
}

/* Folders of the nodes: a folder, a rhythm and how shards are protected go
 * together. */
static enum err check_local(const struct train_settings *s)
{
    bool dir = s->checkpoint.local_dir[0] != '\0';
    bool interval = s->checkpoint.local_interval.value > 0;
    bool kept = s->checkpoint.keep_state;
    if (interval && kept)
        return err_set(ERR_USAGE,
                       "checkpoint.keep_state keeps every step: leave out "
                       "checkpoint.local_interval");
    if ((interval || kept) && !dir)
        return err_set(ERR_USAGE,
                       "checkpoint.%s needs a folder on every node: give "
                       "checkpoint.local_dir, say /dev/shm/tessera-ckpt.%%j",
                       kept ? "keep_state" : "local_interval");
    if (dir && !interval && !kept)
        return err_set(ERR_USAGE,
                       "checkpoint.local_dir is given, but not how often to "
                       "save there: give checkpoint.local_interval, or "
                       "checkpoint.keep_state");
    for (int i = 0; i < train_settings_count && !dir; i++)
        if (globs_match("checkpoint.redundancy*",
                        train_settings_schema[i].key) &&
            s->given[i])
            return err_set(ERR_USAGE,
                           "%s protects what is in checkpoint.local_dir, which "
                           "is empty: give that folder, or leave it out",
                           train_settings_schema[i].key);
    return ERR_OK;
}

static enum err check_durations(const struct train_settings *s)
{
    if (s->train.max_duration.unit == UNIT_DUR)
        return err_set(ERR_USAGE, "train.max_duration cannot be a fraction of "
                                  "itself: use ba, tok, sp, ep or sec");
    if (s->train.max_duration.value <= 0)
        return err_set(ERR_USAGE, "train.max_duration is 0: how long should "
                                  "the run be?");
    return trainer_schedule_settings(s);
}

static enum err check_degree(const char *name, int degree,
                             const struct train_settings *s)
{
    int ranks = train_memory_ranks_max(s);
    assert(degree > 0 && ranks > 0);
    if (degree <= ranks)
        return ERR_OK;
    return err_set(ERR_USAGE,
                   "parallel.%s (%d) is more than %d, the most ranks of the "
                   "run (parallel.slots, under zero2 and zero3 leaves, x "
                   "parallel.sequence_degree): choose a smaller one",
                   name, degree, ranks);
}

/* As far as it does not depend on the number of ranks. */
static enum err check_parallel(const struct train_settings *s)
{
    enum err rc = ERR_OK;
    struct replica_options options = train_memory_replica(s);
    struct params *params = NULL;
    int degree = options.shard_degree > 0 ? options.shard_degree : 1;
    TRY(check_degree("shard_degree", degree, s));
    TRY(check_degree("expert_degree", options.expert_degree, s));
    TRY(replica_check(&options, degree * options.expert_degree *
                                    options.sequence_degree));
    if (s->data.seq_len % options.sequence_chunks != 0)
        return err_set(ERR_USAGE,
                       "data.seq_len (%lld) is not divisible by "
                       "parallel.sequence_chunks (%d): choose a divisor",
                       (long long)s->data.seq_len, options.sequence_chunks);
    TRY_OUT(train_settings_params(s, &params));
    TRY_OUT(train_groups_check(&s->groups, params));
    TRY_OUT(replica_check_model(&options, params));
out:
    params_destroy(params);
    return rc;
}

/* What freezes or adds parameters, as far as it does not depend on them. */
static enum err check_tuning(const struct train_settings *s)
{
    static const char *const keys[] = { "lora.alpha", "lora.dropout",
                                        "lora.targets" };
    if (strchr(s->start.weights, '#') != NULL &&
        !ckpt_index_is_named(s->start.weights) && train_settings_freezes(s))
        return err_set(ERR_USAGE,
                       "model.weights is a mean of weights (%s), which a run "
                       "that trains a part of its model would not find again: "
                       "export it with tessera-hf first",
                       strrchr(s->start.weights, '#'));
    if (trainer_backend_fp8(s) && train_settings_freezes(s))
        return err_set(ERR_USAGE,
                       "%s and train.precision = fp8 are not combined yet: "
                       "use bf16",
                       s->lora.rank > 0 ? "lora.rank" : "model.freeze");
    for (int i = 0; i < train_settings_count && s->lora.rank == 0; i++)
        for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++)
            if (strcmp(train_settings_schema[i].key, keys[k]) == 0 &&
                !train_settings_default(s, &train_settings_schema[i]))
                return err_set(ERR_USAGE,
                               "%s does nothing without lora.rank: leave it "
                               "out, or give a rank",
                               keys[k]);
    return ERR_OK;
}

/* Adapters are of a model: where none is said, model.weights was forgotten. */
static enum err check_adapted(const struct train_settings *s)
{
    if (s->lora.rank == 0 || train_settings_from(s).path[0] != '\0' ||
        train_settings_given(s, "model.preset") ||
        train_settings_given(s, "model.d_model"))
        return ERR_OK;
    return err_set(ERR_USAGE,
                   "lora.rank is %lld and model.weights is empty: give the "
                   "weights that get adapters; for fresh ones, give "
                   "model.preset",
                   (long long)s->lora.rank);
}

/* global_batch = slots x leaves x microbatch, whole numbers all of them. */
static enum err check_batch(const struct train_settings *s)
{
    if (s->train.global_batch % s->parallel.slots != 0)
        return err_set(ERR_USAGE,
                       "train.global_batch (%lld) is not divisible by "
                       "parallel.slots (%lld): choose a multiple",
                       (long long)s->train.global_batch,
                       (long long)s->parallel.slots);
    int64_t slot = s->train.global_batch / s->parallel.slots;
    if (slot % s->train.microbatch != 0)
        return err_set(ERR_USAGE,
                       "a slot has %lld samples (train.global_batch / "
                       "parallel.slots), not divisible by train.microbatch "
                       "(%lld): choose a divisor",
                       (long long)slot, (long long)s->train.microbatch);
    return ERR_OK;
}

/* What can be judged without the model. */
static enum err check_alone(const struct train_settings *s)
{
    struct profile_ranges ranges;
    if (!s->partial || s->run.dir[0] != '\0')
        TRY(check_run_dir(s->run.dir));
    if (!s->partial)
        TRY(check_data(s));
    TRY(train_access_check(s));
    TRY(check_adapted(s));
    TRY(check_tuning(s));
    TRY(check_batch(s));
    if (!s->partial || s->train.max_duration.value > 0)
        TRY(check_durations(s));
    TRY(start_weights_settings(s));
    TRY(profile_ranges_parse(s->train.profile, &ranges));
    TRY(check_local(s));
    TRY(tracking_check(&s->tracking));
    TRY(check_order(s));
    TRY(check_mixture(s, false));
    TRY(check_mixture(s, true));
    if (s->optimizer.lr > 0 && (float)s->optimizer.lr == 0.0f)
        return err_set(ERR_USAGE,
                       "optimizer.lr (%g) is 0 in fp32: give 0 if that is "
                       "meant",
                       s->optimizer.lr);
    if ((s->eval.samples > 0 || s->eval.sets[0] != '\0') &&
        s->data.eval[0] == '\0')
        return err_set(ERR_USAGE, "eval.samples and eval.sets need data.eval");
    return ERR_OK;
}

/* And what cannot. */
static enum err check_whole(const struct train_settings *s)
{
    struct model_memory memory;
    TRY(model_config_check(&s->model));
    TRY(train_settings_memory(s, &memory));
    TRY(check_parallel(s));
    TRY(trainer_backend_check(s));
    if (s->data.seq_len > s->model.max_seq_len)
        return err_set(ERR_USAGE,
                       "data.seq_len (%lld) is larger than model.max_seq_len "
                       "(%lld): make one of them fit",
                       (long long)s->data.seq_len,
                       (long long)s->model.max_seq_len);
    TRY(algorithm_check(s));
    return finish_check(s);
}

bool start_settings_asks(const struct train_settings *s)
{
    return train_settings_from(s).path[0] != '\0' &&
           (!train_settings_given(s, "model.preset") ||
            s->model.preset == model_preset_weights);
}

static enum err find_shape(const struct train_settings *s, bool fetches,
                           struct model_config *out)
{
    const char *name = model_preset_names[s->model.preset];
    return train_settings_blame(s, start_settings_asks(s)
                                       ? start_weights_shape(s, fetches, out)
                                       : model_config_preset(name, out));
}

/* Whether both widths of the MLP were given, and are two. */
static bool two_widths(const struct train_settings *s,
                       const struct model_config *shape)
{
    int64_t d = s->model.d_model > 0 ? s->model.d_model : shape->d_model;
    return s->model.ffn_width > 0 && s->model.expansion_ratio > 0.0 &&
           llround(s->model.expansion_ratio * (double)d) != s->model.ffn_width;
}

/* What is given and the preset's as well is not a choice. */
static void note_given(struct train_settings *s,
                       const struct train_settings *preset)
{
    char value[SETTINGS_VALUE_BYTES], theirs[SETTINGS_VALUE_BYTES];
    for (int i = 0; i < train_settings_count; i++) {
        const struct setting *setting = &train_settings_schema[i];
        if (!s->given[i] || strncmp(setting->key, "model.", 6) != 0)
            continue;
        settings_text(setting, s, value);
        settings_text(setting, preset, theirs);
        s->given[i] = strcmp(setting->key, "model.expansion_ratio") == 0
                          ? two_widths(s, &preset->model)
                          : strcmp(value, theirs) != 0;
    }
}

/* Model settings that were not given, or given as 0 where 0 says so, become the
 * preset's; those that follow from others are left to them, but for a preset
 * from which nothing may differ. */
static enum err complete_model(struct train_settings *s,
                               const struct model_config *shape)
{
    struct train_settings *preset = NULL;
    TRY(new_zeroed(&preset, 1));
    preset->model = *shape;
    note_given(s, preset);
    if (shape->preset != model_preset_weights)
        preset->model.n_kv_heads = 0;
    if (shape->preset != model_preset_weights ||
        train_settings_given(s, "model.expansion_ratio"))
        preset->model.ffn_width = 0;
    for (int i = 0; i < train_settings_count; i++)
        if (s->origins[i].place[0] == '\0' &&
            strncmp(train_settings_schema[i].key, "model.", 6) == 0)
            settings_copy(&train_settings_schema[i], preset, s);
    model_config_complete(&s->model, shape);
    free(preset);
    return ERR_OK;
}

static enum err complete(struct train_settings *s,
                         const struct model_config *shape)
{
    assert(s->parallel.slots > 0);
    TRY(complete_model(s, shape));
    if (s->data.seq_len == 0)
        s->data.seq_len = s->model.max_seq_len;
    TRY(algorithm_needs(s, &s->needs));
    TRY(check_whole(s));
    return s->microbatch_automatic && s->train.global_batch > 0
               ? train_memory_auto(s, &s->train.microbatch)
               : ERR_OK;
}

enum err start_settings_read(const char *path, char *const *overrides,
                             int override_count, bool partial,
                             struct train_settings *out)
{
    TRY(train_settings_read(path, overrides, override_count, partial, out));
    return train_settings_blame(out, check_alone(out));
}

enum err start_settings_complete(struct train_settings *s)
{
    struct model_config shape;
    TRY(find_shape(s, false, &shape));
    return train_settings_blame(s, complete(s, &shape));
}

struct asking {
    const struct train_settings *settings;
    struct model_config shape;
};

static enum err ask(void *arg)
{
    struct asking *asking = arg;
    return find_shape(asking->settings, true, &asking->shape);
}

enum err start_settings_share(struct comm *comm, struct train_settings *s)
{
    struct asking asking = { .settings = s };
    struct model_config *shape = &asking.shape;
    assert(!s->partial);
    TRY(start_alone(comm, ask, &asking)); /* weights may be long in coming */
    TRY(comm_broadcast(comm, shape, sizeof *shape, 0));
    return comm_agree(comm, train_settings_blame(s, complete(s, shape)));
}

enum err start_settings_load(const char *path, char *const *overrides,
                             int override_count, struct train_settings *out)
{
    TRY(start_settings_read(path, overrides, override_count, false, out));
    return start_settings_complete(out);
}

enum err start_settings_outputs(const char *path,
                                const struct train_settings *s)
{
    const char *const inputs[] = { path,
                                   s->data.train,
                                   s->data.eval,
                                   s->start.weights,
                                   s->eval.gauntlet,
                                   s->generate.prompts };
    return s->tracking.prometheus[0] == '\0'
               ? ERR_OK
               : output_check(s->tracking.prometheus, inputs,
                              sizeof inputs / sizeof *inputs);
}
