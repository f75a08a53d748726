/* Chooses and checks the weights that settings name. trainer_weights.c fills
 * them in. */
#include "src/train/start_weights.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint/files/ckpt_index.h"
#include "src/base/digest.h"
#include "src/base/log.h"
#include "src/text/tokenizer.h"

/* Of the settings of a model, what a run may choose anew, and what is seen by
 * names and shapes of tensors. */
#define OWN                                                                    \
    "model.preset model.weights* model.freeze model.max_seq_len "              \
    "model.dropout_* "                                                         \
    "model.init* model.router_jitter model.balance_weight "                    \
    "model.attn_uses_sequence_id"
#define SHAPES                                                                 \
    " model.d_model model.n_layers model.n_kv_heads model.vocab_size "         \
    "model.expansion_ratio model.ffn_width model.qk_norm model.ffn "           \
    "model.bias model.qkv_bias model.out_bias model.mlp_bias model.tied "      \
    "model.experts"
/* Training can bring the model round to other angles, and does for longer
 * texts. */
#define WARNED "model.rope_*"

struct start_from start_weights_from(const struct train_settings *s)
{
    if (s->checkpoint.load[0] != '\0')
        return (struct start_from){ .key = "checkpoint.load",
                                    .path = s->checkpoint.load,
                                    .ignore = s->checkpoint.load_ignore,
                                    .state = !s->checkpoint.load_weights_only };
    return (struct start_from){ .key = "model.weights",
                                .path = s->start.weights,
                                .ignore = s->start.weights_ignore };
}

enum err start_weights_settings(const struct train_settings *s)
{
    bool load = s->checkpoint.load[0] != '\0';
    bool weights = s->start.weights[0] != '\0';
    if (load && weights)
        return err_set(ERR_USAGE, "model.weights and checkpoint.load are both "
                                  "given: a run starts from one of them");
    if (!weights && s->start.weights_ignore[0] != '\0')
        return err_set(ERR_USAGE,
                       "model.weights_ignore does nothing without "
                       "model.weights%s",
                       load ? ": with checkpoint.load it is "
                              "checkpoint.load_ignore"
                            : "");
    if (!load && s->checkpoint.load_ignore[0] != '\0')
        return err_set(ERR_USAGE, "checkpoint.load_ignore does nothing without "
                                  "checkpoint.load");
    if (!load && s->checkpoint.load_weights_only)
        return err_set(ERR_USAGE, "checkpoint.load_weights_only does nothing "
                                  "without checkpoint.load");
    return ERR_OK;
}

/* Of the run's own checkpoints the newest that can be read; NULL: none. */
static struct weights *open_own(const char *run_dir)
{
    int64_t *steps = NULL;
    int count = 0;
    bool evidence;
    struct weights *weights = NULL;
    if (run_dir[0] == '\0' ||
        ckpt_index_steps(run_dir, &steps, &count, &evidence) != ERR_OK)
        return NULL;
    for (int i = count - 1; i >= 0 && weights == NULL; i--) {
        char path[FSIO_PATH_MAX];
        if (ckpt_index_path(path, run_dir, steps[i]) != ERR_OK ||
            weights_open(path, &weights) != ERR_OK)
            weights = NULL;
    }
    free(steps);
    return weights;
}

enum err start_weights_shape(const struct train_settings *s,
                             struct model_config *out)
{
    struct start_from from = start_weights_from(s);
    struct weights *weights = open_own(s->run.dir);
    enum err rc = weights != NULL ? ERR_OK : weights_open(from.path, &weights);
    if (rc != ERR_OK)
        return err_prefix(rc, "%s", from.key);
    *out = weights_about(weights)->config;
    out->preset = model_preset_weights;
    weights_close(weights);
    return ERR_OK;
}

/* --- what the model computes --- */

static bool same_norm(const struct model_config *a,
                      const struct model_config *b)
{
    return model_norm_is_rms(a->norm) == model_norm_is_rms(b->norm);
}

/* Lists the settings that differ; how many of them must not. */
static int compare(const struct train_settings *s,
                   const struct train_settings *theirs, char *text,
                   size_t bytes)
{
    int count = 0;
    size_t used = 0;
    for (int i = 0; i < train_settings_count; i++) {
        const struct setting *setting = &train_settings_schema[i];
        char is[SETTINGS_VALUE_BYTES], was[SETTINGS_VALUE_BYTES];
        if (strncmp(setting->key, "model.", 6) != 0 ||
            weights_ignored(OWN SHAPES, setting->key) ||
            (strcmp(setting->key, "model.norm") == 0 &&
             same_norm(&s->model, &theirs->model)))
            continue;
        settings_text(setting, s, is);
        settings_text(setting, theirs, was);
        if (strcmp(is, was) == 0)
            continue;
        bool allowed = weights_ignored(WARNED, setting->key);
        if (allowed)
            log_warn("%s is %s, the weights were trained with %s", setting->key,
                     is, was);
        else if (used < bytes)
            used += (size_t)snprintf(
                text + used, bytes - used, "%s%s is %s, that of the weights %s",
                count == 0 ? "" : "; ", setting->key, is, was);
        count += !allowed;
    }
    return count;
}

enum err start_weights_check(const struct train_settings *s,
                             struct weights *weights,
                             const struct params *params)
{
    char text[256] = "";
    struct start_from from = start_weights_from(s);
    struct train_settings *theirs = calloc(1, sizeof *theirs);
    if (theirs == NULL)
        return err_set(ERR_MEMORY, "out of memory");
    theirs->model = weights_about(weights)->config;
    int differ = compare(s, theirs, text, sizeof text);
    free(theirs);
    enum err rc =
        params != NULL ? weights_match(weights, params, from.ignore) : ERR_OK;
    if (differ > 0)
        rc = err_set(ERR_DATA,
                     "%s: %s: another model, of which %d settings differ: "
                     "%s%s%s",
                     from.key, weights_about(weights)->path, differ, text,
                     rc != ERR_OK ? "; " : "", rc != ERR_OK ? err_text() : "");
    else if (rc != ERR_OK)
        rc = err_prefix(rc, "%s", from.key);
    return rc;
}

/* --- what its tokens mean --- */

/* The tokenizer's digest; false: none is known. */
static bool find_tokenizer(const struct weights_about *about, char sha256[65])
{
    struct tokenizer *tokenizer = NULL;
    if (about->tokenizer != NULL)
        return digest_bytes(about->tokenizer, about->tokenizer_bytes, sha256) ==
               ERR_OK;
    if (about->builtin_tokenizer == NULL ||
        tokenizer_create(about->builtin_tokenizer, &tokenizer) != ERR_OK)
        return false;
    snprintf(sha256, 65, "%s", tokenizer_sha256(tokenizer));
    tokenizer_destroy(tokenizer);
    return true;
}

void start_weights_warn(const struct weights_about *about, int64_t data_vocab,
                        const char *tokenizer_sha256)
{
    char sha256[65];
    if (!find_tokenizer(about, sha256))
        log_warn("%s does not say which tokenizer it was trained with: the "
                 "data's tokens must be of the same",
                 about->path);
    else if (strcmp(sha256, tokenizer_sha256) != 0)
        log_warn("%s was trained with another tokenizer (SHA-256 %.12s) than "
                 "the data were made with (%.12s): their tokens may mean "
                 "something else",
                 about->path, sha256, tokenizer_sha256);
    if (data_vocab > about->vocab)
        log_warn("the data have %lld tokens, the weights of %s were trained "
                 "with %lld: the others are learned anew",
                 (long long)data_vocab, about->path, (long long)about->vocab);
}

enum err start_weights_plan(const struct train_settings *s)
{
    enum err rc = ERR_OK;
    struct start_from from = start_weights_from(s);
    struct weights *weights = NULL;
    struct params *params = NULL;
    if (from.path[0] == '\0')
        return ERR_OK;
    if (access(from.path, F_OK) != 0 && errno == ENOENT) {
        log_warn("%s is left out: %s is not there yet", from.key, from.path);
        return ERR_OK;
    }
    rc = weights_open(from.path, &weights);
    if (rc != ERR_OK)
        return err_prefix(rc, "%s", from.key);
    TRY_OUT(params_create(&s->model, &params));
    TRY_OUT(start_weights_check(s, weights, params));
out:
    params_destroy(params);
    weights_close(weights);
    return rc;
}
