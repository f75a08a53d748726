/* Reads values by a table of keys, and what a table writes of them.
 *
 * A name with a dot is a member of an inner object. A key that is not in the
 * file has its table's text, which is parsed and read like the file's own
 * value, so there is one way in. Old and new files may say the same under two
 * names; where both are there they must agree. At last every member of the file
 * is looked for in the tables: a key that nobody knows may change what the
 * model computes, and a model that computes something else is worse than none.
 *
 * What no single key can tell (widths that follow from others, limits of our
 * model) is completed and checked at the end, in arch_keys_end(). */
#include "src/formats/arch/arch_keys.h"

#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/clean.h"
#include "src/base/globs.h"

#define LAYER_NORM_EPS 1e-5 /* DBRX has no key for it */
#define BALANCE_MAX 1e3     /* model.balance_weight */

/* --- reading --- */

/* A member of the file, or of an object in it: NULL where there is none. */
static const json_t *find(const json_t *root, const char *name)
{
    const char *dot = strchr(name, '.');
    const json_t *value = json_object_get(root, name);
    while (value == NULL && dot != NULL) {
        root = json_object_getn(root, name, (size_t)(dot - name));
        name = dot + 1;
        dot = strchr(name, '.');
        value = json_object_get(root, name);
    }
    return value;
}

/* The value as text, cut, for messages. */
static void show(const json_t *value, char out[80])
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    snprintf(out, 80, "%.79s", text == NULL ? "?" : text);
    free(text);
}

static bool same(const json_t *a, const json_t *b)
{
    if (json_is_number(a) && json_is_number(b))
        return json_number_value(a) == json_number_value(b);
    return json_equal(a, b) != 0;
}

static enum err check_allowed(const struct arch_key *key, const json_t *value)
{
    char shown[80];
    bool found = false;
    json_t *allowed = json_loads(key->allowed, 0, NULL);
    if (allowed == NULL) /* the table's own text: it can be read */
        return err_set(ERR_MEMORY, "%s: out of memory", key->name);
    assert(json_array_size(allowed) > 0);
    for (size_t i = 0; i < json_array_size(allowed); i++)
        found = found || same(json_array_get(allowed, i), value);
    json_decref(allowed);
    if (found)
        return ERR_OK;
    show(value, shown);
    return err_set(ERR_UNSUPPORTED,
                   "%s is %s; of what it can be Tessera has %s", key->name,
                   shown, key->allowed);
}

static enum err check_full(const struct arch_key *key, const json_t *value)
{
    for (size_t i = 0; i < json_array_size(value); i++) {
        const char *name = json_string_value(json_array_get(value, i));
        if (name == NULL || strcmp(name, "full_attention") != 0)
            return err_set(ERR_UNSUPPORTED,
                           "%s[%zu] is '%.60s'; Tessera has full_attention",
                           key->name, i, name == NULL ? "?" : name);
    }
    if (!json_is_array(value) && !json_is_null(value))
        return err_set(ERR_DATA, "%s is no array", key->name);
    return ERR_OK;
}

static enum err read_layers(const struct arch_key *key, const json_t *value,
                            const struct arch_values *values, int64_t *interval)
{
    if (json_is_null(value))
        return ERR_OK;
    if (json_array_size(value) != (size_t)values->model.n_layers)
        return err_set(ERR_DATA, "%s is no array with a name for each layer",
                       key->name);
    *interval = 0;
    for (int64_t i = 0; i < values->model.n_layers; i++) {
        const char *name = json_string_value(json_array_get(value, (size_t)i));
        bool full = name != NULL && strcmp(name, "full_attention") == 0;
        if (!full && (name == NULL || strcmp(name, "sliding_attention") != 0))
            return err_set(ERR_UNSUPPORTED,
                           "%s[%lld] is '%.60s'; Tessera has full_attention "
                           "and sliding_attention",
                           key->name, (long long)i, name == NULL ? "?" : name);
        if (full && *interval == 0)
            *interval = i + 1;
        if (full != (*interval > 0 && (i + 1) % *interval == 0))
            return err_set(ERR_UNSUPPORTED,
                           "%s[%lld]: layers without a window are no multiples "
                           "of the first one, as Tessera has them",
                           key->name, (long long)i);
    }
    return ERR_OK;
}

static enum err read_turns(const struct arch_key *key, const json_t *value,
                           const struct arch_values *values, int64_t *interval)
{
    if (json_is_null(value))
        return ERR_OK;
    if (json_array_size(value) < (size_t)values->model.n_layers)
        return err_set(ERR_DATA, "%s is no array with a number for each layer",
                       key->name);
    *interval = 0;
    for (int64_t i = 0; i < values->model.n_layers; i++) {
        const json_t *turns = json_array_get(value, (size_t)i);
        bool on = json_is_true(turns) || json_integer_value(turns) == 1;
        bool off = json_is_false(turns) ||
                   (json_is_integer(turns) && json_integer_value(turns) == 0);
        if (off && *interval == 0)
            *interval = i + 1;
        if (on == off || on != (*interval == 0 || (i + 1) % *interval != 0))
            return err_set(ERR_UNSUPPORTED,
                           "%s[%lld]: layers without rotary positions are no "
                           "multiples of the first one, as Tessera has them",
                           key->name, (long long)i);
    }
    return ERR_OK;
}

static enum err read_name(const struct arch_key *key, const json_t *value,
                          void *field)
{
    char shown[80];
    char names[160] = "";
    const char *text = json_string_value(value);
    for (const struct arch_name *n = key->names; n->name != NULL; n++) {
        if (text != NULL && strcmp(text, n->name) == 0) {
            memcpy(field, &n->value, sizeof n->value);
            return ERR_OK;
        }
        clean_join(names, sizeof names, ", ", "%s", n->name);
    }
    show(value, shown);
    return err_set(ERR_UNSUPPORTED,
                   "%s is %s; of what it can be Tessera has %s", key->name,
                   shown, names);
}

static enum err read_number(const struct arch_key *key, const json_t *value,
                            void *field)
{
    char shown[80];
    bool whole = key->kind == ARCH_INT || key->kind == ARCH_LENGTH;
    double number = json_number_value(value); /* null is 0 */
    bool typed = json_is_null(value) ||
                 (whole ? json_is_integer(value) : json_is_number(value));
    if (!typed || !(number >= key->min && number <= key->max)) {
        show(value, shown);
        return err_set(ERR_DATA, "%s is %s, no %s from %g to %g", key->name,
                       shown, whole ? "whole number" : "number", key->min,
                       key->max);
    }
    if (whole)
        *(int64_t *)field = json_integer_value(value);
    else
        *(double *)field = number;
    return ERR_OK;
}

static enum err read_value(const struct arch_key *key, const json_t *value,
                           struct arch_values *values)
{
    assert(key->offset < sizeof *values);
    void *field = (char *)values + key->offset;
    switch (key->kind) {
    case ARCH_INT:
    case ARCH_REAL:
    case ARCH_WHOLE:
    case ARCH_CLIP:
    case ARCH_LENGTH:
        return read_number(key, value, field);
    case ARCH_BOOL:
        if (!json_is_boolean(value))
            return err_set(ERR_DATA, "%s is neither true nor false", key->name);
        *(bool *)field = json_is_true(value);
        return ERR_OK;
    case ARCH_ONE:
        if (!json_is_boolean(value))
            return err_set(ERR_DATA, "%s is neither true nor false", key->name);
        *(double *)field = json_is_true(value);
        return ERR_OK;
    case ARCH_NAME:
        return read_name(key, value, field);
    case ARCH_MUST:
        return check_allowed(key, value);
    case ARCH_FULL:
        return check_full(key, value);
    case ARCH_LAYERS:
        return read_layers(key, value, values, field);
    case ARCH_TURNS:
        return read_turns(key, value, values, field);
    case ARCH_NOTHING:
        break;
    }
    return ERR_OK;
}

static enum err read_key(const struct arch_key *key, const json_t *root,
                         struct arch_values *values)
{
    const json_t *value = find(root, key->name);
    if (value != NULL)
        return read_value(key, value, values);
    if (key->absent == NULL)
        return err_set(ERR_DATA, "no %s", key->name);
    if (key->absent[0] == '\0')
        return ERR_OK;
    json_t *otherwise = json_loads(key->absent, JSON_DECODE_ANY, NULL);
    if (otherwise == NULL) /* the table's own text: it can be read */
        return err_set(ERR_MEMORY, "%s: out of memory", key->name);
    enum err rc = read_value(key, otherwise, values);
    json_decref(otherwise);
    return rc;
}

/* Two keys for one field, as old and new files have them, must agree. */
static enum err check_twice(const struct arch_key *keys, const json_t *root)
{
    for (const struct arch_key *a = keys; a->name != NULL; a++) {
        const json_t *first = find(root, a->name);
        if (first == NULL || a->kind > ARCH_NAME)
            continue;
        for (const struct arch_key *b = a + 1; b->name != NULL; b++) {
            const json_t *second = find(root, b->name);
            if (second != NULL && b->kind <= ARCH_NAME &&
                a->offset == b->offset && !same(first, second))
                /* heads whose keys, values and rotation are not as wide */
                return err_set(a->offset ==
                                       offsetof(struct arch_values, head_dim)
                                   ? ERR_UNSUPPORTED
                                   : ERR_DATA,
                               "%s and %s differ", a->name, b->name);
        }
    }
    return ERR_OK;
}

/* Is the key one of a table's, or is it an object of which keys are? */
static bool is_known(const struct arch_key *keys, const char *name, bool *outer)
{
    size_t bytes = strlen(name);
    for (; keys->name != NULL; keys++) {
        if (strcmp(keys->name, name) == 0)
            return true;
        *outer = *outer || (strncmp(keys->name, name, bytes) == 0 &&
                            keys->name[bytes] == '.');
    }
    return false;
}

static enum err check_quantization(const json_t *value)
{
    const char *method =
        json_string_value(json_object_get(value, "quant_method"));
    if (json_is_null(value))
        return ERR_OK;
    return err_set(ERR_UNSUPPORTED,
                   "quantization_config: the weights are quantized (%.40s), "
                   "which are not read: take the model as it was before, or a "
                   "GGUF file of it",
                   method != NULL ? method : "of a kind that is not named");
}

static enum err check_known(const struct arch_key *keys, const char *common,
                            const json_t *object, const char *prefix)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        char name[128];
        bool outer = false;
        snprintf(name, sizeof name - 1, "%s%.100s", prefix, key);
        /* inner objects are written as configurations of their own */
        if (is_known(keys, name, &outer) || globs_match(common, key))
            continue;
        if (strcmp(name, "quantization_config") == 0) {
            TRY(check_quantization(value));
            continue;
        }
        if (!outer)
            return err_set(ERR_UNSUPPORTED,
                           "%s is not known: it may change what the model "
                           "computes; remove it if it does not",
                           name);
        if (!json_is_object(value) && !json_is_null(value))
            return err_set(ERR_DATA, "%s is no object", name);
        strcat(name, ".");
        TRY(check_known(keys, common, value, name));
    }
    return ERR_OK;
}

/* What no key says. */
static enum err begin(const struct arch_row *row, struct arch_values *values)
{
    struct model_config *model = &values->model;
    *values = (struct arch_values){ .plain_windows = row->plain_windows,
                                    .root_embedding = row->root_embedding };
    /* any preset: it fills what no file has, and the rest is overwritten */
    TRY(model_config_preset("mpt-tiny", model));
    model->vocab_size = 0;
    model->n_kv_heads = 0;
    model->ffn_width = 0;
    model->positions = (int)row->positions;
    model->norm = (int)row->norm;
    model->norm_eps = LAYER_NORM_EPS;
    model->ffn = (int)row->ffn;
    model->activation = (int)row->activation;
    model->bias = row->bias;
    model->qkv_bias = row->qkv_bias;
    model->router_normalize = row->router_normalize;
    model->qk_norm = (int)row->qk_norm;
    model->norm_place = (int)row->norm_place;
    model->window_interval = row->window_interval;
    model->norm_plus_one = row->norm_plus_one;
    return ERR_OK;
}

enum err arch_keys_read(const struct arch_row *row, const struct arch_key *keys,
                        const char *common, const json_t *root,
                        struct arch_values *values)
{
    assert(row != NULL && keys != NULL && json_is_object(root));
    TRY(begin(row, values));
    for (const struct arch_key *key = keys; key->name != NULL; key++)
        TRY(read_key(key, root, values));
    TRY(check_twice(keys, root));
    return check_known(keys, common, root, "");
}

/* A window of no layer is none, nor is one as long as the context, unless
 * positions turn in another way where it is. */
static void end_window(struct arch_values *values)
{
    struct model_config *model = &values->model;
    bool scaled = model->rope_scaling != ROPE_SCALING_NONE;
    if (values->plain_windows && scaled && model->window_rope_theta == 0.0)
        model->window_rope_theta = model->rope_theta;
    if (!scaled && model->window_rope_theta == model->rope_theta)
        model->window_rope_theta = 0.0;
    if (model->window == 0 || model->window > model->max_seq_len)
        model->window = model->max_seq_len;
    if (model->window_interval == 1 || (model->window == model->max_seq_len &&
                                        model->window_rope_theta == 0.0)) {
        model->window = model->window_interval = 0;
        model->window_rope_theta = 0.0;
    }
}

enum err arch_keys_end(struct arch_values *values)
{
    struct model_config *model = &values->model;
    if (values->attention_bias)
        model->qkv_bias = model->out_bias = true;
    double balance = values->balance * (double)model->experts_top_k;
    if (balance > BALANCE_MAX * (1 + 1e-9)) /* rounded up, when written */
        return err_set(ERR_UNSUPPORTED,
                       "router_aux_loss_coef is %g: times num_experts_per_tok "
                       "it is more than %g, the most of model.balance_weight",
                       values->balance, BALANCE_MAX);
    if (balance > 0)
        model->balance_weight = fmin(balance, BALANCE_MAX);
    if (model->n_kv_heads == 0)
        model->n_kv_heads = model->n_heads;
    if (model->ffn_width == 0)
        model->ffn_width = 4 * model->d_model;
    if (model->rope_scaling == ROPE_SCALING_YARN &&
        model->rope_original_len == 0)
        model->rope_original_len = model->max_seq_len;
    model->expansion_ratio = (double)model->ffn_width / (double)model->d_model;
    if (values->head_dim * model->n_heads != model->d_model)
        model->head_dim = values->head_dim;
    end_window(values);
    if (values->root_embedding)
        model->embedding_scale = sqrt((double)model->d_model);
    if (values->query_scalar > 0.0 &&
        values->query_scalar != (double)model_config_head_dim(model))
        model->attention_scale = 1.0 / sqrt(values->query_scalar);
    enum err rc = model_config_check(model);
    return rc == ERR_OK ? ERR_OK : err_set(ERR_UNSUPPORTED, "%s", err_text());
}

/* --- writing --- */

void arch_keys_begin(const struct model_config *model,
                     struct arch_values *values)
{
    assert(model->n_heads > 0);
    *values = (struct arch_values){
        .model = *model,
        .head_dim = model_config_head_dim(model),
        .query_scalar = (double)model_config_head_dim(model),
        .attention_bias =
            model_config_qkv_bias(model) && model_config_out_bias(model),
    };
    if (model->attention_scale > 0.0)
        values->query_scalar =
            round(1e6 / pow(model->attention_scale, 2)) / 1e6;
    if (model->window_rope_theta == 0.0 &&
        (model->window == 0 || model->rope_scaling == ROPE_SCALING_NONE))
        values->model.window_rope_theta = model->rope_theta;
    if (model->experts_top_k > 0)
        values->balance = model->balance_weight / (double)model->experts_top_k;
}

bool arch_keys_given(const struct arch_key *key,
                     const struct arch_values *values)
{
    assert(key->kind <= ARCH_MUST);
    const void *field = (const char *)values + key->offset;
    if (key->kind == ARCH_INT)
        return *(const int64_t *)field != 0;
    if (key->kind == ARCH_NAME && key->absent != NULL && key->absent[0] != '\0')
        return *(const int *)field != 0;
    return key->kind != ARCH_REAL || *(const double *)field != 0.0;
}

static json_t *layers_value(const struct model_config *model)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < model->n_layers; i++) {
        bool full = model_config_window(model, i) == 0;
        if (json_array_append_new(
                list, json_string(full ? "full_attention"
                                       : "sliding_attention")) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

json_t *arch_keys_value(const struct arch_key *key,
                        const struct arch_values *values)
{
    assert(key->offset < sizeof *values);
    const void *field = (const char *)values + key->offset;
    switch (key->kind) {
    case ARCH_INT:
    case ARCH_LENGTH:
        return key->kind == ARCH_LENGTH && *(const int64_t *)field == 0
                   ? json_null()
                   : json_integer(*(const int64_t *)field);
    case ARCH_WHOLE:
        if (*(const double *)field == floor(*(const double *)field))
            return json_integer((json_int_t) * (const double *)field);
        return json_real(*(const double *)field);
    case ARCH_CLIP:
    case ARCH_REAL:
        return key->kind == ARCH_CLIP && *(const double *)field == 0.0
                   ? json_null()
                   : json_real(*(const double *)field);
    case ARCH_BOOL:
        return json_boolean(*(const bool *)field);
    case ARCH_ONE: /* another number comes back as 1, and differs */
        return json_boolean(*(const double *)field != 0.0);
    case ARCH_NAME:
        for (const struct arch_name *n = key->names; n->name != NULL; n++)
            if (n->value == *(const int *)field)
                return json_string(n->name);
        return json_string(key->names->name); /* comes back, and differs */
    case ARCH_LAYERS:
        return layers_value(&values->model);
    case ARCH_MUST:
    case ARCH_FULL:
    case ARCH_TURNS:
    case ARCH_NOTHING:
        break;
    }
    assert(key->kind == ARCH_MUST); /* the others are not written */
    json_t *allowed = json_loads(key->allowed, 0, NULL);
    json_t *first = json_incref(json_array_get(allowed, 0));
    json_decref(allowed);
    return first;
}
