/* The stream of tokens to samples of equal length, and those to the shards of a
 * set or to a spool, with their steps in the journal. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "src/base/err.h"
#include "src/data/mds/mds_writer.h"
#include "src/data/prepare/tokenize_journal.h"
#include "src/data/prepare/tokenize_round.h"

struct tokenize_out {
    int64_t seq_len;
    bool no_wrap;                     /* a sample's document ends with it */
    struct mds_writer *writer;        /* of the set, or */
    const char *folder;               /* the writer's; lent */
    FILE *spool;                      /* all tokens, for a second pass */
    FILE *held;                       /* those of held documents; NULL: none */
    struct tokenize_journal *journal; /* NULL: none */
    struct tokenize_result result;    /* so far */
    /* the rest is its own */
    int32_t *sample;           /* [seq_len] */
    int64_t filled;            /* of sample */
    int64_t skip;              /* tokens that are in samples already */
    bool dropping;             /* to the end of the document */
    struct tokenize_mark mark; /* of the sample that is filled */
    int64_t journaled;         /* shards, or samples in the spool */
};

/* The caller has set the members above, and zeros; `mark`: where to go on, the
 * samples before it being in the writer or the spool. */
enum err tokenize_out_begin(struct tokenize_out *out,
                            const struct tokenize_mark *mark);
void tokenize_out_release(struct tokenize_out *out);

/* The next chunk of the text from the mark's place on. */
enum err tokenize_out_chunk(struct tokenize_out *out,
                            const struct tokenize_chunk *chunk);

/* The last sample, which may be shorter, and the spool's end. */
enum err tokenize_out_end(struct tokenize_out *out);
