/* Small kernels with and without data races, compiled as those are that
 * tests/cuda_race.h looks at: what must be said of each is
 * test_cuda_race_emu.c's.
 */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

#define RACE_THREADS 96
#define RACE_BLOCKS 4
#define RACE_NUMBERS (RACE_THREADS * RACE_BLOCKS)

enum cuda_race_case {
    /* right ones: out[i] = the number of i's neighbour in its block or warp */
    RACE_BARRIER,      /* through a static array, twice */
    RACE_DYNAMIC,      /* through dynamic shared memory */
    RACE_WARP_BARRIER, /* neighbours in a warp, and __syncwarp */
    RACE_SHUFFLE,      /* the same by a shuffle */
    RACE_COPY,         /* what cp.async has brought, after a barrier */
    /* wrong ones */
    RACE_NO_BARRIER,       /* a thread reads what another one writes */
    RACE_NO_BARRIER_AFTER, /* and writes what another one still reads */
    RACE_NO_WARP_BARRIER,  /* a shuffle does not order memory */
    RACE_ONLY_WARP,        /* __syncwarp between different warps */
    RACE_ONE_ELEMENT,      /* all threads write one element */
    RACE_BLOCKS_WRITE,     /* every block writes out[0] */
    RACE_BLOCKS_READ,      /* a block reads what another one writes */
    RACE_COPY_EARLY,       /* a copy begins where others still read */
    RACE_COPY_LATE,        /* its bytes are read before the wait */
    RACE_COPY_NO_BARRIER,  /* and after the wait of another thread only */
    RACE_UNWRITTEN,        /* shared memory that nobody has written */
    RACE_CASES
};

/* in and out: RACE_NUMBERS floats; in's address is a multiple of 16. */
void cuda_race_case(enum cuda_race_case which, const float *in, float *out);

#ifdef __cplusplus
}
#endif
