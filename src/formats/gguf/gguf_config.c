/* Keys of GGUF files and the settings of a model, by tables. */
#include "src/formats/gguf/gguf_config.h"

#include <assert.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_BYTES 128

enum kind {
    COUNT,    /* of a field */
    REAL,     /* of a field */
    HEAD_DIM, /* d_model / n_heads */
    ROWS,     /* of the embedding */
    ZERO,     /* a number that must be 0 */
    TRUE,     /* a bool that must be so */
    SCALING,  /* a text, of model.rope_scaling: none or linear */
    NOTHING   /* does not change what the model computes */
};

/* `absent`: of a key that need not be there; below 0: it must. */
struct key {
    const char *name; /* behind the architecture's */
    enum kind kind;
    size_t offset;
    double absent, min, max;
};

#define AT(field) offsetof(struct model_config, field)
#define NEEDED (-1.0)
#define OTHER(name, kind)                                                      \
    {                                                                          \
        name, kind, 0, 0, 0, 0                                                 \
    }
#define END                                                                    \
    {                                                                          \
        NULL, NOTHING, 0, 0, 0, 0                                              \
    }
#define SHAPE                                                                  \
    { "context_length", COUNT, AT(max_seq_len), NEEDED, 1, 1048576 },          \
        { "embedding_length", COUNT, AT(d_model), NEEDED, 1, 65536 },          \
        { "block_count", COUNT, AT(n_layers), NEEDED, 1, MODEL_LAYERS_MAX },   \
        { "feed_forward_length", COUNT, AT(ffn_width), NEEDED, 1, 1048576 },   \
        { "attention.head_count", COUNT, AT(n_heads), NEEDED, 1, 1024 },       \
        { "attention.head_count_kv", COUNT, AT(n_kv_heads), 0, 1, 1024 },      \
        OTHER("vocab_size", ROWS), OTHER("attention.key_length", HEAD_DIM),    \
        OTHER("attention.value_length", HEAD_DIM),                             \
        OTHER("attention.causal", TRUE),                                       \
        OTHER("attention.sliding_window", ZERO),                               \
        OTHER("attention.scale", ZERO), OTHER("expert_count", ZERO),           \
        OTHER("expert_used_count", ZERO), OTHER("tensor_data_layout", NOTHING)
#define LAYER_NORM                                                             \
    {                                                                          \
        "attention.layer_norm_epsilon", REAL, AT(norm_eps), NEEDED, 1e-20, 1   \
    }
#define ROTARY                                                                   \
    {                                                                            \
        "attention.layer_norm_rms_epsilon", REAL, AT(norm_eps), NEEDED, 1e-20, 1 \
    },                                                                           \
        { "rope.freq_base", REAL, AT(rope_theta), 1e4, 1, 1e12 },                \
        OTHER("rope.dimension_count", HEAD_DIM),                                 \
        OTHER("rope.scaling.type", SCALING),                                     \
    {                                                                            \
        "rope.scaling.factor", REAL, AT(rope_factor), 0, 1, 1e6                  \
    }

static const struct key rotary[] = { SHAPE, ROTARY, END };
static const struct key gpt2[] = { SHAPE, LAYER_NORM, END };
static const struct key mpt[] = {
    SHAPE,
    LAYER_NORM,
    { "attention.max_alibi_bias", REAL, AT(alibi_bias_max), NEEDED, 1e-3, 64 },
    { "attention.clamp_kqv", REAL, AT(clip_qkv), 0, 0, 1e6 },
    END,
};

#define LLAMA_SHAPE                                                            \
    .positions = POSITIONS_ROPE, .norm = MODEL_NORM_RMSNORM, .ffn = FFN_GLU,   \
    .activation = MODEL_SILU, .keys = rotary

static const struct {
    const char *name;
    enum model_positions positions;
    enum model_norm_kind norm;
    enum model_ffn ffn;
    enum model_activation activation;
    bool bias;
    const struct key *keys;
} archs[GGUF_ARCHS] = {
    [GGUF_LLAMA] = { "llama", LLAMA_SHAPE },
    [GGUF_QWEN2] = { "qwen2", LLAMA_SHAPE },
    [GGUF_GPT2] = { "gpt2", POSITIONS_LEARNED, MODEL_NORM_LAYERNORM, FFN_MLP,
                    MODEL_GELU_TANH, true, gpt2 },
    [GGUF_MPT] = { "mpt", POSITIONS_ALIBI, MODEL_NORM_LAYERNORM, FFN_MLP,
                   MODEL_GELU, false, mpt },
};

const char *gguf_config_arch_name(enum gguf_arch arch)
{
    return archs[arch].name;
}

static void full_name(enum gguf_arch arch, const char *name,
                      char out[KEY_BYTES])
{
    snprintf(out, KEY_BYTES, "%s.%s", archs[arch].name, name);
}

/* --- reading --- */

static enum err find_arch(const struct gguf *gguf, enum gguf_arch *arch)
{
    const char *name = NULL;
    size_t bytes = 0;
    TRY(gguf_get_string(gguf, GGUF_CONFIG_ARCH_KEY, &name, &bytes));
    for (int i = 0; i < GGUF_ARCHS; i++)
        if (strlen(archs[i].name) == bytes &&
            memcmp(archs[i].name, name, bytes) == 0) {
            *arch = (enum gguf_arch)i;
            return ERR_OK;
        }
    return err_set(ERR_UNSUPPORTED,
                   "%s: architecture '%.*s'; Tessera reads llama, qwen2, gpt2 "
                   "and mpt",
                   gguf_path(gguf), (int)(bytes < 64 ? bytes : 64), name);
}

double gguf_config_shortest(double value)
{
    char text[32];
    float single = (float)value;
    for (int digits = 1; digits < 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtof(text, NULL) == single)
            return strtod(text, NULL);
    }
    return value;
}

static enum err out_of_range(const struct gguf *gguf, const char *name,
                             const struct key *key, double value)
{
    return err_set(ERR_DATA, "%s: %s is %g, not from %g to %g", gguf_path(gguf),
                   name, value, key->min, key->max);
}

static enum err read_number(const struct gguf *gguf, const char *name,
                            const struct key *key, struct model_config *model)
{
    void *field = (char *)model + key->offset;
    uint64_t whole = (uint64_t)(key->absent > 0 ? key->absent : 0);
    double real = key->absent;
    bool there = gguf_find(gguf, name) != NULL;
    if (key->kind == COUNT) {
        if (there || key->absent < 0)
            TRY(gguf_get_count(gguf, name, &whole));
        if (there && ((double)whole < key->min || (double)whole > key->max))
            return out_of_range(gguf, name, key, (double)whole);
        *(int64_t *)field = (int64_t)whole;
        return ERR_OK;
    }
    if (there || key->absent < 0)
        TRY(gguf_get_real(gguf, name, &real));
    if (there && !(real >= key->min && real <= key->max))
        return out_of_range(gguf, name, key, real);
    *(double *)field = gguf_config_shortest(real);
    return ERR_OK;
}

/* A key that says what must be so here. */
static enum err check_key(const struct gguf *gguf, const char *name,
                          enum kind kind, const struct model_config *model)
{
    uint64_t count = 0, want = 0;
    double real = 0;
    bool yes = true;
    if (gguf_find(gguf, name) == NULL)
        return ERR_OK;
    switch (kind) {
    case HEAD_DIM:
    case ROWS:
        want = (uint64_t)(kind == ROWS ? model->vocab_size
                                       : model->d_model / model->n_heads);
        TRY(gguf_get_count(gguf, name, &count));
        if (count != want)
            return err_set(ERR_UNSUPPORTED,
                           "%s: %s is %" PRIu64 "; Tessera has %" PRIu64
                           " there, %s",
                           gguf_path(gguf), name, count, want,
                           kind == ROWS ? "the rows of " GGUF_CONFIG_EMBEDDING
                                        : "embedding_length / head_count");
        return ERR_OK;
    case ZERO:
        TRY(gguf_get_real(gguf, name, &real));
        return real == 0 ? ERR_OK
                         : err_set(ERR_UNSUPPORTED,
                                   "%s: %s is %g: Tessera has no such thing "
                                   "in this architecture",
                                   gguf_path(gguf), name, real);
    case TRUE:
        TRY(gguf_get_bool(gguf, name, &yes));
        break;
    case COUNT:
    case REAL:
    case SCALING:
    case NOTHING:
        break;
    }
    return yes ? ERR_OK
               : err_set(ERR_UNSUPPORTED, "%s: %s is false; Tessera has true",
                         gguf_path(gguf), name);
}

static enum err check_known(const struct gguf *gguf, enum gguf_arch arch)
{
    size_t prefix = strlen(archs[arch].name);
    for (size_t i = 0; i < gguf_keys(gguf); i++) {
        const char *name = gguf_key(gguf, i);
        const struct key *key = archs[arch].keys;
        if (strncmp(name, archs[arch].name, prefix) != 0 || name[prefix] != '.')
            continue;
        while (key->name != NULL && strcmp(key->name, name + prefix + 1) != 0)
            key++;
        if (key->name == NULL)
            return err_set(ERR_UNSUPPORTED,
                           "%s: the key %.100s is not known: it may change "
                           "what the model computes",
                           gguf_path(gguf), name);
    }
    return ERR_OK;
}

static bool has(const struct gguf *gguf, const char *tensor)
{
    return gguf_find_tensor(gguf, tensor) != NULL;
}

/* What only the tensors say. */
static enum err look_at_tensors(const struct gguf *gguf,
                                struct model_config *model)
{
    const struct gguf_tensor *embedding =
        gguf_find_tensor(gguf, GGUF_CONFIG_EMBEDDING);
    if (embedding == NULL || embedding->dims != 2)
        return err_set(ERR_DATA, "%s: no matrix " GGUF_CONFIG_EMBEDDING,
                       gguf_path(gguf));
    if (embedding->dim[1] > 16777216)
        return err_set(ERR_DATA, "%s: %" PRIu64 " tokens; at most 16777216",
                       gguf_path(gguf), embedding->dim[1]);
    model->vocab_size = (int64_t)embedding->dim[1];
    model->tied = !has(gguf, "output.weight");
    model->bias = model->bias || has(gguf, "blk.0.attn_qkv.bias");
    model->qkv_bias = has(gguf, "blk.0.attn_q.bias");
    model->out_bias = !model->bias && has(gguf, "blk.0.attn_output.bias");
    model->mlp_bias = !model->bias && has(gguf, "blk.0.ffn_up.bias");
    return ERR_OK;
}

/* One of a list of names; *out stays where there is no such key. */
static enum err read_choice(const struct gguf *gguf, const char *name,
                            const char *const *names, int *out)
{
    const char *text = NULL;
    size_t bytes = 0;
    if (gguf_find(gguf, name) == NULL)
        return ERR_OK;
    TRY(gguf_get_string(gguf, name, &text, &bytes));
    for (int i = 0; names[i] != NULL; i++)
        if (strlen(names[i]) == bytes && memcmp(names[i], text, bytes) == 0) {
            *out = i;
            return ERR_OK;
        }
    return err_set(ERR_UNSUPPORTED, "%s: %s is '%.*s', which Tessera lacks",
                   gguf_path(gguf), name, (int)(bytes < 64 ? bytes : 64), text);
}

static enum err read_choices(const struct gguf *gguf, enum gguf_arch arch,
                             struct model_config *model)
{
    static const char *const scalings[] = { "none", "linear", NULL };
    char name[KEY_BYTES];
    int activation = (int)archs[arch].activation, scaling = ROPE_SCALING_NONE;
    TRY(read_choice(gguf, GGUF_CONFIG_ACTIVATION_KEY, model_activation_names,
                    &activation));
    full_name(arch, "rope.scaling.type", name);
    TRY(read_choice(gguf, name, scalings, &scaling));
    model->activation = activation;
    model->rope_scaling = scaling;
    if (scaling == ROPE_SCALING_NONE)
        model->rope_factor = 0; /* has no effect there either */
    return ERR_OK;
}

static enum err begin_model(enum gguf_arch arch, struct model_config *model)
{
    TRY(model_config_preset("mpt-tiny", model));
    model->positions = (int)archs[arch].positions;
    model->norm = (int)archs[arch].norm;
    model->ffn = (int)archs[arch].ffn;
    model->activation = (int)archs[arch].activation;
    model->bias = archs[arch].bias;
    return ERR_OK;
}

enum err gguf_config_read(const struct gguf *gguf, enum gguf_arch *arch,
                          struct model_config *model)
{
    char name[KEY_BYTES];
    uint64_t parts = 1;
    TRY(find_arch(gguf, arch));
    TRY(begin_model(*arch, model));
    if (gguf_find(gguf, "split.count") != NULL)
        TRY(gguf_get_count(gguf, "split.count", &parts));
    if (parts > 1)
        return err_set(ERR_UNSUPPORTED,
                       "%s: one of %" PRIu64 " files of a model: merge them "
                       "first (llama-gguf-split --merge)",
                       gguf_path(gguf), parts);
    TRY(check_known(gguf, *arch));
    for (const struct key *key = archs[*arch].keys; key->name != NULL; key++) {
        full_name(*arch, key->name, name);
        if (key->kind == COUNT || key->kind == REAL)
            TRY(read_number(gguf, name, key, model));
    }
    if (model->n_kv_heads == 0)
        model->n_kv_heads = model->n_heads;
    model->expansion_ratio = (double)model->ffn_width / (double)model->d_model;
    TRY(look_at_tensors(gguf, model));
    TRY(read_choices(gguf, *arch, model));
    for (const struct key *key = archs[*arch].keys; key->name != NULL; key++) {
        full_name(*arch, key->name, name);
        TRY(check_key(gguf, name, key->kind, model));
    }
    enum err rc = model_config_check(model);
    return rc == ERR_OK ? ERR_OK
                        : err_set(ERR_UNSUPPORTED, "%s: %s", gguf_path(gguf),
                                  err_text());
}

/* --- writing --- */

/* Files have no key for it: programs that run them have one for each
 * architecture, and take one form of GELU for the other. */
static enum err check_activation(const struct model_config *model,
                                 enum gguf_arch arch)
{
    bool gated = archs[arch].activation == MODEL_SILU;
    if (gated ? model->activation == MODEL_SILU
              : model->activation == MODEL_GELU ||
                    model->activation == MODEL_GELU_TANH)
        return ERR_OK;
    return err_set(ERR_UNSUPPORTED,
                   "model.activation = \"%s\" is not written as GGUF, where %s "
                   "always has %s: export --format hf",
                   model_activation_names[model->activation], archs[arch].name,
                   model_activation_names[archs[arch].activation]);
}

enum err gguf_config_choose(const struct model_config *model,
                            enum gguf_arch *arch)
{
    static const enum gguf_arch written[HF_ARCHS] = {
        [HF_LLAMA] = GGUF_LLAMA, [HF_MISTRAL] = GGUF_LLAMA,
        [HF_QWEN2] = GGUF_QWEN2, [HF_GPT2] = GGUF_GPT2,
        [HF_MPT] = GGUF_MPT,     [HF_MIXTRAL] = GGUF_ARCHS,
        [HF_DBRX] = GGUF_ARCHS,
    };
    enum hf_arch found = HF_ARCHS;
    TRY(hf_config_choose(model, &found));
    if (model->rope_scaling == ROPE_SCALING_LLAMA3)
        return err_set(ERR_UNSUPPORTED,
                       "model.rope_scaling = \"llama3\" is not written as "
                       "GGUF, where it is a table: export --format hf");
    *arch = written[found];
    if (*arch == GGUF_ARCHS)
        return err_set(ERR_UNSUPPORTED,
                       "%s is not written as GGUF; those of the Llama family, "
                       "GPT-2 and MPT are",
                       hf_config_arch_name(found));
    return check_activation(model, *arch);
}

enum err gguf_config_write(struct gguf_writer *writer, enum gguf_arch arch,
                           const struct model_config *model)
{
    char name[KEY_BYTES];
    TRY(gguf_writer_string(writer, GGUF_CONFIG_ARCH_KEY, archs[arch].name,
                           strlen(archs[arch].name)));
    for (const struct key *key = archs[arch].keys; key->name != NULL; key++) {
        const void *field = (const char *)model + key->offset;
        uint32_t count = 0;
        float real = 0;
        full_name(arch, key->name, name);
        switch (key->kind) {
        case COUNT:
            count = (uint32_t) * (const int64_t *)field;
            break;
        case REAL:
            real = (float)*(const double *)field;
            break;
        case HEAD_DIM:
            count = (uint32_t)(model->d_model / model->n_heads);
            break;
        case ROWS:
            count = (uint32_t)model->vocab_size;
            break;
        case SCALING:
            if (model->rope_scaling == ROPE_SCALING_LINEAR)
                TRY(gguf_writer_string(writer, name, "linear", 6));
            continue;
        case ZERO:
        case TRUE:
        case NOTHING:
            continue;
        }
        if (key->kind == REAL && real == 0)
            continue; /* what is not there, clipping */
        TRY(gguf_writer_number(
            writer, name, key->kind == REAL ? GGUF_F32 : GGUF_U32,
            key->kind == REAL ? (const void *)&real : (const void *)&count));
    }
    const char *activation = model_activation_names[model->activation];
    return gguf_writer_string(writer, GGUF_CONFIG_ACTIVATION_KEY, activation,
                              strlen(activation));
}
