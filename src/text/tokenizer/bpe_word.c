/* The tokens of one word: of all pairs that merge the one of the lowest rank
 * first, the leftmost of several, until none is left.
 *
 * They wait in a heap, each at most three times, so that a word of n symbols costs
 * n log n. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/array.h"
#include "src/base/new.h"
#include "src/text/tokenizer/bpe_impl.h"
#include "src/text/unicode.h"

#define BPE_WORD_MAX INT32_MAX /* bytes; positions are int32_t */

/* A symbol of the word. */
struct bpe_word_symbol {
    int32_t token;
    int32_t left, right; /* positions; -1: none */
    uint32_t rank;       /* of the pair with the one to the right */
    int32_t both;        /* what they become */
};

struct bpe_word {
    const struct bpe *bpe;
    uint64_t *heap; /* ranks and positions of pairs: the least is next */
    size_t waiting, heap_capacity;
    struct bpe_word_symbol *symbol;
    size_t symbols_capacity;
    struct token_list tokens; /* what the word is made of at first */
    uint64_t lost, lacking;
};

enum err bpe_word_create(const struct bpe *bpe, struct bpe_word **out)
{
    assert(bpe != NULL && out != NULL);
    struct bpe_word *work = NULL;
    TRY(new_zeroed(&work, 1));
    work->bpe = bpe;
    *out = work;
    return ERR_OK;
}

void bpe_word_destroy(struct bpe_word *work)
{
    if (work == NULL)
        return;
    free(work->heap);
    free(work->symbol);
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

/* The pair that begins at this position is another one now. */
static enum err bpe_word_wait(struct bpe_word *work, int32_t position)
{
    struct bpe_word_symbol *symbol = &work->symbol[position];
    symbol->rank =
        symbol->right < 0
            ? BPE_NO_RANK
            : bpe_word_rank(work->bpe, symbol->token,
                            work->symbol[symbol->right].token, &symbol->both);
    if (symbol->rank == BPE_NO_RANK)
        return ERR_OK;
    TRY(array_room(&work->heap, &work->heap_capacity, work->waiting + 1));
    uint64_t new = (uint64_t)symbol->rank << 32 | (uint32_t)position;
    size_t i = work->waiting++;
    for (; i > 0 && work->heap[(i - 1) / 2] > new; i = (i - 1) / 2)
        work->heap[i] = work->heap[(i - 1) / 2];
    work->heap[i] = new;
    return ERR_OK;
}

/* The least of the heap. */
static uint64_t bpe_word_next(struct bpe_word *work)
{
    uint64_t *heap = work->heap, top = heap[0], last = heap[--work->waiting];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < work->waiting; i = child) {
        if (child + 1 < work->waiting && heap[child + 1] < heap[child])
            child++;
        if (last <= heap[child])
            break;
        heap[i] = heap[child];
    }
    heap[i] = last;
    return top;
}

/* Symbols are a list with links both ways, in an array by position: merging
 * takes out the right one of two, and only the neighbours' links change. What
 * waits for a pair that is gone is not looked for. It is seen to be stale when
 * its turn comes, because the rank at that position is another one by then. */
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

static enum err bpe_word_merge(struct bpe_word *work, struct token_list *out)
{
    size_t count = work->tokens.count;
    TRY(array_room(&work->symbol, &work->symbols_capacity, count));
    for (size_t i = 0; i < count; i++)
        work->symbol[i] = (struct bpe_word_symbol){
            .token = work->tokens.token[i],
            .left = (int32_t)i - 1,
            .right = i + 1 < count ? (int32_t)i + 1 : -1,
        };
    work->waiting = 0;
    for (size_t i = 0; i < count; i++)
        TRY(bpe_word_wait(work, (int32_t)i));
    while (work->waiting > 0) {
        uint64_t next = bpe_word_next(work);
        int32_t position = (int32_t)(uint32_t)next;
        if (work->symbol[position].rank == next >> 32)
            TRY(bpe_word_join(work, position));
    }
    for (int32_t i = 0; i >= 0; i = work->symbol[i].right)
        TRY(token_list_add(out, &work->symbol[i].token, 1));
    return ERR_OK;
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
    return bpe_word_merge(work, out);
}
