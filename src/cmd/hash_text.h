/* The text that tessera-hash trains on, as tokens: bytes, and 256 after each
 * document. It is a function of nothing, made with whole numbers only, so that
 * it is the same on every machine. */
#pragma once

#include <stdint.h>

#define HASH_TEXT_VOCAB 257
#define HASH_TEXT_EOS 256

/* The first `count` tokens: documents of one to four sentences of three to nine
 * words out of 40, some of which are frequent. The last one may be cut. */
void hash_text_fill(int32_t *tokens, int64_t count);
