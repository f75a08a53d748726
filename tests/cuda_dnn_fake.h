/* cuDNN as far as plans go: descriptors that are counted, engines of which the
 * first makes no plan, and runs that are noted. */
#pragma once

#include <stdint.h>

#include "kernels/cuda/libraries/cuda_dnn_library.h"

#define FAKE_DNN_POINTERS 16

struct fake_dnn {
    int alive;   /* descriptors */
    int made;    /* ... ever */
    int engines; /* offered; the first makes no plan */
    int64_t workspace;
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
