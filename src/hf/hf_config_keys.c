/* The tables: what each key of each architecture's config.json means, with the
 * defaults of the library's classes. */
#include "src/hf/hf_config_impl.h"

#define AT(field) offsetof(struct hf_values, model.field)
#define INT(key, field, low, high, otherwise)                                  \
    {                                                                          \
        key, HF_INT, AT(field), otherwise, low, high, NULL                     \
    }
#define REAL(key, field, low, high, otherwise)                                 \
    {                                                                          \
        key, HF_REAL, AT(field), otherwise, low, high, NULL                    \
    }
#define WHOLE(key, field, low, high, otherwise)                                \
    {                                                                          \
        key, HF_WHOLE, AT(field), otherwise, low, high, NULL                   \
    }
#define CLIP(key)                                                              \
    {                                                                          \
        key, HF_CLIP, AT(clip_qkv), "0", 0, 1e6, NULL                          \
    }
#define BOOL(key, field, otherwise)                                            \
    {                                                                          \
        key, HF_BOOL, AT(field), otherwise, 0, 1, NULL                         \
    }
#define MUST(key, values, otherwise)                                           \
    {                                                                          \
        key, HF_MUST, 0, otherwise, 0, 0, values                               \
    }
#define FULL(key)                                                              \
    {                                                                          \
        key, HF_FULL, 0, "", 0, 0, NULL                                        \
    }
#define NOTHING(key)                                                           \
    {                                                                          \
        key, HF_NOTHING, 0, "", 0, 0, NULL                                     \
    }
#define DROPOUT(key, field, otherwise) REAL(key, field, 0, 0.99, otherwise)
#define VOCABULARY INT("vocab_size", vocab_size, 1, 16777216, NULL)
#define END                                                                    \
    {                                                                          \
        NULL, HF_NOTHING, 0, NULL, 0, 0, NULL                                  \
    }

const struct hf_key hf_config_common[] = {
    NOTHING("architectures"),
    NOTHING("model_type"),
    NOTHING("torch_dtype"),
    NOTHING("dtype"),
    NOTHING("transformers_version"),
    NOTHING("_name_or_path"),
    NOTHING("auto_map"),
    NOTHING("bos_token_id"),
    NOTHING("eos_token_id"),
    NOTHING("pad_token_id"),
    NOTHING("unk_token_id"),
    NOTHING("tokenizer_class"),
    NOTHING("tokenizer_name"),
    NOTHING("use_cache"),
    NOTHING("initializer_range"),
    NOTHING("_attn_implementation_autoset"),
    NOTHING("output_attentions"),
    NOTHING("output_hidden_states"),
    NOTHING("return_dict"),
    NOTHING("id2label"),
    NOTHING("label2id"),
    NOTHING("problem_type"),
    NOTHING("chunk_size_feed_forward"),
    NOTHING("task_specific_params"),
    NOTHING("transformers.js_config"),
    MUST("is_encoder_decoder", "[false]", ""),
    MUST("is_decoder", "[false, true]", ""),
    MUST("add_cross_attention", "[false]", ""),
    END,
};

/* Both ways of saying how positions turn. */
#define ROPE(theta)                                                            \
    REAL("rope_theta", rope_theta, 1, 1e12, theta),                            \
        REAL("rope_parameters.rope_theta", rope_theta, 1, 1e12, ""),           \
        MUST("rope_parameters.rope_type", "[\"default\"]", ""),                \
        MUST("rope_scaling.rope_type", "[\"default\"]", ""),                   \
        MUST("rope_scaling.type", "[\"default\"]", "")

/* What Llama's descendants share; kv: heads of keys where the key is absent. */
#define LLAMA(kv, length, eps, theta)                                          \
    VOCABULARY, INT("hidden_size", d_model, 1, 65536, NULL),                   \
        INT("intermediate_size", ffn_width, 1, 1048576, NULL),                 \
        INT("num_hidden_layers", n_layers, 1, MODEL_LAYERS_MAX, NULL),         \
        INT("num_attention_heads", n_heads, 1, 1024, NULL),                    \
        INT("num_key_value_heads", n_kv_heads, 0, 1024, kv),                   \
        INT("max_position_embeddings", max_seq_len, 1, 1048576, length),       \
        REAL("rms_norm_eps", norm_eps, 1e-20, 1, eps), ROPE(theta),            \
        MUST("hidden_act", "[\"silu\"]", "\"silu\""),                          \
        DROPOUT("attention_dropout", dropout_attention, "0"),                  \
        BOOL("tie_word_embeddings", tied, "false"),                            \
    {                                                                          \
        "head_dim", HF_INT, offsetof(struct hf_values, head_dim), "0", 0,      \
            65536, NULL                                                        \
    }

static const struct hf_key llama[] = {
    LLAMA("0", "2048", "1e-6", "10000"),
    MUST("attention_bias", "[false]", "false"),
    MUST("mlp_bias", "[false]", "false"),
    MUST("partial_rotary_factor", "[1]", ""),
    MUST("rope_interleaved", "[false]", ""),
    NOTHING("pretraining_tp"), /* the same sums in pieces */
    NOTHING("is_llama_config"),
    END,
};

static const struct hf_key mistral[] = {
    LLAMA("8", "131072", "1e-6", "10000"),
    MUST("sliding_window", "[null]", "4096"),
    END,
};

static const struct hf_key qwen2[] = {
    LLAMA("32", "32768", "1e-6", "10000"),
    MUST("use_sliding_window", "[false]", "false"),
    FULL("layer_types"),
    NOTHING("sliding_window"), /* not used without use_sliding_window */
    NOTHING("max_window_layers"),
    MUST("use_mrope", "[false]", ""),
    END,
};

static const struct hf_key gpt2[] = {
    VOCABULARY,
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
    MUST("activation_function", "[\"gelu\"]", "\"gelu_new\""),
    MUST("scale_attn_weights", "[true]", "true"),
    MUST("scale_attn_by_inverse_layer_idx", "[false]", "false"),
    NOTHING("reorder_and_upcast_attn"), /* rounding alone */
    NOTHING("summary_type"),
    NOTHING("summary_use_proj"),
    NOTHING("summary_activation"),
    NOTHING("summary_proj_to_labels"),
    NOTHING("summary_first_dropout"),
    END,
};

/* The library's own class has neither another width of the MLP nor biases nor
 * norms of queries and keys, whatever its file says. */
static const struct hf_key mpt[] = {
    VOCABULARY,
    INT("d_model", d_model, 1, 65536, NULL),
    INT("n_layers", n_layers, 1, MODEL_LAYERS_MAX, NULL),
    INT("n_heads", n_heads, 1, 1024, NULL),
    INT("max_seq_len", max_seq_len, 1, 1048576, "2048"),
    REAL("layer_norm_epsilon", norm_eps, 1e-20, 1, "1e-5"),
    DROPOUT("emb_pdrop", dropout_embedding, "0"),
    DROPOUT("resid_pdrop", dropout_residual, "0"),
    WHOLE("attn_config.attn_pdrop", dropout_attention, 0, 0.99, "0"),
    CLIP("attn_config.clip_qkv"),
    WHOLE("attn_config.alibi_bias_max", alibi_bias_max, 0, 64, "8"),
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
    END,
};

static const struct hf_key mixtral[] = {
    LLAMA("8", "131072", "1e-5", "1e6"),
    INT("num_local_experts", experts, 1, 256, "8"),
    INT("num_experts_per_tok", experts_top_k, 1, 16, "2"),
    REAL("router_jitter_noise", router_jitter, 0, 0.99, "0"),
    MUST("sliding_window", "[null]", "null"),
    NOTHING("router_aux_loss_coef"), /* of training */
    NOTHING("output_router_logits"),
    END,
};

static const struct hf_key dbrx[] = {
    VOCABULARY,
    INT("d_model", d_model, 1, 65536, NULL),
    INT("n_layers", n_layers, 1, MODEL_LAYERS_MAX, NULL),
    INT("n_heads", n_heads, 1, 1024, NULL),
    INT("max_seq_len", max_seq_len, 1, 1048576, "2048"),
    DROPOUT("emb_pdrop", dropout_embedding, "0"),
    DROPOUT("resid_pdrop", dropout_residual, "0"),
    DROPOUT("attn_config.attn_pdrop", dropout_attention, "0"),
    CLIP("attn_config.clip_qkv"),
    INT("attn_config.kv_n_heads", n_kv_heads, 1, 1024, "1"),
    REAL("attn_config.rope_theta", rope_theta, 1, 1e12, "10000"),
    REAL("rope_parameters.rope_theta", rope_theta, 1, 1e12, ""),
    MUST("rope_parameters.rope_type", "[\"default\"]", ""),
    NOTHING("attn_config.model_type"),
    INT("ffn_config.ffn_hidden_size", ffn_width, 1, 1048576, "3584"),
    INT("ffn_config.moe_num_experts", experts, 1, 256, "4"),
    INT("ffn_config.moe_top_k", experts_top_k, 1, 16, "1"),
    { "ffn_config.moe_jitter_eps", HF_CLIP, AT(router_jitter), "0", 0, 0.99,
      NULL },
    REAL("ffn_config.moe_normalize_expert_weights", router_normalize, 0, 64,
         "1"),
    MUST("ffn_config.ffn_act_fn", "[{\"name\": \"silu\"}]",
         "{\"name\": \"silu\"}"),
    NOTHING("ffn_config.moe_loss_weight"), /* of training */
    NOTHING("ffn_config.moe_uniform_expert_assignment"),
    NOTHING("ffn_config.hidden_size"), /* d_model once more */
    NOTHING("ffn_config.model_type"),
    NOTHING("output_router_logits"),
    NOTHING("router_aux_loss_coef"),
    NOTHING("num_key_value_heads"), /* kv_n_heads once more */
    BOOL("tie_word_embeddings", tied, "false"),
    END,
};

#define LLAMA_SHAPE                                                            \
    .positions = POSITIONS_ROPE, .norm = MODEL_NORM_RMSNORM, .ffn = FFN_GLU,   \
    .activation = MODEL_SILU

const struct hf_arch_row hf_config_archs[HF_ARCHS] = {
    [HF_LLAMA] = { .name = "LlamaForCausalLM",
                   .model_type = "llama",
                   LLAMA_SHAPE,
                   .keys = llama },
    [HF_MISTRAL] = { .name = "MistralForCausalLM",
                     .model_type = "mistral",
                     LLAMA_SHAPE,
                     .keys = mistral },
    [HF_QWEN2] = { .name = "Qwen2ForCausalLM",
                   .model_type = "qwen2",
                   .lacks = "biases of queries, keys and values alone",
                   LLAMA_SHAPE,
                   .keys = qwen2 },
    [HF_GPT2] = { .name = "GPT2LMHeadModel",
                  .model_type = "gpt2",
                  .positions = POSITIONS_LEARNED,
                  .norm = MODEL_NORM_LAYERNORM,
                  .ffn = FFN_MLP,
                  .activation = MODEL_GELU,
                  .bias = true,
                  .keys = gpt2 },
    [HF_MPT] = { .name = "MptForCausalLM",
                 .model_type = "mpt",
                 .also = "MPTForCausalLM",
                 .positions = POSITIONS_ALIBI,
                 .norm = MODEL_NORM_LAYERNORM,
                 .ffn = FFN_MLP,
                 .activation = MODEL_GELU,
                 .keys = mpt },
    [HF_MIXTRAL] = { .name = "MixtralForCausalLM",
                     .model_type = "mixtral",
                     LLAMA_SHAPE,
                     .router_normalize = 1,
                     .keys = mixtral },
    [HF_DBRX] = { .name = "DbrxForCausalLM",
                  .model_type = "dbrx",
                  .positions = POSITIONS_ROPE,
                  .norm = MODEL_NORM_LAYERNORM,
                  .ffn = FFN_GLU,
                  .activation = MODEL_SILU,
                  .keys = dbrx },
};
