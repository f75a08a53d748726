/* What a run computes with: the op table, parameters, model and replica, and
 * the memory of what leaves come to. Made by src/train/start, anew where the
 * microbatch changes (trainer_memory.h); of listeners only those that are
 * LISTEN_TOGETHER may use it. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernels.h"
#include "src/model/model.h"
#include "src/model/params.h"
#include "src/parallel/replica.h"
#include "src/train/plan/train_memory.h"
#include "src/train/run/trainer_fp8.h"
#include "src/train/run/trainer_losses.h"

/* Figures of the first microbatch of every slot that a rank computes. */
struct run_look {
    struct stream_look of_leaf;
    struct stream_figures *all; /* [slots][chunks][n_layers] */
    int leaves, chunks;         /* of a slot, of a microbatch */
};

struct run_engine {
    int threads;
    char arithmetic[256]; /* "cpu arithmetic 1"; a GPU's tables, libraries */
    char devices[96];     /* "8 GPUs for 8 ranks"; empty on CPU */
    char *choices; /* of algorithms, as text (trainer_choices.c); NULL: none */
    struct train_memory_place place; /* for the plan, as it was at the start */

    void *stream; /* all of a step's work in its order; NULL on CPU */
    void *copied; /* event: a checkpoint's copies have read the state */
    struct kernel_ctx ctx;
    const struct kernels *kernels;
    struct params *params;
    struct model *model;
    struct replica *replica;
    struct trainer_fp8 *fp8; /* NULL in other precisions */
    bool shrunk;  /* train.microbatch is smaller than the settings wanted */
    json_t *base; /* of a checkpoints' state, on all ranks (trainer_base.h);
                     NULL: none */

    struct trainer_losses losses; /* of a batch's leaves, this rank's */
    double *leaf_loss;            /* [leaves of a batch] of this rank's */
    double *leaf_balance;   /* [leaves of a batch] the load-balance losses */
    int64_t *expert_counts; /* [n_layers, experts] choices in the last step, of
                               all ranks; NULL without experts */
    struct run_look *look;  /* at this batch; lent; NULL: nobody looks */

    /* A failure has brought ranks that compute together out of step: nothing
     * collective can follow but trainer_roll_call(). */
    bool adrift;
};
