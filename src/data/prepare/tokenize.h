/* Text to a data set.
 *
 * Inputs are text files, of which each is a document, or the parts between
 * separator lines are, and JSON lines with a document in one field of each
 * record (src/data/texts/inputs.h). Documents become tokens, each ended by the
 * token that ends one and, if that is asked for, begun by another; documents
 * without text are left out. What is written in the text is text, special
 * tokens, too.
 *
 * The stream of all documents is cut into samples of seq_len tokens; the last
 * one may be shorter. Without wrapping, what is left of a document when a
 * sample is full is dropped, so that the next sample begins with the next one.
 * With an evaluation fraction, the last samples go to OUT/eval and the others
 * to OUT/train, else all go to OUT. The tokenizer's file goes with them.
 *
 * The bytes of the output do not depend on the number of threads, nor on
 * whether the process was killed on the way: unless stdin or another pipe is
 * read, what is done stays in PARENT/.NAME.tokenize, and the same call goes on
 * with it (src/data/prepare/tokenize_journal.h). It is removed at the end, and
 * after an error in the data.
 *
 * Memory: one shard, and some MiB for each thread; more only for documents that
 * the tokenizer cannot cut. OUT appears when it is complete
 * (src/data/prepare/publish.h). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/data/prepare/tokenize_journal.h"
#include "src/data/prepare/tokenize_round.h"

#define TOKENIZE_SEQ_LEN_DEFAULT 128
#define TOKENIZE_SEQ_LEN_MAX ((int64_t)1 << 24)
#define TOKENIZE_SHARD_BYTES_DEFAULT ((int64_t)1 << 26)
#define TOKENIZE_FIELD_DEFAULT "text"

struct tokenize_options {
    const char *out;
    const char *tokenizer;  /* a name for tokenizer_create(), in messages */
    struct tokenizer *lent; /* the tokenizer itself; NULL: by its name */
    const char *separator;  /* a whole line, without its end; NULL: none */
    const char *field;      /* all inputs are JSON lines; NULL: as named */
    bool text;              /* all inputs are text, whatever their names */
    bool binary;            /* inputs need not be text */
    bool mds;               /* all inputs are MDS data sets; field: a column of
                              str or bytes, TOKENIZE_FIELD_DEFAULT if NULL */
    int64_t seq_len;        /* 2 .. TOKENIZE_SEQ_LEN_MAX */
    int64_t shard_bytes;    /* at least one sample's, below 2^32 */
    const char *split;      /* of folders (inputs_find()) */
    const char *encoding;   /* of texts and JSON lines; NULL: UTF-8 */
    double eval_fraction;   /* 0: none; else below 1 */
    double holdout;         /* the same: a sample of the documents, by `seed` */
    int64_t seed;
    bool eos_given; /* else the tokenizer's */
    int64_t eos_token;
    bool no_eos;
    bool bos_given; /* else none */
    int64_t bos_token;
    bool no_wrap;
    int threads;       /* 0: as many as the process may use */
    bool fresh;        /* what an unfinished call has left goes first */
    bool replace;      /* an existing data set at `out` */
    bool show;         /* progress on stderr */
    int (*stop)(void); /* polled if not NULL; non-zero: ERR_IO */
};

/* What stop() asks for, as an error; shows how far it is. */
struct progress;
enum err tokenize_poll(const struct tokenize_options *options,
                       struct progress *progress, int64_t done);

/* Read files and folders in order; "-" is stdin. ERR_DATA for a missing,
 * malformed or empty text, ERR_USAGE for a tokenizer without a token that ends
 * a document where none is given, ERR_BUSY while another process makes `out`.
 * On failure nothing is left of `out`. */
enum err tokenize_files(const struct tokenize_options *options,
                        char *const *files, int count,
                        struct tokenize_result *out);
