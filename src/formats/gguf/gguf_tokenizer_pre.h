/* How texts are divided into words, by the names that GGUF files have for it
 * (tokenizer.ggml.pre). */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "src/base/err.h"

#define GGUF_TOKENIZER_PRE_NAMES 5
#define GGUF_TOKENIZER_PRE_STEPS 5

struct gguf_tokenizer_pre {
    const char *name[GGUF_TOKENIZER_PRE_NAMES];
    const char *step[GGUF_TOKENIZER_PRE_STEPS]; /* patterns, or "digits" */
    bool gpt2;  /* GPT-2's pattern is the last step */
    bool nfc;   /* texts are normalised */
    bool whole; /* a word that is a token is that, whatever merges make */
    bool bos;   /* begins a text where the file does not say */
};

/* NULL: the name is not known here. It is not ended by a NUL. */
const struct gguf_tokenizer_pre *gguf_tokenizer_pre_find(const char *name,
                                                         size_t bytes);
/* All names that are known, "a, b, ..", cut to `size`. */
void gguf_tokenizer_pre_names(char *out, size_t size);

/* Parts of a tokenizer.json; NULL: out of memory. */
json_t *gguf_tokenizer_pre_normalizer(const struct gguf_tokenizer_pre *pre);
json_t *gguf_tokenizer_pre_tokenizer(const struct gguf_tokenizer_pre *pre);
/* The name of the one that does what a tokenizer.json does, whose root this is:
 * a byte-level BPE with the same normalizer and pre-tokenizer. NULL: there is
 * none. Lent. */
enum err gguf_tokenizer_pre_of(const json_t *root, const char **name);
