/* The tokens of one word: of all pairs that merge the one of the lowest rank
 * first, the leftmost of several, until none is left.
 *
 * A short word is searched for it again and again. In a long one positions wait
 * in a list per rank; lists are taken by rank, and a list's positions from left
 * to right. A merge can make a pair of a rank below the list's, which then comes
 * first: so lists that are being worked on lie on a stack. Each position is put
 * into a list at most three times, so that a word of n symbols costs n log n,
 * and nearly n where lists are few and long. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/array.h"
#include "src/base/new.h"
#include "src/text/tokenizer/bpe_impl.h"
#include "src/text/unicode.h"

#define BPE_WORD_SHORT 32
#define BPE_WORD_CHUNK 14
#define BPE_WORD_AHEAD 8       /* positions whose symbols are fetched before */
#define BPE_WORD_MAX INT32_MAX /* bytes; positions are int32_t */

/* A list that is being worked on: its positions are order[at .. end). */
struct bpe_word_frame {
    uint32_t rank;
    size_t begin, at, end;
};

/* A symbol of the word. */
struct bpe_word_symbol {
    int32_t token;
    int32_t left, right; /* positions; -1: none */
    uint32_t rank;       /* of the pair with the one to the right */
    int32_t both;        /* what they become */
};

/* A cache line of a list's positions. */
struct bpe_word_chunk {
    int32_t next; /* the chunk that was filled before; -1: none */
    int32_t count;
    int32_t position[BPE_WORD_CHUNK];
};

struct bpe_word {
    const struct bpe *bpe;
    int32_t *head;  /* by rank: the list's last chunk; -1: none */
    uint32_t *heap; /* ranks that have a list */
    size_t ranks, ranks_capacity;
    struct bpe_word_symbol *symbol;
    size_t symbols_capacity;
    struct bpe_word_chunk *chunk;
    size_t chunks, chunks_capacity;
    int32_t spare; /* chunks of lists that were taken; -1: none */
    int32_t *order;
    size_t ordered, order_capacity;
    struct bpe_word_frame *frame;
    size_t frames, frames_capacity;
    struct token_list tokens; /* what the word is made of at first */
    uint64_t lost, lacking;
};

enum err bpe_word_create(const struct bpe *bpe, struct bpe_word **out)
{
    assert(bpe != NULL && out != NULL);
    struct bpe_word *work = NULL;
    TRY(new_zeroed(&work, 1));
    work->bpe = bpe;
    work->spare = -1;
    enum err rc = new_room(&work->head, bpe->merges + 1);
    for (size_t i = 0; rc == ERR_OK && i <= bpe->merges; i++)
        work->head[i] = -1;
    return new_or_none(rc, work, out, bpe_word_destroy);
}

void bpe_word_destroy(struct bpe_word *work)
{
    if (work == NULL)
        return;
    free(work->head);
    free(work->heap);
    free(work->symbol);
    free(work->chunk);
    free(work->order);
    free(work->frame);
    free(work->tokens.token);
    free(work);
}

/* One character that has no token of its own. *unk: one before waits for its
 * token. It comes before the next character that has a token: behind bytes that
 * stand for characters, as in the Hugging Face library. */
static enum err bpe_word_unknown(struct bpe_word *work, const uint8_t *text,
                                 size_t bytes, bool *unk)
{
    const struct bpe *bpe = work->bpe;
    int32_t fallback[4];
    bool all = bpe->options.byte_fallback;
    for (size_t i = 0; i < bytes && all; i++) {
        fallback[i] = bpe->fallback_token[text[i]];
        all = fallback[i] >= 0;
    }
    if (all)
        return token_list_add(&work->tokens, fallback, bytes);
    work->lacking++;
    if (bpe->options.unk < 0) {
        work->lost++;
        return ERR_OK;
    }
    if (*unk && !bpe->options.fuse_unk)
        TRY(token_list_add(&work->tokens, &bpe->options.unk, 1));
    *unk = true;
    return ERR_OK;
}

/* The word as bytes or as characters, in work->tokens. */
static enum err bpe_word_begin(struct bpe_word *work, const uint8_t *word,
                               size_t bytes)
{
    const struct bpe *bpe = work->bpe;
    bool unk = false;
    work->tokens.count = 0;
    TRY(token_list_room(&work->tokens, bytes));
    for (size_t i = 0, length = 1; i < bytes; i += length) {
        int32_t token = 0;
        if (bpe->options.bytes || word[i] < 0x80) {
            token = bpe->byte_token[word[i]];
            length = 1;
        } else {
            unicode_at(word + i, &length);
            token = bpe_find(bpe, word + i, length);
        }
        if (token < 0) {
            TRY(bpe_word_unknown(work, word + i, length, &unk));
            continue;
        }
        if (unk)
            TRY(token_list_add(&work->tokens, &bpe->options.unk, 1));
        unk = false;
        if (work->tokens.count == work->tokens.capacity)
            TRY(token_list_room(&work->tokens, 1));
        work->tokens.token[work->tokens.count++] = token;
    }
    return unk ? token_list_add(&work->tokens, &bpe->options.unk, 1) : ERR_OK;
}

static uint32_t bpe_word_rank(const struct bpe *bpe, int32_t left,
                              int32_t right, int32_t *both)
{
    const struct bpe_pair *pair = bpe_pair_find(bpe, left, right);
    if (pair == NULL)
        return BPE_NO_RANK;
    *both = pair->both;
    return pair->rank;
}

/* Most words have fewer than ten symbols, for which no list or heap is made as
 * fast as three rows of numbers are gone through. A merge changes the two pairs
 * beside it; other ranks are only moved. */
static enum err bpe_word_short(struct bpe_word *work, struct token_list *out)
{
    const struct bpe *bpe = work->bpe;
    int32_t token[BPE_WORD_SHORT], both[BPE_WORD_SHORT];
    uint32_t rank[BPE_WORD_SHORT];
    size_t count = work->tokens.count;
    memcpy(token, work->tokens.token, count * sizeof *token);
    for (size_t i = 0; i + 1 < count; i++)
        rank[i] = bpe_word_rank(bpe, token[i], token[i + 1], &both[i]);
    while (count > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < count; i++)
            if (rank[i] < rank[best])
                best = i;
        if (rank[best] == BPE_NO_RANK)
            break;
        token[best] = both[best];
        for (size_t i = best + 1; i + 1 < count; i++) {
            token[i] = token[i + 1];
            rank[i] = rank[i + 1]; /* of the last one: not looked at */
            both[i] = both[i + 1];
        }
        count--;
        if (best + 1 < count)
            rank[best] =
                bpe_word_rank(bpe, token[best], token[best + 1], &both[best]);
        if (best > 0)
            rank[best - 1] = bpe_word_rank(bpe, token[best - 1], token[best],
                                           &both[best - 1]);
    }
    return token_list_add(out, token, count);
}

/* A heap of ranks, the lowest on top. */
static enum err bpe_word_push_rank(struct bpe_word *work, uint32_t rank)
{
    TRY(array_room(&work->heap, &work->ranks_capacity, work->ranks + 1));
    size_t i = work->ranks++;
    while (i > 0 && work->heap[(i - 1) / 2] > rank) {
        work->heap[i] = work->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    work->heap[i] = rank;
    return ERR_OK;
}

static uint32_t bpe_word_pop_rank(struct bpe_word *work)
{
    uint32_t top = work->heap[0], last = work->heap[--work->ranks];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= work->ranks)
            break;
        if (child + 1 < work->ranks &&
            work->heap[child + 1] < work->heap[child])
            child++;
        if (last <= work->heap[child])
            break;
        work->heap[i] = work->heap[child];
        i = child;
    }
    work->heap[i] = last;
    return top;
}

/* A new last chunk for this list. */
static enum err bpe_word_chunk(struct bpe_word *work, int32_t *head)
{
    int32_t new = work->spare;
    if (new >= 0) {
        work->spare = work->chunk[new].next;
    } else {
        TRY(array_room(&work->chunk, &work->chunks_capacity, work->chunks + 1));
        new = (int32_t)work->chunks++;
    }
    work->chunk[new].next = *head;
    work->chunk[new].count = 0;
    *head = new;
    return ERR_OK;
}

/* The pair that begins at this position is another one now. */
static enum err bpe_word_wait(struct bpe_word *work, int32_t position)
{
    struct bpe_word_symbol *symbol = &work->symbol[position];
    symbol->rank = BPE_NO_RANK;
    if (symbol->right < 0)
        return ERR_OK;
    symbol->rank =
        bpe_word_rank(work->bpe, symbol->token,
                      work->symbol[symbol->right].token, &symbol->both);
    if (symbol->rank == BPE_NO_RANK)
        return ERR_OK;
    int32_t *head = &work->head[symbol->rank];
    if (*head < 0)
        TRY(bpe_word_push_rank(work, symbol->rank));
    if (*head < 0 || work->chunk[*head].count == BPE_WORD_CHUNK)
        TRY(bpe_word_chunk(work, head));
    struct bpe_word_chunk *chunk = &work->chunk[*head];
    chunk->position[chunk->count++] = position;
    return ERR_OK;
}

/* The list of the lowest rank, from left to right, onto the stack. Positions
 * were put into it in the order in which pairs came to be, which mostly is from
 * left to right, so sorting is the exception. */
static enum err bpe_word_take(struct bpe_word *work)
{
    struct bpe_word_frame frame = { .rank = bpe_word_pop_rank(work),
                                    .begin = work->ordered };
    int32_t *head = &work->head[frame.rank];
    size_t count = 0;
    for (int32_t c = *head; c >= 0; c = work->chunk[c].next)
        count += (size_t)work->chunk[c].count;
    TRY(array_room(&work->order, &work->order_capacity, work->ordered + count));
    TRY(array_room(&work->frame, &work->frames_capacity, work->frames + 1));
    work->ordered += count;
    size_t i = work->ordered;
    while (*head >= 0) {
        struct bpe_word_chunk *chunk = &work->chunk[*head];
        int32_t taken = *head;
        i -= (size_t)chunk->count;
        memcpy(work->order + i, chunk->position,
               (size_t)chunk->count * sizeof *work->order);
        *head = chunk->next;
        chunk->next = work->spare;
        work->spare = taken;
    }
    bool sorted = true;
    for (i = frame.begin + 1; i < work->ordered; i++)
        sorted = sorted && work->order[i - 1] <= work->order[i];
    if (!sorted)
        qsort(work->order + frame.begin, count, sizeof *work->order,
              array_order_i32);
    frame.at = frame.begin;
    frame.end = work->ordered;
    work->frame[work->frames++] = frame;
    return ERR_OK;
}

/* Symbols are a list with links both ways, in an array by position: merging
 * takes out the right one of two, and only the neighbours' links change. What
 * waits in lists for a pair that is gone is not looked for. It is seen to be
 * stale when its turn comes, because the rank at that position is another one
 * by then. */
static enum err bpe_word_join(struct bpe_word *work, int32_t position)
{
    struct bpe_word_symbol *symbol = &work->symbol[position];
    struct bpe_word_symbol *gone = &work->symbol[symbol->right];
    symbol->token = symbol->both;
    symbol->right = gone->right;
    gone->rank = BPE_NO_RANK;
    if (symbol->right >= 0)
        work->symbol[symbol->right].left = position;
    TRY(bpe_word_wait(work, position));
    return symbol->left >= 0 ? bpe_word_wait(work, symbol->left) : ERR_OK;
}

static enum err bpe_word_join_all(struct bpe_word *work)
{
    for (;;) {
        struct bpe_word_frame *frame =
            work->frames > 0 ? &work->frame[work->frames - 1] : NULL;
        if (frame != NULL && frame->at == frame->end) {
            work->ordered = frame->begin;
            work->frames--;
        } else if (work->ranks > 0 &&
                   (frame == NULL || work->heap[0] < frame->rank)) {
            TRY(bpe_word_take(work));
        } else if (frame == NULL) {
            return ERR_OK;
        } else {
            int32_t position = work->order[frame->at++];
            if (frame->end - frame->at >= BPE_WORD_AHEAD)
                __builtin_prefetch(
                    &work->symbol[work->order[frame->at + BPE_WORD_AHEAD - 1]]);
            if (work->symbol[position].rank == frame->rank)
                TRY(bpe_word_join(work, position));
        }
    }
}

/* What a failure leaves behind. */
static void bpe_word_clear(struct bpe_word *work)
{
    while (work->ranks > 0)
        work->head[work->heap[--work->ranks]] = -1;
    work->chunks = work->ordered = work->frames = 0;
    work->spare = -1;
}

static enum err bpe_word_long(struct bpe_word *work, struct token_list *out)
{
    enum err rc = ERR_OK;
    size_t count = work->tokens.count;
    TRY_OUT(array_room(&work->symbol, &work->symbols_capacity, count));
    for (size_t i = 0; i < count; i++)
        work->symbol[i] = (struct bpe_word_symbol){
            .token = work->tokens.token[i],
            .left = (int32_t)i - 1,
            .right = i + 1 < count ? (int32_t)i + 1 : -1,
        };
    for (size_t i = 0; i < count; i++)
        TRY_OUT(bpe_word_wait(work, (int32_t)i));
    TRY_OUT(bpe_word_join_all(work));
    for (int32_t i = 0; i >= 0; i = work->symbol[i].right)
        TRY_OUT(token_list_add(out, &work->symbol[i].token, 1));
out:
    bpe_word_clear(work);
    return rc;
}

uint64_t bpe_word_lost(const struct bpe_word *work)
{
    return work->lost;
}

uint64_t bpe_word_lacking(const struct bpe_word *work)
{
    return work->lacking;
}

enum err bpe_word_encode(struct bpe_word *work, const uint8_t *word,
                         size_t bytes, struct token_list *out)
{
    const struct bpe *bpe = work->bpe;
    if (bytes > BPE_WORD_MAX / 3)
        return err_set(ERR_DATA, "a word of %zu bytes; at most %d", bytes,
                       BPE_WORD_MAX / 3);
    if (bpe->options.ignore_merges) {
        int32_t token = bpe_find(bpe, word, bytes);
        if (token >= 0)
            return token_list_add(out, &token, 1);
    }
    TRY(bpe_word_begin(work, word, bytes));
    if (work->tokens.count < 2)
        return token_list_add(out, work->tokens.token, work->tokens.count);
    return work->tokens.count <= BPE_WORD_SHORT ? bpe_word_short(work, out)
                                                : bpe_word_long(work, out);
}
