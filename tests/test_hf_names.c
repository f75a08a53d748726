/* Models as config.json and back, those that no architecture can express, and the
 * names and places of tensors: every row of every parameter has exactly one slice. */
#include "src/formats/hf/hf_names.h"

#include "src/formats/hf/hf_config.h"
#include "tests/tap.h"

static const struct {
    char *preset, *changes;
    enum arch arch;
    int parts; /* slices more than parameters, of each layer */
} models[] = {
    { "mpt-125m", "", ARCH_GPT2, 0 },
    { "mpt-125m", "activation=gelu_tanh", ARCH_GPT2, 0 },
    { "mpt-7b-released", "", ARCH_MPT, 0 },
    { "llama3-8b", "", ARCH_LLAMA, 2 },
    { "llama3-8b", "qkv_bias=true out_bias=true mlp_bias=true", ARCH_LLAMA, 4 },
    { "llama3-8b",
      "rope_scaling=llama3 rope_factor=8 rope_low_freq_factor=1 "
      "rope_high_freq_factor=4 rope_original_len=8192",
      ARCH_LLAMA, 2 },
    { "llama-tiny", "", ARCH_MISTRAL, 2 },
    { "llama-tiny", "qkv_bias=true rope_scaling=linear rope_factor=2",
      ARCH_QWEN2, 4 },
    { "llama-tiny", "qk_norm=head head_dim=48", ARCH_QWEN3, 2 },
    { "llama-tiny", "window=16", ARCH_MISTRAL, 2 },
    { "llama-tiny", "qk_norm=full norm_place=after", ARCH_OLMO2, 2 },
    { "llama-tiny",
      "qk_norm=full norm_place=after window=16 window_interval=3 "
      "window_rope_theta=5e5 rope_scaling=linear rope_factor=4",
      ARCH_OLMO3, 2 },
    { "llama-tiny",
      "qk_norm=head head_dim=48 norm_place=around norm_plus_one=true "
      "activation=gelu_tanh window=16 window_interval=6 window_rope_theta=1e4 "
      "embedding_scale=11.313708498984761 " /* sqrt(d_model) */
      "attention_scale=0.07715167498104596",
      ARCH_GEMMA3, 2 },
    { "llama-tiny",
      "no_rope_interval=3 rope_scaling=yarn rope_factor=4 rope_original_len=64 "
      "rope_beta_slow=2 rope_attention_factor=1.25",
      ARCH_SMOLLM3, 2 },
    { "dbrx",
      "norm=rmsnorm clip_qkv=0 qk_norm=head head_dim=48 router_normalize=0",
      ARCH_QWEN3_MOE, 2 + 3 * 15 },
    { "dbrx", "", ARCH_DBRX, 0 },
    { "dbrx", "norm=rmsnorm clip_qkv=0", ARCH_MIXTRAL, 2 + 3 * 15 },
};

/* The preset with its changes, which are settings. */
static bool make_model(int i, struct model_config *model)
{
    struct model_config changed;
    struct settings_origin origins[128];
    char text[512], *words[16], *rest = NULL;
    int count = 0;
    snprintf(text, sizeof text, "%s", models[i].changes);
    for (char *word = strtok_r(text, " ", &rest); word != NULL;
         word = strtok_r(NULL, " ", &rest))
        words[count++] = word;
    if (model_config_preset(models[i].preset, model) != ERR_OK ||
        settings_load(model_known_rows, model_known_row_count, NULL, words,
                      count, &changed, origins) != ERR_OK)
        return false;
    for (const struct setting *row = model_known_rows;
         row < model_known_rows + model_known_row_count; row++)
        if (settings_given(model_known_rows, model_known_row_count, origins,
                           row->key))
            settings_copy(row, &changed, model);
    return model_config_check(model) == ERR_OK;
}

static void test_slices(enum arch arch, const struct model_config *model,
                        int parts)
{
    struct params *params = NULL;
    struct hf_names *names = NULL;
    int64_t vocab = model->vocab_size - 3;
    bool made = params_create(model, &params) == ERR_OK &&
                hf_names_create(&arch_rows[arch].hf, model, params, vocab,
                                &names) == ERR_OK;
    tap_ok(made, "%s: pieces: %s", arch_rows[arch].hf.name,
           made ? "" : err_text());
    if (made) {
        int wrong = 0;
        int param = -1;
        int64_t next = 0;
        for (int i = 0; i < names->count; i++) {
            const struct hf_slice *slice = &names->list[i];
            const struct param *ours = &params->list[slice->param];
            if (slice->param != param) {
                param++;
                next = 0;
            }
            wrong += slice->param != param || slice->row != next;
            next += slice->rows;
            bool last = i + 1 == names->count || slice[1].param != param;
            bool words = ours->role == PARAM_WTE || ours->role == PARAM_LM_HEAD;
            wrong += last && next != (words ? vocab : ours->shape[0]);
            int64_t cols = ours->dims == 1 ? 1 : ours->shape[1];
            int64_t side = ours->dims == 1 ? 1 : slice->shape[1];
            wrong += slice->shape[0] * side != slice->rows * cols;
        }
        tap_is_int(wrong, 0, "cover every row once, in order");
        tap_is_int(names->count - params->count, parts * model->n_layers,
                   "as many as there should be");
    }
    hf_names_destroy(names);
    params_destroy(params);
}

static void test_both_ways(void)
{
    struct model_config model;
    for (int i = 0; i < (int)(sizeof models / sizeof models[0]); i++) {
        char *text = NULL;
        enum arch arch;
        struct model_config again;
        if (!tap_ok(make_model(i, &model), "%s", models[i].preset))
            continue;
        enum err rc = hf_config_text(models[i].arch, &model, "bfloat16", &text);
        tap_ok(rc == ERR_OK, "as %s: %s", arch_rows[models[i].arch].hf.name,
               rc == ERR_OK ? "" : err_text());
        if (rc == ERR_OK)
            tap_ok(hf_config_parse(text, strlen(text), "c", &arch, &again) ==
                           ERR_OK &&
                       arch == models[i].arch &&
                       model_config_param_count(&model) ==
                           model_config_param_count(&again),
                   "and back");
        free(text);
        test_slices(models[i].arch, &model, models[i].parts);
        if (models[i].arch == ARCH_MISTRAL && models[i].changes[0] == '\0')
            continue;
        tap_ok(hf_config_choose(&model, &arch) == ERR_OK &&
                   arch == models[i].arch,
               "it is what is chosen");
    }
}

static void test_not_expressed(void)
{
    struct model_config model;
    enum arch arch;
    char *text = NULL;
    struct params *params = NULL;
    struct hf_names *names = NULL;
    (void)make_model(3, &model);
    model.clip_qkv = 8;
    tap_ok(hf_config_text(ARCH_LLAMA, &model, "float32", &text) ==
                   ERR_UNSUPPORTED &&
               strstr(err_text(), "model.clip_qkv") != NULL,
           "refused: %s", err_text());
    tap_ok(hf_config_choose(&model, &arch) == ERR_UNSUPPORTED, "by all: %s",
           err_text());
    model.clip_qkv = 0;
    struct model_config mpt;
    tap_ok(make_model(2, &mpt) && (mpt.alibi_bias_max = 4) > 0 &&
               hf_config_text(ARCH_MPT, &mpt, "float32", &text) ==
                   ERR_UNSUPPORTED &&
               strstr(err_text(), "model.alibi_bias_max") != NULL,
           "refused: %s", err_text());
    model.qkv_bias = true;
    tap_ok(hf_config_text(ARCH_LLAMA, &model, "float32", &text) ==
                   ERR_UNSUPPORTED &&
               strstr(err_text(), "biases of queries") != NULL,
           "refused: %s", err_text());
    model.qkv_bias = false;
    model.bias = true;
    tap_ok(params_create(&model, &params) == ERR_OK &&
               hf_names_create(&arch_rows[ARCH_QWEN2].hf, &model, params,
                               model.vocab_size, &names) == ERR_UNSUPPORTED,
           "a parameter without a tensor: %s", err_text());
    params_destroy(params);
}

static void test_names(void)
{
    static const char *const want[] = {
        "model.embed_tokens.weight",
        "model.layers.0.input_layernorm.weight",
        "model.layers.0.self_attn.q_proj.weight",
        "model.layers.0.self_attn.k_proj.weight",
        "model.layers.0.self_attn.v_proj.weight",
        "model.layers.0.self_attn.o_proj.weight",
        "model.layers.0.post_attention_layernorm.weight",
        "model.layers.0.block_sparse_moe.gate.weight",
        "model.layers.0.block_sparse_moe.experts.0.w1.weight",
        "model.layers.0.block_sparse_moe.experts.1.w1.weight",
        "model.layers.0.block_sparse_moe.experts.0.w3.weight",
        "model.layers.0.block_sparse_moe.experts.1.w3.weight",
        "model.layers.0.block_sparse_moe.experts.0.w2.weight",
        "model.layers.0.block_sparse_moe.experts.1.w2.weight",
        "model.norm.weight",
        "lm_head.weight",
    };
    struct model_config model;
    struct params *params = NULL;
    struct hf_names *names = NULL;
    (void)make_model((int)(sizeof models / sizeof *models) - 1, &model);
    model.n_layers = 1;
    model.experts = 2;
    model.experts_top_k = 1;
    if (!tap_ok(params_create(&model, &params) == ERR_OK &&
                    hf_names_create(&arch_rows[ARCH_MIXTRAL].hf, &model, params,
                                    model.vocab_size, &names) == ERR_OK,
                "a Mixtral of one layer"))
        return;
    int count = (int)(sizeof want / sizeof want[0]);
    tap_is_int(names->count, count, "its tensors");
    for (int i = 0; i < count && i < names->count; i++)
        tap_is_str(names->list[i].name, want[i], "name %d", i);
    const struct hf_slice *down = &names->list[13];
    tap_ok(down->transposed && down->shape[0] == model.d_model &&
               down->shape[1] == model.ffn_width &&
               down->row == model.ffn_width,
           "an expert's way down lies transposed");
    tap_ok(hf_names_is_buffer(ARCH_GPT2, "h.3.attn.bias") &&
               !hf_names_is_buffer(ARCH_GPT2, "h.3.attn.c_attn.bias"),
           "a mask is told from a bias");
    hf_names_destroy(names);
    params_destroy(params);
}

int main(void)
{
    test_both_ways();
    test_not_expressed();
    test_names();
    return tap_done();
}
