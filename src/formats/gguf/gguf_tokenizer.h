/* The tokenizer of a GGUF file (tokenizer.ggml.*) as the files of a Hugging Face
 * folder: what src/text/tokenizer/tokenizer.h and src/text/chat/chat.h load.
 *
 * There is the kind "gpt2", a byte-level BPE, with the pre-tokenizers of
 * gguf_tokenizer_pre.c; other kinds ("llama", "bert", ..) and names are refused
 * by name, also a file without tokenizer.ggml.pre: which words texts have is not
 * to be guessed. Tokens of the type control or unknown are special added tokens,
 * user defined ones are added tokens, all others are found by merges. Bytes that
 * the vocabulary lacks have no token. */
#pragma once

#include "src/formats/gguf/gguf.h"

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
