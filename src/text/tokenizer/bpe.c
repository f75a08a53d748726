/* The tables of a byte pair encoding.
 *
 * A vocabulary of words lacks many words of the next text; one of letters makes
 * rows of numbers that are five times as long. Byte pair encoding lies between
 * (Gage 1994, to compress; Sennrich et al. 2016,
 * https://arxiv.org/abs/1508.07909, to translate; from bytes since GPT-2). A
 * word begins as single characters or bytes, and a list of merges, learned from
 * much text, says which two neighbours become one token: a common word ends as
 * one token, a rare one as several, and none is without tokens. A merge's place
 * in the list is its rank. To encode is to do, of all merges that are possible,
 * the one of the lowest rank, again and again (below), which is what
 * learning has done to the same word.
 *
 * What is asked most is whether two tokens merge, once for each two neighbours
 * and twice after each merge. So the pairs are in an open hash table that is at
 * most half full. */
#include "src/text/tokenizer/bpe.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/array.h"
#include "src/base/map.h"
#include "src/base/new.h"
#include "src/text/unicode.h"

#define BPE_NO_TOKEN UINT32_MAX
#define BPE_NO_RANK UINT32_MAX

/* Where a token is in the texts: what finds it and what it is shown as, which
 * is another for some added tokens. bytes UINT32_MAX: there is no such token.
 */
struct bpe_token {
    uint64_t key, text;
    uint32_t key_bytes, text_bytes;
};

struct bpe_pair {
    uint64_t key; /* left, right */
    uint32_t rank;
    int32_t both;
};

struct bpe {
    struct bpe_options options;
    struct buffer texts;
    struct bpe_token *token; /* by number */
    int32_t highest;
    struct map found; /* tokens by their texts */
    /* Open addressing by both tokens, and no struct map: the pairs themselves
     * lie in the slots, as an index beside them would be a second miss of the
     * cache for every two neighbours of every word. */
    struct bpe_pair *pair;
    size_t pair_mask, merges;
    int32_t byte_token[256];     /* of a byte's text; -1 */
    int32_t fallback_token[256]; /* of "<0x..>"; -1 */
};

static uint64_t bpe_pair_key(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

static size_t bpe_pair_hash(uint64_t key)
{
    key *= 0x9E3779B97F4A7C15;
    return (size_t)(key ^ key >> 32);
}

static size_t bpe_power(size_t at_least)
{
    size_t power = 16;
    while (power < at_least)
        power *= 2;
    return power;
}

enum err bpe_create(const struct bpe_options *options, size_t tokens,
                    size_t merges, int32_t highest, struct bpe **out)
{
    assert(options != NULL && highest >= -1 && out != NULL);
    enum err rc = ERR_OK;
    struct bpe *bpe = NULL;
    size_t pairs = bpe_power(2 * merges);
    size_t numbers = (size_t)highest + 1;
    TRY(new_zeroed(&bpe, 1));
    bpe->options = *options;
    bpe->highest = highest;
    TRY_OUT(new_room(&bpe->token, numbers));
    TRY_OUT(new_room(&bpe->pair, pairs));
    TRY_OUT(map_room(&bpe->found, tokens));
    for (size_t i = 0; i < numbers; i++)
        bpe->token[i] = (struct bpe_token){ .text_bytes = BPE_NO_TOKEN };
    for (size_t i = 0; i < pairs; i++)
        bpe->pair[i] = (struct bpe_pair){ .rank = BPE_NO_RANK };
    bpe->pair_mask = pairs - 1;
out:
    return new_or_none(rc, bpe, out, bpe_destroy);
}

void bpe_destroy(struct bpe *bpe)
{
    if (bpe == NULL)
        return;
    buffer_free(&bpe->texts);
    free(bpe->token);
    map_free(&bpe->found);
    free(bpe->pair);
    free(bpe);
}

int32_t bpe_find(const struct bpe *bpe, const uint8_t *text, size_t bytes)
{
    uint32_t hash = map_hash_bytes(text, bytes);
    for (size_t at = 0, i; map_next(&bpe->found, hash, &at, &i);)
        if (bpe->token[i].key_bytes == bytes &&
            memcmp(bpe->texts.data + bpe->token[i].key, text, bytes) == 0)
            return (int32_t)i;
    return -1;
}

enum err bpe_show(struct bpe *bpe, int32_t token, const uint8_t *text,
                  size_t bytes)
{
    assert(token >= 0 && token <= bpe->highest);
    size_t at = bpe->texts.bytes;
    TRY(buffer_add(&bpe->texts, text, bytes));
    bpe->token[token].text = at;
    bpe->token[token].text_bytes = (uint32_t)bytes;
    return ERR_OK;
}

enum err bpe_add(struct bpe *bpe, int32_t token, const uint8_t *text,
                 size_t bytes, bool found)
{
    assert(token >= 0 && token <= bpe->highest);
    struct bpe_token *into = &bpe->token[token];
    if (into->text_bytes != BPE_NO_TOKEN)
        return err_set(ERR_DATA, "token %d is given twice", token);
    int32_t same = found ? bpe_find(bpe, text, bytes) : -1;
    if (same >= 0)
        return err_set(ERR_DATA, "tokens %d and %d have the same text", same,
                       token);
    if (found)
        TRY(map_add(&bpe->found, map_hash_bytes(text, bytes), (size_t)token));
    TRY(bpe_show(bpe, token, text, bytes));
    into->key = into->text;
    into->key_bytes = into->text_bytes;
    return ERR_OK;
}

/* The slot of a pair, which is free where the two do not merge. */
static struct bpe_pair *bpe_slot(const struct bpe *bpe, uint64_t key)
{
    size_t i = bpe_pair_hash(key) & bpe->pair_mask;
    while (bpe->pair[i].rank != BPE_NO_RANK && bpe->pair[i].key != key)
        i = (i + 1) & bpe->pair_mask;
    return &bpe->pair[i];
}

void bpe_merge(struct bpe *bpe, int32_t left, int32_t right, int32_t both)
{
    assert(left >= 0 && right >= 0 && both >= 0);
    uint64_t key = bpe_pair_key(left, right);
    *bpe_slot(bpe, key) = (struct bpe_pair){ .key = key,
                                             .rank = (uint32_t)bpe->merges,
                                             .both = both };
    bpe->merges++;
}

/* In a file of characters one that has no token is written as the bytes of its
 * UTF-8, each as a token "<0xNN>" (SentencePiece's byte_fallback), if there are
 * all of them. A file of bytes has a token for each, and never lacks any. */
void bpe_seal(struct bpe *bpe)
{
    for (unsigned b = 0; b < 256; b++) {
        uint8_t byte = (uint8_t)b;
        char code[8];
        snprintf(code, sizeof code, "<0x%02X>", b);
        bpe->byte_token[b] = bpe_find(bpe, &byte, 1);
        bpe->fallback_token[b] =
            bpe->options.byte_fallback
                ? bpe_find(bpe, (const uint8_t *)code, strlen(code))
                : -1;
    }
}

bool bpe_text(const struct bpe *bpe, int32_t token, const uint8_t **text,
              size_t *bytes)
{
    assert(text != NULL && bytes != NULL);
    if (token < 0 || token > bpe->highest ||
        bpe->token[token].text_bytes == BPE_NO_TOKEN)
        return false;
    *text = bpe->texts.data + bpe->token[token].text;
    *bytes = bpe->token[token].text_bytes;
    return true;
}

int32_t bpe_highest(const struct bpe *bpe)
{
    return bpe->highest;
}

/* GPT-2's way to write bytes in a file of text, where a lone byte cannot stand
 * (bytes_to_unicode() of its encoder.py): 188 that are printed in Latin-1 are
 * their own characters, and the other 68 follow from U+0100 on in their order,
 * which makes a blank U+0120 and a line end U+010A. */
void byte_alphabet_fill(struct byte_alphabet *alphabet)
{
    size_t count = sizeof alphabet->byte / sizeof alphabet->byte[0];
    size_t next = 256;
    for (size_t i = 0; i < count; i++)
        alphabet->byte[i] = -1;
    for (int16_t b = 0; b < 256; b++) {
        bool shown =
            (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
        alphabet->byte[shown ? (size_t)b : next++] = b;
    }
    assert(next == count);
}

bool byte_alphabet_bytes(const struct byte_alphabet *alphabet,
                         const uint8_t *text, size_t bytes, uint8_t *out,
                         size_t *out_bytes)
{
    assert(out != NULL && out_bytes != NULL);
    size_t count = 0;
    for (size_t i = 0, length = 0; i < bytes; i += length) {
        uint32_t point = unicode_at(text + i, &length);
        if (point >= sizeof alphabet->byte / sizeof alphabet->byte[0] ||
            alphabet->byte[point] < 0)
            return false;
        out[count++] = (uint8_t)alphabet->byte[point];
    }
    *out_bytes = count;
    return true;
}

/* --- the tokens of one word --- */

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

/* The pair that begins at this position is another one now. */
static enum err bpe_word_wait(struct bpe_word *work, int32_t position)
{
    struct bpe_word_symbol *symbol = &work->symbol[position];
    symbol->rank = BPE_NO_RANK;
    if (symbol->right < 0)
        return ERR_OK;
    const struct bpe_pair *pair =
        bpe_slot(work->bpe, bpe_pair_key(symbol->token,
                                         work->symbol[symbol->right].token));
    symbol->rank = pair->rank;
    symbol->both = pair->both;
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
