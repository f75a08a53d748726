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
    int32_t byte_token[256];     /* of a byte's text; -1 */
    int32_t fallback_token[256]; /* of "<0x..>"; -1 */
};

static inline size_t bpe_pair_hash(uint64_t key)
{
    key *= 0x9E3779B97F4A7C15;
    return (size_t)(key ^ key >> 32);
}

/* The merge of two tokens, NULL: they do not merge. */
static inline const struct bpe_pair *bpe_pair_find(const struct bpe *bpe,
                                                   int32_t left, int32_t right)
{
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    size_t i = bpe_pair_hash(key) & bpe->pair_mask;
    while (bpe->pair[i].rank != BPE_NO_RANK) {
        if (bpe->pair[i].key == key)
            return &bpe->pair[i];
        i = (i + 1) & bpe->pair_mask;
    }
    return NULL;
}
