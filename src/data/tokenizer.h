/* Tokenizers: text bytes to token numbers.
 *
 * "bytes" is the byte-level tokenizer: token = byte value 0..255, 256 ends a
 * document, vocab_size 257. It loses nothing and needs no file. Every
 * tokenizer has a SHA-256 of its definition, which data sets and checkpoints
 * record, so that tokens are never read with the wrong vocabulary. */
#ifndef TESSERA_DATA_TOKENIZER_H
#define TESSERA_DATA_TOKENIZER_H

#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"

#define TOKENIZER_DEFAULT "bytes"

struct tokenizer;

/* By name; ERR_USAGE lists the names that there are. */
enum err tokenizer_create(const char *name, struct tokenizer **out);
void tokenizer_destroy(struct tokenizer *tokenizer);

/* Lent. */
const char *tokenizer_name(const struct tokenizer *tokenizer);
const char *tokenizer_sha256(const struct tokenizer *tokenizer);
int64_t tokenizer_vocab_size(const struct tokenizer *tokenizer);
/* The token that ends a document. */
int32_t tokenizer_eos(const struct tokenizer *tokenizer);

/* The same of the tokenizer with this SHA-256; -1: it is not built in. */
int64_t tokenizer_eos_of(const char *sha256);

/* Tokens of a piece of text; *count <= bytes, which is what `tokens` has to
 * hold. A document may be encoded piece by piece; no token crosses a piece. */
enum err tokenizer_encode(const struct tokenizer *tokenizer,
                          const uint8_t *text, size_t bytes, int32_t *tokens,
                          size_t *count);

/* Bytes of one token, lent; *bytes 0 for the end of a document. ERR_DATA for a
 * token outside the vocabulary. */
enum err tokenizer_decode(const struct tokenizer *tokenizer, int32_t token,
                          const uint8_t **text, size_t *bytes);

#endif
