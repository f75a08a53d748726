/* A model's shape as config.json. What an architecture cannot express is found
 * by reading the text again. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/jsontext.h"
#include "src/formats/hf/hf_config_impl.h"

static json_t *value_of(const struct hf_key *key,
                        const struct hf_values *values)
{
    const void *field = (const char *)values + key->offset;
    switch (key->kind) {
    case HF_INT:
        return json_integer(*(const int64_t *)field);
    case HF_LENGTH:
        if (*(const int64_t *)field == 0)
            return json_null();
        return json_integer(*(const int64_t *)field);
    case HF_WHOLE:
        if (*(const double *)field == floor(*(const double *)field))
            return json_integer((json_int_t) * (const double *)field);
        return json_real(*(const double *)field);
    case HF_CLIP:
        if (*(const double *)field == 0.0)
            return json_null();
        return json_real(*(const double *)field);
    case HF_REAL:
        return json_real(*(const double *)field);
    case HF_BOOL:
        return json_boolean(*(const bool *)field);
    case HF_NAME:
        for (const struct hf_name *n = key->names; n->name != NULL; n++)
            if (n->value == *(const int *)field)
                return json_string(n->name);
        return NULL;
    case HF_MUST:
    case HF_FULL:
    case HF_NOTHING:
        break;
    }
    json_t *allowed = json_loads(key->allowed, 0, NULL);
    json_t *first = json_incref(json_array_get(allowed, 0));
    json_decref(allowed);
    return first;
}

/* 0: set; -1: out of memory. */
static int set_key(json_t *root, const struct hf_key *key,
                   const struct hf_values *values)
{
    const char *dot = strchr(key->name, '.');
    const char *name = key->name;
    if (dot != NULL) {
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
    return json_object_set_new(root, name, value_of(key, values));
}

static bool is_of(const struct hf_key *key, const char *object)
{
    size_t bytes = strlen(object);
    return strncmp(key->name, object, bytes) == 0 && key->name[bytes] == '.';
}

/* What is not given is 0. */
static bool is_given(const struct hf_key *key, const struct hf_values *values)
{
    const void *field = (const char *)values + key->offset;
    if (key->kind == HF_INT)
        return *(const int64_t *)field != 0;
    return key->kind != HF_REAL || *(const double *)field != 0.0;
}

/* Keys that are there in every file; "": those that only some files have. Where
 * positions turn versions of the library look in different places, so both have
 * it: how angles are scaled is in the old place only where they are. */
static bool is_written(const struct hf_key *key, const struct hf_values *values)
{
    bool scaled = values->model.rope_scaling != ROPE_SCALING_NONE;
    if (key->kind > HF_MUST)
        return false;
    if (is_of(key, "rope_parameters") || (scaled && is_of(key, "rope_scaling")))
        return strcmp(key->name, "rope_scaling.type") != 0 &&
               is_given(key, values);
    return key->absent == NULL || key->absent[0] != '\0';
}

static enum err make_text(const struct hf_arch_row *row,
                          const struct model_config *model, const char *dtype,
                          char **text)
{
    struct hf_values values = { .model = *model };
    values.head_dim = model->d_model / model->n_heads;
    values.attention_bias =
        model_config_qkv_bias(model) && model_config_out_bias(model);
    if (model->experts_top_k > 0)
        values.balance = model->balance_weight / (double)model->experts_top_k;
    json_t *root =
        json_pack("{s:[s],s:s,s:s}", "architectures", row->name, "model_type",
                  row->model_type, "torch_dtype", dtype);
    int failed = root == NULL;
    for (const struct hf_key *key = row->keys; key->name != NULL; key++)
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
    }
    if (a->positions == POSITIONS_ALIBI)
        DIFFERS_REAL(alibi_bias_max);
    if (plain_norm(a->norm) != plain_norm(b->norm))
        return "model.norm";
    DIFFERS_REAL(norm_eps);
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

enum err hf_config_text(enum hf_arch arch, const struct model_config *model,
                        const char *dtype, char **text)
{
    char *made = NULL;
    enum hf_arch again;
    struct model_config read;
    const struct hf_arch_row *row = &hf_config_archs[arch];
    TRY(make_text(row, model, dtype, &made));
    enum err rc =
        hf_config_parse(made, strlen(made), "config.json", &again, &read);
    const char *setting =
        rc == ERR_OK ? hf_config_difference(model, &read) : NULL;
    if (setting != NULL)
        rc = err_set(ERR_UNSUPPORTED, "%s cannot express %s", row->name,
                     setting);
    if (rc != ERR_OK) {
        free(made);
        return rc;
    }
    *text = made;
    return ERR_OK;
}

enum err hf_config_choose(const struct model_config *model, enum hf_arch *arch)
{
    static const enum hf_arch order[] = { HF_LLAMA, HF_QWEN2,   HF_GPT2,
                                          HF_MPT,   HF_MIXTRAL, HF_DBRX };
    char reasons[ERR_TEXT_BYTES] = "";
    size_t used = 0;
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++) {
        char *text = NULL;
        enum err rc = hf_config_text(order[i], model, "float32", &text);
        free(text);
        if (rc == ERR_OK) {
            *arch = order[i];
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
