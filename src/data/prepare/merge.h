/* Several data sets as one: their shards, numbered anew, and one index. */
#pragma once

#include <stdint.h>

#include "src/base/err.h"

struct merge_result {
    int64_t samples, tokens, shards;
    int64_t copied; /* files that could not be linked */
};

/* Make the data set `out`, which may not exist, of the samples of all sets in
 * order. Shard files are hard links where the file system allows it, so that
 * they take no space, else copies; they are neither read nor checked but for
 * their sizes. ERR_USAGE where the sets differ in tokenizer, vocabulary, tokens
 * that divide documents or the type of bytes. stop: polled if not NULL. */
enum err merge_sets(const char *out, char *const *sets, int count,
                    int (*stop)(void), struct merge_result *result);
