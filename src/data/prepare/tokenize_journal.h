/* How far the making of a data set has come, on disk, so that the same command
 * goes on after it was killed. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/base/fsio.h"
#include "src/data/texts/documents.h"
#include "src/data/texts/inputs.h"

struct tokenize_result {
    int64_t bytes;
    int64_t documents;
    int64_t tokens;
    int64_t samples;      /* in OUT or OUT/train */
    int64_t eval_samples; /* in OUT/eval */
    int64_t dropped;      /* tokens that are in no sample: no_wrap */
    int64_t held_tokens, held_documents; /* in OUT/eval, by the documents */
    int64_t empty; /* records without a text, of which none is a document */
};

/* Where a sample begins: the text from which its tokens can be made again, and
 * what there was before. */
struct tokenize_mark {
    struct text_place place;
    int64_t tokens;                /* of those from there: in earlier samples */
    bool dropping;                 /* the rest of the document is left out */
    struct tokenize_result before; /* samples and their tokens; documents and
                                      bytes before the place */
};

struct tokenize_journal {
    /* for the reader: what the journal says */
    json_t *shards; /* of the set's index, in order, that are on disk */
    struct tokenize_mark mark; /* where to go on; zeros at the beginning */
    int64_t steps;             /* that are on disk */
    bool
        spooled; /* the spool has all tokens, so that the mark has the results */
    bool complete;  /* so is the set: only its place is open */
    uint64_t inode; /* of its folder, then */
    bool uncounted; /* a step does not say how many records had no text */
    /* the rest is its own */
    char path[FSIO_PATH_MAX];
    int lock, fd;
};

/* Take the folder, made if it is not there, for this process alone: ERR_BUSY
 * where another one has it. `options` is an object of all that decides on the
 * output. Where there is a journal of other options, or of inputs that are not
 * what they were, the error is ERR_USAGE and says which; `fresh` removes all
 * that is there first. */
enum err tokenize_journal_open(const char *folder, const json_t *options,
                               const struct inputs *inputs, bool fresh,
                               struct tokenize_journal **out);
/* The files stay. */
void tokenize_journal_close(struct tokenize_journal *journal);

/* One more step, which is on disk. */
enum err tokenize_journal_add_shard(struct tokenize_journal *journal,
                                    json_t *shard,
                                    const struct tokenize_mark *mark);
enum err tokenize_journal_add_spool(struct tokenize_journal *journal, bool all,
                                    const struct tokenize_mark *mark);
enum err tokenize_journal_add_complete(struct tokenize_journal *journal,
                                       const struct tokenize_result *result,
                                       uint64_t inode);
