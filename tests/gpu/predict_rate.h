/* How long a GPU takes for what was noted. A product of m x n x k is cut into
 * tiles, one of which a multiprocessor computes in the time of k + ramp steps;
 * waves of them follow each other, and where they are few k may be split. So
 * short k, few tiles and a last wave that is not full cost what they cost. */
#pragma once

#include "tests/gpu/predict_note.h"

struct predict_rates {
    double peak;   /* FLOP/s, what MFU is a share of */
    double gemm;   /* FLOP/s of full waves with endless k */
    double ramp;   /* steps of k that a tile takes besides */
    double splits; /* parts of k, at most */
    double multiprocessors;
    double attention_forward; /* FLOP/s of the causal half, heads of 128 */
    double attention_backward;
    double own_forward; /* likewise, of the kernels of our own */
    double own_backward;
    double narrow;    /* of that with heads of at most 64 */
    double bandwidth; /* bytes/s that ops reach */
    double gap_s;     /* between one kernel's end and the next */
    double launch_s;  /* of the host, per kernel */
};

/* Seconds of one call, without the gap. */
double predict_seconds(const struct predict_rates *rates,
                       const struct note *note);
