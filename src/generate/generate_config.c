/* Reads generation_config.json. The file is transformers', and means what that
 * library would do with it: without do_sample nothing is drawn, whatever
 * temperature stands there. What it may ask for beyond sampling (beams, contrastive
 * search, forced tokens) is not done here; a value that asks for it is warned of,
 * one that asks for nothing passes. */
#include "src/generate/generate_config.h"

#include <assert.h>
#include <jansson.h>
#include <string.h>

#include "src/base/fsio.h"
#include "src/base/jsontext.h"
#include "src/base/log.h"

static enum err config_real(const char *path, const json_t *root,
                            const char *key, double *out, bool *says)
{
    const json_t *value = json_object_get(root, key);
    if (value == NULL || json_is_null(value))
        return ERR_OK;
    if (!json_is_number(value))
        return err_set(ERR_DATA, "%s: '%s' is no number", path, key);
    *out = json_number_value(value);
    *says = true;
    return ERR_OK;
}

static enum err config_eos(const char *path, const json_t *value,
                           struct generate_config *out)
{
    size_t count = json_is_array(value) ? json_array_size(value) : 1;
    if (value == NULL || json_is_null(value))
        return ERR_OK;
    if (count > GENERATE_CONFIG_EOS_MAX)
        return err_set(ERR_DATA, "%s: 'eos_token_id' has more than %d tokens",
                       path, GENERATE_CONFIG_EOS_MAX);
    for (size_t i = 0; i < count; i++) {
        const json_t *one =
            json_is_array(value) ? json_array_get(value, i) : value;
        json_int_t token = json_integer_value(one);
        if (!json_is_integer(one) || token < 0 || token > INT32_MAX)
            return err_set(ERR_DATA,
                           "%s: 'eos_token_id' is no token, nor a list of "
                           "tokens",
                           path);
        assert(out->eos_count < GENERATE_CONFIG_EOS_MAX);
        out->eos[out->eos_count++] = (int32_t)token;
    }
    return ERR_OK;
}

/* Keys that ask for what is not done here, unless they have this value. */
static void config_warn(const char *path, const json_t *root)
{
    static const struct {
        const char *key;
        double neutral;
    } keys[] = {
        { "num_beams", 1 },
        { "num_beam_groups", 1 },
        { "penalty_alpha", 0 },
        { "typical_p", 1 },
        { "epsilon_cutoff", 0 },
        { "eta_cutoff", 0 },
        { "no_repeat_ngram_size", 0 },
        { "encoder_repetition_penalty", 1 },
        { "min_length", 0 },
        { "min_new_tokens", 0 },
        { "guidance_scale", 1 },
        { "bad_words_ids", 0 },
        { "force_words_ids", 0 },
        { "sequence_bias", 0 },
        { "suppress_tokens", 0 },
        { "begin_suppress_tokens", 0 },
        { "forced_bos_token_id", -1 },
        { "forced_eos_token_id", -1 },
        { "exponential_decay_length_penalty", 0 },
        { "stop_strings", 0 },
        { "watermarking_config", 0 },
    };
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        const json_t *value = json_object_get(root, keys[k].key);
        bool neutral = value == NULL || json_is_null(value) ||
                       (json_is_number(value) &&
                        json_number_value(value) == keys[k].neutral) ||
                       (json_is_array(value) && json_array_size(value) == 0);
        if (!neutral)
            log_warn("%s: '%s' is not done here and left out", path,
                     keys[k].key);
    }
}

static enum err config_sample(const char *path, const json_t *root,
                              struct generate_config *out)
{
    struct sample_options *sample = &out->sample;
    const json_t *draws = json_object_get(root, "do_sample");
    double top_k = 0;
    TRY(config_real(path, root, "temperature", &sample->temperature,
                    &out->says));
    TRY(config_real(path, root, "top_k", &top_k, &out->says));
    TRY(config_real(path, root, "top_p", &sample->top_p, &out->says));
    TRY(config_real(path, root, "min_p", &sample->min_p, &out->says));
    TRY(config_real(path, root, "repetition_penalty",
                    &sample->repetition_penalty, &out->says));
    if (!(top_k >= 0 && top_k <= INT32_MAX))
        return err_set(ERR_DATA, "%s: 'top_k' is %g", path, top_k);
    sample->top_k = (int64_t)top_k;
    out->says = out->says || json_is_boolean(draws);
    /* transformers draws only where it is told so, and then only the penalty
     * counts, whatever the rest says */
    if (!json_is_true(draws)) {
        double penalty = sample->repetition_penalty;
        *sample = sample_options_default;
        sample->repetition_penalty = penalty;
        sample->greedy = true;
    }
    enum err rc = sample_check(sample);
    return rc == ERR_OK ? rc : err_prefix(ERR_DATA, "%s", path);
}

enum err generate_config_read(const struct weights_about *about,
                              struct generate_config *out)
{
    enum err rc = ERR_OK;
    char path[FSIO_PATH_MAX];
    json_t *root = NULL;
    *out = (struct generate_config){ .sample = sample_options_default };
    if (about->generation == NULL)
        return ERR_OK;
    TRY(fsio_path(path, "%s/" GENERATE_CONFIG_FILE, about->path));
    rc =
        jsontext_object(about->generation, strlen(about->generation), 0, &root);
    TRY(err_prefix(rc, "%s", path));
    TRY_OUT(config_sample(path, root, out));
    TRY_OUT(config_eos(path, json_object_get(root, "eos_token_id"), out));
    config_warn(path, root);
out:
    json_decref(root);
    return rc;
}
