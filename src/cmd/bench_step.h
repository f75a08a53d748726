/* tessera-bench step: how near an optimizer step comes to what the machine
 * allows.
 *
 *   step_ms   median time of one step (forward, backward, norm, AdamW) as one
 *             leaf, of the model that is chosen (bench_model.h)
 *   gflop     of all matrix products of a step (bench_flops.h)
 *   peak_gflops  GFLOP/s of multiply-adds in registers by the same threads,
 *             measured after every step (peak_flops in kernels.h)
 *   ratio_peak  (gflop / peak_gflops) / step time: from medians, and from
 *             nothing that a library does well or badly
 *   triad_gbps  bytes per second of a[i] = b[i] + s c[i], 12 per element
 *   bound_library  the fastest BLAS that could be opened (bench_peer.h), in its
 *             own words, or why there is none; libraries lists all that were
 *             tried
 *   bound_ms  the same GEMMs (forward, dX, dW of every linear layer and the
 *             head) by that library, plus AdamW's 28 bytes per parameter at
 *             triad bandwidth; an expert model's by those of the dense model
 *             of as many FLOPs
 *   ratio     bound_ms / step_ms, from medians; both are absent without a
 *             library
 *   elastic_ms, elastic_ratio  the step as one leaf for each sample, summed in
 *             order, and step_ms / elastic_ms
 *   faults    minor page faults per round of steps, after the first one
 *   dense_ms, moe_ratio  of an expert model only: the step of the dense model
 *             of equal active FLOPs, and dense_ms / step_ms
 *
 * Bound and steps are measured in turns, each in a process of its own
 * (bench_child.h), so that no more than 2 GiB are in use at any time; 2.5 GiB
 * with experts, where both models are there. Within a process the step as one
 * leaf, the one of several leaves, the dense model's and the peak take turns.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "src/base/err.h"

struct bench_options {
    const char
        *dir; /* a folder that was made for this, and is removed after it */
    int threads;
    double seconds;         /* stop starting rounds after this */
    const char *model;      /* of step and gemm; NULL: 125m, all of gemm's */
    const char *kernel_set; /* of gemm; NULL: auto */
    const char *mkl;        /* of step and gemm: libmkl_rt.so or its folder;
                               NULL: where it usually is */
    int tokens;             /* of gemm; 0: all */
    bool parallel;          /* step by two ranks (bench_parallel.h) */
    char **overrides;       /* key=value of data and mfu */
    int override_count;
};

enum err bench_step(const struct bench_options *options, json_t **result);

/* tessera-bench data: loader_share = time to read samples / time of the step,
 * on mpt-tiny, whose step is so short that the share is at its largest. */
enum err bench_data(const struct bench_options *options, json_t **result);

/* tessera-bench mfu: tokens per second of one rank that trains by the settings
 * given as key=value (hardware.backend, model.preset, train.microbatch, ...),
 * and which share of a ceiling that is: of the rate of one large matrix product
 * by the same backend in the same dtype, measured in the same run. FLOPs per
 * token are 6 N + 12 L d S (mfu) or with half of attention (mfu_causal), as in
 * metrics.jsonl. Medians; the first step is left out. graph_leaves is how many
 * microbatches were one launch, 0 with hardware.graphs=off. */
enum err bench_mfu(const struct bench_options *options, json_t **result);
