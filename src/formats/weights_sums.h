/* Checksums of a model's tensors as a run has them, fp32, so that another base
 * of the same shape is noticed: CRC32C per WEIGHTS_SUMS_BLOCK elements of each.
 * They do not depend on who reads what (weights_sums.c). */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/model/params.h"

#define WEIGHTS_SUMS_BLOCK ((int64_t)1 << 20)

struct weights_sums {
    const struct params *params;
    int64_t *first; /* [params->count + 1]: sum of each tensor's first block */
    uint32_t *list; /* [first[params->count]] */
    bool *known;    /* of a tensor, all or none */
};

/* Zeros, all known: for adding. params is borrowed. ERR_MEMORY. */
enum err weights_sums_create(const struct params *params,
                             struct weights_sums **out);
/* NULL is fine. */
void weights_sums_destroy(struct weights_sums *sums);

/* Elements [begin, end) of the flat space; padding counts for nothing. */
void weights_sums_add(struct weights_sums *sums, int64_t begin, int64_t end,
                      const float *values);

/* {"transformer.wte.weight": [123, 456], ...}; NULL: no memory. */
json_t *weights_sums_json(const struct weights_sums *sums);
/* What it says of the tensors of params; the others are not known, nor is any
 * where it is NULL. ERR_CHECKPOINT: it is none; `where` is for messages. */
enum err weights_sums_parse(const json_t *json, const struct params *params,
                            const char *where, struct weights_sums **out);

/* ERR_CHECKPOINT names the tensors whose sums both know and that differ; `path`
 * is of what was read. *unknown: tensors that `was` does not know. */
enum err weights_sums_compare(const struct weights_sums *was,
                              const struct weights_sums *is, const char *path,
                              int *unknown);
