/* The options of tessera-data. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "src/base/settings/options.h"
#include "src/data/prepare/scan.h"
#include "src/data/prepare/tokenize.h"
#include "src/data/prepare/tokenize_finetune.h"

#define DATA_SPECIAL_MAX 64

/* Options of train-tokenizer, beside what it shares with others. */
struct data_train_tokenizer {
    int pattern; /* enum bpe_train_pattern */
    int64_t min_frequency;
    const char *special[DATA_SPECIAL_MAX + 1];
};

struct data_options {
    struct tokenize_options tokenize;
    struct tokenize_finetune_options finetune;
    struct data_train_tokenizer learn;
    bool chat, prompts;            /* fine-tuning data */
    struct scan_adoption adoption; /* vocab_size 0: not given */
    int64_t from;                  /* first sample */
    int64_t count;                 /* how many at most */
    int64_t parts;                 /* 0: not given */
    bool tokens;                   /* numbers, not text */
    const char *column;            /* NULL: the tokens */
    bool raw;
    bool json, columns;        /* of info */
    bool no_special, template; /* of encode */
    const struct options *options;
    char **operands;
    int operand_count;
};

extern const struct data_options data_options_default;

/* Rows of struct data_options: of tokenize; of what looks at sets or makes others
 * of them; of adopt; of encode and decode; of train-tokenizer. */
extern const struct options_row data_options_tokenize[];
extern const struct options_row data_options_sets[];
extern const struct options_row data_options_adopt[];
extern const struct options_row data_options_encode[];
extern const struct options_row data_options_learn[];
