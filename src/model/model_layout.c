/* Where a model's activations lie in its arena, for the plan and for the
 * run.
 *
 * What is live at the same time has places of its own, and nothing else has:
 * each block keeps for backward what it was told to keep, as it is or packed;
 * all that lives within a block, or is brought back for one, is one workspace
 * that all blocks use in turn. So a model's memory is a workspace, and as many
 * times what a block keeps as there are blocks. */
#include "src/model/model_impl.h"

#include <assert.h>

static float *take(struct arena *arena, int64_t count)
{
    assert(count >= 0);
    return arena_take(arena, (size_t)count * sizeof(float));
}

/* Elements of activations. */
static void *take_elements(const struct model *model, struct arena *arena,
                           int64_t count)
{
    assert(count >= 0);
    return arena_take(arena, (size_t)count * dtype_bytes(model->options.dtype));
}

/* Takes elements for what forward keeps; statistics are always fp32. */
static void *take_saved(const struct model *model, enum saved kind,
                        struct arena *arena, int64_t count)
{
    return kind == SAVED_LSE ? take(arena, count)
                             : take_elements(model, arena, count);
}

/* Rows of the largest chunk. */
static int64_t max_rows(const struct model *model)
{
    return model->options.samples * model->options.seq_len /
           model->options.chunks;
}

/* Choices of experts by a leaf. */
static int64_t max_choices(const struct model *model)
{
    return max_rows(model) * model->config.experts_top_k;
}

/* Rows of the hidden layer of n rows. A token chooses an expert once, so it
 * can't choose more of a rank's experts than there are. */
static int64_t hidden_rows(const struct model *model, int64_t n)
{
    const struct model_config *config = &model->config;
    int64_t own = config->experts / model_expert_degree(model);
    if (config->experts == 0)
        return n;
    return n * (own < config->experts_top_k ? own : config->experts_top_k);
}

int64_t model_logit_rows(const struct model *model, int64_t n)
{
    int64_t rows = model->config.vocab_size > MODEL_LOGIT_WIDTH
                       ? MODEL_LOGIT_ROWS_WIDE
                       : MODEL_LOGIT_ROWS;
    if (model->kernels->memory->device)
        rows = MODEL_LOGIT_ROWS_DEVICE;
    return n < rows ? n : rows;
}

int64_t model_saved_rows(const struct model *model, enum saved kind, int64_t n)
{
    const struct model_config *config = &model->config;
    if (kind != SAVED_HIDDEN || config->experts == 0)
        return n;
    return hidden_rows(model, n) * (config->ffn == FFN_GLU ? 2 : 1);
}

int64_t model_saved_cols(const struct model *model, enum saved kind)
{
    switch (kind) {
    case SAVED_QKV:
        return model->qkv_width;
    case SAVED_LSE:
        return model->config.n_heads;
    case SAVED_ATT:
        return model_config_queries(&model->config);
    case SAVED_HIDDEN:
        return model->config.experts > 0 ? model->config.ffn_width
                                         : model->hidden_width;
    default:
        return model->config.d_model;
    }
}

static bool recomputed(const struct model *model, int64_t at, enum saved kind)
{
    unsigned char recompute = model->options.memory.recompute[at];
    switch (kind) {
    case SAVED_X:
        return false;
    case SAVED_MID:
        return recompute & RECOMPUTE_BLOCK;
    case SAVED_HIDDEN:
        /* the rows of a whole group may meet at one rank: too many to keep */
        return model_expert_degree(model) > 1 ||
               (recompute & (RECOMPUTE_BLOCK | RECOMPUTE_FFN));
    default:
        return recompute & (RECOMPUTE_BLOCK | RECOMPUTE_ATTENTION);
    }
}

enum packing model_packing(const struct model *model, enum saved kind)
{
    enum packing packing = model->options.memory.packing;
    if (packing == PACKING_INT8 && kind != SAVED_ATT && kind != SAVED_HIDDEN)
        packing = PACKING_BF16;
    if (packing == PACKING_BF16 && model->options.dtype == DTYPE_BF16)
        packing = PACKING_NONE; /* it is that already */
    return kind == SAVED_LSE ? PACKING_NONE : packing;
}

/* After the activation: only where bits are those of the layer before it. */
static bool keeps_act(const struct model *model, int64_t at)
{
    unsigned char recompute = model->options.memory.recompute[at];
    return model->kernels->memory->device && model->config.experts == 0 &&
           model_packing(model, SAVED_HIDDEN) == PACKING_NONE &&
           !recomputed(model, at, SAVED_HIDDEN) &&
           !(recompute & RECOMPUTE_ACTIVATION);
}

static void layout_layer(const struct pass *pass, int64_t at,
                         struct arena *arena)
{
    const struct model *model = pass->model;
    struct layer *layer = &pass->layers[at];
    layer->keeps_act = keeps_act(model, at);
    layer->act = model->ws.act;
    if (layer->keeps_act)
        layer->act = take_elements(model, arena,
                                   max_rows(model) * model->config.ffn_width);
    for (int kind = 0; kind < SAVED_KINDS; kind++) {
        int64_t rows = model_saved_rows(model, kind, max_rows(model));
        int64_t cols = model_saved_cols(model, kind);
        enum packing packing = model_packing(model, kind);
        layer->recompute[kind] = recomputed(model, at, kind);
        layer->live[kind] = pass->live[kind];
        if (layer->recompute[kind])
            continue;
        if (packing == PACKING_NONE)
            layer->live[kind] = take_saved(model, kind, arena, rows * cols);
        else
            layer->packed[kind] =
                arena_take(arena, kernels_packed_bytes(packing, rows, cols));
    }
}

static void layout_routing(const struct model *model, struct routing *routing,
                           struct arena *arena)
{
    int64_t experts = model->config.experts;
    int degree = model_expert_degree(model);
    if (experts == 0)
        return;
    block_routing_layout(routing, &model->config, max_rows(model), arena);
    if (degree > 1)
        routing->served =
            arena_take(arena, (size_t)(experts + degree) * sizeof(int64_t));
    if (!model->kernels->memory->device) {
        routing->host_offsets = routing->offsets;
        routing->host_served = routing->served;
    }
}

static void layout_routing_host(const struct model *model,
                                struct routing *routing, struct arena *arena)
{
    int64_t experts = model->config.experts;
    int degree = model_expert_degree(model);
    routing->host_offsets =
        arena_take(arena, (size_t)(experts + 1) * sizeof(int64_t));
    routing->host_served =
        arena_take(arena, (size_t)(experts + degree) * sizeof(int64_t));
}

/* One of each kind, where some block has none of its own. What the ffn needs is
 * needed for one chunk at a time. */
static void layout_live(struct pass *pass, struct arena *arena)
{
    const struct model *model = pass->model;
    for (int kind = 0; kind < SAVED_KINDS; kind++) {
        bool shared = model_packing(model, kind) != PACKING_NONE;
        for (int64_t i = 0; i < model->config.n_layers; i++)
            shared |= recomputed(model, i, kind);
        pass->live[kind] = NULL;
        if (pass != model->passes && kind > SAVED_LSE)
            pass->live[kind] = model->passes[0].live[kind];
        else if (shared)
            pass->live[kind] =
                take_saved(model, kind, arena,
                           model_saved_rows(model, kind, max_rows(model)) *
                               model_saved_cols(model, kind));
    }
}

static void layout_dispatch(struct model *model, struct arena *arena)
{
    struct expert_dispatch *dispatch = &model->ws.dispatch;
    int others = model_expert_degree(model) - 1;
    int64_t d = model->config.d_model;
    int64_t rows = hidden_rows(model, max_rows(model));
    if (others == 0)
        return;
    dispatch->rows = rows;
    dispatch->identity = arena_take(arena, (size_t)rows * sizeof(int32_t));
    dispatch->dy = take_elements(model, arena, max_choices(model) * d);
    dispatch->weights = take(arena, max_choices(model));
    dispatch->dweights = take(arena, max_choices(model));
    for (int i = 0; i < DISPATCH_BUFFERS + 1 && i < others; i++)
        dispatch->in_x[i] = take_elements(model, arena, rows * d);
    for (int i = 0; i < DISPATCH_BUFFERS && i < others; i++) {
        dispatch->in_dy[i] = take_elements(model, arena, rows * d);
        dispatch->in_weights[i] = take(arena, rows);
        dispatch->out_dweights[i] = take(arena, rows);
    }
}

/* What the chunks of a block have at the same time. */
static void layout_pass(struct pass *pass, struct arena *arena)
{
    const struct model *model = pass->model;
    const struct model_config *config = &model->config;
    int64_t n = max_rows(model);
    layout_live(pass, arena);
    if (config->qk_norm != QK_NORM_NONE ||
        (config->clip_qkv > 0.0 && config->positions == POSITIONS_ROPE))
        pass->qkv = take_elements(model, arena, n * model->qkv_width);
    if (config->qk_norm != QK_NORM_NONE) {
        pass->q_mean = take(arena, n * config->n_heads);
        pass->q_rstd = take(arena, n * config->n_heads);
        pass->k_mean = take(arena, n * config->n_kv_heads);
        pass->k_rstd = take(arena, n * config->n_kv_heads);
    }
    int64_t q = model_config_queries(config);
    pass->x_last = take_elements(
        model, arena, n * (q > config->d_model ? q : config->d_model));
    pass->dx = take_elements(model, arena, n * config->d_model);
    pass->dqkv = take_elements(model, arena, n * model->qkv_width);
}

/* Takes counters for the choices of experts. */
static int64_t *take_counts(const struct model *model, struct arena *arena)
{
    const struct model_config *config = &model->config;
    return arena_take(arena, (size_t)(config->n_layers * config->experts) *
                                 sizeof(int64_t));
}

static void layout_experts(struct model *model, struct arena *arena)
{
    const struct model_config *config = &model->config;
    struct workspace *ws = &model->ws;
    int64_t n = max_rows(model);
    ws->rows =
        take_elements(model, arena, max_choices(model) * config->d_model);
    if (config->router_jitter > 0.0)
        ws->router_in = take_elements(model, arena, n * config->d_model);
    if (model->options.dtype != DTYPE_F32)
        ws->router_logits = take_elements(model, arena, n * config->experts);
    ws->drouter = take_elements(model, arena, n * config->d_model);
    ws->dlogits = take(arena, n * config->experts);
    ws->dweights = take(arena, max_choices(model));
    ws->dprobs = take(arena, config->experts);
    ws->prob_sums = arena_take(arena, (size_t)config->experts * sizeof(double));
    ws->expert_counts = take_counts(model, arena);
    if (!model->kernels->memory->device)
        ws->host_expert_counts = ws->expert_counts;
    layout_dispatch(model, arena);
}

static void layout_workspace(struct model *model, struct arena *arena)
{
    const struct model_config *config = &model->config;
    struct workspace *ws = &model->ws;
    int64_t n = max_rows(model);
    int64_t d = config->d_model;
    int64_t r = hidden_rows(model, n);
    for (int i = 0; i < model->options.own_chunks; i++)
        layout_pass(&model->passes[i], arena);
    model_input_layout(model, n, arena);
    model_graph_layout(model, arena);
    if (model->options.chunks > 1)
        model_sequence_layout(model, n, arena);
    ws->norm = take_elements(model, arena, n * d);
    ws->mean = take(arena, n);
    ws->rstd = take(arena, n);
    ws->branch = take_elements(model, arena, n * d);
    ws->act = take_elements(model, arena, r * config->ffn_width);
    ws->losses = take(arena, n);
    if (config->residual_scale != 1.0 || config->dropout_residual > 0.0 ||
        model->options.drop_depth > 0.0)
        ws->dbranch = take_elements(model, arena, n * d);
    ws->dnorm = take_elements(model, arena, n * d);
    ws->dact = take_elements(model, arena, r * config->ffn_width);
    ws->dhidden = ws->dact;
    if (config->ffn == FFN_GLU)
        ws->dhidden = take_elements(model, arena, r * model->hidden_width);
    if (config->experts > 0)
        layout_experts(model, arena);
    if (model->options.frozen)
        ws->unused = take(arena, d);
    model_lora_layout(model, n, arena);
    model_fp8_layout(model, n, arena);
    model_staged_rows_layout(model, arena);
    block_tables_layout(&model->tables, config, model->options.seq_len, arena);
}

/* First, because of its alignment. */
static void layout_scratch(struct model *model, struct arena *arena,
                           struct model_bytes *bytes)
{
    const struct kernels *kernels = model->kernels;
    const struct model_options *options = &model->options;
    struct kernel_limits limits =
        block_limits(&model->config, model->ctx.threads, max_rows(model));
    limits.batch = options->samples;
    limits.seq = options->seq_len / options->chunks;
    limits.kv_heads = model->config.n_kv_heads;
    model->ctx.scratch_bytes = kernels->scratch_bytes(&limits);
    model->ctx.scratch = arena_take(arena, model->ctx.scratch_bytes);
    bytes->scratch = arena->used;
    bytes->attention = kernels->attention_scratch != NULL
                           ? kernels->attention_scratch(&limits)
                           : 0;
}

void model_layout(struct model *model, struct arena *arena,
                  struct model_bytes *bytes)
{
    int64_t n = max_rows(model);
    layout_scratch(model, arena, bytes);
    size_t begin = arena->used;
    layout_workspace(model, arena);
    bytes->workspace = arena->used - begin;
    begin = arena->used;
    model->spare = begin;
    for (int64_t i = 0; i < model->config.n_layers; i++)
        for (int j = 0; j < model->options.own_chunks; j++) {
            struct pass *pass = &model->passes[j];
            layout_layer(pass, i, arena);
            layout_routing(model, &pass->layers[i].routing, arena);
        }
    bytes->saved = arena->used - begin;
    begin = arena->used;
    model->ws.logits = take_elements(
        model, arena, model_logit_rows(model, n) * model->config.vocab_size);
    bytes->logits = arena->used - begin;
    bytes->total = arena->used;
}

void model_layout_host(struct model *model, struct arena *arena)
{
    if (!model->kernels->memory->device)
        return;
    model_input_layout_host(model, arena);
    if (model->config.experts > 0)
        model->ws.host_expert_counts = take_counts(model, arena);
    for (int64_t i = 0; i < model->config.n_layers; i++)
        for (int j = 0; j < model->options.own_chunks; j++)
            if (model_expert_degree(model) > 1)
                layout_routing_host(model, &model->passes[j].layers[i].routing,
                                    arena);
}
