/* One pass over all samples of a data set, in order.
 *
 * show: progress on stderr. stop: polled if not NULL; when it returns non-zero
 * the result is ERR_IO "interrupted". */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/data/set/dataset.h"
#include "src/text/tokenizer/tokenizer.h"

struct scan_result {
    int64_t samples;
    int64_t tokens;
    int64_t longest; /* tokens of the longest sample */
};

/* dataset_read_marked() into a buffer that grows as needed: *tokens is
 * malloc'ed (NULL at first; the caller frees it), *capacity its tokens. */
enum err scan_read(struct dataset *dataset, int64_t index, int32_t **tokens,
                   int64_t *capacity, int64_t *length,
                   struct dataset_marks *marks);

/* The set's tokenizer, if it is here: of its file, or a built-in one. NULL: it
 * is not. The caller destroys it. */
enum err scan_tokenizer(const struct dataset *dataset, struct tokenizer **out);

/* Who is shown every sample of a pass, in order; all is lent for the call. */
struct scan_visit {
    void (*sample)(void *self, const int32_t *tokens, int64_t count,
                   const struct dataset_marks *marks);
    void *self;
};

/* Read every sample, which checks it. visit NULL: nobody else looks. */
enum err scan_samples(struct dataset *dataset, const struct scan_visit *visit,
                      bool show, int (*stop)(void), struct scan_result *out);

/* scan_samples(), the checksums of every shard, and whether samples and tokens
 * agree with tessera.json. */
enum err scan_verify(struct dataset *dataset, bool show, int (*stop)(void),
                     struct scan_result *out);

/* What a data set's files do not say. */
struct scan_adoption {
    /* a name; with a '/' or ".json" at its end, the path of its file; NULL: the
     * built-in one, if it has this vocabulary */
    const char *tokenizer;
    int64_t vocab_size;     /* 0: that of the tokenizer's file */
    int64_t eos_token;      /* ends a document; -1: not given */
    int64_t bos_token;      /* begins one; -1: not given. Not both */
    const char *token_type; /* of a column "bytes": "int32"; NULL: int64 */
};

/* Write tessera.json for a data set that has none (one that Python wrote),
 * after checking the shards' checksums and every token against vocab_size;
 * where a shard has no checksum that is known here, the file records digests of
 * all. The tokenizer is the one of this name here if there is one, which then
 * has to have this vocabulary; otherwise only its name is known and identifies
 * it. A tokenizer's file is copied into the set; its vocabulary may be smaller,
 * and of the tokens that it names for the end and the beginning of a document
 * the first that occurs is recorded. ERR_USAGE when tessera.json exists or the
 * options do not fit together, ERR_DATA when the token that divides documents
 * occurs nowhere. */
enum err scan_adopt(const char *path, const struct scan_adoption *adoption,
                    bool show, int (*stop)(void), struct scan_result *out);
