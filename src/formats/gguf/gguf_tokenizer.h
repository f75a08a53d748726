/* The tokenizer of a GGUF file (tokenizer.ggml.*) as the files of a Hugging
 * Face folder: what src/text/tokenizer/tokenizer.h and src/text/chat/chat.h
 * load.
 *
 * There is the kind "gpt2", a byte-level BPE, with the pre-tokenizers of
 * gguf_tokenizer_pre.c; other kinds ("llama", "bert", ..) and names are refused
 * by name, also a file without tokenizer.ggml.pre: which words texts have is
 * not to be guessed. Tokens of the type control or unknown are special added
 * tokens, user defined ones are added tokens, all others are found by merges.
 * Bytes that the vocabulary lacks have no token. */
#pragma once

#include <stdint.h>

#include "src/formats/gguf/gguf.h"
#include "src/formats/gguf/gguf_writer.h"

struct gguf_tokenizer {
    char *tokenizer;  /* of a tokenizer.json */
    char *config;     /* of a tokenizer_config.json */
    char *generation; /* of a generation_config.json; NULL: nothing is said */
    char *chat;       /* of a chat_template.jinja; NULL: the file has none */
};

/* ERR_DATA: no tokenizer, or one that contradicts itself; ERR_UNSUPPORTED: one
 * of a kind that is not known here. */
enum err gguf_tokenizer_make(const struct gguf *gguf,
                             struct gguf_tokenizer *out);
void gguf_tokenizer_free(struct gguf_tokenizer *tokenizer);

/* How tokens are chosen and what ends a text, of the keys of a GGUF file as a
 * generation_config.json: tokenizer.ggml.eos_token_id, eot_token_id and
 * eom_token_id are ends, general.sampling.* is what is drawn.
 *
 * Malloc'ed; NULL: the file says nothing. Ends and padding that are none of
 * `tokens` tokens are left out. */
enum err gguf_generation_make(const struct gguf *gguf, uint64_t tokens,
                              char **text);

/* From a generation_config.json (NULL: none). `eos` is the first end, -1: none;
 * `pad` fills up texts, -1: as `eos` does. What has no key is warned of.
 * ERR_DATA: it is no JSON. */
enum err gguf_generation_write(struct gguf_writer *writer,
                               const char *generation, int32_t eos,
                               int32_t pad);

/* A tokenizer.json as the keys tokenizer.ggml.* of a GGUF file. */
struct gguf_tokenizer_texts {
    const char *tokenizer; /* of a tokenizer.json */
    size_t bytes;
    const char *chat;       /* template; NULL: none */
    const char *generation; /* of a generation_config.json; NULL: none */
    int32_t bos, eos, pad;  /* -1: none */
    int64_t rows; /* of the embedding: as many tokens are written, those
                          that the tokenizer lacks as unused ones */
};

/* ERR_UNSUPPORTED: it is no byte-level BPE, or divides texts in a way that has
 * no name in these files (gguf_tokenizer_pre.h); ERR_DATA: malformed, or of
 * more tokens than rows. */
enum err gguf_tokenizer_write(struct gguf_writer *writer,
                              const struct gguf_tokenizer_texts *texts);
