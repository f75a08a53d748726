/* Chooses and checks the weights that settings name. trainer_weights.c fills
 * them in.
 *
 * Weights of another function than the model's are not noticed by shapes: with
 * other heads, another activation or eps they load and train, from a loss that
 * looks like bad luck. So all settings of the model are compared, by the table:
 * those in OWN are the run's own, those in SHAPES are told together with the
 * tensors that show them, and whatever is in neither list must be equal. A setting
 * that is added to the model is therefore compared until somebody says otherwise. */
#include "src/train/start/start_weights.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint/files/ckpt_index.h"
#include "src/base/log.h"
#include "src/base/new.h"
#include "src/mirror/home.h"

/* What of a model's settings a run may choose anew, and what is seen by
 * names and shapes of tensors. */
#define OWN                                                                    \
    "model.preset model.weights* model.freeze model.max_seq_len "              \
    "model.dropout_* "                                                         \
    "model.init* model.router_jitter model.balance_weight "                    \
    "model.attn_uses_sequence_id"
#define SHAPES                                                                 \
    "model.d_model model.head_dim model.n_layers model.n_kv_heads "            \
    "model.vocab_size "                                                        \
    "model.expansion_ratio model.ffn_width model.qk_norm model.ffn "           \
    "model.bias model.qkv_bias model.out_bias model.mlp_bias model.tied "      \
    "model.experts"
/* Training can bring the model round to other angles, and does for longer
 * texts. */
#define WARNED "model.rope_*"

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
    struct start_from from = train_settings_from(s);
    return err_prefix(home_check(from.path), "%s", from.key);
}

/* The newest of the run's own checkpoints that can be read; NULL: none. */
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

enum err start_weights_shape(const struct train_settings *s, bool fetches,
                             struct model_config *out)
{
    struct start_from from = train_settings_from(s);
    bool there = home_is(from.path);
    /* what does not train is in the base alone, which is opened with the own */
    struct weights *weights = there && !fetches && train_settings_freezes(s)
                                  ? NULL
                                  : open_own(s->run.dir);
    if (weights == NULL && there && !fetches)
        return err_set(
            ERR_USAGE,
            "only %s says the model's shape, and %s is fetched when "
            "the run starts: give model.preset, or ask where it is a "
            "folder",
            from.key, from.path);
    if (weights == NULL)
        TRY(err_prefix(weights_open(from.path, &weights), "%s", from.key));
    *out = weights_about(weights)->config;
    out->preset = model_preset_weights;
    weights_close(weights);
    return ERR_OK;
}

/* --- what the model computes --- */

struct difference {
    char text[320];
    size_t used;
    int count;
};

static void differ(struct difference *list, const char *key, const char *is,
                   const char *was)
{
    if (list->used < sizeof list->text)
        list->used += (size_t)snprintf(
            list->text + list->used, sizeof list->text - list->used,
            "%s%s is %s, that of the weights %s", list->count == 0 ? "" : "; ",
            key, is, was);
    list->count++;
}

/* The settings that differ: those that must not, and those that tensors show.
 */
static void compare(const struct train_settings *s,
                    const struct train_settings *theirs,
                    struct difference *other, struct difference *shapes)
{
    for (int i = 0; i < train_settings_count; i++) {
        const struct setting *setting = &train_settings_schema[i];
        char is[SETTINGS_VALUE_BYTES], was[SETTINGS_VALUE_BYTES];
        if (strncmp(setting->key, "model.", 6) != 0 ||
            weights_ignored(OWN, setting->key) ||
            (strcmp(setting->key, "model.norm") == 0 &&
             model_norm_is_rms(s->model.norm) ==
                 model_norm_is_rms(theirs->model.norm)))
            continue;
        settings_text(setting, s, is);
        settings_text(setting, theirs, was);
        if (strcmp(is, was) == 0)
            continue;
        if (weights_ignored(WARNED, setting->key))
            log_warn("%s is %s, the weights were trained with %s", setting->key,
                     is, was);
        else
            differ(weights_ignored(SHAPES, setting->key) ? shapes : other,
                   setting->key, is, was);
    }
}

enum err start_weights_check(const struct train_settings *s,
                             struct weights *weights,
                             const struct params *params)
{
    struct difference other = { .count = 0 }, shapes = { .count = 0 };
    char known[2 * sizeof other.text + 2];
    struct start_from from = train_settings_from(s);
    const char *path = weights_about(weights)->path;
    struct train_settings *theirs = NULL;
    TRY(new_zeroed(&theirs, 1));
    theirs->model = weights_about(weights)->config;
    compare(s, theirs, &other, &shapes);
    free(theirs);
    snprintf(known, sizeof known, "%s%s%s", other.text,
             other.count > 0 && shapes.count > 0 ? "; " : "", shapes.text);
    enum err rc = params == NULL
                      ? ERR_OK
                      : weights_match(weights, params, from.ignore, known);
    if (rc != ERR_OK && rc != ERR_DATA)
        return rc;
    if (rc != ERR_OK && shapes.count > 0)
        rc = err_prefix(rc, "%s", shapes.text);
    if (other.count > 0)
        return err_set(ERR_DATA,
                       "%s: %s: another model, of which %d settings differ: "
                       "%s%s%s",
                       from.key, path, other.count, other.text,
                       rc != ERR_OK ? "; " : "",
                       rc != ERR_OK ? err_text() : "");
    return err_prefix(rc, "%s", from.key);
}

/* --- what its tokens mean --- */

static void warn_of_ends(const struct weights_about *about,
                         const struct start_weights_data *data)
{
    if (about->eos < 0 || data->eos < 0 || about->eos == data->eos)
        return;
    log_warn("texts of the data end with token %lld, those that %s was trained "
             "with did with %d: it learns another end, and programs that go by "
             "the old one do not see it",
             (long long)data->eos, about->path, about->eos);
}

struct start_weights_data start_weights_data(const struct dataset *data)
{
    const char *file = dataset_tokenizer_file(data);
    return (struct start_weights_data){
        .vocab = dataset_sidecar(data)->vocab_size,
        .eos = dataset_sidecar(data)->eos_token,
        .tokenizer_sha256 = dataset_sidecar(data)->tokenizer_sha256,
        .tokenizer = file[0] != '\0' ? file : dataset_sidecar(data)->tokenizer,
    };
}

/* Compares all tokens but the end of texts, which is told by itself. */
static bool same_texts(const struct tokenizer *a, const struct tokenizer *b)
{
    for (int32_t t = 0; t < tokenizer_vocab_size(a); t++) {
        const uint8_t *text, *other;
        size_t bytes, others;
        if (t != tokenizer_eos(a) &&
            (tokenizer_decode(a, t, &text, &bytes) != ERR_OK ||
             tokenizer_decode(b, t, &other, &others) != ERR_OK ||
             bytes != others || memcmp(text, other, bytes) != 0))
            return false;
    }
    return true;
}

enum meaning { MEANING_SAME, MEANING_OTHER, MEANING_UNKNOWN };

/* Files with other digests may have the same tokens: those of an export, of a
 * GGUF file, of another version of a library. */
static enum meaning compare_tokens(const struct weights_about *about,
                                   const struct start_weights_data *data)
{
    struct tokenizer *ours = NULL, *theirs = NULL;
    enum meaning meaning = MEANING_UNKNOWN;
    if (tokenizer_create(data->tokenizer, &ours) == ERR_OK &&
        weights_tokenizer_create(about, NULL, &theirs) == ERR_OK &&
        theirs != NULL)
        meaning = same_texts(ours, theirs) ? MEANING_SAME : MEANING_OTHER;
    tokenizer_destroy(theirs);
    tokenizer_destroy(ours);
    return meaning;
}

enum err start_weights_tokens(const struct train_settings *s,
                              const struct weights_about *about,
                              const struct start_weights_data *data)
{
    char sha256[65];
    if (!weights_tokenizer_sha256(about, sha256))
        log_warn("%s does not say which tokenizer it was trained with: the "
                 "data's tokens must be of the same",
                 about->path);
    else if (strcmp(sha256, data->tokenizer_sha256) != 0) {
        static const char text[] = "%.200s was trained with another tokenizer "
                                   "(SHA-256 %.12s) than the data were made "
                                   "with (%.12s): their tokens %s mean "
                                   "something else%s";
        enum meaning meaning = compare_tokens(about, data);
        if (meaning == MEANING_OTHER &&
            s->start.weights_tokenizer == WEIGHTS_TOKENIZER_SAME)
            return err_set(ERR_DATA, text, about->path, sha256,
                           data->tokenizer_sha256, "do",
                           " to it; make the data with tessera-data tokenize "
                           "--tokenizer MODEL, or if that is meant set "
                           "model.weights_tokenizer = \"any\"");
        if (meaning != MEANING_SAME)
            log_warn(text, about->path, sha256, data->tokenizer_sha256, "may",
                     "");
    }
    if (data->vocab > about->vocab)
        log_warn("the data have %lld tokens, the weights of %s were trained "
                 "with %lld: the others are learned anew",
                 (long long)data->vocab, about->path, (long long)about->vocab);
    warn_of_ends(about, data);
    if (s->model.experts > 1 && s->model.balance_weight == 0 &&
        about->config.balance_weight == 0)
        log_warn("model.balance_weight is 0, and %s does not say otherwise: "
                 "nothing keeps the tokens spread over the experts; 0.01 is "
                 "common",
                 about->path);
    return ERR_OK;
}

enum err start_weights_plan(const struct train_settings *s)
{
    enum err rc = ERR_OK;
    struct start_from from = train_settings_from(s);
    struct weights *weights = NULL;
    struct params *params = NULL;
    if (from.path[0] == '\0')
        return ERR_OK;
    if (home_is(from.path)) {
        log_warn("%s is left out: %s is not fetched for a plan", from.key,
                 from.path);
        return ERR_OK;
    }
    if (access(from.path, F_OK) != 0 && errno == ENOENT) {
        log_warn("%s is left out: %s is not there yet", from.key, from.path);
        return ERR_OK;
    }
    TRY(err_prefix(weights_open(from.path, &weights), "%s", from.key));
    TRY_OUT(params_create(&s->model, &params));
    TRY_OUT(start_weights_check(s, weights, params));
out:
    params_destroy(params);
    weights_close(weights);
    return rc;
}
