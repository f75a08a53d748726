/* Makes an engine: memory laid out once, tables of positions; and keeps what its
 * slots hold. A call is infer_forward.c.
 *
 * Nearly all of the memory is the cache of keys and values: two numbers for each
 * layer, key head and column of a head, for every position of every slot, there
 * from the start, since a slot's text grows token by token and nothing is to be
 * moved or to fail on the way. All of it is one arena that is laid out twice by
 * the same code: first without memory, which counts the bytes, then in it. So
 * what infer_plan() foretells is what infer_create() takes. */
#include "src/infer/infer.h"

#include <assert.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>

#include "src/base/memory.h"
#include "src/base/new.h"
#include "src/infer/infer_impl.h"

/* --- layout --- */

int64_t infer_logit_rows(const struct infer *infer)
{
    return infer->options.rows < INFER_LOGIT_ROWS ? infer->options.rows
                                                  : INFER_LOGIT_ROWS;
}

static float *take(struct arena *arena, int64_t count)
{
    return arena_take(arena, (size_t)count * sizeof(float));
}

static int32_t *take_numbers(struct arena *arena, int64_t count)
{
    return arena_take(arena, (size_t)count * sizeof(int32_t));
}

/* First, because of its alignment. As large as any op needs it for `rows` rows, of
 * attention that looks at all positions of a slot. */
static void layout_scratch(struct infer *infer, struct arena *arena)
{
    struct kernel_limits limits =
        block_limits(&infer->config, infer->ctx.threads, infer->options.rows);
    limits.batch = 1;
    limits.seq = infer->options.rows;
    limits.positions = infer->capacity;
    infer->ctx.scratch_bytes = infer->kernels->scratch_bytes(&limits);
    infer->ctx.scratch = arena_take(arena, infer->ctx.scratch_bytes);
}

static void layout_block(struct infer *infer, struct arena *arena)
{
    const struct model_config *config = &infer->config;
    struct block *b = &infer->b;
    int64_t n = infer->options.rows, d = config->d_model, in;
    int64_t most = n * (config->experts_top_k > 1 ? config->experts_top_k : 1);
    b->x = b->mid = take(arena, n * d);
    b->branch = take(arena, n * d);
    b->norm = take(arena, n * d);
    b->mean = b->q_mean = b->k_mean = take(arena, n * config->n_heads);
    b->rstd = b->q_rstd = b->k_rstd = take(arena, n * config->n_heads);
    b->qkv = b->ready = take(arena, n * infer->qkv_width);
    int64_t q = model_config_queries(config);
    b->attended = take(arena, n * (q > d ? q : d)); /* the head's, too */
    b->hidden = take(arena, most * infer->hidden_width);
    b->act = take(arena, most * config->ffn_width);
    if (config->experts > 0) {
        b->routing = &infer->work.routing;
        b->sorted = take(arena, most * d);
        block_routing_layout(&infer->work.routing, config, n, arena);
    }
    block_lora_layout(&b->lora, config, infer->params, NULL,
                      (size_t)n * sizeof(float), arena, &in);
}

static void layout_work(struct infer *infer, struct arena *arena)
{
    const struct model_config *config = &infer->config;
    struct infer_work *work = &infer->work;
    int64_t n = infer->options.rows;
    int64_t logits = infer_logit_rows(infer);
    work->tokens = take_numbers(arena, n);
    work->positions = take_numbers(arena, n);
    work->slots = take_numbers(arena, n);
    work->wanted = take_numbers(arena, n);
    layout_block(infer, arena);
    work->logits = take(arena, logits * config->vocab_size);
    work->losses = take(arena, logits);
    work->labels = take_numbers(arena, logits);
    infer_experts_layout(infer, arena);
    if (config->positions == POSITIONS_ROPE)
        work->rotation = take(arena, n * infer->head_dim);
    if (config->window_rope_theta > 0.0)
        work->rotation_apart = take(arena, n * infer->head_dim);
    block_tables_layout(&infer->tables, config, infer->capacity, arena);
}

/* Lay the tensors out; the arena may only count. Returns the bytes of the caches
 * in *cache. */
static void infer_layout(struct infer *infer, struct arena *arena,
                         size_t *cache)
{
    layout_scratch(infer, arena);
    size_t before = arena->used;
    infer->keys = take(arena, infer->cache_floats);
    infer->values = take(arena, infer->cache_floats);
    *cache = arena->used - before;
    layout_work(infer, arena);
}

/* The host's buffers, of which there are none on CPU. */
static void infer_layout_host(struct infer *infer, struct arena *arena)
{
    const struct infer_work *work = &infer->work;
    struct infer_host *host = &infer->host;
    int64_t n = infer->options.rows, logits = infer_logit_rows(infer);
    if (!infer->kernels->memory->device) {
        *host = (struct infer_host){ .tokens = work->tokens,
                                     .positions = work->positions,
                                     .slots = work->slots,
                                     .wanted = work->wanted,
                                     .labels = work->labels,
                                     .logits = work->logits,
                                     .losses = work->losses };
        return;
    }
    host->tokens = take_numbers(arena, n);
    host->positions = take_numbers(arena, n);
    host->slots = take_numbers(arena, n);
    host->wanted = take_numbers(arena, n);
    host->labels = take_numbers(arena, logits);
    host->logits = take(arena, logits * infer->config.vocab_size);
    host->losses = take(arena, logits);
}

/* --- making one --- */

const char infer_known[] =
    " preset d_model n_heads n_kv_heads head_dim n_layers vocab_size "
    "max_seq_len "
    "expansion_ratio ffn_width positions rope_theta rope_scaling rope_factor "
    "rope_low_freq_factor rope_high_freq_factor rope_original_len "
    "rope_beta_fast rope_beta_slow rope_attention_factor "
    "no_rope_interval window window_interval window_rope_theta alibi_bias_max "
    "norm norm_eps norm_place norm_plus_one embedding_scale "
    "attention_scale qk_norm clip_qkv "
    "ffn activation bias "
    "qkv_bias out_bias mlp_bias tied logit_scale residual_scale experts "
    "experts_top_k router_normalize "
    /* of training alone */
    "attn_uses_sequence_id dropout_embedding dropout_attention "
    "dropout_residual init init_std init_embedding_std router_jitter "
    "balance_weight ";

/* Numbers of keys, and as many of values. People choose slots and positions, and
 * their product may be more than 64 bits hold. */
static enum err count_cache(const struct infer *infer, int64_t *out)
{
    const struct model_config *config = &infer->config;
    int64_t floats = config->n_layers * config->n_kv_heads, bytes;
    if (__builtin_mul_overflow(floats, infer->head_dim, &floats) ||
        __builtin_mul_overflow(floats, infer->options.sequences, &floats) ||
        __builtin_mul_overflow(floats, infer->capacity, &floats) ||
        __builtin_mul_overflow(floats, 2 * (int64_t)sizeof(float), &bytes))
        return err_set(ERR_MEMORY,
                       "keys and values of %" PRId64 " x %" PRId64
                       " tokens are more than any memory: choose fewer or "
                       "shorter sequences",
                       infer->options.sequences, infer->options.positions);
    *out = floats;
    return ERR_OK;
}

static enum err open_infer(const struct model_config *config,
                           const struct params *params,
                           const struct kernels *kernels,
                           const struct infer_options *options,
                           struct infer **out)
{
    assert(options->threads >= 1 && options->sequences >= 1);
    assert(options->positions >= 1 && options->rows >= 1);
    assert(options->rows <= INT_MAX / KERNEL_TOP_K_MAX);
    assert(options->sequences <= INT_MAX && options->positions <= INT_MAX / 2);
    assert(config->positions != POSITIONS_LEARNED ||
           options->positions <= config->max_seq_len);
    assert(options->dtype == DTYPE_F32 || options->dtype == DTYPE_BF16);
    TRY(model_known_check(model_known_rows, model_known_row_count, config,
                          infer_known, "generation"));
    struct infer *infer = NULL;
    TRY(new_zeroed(&infer, 1));
    infer->config = *config;
    infer->options = *options;
    infer->params = params;
    infer->kernels = kernels;
    infer->ctx.threads = options->threads;
    infer->ctx.stream = options->stream;
    infer->head_dim = model_config_head_dim(config);
    infer->qkv_width =
        (config->n_heads + 2 * config->n_kv_heads) * infer->head_dim;
    infer->hidden_width =
        config->ffn == FFN_GLU ? 2 * config->ffn_width : config->ffn_width;
    infer->capacity = (options->positions + KERNEL_CACHE_KEYS - 1) /
                      KERNEL_CACHE_KEYS * KERNEL_CACHE_KEYS;
    infer->b = (struct block){ .config = &infer->config,
                               .params = params,
                               .kernels = kernels,
                               .ctx = &infer->ctx,
                               .dtype = DTYPE_F32,
                               .small = INFER_SMALL,
                               .lora = { .rank = params->lora_rank,
                                         .alpha = options->lora_alpha },
                               .walker = &infer_walker,
                               .arg = infer };
    enum err rc = count_cache(infer, &infer->cache_floats);
    return new_or_none(rc, infer, out, free);
}

static enum err allocate(struct infer *infer)
{
    const struct kernel_memory *memory = infer->kernels->memory;
    size_t sequences = (size_t)infer->options.sequences, cache;
    struct arena plan = { 0 }, host = { 0 };
    TRY(new_zeroed(&infer->length, sequences));
    TRY(new_zeroed(&infer->busy, sequences));
    TRY(new_zeroed(&infer->lent, (size_t)infer->params->block_count));
    TRY(new_zeroed(&infer->targets, (size_t)infer->options.rows));
    infer_layout(infer, &plan, &cache);
    infer_layout_host(infer, &host);
    TRY(memory->tensors_create(plan.used, &infer->tensors));
    if (host.used > 0)
        TRY(memory->host_create(host.used, &infer->host_memory));
    infer_layout(infer, &infer->tensors, &cache);
    infer_layout_host(infer, &infer->host_memory);
    return ERR_OK;
}

enum err infer_create(const struct model_config *config,
                      const struct params *params,
                      const struct kernels *kernels,
                      const struct infer_options *options, struct infer **out)
{
    enum err rc = ERR_OK;
    struct infer *infer = NULL;
    TRY(open_infer(config, params, kernels, options, &infer));
    TRY_OUT(allocate(infer));
    TRY_OUT(block_tables_fill(&infer->tables, config, kernels,
                              infer->ctx.stream, infer->capacity));
out:
    return new_or_none(rc, infer, out, infer_destroy);
}

void infer_destroy(struct infer *infer)
{
    if (infer == NULL)
        return;
    const struct kernel_memory *memory = infer->kernels->memory;
    if (infer->tensors.base != NULL)
        (void)memory->wait(infer->ctx.stream);
    infer_hold_drop(infer);
    memory->tensors_destroy(&infer->widened);
    memory->host_destroy(&infer->host_memory);
    memory->tensors_destroy(&infer->tensors);
    free(infer->held);
    free(infer->targets);
    free(infer->lent);
    free(infer->busy);
    free(infer->length);
    free(infer);
}

enum err infer_plan(const struct model_config *config,
                    const struct params *params, const struct kernels *kernels,
                    const struct infer_options *options,
                    enum infer_weights weights, size_t *cache, size_t *held,
                    size_t *total)
{
    enum err rc = ERR_OK;
    struct infer *infer = NULL;
    struct arena plan = { 0 }, host = { 0 }, copy = { 0 };
    TRY_OUT(open_infer(config, params, kernels, options, &infer));
    infer_layout(infer, &plan, cache);
    infer_layout_host(infer, &host);
    infer_hold_layout(infer, weights, NULL, &copy);
    *held = copy.used;
    *total = arena_sum(arena_sum(plan.used, host.used), copy.used);
out:
    infer_destroy(infer);
    return rc;
}

enum err infer_backend_find(enum infer_backend backend, int local_rank,
                            const struct kernels **out, void **stream)
{
    TRY(kernels_find(infer_backend_names[backend], "auto", out));
    TRY((*out)->memory->use(local_rank));
    return (*out)->memory->stream_create(false, stream);
}

size_t infer_available(const struct kernels *kernels)
{
    const struct kernel_memory *memory = kernels->memory;
    size_t device = memory->available != NULL ? memory->available() : 0;
    if (!memory->device)
        return memory_available("");
    return device > 0 ? device : SIZE_MAX;
}

/* --- slots --- */

int64_t infer_length(const struct infer *infer, int64_t slot)
{
    assert(slot >= 0 && slot < infer->options.sequences);
    return infer->length[slot];
}

void infer_cut(struct infer *infer, int64_t slot, int64_t length)
{
    assert(length >= 0 && length <= infer_length(infer, slot));
    infer->length[slot] = length;
}
