/* The whole model in fp64, token by token and head by head: what the model
 * under test must compute. Simple loops over the flat weights; slow. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "src/model/model.h"

/* What rounding to bf16 added, in order of evaluation. A replay adds the same
 * again, wherever the weights have moved: then the loss is smooth, and its
 * derivative is the one that passes the rounding as if it were not there. */
struct model_reference_rounding {
    double *offset; /* freed by the caller */
    int64_t count;
    bool replay;
};

struct model_reference {
    const struct model_config *config;
    const struct params *params;
    const struct leaf *leaf;
    uint64_t seed; /* of dropout and jitter */
    int chunks;    /* of every sequence; 1: whole */
    struct lora_options lora;
    bool training;   /* with dropout and jitter */
    int64_t *counts; /* [n_layers, experts] choices of each; NULL: unwanted */
    struct model_reference_rounding *rounding; /* NULL: neither kept nor
                                                  replayed */
};

struct model_reference_loss {
    double cross_entropy; /* as in struct leaf_loss */
    double balance;
    uint64_t choices; /* digest of the experts chosen and of what was clipped:
                         where it changes the loss has no derivative */
};

/* weights: the flat parameter space, params->elements of them, then that of
 * what is frozen. */
struct model_reference_loss
model_reference_run(const struct model_reference *reference,
                    const double *weights);
