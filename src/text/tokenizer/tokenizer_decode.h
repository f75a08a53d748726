/* The decoder of a file of characters: the text of each token. */
#pragma once

#include "src/base/array.h"
#include "src/text/tokenizer/tokenizer_reader.h"

#define TOKENIZER_DECODE_STEPS_MAX 8

/* `from` becomes `to`, NULL: "<0xNN>" becomes the byte. Both lent by the file
 * while it is read. */
struct tokenizer_decode_step {
    const char *from, *to;
};

struct tokenizer_decode {
    struct tokenizer_decode_step step[TOKENIZER_DECODE_STEPS_MAX];
    int steps;
};

/* The key "decoder" of a file of characters. What it strips at the beginning of
 * a text is not done here: that is what was put in front of the text. */
enum err tokenizer_decode_read(const struct tokenizer_node *root,
                               struct tokenizer_decode *decode);
/* The same of a file of bytes: ByteLevel, or none. In a Sequence others may
 * stand before it, TOKENIZER_DECODE_STEPS_MAX at most, that do nothing to this
 * file's tokens, as transformers writes them for tokenizers that it has
 * converted. */
enum err tokenizer_decode_byte_level(const struct tokenizer_node *root);
/* Append what a token that is written so is decoded to. */
enum err tokenizer_decode_text(const struct tokenizer_decode *decode,
                               const char *text, struct buffer *out);
