/* A data set as several, by whole samples in their order. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "src/base/err.h"

#define SPLIT_PARTS_MAX 10000

struct split_options {
    const char *out;     /* may not exist */
    int64_t parts;       /* > 0: OUT/part.00000 and so on, of equal numbers of
                            samples; else */
    double fraction;     /* the last of the samples to OUT/eval, the others to
                            OUT/train, as tokenize does */
    int64_t shard_bytes; /* of a shard */
    bool show;           /* progress on stderr */
    int (*stop)(void);   /* polled if not NULL */
};

/* All columns stay as they are, byte by byte; shards are written anew, without
 * compression, with sha256. ERR_USAGE for more parts than samples. */
enum err split_set(const char *set, const struct split_options *options);
