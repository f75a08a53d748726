/* The vocabulary and the merges of a byte pair encoding, and the tokens of one
 * word. A token's text is what it stands for: bytes with a byte-level file,
 * characters with one of characters. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/text/tokenizer/token_list.h"

struct bpe_options {
    bool bytes;         /* a word begins as bytes, else as characters */
    bool byte_fallback; /* a character without token becomes <0x..> of bytes */
    bool fuse_unk;      /* neighbours without a token become one unk */
    bool ignore_merges; /* a word that is a token is that token */
    int32_t unk;        /* what stands for characters without token; -1 */
};

struct bpe;

/* tokens: how many there will be, at most; highest: the highest one. */
enum err bpe_create(const struct bpe_options *options, size_t tokens,
                    size_t merges, int32_t highest, struct bpe **out);
void bpe_destroy(struct bpe *bpe);

/* A token and its text. `found`: words and merges may give it. ERR_DATA: the
 * number is taken, or the text that is found. */
enum err bpe_add(struct bpe *bpe, int32_t token, const uint8_t *text,
                 size_t bytes, bool found);
/* Another text for bpe_text(); what words give stays as it is. */
enum err bpe_show(struct bpe *bpe, int32_t token, const uint8_t *text,
                  size_t bytes);
/* The next merge, of a rank below all earlier ones; of two for the same pair
 * the last holds. `both` is the token of the pair's text. */
void bpe_merge(struct bpe *bpe, int32_t left, int32_t right, int32_t both);
/* After the last token: look up the tokens of single bytes. */
void bpe_seal(struct bpe *bpe);

/* The token that is found by this text; -1. */
int32_t bpe_find(const struct bpe *bpe, const uint8_t *text, size_t bytes);
/* Lent; false: there is no such token. */
bool bpe_text(const struct bpe *bpe, int32_t token, const uint8_t **text,
              size_t *bytes);
int32_t bpe_highest(const struct bpe *bpe);

struct bpe_word;

/* Memory to encode words in, one per thread. */
enum err bpe_word_create(const struct bpe *bpe, struct bpe_word **out);
void bpe_word_destroy(struct bpe_word *work);

/* How many bytes, or characters, were left out so far because they have no
 * token, nor has the file one that stands for them. */
uint64_t bpe_word_lost(const struct bpe_word *work);
/* The same with those for which another token stands. */
uint64_t bpe_word_lacking(const struct bpe_word *work);

/* Append the tokens of a word. */
enum err bpe_word_encode(struct bpe_word *work, const uint8_t *word,
                         size_t bytes, struct token_list *out);

/* The characters that byte-level files write bytes as: a printable one is
 * itself, others follow from U+0100 on, so that a blank is U+0120. */
struct byte_alphabet {
    int16_t byte[324]; /* by character; -1: it stands for none */
};

void byte_alphabet_fill(struct byte_alphabet *alphabet);

/* The bytes that a text stands for, at most as many as it has, into out;
 * false: a character stands for none. */
bool byte_alphabet_bytes(const struct byte_alphabet *alphabet,
                         const uint8_t *text, size_t bytes, uint8_t *out,
                         size_t *out_bytes);
