/* The styles of models that tessera-hash trains, and the digest of a run.
 *
 * Sizes are no multiples of what vectors and tiles hold (48 and 80 columns,
 * heads of 12 to 20, 33 tokens, a vocabulary of 257), so that the ends of loops
 * take part; "long" passes the attention's tile and the products' blocks.
 * Every batch has four slots of two leaves, for up to four ranks. */
#pragma once

#include "src/base/err.h"
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
