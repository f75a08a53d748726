/* The tables of a byte pair encoding: bpe.c makes them, bpe_word.c reads. */
#pragma once

#include "src/base/array.h"
#include "src/base/map.h"
#include "src/text/tokenizer/bpe.h"

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
    /* bits by hash, 8 for each slot of pairs: 0 where there is no pair, which
     * is the answer for most, out of a nearer cache than the pairs */
    uint64_t *filter;
    int32_t byte_token[256];     /* of a byte's text; -1 */
    int32_t fallback_token[256]; /* of "<0x..>"; -1 */
};

static inline size_t bpe_pair_hash(uint64_t key)
{
    key *= 0x9E3779B97F4A7C15;
    return (size_t)(key ^ key >> 32);
}

/* Its place among the filter's bits. */
static inline size_t bpe_filter_bit(const struct bpe *bpe, size_t hash)
{
    return hash & (8 * bpe->pair_mask + 7);
}

static inline bool bpe_filter_has(const struct bpe *bpe, size_t hash)
{
    size_t bit = bpe_filter_bit(bpe, hash);
    return (bpe->filter[bit / 64] >> bit % 64 & 1) != 0;
}

/* The merge of two tokens, NULL: they do not merge. */
static inline const struct bpe_pair *bpe_pair_find(const struct bpe *bpe,
                                                   int32_t left, int32_t right)
{
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    size_t hash = bpe_pair_hash(key), i = hash & bpe->pair_mask;
    if (!bpe_filter_has(bpe, hash))
        return NULL;
    while (bpe->pair[i].rank != BPE_NO_RANK) {
        if (bpe->pair[i].key == key)
            return &bpe->pair[i];
        i = (i + 1) & bpe->pair_mask;
    }
    return NULL;
}
