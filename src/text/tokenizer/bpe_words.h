/* How often each word occurs in texts, a word being what a tokenizer's
 * pre-tokenizer makes. Each thread counts in one of its own; the sum does not
 * depend on who counted what. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/text/tokenizer/tokenizer.h"

/* Longer words are left out: what they would teach is themselves. */
#define BPE_WORDS_BYTES_MAX 8192

struct bpe_words;

/* Lends the tokenizer, one of a file. */
enum err bpe_words_create(const struct tokenizer *tokenizer,
                          struct bpe_words **out);
void bpe_words_destroy(struct bpe_words *words);

/* Count the words of a text. What is not UTF-8 is U+FFFD. */
enum err bpe_words_add(struct bpe_words *words, const uint8_t *text,
                       size_t bytes);
/* Count those of `other` as well. */
enum err bpe_words_merge(struct bpe_words *words,
                         const struct bpe_words *other);

struct bpe_word {
    const uint8_t *text;
    uint32_t bytes;
    int64_t count;
};

/* How many different ones there are, and number i < count of them, lent until
 * more are added. */
size_t bpe_words_count(const struct bpe_words *words);
struct bpe_word bpe_words_at(const struct bpe_words *words, size_t i);
/* Words that were left out, one for each time. */
int64_t bpe_words_left_out(const struct bpe_words *words);
