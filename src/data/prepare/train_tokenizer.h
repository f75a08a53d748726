/* Texts to a tokenizer: which words they have, how often, and the byte-level
 * BPE that is learned of them (src/text/tokenizer/bpe_train.h).
 *
 * Inputs are as for tokenizing (src/data/prepare/tokenize.h): a word never goes
 * from one document to the next. Threads count; what is learned does not depend
 * on how many there are. Memory: the different words and some MiB for each
 * thread. */
#pragma once

#include <stdint.h>

#include "src/base/err.h"
#include "src/data/prepare/tokenize.h"
#include "src/text/tokenizer/bpe_train.h"

struct train_tokenizer_options {
    struct bpe_train_options train;
    /* What divides texts, and what is not of a data set. `out`: a file that ends
     * in .json, or a folder, made if it is not there, for tokenizer.json and a
     * tokenizer_config.json that names the first special token as the end of a
     * document; `replace`: these files. */
    const struct tokenize_options *texts;
};

struct train_tokenizer_result {
    int64_t bytes; /* of text */
    int64_t words; /* different ones */
    int64_t left_out;
    int64_t empty;  /* records without a text */
    int64_t tokens; /* of the vocabulary */
};

/* ERR_USAGE for options that cannot be, and files that are there. On failure
 * nothing is written. */
enum err train_tokenizer(const struct train_tokenizer_options *options,
                         char *const *files, int count,
                         struct train_tokenizer_result *out);
