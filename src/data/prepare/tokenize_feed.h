/* Cuts the documents of the inputs into pieces for tokenize_pool.h, at places
 * where the tokens of the parts are those of the whole. */
#pragma once

#include <stdbool.h>

#include "src/base/err.h"
#include "src/data/texts/documents.h"
#include "src/data/prepare/tokenize_pool.h"
#include "src/text/tokenizer/tokenizer.h"

/* Text of a document that cannot be cut anywhere; more is an error. */
#define TOKENIZE_FEED_UNCUT_MAX ((size_t)256 << 20)

struct tokenize_feed;

/* Lends both. */
enum err tokenize_feed_create(struct documents *documents,
                              const struct tokenizer *tokenizer,
                              struct tokenize_feed **out);
void tokenize_feed_destroy(struct tokenize_feed *feed);

/* Fill an empty piece. *more false: there was nothing left, and it is empty. */
enum err tokenize_feed_fill(struct tokenize_feed *feed,
                            struct tokenize_piece *piece, bool *more);
