/* What the parts of tokenize.c share: the making of one data set. */
#pragma once

#include <stdio.h>

#include "src/data/texts/inputs.h"
#include "src/data/mds/mds_writer.h"
#include "src/data/prepare/progress.h"
#include "src/data/prepare/publish.h"
#include "src/data/prepare/tokenize.h"
#include "src/data/prepare/tokenize_journal.h"

/* What goes before and behind each document; -1: nothing. */
struct tokenize_marks {
    int32_t bos, eos;
};

/* The stream of tokens to samples of equal length, and those to the shards of a
 * set or to a spool, with their steps in the journal. */
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

struct tokenize_job {
    const struct tokenize_options *options;
    struct inputs inputs;
    struct tokenizer *tokenizer;
    struct tokenize_marks marks;
    struct publish publish;
    struct tokenize_journal *journal; /* NULL: the input comes but once */
    struct progress progress;
    struct mds_writer *writer;  /* of the set being written */
    char folder[FSIO_PATH_MAX]; /* of the shards that the journal has */
    FILE *
        spool; /* all tokens, when how many there are decides; or those that are
                  * held out */
    struct tokenize_out out;
};

/* Show progress, and ERR_IO when a stop is wanted. */
enum err tokenize_job_poll(struct tokenize_job *job, int64_t done);

/* The caller has set the members above, and zeros; `mark`: where to go on, the
 * samples before it being in the writer or the spool. */
enum err tokenize_out_begin(struct tokenize_out *out,
                            const struct tokenize_mark *mark);
void tokenize_out_release(struct tokenize_out *out);

/* Read all text, from the place of out.mark on, into the writer or the spool.
 */
enum err tokenize_pass(struct tokenize_job *job);

/* Make out: where the tokens go. What the journal does not have is removed. */
enum err tokenize_set_begin(struct tokenize_job *job);
/* Complete the set in publish.building, of out.result; with an evaluation
 * fraction, make both sets of the spool. */
enum err tokenize_set_end(struct tokenize_job *job);
