/* A call: the tokens of all its slots, one after the other, options.rows at a
 * time. A pass may end in the middle of a slot's tokens and the next goes on
 * there, since what it needs of them is in the cache; so a call may have any
 * number of tokens, and memory is that of a pass. Lengths of slots change at the
 * end, when everything has gone well: what a failed call has written to the
 * cache lies behind them and is written over. */
#include <assert.h>

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
            "a text of %lld tokens is too long by %lld: there is "
            "room for %lld",
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
    return infer_head(infer, 0);
}

static enum err pass(struct infer *infer, int64_t wanted)
{
    if (infer->b.n == 0)
        return gather_only(infer);
    TRY(upload(infer));
    TRY(infer_embed(infer));
    TRY(infer_blocks(infer));
    return infer_head(infer, wanted);
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
