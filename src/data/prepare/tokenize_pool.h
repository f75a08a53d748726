/* Threads that turn chunks of text into tokens, for one thread that gives them
 * chunks and takes them back in the same order. What comes out does not depend
 * on how many there are. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/data/texts/documents.h"
#include "src/text/tokenizer/tokenizer.h"

#define TOKENIZE_POOL_THREADS_MAX 256

/* Text of one document: all of it, or up to a place where it may be cut. */
struct tokenize_part {
    size_t end;        /* in the chunk's text */
    size_t tokens_end; /* in its tokens, when they are there */
    bool begins, ends; /* the document */
};

struct tokenize_chunk {
    struct text_place place; /* of its first byte */
    uint8_t *text;
    size_t bytes, capacity;
    struct tokenize_part *part;
    size_t parts, parts_capacity;
    struct token_list tokens;
    struct err_kept failure; /* of encoding */
    bool done;
};

/* What goes before and behind each document; -1: nothing. */
struct tokenize_marks {
    int32_t bos, eos;
};

/* `wanted`; 0: as many as this process may use processors, up to 32. */
int tokenize_pool_threads(int wanted);

struct tokenize_pool;

/* `threads` > 0; the tokenizer is lent. */
enum err tokenize_pool_create(const struct tokenizer *tokenizer,
                              struct tokenize_marks marks, int threads,
                              struct tokenize_pool **out);
/* Ends what is under way. */
void tokenize_pool_destroy(struct tokenize_pool *pool);

/* Bytes of the text that have no token and were left out; while nothing is
 * under way. */
uint64_t tokenize_pool_lost(const struct tokenize_pool *pool);

/* An empty chunk to fill and give; NULL: enough is under way, take some. */
struct tokenize_chunk *tokenize_pool_free(struct tokenize_pool *pool);
void tokenize_pool_give(struct tokenize_pool *pool);

/* The chunk that was given first, when its tokens are there; *chunk NULL: there
 * is none. An error is that of encoding it. It is lent until it is returned. */
enum err tokenize_pool_take(struct tokenize_pool *pool,
                            struct tokenize_chunk **chunk);
void tokenize_pool_return(struct tokenize_pool *pool);

/* Text of a document that cannot be cut anywhere; more is an error. */
#define TOKENIZE_FEED_UNCUT_MAX ((size_t)256 << 20)

/* Cuts the documents of the inputs into chunks, at places where the tokens of
 * the parts are those of the whole. */
struct tokenize_feed;

/* Lends both. */
enum err tokenize_feed_create(struct documents *documents,
                              const struct tokenizer *tokenizer,
                              struct tokenize_feed **out);
void tokenize_feed_destroy(struct tokenize_feed *feed);

/* Fill an empty chunk. *more false: there was nothing left, and it is empty. */
enum err tokenize_feed_fill(struct tokenize_feed *feed,
                            struct tokenize_chunk *chunk, bool *more);
