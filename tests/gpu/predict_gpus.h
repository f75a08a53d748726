/* Several GPUs, of which each has the batch of a prediction and nodes are those of
 * tessera-plan's table: what one of them needs, and how long what it exchanges takes. */
#pragma once

#include "src/parallel/memory_plan.h"
#include "src/plan/plan_gpu.h"
#include "src/train/settings/train_settings.h"

struct params;

struct predict_gpus {
    const struct plan_gpu *gpu;
    int gpus, ranks; /* ranks: of predict_ranks, each its part of the batch */
    int degree;      /* of zero3, over the GPUs; 0: all */
    const struct train_settings *settings;
    const struct kernels *kernels;
};

enum err predict_gpus_memory(const struct predict_gpus *of,
                             struct memory_plan *out);
/* Within the node and beyond at a time, at a share of the links' rates. */
enum err predict_gpus_exchange(const struct predict_gpus *of,
                               const struct params *params, double *seconds);
