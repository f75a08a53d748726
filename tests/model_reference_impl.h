/* What the parts of the reference model share: a run of it, and the random
 * numbers that it draws. */
#pragma once

#include <stdio.h>
#include <stdlib.h>

#include "src/base/rng.h"
#include "tests/model_reference.h"

struct run {
    const struct model_reference *reference;
    const struct model_config *config;
    const struct leaf *leaf;
    const double *weights;
    int64_t n; /* tokens */
    int64_t d;
    int64_t length; /* of a chunk */
    int64_t head_dim;
    int64_t qkv_width;
    int64_t rounded; /* roundings so far */
    struct model_reference_loss loss;
};

static inline void *checked(void *memory)
{
    if (memory == NULL)
        abort();
    return memory;
}

static inline double *zeros(int64_t n)
{
    return checked(calloc((size_t)n, sizeof(double)));
}

/* Of a layer (1 is the first), trained or frozen, of the embedding (0) or of the head (one more
 * than there are layers); NULL when the configuration has none. */
static inline const double *tensor_in(const struct run *run,
                                      const struct params *params,
                                      const double *weights, int64_t part,
                                      enum param_role role)
{
    for (int i = 0; i < params->count; i++) {
        const struct param *param = &params->list[i];
        enum param_block_kind kind = params->blocks[param->block].kind;
        int64_t of = kind == PARAM_BLOCK_EMBEDDING ? 0
                     : kind == PARAM_BLOCK_HEAD
                         ? run->config->n_layers + 1
                         : params_layer(params, param->block) + 1;
        if (of == part && param->role == role)
            return weights + param->offset;
    }
    return NULL;
}

static inline const double *tensor(const struct run *run, int64_t part,
                                   enum param_role role)
{
    const struct params *params = run->reference->params;
    const double *found = tensor_in(run, params, run->weights, part, role);
    if (found != NULL || params->frozen == NULL)
        return found;
    return tensor_in(run, params->frozen, run->weights + params->elements, part,
                     role);
}

static inline void choose(struct run *run, int64_t choice)
{
    run->loss.choices = (run->loss.choices ^ (uint64_t)choice) * 0x100000001b3u;
}

/* --- random numbers --- */

/* Which chunk, and where in it, a token of the leaf is. */
static inline int chunk_of(const struct run *run, int64_t token)
{
    return (int)(token % run->leaf->seq_len / run->length);
}

static inline int64_t within(const struct run *run, int64_t token)
{
    return token % run->leaf->seq_len % run->length;
}

/* Of a tensor, whose chunks have streams of their own. */
static inline uint64_t stream_in(const struct run *run, const char *name,
                                 int64_t token)
{
    char chunk[96];
    if (run->reference->chunks == 1)
        return rng_stream(name);
    snprintf(chunk, sizeof chunk, "%s/%d", name, chunk_of(run, token));
    return rng_stream(chunk);
}

static inline uint64_t stream_of(const struct run *run, const char *kind,
                                 int layer, const char *part, int64_t token)
{
    char name[64];
    snprintf(name, sizeof name, "%s/%d%s", kind, layer, part);
    return stream_in(run, name, token);
}

/* Of attention's probabilities: each pair of chunks has one. */
static inline uint64_t stream_of_pair(const struct run *run, int layer,
                                      int64_t query, int64_t key)
{
    char name[96];
    if (run->reference->chunks == 1)
        return stream_of(run, "dropout", layer, "/probabilities", 0);
    snprintf(name, sizeof name, "dropout/%d/probabilities/%d/%d", layer,
             chunk_of(run, query), chunk_of(run, key));
    return rng_stream(name);
}

/* In [0, 1), 32 bits; `row` of the leaf. */
static inline double uniform(const struct run *run, uint64_t stream,
                             int64_t row, int64_t element)
{
    uint64_t sample = (uint64_t)(run->leaf->first_sample + row);
    uint64_t key = rng_u64(run->reference->seed, stream, sample);
    const uint32_t keys[2] = { (uint32_t)key, (uint32_t)(key >> 32) };
    const uint32_t counter[4] = { (uint32_t)(element / 4) };
    uint32_t words[4];
    rng_philox(keys, counter, words);
    return (double)words[element % 4] * 0x1p-32;
}

/* What an element is multiplied by. */
static inline double dropout(const struct run *run, double p, uint64_t stream,
                             int64_t row, int64_t element)
{
    if (!run->reference->training || p == 0.0)
        return 1.0;
    return uniform(run, stream, row, element) < p ? 0.0 : 1.0 / (1.0 - p);
}
