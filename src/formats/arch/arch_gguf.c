/* The architectures in GGUF files: keys behind the architecture's name, and
 * tensors by the names that llama.cpp knows.
 *
 * What a program that reads GGUF does is decided by the architecture's name
 * alone: which norm, which activation, and how positions turn. So a key that a
 * file need not have is one with a fixed value here, or is seen from the
 * tensors (gguf_config.c). llama.cpp turns neighbouring rows of a head for
 * "llama", so converters store queries and keys in that order
 * (gguf_row_to_pairs()); for "qwen2" it turns halves, as Hugging Face does, and
 * nothing is reordered. */
#include "src/formats/arch/arch_impl.h"

static const struct arch_name scalings[] = {
    { "none", ROPE_SCALING_NONE },
    { "linear", ROPE_SCALING_LINEAR },
    { "yarn", ROPE_SCALING_YARN },
    { NULL, 0 },
};
static const struct arch_name activations[] = {
    { "gelu", MODEL_GELU },
    { "silu", MODEL_SILU },
    { "gelu_tanh", MODEL_GELU_TANH },
    { NULL, 0 },
};

#define SHAPE                                                                  \
    INT("context_length", max_seq_len, 1, 1048576, NULL),                      \
        INT("embedding_length", d_model, 1, 65536, NULL),                      \
        INT("block_count", n_layers, 1, MODEL_LAYERS_MAX, NULL),               \
        INT("feed_forward_length", ffn_width, 1, 1048576, NULL),               \
        INT("attention.head_count", n_heads, 1, 1024, NULL),                   \
        INT("attention.head_count_kv", n_kv_heads, 1, 1024, ""),               \
        INT("vocab_size", vocab_size, 1, 16777216, ""),                        \
        HEAD_DIM("attention.key_length", 1, ""),                               \
        HEAD_DIM("attention.value_length", 1, ""),                             \
        MUST("attention.causal", "[true]", ""),                                \
        MUST("attention.sliding_window", "[0]", ""),                           \
        MUST("attention.scale", "[0]", ""), MUST("expert_count", "[0]", ""),   \
        MUST("expert_used_count", "[0]", ""), NOTHING("tensor_data_layout")
#define ACTIVATION NAME(ARCH_GGUF_ACTIVATION, activation, activations, "")
#define LAYER_NORM                                                             \
    REAL("attention.layer_norm_epsilon", norm_eps, 1e-20, 1, NULL)

static const struct arch_key rotary_keys[] = {
    SHAPE,
    REAL("attention.layer_norm_rms_epsilon", norm_eps, 1e-20, 1, NULL),
    REAL("rope.freq_base", rope_theta, 1, 1e12, "10000"),
    HEAD_DIM("rope.dimension_count", 1, ""),
    NAME("rope.scaling.type", rope_scaling, scalings, "\"none\""),
    REAL("rope.scaling.factor", rope_factor, 1, 1e6, ""),
    INT("rope.scaling.original_context_length", rope_original_len, 0, 1048576,
        ""),
    NOTHING("rope.scaling.finetuned"),
    MUST("rope.scaling.attn_factor", "[1]", ""),
    MUST("rope.scaling.yarn_ext_factor", "[1]", ""),
    MUST("rope.scaling.yarn_attn_factor", "[1]", ""),
    MUST("rope.scaling.yarn_beta_fast", "[32]", ""),
    MUST("rope.scaling.yarn_beta_slow", "[1]", ""),
    REAL(ARCH_GGUF_LLAMA3 "low_freq_factor", rope_low_freq_factor, 0, 1e6, ""),
    REAL(ARCH_GGUF_LLAMA3 "high_freq_factor", rope_high_freq_factor, 0, 1e6,
         ""),
    INT(ARCH_GGUF_LLAMA3 "original_context_length", rope_original_len, 0,
        1048576, ""),
    ACTIVATION,
    { 0 },
};
static const struct arch_key gpt2_keys[] = {
    SHAPE, LAYER_NORM, ACTIVATION, { 0 }
};
static const struct arch_key mpt_keys[] = {
    SHAPE,
    LAYER_NORM,
    REAL("attention.max_alibi_bias", alibi_bias_max, 1e-3, 64, NULL),
    REAL("attention.clamp_kqv", clip_qkv, 0, 1e6, "0"),
    ACTIVATION,
    { 0 },
};

#define ENDS                                                                   \
    T_ONE(WTE, "token_embd.weight"),                                           \
        T_ONE(NORM_F_WEIGHT, "output_norm.weight"),                            \
        T_ONE(NORM_F_BIAS, "output_norm.bias"),                                \
        T_ONE(LM_HEAD, "output.weight")
#define NORMS                                                                  \
    T_ONE(NORM_1_WEIGHT, "attn_norm.weight"),                                  \
        T_ONE(NORM_1_BIAS, "attn_norm.bias"),                                  \
        T_ONE(NORM_2_WEIGHT, "ffn_norm.weight"),                               \
        T_ONE(NORM_2_BIAS, "ffn_norm.bias")
#define OUT                                                                    \
    T_ONE(OUT_WEIGHT, "attn_output.weight"), T_ONE(OUT_BIAS, "attn_output."    \
                                                             "bias")
#define MLP                                                                    \
    T_ONE(UP_WEIGHT, "ffn_up.weight"), T_ONE(UP_BIAS, "ffn_up.bias"),          \
        T_ONE(DOWN_WEIGHT, "ffn_down.weight"),                                 \
        T_ONE(DOWN_BIAS, "ffn_down.bias")
#define GATE                                                                   \
    T_ONE(GATE_WEIGHT, "ffn_gate.weight"), T_ONE(GATE_BIAS, "ffn_gate.bias")
#define QKV                                                                    \
    T_ONE(WQKV_WEIGHT, "attn_qkv.weight"), T_ONE(WQKV_BIAS, "attn_qkv.bias")

/* Matrices of their own for queries, keys and values. */
#define APART(queries, keys)                                                   \
    T_PART(WQKV_WEIGHT, "attn_q.weight", queries),                             \
        T_PART(WQKV_WEIGHT, "attn_k.weight", keys),                            \
        T_PART(WQKV_WEIGHT, "attn_v.weight", VALUES),                          \
        T_PART(WQKV_BIAS, "attn_q.bias", queries),                             \
        T_PART(WQKV_BIAS, "attn_k.bias", keys),                                \
        T_PART(WQKV_BIAS, "attn_v.bias", VALUES)

static const struct arch_tensor llama_tensors[] = {
    ENDS, NORMS, OUT, MLP, GATE, APART(QUERIES_PAIRS, KEYS_PAIRS), { 0 },
};
/* Programs turn halves of a head of this one, as we do. */
static const struct arch_tensor qwen2_tensors[] = {
    ENDS, NORMS, OUT, MLP, GATE, APART(QUERIES, KEYS), { 0 },
};
#define QK_NORM                                                                \
    T_ONE(Q_NORM_WEIGHT, "attn_q_norm.weight"),                                \
        T_ONE(K_NORM_WEIGHT, "attn_k_norm.weight")
static const struct arch_tensor qwen3_tensors[] = {
    ENDS, NORMS, OUT, MLP, GATE, APART(QUERIES, KEYS), QK_NORM, { 0 }
};
static const struct arch_tensor olmo2_tensors[] = {
    ENDS,
    OUT,
    MLP,
    GATE,
    APART(QUERIES, KEYS),
    QK_NORM,
    T_ONE(NORM_1_WEIGHT, "post_attention_norm.weight"),
    T_ONE(NORM_2_WEIGHT, "post_ffw_norm.weight"),
    { 0 }
};
static const struct arch_tensor gpt2_tensors[] = {
    ENDS, NORMS, OUT, MLP, QKV, T_ONE(WPE, "position_embd.weight"), { 0 },
};
static const struct arch_tensor mpt_tensors[] = {
    ENDS, NORMS, OUT, MLP, QKV, { 0 },
};

#define FORM(name, keys, tensors)                                              \
    {                                                                          \
        name, "blk.%d.", keys, tensors                                         \
    }

const struct arch_form arch_gguf_llama =
    FORM("llama", rotary_keys, llama_tensors);
const struct arch_form arch_gguf_qwen2 =
    FORM("qwen2", rotary_keys, qwen2_tensors);
const struct arch_form arch_gguf_qwen3 =
    FORM("qwen3", rotary_keys, qwen3_tensors);
const struct arch_form arch_gguf_olmo2 =
    FORM("olmo2", rotary_keys, olmo2_tensors);
const struct arch_form arch_gguf_gpt2 = FORM("gpt2", gpt2_keys, gpt2_tensors);
const struct arch_form arch_gguf_mpt = FORM("mpt", mpt_keys, mpt_tensors);
