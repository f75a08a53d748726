/* Learning a tokenizer: options, and what is told of it. */
#include "src/cmd/data_train_tokenizer.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/clean.h"
#include "src/data/prepare/train_tokenizer.h"
#include "src/job/stop.h"

static const char *const data_patterns[] = { BPE_TRAIN_PATTERN_NAMES };
#define DATA_PATTERNS (sizeof data_patterns / sizeof *data_patterns)
static const char *const data_special[] = { "<|endoftext|>" };

enum err data_train_tokenizer_set(struct data_options *options,
                                  const char *name, int key)
{
    struct data_train_tokenizer *learn = &options->learn;
    char *end = NULL;
    size_t p = 0;
    switch ((enum data_train_tokenizer_key)key) {
    case DATA_TRAIN_TOKENIZER_PATTERN:
        while (p < DATA_PATTERNS && strcmp(optarg, data_patterns[p]) != 0)
            p++;
        if (p == DATA_PATTERNS)
            return err_set(ERR_USAGE,
                           "--%s takes one of gpt2, llama3, digits, not '%s'",
                           name, optarg);
        learn->pattern = (int)p;
        return ERR_OK;
    case DATA_TRAIN_TOKENIZER_SPECIAL:
        if (learn->special_count == DATA_SPECIAL_MAX)
            return err_set(ERR_USAGE, "--%s: more than %d of them", name,
                           DATA_SPECIAL_MAX);
        learn->special[learn->special_count++] = optarg;
        return ERR_OK;
    default:
        errno = 0;
        learn->min_frequency = strtoll(optarg, &end, 10);
        if (end == optarg || *end != '\0' || errno != 0 ||
            learn->min_frequency < 1)
            return err_set(ERR_USAGE,
                           "--%s takes a whole number of at least 1, not '%s'",
                           name, optarg);
        return ERR_OK;
    }
}

enum err data_train_tokenizer_run(struct data_options *options)
{
    const struct data_train_tokenizer *learn = &options->learn;
    const struct tokenize_options *tokenize = &options->tokenize;
    int64_t vocab_size = options->adoption.vocab_size;
    struct train_tokenizer_result result;
    if (vocab_size == 0 || tokenize->out == NULL || options->operand_count < 1)
        return err_set(ERR_USAGE,
                       "train-tokenizer needs --vocab-size N, --out PATH and "
                       "at least one TEXT; see tessera-data --help");
    const struct train_tokenizer_options train = {
        .train = { .pattern = (enum bpe_train_pattern)learn->pattern,
                   .vocab_size = vocab_size,
                   .min_frequency = learn->min_frequency,
                   .special =
                       learn->special_count > 0 ? learn->special : data_special,
                   .special_count =
                       learn->special_count > 0 ? learn->special_count : 1 },
        .out = tokenize->out,
        .separator = tokenize->separator,
        .field = tokenize->field,
        .text = tokenize->text,
        .binary = tokenize->binary,
        .threads = tokenize->threads,
        .replace = tokenize->replace,
        .show = tokenize->show,
        .stop = stop_requested,
    };
    TRY(train_tokenizer(&train, options->operands, options->operand_count,
                        &result));
    clean_printf("%s: %" PRId64 " tokens of %" PRId64 " words in %" PRId64
                 " bytes of text\n",
                 tokenize->out, result.tokens, result.words, result.bytes);
    if (result.tokens < vocab_size)
        printf("the text has no more than these with --min-frequency %" PRId64
               "; --vocab-size asked for %" PRId64 "\n",
               learn->min_frequency, vocab_size);
    if (result.left_out > 0)
        printf("%" PRId64 " words of more than %d bytes were left out\n",
               result.left_out, BPE_WORDS_BYTES_MAX);
    return ERR_OK;
}
