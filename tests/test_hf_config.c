/* What config.json and the files beside it say of a model: what is read of them, and
 * what is refused, whatever they are. */
#include "src/formats/hf/hf_config.h"

#include "src/base/rng.h"
#include "src/formats/hf/hf_files.h"
#include "tests/quotes.h"
#include "tests/tap.h"

#define LLAMA                                                                  \
    "{'architectures':['LlamaForCausalLM'],'model_type':'llama',"              \
    "'vocab_size':100,'hidden_size':64,'intermediate_size':96,"                \
    "'num_hidden_layers':2,'num_attention_heads':4,"                           \
    "'num_key_value_heads':2"
#define MISTRAL                                                                \
    "{'model_type':'mistral','vocab_size':100,'hidden_size':64,"               \
    "'intermediate_size':96,'num_hidden_layers':2,"                            \
    "'num_attention_heads':16"
#define PLAIN(type)                                                            \
    "{'model_type':'" type "','vocab_size':100,'hidden_size':64,"              \
    "'intermediate_size':96,'num_hidden_layers':2,"                            \
    "'num_attention_heads':4,'num_key_value_heads':2"
#define PHI3 PLAIN("phi3")
#define QWEN3 PLAIN("qwen3")
#define QWEN3_MOE PLAIN("qwen3_moe")
#define OLMO2 PLAIN("olmo2")
#define OLMO3 PLAIN("olmo3")
#define GEMMA3 PLAIN("gemma3_text")
#define SMOLLM3 PLAIN("smollm3")
#define GPT2                                                                   \
    "{'architectures':['GPT2LMHeadModel'],'vocab_size':100,"                   \
    "'n_embd':64,'n_layer':2,'n_head':4"
#define MPT                                                                    \
    "{'architectures':['MptForCausalLM'],'vocab_size':100,"                    \
    "'d_model':64,'n_layers':2,'n_heads':4"
#define LLAMA3(factor, low, high, length)                                      \
    ",'rope_scaling':{'rope_type':'llama3','factor':" factor                   \
    ",'low_freq_factor':" low ",'high_freq_factor':" high                      \
    ",'original_max_position_embeddings':" length "}}"

static const struct {
    const char *text;
    const char *error; /* NULL: none */
} cases[] = {
    { LLAMA "}", NULL },
    { LLAMA ",'rope_scaling':null,'head_dim':16}", NULL },
    { LLAMA ",'rope_parameters':{'rope_type':'default','rope_theta':500000}}",
      NULL },
    { LLAMA ",'rope_theta':1e4,'rope_parameters':{'rope_theta':2e4}}",
      "rope_theta and rope_parameters.rope_theta differ" },
    { LLAMA ",'rope_scaling':{'rope_type':'llama3','factor':8}}",
      "model.rope_original_len" },
    { LLAMA LLAMA3("8", "1", "4", "8192"), NULL },
    { LLAMA LLAMA3("0.5", "1", "4", "8192"), "model.rope_factor is 0.5" },
    { LLAMA LLAMA3("8", "4", "4", "8192"), "model.rope_low_freq_factor is 4" },
    { LLAMA LLAMA3("8", "1", "4", "0"), "model.rope_original_len" },
    { LLAMA LLAMA3("8", "1", "4", "8e3"), "no whole number" },
    { LLAMA LLAMA3("-8", "1", "4", "8192"), "rope_scaling.factor is -8" },
    { LLAMA ",'rope_scaling':{'type':'linear','factor':8}}", NULL },
    { LLAMA
      ",'rope_scaling':{'type':'linear','factor':8,'rope_type':'linear'}}",
      NULL },
    { LLAMA
      ",'rope_scaling':{'type':'linear','factor':8,'rope_type':'llama3'}}",
      "rope_scaling.rope_type and rope_scaling.type differ" },
    { LLAMA ",'rope_scaling':{'type':'linear'}}", "model.rope_factor is 0" },
    { LLAMA ",'rope_scaling':{'type':'dynamic','factor':8}}",
      "rope_scaling.type is 'dynamic'; of what it can be Tessera has default, "
      "linear, llama3, yarn" },
    { LLAMA ",'rope_scaling':{'type':'yarn','factor':8}}", NULL },
    { LLAMA ",'rope_scaling':{'type':'yarn','factor':8,'truncate':false}}",
      "rope_scaling.truncate is false" },
    { LLAMA ",'rope_scaling':{'type':'yarn','factor':8,'mscale':1}}",
      "rope_scaling.mscale is not known" },
    { LLAMA ",'rope_scaling':{'type':'yarn','factor':8,'beta_slow':64}}",
      "model.rope_beta_fast is 32" },
    { LLAMA ",'rope_scaling':{'type':7,'factor':8}}",
      "rope_scaling.type is 7" },
    { LLAMA ",'rope_scaling':{'factor':8}}",
      "model.rope_factor has no effect" },
    { LLAMA ",'rope_scaling':{'beta_fast':8}}",
      "model.rope_beta_fast has no effect" },
    { LLAMA ",'rope_scaling':3}", "rope_scaling is no object" },
    { LLAMA
      ",'rope_parameters':{'rope_theta':5e5,'rope_type':'linear','factor':2}}",
      NULL },
    { LLAMA ",'head_dim':32}", NULL },
    { LLAMA ",'head_dim':33}", "model.head_dim is 33, an odd number" },
    { LLAMA ",'head_dim':6}", "(24) is not a multiple of 16" },
    { LLAMA ",'attention_bias':true,'mlp_bias':true}", NULL },
    { LLAMA ",'attention_bias':1}", "attention_bias is neither" },
    { LLAMA ",'hidden_act':'gelu_pytorch_tanh'}", NULL },
    { LLAMA ",'hidden_act':'relu'}", "hidden_act is 'relu'" },
    { LLAMA ",'hidden_act':null}", "hidden_act is null" },
    { LLAMA ",'quantization_config':{}}",
      "quantization_config: the weights are quantized (of a kind" },
    { LLAMA ",'quantization_config':{'quant_method':'gptq','bits':4}}",
      "quantized (gptq), which are not read: take the model as it was" },
    { LLAMA ",'rms_norm_eps':0}", "rms_norm_eps is 0" },
    { LLAMA ",'rms_norm_eps':'x'}", "rms_norm_eps is 'x'" },
    { LLAMA ",'tie_word_embeddings':1}", "neither true nor false" },
    { LLAMA ",'hidden_size':64}", "duplicate" },
    { LLAMA ",'max_position_embeddings':1e9}", "max_position_embeddings" },
    { LLAMA ",'max_position_embeddings':99999999999}",
      "max_position_embeddings" },
    { LLAMA, "no JSON" },
    { MISTRAL ",'sliding_window':null}", NULL },
    { MISTRAL ",'sliding_window':4096}", NULL },
    { MISTRAL ",'sliding_window':4096,'max_position_embeddings':4096}", NULL },
    { MISTRAL ",'sliding_window':-1}", "sliding_window is -1" },
    { MISTRAL ",'sliding_window':null,'attention_bias':true}",
      "attention_bias is true" },
    { MISTRAL ",'sliding_window':null,'attention_bias':false}", NULL },
    { LLAMA
      ",'unsloth_version':'2024.9','unsloth_fixed':true,'_attn_implementation':"
      "'sdpa','attn_implementation':null,'max_sequence_length':2048,'"
      "temperature':0.5,'max_length':4096,'gradient_checkpointing':false,'"
      "quantization_config':null,'pruned_heads':{}}",
      NULL },
    { LLAMA ",'pruned_heads':{'1':[0]}}", "pruned_heads is" },
    { LLAMA ",'sliding_window':64}", "sliding_window is 64" },
    { MISTRAL "}", NULL },
    { GPT2 ",'activation_function':'gelu'}", NULL },
    { GPT2 "}", NULL },
    { GPT2 ",'activation_function':'relu'}", "activation_function is 'relu'" },
    { GPT2 ",'activation_function':'gelu','n_inner':null}", NULL },
    { MPT "}", NULL },
    { MPT ",'attn_config':{'alibi':false}}", "attn_config.alibi is false" },
    { MPT ",'attn_config':{'clip_qkv':6,'x':1}}", "attn_config.x is not" },
    { MPT ",'attn_config':{'alibi_bias_max':4}}",
      "attn_config.alibi_bias_max is 4" },
    { MPT ",'logit_scale':'inv_sqrt_d_model'}", "logit_scale is" },
    { "{'architectures':['Qwen2ForCausalLM']}", "no vocab_size" },
    { PHI3 "}", NULL },
    { PHI3 ",'sliding_window':2047}", NULL },
    { PHI3 ",'rope_scaling':{'type':'longrope','long_factor':[1]}}",
      "rope_scaling.type is 'longrope'" },
    { PHI3 ",'rope_scaling':{'rope_type':'yarn','factor':4},"
           "'original_max_position_embeddings':32}",
      "rope_scaling.rope_type is 'yarn'" },
    { QWEN3 "}", NULL },
    { QWEN3 ",'head_dim':512}", "model.head_dim is 512" },
    { OLMO2 "}", NULL },
    { OLMO2 ",'attention_bias':true}", "attention_bias is true" },
    { OLMO3 "}", NULL },
    { OLMO3 ",'layer_types':['sliding_attention','full_attention']}", NULL },
    { OLMO3 ",'layer_types':['full_attention','sliding_attention']}",
      "layer_types[1]: layers without a window are no multiples" },
    { OLMO3 ",'layer_types':['sliding_attention']}",
      "layer_types is no array" },
    { OLMO3 ",'layer_types':['sliding_attention','chunked_attention']}",
      "chunked_attention" },
    { GEMMA3 "}", NULL },
    { GEMMA3 ",'sliding_window_pattern':3,'rope_scaling':null}", NULL },
    { GEMMA3 ",'final_logit_softcapping':30.0}",
      "final_logit_softcapping is 30" },
    { GEMMA3 ",'use_bidirectional_attention':true}",
      "use_bidirectional_attention is true" },
    { "{'architectures':['Gemma3ForConditionalGeneration']}",
      "architecture Gemma3ForConditionalGeneration" },
    { SMOLLM3 "}", NULL },
    { SMOLLM3 ",'no_rope_layers':[1,0]}", NULL },
    { SMOLLM3 ",'no_rope_layers':[0,1]}", "no_rope_layers[1]" },
    { SMOLLM3 ",'no_rope_layers':[1,2]}", "no_rope_layers[1]" },
    { SMOLLM3 ",'no_rope_layers':[1]}", "no_rope_layers is no array" },
    { SMOLLM3 ",'no_rope_layer_interval':0}", "no_rope_layer_interval is 0" },
    { SMOLLM3 ",'layer_types':['full_attention','sliding_attention']}",
      "layer_types[1] is" },
    { QWEN3 ",'attention_bias':true}", "attention_bias is true" },
    { QWEN3_MOE "}", NULL },
    { QWEN3_MOE ",'decoder_sparse_step':2}", "decoder_sparse_step is 2" },
    { QWEN3_MOE ",'mlp_only_layers':[0]}", "mlp_only_layers is [0]" },
    { QWEN3_MOE ",'norm_topk_prob':1}", "norm_topk_prob is neither" },
    { QWEN3_MOE ",'num_experts':512}", "num_experts is 512" },
    { "{'architectures':['T5Model']}", "architecture T5Model" },
    { "{'architectures':[]}", "architectures is no array" },
    { "{'architectures':['LlamaForCausalLM']}", "no vocab_size" },
    { "{}", "neither architectures nor model_type" },
    { "[]", "no JSON object" },
    { "", "no JSON object" },
};

static enum err parse(const char *text, enum arch *arch,
                      struct model_config *model)
{
    const char *json = quoted(text);
    return hf_config_parse(json, strlen(json), "c", arch, model);
}

static void test_read(void)
{
    enum arch arch;
    struct model_config model;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *want = cases[i].error;
        enum err rc = parse(cases[i].text, &arch, &model);
        tap_ok(want == NULL
                   ? rc == ERR_OK
                   : rc != ERR_OK && strstr(err_text(), quoted(want)) != NULL,
               "%s: %s", cases[i].text, rc == ERR_OK ? "read" : err_text());
    }
    tap_ok(parse(LLAMA ",'rope_parameters':{'rope_theta':5e5},"
                       "'rms_norm_eps':1e-5,'tie_word_embeddings':true}",
                 &arch, &model) == ERR_OK,
           "a Llama");
    tap_ok(arch == ARCH_LLAMA && model.d_model == 64 && model.n_kv_heads == 2 &&
               model.ffn_width == 96 && model.rope_theta == 5e5 &&
               model.norm_eps == 1e-5 && model.tied && !model.bias &&
               model.positions == POSITIONS_ROPE && model.max_seq_len == 2048,
           "is what its file says");
    tap_ok(parse(GPT2 ",'activation_function':'gelu'}", &arch, &model) ==
                   ERR_OK &&
               model.activation == MODEL_GELU && model.ffn_width == 256 &&
               model.n_kv_heads == 4 && model.bias &&
               model.dropout_attention == 0.1,
           "a GPT-2 has its class's defaults");
    tap_ok(
        parse(LLAMA LLAMA3("8", "1", "4", "8192"), &arch, &model) == ERR_OK &&
            model.rope_scaling == ROPE_SCALING_LLAMA3 &&
            model.rope_factor == 8 && model.rope_low_freq_factor == 1 &&
            model.rope_high_freq_factor == 4 && model.rope_original_len == 8192,
        "angles are scaled as their file says");
}

/* Whatever changes, reading ends; what is accepted has parameters. */
static void test_mutations(void)
{
    static const char *const seeds[] = {
        LLAMA ",'rope_theta':1e4,'head_dim':16,'rms_norm_eps':1e-5}",
        MPT ",'attn_config':{'clip_qkv':6,'alibi':true}}",
    };
    static const char bytes[] = "{}[]\",:\\0129-eE. \x80\xff\n";
    int accepted = 0;
    for (uint64_t round = 0; round < 4000; round++) {
        char text[512];
        enum arch arch;
        struct model_config model;
        struct params *params = NULL;
        snprintf(text, sizeof text, "%s", quoted(seeds[round % 2]));
        size_t length = strlen(text);
        for (uint64_t k = 0; k <= round % 3; k++) {
            uint32_t random = (uint32_t)(rng_u64(23, round, k) >> 32);
            text[random % length] = bytes[random / 1000 % (sizeof bytes - 1)];
        }
        if (hf_config_parse(text, length, "c", &arch, &model) != ERR_OK)
            continue;
        accepted++;
        if (params_create(&model, &params) != ERR_OK || params->numel <= 0)
            accepted += 100000;
        params_destroy(params);
    }
    tap_ok(accepted > 0 && accepted < 4000,
           "of 4000 changed files %d are accepted", accepted);
}

#define VOCAB(added)                                                           \
    "{\"model\":{\"vocab\":{\"a\":0,\"b\":1}},\"added_tokens\":[" added "]}"
#define LIST "{\"model\":{\"vocab\":[[\"a\",0.5],[\"b\",1]]}}"
#define END "{\"id\":2,\"content\":\"<e>\"}"

/* Tokens that the files beside the weights name, or the error. */
static const struct {
    const char *tokenizer, *named, *generation, *config, *error;
    int64_t vocab;
    int32_t bos, eos, pad;
} tokens[] = {
    { VOCAB(END), "{\"bos_token\":\"a\",\"eos_token\":{\"content\":\"<e>\"}}",
      NULL, "{\"pad_token_id\":1}", NULL, 3, 0, 2, 1 },
    { LIST, "{\"eos_token\":\"b\",\"pad_token\":\"a\"}",
      "{\"eos_token_id\":[0,1]}", "{\"bos_token_id\":0}", NULL, 2, 0, 1, 0 },
    { NULL, "{\"eos_token\":\"x\"}", "{\"eos_token_id\":[null,7]}", NULL, NULL,
      0, -1, 7, -1 },
    { VOCAB(END), NULL, NULL, "{\"eos_token_id\":null,\"pad_token_id\":9}",
      NULL, 3, -1, -1, -1 },
    { "{\"model\":1}", NULL, NULL, NULL, "no model.vocab", 0, 0, 0, 0 },
    { "{", NULL, NULL, NULL, "tokenizer.json: line 1: no JSON", 0, 0, 0, 0 },
    { LIST, "[]", NULL, NULL, "tokenizer_config.json", 0, 0, 0, 0 },
    { VOCAB("{\"id\":-1}"), NULL, NULL, NULL, "whole number", 0, 0, 0, 0 },
    { "{\"model\":{\"vocab\":{\"a\":\"b\"}}}", NULL, NULL, NULL, "whole number",
      0, 0, 0, 0 },
    { LIST, "{\"eos_token\":\"x\"}", NULL, NULL, "'x', which is no token", 0, 0,
      0, 0 },
    { LIST, "{\"bos_token\":7}", NULL, NULL, "'?', which is no token", 0, 0, 0,
      0 },
    { LIST, NULL, "{\"eos_token_id\":\"b\"}", NULL, "no number of a token", 0,
      0, 0, 0 },
    { LIST, NULL, NULL, "{\"eos_token_id\":2}", "token 2 begins or ends", 0, 0,
      0, 0 },
    { LIST, NULL, NULL, "[1]", "config.json", 0, 0, 0, 0 },
};

static void test_tokens(void)
{
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
        struct hf_files files = { .text = { NULL } };
        struct hf_tokens out;
        const char *texts[] = { [HF_FILE_TOKENIZER] = tokens[i].tokenizer,
                                [HF_FILE_TOKENIZER_CONFIG] = tokens[i].named,
                                [HF_FILE_GENERATION_CONFIG] =
                                    tokens[i].generation };
        const char *config = tokens[i].config;
        for (int f = 0; f < HF_FILES; f++) {
            files.text[f] = (char *)(uintptr_t)texts[f];
            files.bytes[f] = texts[f] != NULL ? strlen(texts[f]) : 0;
        }
        enum err rc = hf_files_tokens(
            &files, "w", config, config != NULL ? strlen(config) : 0, &out);
        if (tokens[i].error != NULL)
            tap_ok(rc == (strstr(tokens[i].error, "which is no") != NULL
                              ? ERR_UNSUPPORTED
                              : ERR_DATA) &&
                       strstr(err_text(), tokens[i].error) != NULL,
                   "tokens %zu are refused: %s", i, tokens[i].error);
        else
            tap_ok(rc == ERR_OK && out.vocab == tokens[i].vocab &&
                       out.bos == tokens[i].bos && out.eos == tokens[i].eos &&
                       out.pad == tokens[i].pad,
                   "tokens %zu", i);
        free(out.generation);
    }
}

int main(void)
{
    test_read();
    test_tokens();
    test_mutations();
    return tap_done();
}
