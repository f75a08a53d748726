/* What a data set is, for people and programs. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "src/base/err.h"
#include "src/data/set/dataset.h"
#include "src/data/set/sidecar.h"

struct describe {
    int64_t samples;
    int64_t tokens;  /* counted */
    int64_t longest; /* tokens of the longest sample */
    int64_t shards;
    int64_t vocab_size;
    char tokenizer[SIDECAR_TOKENIZER_BYTES];
    char tokenizer_sha256[65];
    char id[65];
    double unigram_entropy; /* nats per token */
};

/* A line per value; *text is malloc'ed. */
enum err describe_format(const struct describe *info, char **text);

/* The tokens of samples first .. first+count-1, or to the last one, a line per
 * sample, separated by spaces. ERR_USAGE when there is no sample `first`. */
enum err describe_print(struct dataset *dataset, int64_t first, int64_t count,
                        FILE *out, int (*stop)(void));
