/* What tessera-hash trains on: a text, as tokens, and a data set of it. */
#pragma once

#include <stdint.h>

#include "src/base/err.h"
#include "src/base/fsio.h"

/* The text: bytes, and 256 after each document. It is a function of nothing, made
 * with whole numbers only, so that it is the same on every machine. */
#define HASH_TEXT_VOCAB 257
#define HASH_TEXT_EOS 256

/* The first `count` tokens: documents of one to four sentences of three to nine
 * words out of 40, some of which are frequent. The last one may be cut. */
void hash_text_fill(int32_t *tokens, int64_t count);

/* The data set: the text, cut into samples. */
/* In a new folder in TMPDIR or /tmp, whose path it returns. */
enum err hash_data_create(int64_t samples, int64_t seq_len,
                          char folder[FSIO_PATH_MAX]);
/* "" is fine. */
void hash_data_remove(const char *folder);
