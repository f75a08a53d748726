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
#define CLASS(name, type)                                                      \
    "'architectures': ['" name "'], 'model_type': '" type "', " COMMON
#define LLAMA CLASS("LlamaForCausalLM", "llama")
#define MISTRAL CLASS("MistralForCausalLM", "mistral")
#define QWEN2 CLASS("Qwen2ForCausalLM", "qwen2")
#define BIASES                                                                 \
    "'attention_bias': false, 'mlp_bias': false, 'pretraining_tp': 1, "
/* Of Llama and its descendants; other keys may follow. */
#define FIGURES(vocab, width, ffn, layers, heads, kv, length, eps, theta,      \
                tied)                                                          \
    "'vocab_size': " #vocab ", 'hidden_size': " #width ", "                    \
    "'intermediate_size': " #ffn ", 'num_hidden_layers': " #layers             \
    ", 'num_attention_heads': " #heads ", "                                    \
    "'num_key_value_heads': " #kv ", 'max_position_embeddings': " #length      \
    ", 'rms_norm_eps': " #eps ", 'rope_theta': " #theta                        \
    ", 'tie_word_embeddings': " #tied ", "                                     \
    "'attention_dropout': 0.0, 'hidden_act': 'silu'"
#define GEMMA3(width, ffn, layers, heads, kv, head, window, scalar)            \
    CLASS("Gemma3ForCausalLM", "gemma3_text")                                  \
    "'attention_bias': false, 'attention_dropout': 0.0, "                      \
    "'attn_logit_softcapping': null, 'cache_implementation': 'hybrid', "       \
    "'final_logit_softcapping': null, "                                        \
    "'head_dim': " #head ", 'hidden_activation': 'gelu_pytorch_tanh', "        \
    "'hidden_size': " #width ", 'intermediate_size': " #ffn ", "               \
    "'max_position_embeddings': 32768, 'num_attention_heads': " #heads         \
    ", 'num_hidden_layers': " #layers ", 'num_key_value_heads': " #kv          \
    ", 'query_pre_attn_scalar': " #scalar ", 'rms_norm_eps': 1e-06, "          \
    "'rope_local_base_freq': 10000, 'rope_theta': 1000000, "                   \
    "'sliding_window': " #window ", 'vocab_size': 262144"
#define LLAMA3(by)                                                             \
    ", 'rope_scaling': {'factor': " #by ", 'low_freq_factor': "                \
    "1.0, 'high_freq_factor': 4.0, "                                           \
    "'original_max_position_embeddings': 8192, 'rope_type': "                  \
    "'llama3'}"
#define GPT2(width, heads, layers)                                             \
    CLASS("GPT2LMHeadModel", "gpt2")                                           \
    "'activation_function': 'gelu_new', 'attn_pdrop': 0.1, "                   \
    "'embd_pdrop': 0.1, 'resid_pdrop': 0.1, "                                  \
    "'layer_norm_epsilon': 1e-05, 'n_ctx': 1024, 'n_embd': " #width            \
    ", 'n_head': " #heads ", 'n_layer': " #layers ", "                         \
    "'n_positions': 1024, 'summary_activation': null, "                        \
    "'summary_first_dropout': 0.1, 'summary_proj_to_labels': "                 \
    "true, 'summary_type': 'cls_index', 'summary_use_proj': "                  \
    "true, 'task_specific_params': {'text-generation': "                       \
    "{'do_sample': true, 'max_length': 50}}, 'vocab_size': 50257"
#define MPT(width, layers, heads, length)                                      \
    CLASS("MPTForCausalLM", "mpt")                                             \
    "'attn_config': {'alibi': true, 'alibi_bias_max': 8, "                     \
    "'attn_impl': 'torch', 'attn_pdrop': 0, 'attn_type': "                     \
    "'multihead_attention', 'attn_uses_sequence_id': false, "                  \
    "'clip_qkv': null, 'prefix_lm': false, 'qk_ln': false, "                   \
    "'softmax_scale': null}, 'auto_map': {'AutoConfig': "                      \
    "'configuration_mpt.MPTConfig'}, 'init_config': {'name': "                 \
    "'kaiming_normal_', 'init_nonlinearity': 'relu'}, 'd_model': " #width      \
    ", 'n_layers': " #layers ", 'n_heads': " #heads ", "                       \
    "'max_seq_len': " #length ", 'emb_pdrop': 0, 'resid_pdrop': "              \
    "0, 'embedding_fraction': 1.0, 'expansion_ratio': 4, "                     \
    "'learned_pos_emb': true, 'logit_scale': null, 'no_bias': "                \
    "true, 'verbose': 0, 'norm_type': 'low_precision_layernorm', "             \
    "'init_device': 'cpu', 'tokenizer_name': "                                 \
    "'EleutherAI/gpt-neox-20b', 'vocab_size': 50432"

static const struct released {
    const char *name;
    const char *text;  /* without the braces, " written as ' */
    const char *lacks; /* NULL: nothing */
    enum arch arch;
    long long parameters;
} released[] = {
    { "TinyLlama 1.1B",
      LLAMA FIGURES(32000, 2048, 5632, 22, 32, 4, 2048, 1e-05, 10000.0,
                    false) ", 'rope_scaling': null",
      NULL, ARCH_LLAMA, 1100048384 },
    { "Llama 2 7B",
      LLAMA BIASES FIGURES(32000, 4096, 11008, 32, 32, 32, 4096, 1e-05, 10000.0,
                           false) ", 'rope_scaling': null",
      NULL, ARCH_LLAMA, 6738415616 },
    { "Llama 2 70B",
      LLAMA BIASES FIGURES(32000, 8192, 28672, 80, 64, 8, 4096, 1e-05, 10000.0,
                           false) ", 'rope_scaling': null",
      NULL, ARCH_LLAMA, 68976648192 },
    { "Llama 3 8B",
      LLAMA BIASES FIGURES(128256, 4096, 14336, 32, 32, 8, 8192, 1e-05,
                           500000.0, false) ", 'rope_scaling': null",
      NULL, ARCH_LLAMA, 8030261248 },
    { "Llama 3.1 8B",
      LLAMA BIASES FIGURES(128256, 4096, 14336, 32, 32, 8, 131072, 1e-05,
                           500000.0, false) LLAMA3(8.0),
      NULL, ARCH_LLAMA, 8030261248 },
    { "Llama 3.1 70B",
      LLAMA BIASES FIGURES(128256, 8192, 28672, 80, 64, 8, 131072, 1e-05,
                           500000.0, false) LLAMA3(8.0),
      NULL, ARCH_LLAMA, 70553706496 },
    { "Llama 3.2 1B",
      LLAMA BIASES FIGURES(128256, 2048, 8192, 16, 32, 8, 131072, 1e-05,
                           500000.0, true) LLAMA3(32.0) ", 'head_dim': 64",
      NULL, ARCH_LLAMA, 1235814400 },
    { "Llama 3.2 3B",
      LLAMA BIASES FIGURES(128256, 3072, 8192, 28, 24, 8, 131072, 1e-05,
                           500000.0, true) LLAMA3(32.0) ", 'head_dim': 128",
      NULL, ARCH_LLAMA, 3212749824 },
    { "SmolLM2 135M",
      LLAMA BIASES FIGURES(
          49152, 576, 1536, 30, 9, 3, 8192, 1e-05, 100000,
          true) ", 'is_llama_config': true, 'rope_interleaved': false, "
                "'rope_scaling': null, 'transformers.js_config': "
                "{'kv_cache_dtype': {'q4f16': 'float16'}}",
      NULL, ARCH_LLAMA, 134515008 },
    { "SmolLM2 1.7B",
      LLAMA BIASES FIGURES(49152, 2048, 8192, 24, 32, 32, 8192, 1e-05, 130000,
                           true) ", 'rope_scaling': null",
      NULL, ARCH_LLAMA, 1711376384 },
    { "DeepSeek Coder 6.7B",
      LLAMA FIGURES(32256, 4096, 11008, 32, 32, 32, 16384, 1e-06, 100000,
                    false) ", 'pretraining_tp': 1, 'rope_scaling': {'factor': "
                           "4.0, 'type': "
                           "'linear'}",
      NULL, ARCH_LLAMA, 6740512768 },
    { "a Llama with angles by the length",
      LLAMA FIGURES(
          32000, 4096, 11008, 32, 32, 32, 4096, 1e-06, 10000,
          false) ", 'rope_scaling': {'factor': 2.0, 'type': 'dynamic'}",
      "rope_scaling.type is \"dynamic\"", ARCH_LLAMA, 0 },
    { "a Llama in 4 bits",
      LLAMA FIGURES(
          32000, 4096, 11008, 32, 32, 32, 4096, 1e-06, 10000,
          false) ", 'quantization_config': {'bits': 4, 'quant_method': 'gptq'}",
      "the weights are quantized (gptq)", ARCH_LLAMA, 0 },
    { "Mistral 7B v0.3",
      MISTRAL FIGURES(32768, 4096, 14336, 32, 32, 8, 32768, 1e-05, 1000000.0,
                      false) ", 'sliding_window': null",
      NULL, ARCH_MISTRAL, 7248023552 },
    { "Mistral 7B v0.1",
      MISTRAL FIGURES(32000, 4096, 14336, 32, 32, 8, 32768, 1e-05, 10000.0,
                      false) ", 'sliding_window': 4096",
      NULL, ARCH_MISTRAL, 7241732096 },
    { "Mistral 7B v0.1, shortened",
      MISTRAL FIGURES(32000, 4096, 14336, 32, 32, 8, 4096, 1e-05, 10000.0,
                      false) ", 'sliding_window': 4096",
      NULL, ARCH_MISTRAL, 7241732096 },
    { "Mistral Nemo",
      MISTRAL FIGURES(131072, 5120, 14336, 40, 32, 8, 131072, 1e-05, 1000000.0,
                      false) ", 'head_dim': 128, 'sliding_window': null",
      NULL, ARCH_MISTRAL, 12247782400 },
    { "Qwen2 1.5B",
      QWEN2 FIGURES(
          151936, 1536, 8960, 28, 12, 2, 131072, 1e-06, 1000000.0,
          true) ", 'use_sliding_window': false, 'sliding_window': 131072, "
                "'max_window_layers': 28, 'use_mrope': false",
      NULL, ARCH_QWEN2, 1543714304 },
    { "Qwen2.5 0.5B",
      QWEN2 FIGURES(
          151936, 896, 4864, 24, 14, 2, 32768, 1e-06, 1000000.0,
          true) ", 'use_sliding_window': false, 'sliding_window': 32768, "
                "'max_window_layers': 24, 'use_mrope': false",
      NULL, ARCH_QWEN2, 494032768 },
    { "Qwen2.5 7B",
      QWEN2 FIGURES(
          152064, 3584, 18944, 28, 28, 4, 131072, 1e-06, 1000000.0,
          false) ", 'use_sliding_window': false, 'sliding_window': 131072, "
                 "'max_window_layers': 28, 'use_mrope': false",
      NULL, ARCH_QWEN2, 7615616512 },
    { "Qwen2.5 7B with YaRN",
      QWEN2 FIGURES(
          152064, 3584, 18944, 28, 28, 4, 32768, 1e-06, 1000000.0,
          false) ", 'rope_scaling': {'factor': 4.0, "
                 "'original_max_position_embeddings': 32768, 'type': 'yarn'}",
      NULL, ARCH_QWEN2, 7615616512 },
    { "Qwen3 0.6B",
      CLASS("Qwen3ForCausalLM", "qwen3")
          FIGURES(151936, 1024, 3072, 28, 16, 8, 40960, 1e-06, 1000000,
                  true) ", 'head_dim': 128, 'attention_bias': false, "
                        "'max_window_layers': 28, 'sliding_window': null, "
                        "'use_sliding_window': false",
      NULL, ARCH_QWEN3, 596049920 },
    { "Qwen3 30B-A3B",
      CLASS("Qwen3MoeForCausalLM", "qwen3_moe")
          FIGURES(151936, 2048, 6144, 48, 32, 4, 40960, 1e-06, 1000000.0,
                  false) ", 'head_dim': 128, 'attention_bias': false, "
                         "'decoder_sparse_step': 1, 'max_window_layers': 48, "
                         "'mlp_only_layers': [], 'moe_intermediate_size': 768, "
                         "'norm_topk_prob': true, 'num_experts': 128, "
                         "'num_experts_per_tok': 8, 'output_router_logits': "
                         "false, 'router_aux_loss_coef': 0.001, "
                         "'sliding_window': null, 'use_sliding_window': false",
      NULL, ARCH_QWEN3_MOE, 30532122624 },
    { "OLMo 2 7B",
      CLASS("Olmo2ForCausalLM", "olmo2")
          FIGURES(100352, 4096, 11008, 32, 32, 32, 4096, 1e-06, 500000,
                  false) ", 'attention_bias': false, 'rope_scaling': null",
      NULL, ARCH_OLMO2, 7298617344 },
    { "OLMo 3 7B",
      CLASS("Olmo3ForCausalLM", "olmo3")
          FIGURES(100278, 4096, 11008, 32, 32, 32, 65536, 1e-06, 500000,
                  false) ", 'attention_bias': false, 'sliding_window': 4096, "
                         "'rope_scaling': null",
      NULL, ARCH_OLMO3, 7298011136 },
    { "Gemma 3 1B",
      GEMMA3(1152, 6912, 26, 4, 1, 256, 512,
             256) ", 'rope_scaling': null, 'sliding_window_pattern': 6",
      NULL, ARCH_GEMMA3, 999885952 },
    { "Gemma 3 1B, as newer versions write it",
      GEMMA3(1152, 6912, 4, 4, 1, 256, 512,
             256) ", "
                  "'_sliding_window_pattern': 6, "
                  "'use_bidirectional_attention': false, "
                  "'layer_types': ['sliding_attention', 'sliding_attention', "
                  "'sliding_attention', 'sliding_attention'], 'rope_scaling': "
                  "null",
      NULL, ARCH_GEMMA3, 409359488 },
    { "the text part of Gemma 3 27B",
      GEMMA3(5376, 21504, 62, 32, 16, 128, 1024,
             168) ", 'rope_scaling': {'factor': 8.0, 'rope_type': 'linear'}",
      NULL, ARCH_GEMMA3, 27009002240 },
    { "Gemma 3 4B", "'architectures': ['Gemma3ForConditionalGeneration']",
      "architecture Gemma3ForConditionalGeneration", ARCH_GEMMA3, 0 },
    { "SmolLM3 3B",
      CLASS("SmolLM3ForCausalLM", "smollm3")
          FIGURES(128256, 2048, 11008, 4, 16, 4, 65536, 1e-06, 5000000.0,
                  true) ", 'attention_bias': false, 'mlp_bias': false, "
                        "'layer_types': ['full_attention', 'full_attention', "
                        "'full_attention', 'full_attention'], "
                        "'max_window_layers': 28, 'no_rope_layer_interval': 4, "
                        "'no_rope_layers': [1, 1, 1, 0], 'pretraining_tp': 2, "
                        "'rope_scaling': null, 'sliding_window': null, "
                        "'use_sliding_window': false",
      NULL, ARCH_SMOLLM3, 575162368 },
    { "GPT-2", GPT2(768, 12, 12), NULL, ARCH_GPT2, 124439808 },
    { "GPT-2 medium", GPT2(1024, 16, 24), NULL, ARCH_GPT2, 354823168 },
    { "GPT-2 XL", GPT2(1600, 25, 48), NULL, ARCH_GPT2, 1557611200 },
    { "MPT-7B", MPT(4096, 32, 32, 2048), NULL, ARCH_MPT, 6649286656 },
    { "MPT-30B", MPT(7168, 48, 64, 8192), NULL, ARCH_MPT, 29957200896 },
    { "Mixtral 8x7B",
      CLASS("MixtralForCausalLM", "mixtral") FIGURES(
          32000, 4096, 14336, 32, 32, 8, 32768, 1e-05, 1000000.0,
          false) ", 'num_local_experts': 8, 'num_experts_per_tok': 2, "
                 "'output_router_logits': false, 'router_aux_loss_coef': 0.02, "
                 "'sliding_window': null",
      NULL, ARCH_MIXTRAL, 46702792704 },
    { "DBRX",
      CLASS(
          "DbrxForCausalLM",
          "dbrx") "'d_model': 6144, 'n_heads': 48, 'n_layers': 40, "
                  "'max_seq_len': "
                  "32768, 'vocab_size': 100352, 'emb_pdrop': 0.0, "
                  "'resid_pdrop': "
                  "0.0, 'output_router_logits': false, 'router_aux_loss_coef': "
                  "0.05, "
                  "'tie_word_embeddings': false, 'attn_config': {'clip_qkv': "
                  "8, "
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
    double balance = arch == ARCH_MIXTRAL     ? 0.04
                     : arch == ARCH_QWEN3_MOE ? 0.008
                     : arch == ARCH_DBRX      ? 0.05
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
