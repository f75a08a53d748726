/* config.json of models as they were released, their figures written down
 * again: read into the shape with the published number of parameters, written
 * and read once more; or refused with the option that we lack. */
#include "src/formats/hf/hf_config.h"

#include "tests/tap.h"

/* What does not change what is computed, and is in every file. */
#define COMMON                                                                 \
    "'torch_dtype': 'bfloat16', 'transformers_version': '4.42.0', "            \
    "'initializer_range': 0.02, 'use_cache': true, 'bos_token_id': 1, "        \
    "'eos_token_id': 2, "
#define LLAMA_BIASES                                                           \
    "'attention_bias': false, 'mlp_bias': false, 'pretraining_tp': 1, "

static const struct released {
    const char *name;
    const char *text;  /* without the braces, " written as ' */
    const char *lacks; /* NULL: nothing */
    enum arch arch;
    long long parameters;
} released[] = {
    { "TinyLlama 1.1B",
      "'architectures': ['LlamaForCausalLM'], 'model_type': 'llama', " COMMON
      "'vocab_size': 32000, 'hidden_size': 2048, 'intermediate_size': "
      "5632, 'num_hidden_layers': 22, 'num_attention_heads': 32, "
      "'num_key_value_heads': 4, 'rope_scaling': null, "
      "'max_position_embeddings': 2048, 'rms_norm_eps': 1e-05, "
      "'rope_theta': 10000.0, 'tie_word_embeddings': false, "
      "'attention_dropout': 0.0, 'hidden_act': 'silu'",
      NULL, ARCH_LLAMA, 1100048384 },
    { "Llama 2 7B",
      "'architectures': ['LlamaForCausalLM'], 'model_type': 'llama', " COMMON
          LLAMA_BIASES
      "'vocab_size': 32000, 'hidden_size': 4096, 'intermediate_size': "
      "11008, 'num_hidden_layers': 32, 'num_attention_heads': 32, "
      "'num_key_value_heads': 32, 'rope_scaling': null, "
      "'max_position_embeddings': 4096, 'rms_norm_eps': 1e-05, "
      "'rope_theta': 10000.0, 'tie_word_embeddings': false, "
      "'attention_dropout': 0.0, 'hidden_act': 'silu'",
      NULL, ARCH_LLAMA, 6738415616 },
    { "Llama 2 70B",
      "'architectures': ['LlamaForCausalLM'], 'model_type': 'llama', " COMMON
          LLAMA_BIASES
      "'vocab_size': 32000, 'hidden_size': 8192, 'intermediate_size': "
      "28672, 'num_hidden_layers': 80, 'num_attention_heads': 64, "
      "'num_key_value_heads': 8, 'rope_scaling': null, "
      "'max_position_embeddings': 4096, 'rms_norm_eps': 1e-05, "
      "'rope_theta': 10000.0, 'tie_word_embeddings': false, "
      "'attention_dropout': 0.0, 'hidden_act': 'silu'",
      NULL, ARCH_LLAMA, 68976648192 },
    { "Llama 3 8B",
      "'architectures': ['LlamaForCausalLM'], 'model_type': 'llama', " COMMON
          LLAMA_BIASES
      "'vocab_size': 128256, 'hidden_size': 4096, 'intermediate_size': "
      "14336, 'num_hidden_layers': 32, 'num_attention_heads': 32, "
      "'num_key_value_heads': 8, 'rope_scaling': null, "
      "'max_position_embeddings': 8192, 'rms_norm_eps': 1e-05, "
      "'rope_theta': 500000.0, 'tie_word_embeddings': false, "
      "'attention_dropout': 0.0, 'hidden_act': 'silu'",
      NULL, ARCH_LLAMA, 8030261248 },
    { "Llama 3.1 8B",
      "'architectures': ['LlamaForCausalLM'], 'model_type': 'llama', " COMMON
          LLAMA_BIASES
      "'vocab_size': 128256, 'hidden_size': 4096, 'intermediate_size': "
      "14336, 'num_hidden_layers': 32, 'num_attention_heads': 32, "
      "'num_key_value_heads': 8, 'max_position_embeddings': 131072, "
      "'rms_norm_eps': 1e-05, 'rope_theta': 500000.0, "
      "'tie_word_embeddings': false, 'attention_dropout': 0.0, "
      "'hidden_act': 'silu', 'rope_scaling': {'factor': 8.0, "
      "'low_freq_factor': 1.0, 'high_freq_factor': 4.0, "
      "'original_max_position_embeddings': 8192, 'rope_type': 'llama3'}",
      NULL, ARCH_LLAMA, 8030261248 },
    { "Llama 3.1 70B",
      "'architectures': ['LlamaForCausalLM'], 'model_type': 'llama', " COMMON
          LLAMA_BIASES
      "'vocab_size': 128256, 'hidden_size': 8192, 'intermediate_size': "
      "28672, 'num_hidden_layers': 80, 'num_attention_heads': 64, "
      "'num_key_value_heads': 8, 'max_position_embeddings': 131072, "
      "'rms_norm_eps': 1e-05, 'rope_theta': 500000.0, "
      "'tie_word_embeddings': false, 'attention_dropout': 0.0, "
      "'hidden_act': 'silu', 'rope_scaling': {'factor': 8.0, "
      "'low_freq_factor': 1.0, 'high_freq_factor': 4.0, "
      "'original_max_position_embeddings': 8192, 'rope_type': 'llama3'}",
      NULL, ARCH_LLAMA, 70553706496 },
    { "Llama 3.2 1B",
      "'architectures': ['LlamaForCausalLM'], 'model_type': 'llama', " COMMON
          LLAMA_BIASES
      "'vocab_size': 128256, 'hidden_size': 2048, 'intermediate_size': "
      "8192, 'num_hidden_layers': 16, 'num_attention_heads': 32, "
      "'num_key_value_heads': 8, 'head_dim': 64, "
      "'max_position_embeddings': 131072, 'rms_norm_eps': 1e-05, "
      "'rope_theta': 500000.0, 'tie_word_embeddings': true, "
      "'attention_dropout': 0.0, 'hidden_act': 'silu', 'rope_scaling': "
      "{'factor': 32.0, 'low_freq_factor': 1.0, 'high_freq_factor': 4.0, "
      "'original_max_position_embeddings': 8192, 'rope_type': 'llama3'}",
      NULL, ARCH_LLAMA, 1235814400 },
    { "Llama 3.2 3B",
      "'architectures': ['LlamaForCausalLM'], 'model_type': 'llama', " COMMON
          LLAMA_BIASES
      "'vocab_size': 128256, 'hidden_size': 3072, 'intermediate_size': "
      "8192, 'num_hidden_layers': 28, 'num_attention_heads': 24, "
      "'num_key_value_heads': 8, 'head_dim': 128, "
      "'max_position_embeddings': 131072, 'rms_norm_eps': 1e-05, "
      "'rope_theta': 500000.0, 'tie_word_embeddings': true, "
      "'attention_dropout': 0.0, 'hidden_act': 'silu', 'rope_scaling': "
      "{'factor': 32.0, 'low_freq_factor': 1.0, 'high_freq_factor': 4.0, "
      "'original_max_position_embeddings': 8192, 'rope_type': 'llama3'}",
      NULL, ARCH_LLAMA, 3212749824 },
    { "SmolLM2 135M",
      "'architectures': ['LlamaForCausalLM'], 'model_type': 'llama', " COMMON
          LLAMA_BIASES
      "'vocab_size': 49152, 'hidden_size': 576, 'intermediate_size': "
      "1536, 'num_hidden_layers': 30, 'num_attention_heads': 9, "
      "'num_key_value_heads': 3, 'is_llama_config': true, "
      "'rope_interleaved': false, 'rope_scaling': null, "
      "'max_position_embeddings': 8192, 'rms_norm_eps': 1e-05, "
      "'rope_theta': 100000, 'tie_word_embeddings': true, "
      "'attention_dropout': 0.0, 'hidden_act': 'silu', "
      "'transformers.js_config': {'kv_cache_dtype': {'q4f16': 'float16'}}",
      NULL, ARCH_LLAMA, 134515008 },
    { "SmolLM2 1.7B",
      "'architectures': ['LlamaForCausalLM'], 'model_type': 'llama', " COMMON
          LLAMA_BIASES
      "'vocab_size': 49152, 'hidden_size': 2048, 'intermediate_size': "
      "8192, 'num_hidden_layers': 24, 'num_attention_heads': 32, "
      "'num_key_value_heads': 32, 'rope_scaling': null, "
      "'max_position_embeddings': 8192, 'rms_norm_eps': 1e-05, "
      "'rope_theta': 130000, 'tie_word_embeddings': true, "
      "'attention_dropout': 0.0, 'hidden_act': 'silu'",
      NULL, ARCH_LLAMA, 1711376384 },
    { "DeepSeek Coder 6.7B",
      "'architectures': ['LlamaForCausalLM'], 'model_type': 'llama', " COMMON
      "'pretraining_tp': 1, 'vocab_size': 32256, 'hidden_size': 4096, "
      "'intermediate_size': 11008, 'num_hidden_layers': 32, "
      "'num_attention_heads': 32, 'num_key_value_heads': 32, "
      "'max_position_embeddings': 16384, 'rms_norm_eps': 1e-06, "
      "'rope_theta': 100000, 'tie_word_embeddings': false, "
      "'attention_dropout': 0.0, 'hidden_act': 'silu', 'rope_scaling': "
      "{'factor': 4.0, 'type': 'linear'}",
      NULL, ARCH_LLAMA, 6740512768 },
    { "a Llama with angles by the length",
      "'architectures': ['LlamaForCausalLM'], 'model_type': 'llama', " COMMON
      "'vocab_size': 32000, 'hidden_size': 4096, 'intermediate_size': "
      "11008, 'num_hidden_layers': 32, 'num_attention_heads': 32, "
      "'num_key_value_heads': 32, 'max_position_embeddings': 4096, "
      "'rms_norm_eps': 1e-06, 'rope_theta': 10000, "
      "'tie_word_embeddings': false, 'attention_dropout': 0.0, "
      "'hidden_act': 'silu', 'rope_scaling': {'factor': 2.0, 'type': "
      "'dynamic'}",
      "rope_scaling.type is \"dynamic\"", ARCH_LLAMA, 0 },
    { "a Llama in 4 bits",
      "'architectures': ['LlamaForCausalLM'], 'model_type': 'llama', " COMMON
      "'vocab_size': 32000, 'hidden_size': 4096, 'intermediate_size': "
      "11008, 'num_hidden_layers': 32, 'num_attention_heads': 32, "
      "'num_key_value_heads': 32, 'max_position_embeddings': 4096, "
      "'rms_norm_eps': 1e-06, 'rope_theta': 10000, "
      "'tie_word_embeddings': false, 'attention_dropout': 0.0, "
      "'hidden_act': 'silu', 'quantization_config': {'bits': 4, "
      "'quant_method': 'gptq'}",
      "the weights are quantized (gptq)", ARCH_LLAMA, 0 },
    { "Mistral 7B v0.3",
      "'architectures': ['MistralForCausalLM'], 'model_type': "
      "'mistral', " COMMON
      "'vocab_size': 32768, 'hidden_size': 4096, 'intermediate_size': "
      "14336, 'num_hidden_layers': 32, 'num_attention_heads': 32, "
      "'num_key_value_heads': 8, 'sliding_window': null, "
      "'max_position_embeddings': 32768, 'rms_norm_eps': 1e-05, "
      "'rope_theta': 1000000.0, 'tie_word_embeddings': false, "
      "'attention_dropout': 0.0, 'hidden_act': 'silu'",
      NULL, ARCH_MISTRAL, 7248023552 },
    { "Mistral 7B v0.1",
      "'architectures': ['MistralForCausalLM'], 'model_type': "
      "'mistral', " COMMON
      "'vocab_size': 32000, 'hidden_size': 4096, 'intermediate_size': "
      "14336, 'num_hidden_layers': 32, 'num_attention_heads': 32, "
      "'num_key_value_heads': 8, 'sliding_window': 4096, "
      "'max_position_embeddings': 32768, 'rms_norm_eps': 1e-05, "
      "'rope_theta': 10000.0, 'tie_word_embeddings': false, "
      "'attention_dropout': 0.0, 'hidden_act': 'silu'",
      "sliding_window is 4096, less than max_position_embeddings (32768)",
      ARCH_MISTRAL, 0 },
    { "Mistral 7B v0.1, shortened",
      "'architectures': ['MistralForCausalLM'], 'model_type': "
      "'mistral', " COMMON
      "'vocab_size': 32000, 'hidden_size': 4096, 'intermediate_size': "
      "14336, 'num_hidden_layers': 32, 'num_attention_heads': 32, "
      "'num_key_value_heads': 8, 'sliding_window': 4096, "
      "'max_position_embeddings': 4096, 'rms_norm_eps': 1e-05, "
      "'rope_theta': 10000.0, 'tie_word_embeddings': false, "
      "'attention_dropout': 0.0, 'hidden_act': 'silu'",
      NULL, ARCH_MISTRAL, 7241732096 },
    { "Mistral Nemo",
      "'architectures': ['MistralForCausalLM'], 'model_type': "
      "'mistral', " COMMON
      "'vocab_size': 131072, 'hidden_size': 5120, 'intermediate_size': "
      "14336, 'num_hidden_layers': 40, 'num_attention_heads': 32, "
      "'num_key_value_heads': 8, 'head_dim': 128, 'sliding_window': "
      "null, 'max_position_embeddings': 131072, 'rms_norm_eps': 1e-05, "
      "'rope_theta': 1000000.0, 'tie_word_embeddings': false, "
      "'attention_dropout': 0.0, 'hidden_act': 'silu'",
      "head_dim is 128", ARCH_MISTRAL, 0 },
    { "Qwen2 1.5B",
      "'architectures': ['Qwen2ForCausalLM'], 'model_type': 'qwen2', " COMMON
      "'vocab_size': 151936, 'hidden_size': 1536, 'intermediate_size': "
      "8960, 'num_hidden_layers': 28, 'num_attention_heads': 12, "
      "'num_key_value_heads': 2, 'max_position_embeddings': 131072, "
      "'rms_norm_eps': 1e-06, 'rope_theta': 1000000.0, "
      "'tie_word_embeddings': true, 'attention_dropout': 0.0, "
      "'hidden_act': 'silu', 'use_sliding_window': false, "
      "'sliding_window': 131072, 'max_window_layers': 28, 'use_mrope': "
      "false",
      NULL, ARCH_QWEN2, 1543714304 },
    { "Qwen2.5 0.5B",
      "'architectures': ['Qwen2ForCausalLM'], 'model_type': 'qwen2', " COMMON
      "'vocab_size': 151936, 'hidden_size': 896, 'intermediate_size': "
      "4864, 'num_hidden_layers': 24, 'num_attention_heads': 14, "
      "'num_key_value_heads': 2, 'max_position_embeddings': 32768, "
      "'rms_norm_eps': 1e-06, 'rope_theta': 1000000.0, "
      "'tie_word_embeddings': true, 'attention_dropout': 0.0, "
      "'hidden_act': 'silu', 'use_sliding_window': false, "
      "'sliding_window': 32768, 'max_window_layers': 24, 'use_mrope': "
      "false",
      NULL, ARCH_QWEN2, 494032768 },
    { "Qwen2.5 7B",
      "'architectures': ['Qwen2ForCausalLM'], 'model_type': 'qwen2', " COMMON
      "'vocab_size': 152064, 'hidden_size': 3584, 'intermediate_size': "
      "18944, 'num_hidden_layers': 28, 'num_attention_heads': 28, "
      "'num_key_value_heads': 4, 'max_position_embeddings': 131072, "
      "'rms_norm_eps': 1e-06, 'rope_theta': 1000000.0, "
      "'tie_word_embeddings': false, 'attention_dropout': 0.0, "
      "'hidden_act': 'silu', 'use_sliding_window': false, "
      "'sliding_window': 131072, 'max_window_layers': 28, 'use_mrope': "
      "false",
      NULL, ARCH_QWEN2, 7615616512 },
    { "Qwen2.5 7B with YaRN",
      "'architectures': ['Qwen2ForCausalLM'], 'model_type': 'qwen2', " COMMON
      "'vocab_size': 152064, 'hidden_size': 3584, 'intermediate_size': "
      "18944, 'num_hidden_layers': 28, 'num_attention_heads': 28, "
      "'num_key_value_heads': 4, 'max_position_embeddings': 32768, "
      "'rms_norm_eps': 1e-06, 'rope_theta': 1000000.0, "
      "'tie_word_embeddings': false, 'attention_dropout': 0.0, "
      "'hidden_act': 'silu', 'rope_scaling': {'factor': 4.0, "
      "'original_max_position_embeddings': 32768, 'type': 'yarn'}",
      "rope_scaling.type is \"yarn\"", ARCH_QWEN2, 0 },
    { "Qwen3 0.6B",
      "'architectures': ['Qwen3ForCausalLM'], 'model_type': 'qwen3', " COMMON
      "'vocab_size': 151936, 'hidden_size': 1024, 'intermediate_size': "
      "3072, 'num_hidden_layers': 28, 'num_attention_heads': 16, "
      "'num_key_value_heads': 8, 'max_position_embeddings': 40960, "
      "'rms_norm_eps': 1e-06, 'rope_theta': 1000000, "
      "'tie_word_embeddings': true, 'attention_dropout': 0.0, "
      "'hidden_act': 'silu'",
      "architecture Qwen3ForCausalLM", ARCH_QWEN2, 0 },
    { "GPT-2",
      "'architectures': ['GPT2LMHeadModel'], 'model_type': 'gpt2', " COMMON
      "'activation_function': 'gelu_new', 'attn_pdrop': 0.1, "
      "'embd_pdrop': 0.1, 'resid_pdrop': 0.1, 'layer_norm_epsilon': "
      "1e-05, 'n_ctx': 1024, 'n_embd': 768, 'n_head': 12, 'n_layer': 12, "
      "'n_positions': 1024, 'summary_activation': null, "
      "'summary_first_dropout': 0.1, 'summary_proj_to_labels': true, "
      "'summary_type': 'cls_index', 'summary_use_proj': true, "
      "'task_specific_params': {'text-generation': {'do_sample': true, "
      "'max_length': 50}}, 'vocab_size': 50257",
      NULL, ARCH_GPT2, 124439808 },
    { "GPT-2 medium",
      "'architectures': ['GPT2LMHeadModel'], 'model_type': 'gpt2', " COMMON
      "'activation_function': 'gelu_new', 'attn_pdrop': 0.1, "
      "'embd_pdrop': 0.1, 'resid_pdrop': 0.1, 'layer_norm_epsilon': "
      "1e-05, 'n_ctx': 1024, 'n_embd': 1024, 'n_head': 16, 'n_layer': "
      "24, 'n_positions': 1024, 'summary_activation': null, "
      "'summary_first_dropout': 0.1, 'summary_proj_to_labels': true, "
      "'summary_type': 'cls_index', 'summary_use_proj': true, "
      "'task_specific_params': {'text-generation': {'do_sample': true, "
      "'max_length': 50}}, 'vocab_size': 50257",
      NULL, ARCH_GPT2, 354823168 },
    { "GPT-2 XL",
      "'architectures': ['GPT2LMHeadModel'], 'model_type': 'gpt2', " COMMON
      "'activation_function': 'gelu_new', 'attn_pdrop': 0.1, "
      "'embd_pdrop': 0.1, 'resid_pdrop': 0.1, 'layer_norm_epsilon': "
      "1e-05, 'n_ctx': 1024, 'n_embd': 1600, 'n_head': 25, 'n_layer': "
      "48, 'n_positions': 1024, 'summary_activation': null, "
      "'summary_first_dropout': 0.1, 'summary_proj_to_labels': true, "
      "'summary_type': 'cls_index', 'summary_use_proj': true, "
      "'task_specific_params': {'text-generation': {'do_sample': true, "
      "'max_length': 50}}, 'vocab_size': 50257",
      NULL, ARCH_GPT2, 1557611200 },
    { "MPT-7B",
      "'architectures': ['MPTForCausalLM'], 'model_type': 'mpt', " COMMON
      "'attn_config': {'alibi': true, 'alibi_bias_max': 8, 'attn_impl': "
      "'torch', 'attn_pdrop': 0, 'attn_type': 'multihead_attention', "
      "'attn_uses_sequence_id': false, 'clip_qkv': null, 'prefix_lm': "
      "false, 'qk_ln': false, 'softmax_scale': null}, 'auto_map': "
      "{'AutoConfig': 'configuration_mpt.MPTConfig'}, 'init_config': "
      "{'name': 'kaiming_normal_', 'init_nonlinearity': 'relu'}, "
      "'d_model': 4096, 'n_layers': 32, 'n_heads': 32, 'max_seq_len': "
      "2048, 'emb_pdrop': 0, 'resid_pdrop': 0, 'embedding_fraction': "
      "1.0, 'expansion_ratio': 4, 'learned_pos_emb': true, "
      "'logit_scale': null, 'no_bias': true, 'verbose': 0, 'norm_type': "
      "'low_precision_layernorm', 'init_device': 'cpu', "
      "'tokenizer_name': 'EleutherAI/gpt-neox-20b', 'vocab_size': 50432",
      NULL, ARCH_MPT, 6649286656 },
    { "MPT-30B",
      "'architectures': ['MPTForCausalLM'], 'model_type': 'mpt', " COMMON
      "'attn_config': {'alibi': true, 'alibi_bias_max': 8, 'attn_impl': "
      "'torch', 'attn_pdrop': 0, 'attn_type': 'multihead_attention', "
      "'attn_uses_sequence_id': false, 'clip_qkv': null, 'prefix_lm': "
      "false, 'qk_ln': false, 'softmax_scale': null}, 'auto_map': "
      "{'AutoConfig': 'configuration_mpt.MPTConfig'}, 'init_config': "
      "{'name': 'kaiming_normal_', 'init_nonlinearity': 'relu'}, "
      "'d_model': 7168, 'n_layers': 48, 'n_heads': 64, 'max_seq_len': "
      "8192, 'emb_pdrop': 0, 'resid_pdrop': 0, 'embedding_fraction': "
      "1.0, 'expansion_ratio': 4, 'learned_pos_emb': true, "
      "'logit_scale': null, 'no_bias': true, 'verbose': 0, 'norm_type': "
      "'low_precision_layernorm', 'init_device': 'cpu', "
      "'tokenizer_name': 'EleutherAI/gpt-neox-20b', 'vocab_size': 50432",
      NULL, ARCH_MPT, 29957200896 },
    { "Mixtral 8x7B",
      "'architectures': ['MixtralForCausalLM'], 'model_type': "
      "'mixtral', " COMMON
      "'vocab_size': 32000, 'hidden_size': 4096, 'intermediate_size': "
      "14336, 'num_hidden_layers': 32, 'num_attention_heads': 32, "
      "'num_key_value_heads': 8, 'num_local_experts': 8, "
      "'num_experts_per_tok': 2, 'output_router_logits': false, "
      "'router_aux_loss_coef': 0.02, 'sliding_window': null, "
      "'max_position_embeddings': 32768, 'rms_norm_eps': 1e-05, "
      "'rope_theta': 1000000.0, 'tie_word_embeddings': false, "
      "'attention_dropout': 0.0, 'hidden_act': 'silu'",
      NULL, ARCH_MIXTRAL, 46702792704 },
    { "DBRX",
      "'architectures': ['DbrxForCausalLM'], 'model_type': 'dbrx', " COMMON
      "'d_model': 6144, 'n_heads': 48, 'n_layers': 40, 'max_seq_len': "
      "32768, 'vocab_size': 100352, 'emb_pdrop': 0.0, 'resid_pdrop': "
      "0.0, 'output_router_logits': false, 'router_aux_loss_coef': 0.05, "
      "'tie_word_embeddings': false, 'attn_config': {'clip_qkv': 8, "
      "'kv_n_heads': 8, 'model_type': '', 'rope_theta': 500000}, "
      "'ffn_config': {'ffn_hidden_size': 10752, 'model_type': '', "
      "'moe_jitter_eps': 0.01, 'moe_loss_weight': 0.05, "
      "'moe_num_experts': 16, 'moe_top_k': 4}",
      NULL, ARCH_DBRX, 131596523520 },
};

static bool same_shape(const struct model_config *a,
                       const struct model_config *b)
{
    return a->rope_scaling == b->rope_scaling &&
           a->rope_factor == b->rope_factor &&
           a->rope_original_len == b->rope_original_len &&
           a->activation == b->activation && a->qkv_bias == b->qkv_bias &&
           a->norm_eps == b->norm_eps && a->rope_theta == b->rope_theta &&
           a->clip_qkv == b->clip_qkv && a->tied == b->tied &&
           a->balance_weight == b->balance_weight &&
           model_config_param_count(a) == model_config_param_count(b);
}

static void check(const struct released *r)
{
    char text[4096];
    char *again = NULL;
    enum arch arch = ARCHS, other = ARCHS;
    struct model_config model, back;
    int bytes = snprintf(text, sizeof text, "{%s}", r->text);
    for (char *c = text; *c != '\0'; c++)
        *c = *c == '\'' ? '"' : *c;
    enum err rc = hf_config_parse(text, (size_t)bytes, "c", &arch, &model);
    if (r->lacks != NULL) {
        tap_ok(rc == ERR_UNSUPPORTED && strstr(err_text(), r->lacks) != NULL,
               "%s: refused: %s", r->name, rc == ERR_OK ? "no" : err_text());
        return;
    }
    if (!tap_ok(rc == ERR_OK && arch == r->arch, "%s: %s", r->name,
                rc == ERR_OK ? "read" : err_text()))
        return;
    tap_is_int(model_config_param_count(&model), r->parameters,
               "%s: the published number of parameters", r->name);
    /* Mixtral's 0.02 is of a sum over two choices */
    double balance = arch == ARCH_MIXTRAL ? 0.04
                     : arch == ARCH_DBRX  ? 0.05
                                          : 0.0;
    tap_is_close(model.balance_weight, balance, 1e-12,
                 "%s: how much its experts' balance counts", r->name);
    tap_ok(hf_config_text(arch, &model, "bfloat16", &again) == ERR_OK &&
               hf_config_parse(again, strlen(again), "c", &other, &back) ==
                   ERR_OK &&
               other == arch && same_shape(&model, &back),
           "%s: written, and read again", r->name);
    free(again);
}

/* As large as the setting may be, and larger. */
static void check_balance(void)
{
    enum arch arch;
    struct model_config model, back = { .balance_weight = 0 };
    char *text = NULL;
    if (!tap_ok(model_config_preset("dbrx", &model) == ERR_OK, "dbrx"))
        return;
    model.balance_weight = 1e3;
    model.positions = POSITIONS_ROPE;
    model.norm = MODEL_NORM_RMSNORM;
    model.clip_qkv = 0;
    tap_ok(hf_config_text(ARCH_MIXTRAL, &model, "float32", &text) == ERR_OK &&
               hf_config_parse(text, strlen(text), "c", &arch, &back) ==
                   ERR_OK &&
               back.balance_weight == 1e3,
           "the largest balance, as Mixtral");
    char *at = text != NULL ? strstr(text, "_coef\": 2") : NULL;
    if (at != NULL)
        at[8] = '3';
    tap_ok(at != NULL && hf_config_parse(text, strlen(text), "c", &arch,
                                         &back) == ERR_UNSUPPORTED,
           "a larger one: %s", err_text());
    free(text);
}

int main(void)
{
    check_balance();
    for (size_t i = 0; i < sizeof released / sizeof released[0]; i++)
        check(&released[i]);
    return tap_done();
}
