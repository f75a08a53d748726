/* The styles of models that tessera-hash trains, and the digest of a run.
 *
 * Sizes are no multiples of what vectors and tiles hold (48 and 80 columns,
 * heads of 12 to 20, 33 tokens, a vocabulary of 257), so that the ends of loops
 * take part; "long" passes the attention's tile and the products' blocks.
 * Every batch has four slots of two leaves, for up to four ranks. */
#pragma once

#include <stdint.h>

#include "src/base/err.h"
#include "src/base/fsio.h"
#include "src/comm/comm.h"

#define HASH_STYLE_DIGITS 16

/* The name of style number `index`; NULL beyond the last. */
const char *hash_style_name(int index);

/* ERR_USAGE where the override ("key=value") does not name a setting that says
 * only how to compute: those that decide the result are the style's. */
enum err hash_style_check(const char *override);

/* Trains it, as tessera-train does, and gives the digest on every rank: XXH64
 * over the names and elements of all weights and moments, after the loss and
 * the gradient norm of each step. Collective. */
enum err hash_style_train(struct comm *comm, int index, char *const *overrides,
                          int override_count,
                          char digest[HASH_STYLE_DIGITS + 1]);

/* --- what they train on --- */

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
