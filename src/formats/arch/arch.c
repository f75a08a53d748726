/* The rows: what each key of config.json means, with the defaults of the
 * library's classes, and which of our parameters each tensor is.
 *
 * An architecture is data. Its keys are a table from names to fields of our
 * configuration, each with its limits and with what is meant where a file
 * leaves it out, which is what the class of transformers takes then. Its
 * tensors are a table from roles of our parameters to names. Both are read in
 * both directions, so a model that can be read can be written. Keys that change
 * nothing of what a model computes are in the tables, too (NOTHING): only so
 * can one that nobody knows be refused. A key whose other values we lack has
 * the values that we have (MUST). */
#include "src/formats/arch/arch.h"

#include "src/base/clean.h"
#include "src/formats/arch/arch_impl.h"

/* The library's names; where several mean the same, the first is written. */
static const struct arch_name activations[] = {
    { "gelu", MODEL_GELU },
    { "silu", MODEL_SILU },
    { "swish", MODEL_SILU },
    { "gelu_new", MODEL_GELU_TANH },
    { "gelu_pytorch_tanh", MODEL_GELU_TANH },
    { "gelu_fast", MODEL_GELU_TANH },
    { NULL, 0 },
};
static const struct arch_name tanh_alone[] = {
    { "gelu_pytorch_tanh", MODEL_GELU_TANH },
    { NULL, 0 },
};
static const struct arch_name scalings[] = {
    { "default", ROPE_SCALING_NONE },
    { "linear", ROPE_SCALING_LINEAR },
    { "llama3", ROPE_SCALING_LLAMA3 },
    { "yarn", ROPE_SCALING_YARN },
    { NULL, 0 },
};

/* How angles are scaled, in an object of old or new files. */
#define SCALING(object)                                                        \
    NAME(object ".rope_type", rope_scaling, scalings, ""),                     \
        REAL(object ".factor", rope_factor, 0, 1e6, ""),                       \
        REAL(object ".low_freq_factor", rope_low_freq_factor, 0, 1e6, ""),     \
        REAL(object ".high_freq_factor", rope_high_freq_factor, 0, 1e6, ""),   \
        INT(object ".original_max_position_embeddings", rope_original_len, 0,  \
            1048576, ""),                                                      \
        REAL(object ".beta_fast", rope_beta_fast, 0, 1e6, ""),                 \
        REAL(object ".beta_slow", rope_beta_slow, 0, 1e6, ""),                 \
        REAL(object ".attention_factor", rope_attention_factor, 0, 1e6, ""),   \
        MUST(object ".truncate", "[true]", "")

/* Both ways of saying how positions turn. */
#define ROPE(theta)                                                            \
    REAL("rope_theta", rope_theta, 1, 1e12, theta),                            \
        REAL("rope_parameters.rope_theta", rope_theta, 1, 1e12, ""),           \
        SCALING("rope_parameters"), SCALING("rope_scaling"),                   \
        NAME("rope_scaling.type", rope_scaling, scalings, "")
/* The same where layers with a window have angles of their own. */
#define ROPE_OWN(theta)                                                        \
    REAL("rope_theta", rope_theta, 1, 1e12, theta), SCALING("rope_scaling"),   \
        NAME("rope_scaling.type", rope_scaling, scalings, ""),                 \
        REAL(FULL_ROPE ".rope_theta", rope_theta, 1, 1e12, ""),                \
        SCALING(FULL_ROPE),                                                    \
        REAL(SLIDING_ROPE ".rope_theta", window_rope_theta, 1, 1e12, ""),      \
        MUST(SLIDING_ROPE ".rope_type", "[\"default\"]", "")
#define FULL_ROPE "rope_parameters.full_attention"
#define SLIDING_ROPE "rope_parameters.sliding_attention"

/* What any file may say. */
#define COMMON                                                                 \
    MUST("pruned_heads", "[{}, null]", ""),                                    \
        MUST("is_encoder_decoder", "[false]", ""),                             \
        MUST("is_decoder", "[false, true]", ""),                               \
        MUST("add_cross_attention", "[false]", ""),                            \
        INT("vocab_size", vocab_size, 1, 16777216, NULL)

/* What Llama's descendants share; kv: heads of keys where the key is absent. */
#define LLAMA(kv, length, eps, theta)                                          \
    LLAMA_BUT_WIDTH(kv, length, eps, theta, "0"),                              \
        INT("intermediate_size", ffn_width, 1, 1048576, NULL)
#define LLAMA_BUT_WIDTH(kv, length, eps, theta, head_dim)                      \
    LLAMA_BUT_ROPE(kv, length, eps, head_dim), ROPE(theta)
#define LLAMA_BUT_ROPE(kv, length, eps, head_dim)                              \
    COMMON, INT("hidden_size", d_model, 1, 65536, NULL),                       \
        INT("num_hidden_layers", n_layers, 1, MODEL_LAYERS_MAX, NULL),         \
        INT("num_attention_heads", n_heads, 1, 1024, NULL),                    \
        INT("num_key_value_heads", n_kv_heads, 0, 1024, kv),                   \
        INT("max_position_embeddings", max_seq_len, 1, 1048576, length),       \
        REAL("rms_norm_eps", norm_eps, 1e-20, 1, eps),                         \
        NAME("hidden_act", activation, activations, "\"silu\""),               \
        DROPOUT("attention_dropout", dropout_attention, "0"),                  \
        BOOL("tie_word_embeddings", tied, "false"),                            \
        HEAD_DIM("head_dim", 0, head_dim)

static const struct arch_key llama_keys[] = {
    LLAMA("0", "2048", "1e-6", "10000"),
    ATTENTION_BIAS("attention_bias"),
    BOOL("mlp_bias", mlp_bias, "false"),
    MUST("partial_rotary_factor", "[1]", ""),
    MUST("rope_interleaved", "[false]", ""),
    NOTHING("pretraining_tp"), /* the same sums in pieces */
    NOTHING("is_llama_config"),
    MUST("sliding_window", "[null]", ""),
    MUST("use_sliding_window", "[false]", ""),
    { 0 },
};

/* A window as long as the context, or none, has no effect. */
static const struct arch_key mistral_keys[] = {
    LLAMA("8", "131072", "1e-6", "10000"),
    WINDOW("sliding_window", "4096"),
    MUST("attention_bias", "[false]", ""),
    MUST("mlp_bias", "[false]", ""),
    { 0 },
};

static const struct arch_key phi3_keys[] = {
    LLAMA("0", "4096", "1e-5", "10000"),
    DROPOUT("embd_pdrop", dropout_embedding, "0"),
    DROPOUT("resid_pdrop", dropout_residual, "0"),
    WINDOW("sliding_window", "null"),
    MUST("partial_rotary_factor", "[1]", ""),
    MUST("attention_bias", "[false]", ""),
    /* of the scalings that its class may have: none of ours */
    NOTHING("original_max_position_embeddings"),
    MUST("rope_scaling.type", "[\"default\"]", ""),
    MUST("rope_scaling.rope_type", "[\"default\"]", ""),
    MUST("rope_parameters.rope_type", "[\"default\"]", ""),
    { 0 },
};

/* sliding_window is not used without use_sliding_window. */
#define QWEN_WINDOW                                                            \
    MUST("use_sliding_window", "[false]", "false"), FULL("layer_types"),       \
        NOTHING("sliding_window"), NOTHING("max_window_layers")

static const struct arch_key qwen2_keys[] = {
    LLAMA("32", "32768", "1e-6", "10000"),
    QWEN_WINDOW,
    MUST("use_mrope", "[false]", ""),
    { 0 },
};

/* Heads are 128 wide where no key says. */
static const struct arch_key qwen3_keys[] = {
    LLAMA_BUT_WIDTH("32", "32768", "1e-6", "10000", "128"),
    INT("intermediate_size", ffn_width, 1, 1048576, NULL),
    QWEN_WINDOW,
    MUST("attention_bias", "[false]", "false"),
    { 0 },
};

static const struct arch_key olmo2_keys[] = {
    LLAMA("0", "2048", "1e-5", "10000"),
    MUST("attention_bias", "[false]", "false"),
    { 0 },
};

static const struct arch_key olmo3_keys[] = {
    LLAMA_BUT_ROPE("0", "2048", "1e-5", "0"),
    ROPE_OWN("10000"),
    INT("intermediate_size", ffn_width, 1, 1048576, NULL),
    WINDOW("sliding_window", "4096"),
    LAYERS("layer_types"),
    MUST("attention_bias", "[false]", "false"),
    { 0 },
};

/* layer_types counts where it is there, else every 6th; models of pictures are
 * another class. */
static const struct arch_key gemma3_keys[] = {
    COMMON,
    INT("hidden_size", d_model, 1, 65536, NULL),
    INT("intermediate_size", ffn_width, 1, 1048576, NULL),
    INT("num_hidden_layers", n_layers, 1, MODEL_LAYERS_MAX, NULL),
    INT("num_attention_heads", n_heads, 1, 1024, NULL),
    INT("num_key_value_heads", n_kv_heads, 1, 1024, "4"),
    HEAD_DIM("head_dim", 1, "256"),
    INT("max_position_embeddings", max_seq_len, 1, 1048576, "131072"),
    REAL("rms_norm_eps", norm_eps, 1e-20, 1, "1e-6"),
    NAME("hidden_activation", activation, tanh_alone, "\"gelu_pytorch_tanh\""),
    MUST("hidden_act", "[\"gelu_pytorch_tanh\"]", ""),
    DROPOUT("attention_dropout", dropout_attention, "0"),
    BOOL("tie_word_embeddings", tied, "true"),
    REAL("rope_local_base_freq", window_rope_theta, 1, 1e12, "10000"),
    ROPE_OWN("1e6"),
    WINDOW("sliding_window", "4096"),
    INT("sliding_window_pattern", window_interval, 1, MODEL_LAYERS_MAX, ""),
    LAYERS("layer_types"),
    QUERY_SCALAR("query_pre_attn_scalar", "256"),
    MUST("attention_bias", "[false]", "false"),
    MUST("attn_logit_softcapping", "[null]", ""),
    MUST("final_logit_softcapping", "[null]", ""),
    MUST("use_bidirectional_attention", "[false, null]", ""),
    NOTHING("_sliding_window_pattern"), /* what layer_types was made of */
    NOTHING("cache_implementation"),
    { 0 },
};

/* no_rope_layers counts where it is there, else every 4th. */
static const struct arch_key smollm3_keys[] = {
    LLAMA("4", "32768", "1e-6", "2000000"),
    QWEN_WINDOW,
    BOOL("tie_word_embeddings", tied, "true"), /* unlike the others */
    INT("no_rope_layer_interval", no_rope_interval, 1, MODEL_LAYERS_MAX, "4"),
    TURNS("no_rope_layers", no_rope_interval),
    MUST("attention_bias", "[false]", "false"),
    MUST("mlp_bias", "[false]", "false"),
    NOTHING("pretraining_tp"),
    { 0 },
};

/* The width of layers without experts is not used: there are none. */
static const struct arch_key qwen3_moe_keys[] = {
    LLAMA_BUT_WIDTH("4", "32768", "1e-6", "10000", "0"),
    QWEN_WINDOW,
    MUST("attention_bias", "[false]", "false"),
    MUST("decoder_sparse_step", "[1]", "1"),
    MUST("mlp_only_layers", "[[], null]", ""),
    NOTHING("intermediate_size"),
    INT("moe_intermediate_size", ffn_width, 1, 1048576, "768"),
    INT("num_experts", experts, 1, 256, "128"),
    INT("num_experts_per_tok", experts_top_k, 1, 16, "8"),
    ONE("norm_topk_prob", router_normalize, "false"),
    BALANCE("router_aux_loss_coef", "0.001"),
    NOTHING("output_router_logits"),
    { 0 },
};

/* Learned positions; n_inner of 0 or null is 4 n_embd. */
static const struct arch_key gpt2_keys[] = {
    COMMON,
    INT("n_embd", d_model, 1, 65536, NULL),
    INT("n_layer", n_layers, 1, MODEL_LAYERS_MAX, NULL),
    INT("n_head", n_heads, 1, 1024, NULL),
    INT("n_inner", ffn_width, 0, 1048576, "0"),
    INT("n_positions", max_seq_len, 1, 1048576, "1024"),
    NOTHING("n_ctx"), /* of old files: n_positions once more */
    REAL("layer_norm_epsilon", norm_eps, 1e-20, 1, "1e-5"),
    DROPOUT("embd_pdrop", dropout_embedding, "0.1"),
    DROPOUT("attn_pdrop", dropout_attention, "0.1"),
    DROPOUT("resid_pdrop", dropout_residual, "0.1"),
    BOOL("tie_word_embeddings", tied, "true"),
    NAME("activation_function", activation, activations, "\"gelu_new\""),
    MUST("scale_attn_weights", "[true]", "true"),
    MUST("scale_attn_by_inverse_layer_idx", "[false]", "false"),
    NOTHING("reorder_and_upcast_attn"), /* rounding alone */
    NOTHING("summary_type"),
    NOTHING("summary_use_proj"),
    NOTHING("summary_activation"),
    NOTHING("summary_proj_to_labels"),
    NOTHING("summary_first_dropout"),
    { 0 },
};

/* The library's own class has neither another width of the MLP nor biases nor
 * norms of queries and keys nor other slopes, whatever its file says. */
static const struct arch_key mpt_keys[] = {
    COMMON,
    INT("d_model", d_model, 1, 65536, NULL),
    INT("n_layers", n_layers, 1, MODEL_LAYERS_MAX, NULL),
    INT("n_heads", n_heads, 1, 1024, NULL),
    INT("max_seq_len", max_seq_len, 1, 1048576, "2048"),
    REAL("layer_norm_epsilon", norm_eps, 1e-20, 1, "1e-5"),
    DROPOUT("emb_pdrop", dropout_embedding, "0"),
    DROPOUT("resid_pdrop", dropout_residual, "0"),
    WHOLE("attn_config.attn_pdrop", dropout_attention, 0, 0.99, "0"),
    CLIP("attn_config.clip_qkv", clip_qkv, 1e6),
    MUST("attn_config.alibi_bias_max", "[8]", "8"), /* the class has 8 */
    BOOL("tie_word_embeddings", tied, "true"),
    MUST("attn_config.alibi", "[true]", "true"),
    MUST("attn_config.attn_type", "[\"multihead_attention\"]", ""),
    MUST("attn_config.softmax_scale", "[null]", "null"),
    MUST("attn_config.prefix_lm", "[false]", "false"),
    MUST("attn_config.qk_ln", "[false]", "false"),
    NOTHING("attn_config.attn_impl"),
    NOTHING("attn_config.attn_uses_sequence_id"), /* of packed batches */
    NOTHING("attn_config.model_type"),
    MUST("expansion_ratio", "[4]", "4"),
    MUST("no_bias", "[true]", "true"),
    MUST("logit_scale", "[null]", "null"),
    MUST("embedding_fraction", "[1.0]", "1"), /* 1: no effect */
    MUST("norm_type", "[\"low_precision_layernorm\", \"layernorm\"]",
         "\"layernorm\""),
    NOTHING("learned_pos_emb"), /* none beside ALiBi */
    NOTHING("init_device"),
    NOTHING("init_config"),
    NOTHING("verbose"),
    { 0 },
};

static const struct arch_key mixtral_keys[] = {
    LLAMA("8", "131072", "1e-5", "1e6"),
    INT("num_local_experts", experts, 1, 256, "8"),
    INT("num_experts_per_tok", experts_top_k, 1, 16, "2"),
    REAL("router_jitter_noise", router_jitter, 0, 0.99, "0"),
    WINDOW("sliding_window", "null"),
    BALANCE("router_aux_loss_coef", "0.001"),
    NOTHING("output_router_logits"),
    { 0 },
};

static const struct arch_key dbrx_keys[] = {
    COMMON,
    INT("d_model", d_model, 1, 65536, NULL),
    INT("n_layers", n_layers, 1, MODEL_LAYERS_MAX, NULL),
    INT("n_heads", n_heads, 1, 1024, NULL),
    INT("max_seq_len", max_seq_len, 1, 1048576, "2048"),
    DROPOUT("emb_pdrop", dropout_embedding, "0"),
    DROPOUT("resid_pdrop", dropout_residual, "0"),
    DROPOUT("attn_config.attn_pdrop", dropout_attention, "0"),
    CLIP("attn_config.clip_qkv", clip_qkv, 1e6),
    INT("attn_config.kv_n_heads", n_kv_heads, 1, 1024, "1"),
    REAL("attn_config.rope_theta", rope_theta, 1, 1e12, "10000"),
    REAL("rope_parameters.rope_theta", rope_theta, 1, 1e12, ""),
    MUST("rope_parameters.rope_type", "[\"default\"]", ""),
    NOTHING("attn_config.model_type"),
    INT("ffn_config.ffn_hidden_size", ffn_width, 1, 1048576, "3584"),
    INT("ffn_config.moe_num_experts", experts, 1, 256, "4"),
    INT("ffn_config.moe_top_k", experts_top_k, 1, 16, "1"),
    CLIP("ffn_config.moe_jitter_eps", router_jitter, 0.99),
    REAL("ffn_config.moe_normalize_expert_weights", router_normalize, 0, 64,
         "1"),
    MUST("ffn_config.ffn_act_fn", "[{\"name\": \"silu\"}]",
         "{\"name\": \"silu\"}"),
    REAL("ffn_config.moe_loss_weight", balance_weight, 0, 1e3, "0.01"),
    NOTHING("ffn_config.moe_uniform_expert_assignment"),
    NOTHING("ffn_config.hidden_size"), /* d_model once more */
    NOTHING("ffn_config.model_type"),
    NOTHING("output_router_logits"),
    NOTHING("router_aux_loss_coef"), /* moe_loss_weight once more */
    NOTHING("num_key_value_heads"),  /* kv_n_heads once more */
    BOOL("tie_word_embeddings", tied, "false"),
    { 0 },
};

#define LLAMA_SHAPE                                                            \
    .positions = POSITIONS_ROPE, .norm = MODEL_NORM_RMSNORM, .ffn = FFN_GLU,   \
    .activation = MODEL_SILU, .prefix = "model.",                              \
    .buffers = "?*.self_attn.rotary_emb.inv_freq"
#define LLAMA_LIKE(title_, type, class, keys_, tensors_)                       \
    .title = title_, .model_type = type, LLAMA_SHAPE,                          \
    .hf = { class, "model.layers.%d.", keys_##_keys, arch_tensors_##tensors_ }
#define FORM(name, layers, arch)                                               \
    {                                                                          \
        name, layers, arch##_keys, arch_tensors_##arch                         \
    }

const struct arch_row arch_rows[ARCHS] = {
    [ARCH_LLAMA] = { LLAMA_LIKE("Llama", "llama", "LlamaForCausalLM", llama,
                                llama),
                     .gguf = &arch_gguf_llama },
    [ARCH_MISTRAL] = { LLAMA_LIKE("Mistral", "mistral", "MistralForCausalLM",
                                  mistral, mistral),
                       .gguf = &arch_gguf_llama },
    [ARCH_PHI3] = { LLAMA_LIKE("Phi-3", "phi3", "Phi3ForCausalLM", phi3, phi3),
                    .alias = true },
    [ARCH_QWEN2] = { LLAMA_LIKE("Qwen2", "qwen2", "Qwen2ForCausalLM", qwen2,
                                qwen2),
                     .qkv_bias = true, .gguf = &arch_gguf_qwen2 },
    [ARCH_QWEN3] = { LLAMA_LIKE("Qwen3", "qwen3", "Qwen3ForCausalLM", qwen3,
                                qwen3),
                     .qk_norm = QK_NORM_HEAD, .gguf = &arch_gguf_qwen3 },
    [ARCH_OLMO2] = { LLAMA_LIKE("OLMo 2", "olmo2", "Olmo2ForCausalLM", olmo2,
                                olmo2),
                     .qk_norm = QK_NORM_FULL, .norm_place = NORM_AFTER,
                     .gguf = &arch_gguf_olmo2 },
    [ARCH_OLMO3] = { LLAMA_LIKE("OLMo 3", "olmo3", "Olmo3ForCausalLM", olmo3,
                                olmo2),
                     .qk_norm = QK_NORM_FULL, .norm_place = NORM_AFTER,
                     .window_interval = 4, .plain_windows = true },
    [ARCH_GEMMA3] = { LLAMA_LIKE("Gemma 3", "gemma3_text", "Gemma3ForCausalLM",
                                 gemma3, gemma3),
                      .qk_norm = QK_NORM_HEAD, .norm_place = NORM_AROUND,
                      .norm_plus_one = true, .root_embedding = true,
                      .window_interval = 6 },
    [ARCH_SMOLLM3] = { LLAMA_LIKE("SmolLM3", "smollm3", "SmolLM3ForCausalLM",
                                  smollm3, mistral) },
    [ARCH_GPT2] = { .title = "GPT-2",
                    .model_type = "gpt2",
                    .positions = POSITIONS_LEARNED,
                    .norm = MODEL_NORM_LAYERNORM,
                    .ffn = FFN_MLP,
                    .activation = MODEL_GELU_TANH,
                    .bias = true,
                    .hf = FORM("GPT2LMHeadModel", "transformer.h.%d.", gpt2),
                    .gguf = &arch_gguf_gpt2,
                    .prefix = "transformer.",
                    .buffers = "?*.attn.bias ?*.attn.masked_bias" },
    [ARCH_MPT] = { .title = "MPT",
                   .model_type = "mpt",
                   .also = "MPTForCausalLM",
                   .positions = POSITIONS_ALIBI,
                   .norm = MODEL_NORM_LAYERNORM,
                   .ffn = FFN_MLP,
                   .activation = MODEL_GELU,
                   .hf = FORM("MptForCausalLM", "transformer.blocks.%d.", mpt),
                   .gguf = &arch_gguf_mpt,
                   .prefix = "transformer." },
    [ARCH_MIXTRAL] = { LLAMA_LIKE("Mixtral", "mixtral", "MixtralForCausalLM",
                                  mixtral, mixtral),
                       .router_normalize = 1 },
    [ARCH_QWEN3_MOE] = { LLAMA_LIKE("Qwen3-MoE", "qwen3_moe",
                                    "Qwen3MoeForCausalLM", qwen3_moe,
                                    qwen3_moe),
                         .qk_norm = QK_NORM_HEAD },
    [ARCH_DBRX] = { .title = "DBRX",
                    .model_type = "dbrx",
                    .positions = POSITIONS_ROPE,
                    .norm = MODEL_NORM_LAYERNORM,
                    .ffn = FFN_GLU,
                    .activation = MODEL_SILU,
                    .hf =
                        FORM("DbrxForCausalLM", "transformer.blocks.%d.", dbrx),
                    .prefix = "transformer.",
                    .buffers = "?*.rotary_emb.inv_freq" },
};

const char *arch_titles(bool gguf, char out[ARCH_TITLES_BYTES])
{
    out[0] = '\0';
    for (int i = 0; i < ARCHS; i++)
        if (!gguf || arch_rows[i].gguf != NULL)
            clean_join(out, ARCH_TITLES_BYTES, ", ", "%s", arch_rows[i].title);
    return out;
}
