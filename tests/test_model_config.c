/* Published parameter counts, the table of tensors and their fresh values, and
 * what a configuration may not be. */
#include "src/model/model_config.h"

#include "kernels/kernels.h"
#include "src/model/block_embed.h"
#include "src/model/params.h"
#include "tests/tap.h"

/* --- counts --- */

static void test_counts(void)
{
    static const struct {
        const char *preset;
        long long total;
        long long active;
    } cases[] = {
        { "mpt-125m", 125311488, 125311488 },
        { "mpt-350m", 355985408, 355985408 },
        { "mpt-760m", 760470528, 760470528 },
        { "mpt-1b", 1315950592, 1315950592 },
        { "mpt-3b", 2651837440, 2651837440 },
        { "mpt-7b", 6658859008, 6658859008 },
        { "mpt-13b", 12853954560, 12853954560 },
        { "mpt-30b", 29975214080, 29975214080 },
        { "mpt-70b", 64862437376, 64862437376 },
        { "mpt-7b-released", 6649286656, 6649286656 },
        { "mpt-30b-released", 29957200896, 29957200896 },
        { "smollm2-135m", 134515008, 134515008 },
        { "llama3-8b", 8030261248, 8030261248 },
        { "dbrx", 131596523520, 36469708800 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct model_config config;
        struct params *params = NULL;
        if (!tap_ok(model_config_preset(cases[i].preset, &config) == ERR_OK &&
                        model_config_check(&config) == ERR_OK,
                    "%s is a preset", cases[i].preset))
            continue;
        tap_is_int(model_config_param_count(&config), cases[i].total,
                   "%s has the published number of parameters",
                   cases[i].preset);
        tap_is_int(model_config_active_count(&config), cases[i].active,
                   "%s: so many take part in one token", cases[i].preset);
        tap_ok(params_create(&config, &params) == ERR_OK &&
                   params->numel == cases[i].total,
               "%s: the table of tensors adds up to it", cases[i].preset);
        params_destroy(params);
    }
}

static void test_presets(void)
{
    struct model_config config;
    int count = 0;
    bool fine = true;
    for (; count < model_preset_weights; count++)
        fine &=
            model_config_preset(model_preset_names[count], &config) == ERR_OK &&
            config.preset == count && model_config_check(&config) == ERR_OK;
    tap_ok(fine && count == 17, "all %d presets of the list are valid", count);
    tap_ok(model_preset_names[count + 1] == NULL &&
               model_config_preset(model_preset_names[count], &config) ==
                   ERR_USAGE &&
               strstr(err_text(), "model.weights") != NULL,
           "but for '%s', which is that of other weights",
           model_preset_names[count]);
}

/* P: of the publication, without what no matrix product reads. */
static void test_flops(void)
{
    static const struct {
        const char *preset;
        double multiplied;
        double multiplied_causal;
        double layers, width, seq;
    } cases[] = {
        { "mpt-125m", 125311488.0, 123738624.0, 12, 768, 2048 },
        { "mpt-7b-released", 6649286656.0, 6649286656.0, 32, 4096, 2048 },
        { "llama3-8b", 7504924672.0, 7504924672.0, 32, 4096, 8192 },
        { "dbrx", 35853146112.0, 35853146112.0, 40, 6144, 4096 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct model_config config;
        double s = cases[i].seq;
        double pairs = cases[i].layers * cases[i].width * s * s;
        (void)model_config_preset(cases[i].preset, &config);
        tap_is_close(model_config_flops_per_sequence(&config, (int64_t)s),
                     6.0 * cases[i].multiplied * s + 12.0 * pairs, 1e-12,
                     "%s: FLOPs per sequence", cases[i].preset);
        tap_is_close(
            model_config_flops_per_sequence_causal(&config, (int64_t)s),
            6.0 * cases[i].multiplied_causal * s + 6.0 * pairs, 1e-12,
            "%s: causal FLOPs per sequence", cases[i].preset);
    }
}

/* Exponents of 2, for a largest bias of 8. */
static void test_slopes(void)
{
    static const struct {
        int heads;
        double exponents[20];
    } cases[] = {
        { 8, { -1, -2, -3, -4, -5, -6, -7, -8 } },
        { 12, { -1, -2, -3, -4, -5, -6, -7, -8, -0.5, -1.5, -2.5, -3.5 } },
        { 20, { -0.5, -1, -1.5, -2, -2.5, -3, -3.5,  -4,    -4.5,  -5,
                -5.5, -6, -6.5, -7, -7.5, -8, -0.25, -0.75, -1.25, -1.75 } },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct model_config config = { .n_heads = cases[i].heads,
                                       .alibi_bias_max = 8.0 };
        float slopes[21];
        bool fine = true;
        slopes[cases[i].heads] = 42.0f;
        model_config_alibi_slopes(&config, slopes);
        for (int h = 0; h < cases[i].heads; h++)
            fine &=
                fabs((double)slopes[h] - exp2(cases[i].exponents[h])) < 1e-7;
        tap_ok(fine && slopes[cases[i].heads] == 42.0f, "slopes of %d heads",
               cases[i].heads);
    }
}

/* --- what a configuration may not be --- */

#define WRONG(what, ...)                                                       \
    static void wrong_##what(struct model_config *c)                           \
    {                                                                          \
        __VA_ARGS__;                                                           \
    }
WRONG(heads, c->n_heads = 3)
WRONG(kv, c->n_kv_heads = 3)
WRONG(width, c->d_model = 120)
WRONG(ffn, c->ffn_width = 40)
WRONG(no_ffn, c->ffn_width = 0)
WRONG(overflow, c->ffn_width = INT64_MIN)
WRONG(no_layers, c->n_layers = 0)
WRONG(head_dim, c->d_model = 2048)
WRONG(baseline, c->init = MODEL_INIT_BASELINE)
WRONG(pairs, c->positions = POSITIONS_ROPE; c->d_model = 48;
      c->n_heads = c->n_kv_heads = 16)
WRONG(odd_head, c->positions = POSITIONS_ROPE; c->head_dim = 33)
WRONG(own_head_dim, c->head_dim = 257)
WRONG(queries, c->head_dim = 6; c->n_heads = c->n_kv_heads = 4)
WRONG(after, c->bias = false; c->norm_place = NORM_AFTER;
      c->experts = c->experts_top_k = 4)
WRONG(top_k, c->experts = 4; c->experts_top_k = 5)
WRONG(no_choice, c->experts = 4)
WRONG(twice, c->out_bias = true)
WRONG(expert_bias, c->bias = false; c->mlp_bias = true;
      c->experts = c->experts_top_k = 4)

static void test_failures(void)
{
    static const struct {
        void (*spoil)(struct model_config *config);
        const char *text;
    } cases[] = {
        { wrong_heads, "not divisible by model.n_heads" },
        { wrong_kv, "model.n_kv_heads" },
        { wrong_width, "model.d_model (120) is not a multiple of 16" },
        { wrong_ffn, "model.ffn_width" },
        { wrong_no_ffn, "model.ffn_width" },
        { wrong_overflow, "model.ffn_width" },
        { wrong_no_layers, "model.n_layers is 0" },
        { wrong_head_dim, "at most 256" },
        { wrong_baseline, "model.init_std" },
        { wrong_pairs, "rope" },
        { wrong_odd_head, "model.head_dim is 33, an odd number" },
        { wrong_own_head_dim, "model.head_dim is 257" },
        { wrong_queries, "model.head_dim (24) is not a multiple of 16" },
        { wrong_after, "model.norm_place = \"after\"" },
        { wrong_top_k, "model.experts_top_k (5)" },
        { wrong_no_choice, "model.experts_top_k (0)" },
        { wrong_twice, "model.out_bias = true" },
        { wrong_expert_bias, "experts have no biases" },
    };
    struct model_config config;
    tap_ok(model_config_preset("mpt-126m", &config) == ERR_USAGE &&
               strstr(err_text(), "'mpt-126m'") != NULL,
           "an unknown preset is refused by its name");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        (void)model_config_preset("mpt-tiny", &config);
        cases[i].spoil(&config);
        tap_ok(model_config_check(&config) == ERR_USAGE &&
                   strstr(err_text(), cases[i].text) != NULL,
               "refused: %s", cases[i].text);
    }
}

/* --- the table of tensors --- */

#define LAYOUT .d_model = 64, .n_heads = 4, .vocab_size = 100, .max_seq_len = 20

/* A line per tensor of the embeddings, the first block and the end. */
static const struct {
    const char *name;
    struct model_config config;
    const char *tensors;
} layouts[] = {
    { "mpt",
      { LAYOUT, .n_kv_heads = 4, .n_layers = 2, .ffn_width = 80, .bias = true,
        .tied = true },
      "transformer.wte.weight 100 64\n"
      "transformer.wpe.weight 20 64\n"
      "transformer.blocks.0.norm_1.weight 64\n"
      "transformer.blocks.0.norm_1.bias 64\n"
      "transformer.blocks.0.attn.Wqkv.weight 192 64\n"
      "transformer.blocks.0.attn.Wqkv.bias 192\n"
      "transformer.blocks.0.attn.out_proj.weight 64 64\n"
      "transformer.blocks.0.attn.out_proj.bias 64\n"
      "transformer.blocks.0.norm_2.weight 64\n"
      "transformer.blocks.0.norm_2.bias 64\n"
      "transformer.blocks.0.ffn.up_proj.weight 80 64\n"
      "transformer.blocks.0.ffn.up_proj.bias 80\n"
      "transformer.blocks.0.ffn.down_proj.weight 64 80\n"
      "transformer.blocks.0.ffn.down_proj.bias 64\n"
      "transformer.norm_f.weight 64\n"
      "transformer.norm_f.bias 64\n" },
    { "gated, qk norm, untied",
      { LAYOUT, .n_kv_heads = 2, .n_layers = 2, .ffn_width = 80, .bias = true,
        .positions = POSITIONS_ROPE, .ffn = FFN_GLU, .qk_norm = QK_NORM_FULL },
      "transformer.wte.weight 100 64\n"
      "transformer.blocks.0.norm_1.weight 64\n"
      "transformer.blocks.0.norm_1.bias 64\n"
      "transformer.blocks.0.attn.Wqkv.weight 128 64\n"
      "transformer.blocks.0.attn.Wqkv.bias 128\n"
      "transformer.blocks.0.attn.q_ln.weight 64\n"
      "transformer.blocks.0.attn.q_ln.bias 64\n"
      "transformer.blocks.0.attn.k_ln.weight 32\n"
      "transformer.blocks.0.attn.k_ln.bias 32\n"
      "transformer.blocks.0.attn.out_proj.weight 64 64\n"
      "transformer.blocks.0.attn.out_proj.bias 64\n"
      "transformer.blocks.0.norm_2.weight 64\n"
      "transformer.blocks.0.norm_2.bias 64\n"
      "transformer.blocks.0.ffn.gate_proj.weight 80 64\n"
      "transformer.blocks.0.ffn.up_proj.weight 80 64\n"
      "transformer.blocks.0.ffn.gate_proj.bias 80\n"
      "transformer.blocks.0.ffn.up_proj.bias 80\n"
      "transformer.blocks.0.ffn.down_proj.weight 64 80\n"
      "transformer.blocks.0.ffn.down_proj.bias 64\n"
      "transformer.norm_f.weight 64\n"
      "transformer.norm_f.bias 64\n"
      "lm_head.weight 100 64\n" },
    { "wide heads, qk norms, rms",
      { LAYOUT, .n_kv_heads = 2, .n_layers = 2, .ffn_width = 80, .head_dim = 24,
        .tied = true, .norm = MODEL_NORM_RMSNORM, .qkv_bias = true,
        .positions = POSITIONS_ROPE, .qk_norm = QK_NORM_FULL },
      "transformer.wte.weight 100 64\n"
      "transformer.blocks.0.norm_1.weight 64\n"
      "transformer.blocks.0.attn.Wqkv.weight 192 64\n"
      "transformer.blocks.0.attn.Wqkv.bias 192\n"
      "transformer.blocks.0.attn.q_ln.weight 96\n"
      "transformer.blocks.0.attn.k_ln.weight 48\n"
      "transformer.blocks.0.attn.out_proj.weight 64 96\n"
      "transformer.blocks.0.norm_2.weight 64\n"
      "transformer.blocks.0.ffn.up_proj.weight 80 64\n"
      "transformer.blocks.0.ffn.down_proj.weight 64 80\n"
      "transformer.norm_f.weight 64\n" },
    { "biases of queries, keys and values, and of a gated MLP",
      { LAYOUT, .n_kv_heads = 2, .n_layers = 1, .ffn_width = 48,
        .qkv_bias = true, .mlp_bias = true, .positions = POSITIONS_ROPE,
        .ffn = FFN_GLU, .tied = true },
      "transformer.wte.weight 100 64\n"
      "transformer.blocks.0.norm_1.weight 64\n"
      "transformer.blocks.0.attn.Wqkv.weight 128 64\n"
      "transformer.blocks.0.attn.Wqkv.bias 128\n"
      "transformer.blocks.0.attn.out_proj.weight 64 64\n"
      "transformer.blocks.0.norm_2.weight 64\n"
      "transformer.blocks.0.ffn.gate_proj.weight 48 64\n"
      "transformer.blocks.0.ffn.up_proj.weight 48 64\n"
      "transformer.blocks.0.ffn.gate_proj.bias 48\n"
      "transformer.blocks.0.ffn.up_proj.bias 48\n"
      "transformer.blocks.0.ffn.down_proj.weight 64 48\n"
      "transformer.blocks.0.ffn.down_proj.bias 64\n"
      "transformer.norm_f.weight 64\n" },
    { "gated experts, RMSNorm",
      { LAYOUT, .n_kv_heads = 2, .n_layers = 2, .ffn_width = 48, .bias = true,
        .positions = POSITIONS_ALIBI, .norm = MODEL_NORM_RMSNORM,
        .ffn = FFN_GLU, .qk_norm = QK_NORM_HEAD, .tied = true, .experts = 3,
        .experts_top_k = 2 },
      "transformer.wte.weight 100 64\n"
      "transformer.blocks.0.norm_1.weight 64\n"
      "transformer.blocks.0.attn.Wqkv.weight 128 64\n"
      "transformer.blocks.0.attn.Wqkv.bias 128\n"
      "transformer.blocks.0.attn.q_ln.weight 16\n"
      "transformer.blocks.0.attn.k_ln.weight 16\n"
      "transformer.blocks.0.attn.out_proj.weight 64 64\n"
      "transformer.blocks.0.attn.out_proj.bias 64\n"
      "transformer.blocks.0.norm_2.weight 64\n"
      "transformer.blocks.0.ffn.router.layer.weight 3 64\n"
      "transformer.blocks.0.ffn.experts.mlp.w1 144 64\n"
      "transformer.blocks.0.ffn.experts.mlp.v1 144 64\n"
      "transformer.blocks.0.ffn.experts.mlp.w2 144 64\n"
      "transformer.norm_f.weight 64\n" },
    { "plain experts",
      { LAYOUT, .n_kv_heads = 4, .n_layers = 1, .ffn_width = 48,
        .positions = POSITIONS_ALIBI, .tied = true, .experts = 3,
        .experts_top_k = 2 },
      "transformer.wte.weight 100 64\n"
      "transformer.blocks.0.norm_1.weight 64\n"
      "transformer.blocks.0.attn.Wqkv.weight 192 64\n"
      "transformer.blocks.0.attn.out_proj.weight 64 64\n"
      "transformer.blocks.0.norm_2.weight 64\n"
      "transformer.blocks.0.ffn.router.layer.weight 3 64\n"
      "transformer.blocks.0.ffn.experts.mlp.w1 144 64\n"
      "transformer.blocks.0.ffn.experts.mlp.w2 144 64\n"
      "transformer.norm_f.weight 64\n" },
};

/* Of the table, without the blocks after the first. */
static void describe(const struct params *params, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < params->count; i++) {
        const struct param *param = &params->list[i];
        if (param->block > params->layer_blocks &&
            param->block < params->block_count - 1)
            continue;
        used += (size_t)snprintf(text + used, bytes - used, "%s %lld",
                                 param->name, (long long)param->shape[0]);
        if (param->dims == 2)
            used += (size_t)snprintf(text + used, bytes - used, " %lld",
                                     (long long)param->shape[1]);
        used += (size_t)snprintf(text + used, bytes - used, "\n");
    }
}

/* Places in the flat space. */
static bool well_placed(const struct params *params)
{
    bool fine = true;
    int64_t end = 0, numel = 0;
    for (int i = 0; i < params->count; i++) {
        const struct param *param = &params->list[i];
        const struct param_block *block = &params->blocks[param->block];
        fine &= param->offset % 16 == 0 && param->offset >= end;
        fine &= param->offset >= block->offset &&
                param->offset + param->numel <= block->offset + block->elements;
        fine &= block->place[param->role] == param->offset - block->offset;
        fine &= param->numel ==
                param->shape[0] * (param->dims == 2 ? param->shape[1] : 1);
        end = param->offset + param->numel;
        numel += param->numel;
    }
    return fine && numel == params->numel;
}

static bool blocks_in_chunks(const struct params *params)
{
    int64_t end = 0;
    bool fine = true;
    for (int b = 0; b < params->block_count; b++) {
        fine &= params->blocks[b].offset == end &&
                params->blocks[b].elements % KERNEL_CHUNK == 0;
        end += params->blocks[b].elements;
    }
    return fine && end == params->elements;
}

/* Embedding, layers with their experts, head; a kind of experts' matrices has
 * a block to itself. */
static bool kinds_in_order(const struct params *params)
{
    bool fine = true;
    for (int b = 0; b < params->block_count; b++) {
        enum param_block_kind want =
            b == 0                                ? PARAM_BLOCK_EMBEDDING
            : b + 1 == params->block_count        ? PARAM_BLOCK_HEAD
            : (b - 1) % params->layer_blocks == 0 ? PARAM_BLOCK_LAYER
                                                  : PARAM_BLOCK_EXPERTS;
        int tensors = 0;
        for (int i = 0; i < params->count; i++)
            tensors += params->list[i].block == b;
        fine &= params->blocks[b].kind == want;
        fine &= want != PARAM_BLOCK_EXPERTS || tensors == 1;
    }
    return fine;
}

/* What one product reads lies together. */
static bool gates_before_up(const struct params *params, int64_t width,
                            int64_t d)
{
    const int64_t *place = params->blocks[1].place;
    bool fine = place[PARAM_GATE_WEIGHT] < 0 ||
                place[PARAM_UP_WEIGHT] == place[PARAM_GATE_WEIGHT] + width * d;
    return fine && (place[PARAM_GATE_BIAS] < 0 ||
                    place[PARAM_UP_BIAS] == place[PARAM_GATE_BIAS] + width);
}

static void test_layouts(void)
{
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        const struct model_config *config = &layouts[i].config;
        struct params *params = NULL;
        char text[4096];
        if (!tap_ok(params_create(config, &params) == ERR_OK, "%s: a table",
                    layouts[i].name))
            continue;
        describe(params, text, sizeof text);
        tap_is_str(text, layouts[i].tensors, "%s: names, shapes and order",
                   layouts[i].name);
        tap_is_int(params->block_count,
                   config->n_layers * params->layer_blocks + 2, "%s: blocks",
                   layouts[i].name);
        tap_ok(kinds_in_order(params), "%s: the blocks' kinds",
               layouts[i].name);
        tap_ok(well_placed(params), "%s: aligned, apart, inside its block",
               layouts[i].name);
        tap_ok(blocks_in_chunks(params), "%s: blocks are whole chunks",
               layouts[i].name);
        tap_ok(gates_before_up(params, config->ffn_width, config->d_model),
               "%s: gates lie directly before up", layouts[i].name);
        params_destroy(params);
    }
}

/* --- what embeddings are multiplied by --- */

static float factor;

static enum err keep_factor KERNEL_LIKE(dropout)
{
    (void)ctx, (void)dtype, (void)samples, (void)elements, (void)p;
    (void)random, (void)x, (void)y;
    factor = scale;
    return ERR_OK;
}

/* Gemma 3's of 1B, as transformers has it. */
static void test_embedding(void)
{
    struct kernels kernels = { .dropout = keep_factor };
    struct model_config config = { .embedding_scale = sqrt(1152.0) };
    float x = 1;
    tap_ok(block_embed_scale(&kernels, NULL, &config, DTYPE_F32, 1, &x) ==
                   ERR_OK &&
               factor == 33.941125496954285f,
           "embeddings: times sqrt(d_model)");
    tap_ok(block_embed_scale(&kernels, NULL, &config, DTYPE_BF16, 1, &x) ==
                   ERR_OK &&
               factor == 34.0f,
           "... in bf16 rounded as transformers does");
    config.embedding_scale = 1;
    factor = 0;
    tap_ok(block_embed_scale(&kernels, NULL, &config, DTYPE_F32, 1, &x) ==
                   ERR_OK &&
               factor == 0,
           "... without a factor nothing is done");
}

int main(void)
{
    test_embedding();
    test_counts();
    test_presets();
    test_flops();
    test_slopes();
    test_failures();
    test_layouts();
    return tap_done();
}
