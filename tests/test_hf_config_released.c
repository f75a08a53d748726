/* config.json of models as they were released, their figures written down
 * again: read into the shape with the published number of parameters, written
 * and read once more; or refused with the option that we lack. */
#include "src/hf/hf_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/tap.h"

#define KEY(name, value) "\"" name "\": " #value ", "
#define TEXT(name, value) "\"" name "\": \"" value "\", "
#define WITH_TYPE(class, type)                                                 \
    "\"architectures\": [\"" class "\"], " TEXT("model_type", type)            \
        TEXT("torch_dtype", "bfloat16") TEXT("transformers_version", "4.42.0") \
            KEY("initializer_range", 0.02) KEY("use_cache", true)              \
                KEY("bos_token_id", 1) KEY("eos_token_id", 2)
/* What all descendants of Llama have. */
#define SHAPE(vocab, width, ffn, layers, heads, kv)                            \
    KEY("vocab_size", vocab)                                                   \
    KEY("hidden_size", width)                                                  \
    KEY("intermediate_size", ffn)                                              \
    KEY("num_hidden_layers", layers) KEY("num_attention_heads", heads)         \
        KEY("num_key_value_heads", kv)
/* # takes its argument as it stands, before stdbool.h makes numbers of it */
#define ENDS(length, eps, theta, tied)                                         \
    KEY("max_position_embeddings", length)                                     \
    KEY("rms_norm_eps", eps)                                                   \
    KEY("rope_theta", theta)                                                   \
    "\"tie_word_embeddings\": " #tied                                          \
    ", " KEY("attention_dropout", 0.0) "\"hidden_act\": \"silu\""
#define LLAMA WITH_TYPE("LlamaForCausalLM", "llama")
#define LLAMA_BIAS                                                             \
    KEY("attention_bias", false) KEY("mlp_bias", false) KEY("pretraining_tp", 1)
#define LLAMA3_SCALING(factor)                                                 \
    ", \"rope_scaling\": {\"factor\": " #factor                                \
    ", \"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, "                  \
    "\"original_max_position_embeddings\": 8192, \"rope_type\": \"llama3\"}"
#define MISTRAL WITH_TYPE("MistralForCausalLM", "mistral")
#define QWEN2 WITH_TYPE("Qwen2ForCausalLM", "qwen2")
#define QWEN2_WINDOW(window, layers)                                           \
    ", \"use_sliding_window\": false, \"sliding_window\": " #window            \
    ", \"max_window_layers\": " #layers ", \"use_mrope\": false"
#define GPT2(width, layers, heads)                                             \
    WITH_TYPE("GPT2LMHeadModel", "gpt2")                                       \
    TEXT("activation_function", "gelu_new")                                    \
    KEY("attn_pdrop", 0.1)                                                     \
    KEY("embd_pdrop", 0.1) KEY("resid_pdrop", 0.1) KEY(                        \
        "layer_norm_epsilon", 1e-05) KEY("n_ctx", 1024) KEY("n_embd", width)   \
        KEY("n_head", heads) KEY("n_layer", layers) KEY("n_positions", 1024)   \
            KEY("summary_activation", null) KEY("summary_first_dropout", 0.1)  \
                KEY("summary_proj_to_labels", true) TEXT("summary_type",       \
                                                         "cls_index")          \
                    KEY("summary_use_proj",                                    \
                        true) "\"task_specific_params\": "                     \
                              "{\"text-generation\": {\"do_sample\": true, "   \
                              "\"max_length\": 50}}, \"vocab_size\": 50257"
#define MPT(width, layers, heads, length)                                      \
    WITH_TYPE("MPTForCausalLM", "mpt")                                         \
    "\"attn_config\": {\"alibi\": true, \"alibi_bias_max\": 8, "               \
    "\"attn_impl\": \"torch\", \"attn_pdrop\": 0, \"attn_type\": "             \
    "\"multihead_attention\", \"attn_uses_sequence_id\": false, "              \
    "\"clip_qkv\": null, \"prefix_lm\": false, \"qk_ln\": false, "             \
    "\"softmax_scale\": null}, \"auto_map\": {\"AutoConfig\": "                \
    "\"configuration_mpt.MPTConfig\"}, \"init_config\": {\"name\": "           \
    "\"kaiming_normal_\", \"init_nonlinearity\": \"relu\"}, " KEY(             \
        "d_model", width) KEY("n_layers", layers) KEY("n_heads", heads)        \
        KEY("max_seq_len", length) KEY("emb_pdrop", 0) KEY("resid_pdrop", 0)   \
            KEY("embedding_fraction", 1.0) KEY("expansion_ratio", 4)           \
                KEY("learned_pos_emb", true) KEY("logit_scale", null)          \
                    KEY("no_bias", true) KEY("verbose", 0) TEXT(               \
                        "norm_type", "low_precision_layernorm")                \
                        TEXT("init_device", "cpu") TEXT(                       \
                            "tokenizer_name",                                  \
                            "EleutherAI/gpt-neox-20b") "\"vocab_size\": 50432"

static const struct released {
    const char *name;
    const char *text;  /* without the braces */
    const char *lacks; /* NULL: nothing */
    enum hf_arch arch;
    long long parameters;
} released[] = {
    { "TinyLlama 1.1B",
      LLAMA SHAPE(32000, 2048, 5632, 22, 32, 4) KEY("rope_scaling", null)
          ENDS(2048, 1e-05, 10000.0, false),
      NULL, HF_LLAMA, 1100048384 },
    { "Llama 2 7B",
      LLAMA LLAMA_BIAS SHAPE(32000, 4096, 11008, 32, 32, 32)
          KEY("rope_scaling", null) ENDS(4096, 1e-05, 10000.0, false),
      NULL, HF_LLAMA, 6738415616 },
    { "Llama 2 70B",
      LLAMA LLAMA_BIAS SHAPE(32000, 8192, 28672, 80, 64, 8)
          KEY("rope_scaling", null) ENDS(4096, 1e-05, 10000.0, false),
      NULL, HF_LLAMA, 68976648192 },
    { "Llama 3 8B",
      LLAMA LLAMA_BIAS SHAPE(128256, 4096, 14336, 32, 32, 8)
          KEY("rope_scaling", null) ENDS(8192, 1e-05, 500000.0, false),
      NULL, HF_LLAMA, 8030261248 },
    { "Llama 3.1 8B",
      LLAMA LLAMA_BIAS SHAPE(128256, 4096, 14336, 32, 32, 8)
          ENDS(131072, 1e-05, 500000.0, false) LLAMA3_SCALING(8.0),
      NULL, HF_LLAMA, 8030261248 },
    { "Llama 3.1 70B",
      LLAMA LLAMA_BIAS SHAPE(128256, 8192, 28672, 80, 64, 8)
          ENDS(131072, 1e-05, 500000.0, false) LLAMA3_SCALING(8.0),
      NULL, HF_LLAMA, 70553706496 },
    { "Llama 3.2 1B",
      LLAMA LLAMA_BIAS SHAPE(128256, 2048, 8192, 16, 32, 8) KEY("head_dim", 64)
          ENDS(131072, 1e-05, 500000.0, true) LLAMA3_SCALING(32.0),
      NULL, HF_LLAMA, 1235814400 },
    { "Llama 3.2 3B",
      LLAMA LLAMA_BIAS SHAPE(128256, 3072, 8192, 28, 24, 8) KEY("head_dim", 128)
          ENDS(131072, 1e-05, 500000.0, true) LLAMA3_SCALING(32.0),
      NULL, HF_LLAMA, 3212749824 },
    { "SmolLM2 135M",
      LLAMA LLAMA_BIAS SHAPE(49152, 576, 1536, 30, 9, 3)
          KEY("is_llama_config", true) KEY("rope_interleaved", false)
              KEY("rope_scaling", null) ENDS(
                  8192, 1e-05, 100000, true) ", \"transformers.js_config\": "
                                             "{\"kv_cache_dtype\": {\"q4f16\": "
                                             "\"float16\"}}",
      NULL, HF_LLAMA, 134515008 },
    { "SmolLM2 1.7B",
      LLAMA LLAMA_BIAS SHAPE(49152, 2048, 8192, 24, 32, 32)
          KEY("rope_scaling", null) ENDS(8192, 1e-05, 130000, true),
      NULL, HF_LLAMA, 1711376384 },
    { "DeepSeek Coder 6.7B",
      LLAMA KEY("pretraining_tp", 1) SHAPE(32256, 4096, 11008, 32, 32, 32) ENDS(
          16384, 1e-06, 100000,
          false) ", \"rope_scaling\": {\"factor\": 4.0, \"type\": \"linear\"}",
      NULL, HF_LLAMA, 6740512768 },
    { "a Llama with angles by the length",
      LLAMA SHAPE(32000, 4096, 11008, 32, 32, 32) ENDS(
          4096, 1e-06, 10000,
          false) ", \"rope_scaling\": {\"factor\": 2.0, \"type\": \"dynamic\"}",
      "rope_scaling.type is \"dynamic\"", HF_LLAMA, 0 },
    { "a Llama in 4 bits",
      LLAMA SHAPE(32000, 4096, 11008, 32, 32, 32) ENDS(
          4096, 1e-06, 10000, false) ", \"quantization_config\": {\"bits\": 4, "
                                     "\"quant_method\": \"gptq\"}",
      "quantization_config is not known", HF_LLAMA, 0 },
    { "Mistral 7B v0.3",
      MISTRAL SHAPE(32768, 4096, 14336, 32, 32, 8) KEY("sliding_window", null)
          ENDS(32768, 1e-05, 1000000.0, false),
      NULL, HF_MISTRAL, 7248023552 },
    { "Mistral 7B v0.1",
      MISTRAL SHAPE(32000, 4096, 14336, 32, 32, 8) KEY("sliding_window", 4096)
          ENDS(32768, 1e-05, 10000.0, false),
      "sliding_window is 4096, less than max_position_embeddings (32768)",
      HF_MISTRAL, 0 },
    { "Mistral 7B v0.1, shortened",
      MISTRAL SHAPE(32000, 4096, 14336, 32, 32, 8) KEY("sliding_window", 4096)
          ENDS(4096, 1e-05, 10000.0, false),
      NULL, HF_MISTRAL, 7241732096 },
    { "Mistral Nemo",
      MISTRAL SHAPE(131072, 5120, 14336, 40, 32, 8) KEY("head_dim", 128)
          KEY("sliding_window", null) ENDS(131072, 1e-05, 1000000.0, false),
      "head_dim is 128", HF_MISTRAL, 0 },
    { "Qwen2 1.5B",
      QWEN2 SHAPE(151936, 1536, 8960, 28, 12, 2)
          ENDS(131072, 1e-06, 1000000.0, true) QWEN2_WINDOW(131072, 28),
      NULL, HF_QWEN2, 1543714304 },
    { "Qwen2.5 0.5B",
      QWEN2 SHAPE(151936, 896, 4864, 24, 14, 2)
          ENDS(32768, 1e-06, 1000000.0, true) QWEN2_WINDOW(32768, 24),
      NULL, HF_QWEN2, 494032768 },
    { "Qwen2.5 7B",
      QWEN2 SHAPE(152064, 3584, 18944, 28, 28, 4)
          ENDS(131072, 1e-06, 1000000.0, false) QWEN2_WINDOW(131072, 28),
      NULL, HF_QWEN2, 7615616512 },
    { "Qwen2.5 7B with YaRN",
      QWEN2 SHAPE(152064, 3584, 18944, 28, 28, 4)
          ENDS(32768, 1e-06, 1000000.0,
               false) ", \"rope_scaling\": {\"factor\": 4.0, "
                      "\"original_max_position_embeddings\": 32768, \"type\": "
                      "\"yarn\"}",
      "rope_scaling.type is \"yarn\"", HF_QWEN2, 0 },
    { "Qwen3 0.6B",
      WITH_TYPE("Qwen3ForCausalLM", "qwen3") SHAPE(
          151936, 1024, 3072, 28, 16, 8) ENDS(40960, 1e-06, 1000000, true),
      "architecture Qwen3ForCausalLM", HF_QWEN2, 0 },
    { "GPT-2", GPT2(768, 12, 12), NULL, HF_GPT2, 124439808 },
    { "GPT-2 medium", GPT2(1024, 24, 16), NULL, HF_GPT2, 354823168 },
    { "GPT-2 XL", GPT2(1600, 48, 25), NULL, HF_GPT2, 1557611200 },
    { "MPT-7B", MPT(4096, 32, 32, 2048), NULL, HF_MPT, 6649286656 },
    { "MPT-30B", MPT(7168, 48, 64, 8192), NULL, HF_MPT, 29957200896 },
    { "Mixtral 8x7B",
      WITH_TYPE("MixtralForCausalLM", "mixtral")
          SHAPE(32000, 4096, 14336, 32, 32, 8) KEY("num_local_experts", 8)
              KEY("num_experts_per_tok", 2) KEY("output_router_logits", false)
                  KEY("router_aux_loss_coef", 0.02) KEY("sliding_window", null)
                      ENDS(32768, 1e-05, 1000000.0, false),
      NULL, HF_MIXTRAL, 46702792704 },
    { "DBRX",
      WITH_TYPE("DbrxForCausalLM", "dbrx") KEY("d_model", 6144)
          KEY("n_heads", 48) KEY("n_layers", 40) KEY("max_seq_len", 32768)
              KEY("vocab_size", 100352) KEY("emb_pdrop", 0.0)
                  KEY("resid_pdrop", 0.0) KEY("output_router_logits", false)
                      KEY("router_aux_loss_coef", 0.05) KEY(
                          "tie_word_embeddings",
                          false) "\"attn_config\": {\"clip_qkv\": 8, "
                                 "\"kv_n_heads\": 8, \"model_type\": "
                                 "\"\", \"rope_theta\": 500000}, "
                                 "\"ffn_config\": {\"ffn_hidden_size\": "
                                 "10752, \"model_type\": \"\", "
                                 "\"moe_jitter_eps\": 0.01, "
                                 "\"moe_loss_weight\": 0.05, "
                                 "\"moe_num_experts\": 16, \"moe_top_k\": 4}",
      NULL, HF_DBRX, 131596523520 },
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
           model_config_param_count(a) == model_config_param_count(b);
}

static void check(const struct released *r)
{
    char text[4096];
    char *again = NULL;
    enum hf_arch arch = HF_ARCHS, other = HF_ARCHS;
    struct model_config model, back;
    int bytes = snprintf(text, sizeof text, "{%s}", r->text);
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
    tap_ok(hf_config_text(arch, &model, "bfloat16", &again) == ERR_OK &&
               hf_config_parse(again, strlen(again), "c", &other, &back) ==
                   ERR_OK &&
               other == arch && same_shape(&model, &back),
           "%s: written, and read again", r->name);
    free(again);
}

int main(void)
{
    for (size_t i = 0; i < sizeof released / sizeof released[0]; i++)
        check(&released[i]);
    return tap_done();
}
