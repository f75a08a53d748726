/* The tables: what each key of each architecture's config.json means, with the
 * defaults of the library's classes. */
#include "src/formats/hf/hf_config_impl.h"

#define AT(field) offsetof(struct hf_values, model.field)
#define NUMBER(key, kind_, field, low, high, otherwise)                        \
    {                                                                          \
        .name = (key), .kind = (kind_), .offset = AT(field),                   \
        .absent = (otherwise), .min = (low), .max = (high)                     \
    }
#define INT(key, field, low, high, otherwise)                                  \
    NUMBER(key, HF_INT, field, low, high, otherwise)
#define REAL(key, field, low, high, otherwise)                                 \
    NUMBER(key, HF_REAL, field, low, high, otherwise)
#define WHOLE(key, field, low, high, otherwise)                                \
    NUMBER(key, HF_WHOLE, field, low, high, otherwise)
#define CLIP(key, field, high) NUMBER(key, HF_CLIP, field, 0, high, "0")
/* Fields of struct hf_values. */
#define HEAD_DIM                                                               \
    {                                                                          \
        .name = "head_dim", .kind = HF_INT,                                    \
        .offset = offsetof(struct hf_values, head_dim), .absent = "0",         \
        .max = 65536                                                           \
    }
/* The library adds up a token's choices, as if each were all of them. */
#define BALANCE(key, otherwise)                                                \
    {                                                                          \
        .name = (key), .kind = HF_REAL,                                        \
        .offset = offsetof(struct hf_values, balance), .absent = (otherwise),  \
        .max = 1e3                                                             \
    }
#define WINDOW(otherwise)                                                      \
    {                                                                          \
        .name = "sliding_window", .kind = HF_LENGTH,                           \
        .offset = offsetof(struct hf_values, window), .absent = (otherwise),   \
        .max = 1e12                                                            \
    }
#define ATTENTION_BIAS                                                         \
    {                                                                          \
        .name = "attention_bias", .kind = HF_BOOL,                             \
        .offset = offsetof(struct hf_values, attention_bias),                  \
        .absent = "false"                                                      \
    }
#define BOOL(key, field, otherwise)                                            \
    {                                                                          \
        .name = (key), .kind = HF_BOOL, .offset = AT(field),                   \
        .absent = (otherwise)                                                  \
    }
#define NAME(key, field, names_, otherwise)                                    \
    {                                                                          \
        .name = (key), .kind = HF_NAME, .offset = AT(field),                   \
        .absent = (otherwise), .names = (names_)                               \
    }
#define MUST(key, values, otherwise)                                           \
    {                                                                          \
        .name = (key), .kind = HF_MUST, .absent = (otherwise),                 \
        .allowed = (values)                                                    \
    }
#define FULL(key)                                                              \
    {                                                                          \
        .name = (key), .kind = HF_FULL, .absent = ""                           \
    }
#define NOTHING(key)                                                           \
    {                                                                          \
        .name = (key), .kind = HF_NOTHING, .absent = ""                        \
    }
#define DROPOUT(key, field, otherwise) REAL(key, field, 0, 0.99, otherwise)
#define VOCABULARY INT("vocab_size", vocab_size, 1, 16777216, NULL)
#define END                                                                    \
    {                                                                          \
        .name = NULL                                                           \
    }

/* The library's names; where several mean the same, the first is written. */
static const struct hf_name activations[] = {
    { "gelu", MODEL_GELU },
    { "silu", MODEL_SILU },
    { "swish", MODEL_SILU },
    { "gelu_new", MODEL_GELU_TANH },
    { "gelu_pytorch_tanh", MODEL_GELU_TANH },
    { "gelu_fast", MODEL_GELU_TANH },
    { NULL, 0 },
};
static const struct hf_name scalings[] = {
    { "default", ROPE_SCALING_NONE },
    { "linear", ROPE_SCALING_LINEAR },
    { "llama3", ROPE_SCALING_LLAMA3 },
    { NULL, 0 },
};

const struct hf_key hf_config_common[] = {
    NOTHING("architectures"),
    NOTHING("model_type"),
    NOTHING("torch_dtype"),
    NOTHING("dtype"),
    NOTHING("transformers_version"),
    NOTHING("_name_or_path"),
    NOTHING("_model_name_or_path"), /* of models out of GGUF files */
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
    /* how it is run, by whom it was tuned, and texts are made */
    NOTHING("attn_implementation"),
    NOTHING("_attn_implementation"),
    NOTHING("_attn_implementation_internal"),
    NOTHING("_flash_attn_2_enabled"),
    NOTHING("use_flash_attn"),
    NOTHING("use_flash_attention"),
    NOTHING("use_flash_attention_2"),
    NOTHING("unsloth_version"),
    NOTHING("unsloth_fixed"),
    NOTHING("max_sequence_length"),
    NOTHING("model_max_length"),
    NOTHING("tokenizer_model_max_length"),
    NOTHING("tokenizer_padding_side"),
    NOTHING("gradient_checkpointing"),
    NOTHING("use_gradient_checkpointing"),
    NOTHING("finetuning_task"),
    NOTHING("torchscript"),
    NOTHING("use_bfloat16"),
    NOTHING("tf_legacy_loss"),
    NOTHING("tie_encoder_decoder"),
    NOTHING("cross_attention_hidden_size"),
    NOTHING("decoder_start_token_id"),
    NOTHING("sep_token_id"),
    NOTHING("prefix"),
    NOTHING("remove_invalid_values"),
    NOTHING("use_return_dict"),
    NOTHING("output_scores"),
    NOTHING("return_dict_in_generate"),
    NOTHING("bad_words_ids"),
    NOTHING("begin_suppress_tokens"),
    NOTHING("diversity_penalty"),
    NOTHING("do_sample"),
    NOTHING("early_stopping"),
    NOTHING("encoder_no_repeat_ngram_size"),
    NOTHING("exponential_decay_length_penalty"),
    NOTHING("forced_bos_token_id"),
    NOTHING("forced_eos_token_id"),
    NOTHING("length_penalty"),
    NOTHING("max_length"),
    NOTHING("max_new_tokens"),
    NOTHING("min_length"),
    NOTHING("no_repeat_ngram_size"),
    NOTHING("num_beam_groups"),
    NOTHING("num_beams"),
    NOTHING("num_return_sequences"),
    NOTHING("repetition_penalty"),
    NOTHING("suppress_tokens"),
    NOTHING("temperature"),
    NOTHING("top_k"),
    NOTHING("top_p"),
    NOTHING("typical_p"),
    MUST("pruned_heads", "[{}, null]", ""),
    MUST("is_encoder_decoder", "[false]", ""),
    MUST("is_decoder", "[false, true]", ""),
    MUST("add_cross_attention", "[false]", ""),
    END,
};

/* How angles are scaled, in an object of old or new files. */
#define SCALING(object)                                                        \
    NAME(object ".rope_type", rope_scaling, scalings, ""),                     \
        REAL(object ".factor", rope_factor, 0, 1e6, ""),                       \
        REAL(object ".low_freq_factor", rope_low_freq_factor, 0, 1e6, ""),     \
        REAL(object ".high_freq_factor", rope_high_freq_factor, 0, 1e6, ""),   \
        INT(object ".original_max_position_embeddings", rope_original_len, 0,  \
            1048576, "")

/* Both ways of saying how positions turn. */
#define ROPE(theta)                                                            \
    REAL("rope_theta", rope_theta, 1, 1e12, theta),                            \
        REAL("rope_parameters.rope_theta", rope_theta, 1, 1e12, ""),           \
        SCALING("rope_parameters"), SCALING("rope_scaling"),                   \
        NAME("rope_scaling.type", rope_scaling, scalings, "")

/* What Llama's descendants share; kv: heads of keys where the key is absent. */
#define LLAMA(kv, length, eps, theta)                                          \
    VOCABULARY, INT("hidden_size", d_model, 1, 65536, NULL),                   \
        INT("intermediate_size", ffn_width, 1, 1048576, NULL),                 \
        INT("num_hidden_layers", n_layers, 1, MODEL_LAYERS_MAX, NULL),         \
        INT("num_attention_heads", n_heads, 1, 1024, NULL),                    \
        INT("num_key_value_heads", n_kv_heads, 0, 1024, kv),                   \
        INT("max_position_embeddings", max_seq_len, 1, 1048576, length),       \
        REAL("rms_norm_eps", norm_eps, 1e-20, 1, eps), ROPE(theta),            \
        NAME("hidden_act", activation, activations, "\"silu\""),               \
        DROPOUT("attention_dropout", dropout_attention, "0"),                  \
        BOOL("tie_word_embeddings", tied, "false"), HEAD_DIM

static const struct hf_key llama[] = {
    LLAMA("0", "2048", "1e-6", "10000"),
    ATTENTION_BIAS,
    BOOL("mlp_bias", mlp_bias, "false"),
    MUST("partial_rotary_factor", "[1]", ""),
    MUST("rope_interleaved", "[false]", ""),
    NOTHING("pretraining_tp"), /* the same sums in pieces */
    NOTHING("is_llama_config"),
    MUST("sliding_window", "[null]", ""),
    MUST("use_sliding_window", "[false]", ""),
    END,
};

static const struct hf_key mistral[] = {
    LLAMA("8", "131072", "1e-6", "10000"),
    WINDOW("4096"),
    MUST("attention_bias", "[false]", ""),
    MUST("mlp_bias", "[false]", ""),
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
    NAME("activation_function", activation, activations, "\"gelu_new\""),
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
 * norms of queries and keys nor other slopes, whatever its file says. */
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
    END,
};

static const struct hf_key mixtral[] = {
    LLAMA("8", "131072", "1e-5", "1e6"),
    INT("num_local_experts", experts, 1, 256, "8"),
    INT("num_experts_per_tok", experts_top_k, 1, 16, "2"),
    REAL("router_jitter_noise", router_jitter, 0, 0.99, "0"),
    WINDOW("null"),
    BALANCE("router_aux_loss_coef", "0.001"),
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
                   LLAMA_SHAPE,
                   .qkv_bias = true,
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
