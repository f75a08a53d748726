/* The table of optimizers: all that differs from one to the other. What changes
 * weights element by element is a row of kernels/kernel_updates.h, of which its
 * entry here is made. */
#ifndef TESSERA_PARALLEL_OPTIMIZER_H
#define TESSERA_PARALLEL_OPTIMIZER_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernels.h"
#include "src/base/err.h"
#include "src/model/params.h"

/* What is updated at once: `elements` of the flat space of params from `begin`
 * on. */
struct optimizer_piece {
    const struct params *params;
    int64_t begin, elements;
    float *weights; /* the fp32 ones */
    const float *gradient;
    float *moments[UPDATE_MOMENTS]; /* NULL: the optimizer has none */
};

struct optimizer_ops {
    const char *name; /* in settings */
    /* Of its moments in checkpoints, each of a weight's shape in fp32; NULL
     * after the last. */
    const char *moments[UPDATE_MOMENTS];
    /* A matrix is to lie in one piece: not with strategies that cut blocks. */
    bool whole_matrices;
    /* Of settings that are not given; 0: those of the table of settings;
     * UPDATE_UNUSED: of a setting that it does without. */
    struct {
        double lr, beta2, eps;
    } defaults;
    /* Enqueues one step. */
    enum err (*update)(const struct optimizer_step *step,
                       const struct kernels *kernels,
                       const struct kernel_ctx *ctx,
                       const struct optimizer_piece *piece);
};

/* The names as choices of a setting, NULL after the last, by which
 * optimizer_at() finds them; the first is AdamW's. */
extern const char *const optimizer_names[];

/* By index, NULL behind the last. */
const struct optimizer_ops *optimizer_at(int index);

/* How many moments it has. */
int optimizer_moments(const struct optimizer_ops *optimizer);

#endif
