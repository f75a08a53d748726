/* Chunks of text in rounds: one thread reads them, all work on them, and one
 * takes what came of them in the order in which they were read. So what comes
 * out does not depend on how many threads there are. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/data/texts/documents.h"
#include "src/text/tokenizer/tokenizer.h"

#define TOKENIZE_THREADS_MAX 256

/* Text of one document: all of it, or up to a place where it may be cut. */
struct tokenize_part {
    size_t end;        /* in the chunk's text */
    size_t tokens_end; /* in its tokens, when they are there */
    bool begins, ends; /* the document */
    bool held;         /* it is held out */
};

struct tokenize_chunk {
    struct text_place place; /* of its first byte */
    uint8_t *text;
    size_t bytes, capacity;
    struct tokenize_part *part;
    size_t parts, parts_capacity;
    struct token_list tokens;
    struct err_kept failure; /* of the work */
};

struct tokenize_round {
    int threads;
    struct tokenize_chunk *chunk; /* [size], of which the first are filled */
    int filled, size;
};

/* `threads` as asked for; 0: as many as this process may use processors, up to
 * 32. ERR_USAGE above TOKENIZE_THREADS_MAX. What it makes is for release, in
 * any case. */
enum err tokenize_round_create(int threads, struct tokenize_round *round);
void tokenize_round_release(struct tokenize_round *round);

/* The next chunks; *more false: there are no others behind them. */
struct tokenize_feed;
enum err tokenize_round_fill(struct tokenize_round *round,
                             struct tokenize_feed *feed, bool *more);

/* Calls `work` for each chunk, in threads, each with its number, below
 * round->threads; what it returns is the chunk's failure. */
void tokenize_round_each(struct tokenize_round *round,
                         enum err (*work)(void *arg, int thread,
                                          struct tokenize_chunk *chunk),
                         void *arg);

/* Text of a document that cannot be cut anywhere; more is an error. */
#define TOKENIZE_FEED_UNCUT_MAX ((size_t)256 << 20)

/* Cuts the documents of the inputs into chunks, at places where the tokens of
 * the parts are those of the whole. Lends both. */
enum err tokenize_feed_create(struct documents *documents,
                              const struct tokenizer *tokenizer,
                              struct tokenize_feed **out);
void tokenize_feed_destroy(struct tokenize_feed *feed);

/* Fill an empty chunk. *more false: there was nothing left, and it is empty. */
enum err tokenize_feed_fill(struct tokenize_feed *feed,
                            struct tokenize_chunk *chunk, bool *more);
