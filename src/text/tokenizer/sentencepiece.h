/* A SentencePiece model (tokenizer.model) as a tokenizer.json.
 *
 * There are those of pairs, with or without bytes as fallback, whose texts are
 * normalized in nothing but blanks: Llama's 1 and 2, Mistral's v0.1 and v0.2,
 * and what is trained so. Others (unigram, nmt_nfkc, pieces of users) are
 * refused by name. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"

#define SENTENCEPIECE_FILE "tokenizer.model"

struct sentencepiece {
    char *json;       /* a tokenizer.json, malloc'ed */
    int32_t bos, eos; /* -1: there is none */
};

/* begins, ends: texts get these tokens, as tokenizer_config.json says. `path` is
 * for messages. ERR_DATA: no such file; ERR_UNSUPPORTED names what is lacking. */
enum err sentencepiece_make(const char *path, const uint8_t *data, size_t bytes,
                            bool begins, bool ends, struct sentencepiece *out);
/* From a file, with what a tokenizer_config.json beside it says, but for added tokens
 * (tokenizer_beside_add()). */
enum err sentencepiece_load(const char *path, struct sentencepiece *out);
