/* cuDNN as far as plans go: descriptors that are counted, engines of which the
 * first makes no plan, and runs that are noted. It knows attention's tensors by
 * their ids, and may put into a run's results what is not attention but comes of
 * every operand that an element of attention's has. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "kernels/cuda/libraries/cuda_dnn_library.h"

#define FAKE_DNN_POINTERS 16

struct fake_dnn {
    int alive;   /* descriptors */
    int made;    /* ... ever */
    int engines; /* offered; the first makes no plan */
    int first;   /* engine's number; the others follow */
    int64_t workspace;
    /* by direction: 2 bytes per score so many times, and half a MiB, besides */
    int64_t scores[2];
    bool computes;
    int engine; /* the last run's */
    size_t version;
    int plans;                      /* made */
    int runs;                       /* of plans */
    cudnnStatus_t run_status;       /* what they return */
    int64_t ids[FAKE_DNN_POINTERS]; /* of the last run */
    void *pointers[FAKE_DNN_POINTERS];
    int64_t count;
    void *used_workspace;
    void *stream;
};

extern struct fake_dnn fake_dnn;
extern const struct cuda_dnn_library fake_dnn_library;
