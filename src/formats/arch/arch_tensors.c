/* The rows' names of tensors in safetensors files, the embedding first. */
#include "src/formats/arch/arch_impl.h"

/* Queries, keys and values are three matrices there and one of ours, Wqkv,
 * whose rows they are in this order. */
#define LLAMA_TENSORS LLAMA_BUT_NORMS, LLAMA_NORMS
#define LLAMA_NORMS                                                            \
    T_ONE(NORM_1_WEIGHT, "input_layernorm.weight"),                            \
        T_ONE(NORM_2_WEIGHT, "post_attention_layernorm.weight")
#define LLAMA_ENDS                                                             \
    T_ONE(WTE, "model.embed_tokens.weight"),                                   \
        T_ONE(OUT_WEIGHT, "self_attn.o_proj.weight"),                          \
        T_ONE(NORM_F_WEIGHT, "model.norm.weight"),                             \
        T_ONE(LM_HEAD, ARCH_HF_HEAD)
#define LLAMA_BUT_NORMS                                                        \
    LLAMA_ENDS, T_PART(WQKV_WEIGHT, "self_attn.q_proj.weight", QUERIES),       \
        T_PART(WQKV_WEIGHT, "self_attn.k_proj.weight", KEYS),                  \
        T_PART(WQKV_WEIGHT, "self_attn.v_proj.weight", VALUES)
#define GATED                                                                  \
    T_ONE(GATE_WEIGHT, "mlp.gate_proj.weight"),                                \
        T_ONE(UP_WEIGHT, "mlp.up_proj.weight"),                                \
        T_ONE(DOWN_WEIGHT, "mlp.down_proj.weight")

#define QKV_BIAS                                                               \
    T_PART(WQKV_BIAS, "self_attn.q_proj.bias", QUERIES),                       \
        T_PART(WQKV_BIAS, "self_attn.k_proj.bias", KEYS),                      \
        T_PART(WQKV_BIAS, "self_attn.v_proj.bias", VALUES)

const struct arch_tensor arch_tensors_llama[] = {
    LLAMA_TENSORS,
    GATED,
    QKV_BIAS,
    T_ONE(OUT_BIAS, "self_attn.o_proj.bias"),
    T_ONE(GATE_BIAS, "mlp.gate_proj.bias"),
    T_ONE(UP_BIAS, "mlp.up_proj.bias"),
    T_ONE(DOWN_BIAS, "mlp.down_proj.bias"),
    { 0 },
};
const struct arch_tensor arch_tensors_mistral[] = { LLAMA_TENSORS,
                                                    GATED,
                                                    { 0 } };
const struct arch_tensor arch_tensors_phi3[] = {
    LLAMA_ENDS,
    LLAMA_NORMS,
    T_ONE(WQKV_WEIGHT, "self_attn.qkv_proj.weight"),
    T_PART(GATE_WEIGHT, "mlp.gate_up_proj.weight", UPPER),
    T_PART(UP_WEIGHT, "mlp.gate_up_proj.weight", LOWER),
    T_ONE(DOWN_WEIGHT, "mlp.down_proj.weight"),
    { 0 },
};
const struct arch_tensor arch_tensors_qwen2[] = {
    LLAMA_TENSORS, GATED, QKV_BIAS, { 0 }
};
#define QK_NORM                                                                \
    T_ONE(Q_NORM_WEIGHT, "self_attn.q_norm.weight"),                           \
        T_ONE(K_NORM_WEIGHT, "self_attn.k_norm.weight")

const struct arch_tensor arch_tensors_qwen3[] = {
    LLAMA_TENSORS, GATED, QK_NORM, { 0 }
};
const struct arch_tensor arch_tensors_olmo2[] = {
    LLAMA_BUT_NORMS,
    GATED,
    QK_NORM,
    T_ONE(NORM_1_WEIGHT, "post_attention_layernorm.weight"),
    T_ONE(NORM_2_WEIGHT, "post_feedforward_layernorm.weight"),
    { 0 },
};
const struct arch_tensor arch_tensors_gemma3[] = {
    LLAMA_BUT_NORMS,
    GATED,
    QK_NORM,
    T_ONE(NORM_1_WEIGHT, "input_layernorm.weight"),
    T_ONE(AFTER_1_WEIGHT, "post_attention_layernorm.weight"),
    T_ONE(NORM_2_WEIGHT, "pre_feedforward_layernorm.weight"),
    T_ONE(AFTER_2_WEIGHT, "post_feedforward_layernorm.weight"),
    { 0 },
};
/* A tensor for each expert; ours are stacked, and the way down is [in, out]. */
const struct arch_tensor arch_tensors_mixtral[] = {
    LLAMA_TENSORS,
    T_ONE(ROUTER, "block_sparse_moe.gate.weight"),
    T_PART(EXPERTS_GATE, "block_sparse_moe.experts.%d.w1.weight", EACH),
    T_PART(EXPERTS_UP, "block_sparse_moe.experts.%d.w3.weight", EACH),
    { PARAM_EXPERTS_DOWN, "block_sparse_moe.experts.%d.w2.weight", ARCH_EACH,
      true },
    { 0 },
};
const struct arch_tensor arch_tensors_qwen3_moe[] = {
    LLAMA_TENSORS,
    QK_NORM,
    T_ONE(ROUTER, "mlp.gate.weight"),
    T_PART(EXPERTS_GATE, "mlp.experts.%d.gate_proj.weight", EACH),
    T_PART(EXPERTS_UP, "mlp.experts.%d.up_proj.weight", EACH),
    { PARAM_EXPERTS_DOWN, "mlp.experts.%d.down_proj.weight", ARCH_EACH, true },
    { 0 },
};
/* Its linear layers are Conv1D, whose weights are [in, out]: turned. */
const struct arch_tensor arch_tensors_gpt2[] = {
    T_ONE(WTE, "transformer.wte.weight"),
    T_ONE(WPE, "transformer.wpe.weight"),
    T_ONE(NORM_1_WEIGHT, "ln_1.weight"),
    T_ONE(NORM_1_BIAS, "ln_1.bias"),
    T_TURNED(WQKV_WEIGHT, "attn.c_attn.weight"),
    T_ONE(WQKV_BIAS, "attn.c_attn.bias"),
    T_TURNED(OUT_WEIGHT, "attn.c_proj.weight"),
    T_ONE(OUT_BIAS, "attn.c_proj.bias"),
    T_ONE(NORM_2_WEIGHT, "ln_2.weight"),
    T_ONE(NORM_2_BIAS, "ln_2.bias"),
    T_TURNED(UP_WEIGHT, "mlp.c_fc.weight"),
    T_ONE(UP_BIAS, "mlp.c_fc.bias"),
    T_TURNED(DOWN_WEIGHT, "mlp.c_proj.weight"),
    T_ONE(DOWN_BIAS, "mlp.c_proj.bias"),
    T_ONE(NORM_F_WEIGHT, "transformer.ln_f.weight"),
    T_ONE(NORM_F_BIAS, "transformer.ln_f.bias"),
    T_ONE(LM_HEAD, ARCH_HF_HEAD),
    { 0 },
};
const struct arch_tensor arch_tensors_mpt[] = {
    T_ONE(WTE, "transformer.wte.weight"),
    T_ONE(NORM_1_WEIGHT, "norm_1.weight"),
    T_ONE(WQKV_WEIGHT, "attn.Wqkv.weight"),
    T_ONE(OUT_WEIGHT, "attn.out_proj.weight"),
    T_ONE(NORM_2_WEIGHT, "norm_2.weight"),
    T_ONE(UP_WEIGHT, "ffn.up_proj.weight"),
    T_ONE(DOWN_WEIGHT, "ffn.down_proj.weight"),
    T_ONE(NORM_F_WEIGHT, "transformer.norm_f.weight"),
    T_ONE(LM_HEAD, ARCH_HF_HEAD),
    { 0 },
};
/* Experts are stacked as ours are, w1, v1 and w2 alike. */
const struct arch_tensor arch_tensors_dbrx[] = {
    T_ONE(WTE, "transformer.wte.weight"),
    T_ONE(NORM_1_WEIGHT, "norm_attn_norm.norm_1.weight"),
    T_ONE(WQKV_WEIGHT, "norm_attn_norm.attn.Wqkv.weight"),
    T_ONE(OUT_WEIGHT, "norm_attn_norm.attn.out_proj.weight"),
    T_ONE(NORM_2_WEIGHT, "norm_attn_norm.norm_2.weight"),
    T_ONE(ROUTER, "ffn.router.layer.weight"),
    T_ONE(EXPERTS_GATE, "ffn.experts.mlp.w1"),
    T_ONE(EXPERTS_UP, "ffn.experts.mlp.v1"),
    T_ONE(EXPERTS_DOWN, "ffn.experts.mlp.w2"),
    T_ONE(NORM_F_WEIGHT, "transformer.norm_f.weight"),
    T_ONE(LM_HEAD, ARCH_HF_HEAD),
    { 0 },
};
