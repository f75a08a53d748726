/* The models that benchmarks train, and one rank that trains one of them on a
 * batch that stays the same. */
#pragma once

#include <stdint.h>

#include "src/base/err.h"
#include "src/model/model_config.h"
#include "src/parallel/replica.h"

struct bench_model_kind {
    const char *name;
    struct model_config config;
    int samples, seq_len; /* of a batch */
    int steps;            /* worth measuring at a time: about 3 s of them */
};

/*   125m  mpt-125m, 4 x 64 tokens
 *   10m   the same with 6 layers of 320, 5 heads, 8192 tokens of vocabulary
 *   moe   6 layers of 512, 8 dropless experts of width 1024, two for each
 *         token, 4 x 256 tokens; otherwise like DBRX
 * ERR_USAGE lists them. */
enum err bench_model_find(const char *name, struct bench_model_kind *out);

/* The same without experts, its MLP as wide as those of one token together:
 * the same FLOPs per token but for the router. */
void bench_model_densify(struct bench_model_kind *kind);

/* samples x seq_len tokens drawn below `vocab_size`; a label is the next token,
 * -100 after the last one. */
void bench_model_batch(int64_t vocab_size, int samples, int seq_len,
                       int32_t *tokens, int32_t *labels);

struct bench_model;

/* By itself, with the memory of a run whose batch is so many leaves of one
 * slot, which divide the samples. kind is borrowed. */
enum err bench_model_create(const struct bench_model_kind *kind, int threads,
                            int leaves, struct bench_model **out);
/* One rank of several, on what the options say; slots * leaves divide the
 * samples. kind and comm are borrowed. Collective. */
enum err bench_model_join(const struct bench_model_kind *kind, int threads,
                          struct comm *comm,
                          const struct replica_options *options,
                          struct bench_model **out);
void bench_model_destroy(struct bench_model *bench);

/* One optimizer step (forward, backward, norm, AdamW). loss: mean over the
 * labels, before the update; the same bits on every rank. Collective. */
enum err bench_model_step(struct bench_model *bench, double *loss,
                          double *seconds);

/* Minor page faults in all steps so far. */
long bench_model_faults(const struct bench_model *bench);

/* Lent. */
const struct params *bench_model_params(const struct bench_model *bench);
/* The values of params->list[param]. */
const float *bench_model_weights(const struct bench_model *bench, int param);
