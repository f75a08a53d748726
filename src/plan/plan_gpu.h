/* GPUs by name, as far as a plan needs them: what their makers say and what others
 * have measured. Rates are of one GPU; bytes of a link count one direction. */
#pragma once

#include <stdint.h>

#include "src/base/err.h"

struct plan_gpu {
    const char *name;
    double bf16_flops, fp8_flops; /* peak, dense; fp8 0: it has none */
    double bf16_share, fp8_share; /* of it that the best product reaches */
    double attention_flops;       /* causal, forward and backward */
    int64_t memory_bytes;         /* that a program finds */
    double memory_bytes_per_s;
    double link_bytes_per_s;    /* to the GPUs of its node */
    double network_bytes_per_s; /* to other nodes */
    int node_gpus;
};

/* ERR_USAGE: there is none of that name; says those that there are. */
enum err plan_gpu_find(const char *name, const struct plan_gpu **out);
