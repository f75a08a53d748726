/* The parts of a block, forward. What has few elements is computed by one
 * thread where the walker says so: waking another takes longer.
 *
 * A block is two halves, each of which reads the stream through a norm and adds
 * to it (pre-norm, as in GPT-2), s the residual scale:
 *
 *     qkv = clip(norm_1(x) Wqkv^T)
 *     mid = x + s attention(rope(norm(q)), rope(norm(k)), v) Wout^T
 *     out = mid + s ffn(norm_2(mid))
 *
 * or reads the stream itself, and adds the norm of its branch (OLMo 2), or has
 * norms in both places (Gemma).
 *
 * Training keeps what its way back needs, inference keeps keys and values in a
 * cache, and both call these functions: what differs is behind struct
 * block_walker. An addition to the stream and the norm that follows it are one
 * op, for both pass over the same rows. */
#include "src/model/block.h"

#include <assert.h>

/* --- linear layers --- */

struct block_linear block_linear(const struct model_config *config,
                                 enum linear linear)
{
    int64_t d = config->d_model, f = config->ffn_width;
    int64_t q = model_config_queries(config);
    bool gated = config->ffn == FFN_GLU;
    const struct block_linear table[] = {
        [LINEAR_QKV] = { PARAM_WQKV_WEIGHT, PARAM_WQKV_BIAS,
                         q + 2 * model_config_kv(config), d, LORA_Q, LORA_OUT },
        [LINEAR_OUT] = { PARAM_OUT_WEIGHT, PARAM_OUT_BIAS, d, q, LORA_OUT,
                         LORA_GATE },
        [LINEAR_HIDDEN] = { gated ? PARAM_GATE_WEIGHT : PARAM_UP_WEIGHT,
                            gated ? PARAM_GATE_BIAS : PARAM_UP_BIAS,
                            gated ? 2 * f : f, d, LORA_GATE, LORA_DOWN },
        [LINEAR_DOWN] = { PARAM_DOWN_WEIGHT, PARAM_DOWN_BIAS, d, f, LORA_DOWN,
                          LORA_LAYERS },
        [LINEAR_ROUTER] = { PARAM_ROUTER, PARAM_ROLES, config->experts, d,
                            LORA_LAYERS, LORA_LAYERS },
    };
    assert(linear <= LINEAR_ROUTER);
    return table[linear];
}

static struct kernel_ctx ctx_of(const struct block *b, int64_t elements)
{
    struct kernel_ctx ctx = *b->ctx;
    if (elements < b->small)
        ctx.threads = 1;
    return ctx;
}

/* Element number `i` of x. */
static void *at(const struct block *b, const void *x, int64_t i)
{
    return (char *)x + i * (int64_t)dtype_bytes(b->dtype);
}

/* --- memory --- */

struct kernel_limits block_limits(const struct model_config *config,
                                  int threads, int64_t rows)
{
    int64_t qkv = block_linear(config, LINEAR_QKV).out;
    int64_t hidden = block_linear(config, LINEAR_HIDDEN).out;
    int64_t width = config->d_model > qkv ? config->d_model : qkv;
    assert(threads >= 1 && rows >= 1);
    return (struct kernel_limits){
        .threads = threads,
        .tokens = rows,
        .width = width > hidden ? width : hidden,
        .heads = config->n_heads,
        .head_dim = model_config_head_dim(config),
        .vocab = config->vocab_size,
        .experts = config->experts,
        .top_k = config->experts_top_k,
    };
}

void block_routing_layout(struct routing *routing,
                          const struct model_config *config, int64_t n,
                          struct arena *arena)
{
    size_t probs = (size_t)(n * config->experts);
    size_t choices = (size_t)(n * config->experts_top_k);
    assert(config->experts > 0);
    routing->probs = arena_take(arena, probs * sizeof(float));
    routing->chosen = arena_take(arena, choices * sizeof(int32_t));
    routing->weights = arena_take(arena, choices * sizeof(float));
    routing->place = arena_take(arena, choices * sizeof(int32_t));
    routing->source = arena_take(arena, choices * sizeof(int32_t));
    routing->offsets =
        arena_take(arena, (size_t)(config->experts + 1) * sizeof(int64_t));
}

/* --- adapters (lora.h): the factor alpha / rank goes to the rows of `rank`
 * numbers, where it is cheapest --- */

static bool has(const struct params *params, int block, enum lora_layer layer)
{
    return params->blocks[block].place[param_lora_a(layer)] >= 0;
}

void block_lora_layout(struct block_lora *lora,
                       const struct model_config *config,
                       const struct params *params, const char *targets,
                       size_t row, struct arena *arena, int64_t *in)
{
    int64_t out = 0;
    bool slices = false;
    *in = 0;
    for (int i = 0; i < config->n_layers * LORA_LAYERS && lora->rank > 0; i++) {
        enum lora_layer layer = (enum lora_layer)(i % LORA_LAYERS);
        int at = i / LORA_LAYERS;
        struct lora_shape shape;
        if (!lora_shape(config, layer, &shape) ||
            !(params != NULL
                  ? has(params, params_layer_block(params, at), layer)
                  : lora_is_target(targets, at, layer)))
            continue;
        *in = shape.in > *in ? shape.in : *in;
        out = shape.out > out ? shape.out : out;
        slices |= shape.out < shape.width;
    }
    if (*in == 0)
        return;
    int64_t part = params == NULL && *in > out ? *in : out;
    lora->low = arena_take(arena, row * (size_t)lora->rank);
    lora->part = arena_take(arena, row * (size_t)part);
    if (slices)
        lora->slice = arena_take(arena, row * (size_t)out);
}

enum err block_lora_scale(const struct block *b, void *x)
{
    const struct random_place none = { 0 };
    const struct block_lora *lora = &b->lora;
    struct kernel_ctx ctx = ctx_of(b, b->n * lora->rank);
    assert(lora->rank > 0);
    return b->kernels->dropout(&ctx, b->dtype, 1, b->n * lora->rank, 0.0f,
                               &none, (float)(lora->alpha / (double)lora->rank),
                               x, x);
}

enum err block_lora_low(const struct block *b, enum lora_layer layer,
                        const void *x)
{
    struct lora_shape shape;
    (void)lora_shape(b->config, layer, &shape);
    TRY(b->walker->product(b->arg, LINEAR_NONE, param_lora_a(layer),
                           b->lora.rank, shape.in, x, NULL, b->lora.low));
    return block_lora_scale(b, b->lora.low);
}

enum err block_lora_slice(const struct block *b, const struct lora_shape *shape,
                          const void *rows)
{
    struct kernel_ctx ctx = ctx_of(b, b->n * shape->out);
    assert(shape->at + shape->out <= shape->width && b->lora.slice != NULL);
    return b->kernels->copy_rows(&ctx, b->dtype, b->n, shape->out, shape->width,
                                 at(b, rows, shape->at), shape->out,
                                 b->lora.slice);
}

/* y[n, width] += part[n, out], to the columns from shape->at on. */
static enum err add_part(const struct block *b, const struct lora_shape *shape,
                         void *y)
{
    int64_t out = shape->out, width = shape->width;
    struct kernel_ctx ctx = ctx_of(b, b->n * out);
    if (out == width)
        return b->kernels->accumulate(&ctx, b->dtype, b->n * out, b->lora.part,
                                      y);
    TRY(block_lora_slice(b, shape, y));
    TRY(b->kernels->accumulate(&ctx, b->dtype, b->n * out, b->lora.part,
                               b->lora.slice));
    return b->kernels->copy_rows(&ctx, b->dtype, b->n, out, out, b->lora.slice,
                                 width, at(b, y, shape->at));
}

static enum err add_adapter(const struct block *b, enum lora_layer layer,
                            const void *x, void *y)
{
    const struct block_walker *walker = b->walker;
    struct lora_shape shape;
    (void)lora_shape(b->config, layer, &shape);
    if (walker->adapter_input != NULL)
        TRY(walker->adapter_input(b->arg, layer, &x));
    TRY(block_lora_low(b, layer, x));
    TRY(walker->product(b->arg, LINEAR_NONE, param_lora_b(layer), shape.out,
                        b->lora.rank, b->lora.low, NULL, b->lora.part));
    return add_part(b, &shape, y);
}

enum err block_apply(const struct block *b, enum linear linear, const void *x,
                     void *y)
{
    const struct block_linear l = block_linear(b->config, linear);
    const void *bias =
        l.bias == PARAM_ROLES ? NULL : b->walker->vector(b->arg, l.bias);
    TRY(b->walker->product(b->arg, linear, l.weight, l.out, l.in, x, bias, y));
    for (int i = l.lora; i < l.lora_end; i++)
        if (has(b->params, b->number, (enum lora_layer)i))
            TRY(add_adapter(b, (enum lora_layer)i, x, y));
    return ERR_OK;
}

/* --- norms --- */

struct norm block_norm(const struct model_config *config, int64_t rows)
{
    return (struct norm){
        .kind = model_norm_is_rms(config->norm) ? NORM_RMS : NORM_LAYER,
        .n = rows,
        .groups = 1,
        .d = config->d_model,
        .stride = config->d_model,
        .shared = true,
        .plus_one = config->norm_plus_one,
        .eps = (float)config->norm_eps,
        .low_precision = model_norm_is_low(config->norm),
    };
}

struct norm block_heads_norm(const struct model_config *config, int64_t rows,
                             int64_t heads)
{
    struct norm norm = block_norm(config, rows);
    int64_t head_dim = model_config_head_dim(config);
    bool each = config->qk_norm == QK_NORM_HEAD;
    norm.groups = each ? heads : 1;
    norm.d = each ? head_dim : heads * head_dim;
    norm.stride = block_linear(config, LINEAR_QKV).out;
    return norm;
}

enum err block_norm_of(const struct block *b, enum param_role role,
                       const void *x, void *y)
{
    struct norm norm = block_norm(b->config, b->n);
    struct kernel_ctx ctx = ctx_of(b, b->n * norm.d);
    return b->kernels->norm_forward(
        &ctx, b->dtype, &norm, x, b->walker->vector(b->arg, role),
        b->walker->vector(b->arg, role + 1), y, b->mean, b->rstd);
}

static bool reads_norm(const struct block *b)
{
    return b->config->norm_place != NORM_AFTER;
}

enum param_role block_after_role(const struct model_config *config,
                                 enum param_role role)
{
    assert(role == PARAM_NORM_1_WEIGHT || role == PARAM_NORM_2_WEIGHT);
    if (config->norm_place != NORM_AROUND)
        return role;
    return role == PARAM_NORM_1_WEIGHT ? PARAM_AFTER_1_WEIGHT
                                       : PARAM_AFTER_2_WEIGHT;
}

const void *block_input(const struct block *b, const void *x)
{
    return reads_norm(b) ? b->norm : x;
}

enum err block_add_norm(const struct block *b, enum param_role role,
                        const void *x, const void *branch, void *sum)
{
    struct norm norm = block_norm(b->config, b->n);
    struct kernel_ctx ctx = ctx_of(b, b->n * norm.d);
    return b->kernels->add_norm_forward(
        &ctx, b->dtype, &norm, x, (float)b->config->residual_scale, branch, sum,
        b->walker->vector(b->arg, role), b->walker->vector(b->arg, role + 1),
        b->norm, b->mean, b->rstd);
}

/* --- attention's half --- */

enum err block_rotate(const struct block *b, bool inverse, void *qkv)
{
    const struct model_config *config = b->config;
    struct kernel_ctx ctx =
        ctx_of(b, b->n * block_linear(config, LINEAR_QKV).out);
    if (b->rope == NULL)
        return ERR_OK;
    assert(b->seq > 0 && b->n % b->seq == 0);
    return b->kernels->rope(
        &ctx, b->dtype, b->n, b->seq, config->n_heads + 2 * config->n_kv_heads,
        config->n_heads + config->n_kv_heads, model_config_head_dim(config),
        b->rope, inverse, qkv);
}

/* The queries, or the keys, `first` elements inside packed qkv. */
static enum err norm_heads(const struct block *b, enum param_role role,
                           int64_t heads, int64_t first, float *mean,
                           float *rstd)
{
    struct norm norm = block_heads_norm(b->config, b->n, heads);
    struct kernel_ctx ctx = ctx_of(b, b->n * norm.stride);
    return b->kernels->norm_forward(&ctx, b->dtype, &norm, at(b, b->qkv, first),
                                    b->walker->vector(b->arg, role),
                                    b->walker->vector(b->arg, role + 1),
                                    at(b, b->ready, first), mean, rstd);
}

enum err block_make_ready(const struct block *b)
{
    const struct model_config *config = b->config;
    int64_t width = block_linear(config, LINEAR_QKV).out;
    assert(b->qkv != NULL && b->ready != NULL);
    if (b->ready != b->qkv)
        TRY(b->kernels->copy_rows(b->ctx, b->dtype, b->n, width, width, b->qkv,
                                  width, b->ready));
    if (config->qk_norm != QK_NORM_NONE) {
        TRY(norm_heads(b, PARAM_Q_NORM_WEIGHT, config->n_heads, 0, b->q_mean,
                       b->q_rstd));
        TRY(norm_heads(b, PARAM_K_NORM_WEIGHT, config->n_kv_heads,
                       model_config_queries(config), b->k_mean, b->k_rstd));
    }
    return block_rotate(b, false, b->ready);
}

/* sum = x + residual_scale * branch, and of it what follows reads: the norm of
 * this role, where norms come before. */
static enum err add_branch(const struct block *b, enum param_role role,
                           const void *x, void *sum)
{
    struct kernel_ctx ctx = ctx_of(b, b->n * b->config->d_model);
    if (reads_norm(b))
        return block_add_norm(b, role, x, b->branch, sum);
    return b->kernels->add(&ctx, b->dtype, b->n * b->config->d_model, x,
                           (float)b->config->residual_scale, b->branch, sum);
}

enum err block_before(const struct block *b)
{
    int64_t width = block_linear(b->config, LINEAR_QKV).out;
    struct kernel_ctx ctx = ctx_of(b, b->n * width);
    if (b->owes)
        TRY(add_branch(b, PARAM_NORM_1_WEIGHT, b->x, b->x));
    else if (reads_norm(b))
        TRY(block_norm_of(b, PARAM_NORM_1_WEIGHT, b->x, b->norm));
    TRY(block_apply(b, LINEAR_QKV, block_input(b, b->x), b->qkv));
    if (b->config->clip_qkv > 0.0)
        TRY(b->kernels->clip_forward(&ctx, b->dtype, b->n * width,
                                     (float)b->config->clip_qkv, b->qkv));
    return block_make_ready(b);
}

/* `branch` as it is added to the stream. */
static enum err finish_branch(const struct block *b, bool attention)
{
    enum param_role role =
        attention ? PARAM_NORM_1_WEIGHT : PARAM_NORM_2_WEIGHT;
    if (b->config->norm_place != NORM_BEFORE)
        TRY(block_norm_of(b, block_after_role(b->config, role), b->branch,
                          b->branch));
    return b->walker->branch != NULL ? b->walker->branch(b->arg, attention)
                                     : ERR_OK;
}

enum err block_after(const struct block *b)
{
    TRY(block_apply(b, LINEAR_OUT, b->attended, b->branch));
    TRY(finish_branch(b, true));
    return add_branch(b, PARAM_NORM_2_WEIGHT, b->x, b->mid);
}

/* --- the other half: down(act(up(x))), or with a gate
 * down(act(gate(x)) * up(x)) --- */

void *block_up(const struct model_config *config, enum dtype dtype,
               int64_t rows, bool apart, const void *hidden)
{
    int64_t at = apart ? rows * config->ffn_width : config->ffn_width;
    return (char *)hidden +
           (config->ffn == FFN_GLU ? at : 0) * (int64_t)dtype_bytes(dtype);
}

enum err block_activate(const struct block *b, int64_t rows, bool apart)
{
    enum activation op = model_activation_op(b->config->activation);
    int64_t f = b->config->ffn_width;
    struct kernel_ctx ctx = ctx_of(b, rows * f);
    assert(rows >= 0 && b->hidden != NULL && b->act != NULL);
    if (b->config->ffn == FFN_GLU)
        return b->kernels->glu_forward(
            &ctx, b->dtype, op, rows, f, apart ? f : 2 * f, b->hidden,
            block_up(b->config, b->dtype, rows, apart, b->hidden), b->act);
    return b->kernels->activation_forward(&ctx, b->dtype, op, rows * f,
                                          b->hidden, b->act);
}

static enum err mlp(const struct block *b)
{
    TRY(block_apply(b, LINEAR_HIDDEN, block_input(b, b->mid), b->hidden));
    TRY(block_activate(b, b->n, false));
    return block_apply(b, LINEAR_DOWN, b->act, b->branch);
}

/* --- or experts: dropless top-k routing (MegaBlocks, Gale et al. 2022; DBRX).
 * Tokens are put into the experts' order, each expert works on its own rows,
 * and a token's results are added with its weights. --- */

struct route block_route(const struct block *b)
{
    return (struct route){
        .n = b->n,
        .experts = (int)b->config->experts,
        .top_k = (int)b->config->experts_top_k,
        .normalize = (float)b->config->router_normalize,
    };
}

enum err block_sort_rows(const struct block *b, const void *x, void *sorted)
{
    struct route route = block_route(b);
    assert(x != sorted);
    return b->kernels->expert_gather(b->ctx, b->dtype, &route,
                                     b->config->d_model, b->routing->source, x,
                                     sorted);
}

enum err block_rows_hidden(const struct block *b,
                           const struct expert_rows *rows)
{
    int64_t d = b->config->d_model, f = b->config->ffn_width;
    if (b->config->ffn == FFN_GLU)
        TRY(b->walker->experts(b->arg, rows, PARAM_EXPERTS_GATE, f, d, rows->x,
                               b->hidden));
    return b->walker->experts(
        b->arg, rows, PARAM_EXPERTS_UP, f, d, rows->x,
        block_up(b->config, b->dtype, rows->count, true, b->hidden));
}

enum err block_rows(const struct block *b, const struct expert_rows *rows)
{
    TRY(block_rows_hidden(b, rows));
    TRY(block_activate(b, rows->count, true));
    return b->walker->experts(b->arg, rows, PARAM_EXPERTS_DOWN,
                              b->config->d_model, b->config->ffn_width, b->act,
                              rows->x);
}

static enum err choose(const struct block *b)
{
    const struct routing *routing = b->routing;
    struct route route = block_route(b);
    const void *x = b->norm;
    if (b->walker->router_input != NULL)
        TRY(b->walker->router_input(b->arg, &x));
    TRY(block_apply(b, LINEAR_ROUTER, x, routing->probs));
    TRY(b->kernels->route_forward(b->ctx, &route, routing->probs,
                                  routing->chosen, routing->weights));
    TRY(b->kernels->route_sort(b->ctx, &route, routing->chosen,
                               routing->offsets, routing->place,
                               routing->source));
    return b->walker->routed != NULL ? b->walker->routed(b->arg) : ERR_OK;
}

static enum err experts(const struct block *b)
{
    const struct routing *routing = b->routing;
    const struct route route = block_route(b);
    const struct expert_rows rows = { .count = b->n * route.top_k,
                                      .experts = route.experts,
                                      .offsets = routing->offsets,
                                      .x = b->sorted };
    TRY(choose(b));
    TRY(block_sort_rows(b, b->norm, b->sorted));
    TRY(b->walker->serve != NULL ? b->walker->serve(b->arg, &rows)
                                 : block_rows(b, &rows));
    return b->kernels->expert_combine(b->ctx, b->dtype, &route,
                                      b->config->d_model, routing->place,
                                      routing->weights, b->sorted, b->branch);
}

enum err block_ffn(const struct block *b)
{
    TRY(b->config->experts > 0 ? experts(b) : mlp(b));
    return finish_branch(b, false);
}
