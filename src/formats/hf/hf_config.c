/* Reads and writes config.json by the tables of arch.c.
 *
 * Which architecture expresses a model is not worked out from its settings.
 * Each is tried: the text is made, read again as any file is, and compared
 * setting by setting with what it was made of. What a table has no key for
 * comes back with another value, and that setting is the reason why this
 * architecture is not it. Only what changes the computation is compared
 * (hf_config_difference()). */
#include "src/formats/hf/hf_config.h"

#include <assert.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/jsontext.h"
#include "src/formats/arch/arch_keys.h"

/* Keys that any file may have, and that do not change what a model computes; the
 * last four do so by values that arch.c refuses. */
static const char common[] =
    "architectures model_type torch_dtype dtype transformers_version "
    "_name_or_path _model_name_or_path auto_map bos_token_id eos_token_id "
    "pad_token_id unk_token_id tokenizer_class tokenizer_name use_cache "
    "initializer_range _attn_implementation_autoset output_attentions "
    "output_hidden_states return_dict id2label label2id problem_type "
    "chunk_size_feed_forward task_specific_params transformers.js_config "
    /* how it is run, by whom it was tuned, and texts are made */
    "attn_implementation _attn_implementation "
    "_attn_implementation_internal _flash_attn_2_enabled use_flash_attn "
    "use_flash_attention use_flash_attention_2 unsloth_version "
    "unsloth_fixed max_sequence_length model_max_length "
    "tokenizer_model_max_length tokenizer_padding_side "
    "gradient_checkpointing use_gradient_checkpointing finetuning_task "
    "torchscript use_bfloat16 tf_legacy_loss tie_encoder_decoder "
    "cross_attention_hidden_size decoder_start_token_id sep_token_id "
    "prefix remove_invalid_values use_return_dict output_scores "
    "return_dict_in_generate bad_words_ids begin_suppress_tokens "
    "diversity_penalty do_sample early_stopping "
    "encoder_no_repeat_ngram_size exponential_decay_length_penalty "
    "forced_bos_token_id forced_eos_token_id length_penalty max_length "
    "max_new_tokens min_length no_repeat_ngram_size num_beam_groups "
    "num_beams num_return_sequences repetition_penalty suppress_tokens "
    "temperature top_k top_p typical_p pruned_heads is_encoder_decoder "
    "is_decoder add_cross_attention ";

/* --- reading --- */

static enum err find_arch(const json_t *root, enum arch *arch)
{
    const json_t *list = json_object_get(root, "architectures");
    const char *name = json_string_value(json_array_get(list, 0));
    const char *type = json_string_value(json_object_get(root, "model_type"));
    char titles[ARCH_TITLES_BYTES];
    /* "architectures" decides, model_type stands in for it */
    if (json_array_size(list) > 1 || (list != NULL && name == NULL))
        return err_set(ERR_DATA, "architectures is no array of one name");
    for (int i = 0; i < ARCHS; i++) {
        const struct arch_row *row = &arch_rows[i];
        /* old files have a model_type alone */
        if (name == NULL
                ? type != NULL && strcmp(type, row->model_type) == 0
                : strcmp(name, row->hf.name) == 0 ||
                      (row->also != NULL && strcmp(name, row->also) == 0)) {
            *arch = (enum arch)i;
            return ERR_OK;
        }
    }
    if (name == NULL && type == NULL)
        return err_set(ERR_DATA, "neither architectures nor model_type");
    return err_set(ERR_UNSUPPORTED, "architecture %.100s; " ARCH_KNOWN("has"),
                   name == NULL ? type : name, arch_titles(false, titles));
}

static enum err read_root(const json_t *root, enum arch *arch,
                          struct arch_values *values)
{
    TRY(find_arch(root, arch));
    const struct arch_row *row = &arch_rows[*arch];
    TRY(arch_keys_read(row, row->hf.keys, common, root, values));
    return arch_keys_end(values);
}

enum err hf_config_parse(const char *text, size_t bytes, const char *path,
                         enum arch *arch, struct model_config *model)
{
    assert(text != NULL && arch != NULL && model != NULL);
    struct arch_values values;
    json_t *root;
    enum err rc = jsontext_object(text, bytes, JSON_REJECT_DUPLICATES, &root);
    if (rc == ERR_OK)
        rc = read_root(root, arch, &values);
    json_decref(root);
    if (rc != ERR_OK)
        return err_prefix(rc, "%s", path);
    *model = values.model;
    return ERR_OK;
}

/* --- writing --- */

/* 0: set; -1: out of memory. */
static int set_key(json_t *root, const struct arch_key *key,
                   const struct arch_values *values)
{
    const char *name = key->name;
    for (const char *dot = strchr(name, '.'); dot != NULL;
         dot = strchr(name, '.')) {
        char outer[64];
        size_t bytes = (size_t)(dot - name);
        memcpy(outer, name, bytes);
        outer[bytes] = '\0';
        if (json_object_get(root, outer) == NULL &&
            json_object_set_new(root, outer, json_object()) != 0)
            return -1;
        root = json_object_get(root, outer);
        name = dot + 1;
    }
    return json_object_set_new(root, name, arch_keys_value(key, values));
}

static bool is_of(const struct arch_key *key, const char *object)
{
    size_t bytes = strlen(object);
    return strncmp(key->name, object, bytes) == 0 && key->name[bytes] == '.';
}

/* Keys that are there in every file; "": those that only some files have. Where
 * positions turn versions of the library look in different places, so both have
 * it: how angles are scaled is in the old place only where they are. */
static bool is_written(const struct arch_key *key,
                       const struct arch_values *values)
{
    bool scaled = values->model.rope_scaling != ROPE_SCALING_NONE;
    if (key->kind > ARCH_MUST)
        return false;
    if (is_of(key, "rope_parameters") || (scaled && is_of(key, "rope_scaling")))
        return strcmp(key->name, "rope_scaling.type") != 0 &&
               strstr(key->name, ".truncate") == NULL &&
               arch_keys_given(key, values);
    return key->absent == NULL || key->absent[0] != '\0';
}

static enum err make_text(const struct arch_row *row,
                          const struct model_config *model, const char *dtype,
                          char **text)
{
    struct arch_values values;
    arch_keys_begin(model, &values);
    json_t *root =
        json_pack("{s:[s],s:s,s:s}", "architectures", row->hf.name,
                  "model_type", row->model_type, "torch_dtype", dtype);
    int failed = root == NULL;
    for (const struct arch_key *key = row->hf.keys; key->name != NULL; key++)
        if (is_written(key, &values))
            failed |= set_key(root, key, &values);
    enum err rc = failed ? err_set(ERR_MEMORY, "config.json: out of memory")
                         : jsontext_make(root, 2, text);
    json_decref(root);
    return rc;
}

static int plain_norm(int norm)
{
    return model_norm_is_rms((enum model_norm_kind)norm) ? MODEL_NORM_RMSNORM
                                                         : MODEL_NORM_LAYERNORM;
}

static bool has_norm_bias(const struct model_config *config)
{
    return config->bias &&
           !model_norm_is_rms((enum model_norm_kind)config->norm);
}

/* The base of rotary angles in layers with a window; 0: scaled as the others'. */
static float own_theta(const struct model_config *config)
{
    if (config->window_rope_theta > 0.0)
        return (float)config->window_rope_theta;
    return config->rope_scaling == ROPE_SCALING_NONE ? (float)config->rope_theta
                                                     : 0.0f;
}

#define DIFFERS(field)                                                         \
    if (a->field != b->field)                                                  \
    return "model." #field
/* Other programs' files have floats. */
#define DIFFERS_REAL(field)                                                    \
    if ((float)a->field != (float)b->field)                                    \
    return "model." #field

const char *hf_config_difference(const struct model_config *a,
                                 const struct model_config *b)
{
    DIFFERS(d_model);
    DIFFERS(n_heads);
    DIFFERS(n_kv_heads);
    if (model_config_head_dim(a) != model_config_head_dim(b))
        return "model.head_dim";
    DIFFERS(n_layers);
    DIFFERS(vocab_size);
    DIFFERS(max_seq_len);
    DIFFERS(ffn_width);
    DIFFERS(positions);
    if (a->positions == POSITIONS_ROPE) {
        DIFFERS_REAL(rope_theta);
        DIFFERS(rope_scaling);
        DIFFERS_REAL(rope_factor);
        DIFFERS_REAL(rope_low_freq_factor);
        DIFFERS_REAL(rope_high_freq_factor);
        DIFFERS(rope_original_len);
        DIFFERS_REAL(rope_beta_fast);
        DIFFERS_REAL(rope_beta_slow);
        DIFFERS_REAL(rope_attention_factor);
        DIFFERS(no_rope_interval);
        if (a->window > 0 && own_theta(a) != own_theta(b))
            return "model.window_rope_theta";
    }
    for (int64_t i = 0; i < a->n_layers; i++)
        if (model_config_window(a, i) != model_config_window(b, i))
            return "model.window";
    if (a->positions == POSITIONS_ALIBI)
        DIFFERS_REAL(alibi_bias_max);
    if (plain_norm(a->norm) != plain_norm(b->norm))
        return "model.norm";
    DIFFERS_REAL(norm_eps);
    DIFFERS(norm_place);
    DIFFERS(norm_plus_one);
    DIFFERS_REAL(embedding_scale);
    if (model_config_attention_scale(a) != model_config_attention_scale(b))
        return "model.attention_scale";
    DIFFERS(qk_norm);
    DIFFERS_REAL(clip_qkv);
    DIFFERS(ffn);
    DIFFERS(activation);
    if (has_norm_bias(a) != has_norm_bias(b))
        return "model.bias";
    if (model_config_qkv_bias(a) != model_config_qkv_bias(b))
        return "biases of queries, keys and values";
    if (model_config_out_bias(a) != model_config_out_bias(b))
        return "a bias of attention's output";
    /* experts never have biases, whatever the setting says */
    if (a->experts == 0 && model_config_mlp_bias(a) != model_config_mlp_bias(b))
        return "biases of the MLP";
    DIFFERS(tied);
    DIFFERS_REAL(logit_scale);
    DIFFERS_REAL(residual_scale);
    DIFFERS(experts);
    if (a->experts > 0) {
        DIFFERS(experts_top_k);
        DIFFERS_REAL(router_normalize);
    }
    return NULL;
}

enum err hf_config_text(enum arch arch, const struct model_config *model,
                        const char *dtype, char **text)
{
    assert(model != NULL && dtype != NULL && text != NULL);
    char *made = NULL;
    enum arch again;
    struct model_config read;
    const struct arch_row *row = &arch_rows[arch];
    TRY(make_text(row, model, dtype, &made));
    enum err rc =
        hf_config_parse(made, strlen(made), "config.json", &again, &read);
    const char *setting =
        rc == ERR_OK ? hf_config_difference(model, &read) : NULL;
    if (setting != NULL)
        rc = err_set(ERR_UNSUPPORTED, "%s cannot express %s", row->hf.name,
                     setting);
    if (rc != ERR_OK) {
        free(made);
        return rc;
    }
    *text = made;
    return ERR_OK;
}

enum err hf_config_choose(const struct model_config *model, enum arch *arch)
{
    char reasons[ERR_TEXT_BYTES] = "";
    size_t used = 0;
    /* the first that fits, so the rows' order is what is preferred */
    for (int i = 0; i < ARCHS; i++) {
        char *text = NULL;
        if (arch_rows[i].alias)
            continue;
        enum err rc = hf_config_text((enum arch)i, model, "float32", &text);
        free(text);
        if (rc == ERR_OK) {
            *arch = (enum arch)i;
            return ERR_OK;
        }
        if (rc == ERR_MEMORY)
            return rc;
        size_t bytes = strlen(err_text());
        if (used + bytes + 3 > sizeof reasons)
            continue;
        memcpy(reasons + used, "; ", 2);
        memcpy(reasons + used + 2, err_text(), bytes + 1);
        used += bytes + 2;
    }
    return err_set(ERR_UNSUPPORTED, "no architecture expresses this model%s",
                   reasons);
}
