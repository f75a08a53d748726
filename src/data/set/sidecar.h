/* tessera.json beside an index: what the MDS format does not say about a data
 * set. {"format": "tessera-data/1", "vocab_size": N, "tokenizer": NAME,
 * "tokenizer_sha256": HEX, "samples": N, "tokens": N} and optionally
 *   "eos_token": N, "bos_token": N   the token that ends or begins a document
 *   "token_type": NAME    of the values of a column "bytes"
 *   "unicode": TEXT       version of the table of characters that texts were
 *                         divided into words by, where that matters
 *   "longest": N          tokens of the longest sample
 *   "adopted": true       the shards were not written by tessera-data
 *   "shards_sha256": [HEX, ...]   of each shard file, where the index has none
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/base/fsio.h"

#define SIDECAR_NAME "tessera.json"
#define SIDECAR_FORMAT "tessera-data/1"
#define SIDECAR_TOKENIZER_BYTES 64
#define SIDECAR_VOCAB_MAX ((int64_t)1 << 24) /* as model.vocab_size */

struct sidecar {
    int64_t vocab_size; /* 1 .. SIDECAR_VOCAB_MAX */
    char tokenizer[SIDECAR_TOKENIZER_BYTES];
    char tokenizer_sha256[65];
    char unicode[8]; /* "": not known, or none */
    int64_t samples;
    int64_t tokens;
    int64_t eos_token; /* -1: none */
    int64_t bos_token; /* -1: none; there is one of both at most */
    int64_t longest;   /* 0: not known */
    int token_type;    /* src/data/set/values.h; 0: not named */
    bool adopted;
    char *shards_sha256;   /* 64 digits a shard, without a NUL; NULL: none */
    int64_t shards_hashed; /* how many */
};

/* ERR_DATA when it is missing (the text says how to make it) or malformed. What
 * was read is for sidecar_release(). */
enum err sidecar_read(const char *folder, struct sidecar *out);
void sidecar_release(struct sidecar *sidecar);
enum err sidecar_write(const char *folder, const struct sidecar *sidecar);

/* The tokenizer's file travels with what was made with it, as "tokenizer.json"
 * in the folder. "bytes" has no file. */
struct tokenizer;
#define TOKENIZER_COPY_NAME "tokenizer.json"

/* Put it there, if it has a file. */
enum err tokenizer_copy_write(const char *folder,
                              const struct tokenizer *tokenizer);
/* Both, of a set that was made with this tokenizer, whose names are filled in. */
enum err sidecar_write_made(const char *folder, struct sidecar *sidecar,
                            const struct tokenizer *tokenizer);

/* Its path, "" if there is none. ERR_DATA when it is another one than that with
 * this digest, which the folder's description names `name`. */
enum err tokenizer_copy_find(const char *folder, const char *name,
                             const char *sha256, char path[FSIO_PATH_MAX]);
