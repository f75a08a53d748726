/* A call: the tokens of all its slots, one after the other, options.rows at a
 * time. A pass may end in the middle of a slot's tokens and the next goes on
 * there, since what it needs of them is in the cache; so a call may have any
 * number of tokens, and memory is that of a pass. Lengths of slots change at the
 * end, when everything has gone well: what a failed call has written to the
 * cache lies behind them and is written over. */
#include <assert.h>
#include <math.h>

#include "src/infer/infer_impl.h"

/* How far a call has come. */
struct place {
    const struct infer_tokens *list;
    int count;
    int entry;  /* at work */
    int64_t at; /* its next token */
};

/* --- what is asked for --- */

static enum err check_tokens(const struct infer *infer,
                             const struct infer_tokens *t)
{
    int64_t vocab = infer->config.vocab_size;
    int64_t length = infer->length[t->slot];
    if (t->count > infer->options.positions - length)
        return err_set(
            ERR_USAGE,
            "a text of %lld tokens is too long by %lld: there is room for %lld",
            (long long)(length + t->count),
            (long long)(length + t->count - infer->options.positions),
            (long long)infer->options.positions);
    for (int64_t i = 0; i < t->count; i++)
        if (t->tokens[i] < 0 || t->tokens[i] >= vocab)
            return err_set(ERR_USAGE,
                           "token %lld of a text is %d, but the model's "
                           "vocabulary has %lld: another model's tokenizer?",
                           (long long)(length + i), (int)t->tokens[i],
                           (long long)vocab);
    for (int64_t i = 0; t->labels != NULL && i < t->wanted; i++)
        if (t->labels[i] >= vocab)
            return err_set(ERR_USAGE,
                           "label %lld of a text is %d, but the model's "
                           "vocabulary has %lld: another model's tokenizer?",
                           (long long)i, (int)t->labels[i], (long long)vocab);
    return ERR_OK;
}

static enum err check(struct infer *infer, const struct infer_tokens *list,
                      int count)
{
    for (int i = 0; i < count; i++) {
        const struct infer_tokens *t = &list[i];
        assert(t->slot >= 0 && t->slot < infer->options.sequences);
        assert(t->count >= 0 && t->wanted >= 0 && t->wanted <= t->count);
        assert((t->labels == NULL) == (t->nll == NULL));
        assert(!infer->busy[t->slot]);
        infer->busy[t->slot] = true;
    }
    for (int i = 0; i < count; i++)
        infer->busy[list[i].slot] = false;
    for (int i = 0; i < count; i++)
        TRY(check_tokens(infer, &list[i]));
    return ERR_OK;
}

/* --- the embedding and the blocks (block.h) --- */

/* Only attention knows that rows belong to texts. Each row writes its
 * key and value to its position of its slot's cache and then looks at all of that
 * slot up to itself, in one fixed order: whether its neighbours of the same text
 * are in this pass, in an earlier call, or were copied makes no difference to a
 * bit of it. Everything else is row by row. */
static enum err attend(struct infer *infer, int layer)
{
    const struct model_config *config = &infer->config;
    int64_t cache = infer->options.sequences * config->n_kv_heads *
                    infer->capacity * infer->head_dim;
    const struct attention_cached shape = {
        .rows = infer->b.n,
        .heads = config->n_heads,
        .kv_heads = config->n_kv_heads,
        .head_dim = infer->head_dim,
        .window = model_config_window(config, layer),
        .scale = model_config_attention_scale(config),
        .alibi_slopes = infer->tables.slopes,
        .slots = infer->work.slots,
        .positions = infer->work.positions,
        .capacity = infer->capacity,
        .keys = infer->keys + layer * cache,
        .values = infer->values + layer * cache,
    };
    return infer->kernels->attention_cached(&infer->ctx, &shape, infer->b.ready,
                                            infer->b.attended);
}

static enum err blocks(struct infer *infer)
{
    const struct params *params = infer->params;
    struct block *b = &infer->b;
    for (int layer = 0; layer < infer->config.n_layers; layer++) {
        b->number = params_layer_block(params, layer);
        b->owes = layer > 0;
        b->rope = block_tables_rope(&infer->config, layer, infer->work.rotation,
                                    infer->work.rotation_apart);
        TRY(infer_enter(infer, b->number, params->layer_blocks, 0));
        TRY(block_before(b));
        TRY(attend(infer, layer));
        TRY(block_after(b));
        TRY(block_ffn(b));
        TRY(infer_leave(infer, b->number, params->layer_blocks));
    }
    return ERR_OK;
}

/* Rows of a table by the rows' positions. */
static enum err by_position(struct infer *infer, int64_t width,
                            const float *table, float *out)
{
    struct kernel_ctx ctx = infer_ctx(infer, infer->b.n * width);
    return infer->kernels->embedding_forward(
        &ctx, DTYPE_F32, infer->b.n, infer->b.n, width, infer->work.positions,
        table, NULL, out);
}

static enum err embed(struct infer *infer)
{
    struct infer_work *work = &infer->work;
    struct block *b = &infer->b;
    const struct model_config *config = &infer->config;
    int64_t d = config->d_model;
    struct kernel_ctx ctx = infer_ctx(infer, infer->b.n * d);
    b->seq = b->n;
    TRY(infer_enter(infer, 0, 1, 0));
    TRY(infer_embedding(infer, infer->b.n, work->tokens, b->x));
    const float *wpe = infer_vector(infer, 0, PARAM_WPE);
    if (wpe != NULL) {
        TRY(by_position(infer, d, wpe, b->norm));
        TRY(infer->kernels->add(&ctx, DTYPE_F32, infer->b.n * d, b->x, 1.0f,
                                b->norm, b->x));
    }
    TRY(block_embed_scale(infer->kernels, &ctx, config, DTYPE_F32,
                          infer->b.n * d, b->x));
    if (infer->tables.rope != NULL)
        TRY(by_position(infer, infer->head_dim, infer->tables.rope,
                        work->rotation));
    if (infer->tables.apart != NULL)
        TRY(by_position(infer, infer->head_dim, infer->tables.apart,
                        work->rotation_apart));
    return infer_leave(infer, 0, 1);
}

/* --- the head: from the residual stream to logits, losses, the likeliest token.
 * It is the largest product of all, vocabulary times width, and of a prompt only
 * the last row is wanted: so wanted rows are picked out before the final norm, and
 * their logits made 128 at a time, which bounds the room for them --- */

/* --- what is made of a row of logits, by the host --- */

/* The first of the largest of scale * x[n]; -1 if none is a number. */
static int64_t largest(const float *x, int64_t n, float scale)
{
    float most = -INFINITY;
    int64_t at = -1;
    for (int64_t i = 0; i < n; i++) {
        float value = x[i] * scale;
        if (value > most) {
            most = value;
            at = i;
        }
    }
    /* all may be -Inf */
    for (int64_t i = 0; i < n && at < 0; i++)
        if (!isnan(x[i]))
            at = i;
    return at;
}

static enum err take_logits(const struct infer *infer,
                            const struct infer_target *target,
                            const float *logits)
{
    int64_t v = infer->config.vocab_size;
    float scale = (float)infer->config.logit_scale;
    const struct infer_tokens *t = target->tokens;
    if (t->logits != NULL)
        for (int64_t i = 0; i < v; i++)
            t->logits[target->at * v + i] = logits[i] * scale;
    if (t->argmax == NULL)
        return ERR_OK;
    int64_t at = largest(logits, v, scale);
    if (at < 0)
        return err_set(ERR_NUMERIC,
                       "the model's logits are not numbers at position %lld of "
                       "a text: its weights are damaged or it has diverged",
                       (long long)(infer->length[t->slot] + t->count -
                                   t->wanted + target->at));
    t->argmax[target->at] = (int32_t)at;
    return ERR_OK;
}

/* --- some rows --- */

/* Whether any row's logits are looked at by the host, and whether any has a
 * label. */
static void wanted_of(const struct infer_target *targets, int64_t count,
                      bool *logits, bool *labels)
{
    *logits = *labels = false;
    for (int64_t i = 0; i < count; i++) {
        const struct infer_tokens *t = targets[i].tokens;
        *logits |= t->logits != NULL || t->argmax != NULL;
        *labels |= t->labels != NULL;
    }
}

static enum err logits_to_host(struct infer *infer,
                               const struct infer_target *targets,
                               int64_t count)
{
    const struct kernel_memory *memory = infer->kernels->memory;
    int64_t v = infer->config.vocab_size;
    if (memory->device) {
        TRY(memory->download(infer->ctx.stream,
                             (size_t)(count * v) * sizeof(float),
                             infer->work.logits, infer->host.logits));
        TRY(memory->wait(infer->ctx.stream));
    }
    for (int64_t i = 0; i < count; i++)
        TRY(take_logits(infer, &targets[i], infer->host.logits + i * v));
    return ERR_OK;
}

static enum err losses(struct infer *infer, const struct infer_target *targets,
                       int64_t count)
{
    const struct kernel_memory *memory = infer->kernels->memory;
    struct infer_host *host = &infer->host;
    struct infer_work *work = &infer->work;
    for (int64_t i = 0; i < count; i++) {
        const struct infer_tokens *t = targets[i].tokens;
        host->labels[i] = t->labels != NULL ? t->labels[targets[i].at] : -1;
    }
    if (memory->device)
        TRY(memory->upload(infer->ctx.stream, (size_t)count * sizeof(int32_t),
                           host->labels, work->labels));
    TRY(infer->kernels->cross_entropy(
        &infer->ctx, DTYPE_F32, count, infer->config.vocab_size,
        (float)infer->config.logit_scale, &(struct target){ 0 }, work->logits,
        work->labels, false, work->losses));
    if (memory->device)
        TRY(memory->download(infer->ctx.stream, (size_t)count * sizeof(float),
                             work->losses, host->losses));
    TRY(memory->wait(infer->ctx.stream));
    for (int64_t i = 0; i < count; i++)
        if (targets[i].tokens->labels != NULL)
            targets[i].tokens->nll[targets[i].at] = host->losses[i];
    return ERR_OK;
}

/* x[count, d] has passed the final norm. */
static enum err head_rows(struct infer *infer,
                          const struct infer_target *targets, int64_t count,
                          const float *x)
{
    const struct model_config *config = &infer->config;
    bool tied = config->tied, wants_logits, wants_losses;
    wanted_of(targets, count, &wants_logits, &wants_losses);
    if (!wants_logits && !wants_losses)
        return ERR_OK;
    TRY(infer_product(infer, tied ? 0 : infer->params->block_count - 1,
                      tied ? PARAM_WTE : PARAM_LM_HEAD, count,
                      config->vocab_size, config->d_model, x, NULL,
                      infer->work.logits));
    /* in this order: losses may destroy logits */
    if (wants_logits)
        TRY(logits_to_host(infer, targets, count));
    return wants_losses ? losses(infer, targets, count) : ERR_OK;
}

/* --- all wanted rows --- */

/* x + scale * branch of the wanted rows, and its norm in b.x. */
static enum err final_norm(struct infer *infer, int64_t count)
{
    const struct kernels *k = infer->kernels;
    const int32_t *wanted = infer->work.wanted;
    int64_t d = infer->config.d_model;
    struct block *b = &infer->b, rows = *b;
    struct kernel_ctx ctx = infer_ctx(infer, count * d);
    TRY(k->embedding_forward(&ctx, DTYPE_F32, count, count, d, wanted, b->x,
                             NULL, b->attended));
    TRY(k->embedding_forward(&ctx, DTYPE_F32, count, count, d, wanted,
                             b->branch, NULL, b->norm));
    b->number = infer->params->block_count - 1;
    rows.n = count;
    rows.norm = b->x;
    return block_add_norm(&rows, PARAM_NORM_F_WEIGHT, b->attended, b->norm,
                          b->attended);
}

static enum err head(struct infer *infer, int64_t count)
{
    int64_t most = infer_logit_rows(infer);
    const float *x = infer->b.x;
    TRY(final_norm(infer, count));
    for (int64_t first = 0; first < count; first += most) {
        int64_t rows = count - first < most ? count - first : most;
        TRY(head_rows(infer, infer->targets + first, rows,
                      x + first * infer->config.d_model));
    }
    return ERR_OK;
}

/* Logits and what is wanted of them, of rows work.wanted[count], to where targets
 * says. What was gathered is released also where logits are no numbers. */
static enum err head_of(struct infer *infer, int64_t count)
{
    int last = infer->params->block_count - 1;
    bool tied = infer->config.tied;
    struct err_kept kept;
    TRY(infer_enter(infer, last, 1, infer_block_elements(infer, 0)));
    if (tied)
        TRY(infer_enter(infer, 0, 1, 0));
    err_keep(&kept, count > 0 ? head(infer, count) : ERR_OK);
    if (tied)
        TRY(infer_leave(infer, 0, 1));
    TRY(infer_leave(infer, last, 1));
    return err_again(&kept);
}

/* --- a pass --- */

/* The next rows, at most options.rows; returns how many are wanted. */
static int64_t fill(struct infer *infer, struct place *place)
{
    struct infer_host *host = &infer->host;
    int64_t wanted = 0;
    infer->b.n = 0;
    for (; place->entry < place->count; place->entry++, place->at = 0) {
        const struct infer_tokens *t = &place->list[place->entry];
        for (; place->at < t->count && infer->b.n < infer->options.rows;
             place->at++, infer->b.n++) {
            int64_t first = t->count - t->wanted;
            host->tokens[infer->b.n] = t->tokens[place->at];
            host->slots[infer->b.n] = (int32_t)t->slot;
            host->positions[infer->b.n] =
                (int32_t)(infer->length[t->slot] + place->at);
            if (place->at < first)
                continue;
            infer->targets[wanted] =
                (struct infer_target){ .tokens = t, .at = place->at - first };
            host->wanted[wanted++] = (int32_t)infer->b.n;
        }
        if (place->at < t->count)
            break;
    }
    return wanted;
}

static enum err upload(struct infer *infer)
{
    const struct kernel_memory *memory = infer->kernels->memory;
    size_t bytes = (size_t)infer->b.n * sizeof(int32_t);
    void *stream = infer->ctx.stream;
    if (!memory->device)
        return ERR_OK;
    TRY(memory->upload(stream, bytes, infer->host.tokens, infer->work.tokens));
    TRY(memory->upload(stream, bytes, infer->host.slots, infer->work.slots));
    TRY(memory->upload(stream, bytes, infer->host.positions,
                       infer->work.positions));
    TRY(memory->upload(stream, bytes, infer->host.wanted, infer->work.wanted));
    return memory->wait(stream);
}

/* Without rows blocks are only gathered, for the ranks that have some. */
static enum err gather_only(struct infer *infer)
{
    const struct params *params = infer->params;
    TRY(infer_enter(infer, 0, 1, 0));
    TRY(infer_leave(infer, 0, 1));
    for (int layer = 0; layer < infer->config.n_layers; layer++) {
        int block = params_layer_block(params, layer);
        TRY(infer_enter(infer, block, params->layer_blocks, 0));
        TRY(infer_leave(infer, block, params->layer_blocks));
    }
    return head_of(infer, 0);
}

static enum err pass(struct infer *infer, int64_t wanted)
{
    if (infer->b.n == 0)
        return gather_only(infer);
    TRY(upload(infer));
    TRY(embed(infer));
    TRY(blocks(infer));
    return head_of(infer, wanted);
}

enum err infer_forward(struct infer *infer, const struct param_access *access,
                       const struct infer_tokens *list, int count)
{
    struct place place = { .list = list, .count = count };
    assert(count >= 0 && (access != NULL || infer->held != NULL));
    TRY(check(infer, list, count));
    infer->access = access;
    do {
        int64_t wanted = fill(infer, &place);
        TRY(pass(infer, wanted));
    } while (place.entry < count);
    TRY(infer->kernels->memory->wait(infer->ctx.stream));
    for (int i = 0; i < count; i++)
        infer->length[list[i].slot] += list[i].count;
    return ERR_OK;
}
