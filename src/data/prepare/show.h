/* Samples as text, for eyes. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "src/base/err.h"
#include "src/data/set/dataset.h"

struct show_options {
    int64_t first, count;
    int (*stop)(void);
};

/* For each sample a line that says what it is, then its text, with a line at
 * the end of each document; "~" begins what bears no loss by the set's mask,
 * and ends it. Control characters are written \xNN. ERR_USAGE when there is no
 * sample `first`, ERR_DATA for text without a tokenizer's file. */
enum err show_samples(struct dataset *dataset,
                      const struct show_options *options, FILE *out);
