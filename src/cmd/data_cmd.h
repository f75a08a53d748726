/* The options of tessera-data, and its commands, which get them. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/base/settings/options.h"
#include "src/data/prepare/scan.h"
#include "src/data/prepare/tokenize.h"
#include "src/data/prepare/tokenize_finetune.h"
#include "src/text/tokenizer/tokenizer.h"

#define DATA_SPECIAL_MAX 64

/* Options of train-tokenizer, beside what it shares with others. */
struct data_train_tokenizer {
    int pattern; /* enum bpe_train_pattern */
    int64_t min_frequency;
    const char *special[DATA_SPECIAL_MAX + 1];
};

struct data_options {
    const char *said; /* --out as it was given, for people */
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

/* --- tokenize: its tokenizer; --chat and --prompts --- */

/* Takes --target-prompts, into a struct data_options. */
enum err data_finetune_targets(void *into, char *text);
/* Is it fine-tuning data that was asked for? */
bool data_finetune_asked(const struct data_options *options);
/* The command, once out and operands are known to be there. template: the text
 * of the model's own chat template, for want of --template; NULL: it has none. */
enum err data_finetune_run(struct data_options *options, const char *template);

/* A built-in tokenizer's name, a tokenizer.json or tokenizer.model, a folder that has one, or a
 * model (src/formats/weights.h) whose tokenizer is known. *template (NULL: not
 * asked for): the text of the chat template that comes with it, which the
 * caller frees; NULL: there is none. */
enum err data_model_tokenizer(const char *name, struct tokenizer **tokenizer,
                              char **template);

/* --- the other commands --- */

enum err data_head(struct data_options *options);
enum err data_merge(struct data_options *options);
enum err data_split(struct data_options *options);

/* Name, encoding and size of each column, a line each. */
enum err data_columns_list(const char *folder);
