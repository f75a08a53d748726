/* What is made of data sets that are there: several as one, one as several
 * (finished_sets.c), and samples as text, for eyes (show.c). */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "src/base/err.h"
#include "src/data/set/dataset.h"

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

struct show_options {
    int64_t first, count; /* or to the last one */
    int (*stop)(void);    /* NULL: nobody stops it */
    bool tokens;          /* numbers, a line for each sample, and no text */
};

/* For each sample a line that says what it is, then its text, with a line at
 * the end of each document; "~" begins what bears no loss by the set's mask,
 * and ends it. Control characters are written \xNN. ERR_USAGE when there is no
 * sample `first`, ERR_DATA for text without a tokenizer's file. */
enum err show_samples(struct dataset *dataset,
                      const struct show_options *options, FILE *out);
