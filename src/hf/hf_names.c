/* One row for each tensor of each architecture: which of our parameters it is,
 * or which part of one. */
#include "src/hf/hf_names.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum part {
    WHOLE,
    QUERIES, /* of Wqkv */
    KEYS,
    VALUES,
    EACH /* one tensor for each expert; the name has %d for it */
};

struct row {
    enum param_role role;
    const char *name; /* after the layer's prefix */
    enum part part;
    bool transposed;
};

#define END                                                                    \
    {                                                                          \
        PARAM_ROLES, NULL, WHOLE, false                                        \
    }
#define ONE(role, name)                                                        \
    {                                                                          \
        PARAM_##role, name, WHOLE, false                                       \
    }
#define TURNED(role, name)                                                     \
    {                                                                          \
        PARAM_##role, name, WHOLE, true                                        \
    }
#define PART(role, name, part)                                                 \
    {                                                                          \
        PARAM_##role, name, part, false                                        \
    }

#define LLAMA                                                                  \
    ONE(WTE, "model.embed_tokens.weight"),                                     \
        ONE(NORM_1_WEIGHT, "input_layernorm.weight"),                          \
        PART(WQKV_WEIGHT, "self_attn.q_proj.weight", QUERIES),                 \
        PART(WQKV_WEIGHT, "self_attn.k_proj.weight", KEYS),                    \
        PART(WQKV_WEIGHT, "self_attn.v_proj.weight", VALUES),                  \
        ONE(OUT_WEIGHT, "self_attn.o_proj.weight"),                            \
        ONE(NORM_2_WEIGHT, "post_attention_layernorm.weight"),                 \
        ONE(NORM_F_WEIGHT, "model.norm.weight"), ONE(LM_HEAD, HF_NAMES_HEAD)
#define GATED                                                                  \
    ONE(GATE_WEIGHT, "mlp.gate_proj.weight"),                                  \
        ONE(UP_WEIGHT, "mlp.up_proj.weight"),                                  \
        ONE(DOWN_WEIGHT, "mlp.down_proj.weight")

#define QKV_BIAS                                                               \
    PART(WQKV_BIAS, "self_attn.q_proj.bias", QUERIES),                         \
        PART(WQKV_BIAS, "self_attn.k_proj.bias", KEYS),                        \
        PART(WQKV_BIAS, "self_attn.v_proj.bias", VALUES)

static const struct row llama[] = {
    LLAMA,
    GATED,
    QKV_BIAS,
    ONE(OUT_BIAS, "self_attn.o_proj.bias"),
    ONE(GATE_BIAS, "mlp.gate_proj.bias"),
    ONE(UP_BIAS, "mlp.up_proj.bias"),
    ONE(DOWN_BIAS, "mlp.down_proj.bias"),
    END,
};
static const struct row mistral[] = { LLAMA, GATED, END };
static const struct row qwen2[] = { LLAMA, GATED, QKV_BIAS, END };
static const struct row mixtral[] = {
    LLAMA,
    ONE(ROUTER, "block_sparse_moe.gate.weight"),
    PART(EXPERTS_GATE, "block_sparse_moe.experts.%d.w1.weight", EACH),
    PART(EXPERTS_UP, "block_sparse_moe.experts.%d.w3.weight", EACH),
    { PARAM_EXPERTS_DOWN, "block_sparse_moe.experts.%d.w2.weight", EACH, true },
    END,
};
static const struct row gpt2[] = {
    ONE(WTE, "transformer.wte.weight"),
    ONE(WPE, "transformer.wpe.weight"),
    ONE(NORM_1_WEIGHT, "ln_1.weight"),
    ONE(NORM_1_BIAS, "ln_1.bias"),
    TURNED(WQKV_WEIGHT, "attn.c_attn.weight"),
    ONE(WQKV_BIAS, "attn.c_attn.bias"),
    TURNED(OUT_WEIGHT, "attn.c_proj.weight"),
    ONE(OUT_BIAS, "attn.c_proj.bias"),
    ONE(NORM_2_WEIGHT, "ln_2.weight"),
    ONE(NORM_2_BIAS, "ln_2.bias"),
    TURNED(UP_WEIGHT, "mlp.c_fc.weight"),
    ONE(UP_BIAS, "mlp.c_fc.bias"),
    TURNED(DOWN_WEIGHT, "mlp.c_proj.weight"),
    ONE(DOWN_BIAS, "mlp.c_proj.bias"),
    ONE(NORM_F_WEIGHT, "transformer.ln_f.weight"),
    ONE(NORM_F_BIAS, "transformer.ln_f.bias"),
    ONE(LM_HEAD, HF_NAMES_HEAD),
    END,
};
static const struct row mpt[] = {
    ONE(WTE, "transformer.wte.weight"),
    ONE(NORM_1_WEIGHT, "norm_1.weight"),
    ONE(WQKV_WEIGHT, "attn.Wqkv.weight"),
    ONE(OUT_WEIGHT, "attn.out_proj.weight"),
    ONE(NORM_2_WEIGHT, "norm_2.weight"),
    ONE(UP_WEIGHT, "ffn.up_proj.weight"),
    ONE(DOWN_WEIGHT, "ffn.down_proj.weight"),
    ONE(NORM_F_WEIGHT, "transformer.norm_f.weight"),
    ONE(LM_HEAD, HF_NAMES_HEAD),
    END,
};
static const struct row dbrx[] = {
    ONE(WTE, "transformer.wte.weight"),
    ONE(NORM_1_WEIGHT, "norm_attn_norm.norm_1.weight"),
    ONE(WQKV_WEIGHT, "norm_attn_norm.attn.Wqkv.weight"),
    ONE(OUT_WEIGHT, "norm_attn_norm.attn.out_proj.weight"),
    ONE(NORM_2_WEIGHT, "norm_attn_norm.norm_2.weight"),
    ONE(ROUTER, "ffn.router.layer.weight"),
    ONE(EXPERTS_GATE, "ffn.experts.mlp.w1"),
    ONE(EXPERTS_UP, "ffn.experts.mlp.v1"),
    ONE(EXPERTS_DOWN, "ffn.experts.mlp.w2"),
    ONE(NORM_F_WEIGHT, "transformer.norm_f.weight"),
    ONE(LM_HEAD, HF_NAMES_HEAD),
    END,
};

static const struct {
    const char *prefix;
    const char *layers; /* with %d for the layer */
    const struct row *rows;
    const char *buffers[4]; /* how names of such end */
} archs[HF_ARCHS] = {
    [HF_LLAMA] = { "model.",
                   "model.layers.%d.",
                   llama,
                   { ".self_attn.rotary_emb.inv_freq" } },
    [HF_MISTRAL] = { "model.",
                     "model.layers.%d.",
                     mistral,
                     { ".self_attn.rotary_emb.inv_freq" } },
    [HF_QWEN2] = { "model.",
                   "model.layers.%d.",
                   qwen2,
                   { ".self_attn.rotary_emb.inv_freq" } },
    [HF_GPT2] = { "transformer.",
                  "transformer.h.%d.",
                  gpt2,
                  { ".attn.bias", ".attn.masked_bias" } },
    [HF_MPT] = { "transformer.", "transformer.blocks.%d.", mpt, { NULL } },
    [HF_MIXTRAL] = { "model.",
                     "model.layers.%d.",
                     mixtral,
                     { ".self_attn.rotary_emb.inv_freq" } },
    [HF_DBRX] = { "transformer.",
                  "transformer.blocks.%d.",
                  dbrx,
                  { ".rotary_emb.inv_freq" } },
};

const char *hf_names_prefix(enum hf_arch arch)
{
    return archs[arch].prefix;
}

bool hf_names_is_buffer(enum hf_arch arch, const char *name)
{
    size_t bytes = strlen(name);
    for (int i = 0; archs[arch].buffers[i] != NULL; i++) {
        size_t end = strlen(archs[arch].buffers[i]);
        if (bytes > end &&
            strcmp(name + bytes - end, archs[arch].buffers[i]) == 0)
            return true;
    }
    return false;
}

struct maker {
    enum hf_arch arch;
    const struct model_config *model;
    const struct params *params;
    int64_t vocab;
    struct hf_names *names;
};

/* Begins a piece of our rows [row, row + rows). */
static struct hf_piece *add(struct maker *m, int param, const struct row *row,
                            int64_t first, int64_t rows)
{
    const struct param *ours = &m->params->list[param];
    struct hf_piece *piece = &m->names->list[m->names->count++];
    piece->param = param;
    piece->dims = ours->dims;
    piece->row = first;
    piece->rows = rows;
    piece->transposed = row->transposed;
    piece->shape[0] = row->transposed ? ours->shape[1] : rows;
    piece->shape[1] = row->transposed ? rows : ours->shape[1];
    return piece;
}

static void name(struct maker *m, struct hf_piece *piece, const struct row *row,
                 int expert)
{
    char layers[64] = "";
    size_t used;
    const struct params *params = m->params;
    int block = params->list[piece->param].block;
    if (block > 0 && block < params->block_count - 1) {
        const char *number = strchr(archs[m->arch].layers, '%');
        snprintf(layers, sizeof layers, "%.*s%d%s",
                 (int)(number - archs[m->arch].layers), archs[m->arch].layers,
                 params_layer(params, block), number + 2);
    }
    const char *number = strchr(row->name, '%');
    if (number == NULL)
        used = (size_t)snprintf(piece->name, sizeof piece->name, "%s%s", layers,
                                row->name);
    else
        used = (size_t)snprintf(piece->name, sizeof piece->name, "%s%.*s%d%s",
                                layers, (int)(number - row->name), row->name,
                                expert, number + 2);
    assert(used < sizeof piece->name);
    (void)used;
}

static void add_row(struct maker *m, int param, const struct row *row)
{
    const struct model_config *model = m->model;
    int64_t head_dim = model->d_model / model->n_heads;
    int64_t kv = model->n_kv_heads * head_dim;
    int64_t d = model->d_model;
    int64_t rows = m->params->list[param].shape[0];
    if (row->role == PARAM_WTE || row->role == PARAM_LM_HEAD)
        rows = m->vocab;
    switch (row->part) {
    case WHOLE:
        name(m, add(m, param, row, 0, rows), row, 0);
        break;
    case QUERIES:
        name(m, add(m, param, row, 0, d), row, 0);
        break;
    case KEYS:
        name(m, add(m, param, row, d, kv), row, 0);
        break;
    case VALUES:
        name(m, add(m, param, row, d + kv, kv), row, 0);
        break;
    case EACH:
        for (int e = 0; e < model->experts; e++)
            name(m, add(m, param, row, e * model->ffn_width, model->ffn_width),
                 row, e);
        break;
    }
}

static enum err add_param(struct maker *m, int param)
{
    int before = m->names->count;
    const struct param *ours = &m->params->list[param];
    for (const struct row *row = archs[m->arch].rows; row->name != NULL; row++)
        if (row->role == ours->role)
            add_row(m, param, row);
    if (m->names->count == before)
        return err_set(ERR_UNSUPPORTED, "%s has no tensor for our %s",
                       hf_config_arch_name(m->arch), ours->name);
    return ERR_OK;
}

enum err hf_names_create(enum hf_arch arch, const struct model_config *model,
                         const struct params *params, int64_t vocab,
                         struct hf_names **out)
{
    enum err rc = ERR_OK;
    assert(vocab > 0 && vocab <= model->vocab_size);
    /* at most 3 pieces of a parameter, or one of each expert */
    size_t pieces = model->experts > 3 ? (size_t)model->experts : 3;
    struct hf_names *names = calloc(1, sizeof *names);
    if (names != NULL)
        names->list =
            calloc((size_t)params->count * pieces, sizeof names->list[0]);
    struct maker maker = { arch, model, params, vocab, names };
    if (names == NULL || names->list == NULL) {
        rc = err_set(ERR_MEMORY, "table of tensors: out of memory");
        goto out;
    }
    for (int i = 0; i < params->count; i++)
        TRY_OUT(add_param(&maker, i));
    *out = names;
    names = NULL;
out:
    hf_names_destroy(names);
    return rc;
}

void hf_names_destroy(struct hf_names *names)
{
    if (names == NULL)
        return;
    free(names->list);
    free(names);
}
