/* Names, shapes, places and first values of a model's parameters. Who keeps
 * them in a run is src/parallel's matter.
 *
 * All of a model is one flat space of numbers, block after block, and in a block
 * tensor after tensor. Blocks are what is gathered, sent and reduced, the flat
 * space is what is dealt to owners, and a tensor is only an interval with a name:
 * so whoever moves parameters needs no list of kinds. Blocks end at multiples of
 * KERNEL_CHUNK, over which sums of squares are made, so that no chunk has two
 * blocks' numbers, and the order of the sums is that of the space.
 *
 * A fresh value follows from seed, name and number of the element (Philox is
 * asked by place), so a rank can fill any interval, and a model's first values do
 * not change when a tensor is added elsewhere. */
#include "src/model/params.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/new.h"
#include "src/base/rng.h"

#define PARAM_ALIGN 16 /* floats: 64 bytes */

static int64_t round_up(int64_t value, int64_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

/* --- the block that is being laid out --- */

struct builder {
    const struct model_config *config;
    const struct params_tuning *tuning; /* NULL: all train */
    struct params *params;
    char prefix[64]; /* of names in this block */
};

static void open_in(struct params *params, enum param_block_kind kind)
{
    struct param_block *block = &params->blocks[params->block_count];
    assert(params->elements % KERNEL_CHUNK == 0);
    block->kind = kind;
    block->offset = params->elements;
    for (int role = 0; role < PARAM_ROLES; role++)
        block->place[role] = -1;
}

static void open_block(struct builder *b, enum param_block_kind kind)
{
    open_in(b->params, kind);
    if (b->params->frozen != NULL)
        open_in(b->params->frozen, kind);
}

static void close_in(struct params *params)
{
    struct param_block *block = &params->blocks[params->block_count++];
    params->elements = round_up(params->elements, KERNEL_CHUNK);
    block->elements = params->elements - block->offset;
}

static void close_block(struct builder *b)
{
    close_in(b->params);
    if (b->params->frozen != NULL)
        close_in(b->params->frozen);
}

/* cols 0: a vector. */
static struct param *add(struct builder *b, enum param_role role,
                         const char *name, int64_t rows, int64_t cols,
                         enum param_init init)
{
    struct param param = { .role = role, .init = init };
    snprintf(param.name, sizeof param.name, "%s%s", b->prefix, name);
    assert(strlen(b->prefix) + strlen(name) < sizeof param.name);
    struct params *params = params_tuning_freezes(b->tuning, &param)
                                ? b->params->frozen
                                : b->params;
    struct param_block *block = &params->blocks[params->block_count];
    assert(block->place[role] < 0); /* the block's first of the role */
    param.dims = cols > 0 ? 2 : 1;
    param.shape[0] = rows;
    param.shape[1] = cols;
    param.numel = cols > 0 ? rows * cols : rows;
    param.block = params->block_count;
    param.tail = param.numel;
    param.offset = params->elements;
    block->place[role] = param.offset - block->offset;
    params->numel += param.numel;
    params->elements += round_up(param.numel, PARAM_ALIGN);
    params->list[params->count] = param;
    return &params->list[params->count++];
}

static double init_std(const struct model_config *config, int64_t out,
                       int64_t in)
{
    switch (config->init) {
    case MODEL_INIT_KAIMING_NORMAL:
        return sqrt(2.0 / (double)in);
    case MODEL_INIT_KAIMING_UNIFORM:
        return sqrt(6.0 / (double)in);
    case MODEL_INIT_XAVIER_NORMAL:
        return sqrt(2.0 / (double)(in + out));
    case MODEL_INIT_XAVIER_UNIFORM:
        return sqrt(6.0 / (double)(in + out));
    case MODEL_INIT_SMALL:
    case MODEL_INIT_NEOX:
        return sqrt(2.0 / (5.0 * (double)config->d_model));
    case MODEL_INIT_BASELINE:
        break;
    }
    return config->init_std;
}

/* Deviation of the matrix that makes the logits, which is the embedding where
 * they are tied. Kaiming's gain is for a rectifier, and nothing follows the
 * logits: with it their variance would be 2, and a fresh model a nat worse than
 * one that knows nothing. */
static double logit_init_std(const struct model_config *config)
{
    double d = (double)config->d_model;
    switch (config->init) {
    case MODEL_INIT_KAIMING_NORMAL:
        return sqrt(PARAM_LOGIT_VARIANCE / d);
    case MODEL_INIT_KAIMING_UNIFORM:
        return sqrt(3.0 * PARAM_LOGIT_VARIANCE / d);
    default:
        return init_std(config, config->vocab_size, config->d_model);
    }
}

/* What matrices that write into the residual stream are divided by. */
static double residual_divisor(const struct model_config *config)
{
    double layers = (double)config->n_layers;
    return config->init == MODEL_INIT_NEOX ? layers / sqrt(10.0)
                                           : sqrt(2.0 * layers);
}

/* A matrix that maps `in` to `out`, whatever way it lies. */
static struct param *add_matrix(struct builder *b, enum param_role role,
                                const char *name, int64_t rows, int64_t cols,
                                int64_t out, int64_t in, bool residual)
{
    bool uniform = b->config->init == MODEL_INIT_KAIMING_UNIFORM ||
                   b->config->init == MODEL_INIT_XAVIER_UNIFORM;
    struct param *param = add(b, role, name, rows, cols,
                              uniform ? PARAM_INIT_UNIFORM : PARAM_INIT_NORMAL);
    param->init_std = init_std(b->config, out, in);
    if (residual)
        param->init_std /= residual_divisor(b->config);
    return param;
}

static void add_embedding(struct builder *b, enum param_role role,
                          const char *name, int64_t rows)
{
    int64_t d = b->config->d_model;
    struct param *param = add_matrix(b, role, name, rows, d, rows, d, false);
    if (b->config->tied)
        param->init_std = logit_init_std(b->config);
    if (b->config->init_embedding_std > 0.0) {
        param->init = PARAM_INIT_NORMAL;
        param->init_std = b->config->init_embedding_std;
    }
}

static void add_lm_head(struct builder *b)
{
    int64_t d = b->config->d_model;
    int64_t rows = b->config->vocab_size;
    struct param *param =
        add_matrix(b, PARAM_LM_HEAD, "lm_head.weight", rows, d, rows, d, false);
    param->init_std = logit_init_std(b->config);
}

static void add_bias(struct builder *b, bool there, enum param_role role,
                     const char *name, int64_t width)
{
    if (there)
        add(b, role, name, width, 0, PARAM_INIT_ZERO);
}

/* role: of the weight; the bias follows. */
static void add_norm(struct builder *b, enum param_role role, const char *name,
                     int64_t width)
{
    char text[48];
    snprintf(text, sizeof text, "%s.weight", name);
    add(b, role, text, width, 0,
        b->config->norm_plus_one ? PARAM_INIT_ZERO : PARAM_INIT_ONE);
    snprintf(text, sizeof text, "%s.bias", name);
    add_bias(b, b->config->bias && !model_norm_is_rms(b->config->norm),
             role + 1, text, width);
}

/* --- the parts of a transformer block --- */

static void add_attention(struct builder *b)
{
    const struct model_config *config = b->config;
    int64_t d = config->d_model;
    int64_t head_dim = model_config_head_dim(config);
    int64_t q = model_config_queries(config);
    int64_t kv = model_config_kv(config);
    bool whole = config->qk_norm == QK_NORM_FULL;
    struct param *wqkv = add_matrix(b, PARAM_WQKV_WEIGHT, "attn.Wqkv.weight",
                                    q + 2 * kv, d, q, d, false);
    wqkv->tail = q * d;
    wqkv->tail_std = init_std(config, kv, d);
    add_bias(b, model_config_qkv_bias(config), PARAM_WQKV_BIAS,
             "attn.Wqkv.bias", q + 2 * kv);
    if (config->qk_norm != QK_NORM_NONE) {
        add_norm(b, PARAM_Q_NORM_WEIGHT, "attn.q_ln", whole ? q : head_dim);
        add_norm(b, PARAM_K_NORM_WEIGHT, "attn.k_ln", whole ? kv : head_dim);
    }
    add_matrix(b, PARAM_OUT_WEIGHT, "attn.out_proj.weight", d, q, d, q, true);
    add_bias(b, model_config_out_bias(config), PARAM_OUT_BIAS,
             "attn.out_proj.bias", d);
}

static void add_ffn(struct builder *b)
{
    int64_t d = b->config->d_model;
    int64_t f = b->config->ffn_width;
    bool gated = b->config->ffn == FFN_GLU;
    bool bias = model_config_mlp_bias(b->config);
    if (gated)
        add_matrix(b, PARAM_GATE_WEIGHT, "ffn.gate_proj.weight", f, d, f, d,
                   false);
    add_matrix(b, PARAM_UP_WEIGHT, "ffn.up_proj.weight", f, d, f, d, false);
    if (gated)
        add_bias(b, bias, PARAM_GATE_BIAS, "ffn.gate_proj.bias", f);
    add_bias(b, bias, PARAM_UP_BIAS, "ffn.up_proj.bias", f);
    add_matrix(b, PARAM_DOWN_WEIGHT, "ffn.down_proj.weight", d, f, d, f, true);
    add_bias(b, bias, PARAM_DOWN_BIAS, "ffn.down_proj.bias", d);
}

/* A block of one tensor, all experts' matrices of a kind that map `in` to
 * `out`. */
static void add_experts_block(struct builder *b, enum param_role role,
                              const char *name, int64_t out, int64_t in)
{
    const struct model_config *config = b->config;
    open_block(b, PARAM_BLOCK_EXPERTS);
    add_matrix(b, role, name, config->experts * config->ffn_width,
               config->d_model, out, in, role == PARAM_EXPERTS_DOWN);
    close_block(b);
}

static void add_experts(struct builder *b)
{
    int64_t d = b->config->d_model;
    int64_t f = b->config->ffn_width;
    bool gated = b->config->ffn == FFN_GLU;
    if (gated)
        add_experts_block(b, PARAM_EXPERTS_GATE, "ffn.experts.mlp.w1", f, d);
    add_experts_block(b, PARAM_EXPERTS_UP,
                      gated ? "ffn.experts.mlp.v1" : "ffn.experts.mlp.w1", f,
                      d);
    add_experts_block(b, PARAM_EXPERTS_DOWN, "ffn.experts.mlp.w2", d, f);
}

/* After all else of the layer: gate and up must touch. */
static void add_adapters(struct builder *b, int layer)
{
    const struct params_tuning *tuning = b->tuning;
    for (int i = 0; i < LORA_LAYERS && tuning != NULL && tuning->rank > 0;
         i++) {
        enum lora_layer at = (enum lora_layer)i;
        struct lora_shape shape;
        char text[48];
        if (!lora_shape(b->config, at, &shape) ||
            !lora_is_target(tuning->targets, layer, at))
            continue;
        snprintf(text, sizeof text, "%s.lora_A.weight", shape.name);
        add(b, param_lora_a(at), text, tuning->rank, shape.in,
            PARAM_INIT_UNIFORM)
            ->init_std = 1.0 / sqrt((double)shape.in);
        snprintf(text, sizeof text, "%s.lora_B.weight", shape.name);
        add(b, param_lora_b(at), text, shape.out, tuning->rank,
            PARAM_INIT_ZERO);
    }
}

static void add_layer(struct builder *b, int layer)
{
    int64_t d = b->config->d_model;
    int64_t experts = b->config->experts;
    snprintf(b->prefix, sizeof b->prefix, "transformer.blocks.%d.", layer);
    open_block(b, PARAM_BLOCK_LAYER);
    add_norm(b, PARAM_NORM_1_WEIGHT, "norm_1", d);
    add_attention(b);
    add_norm(b, PARAM_NORM_2_WEIGHT, "norm_2", d);
    if (b->config->norm_place == NORM_AROUND) {
        add_norm(b, PARAM_AFTER_1_WEIGHT, "norm_1_after", d);
        add_norm(b, PARAM_AFTER_2_WEIGHT, "norm_2_after", d);
    }
    if (experts > 0)
        add_matrix(b, PARAM_ROUTER, "ffn.router.layer.weight", experts, d,
                   experts, d, false);
    else
        add_ffn(b);
    add_adapters(b, layer);
    close_block(b);
    if (experts > 0)
        add_experts(b);
}

/* --- the table --- */

static void add_all(struct builder *b)
{
    const struct model_config *config = b->config;
    snprintf(b->prefix, sizeof b->prefix, "transformer.");
    open_block(b, PARAM_BLOCK_EMBEDDING);
    add_embedding(b, PARAM_WTE, "wte.weight", config->vocab_size);
    if (config->positions == POSITIONS_LEARNED)
        add_embedding(b, PARAM_WPE, "wpe.weight", config->max_seq_len);
    close_block(b);
    for (int layer = 0; layer < config->n_layers; layer++)
        add_layer(b, layer);
    snprintf(b->prefix, sizeof b->prefix, "transformer.");
    open_block(b, PARAM_BLOCK_HEAD);
    add_norm(b, PARAM_NORM_F_WEIGHT, "norm_f", config->d_model);
    b->prefix[0] = '\0';
    if (!config->tied)
        add_lm_head(b);
    close_block(b);
}

static int layer_blocks(const struct model_config *config)
{
    if (config->experts == 0)
        return 1;
    return config->ffn == FFN_GLU ? 1 + PARAM_EXPERT_KINDS : PARAM_EXPERT_KINDS;
}

/* A table without entries, with room for all of them. */
static enum err open_table(const struct model_config *config,
                           struct params **out)
{
    enum err rc = ERR_OK;
    size_t layers = (size_t)config->n_layers;
    struct params *params = NULL;
    TRY(new_zeroed(&params, 1));
    params->layer_blocks = layer_blocks(config);
    TRY_OUT(new_zeroed(&params->list, (layers + 2) * PARAM_ROLES));
    TRY_OUT(
        new_zeroed(&params->blocks, layers * (size_t)params->layer_blocks + 2));
out:
    return new_or_none(rc, params, out, params_destroy);
}

static void check_count(const struct model_config *config,
                        const struct params *params)
{
    int64_t numel = params->numel;
    for (int i = 0; i < params->count; i++)
        if (params->list[i].role >= PARAM_LORA)
            numel -= params->list[i].numel;
    if (params->frozen != NULL)
        numel += params->frozen->numel;
    assert(numel == model_config_param_count(config));
    assert(params->block_count == 2 + params->layer_blocks * config->n_layers);
    (void)config;
    (void)numel;
}

enum err params_create_tuned(const struct model_config *config,
                             const struct params_tuning *tuning,
                             struct params **out)
{
    enum err rc = ERR_OK;
    struct params *params = NULL;
    TRY_OUT(params_tuning_check(config, tuning));
    TRY_OUT(open_table(config, &params));
    if (tuning != NULL)
        TRY_OUT(open_table(config, &params->frozen));
    struct builder builder = { .config = config,
                               .tuning = tuning,
                               .params = params };
    add_all(&builder);
    check_count(config, params);
    if (tuning != NULL) {
        params->lora_rank = tuning->rank;
        TRY_OUT(params_tuning_fits(tuning, params));
    }
    if (tuning != NULL && params->frozen->count == 0) {
        params_destroy(params->frozen);
        params->frozen = NULL;
    }
out:
    return new_or_none(rc, params, out, params_destroy);
}

enum err params_create(const struct model_config *config, struct params **out)
{
    return params_create_tuned(config, NULL, out);
}

void params_destroy(struct params *params)
{
    if (params == NULL)
        return;
    params_destroy(params->frozen);
    free(params->list);
    free(params->blocks);
    free(params);
}

/* --- fresh values --- */

/* Elements [first, last) of a tensor. */
static void init_part(const struct param *param, uint64_t seed, int64_t first,
                      int64_t last, double std, float *out)
{
    uint64_t stream = rng_stream(param->name);
    if (first >= last)
        return;
    switch (param->init) {
    case PARAM_INIT_NORMAL:
        rng_fill_normal(seed, stream, (uint64_t)first, last - first, (float)std,
                        out);
        break;
    case PARAM_INIT_UNIFORM:
#pragma omp parallel for schedule(static)
        for (int64_t i = first; i < last; i++)
            out[i - first] =
                (float)(std *
                        (2.0 * rng_uniform(seed, stream, (uint64_t)i) - 1.0));
        break;
    case PARAM_INIT_ONE:
        for (int64_t i = first; i < last; i++)
            out[i - first] = 1.0f;
        break;
    case PARAM_INIT_ZERO:
        break;
    }
}

static int64_t within(int64_t value, int64_t low, int64_t high)
{
    return value < low ? low : value > high ? high : value;
}

void params_init(const struct params *params, uint64_t seed, int64_t begin,
                 int64_t end, float *data)
{
    assert(begin >= 0 && begin <= end && end <= params->elements);
    for (int64_t i = begin; i < end; i++)
        data[i - begin] = 0.0f;
    for (int p = 0; p < params->count; p++) {
        const struct param *param = &params->list[p];
        int64_t first = within(begin - param->offset, 0, param->numel);
        int64_t last = within(end - param->offset, 0, param->numel);
        int64_t tail = within(param->tail, first, last);
        if (first == last)
            continue;
        float *place = data + (param->offset + first - begin);
        init_part(param, seed, first, tail, param->init_std, place);
        init_part(param, seed, tail, last, param->tail_std,
                  place + (tail - first));
    }
}
