/* What lies beside a tokenizer.model, for sentencepiece.c. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "src/base/err.h"

struct sentencepiece_beside {
    bool begins, ends; /* texts get these tokens */
    json_t *decoder;   /* an object, tokens by their numbers; NULL: none */
};

/* What the files beside this one say; `out` has what holds without them. The decoder is
 * to be released, also after an error. ERR_UNSUPPORTED: of tokens that are not read. */
enum err sentencepiece_beside_read(const char *model,
                                   struct sentencepiece_beside *out);

/* Has the decoder a token of this number? NULL has none. */
bool sentencepiece_beside_has(const json_t *decoder, int32_t id);
/* Its tokens, behind those of a tokenizer.json with this vocabulary. ERR_DATA where a
 * number is not the piece's, or not the next one behind the pieces. */
enum err sentencepiece_beside_add(const char *model, json_t *decoder,
                                  const json_t *vocab, json_t **added);
