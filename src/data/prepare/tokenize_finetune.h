/* Fine-tuning data: JSON lines to a data set whose samples say what is learned.
 *
 * Each record becomes an example (src/data/texts/finetune.h), each sample holds
 * one, or, with packing, as many as fit into seq_len tokens. Beside `tokens` a
 * set has the columns `loss_mask`, 1 where a token is to be predicted, and
 * `lengths`, the tokens of each example of the sample in order, which keep them
 * apart in training whatever tokens are in them. The samples are ordinary ones:
 * nothing is packed in training, so nothing of it has to be resumed.
 *
 * With an evaluation fraction the last examples go to OUT/eval, the others to
 * OUT/train. Examples lie in an unnamed file in between; memory: 16 bytes for
 * each, the longest record and a shard. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/data/prepare/tokenize.h"
#include "src/data/texts/finetune.h"

struct tokenize_finetune_options {
    const struct tokenize_options *set; /* but for what divides texts */
    const char *template;        /* for chat_template_create(); NULL: none */
    const char *template_text;   /* its text, of that name; NULL: by its name */
    struct finetune_rules rules; /* but for seq_len and eos: the set's */
    bool packing;
};

struct tokenize_finetune_result {
    int64_t records;
    int64_t cut;     /* examples that are kept without their ends */
    int64_t left[2]; /* out: too long; nothing to learn */
    int64_t tokens;
    int64_t learned;                     /* tokens that are to be predicted */
    int64_t examples, samples;           /* in OUT or OUT/train */
    int64_t eval_examples, eval_samples; /* in OUT/eval */
    char unused[160]; /* fields of records that are not used; "": none */
};

/* Read the files in order; "-" is stdin. ERR_DATA names file, line and field of
 * what is no example; ERR_DATA as well when none is left. On failure nothing is
 * left of `out`. */
enum err tokenize_finetune(const struct tokenize_finetune_options *options,
                           char *const *files, int count,
                           struct tokenize_finetune_result *out);

/* Examples that are packed together (pack.c). */
#define PACK_WINDOW 16384

/* row[i]: the row of example i, 0 .. *rows - 1, for `count` examples of 1 to
 * seq_len tokens. Rows are numbered by their longest example, and hold their
 * examples in the order in which they came. */
enum err pack_rows(const int64_t *length, int64_t count, int64_t seq_len,
                   int64_t *row, int64_t *rows);
