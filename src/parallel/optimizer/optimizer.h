/* The table of optimizers: all that differs from one to the other. What changes
 * weights element by element is a row of kernels/kernel_updates.h, of which its
 * entry here is made; what needs whole tensors is a file of its own.
 *
 * A model may have several: its tensors are in groups (struct optimizer_group),
 * and an optimizer leaves what it does not take to another. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernels.h"
#include "src/base/err.h"
#include "src/model/params.h"
#include "src/parallel/optimizer/optimizer_settings.h"

/* What a step has for any optimizer, and what each has of its own. */
struct optimizer_step {
    double lr, decay, grad_scale;
    double beta1, beta2, eps;
    int64_t count;                 /* of the steps of the run, with this one */
    int64_t began[UPDATE_MOMENTS]; /* of them were before each moment was 0 */
    struct {
        OPTIMIZER_OWN_SETTINGS(SETTINGS_FIELD, 0)
    };
};

/* No optimizer keeps more of a tensor besides its moments. */
#define OPTIMIZER_STATES 3

/* What is updated at once: `elements` of the flat space of params from `begin`
 * on; of an optimizer of whole tensors it is one tensor. */
struct optimizer_partition {
    const struct params *params;
    int64_t begin, elements;
    float *weights; /* the fp32 ones */
    const float *gradient;
    float *moments[UPDATE_MOMENTS];  /* NULL: the optimizer has none */
    const struct param *tensor;      /* NULL: there may be several */
    float *states[OPTIMIZER_STATES]; /* the tensor's; NULL: it has none */
    float *scratch;                  /* what `scratch` has asked for */
};

struct optimizer_ops {
    const char *name; /* in settings */
    /* Names of its moments in checkpoints, each of a weight's shape in fp32;
     * NULL after the last. */
    const char *moments[UPDATE_MOMENTS];
    /* A tensor is to lie in one piece, in the host's memory: not with
     * strategies that cut blocks, nor on a device. */
    bool whole_tensors;
    /* What decays of a weight in a step is lr * weight_decay, not lr / peak lr
     * * weight_decay. */
    bool decay_by_lr;
    /* The settings of the group "optimizer" that it goes by besides name, lr
     * and weight_decay, with blanks between. */
    const char *uses;
    /* Defaults of settings that are not given; 0: those of the table of
     * settings. */
    struct {
        double lr, beta2, outlier_threshold;
    } defaults;
    /* Where it needs whole tensors, whether it is for this one; the others are
     * `other`'s. NULL: it takes all. */
    bool (*takes)(const struct param *param);
    const struct optimizer_ops *other;
    /* What it keeps of a tensor besides moments: names in checkpoints, NULL
     * after the last, and of which shape, in fp32: how many dimensions is
     * returned, 0: it keeps none. */
    const char *states[OPTIMIZER_STATES];
    int (*state_shape)(const struct params *params, const struct param *param,
                       int state, int64_t shape[2]);
    /* Floats that an update of the tensor works in; NULL: none. */
    int64_t (*scratch)(const struct param *param);
    /* Enqueues one step. */
    enum err (*update)(const struct optimizer_step *step,
                       const struct kernels *kernels,
                       const struct kernel_ctx *ctx,
                       const struct optimizer_partition *partition);
};

/* Those that are no op of the kernel table. */
extern const struct optimizer_ops optimizer_torch_adamw;
extern const struct optimizer_ops optimizer_adalr_lion;
extern const struct optimizer_ops optimizer_clip_lion;
extern const struct optimizer_ops optimizer_adafactor;
extern const struct optimizer_ops optimizer_muon;

/* The names as choices of a setting, NULL after the last, by which
 * optimizer_at() finds them; the first is AdamW's. */
extern const char *const optimizer_names[];

/* By index, NULL behind the last. */
const struct optimizer_ops *optimizer_at(int index);

int optimizer_moments(const struct optimizer_ops *optimizer);
int optimizer_states(const struct optimizer_ops *optimizer);

/* Numbers of a state that it keeps of the tensor. */
int64_t optimizer_state_elements(const struct optimizer_ops *optimizer,
                                 const struct params *params,
                                 const struct param *param, int state);

/* Whether it, or what it leaves tensors to, goes by optimizer.FIELD. */
bool optimizer_uses(const struct optimizer_ops *optimizer, const char *field);

#define OPTIMIZER_MATCH 512
#define OPTIMIZER_GROUPS 32 /* no run has more */

/* Tensors that are updated otherwise than the rest. */
struct optimizer_group {
    char match[OPTIMIZER_MATCH]; /* globs of names (globs.h) */
    const struct optimizer_ops *optimizer;
};

/* Which group a tensor is in, and its optimizer: 0 the rest, with the optimizer
 * `rest`, then groups in their order, of which the first that matches counts.
 */
int optimizer_find(const struct optimizer_ops *rest,
                   const struct optimizer_group *groups, int count,
                   const struct param *param,
                   const struct optimizer_ops **optimizer);
