/* The perplexity of a data set: samples as training sees them, with their
 * documents and the tokens that bear loss, by the model's own forward.
 *
 * Each sample is computed by itself and losses are added in their order, so
 * that the result is the same to the bit on any number of ranks. */
#pragma once

#include <stdint.h>

#include "kernels/kernels.h"
#include "src/base/err.h"
#include "src/comm/comm.h"
#include "src/model/model_config.h"
#include "src/model/params.h"
#include "src/parallel/spread.h"
#include "src/text/tokenizer/tokenizer.h"

/* All is lent. */
struct perplexity_options {
    const struct model_config *config;
    const struct params *params;
    struct spread *spread; /* its weights */
    const struct kernels *kernels;
    const struct kernel_ctx *ctx; /* threads, stream */
    int64_t seq_len; /* samples are cut to so many tokens; 0: longer ones than
                        the model takes are an error */
    int64_t limit;   /* the first so many samples; 0: all */
    const struct tokenizer *tokenizer; /* the model's; NULL: it has none */
};

struct perplexity {
    int64_t samples;
    int64_t tokens; /* that bear loss */
    int64_t bytes;  /* of their text; -1: not known */
    double nll;     /* summed */
    double per_token, perplexity;
    double per_byte; /* nll / bytes */
};

/* ERR_DATA: the set has tokens that the model has not, another tokenizer, or
 * samples that are too long. Collective; fails on all ranks or none. */
enum err perplexity_measure(const char *path,
                            const struct perplexity_options *options,
                            struct comm *comm, struct perplexity *out);
