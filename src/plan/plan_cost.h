/* The time of a training step on GPUs, from shapes alone. A pure function: nothing is
 * measured, opened or allocated.
 *
 * A step is its leaves, one after the other, and an update. A leaf is products, each
 * by its shape, attention, what moves through memory beside them, launches, and what
 * ranks exchange, as far as it is not behind the arithmetic. */
#pragma once

#include <stdbool.h>

#include "src/model/model_config.h"
#include "src/plan/plan_gpu.h"
#include "src/train/plan/train_exchange.h"

/* All that is not counted but fitted: name, value, meaning. Fitted to every second row
 * of LLM Foundry's throughput of two types of GPUs, H100 left out: `make predict`
 * says with what errors, and `build/predict fit` makes these lines. */
#define PLAN_CONSTANTS(C)                                                      \
    C(product_share, 0.95, "of a GPU's best product's rate, that others have") \
    C(operand_passes, 0.91, "how often operands of a product cross memory")    \
    C(attention_share, 0.516, "of a GPU's rate of attention")                  \
    C(attention_half, 692, "tokens of a sample at which that rate is halved")  \
    C(logit_passes, 22, "how often logits in 2 bytes cross memory")            \
    C(link_share, 0.324, "of links and network, that exchanges reach")         \
    C(hidden_share, 0.492, "of an exchange, that arithmetic may hide")         \
    C(hop_s, 0.000148, "s of a block's exchange for each doubling of ranks")

struct plan_constants {
#define PLAN_CONSTANT_FIELD(name, value, what) double name;
    PLAN_CONSTANTS(PLAN_CONSTANT_FIELD)
#undef PLAN_CONSTANT_FIELD
};
extern const struct plan_constants plan_cost_constants;
/* Other programs' rows, data parallel alone, are within this share of what was
 * predicted, 9 of 10 of them (`make predict`); LLM Foundry's own within half of it. */
#define PLAN_COST_SPREAD 0.24

struct plan_cost_input {
    const struct model_config *model;
    double seq_len;
    double microbatch; /* samples of a leaf on one rank, may be a part of one */
    double leaves;     /* of a rank in a step */
    double again;      /* share of blocks that are computed again */
    double trained;    /* share of the parameters */
    bool fp8;          /* products of blocks */
    int node_ranks;
    struct train_exchange exchanges[TRAIN_EXCHANGES];
    double control_rounds; /* of the ranks' agreements in a step */
    double update_bytes;   /* that cross a rank's memory in the update */
};

enum plan_cost_kind {
    PLAN_PRODUCTS,
    PLAN_ATTENTION,
    PLAN_VALUES, /* norms, activations, logits */
    PLAN_LAUNCHES,
    PLAN_EXCHANGE, /* what arithmetic does not hide */
    PLAN_CONTROL,
    PLAN_UPDATE,
    PLAN_KINDS
};
static const char *const plan_cost_names[] = { "products", "attention",
                                               "values",   "launches",
                                               "exchange", "control",
                                               "update" };

struct plan_cost {
    double seconds[PLAN_KINDS], step_s; /* of a step */
};

void plan_cost(const struct plan_gpu *gpu, const struct plan_cost_input *input,
               const struct plan_constants *constants, struct plan_cost *out);
