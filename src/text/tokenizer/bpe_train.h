/* Learns a byte-level BPE: the vocabulary and merges of a tokenizer.json.
 *
 * Tokens are the special ones, in the given order, then the 256 bytes in the
 * order of the characters that they are written as, then what merges make. The
 * next merge is always that of the pair that occurs most often in the words as
 * they are then; of several, that of the smaller tokens. So merges are those of
 * the Hugging Face library's BpeTrainer, whatever the order of the words. */
#pragma once

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/text/tokenizer/bpe_words.h"

#define BPE_TRAIN_VOCAB_MAX ((int64_t)1 << 24)
#define BPE_TRAIN_PATTERN_NAMES "gpt2", "llama3", "digits"

/* What divides texts into words: GPT-2's pattern, Llama 3's, or digits one by
 * one and then GPT-2's. */
enum bpe_train_pattern { BPE_TRAIN_GPT2, BPE_TRAIN_LLAMA3, BPE_TRAIN_DIGITS };

struct bpe_train_options {
    enum bpe_train_pattern pattern;
    int64_t vocab_size;    /* tokens at most */
    int64_t min_frequency; /* a pair that occurs less often is not merged */
    const char *const *special; /* UTF-8, each once */
    size_t special_count;
};

struct bpe_train;

/* A vocabulary without merges. ERR_USAGE for special tokens that cannot be, or
 * a vocabulary that has no room for them and the bytes. The options are
 * lent until it is destroyed. */
enum err bpe_train_create(const struct bpe_train_options *options,
                          struct bpe_train **out);
void bpe_train_destroy(struct bpe_train *train);

/* Learn merges from the words, once. stop: polled if not NULL; non-zero:
 * ERR_IO. */
enum err bpe_train_run(struct bpe_train *train, const struct bpe_words *words,
                       int (*stop)(void));

/* How many there are now. */
int64_t bpe_train_tokens(const struct bpe_train *train);

/* The text of a tokenizer.json, to be freed. */
enum err bpe_train_json(const struct bpe_train *train, char **text);

/* A tokenizer_config.json: which inputs a model has, on which side a batch of
 * prompts is filled up (where answers do not begin), and tokens by their texts,
 * which it takes over; NULL: there is none. Without one for padding it is that
 * of the end. NULL: out of memory. */
json_t *bpe_train_config(json_t *bos, json_t *eos, json_t *pad);

/* The object "ByteLevel" of a tokenizer.json; NULL: out of memory. */
json_t *bpe_train_byte_level(bool trim_offsets, bool use_regex);
