/* Small kernels that a device would run well, badly, or not at all: what the
 * emulator must do with each is test_cuda_emulator_emu.c's. */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

/* Threads and blocks of the cases below. */
#define CASE_THREADS 96
#define CASE_BLOCKS 5

enum cuda_emulator_case {
    CASE_BARRIER,        /* out[i] = (i + 1) % threads, through shared memory */
    CASE_NO_BARRIER,     /* the same without its barrier */
    CASE_DYNAMIC,        /* CASE_BARRIER in dynamic shared memory */
    CASE_LAST_BLOCK,     /* out[0] = the block that came last */
    CASE_LEFT_OVER,      /* out[i] = what shared memory holds at first */
    CASE_SHUFFLES,       /* out[lane] = 1 if all collectives are right */
    CASE_EARLY_END,      /* a thread ends where the others wait */
    CASE_HALF_WARP,      /* half a warp shuffles, the other half is gone */
    CASE_TWO_KINDS,      /* half a warp votes, the other half shuffles */
    CASE_MASK,           /* a mask that is not the whole warp */
    CASE_WIDE_BLOCK,     /* a launch of 1025 threads */
    CASE_NO_BLOCKS,      /* a launch of an empty grid */
    CASE_MUCH_SHARED,    /* a launch with 48 KiB and a byte */
    CASE_LOAD_ALIGNMENT, /* a load of 16 bytes at an address odd by 4 */
    CASE_STORE_ALIGNMENT, /* the same, stored */
    CASE_DYNAMIC_END,     /* a read behind dynamic shared memory */
    CASE_STATIC_END,      /* a read behind a static array */
    CASE_TENSOR_END       /* a vector that reaches over the end of `out` */
};

/* `out` has CASE_THREADS elements, the first on a multiple of 16 bytes; every
 * block writes the same ones. */
void cuda_emulator_case(enum cuda_emulator_case which, float *out);

#ifdef __cplusplus
}
#endif
