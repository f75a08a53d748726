/* tessera.json beside an index: what the MDS format does not say about a data
 * set. {"format": "tessera-data/1", "vocab_size": N, "tokenizer": NAME,
 * "tokenizer_sha256": HEX, "samples": N, "tokens": N} and optionally
 * "eos_token": N, the token that ends a document. */
#ifndef TESSERA_DATA_SIDECAR_H
#define TESSERA_DATA_SIDECAR_H

#include <stdint.h>

#include "src/base/err.h"

#define SIDECAR_NAME "tessera.json"
#define SIDECAR_FORMAT "tessera-data/1"
#define SIDECAR_TOKENIZER_BYTES 64

struct sidecar {
    int64_t vocab_size; /* 1 .. 2^31-1 */
    char tokenizer[SIDECAR_TOKENIZER_BYTES];
    char tokenizer_sha256[65];
    int64_t samples;
    int64_t tokens;
    int64_t eos_token; /* -1: none */
};

/* ERR_DATA when it is missing (the text says how to make it) or malformed. */
enum err sidecar_read(const char *folder, struct sidecar *out);
enum err sidecar_write(const char *folder, const struct sidecar *sidecar);

#endif
