/* Text files to a data set.
 *
 * Documents (each file, or the parts between separator lines) become tokens,
 * each ended by the tokenizer's end-of-document token; empty ones are left out.
 * The stream of all documents is cut into samples of seq_len tokens; the last
 * one may be shorter. With an evaluation fraction, the last samples go to
 * OUT/eval and the others to OUT/train, else all go to OUT.
 *
 * Memory: one shard and some MiB, whatever the size of the text. OUT appears
 * when it is complete (src/data/publish.h). */
#ifndef TESSERA_DATA_TOKENIZE_H
#define TESSERA_DATA_TOKENIZE_H

#include <stdbool.h>
#include <stdint.h>

#include "src/base/err.h"

#define TOKENIZE_SEQ_LEN_DEFAULT 128
#define TOKENIZE_SEQ_LEN_MAX ((int64_t)1 << 24)
#define TOKENIZE_SHARD_BYTES_DEFAULT ((int64_t)1 << 26)

struct tokenize_options {
    const char *out;
    const char *tokenizer; /* a name for tokenizer_create() */
    const char *separator; /* a whole line, without its end; NULL: none */
    int64_t seq_len;       /* 2 .. TOKENIZE_SEQ_LEN_MAX */
    int64_t shard_bytes;   /* at least one sample's, below 2^32 */
    double eval_fraction;  /* 0: none; else below 1 */
    bool replace;          /* an existing data set at `out` */
    bool show;             /* progress on stderr */
    int (*stop)(void);     /* polled if not NULL; non-zero: ERR_IO */
};

struct tokenize_result {
    int64_t bytes;
    int64_t documents;
    int64_t tokens;
    int64_t samples;      /* in OUT or OUT/train */
    int64_t eval_samples; /* in OUT/eval */
};

/* Read the files in order; "-" is stdin. ERR_DATA for a missing, compressed or
 * empty text. On failure nothing is left of `out`. */
enum err tokenize_files(const struct tokenize_options *options,
                        char *const *files, int count,
                        struct tokenize_result *out);

#endif
