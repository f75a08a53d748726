/* The options of tessera-data. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/data/prepare/scan.h"
#include "src/data/prepare/tokenize.h"
#include "src/data/prepare/tokenize_finetune.h"

#define DATA_SPECIAL_MAX 64

/* Options of train-tokenizer, beside what it shares with others. */
struct data_train_tokenizer {
    int pattern; /* enum bpe_train_pattern */
    int64_t min_frequency;
    const char *special[DATA_SPECIAL_MAX];
    size_t special_count;
};

struct data_options {
    struct tokenize_options tokenize;
    struct tokenize_finetune_options finetune;
    struct data_train_tokenizer learn;
    bool chat, prompts;            /* fine-tuning data */
    const char *finetune_option;   /* one that only it has; NULL: none given */
    struct scan_adoption adoption; /* vocab_size 0: not given */
    int64_t from;                  /* first sample */
    int64_t count;                 /* how many at most */
    int64_t parts;                 /* 0: not given */
    bool tokens;                   /* numbers, not text */
    const char *column;            /* NULL: the tokens */
    bool raw;
    bool json;
    bool no_special, template; /* of encode */
    char **operands;
    int operand_count;
};

/* Read the options of `command` from its arguments, argv[0] being its name;
 * what is no option is an operand, in the given order. ERR_USAGE for an unknown
 * command, for options that it does not have and for values out of range. */
enum err data_options_parse(const char *command, int argc, char **argv,
                            struct data_options *out);
