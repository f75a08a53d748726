/* What bpe_train.c makes, and bpe_train_json.c writes. */
#pragma once

#include "src/base/array.h"
#include "src/base/map.h"
#include "src/text/tokenizer/bpe_train.h"

/* A token as files write it: bytes as characters. */
struct bpe_train_token {
    size_t first; /* of its text */
    uint32_t bytes;
};

struct bpe_train_merge {
    int32_t a, b;
};

struct bpe_train {
    const struct bpe_train_options *options;
    struct buffer text; /* of all tokens */
    struct bpe_train_token *token;
    size_t count, capacity;
    struct map numbers; /* of tokens, by their texts */
    struct bpe_train_merge *merge;
    size_t merges, merge_capacity;
    int32_t of_byte[256];
};
