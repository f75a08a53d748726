/* A tokenizer.json as the keys tokenizer.ggml.* of a GGUF file. */
#pragma once

#include <stdint.h>

#include "src/formats/gguf/gguf_writer.h"

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
 * no name in these files (gguf_tokenizer_pre.h); ERR_DATA: malformed, or of more
 * tokens than rows. */
enum err gguf_tokenizer_write(struct gguf_writer *writer,
                              const struct gguf_tokenizer_texts *texts);
