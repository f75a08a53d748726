/* One row for each tensor of each architecture of GGUF files. */
#include "src/formats/gguf/gguf_names.h"

#include "src/formats/hf/hf_names_impl.h"

#define ENDS                                                                   \
    HF_NAMES_ONE(WTE, "token_embd.weight"),                                    \
        HF_NAMES_ONE(NORM_F_WEIGHT, "output_norm.weight"),                     \
        HF_NAMES_ONE(NORM_F_BIAS, "output_norm.bias"),                         \
        HF_NAMES_ONE(LM_HEAD, GGUF_NAMES_HEAD)
#define NORMS                                                                  \
    HF_NAMES_ONE(NORM_1_WEIGHT, "attn_norm.weight"),                           \
        HF_NAMES_ONE(NORM_1_BIAS, "attn_norm.bias"),                           \
        HF_NAMES_ONE(NORM_2_WEIGHT, "ffn_norm.weight"),                        \
        HF_NAMES_ONE(NORM_2_BIAS, "ffn_norm.bias")
#define OUT                                                                    \
    HF_NAMES_ONE(OUT_WEIGHT, "attn_output.weight"),                            \
        HF_NAMES_ONE(OUT_BIAS, "attn_output.bias")
#define MLP                                                                    \
    HF_NAMES_ONE(UP_WEIGHT, "ffn_up.weight"),                                  \
        HF_NAMES_ONE(UP_BIAS, "ffn_up.bias"),                                  \
        HF_NAMES_ONE(DOWN_WEIGHT, "ffn_down.weight"),                          \
        HF_NAMES_ONE(DOWN_BIAS, "ffn_down.bias")
#define GATE                                                                   \
    HF_NAMES_ONE(GATE_WEIGHT, "ffn_gate.weight"),                              \
        HF_NAMES_ONE(GATE_BIAS, "ffn_gate.bias")
#define QKV                                                                    \
    HF_NAMES_ONE(WQKV_WEIGHT, "attn_qkv.weight"),                              \
        HF_NAMES_ONE(WQKV_BIAS, "attn_qkv.bias")

/* Matrices of their own for queries, keys and values. */
#define APART(queries, keys)                                                   \
    HF_NAMES_PART(WQKV_WEIGHT, "attn_q.weight", queries),                      \
        HF_NAMES_PART(WQKV_WEIGHT, "attn_k.weight", keys),                     \
        HF_NAMES_PART(WQKV_WEIGHT, "attn_v.weight", VALUES),                   \
        HF_NAMES_PART(WQKV_BIAS, "attn_q.bias", queries),                      \
        HF_NAMES_PART(WQKV_BIAS, "attn_k.bias", keys),                         \
        HF_NAMES_PART(WQKV_BIAS, "attn_v.bias", VALUES)

static const struct hf_names_row llama[] = {
    ENDS, NORMS, OUT, MLP, GATE, APART(QUERIES_PAIRS, KEYS_PAIRS), HF_NAMES_END,
};
/* Programs turn halves of a head of this one, as we do. */
static const struct hf_names_row qwen2[] = {
    ENDS, NORMS, OUT, MLP, GATE, APART(QUERIES, KEYS), HF_NAMES_END,
};
static const struct hf_names_row gpt2[] = {
    ENDS,         NORMS, OUT,
    MLP,          QKV,   HF_NAMES_ONE(WPE, "position_embd.weight"),
    HF_NAMES_END,
};
static const struct hf_names_row mpt[] = {
    ENDS, NORMS, OUT, MLP, QKV, HF_NAMES_END,
};

enum err gguf_names_create(enum gguf_arch arch,
                           const struct model_config *model,
                           const struct params *params, int64_t vocab,
                           struct hf_names **out)
{
    static const struct hf_names_row *const rows[GGUF_ARCHS] = {
        [GGUF_LLAMA] = llama,
        [GGUF_QWEN2] = qwen2,
        [GGUF_GPT2] = gpt2,
        [GGUF_MPT] = mpt,
    };
    const struct hf_names_table table = { gguf_config_arch_name(arch),
                                          "blk.%d.", rows[arch] };
    return hf_names_make(&table, model, params, vocab, out);
}
