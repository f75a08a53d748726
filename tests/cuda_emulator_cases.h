/* Small kernels that a device would run well, badly, or not at all: what the
 * emulator must do with each is test_cuda_emulator.c's. */
#ifndef TESSERA_TESTS_CUDA_EMULATOR_CASES_H
#define TESSERA_TESTS_CUDA_EMULATOR_CASES_H

#ifdef __cplusplus
extern "C" {
#endif

/* Threads and blocks of the cases below. */
#define CASE_THREADS 96
#define CASE_BLOCKS 5

enum cuda_emulator_case {
    CASE_BARRIER,    /* out[i] = (i + 1) % threads, through shared memory */
    CASE_NO_BARRIER, /* the same without its barrier */
    CASE_DYNAMIC,    /* CASE_BARRIER in dynamic shared memory */
    CASE_LAST_BLOCK, /* out[0] = the block that came last */
    CASE_LEFT_OVER,  /* out[i] = what shared memory holds at first */
    CASE_SHUFFLES,   /* out[lane] = 1 if all collectives are right */
    CASE_EARLY_END,  /* a thread ends where the others wait */
    CASE_HALF_WARP,  /* half a warp shuffles, the other half is gone */
    CASE_TWO_KINDS,  /* half a warp votes, the other half shuffles */
    CASE_MASK,       /* a mask that is not the whole warp */
    CASE_WIDE_BLOCK, /* a launch of 1025 threads */
    CASE_NO_BLOCKS,  /* a launch of an empty grid */
    CASE_MUCH_SHARED /* a launch with 48 KiB and a byte */
};

/* `out` has CASE_THREADS elements; every block writes the same ones. */
void cuda_emulator_case(enum cuda_emulator_case which, float *out);

#ifdef __cplusplus
}
#endif

#endif
