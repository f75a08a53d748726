/* Encoding with the tokenizer of a file. */
#pragma once

#include "src/text/tokenizer/tokenizer_impl.h"

struct tokenizer_encode;

enum err tokenizer_encode_create(const struct tokenizer *tokenizer,
                                 struct tokenizer_encode **out);
void tokenizer_encode_destroy(struct tokenizer_encode *work);

uint64_t tokenizer_encode_lost(const struct tokenizer_encode *work);

/* As tokenizer_encode() and tokenizer_cut() in tokenizer.h. */
enum err tokenizer_encode_text(struct tokenizer_encode *work,
                               const uint8_t *text, size_t bytes,
                               unsigned flags, struct token_list *out);
size_t tokenizer_encode_cut(const struct tokenizer *tokenizer,
                            const uint8_t *text, size_t bytes);
