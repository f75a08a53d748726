/* One row for each tensor of each architecture: which of our parameters it is,
 * or which part of one. */
#include "src/formats/hf/hf_names.h"

#include <string.h>

#include "src/formats/hf/hf_names_impl.h"

#define LLAMA                                                                  \
    HF_NAMES_ONE(WTE, "model.embed_tokens.weight"),                            \
        HF_NAMES_ONE(NORM_1_WEIGHT, "input_layernorm.weight"),                 \
        HF_NAMES_PART(WQKV_WEIGHT, "self_attn.q_proj.weight", QUERIES),        \
        HF_NAMES_PART(WQKV_WEIGHT, "self_attn.k_proj.weight", KEYS),           \
        HF_NAMES_PART(WQKV_WEIGHT, "self_attn.v_proj.weight", VALUES),         \
        HF_NAMES_ONE(OUT_WEIGHT, "self_attn.o_proj.weight"),                   \
        HF_NAMES_ONE(NORM_2_WEIGHT, "post_attention_layernorm.weight"),        \
        HF_NAMES_ONE(NORM_F_WEIGHT, "model.norm.weight"),                      \
        HF_NAMES_ONE(LM_HEAD, HF_NAMES_HEAD)
#define GATED                                                                  \
    HF_NAMES_ONE(GATE_WEIGHT, "mlp.gate_proj.weight"),                         \
        HF_NAMES_ONE(UP_WEIGHT, "mlp.up_proj.weight"),                         \
        HF_NAMES_ONE(DOWN_WEIGHT, "mlp.down_proj.weight")

#define QKV_BIAS                                                               \
    HF_NAMES_PART(WQKV_BIAS, "self_attn.q_proj.bias", QUERIES),                \
        HF_NAMES_PART(WQKV_BIAS, "self_attn.k_proj.bias", KEYS),               \
        HF_NAMES_PART(WQKV_BIAS, "self_attn.v_proj.bias", VALUES)

static const struct hf_names_row llama[] = {
    LLAMA,
    GATED,
    QKV_BIAS,
    HF_NAMES_ONE(OUT_BIAS, "self_attn.o_proj.bias"),
    HF_NAMES_ONE(GATE_BIAS, "mlp.gate_proj.bias"),
    HF_NAMES_ONE(UP_BIAS, "mlp.up_proj.bias"),
    HF_NAMES_ONE(DOWN_BIAS, "mlp.down_proj.bias"),
    HF_NAMES_END,
};
static const struct hf_names_row mistral[] = { LLAMA, GATED, HF_NAMES_END };
static const struct hf_names_row qwen2[] = { LLAMA, GATED, QKV_BIAS,
                                             HF_NAMES_END };
static const struct hf_names_row mixtral[] = {
    LLAMA,
    HF_NAMES_ONE(ROUTER, "block_sparse_moe.gate.weight"),
    HF_NAMES_PART(EXPERTS_GATE, "block_sparse_moe.experts.%d.w1.weight", EACH),
    HF_NAMES_PART(EXPERTS_UP, "block_sparse_moe.experts.%d.w3.weight", EACH),
    { PARAM_EXPERTS_DOWN, "block_sparse_moe.experts.%d.w2.weight",
      HF_NAMES_EACH, true },
    HF_NAMES_END,
};
static const struct hf_names_row gpt2[] = {
    HF_NAMES_ONE(WTE, "transformer.wte.weight"),
    HF_NAMES_ONE(WPE, "transformer.wpe.weight"),
    HF_NAMES_ONE(NORM_1_WEIGHT, "ln_1.weight"),
    HF_NAMES_ONE(NORM_1_BIAS, "ln_1.bias"),
    HF_NAMES_TURNED(WQKV_WEIGHT, "attn.c_attn.weight"),
    HF_NAMES_ONE(WQKV_BIAS, "attn.c_attn.bias"),
    HF_NAMES_TURNED(OUT_WEIGHT, "attn.c_proj.weight"),
    HF_NAMES_ONE(OUT_BIAS, "attn.c_proj.bias"),
    HF_NAMES_ONE(NORM_2_WEIGHT, "ln_2.weight"),
    HF_NAMES_ONE(NORM_2_BIAS, "ln_2.bias"),
    HF_NAMES_TURNED(UP_WEIGHT, "mlp.c_fc.weight"),
    HF_NAMES_ONE(UP_BIAS, "mlp.c_fc.bias"),
    HF_NAMES_TURNED(DOWN_WEIGHT, "mlp.c_proj.weight"),
    HF_NAMES_ONE(DOWN_BIAS, "mlp.c_proj.bias"),
    HF_NAMES_ONE(NORM_F_WEIGHT, "transformer.ln_f.weight"),
    HF_NAMES_ONE(NORM_F_BIAS, "transformer.ln_f.bias"),
    HF_NAMES_ONE(LM_HEAD, HF_NAMES_HEAD),
    HF_NAMES_END,
};
static const struct hf_names_row mpt[] = {
    HF_NAMES_ONE(WTE, "transformer.wte.weight"),
    HF_NAMES_ONE(NORM_1_WEIGHT, "norm_1.weight"),
    HF_NAMES_ONE(WQKV_WEIGHT, "attn.Wqkv.weight"),
    HF_NAMES_ONE(OUT_WEIGHT, "attn.out_proj.weight"),
    HF_NAMES_ONE(NORM_2_WEIGHT, "norm_2.weight"),
    HF_NAMES_ONE(UP_WEIGHT, "ffn.up_proj.weight"),
    HF_NAMES_ONE(DOWN_WEIGHT, "ffn.down_proj.weight"),
    HF_NAMES_ONE(NORM_F_WEIGHT, "transformer.norm_f.weight"),
    HF_NAMES_ONE(LM_HEAD, HF_NAMES_HEAD),
    HF_NAMES_END,
};
static const struct hf_names_row dbrx[] = {
    HF_NAMES_ONE(WTE, "transformer.wte.weight"),
    HF_NAMES_ONE(NORM_1_WEIGHT, "norm_attn_norm.norm_1.weight"),
    HF_NAMES_ONE(WQKV_WEIGHT, "norm_attn_norm.attn.Wqkv.weight"),
    HF_NAMES_ONE(OUT_WEIGHT, "norm_attn_norm.attn.out_proj.weight"),
    HF_NAMES_ONE(NORM_2_WEIGHT, "norm_attn_norm.norm_2.weight"),
    HF_NAMES_ONE(ROUTER, "ffn.router.layer.weight"),
    HF_NAMES_ONE(EXPERTS_GATE, "ffn.experts.mlp.w1"),
    HF_NAMES_ONE(EXPERTS_UP, "ffn.experts.mlp.v1"),
    HF_NAMES_ONE(EXPERTS_DOWN, "ffn.experts.mlp.w2"),
    HF_NAMES_ONE(NORM_F_WEIGHT, "transformer.norm_f.weight"),
    HF_NAMES_ONE(LM_HEAD, HF_NAMES_HEAD),
    HF_NAMES_END,
};

static const struct {
    const char *prefix;
    const char *layers; /* with %d for the layer */
    const struct hf_names_row *rows;
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

enum err hf_names_create(enum hf_arch arch, const struct model_config *model,
                         const struct params *params, int64_t vocab,
                         struct hf_names **out)
{
    const struct hf_names_table table = { hf_config_arch_name(arch),
                                          archs[arch].layers,
                                          archs[arch].rows };
    return hf_names_make(&table, model, params, vocab, out);
}
