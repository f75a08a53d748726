/* What the parts of tokenize.c share: the making of one data set. */
#pragma once

#include <stdio.h>

#include "src/data/texts/inputs.h"
#include "src/data/mds/mds_writer.h"
#include "src/data/prepare/progress.h"
#include "src/data/prepare/publish.h"
#include "src/data/prepare/tokenize.h"
#include "src/data/prepare/tokenize_out.h"

/* What goes before and behind each document; -1: nothing. */
struct tokenize_marks {
    int32_t bos, eos;
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

/* Read all text, from the place of out.mark on, into the writer or the spool.
 */
enum err tokenize_pass(struct tokenize_job *job);

/* Make out: where the tokens go. What the journal does not have is removed. */
enum err tokenize_set_begin(struct tokenize_job *job);
/* Complete the set in publish.building, of out.result; with an evaluation
 * fraction, make both sets of the spool. */
enum err tokenize_set_end(struct tokenize_job *job);
