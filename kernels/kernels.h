/* The op table: everything that computes on tensors, behind one interface with
 * one table per backend and processor kernel set. What each op computes stands
 * in kernel_ops.h. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/kernel_memory.h"
#include "kernels/kernel_ops.h"
#include "kernels/kernel_shapes.h"
#include "src/base/dtype.h"
#include "src/base/err.h"

/* Version of the processor's ops, of all kernel sets: raised whenever one of
 * them gives other bits. Checkpoints record it. */
#define KERNEL_ARITHMETIC 1

/* Who computes products and attention: a library, or kernels of our own. */
struct kernel_chosen {
    const char *products;  /* "cublaslt", "own" or "cublaslt+own" */
    const char *attention; /* "cudnn", "own" or "cudnn+own" */
    char text[224];        /* both with versions and numbers of shapes */
};

struct kernels {
    const char *backend;    /* "cpu", "cuda" */
    const char *kernel_set; /* "avx512", "avx2", "generic", "sm_80+sm_90a" */
    const struct kernel_memory *memory; /* where its tensors lie */
    /* Outputs that are added to ("+=") get one addition per call and element,
     * of a sum that began at 0, but for embedding_backward's: a gradient that
     * is one call's may be added to others in place. */
    bool adds_once;

    /* Writes what decides bits: of the processor "arithmetic 1", whatever the
     * kernel set is; of a GPU what else does, its name and libraries. At most
     * bytes-1 characters. */
    void (*describe)(char *text, size_t bytes);

    size_t (*scratch_bytes)(const struct kernel_limits *limits);
    /* ... and what a library's attention takes of it, which only long samples
     * make much; NULL: there is none. */
    size_t (*attention_scratch)(const struct kernel_limits *limits);

    /* The most FLOP/s that products take here, a multiply-add being two, with
     * operands of this dtype or, with fp8, of 8 bits; 0: not known. *source
     * says from where, in a word: "measured" by the processor's ctx->threads
     * (10 ms of each), "table" of GPUs by name, "clock" of another GPU times
     * what its kind does per cycle. NULL: never known. */
    double (*peak_flops)(const struct kernel_ctx *ctx, enum dtype dtype,
                         bool fp8, const char **source);

    /* Algorithms that decide bits and are chosen by measurement, once per run;
     * all three are NULL where there are none (CPU). Until they are chosen they
     * are what the libraries propose. */
    /* Times them for everything that ops were asked for so far, on operands in
     * `memory` (tensors of ordinary numbers, 256-byte aligned, overwritten),
     * and keeps the fastest: by one rank. Waits. */
    enum err (*measure)(const struct kernel_ctx *ctx, void *memory,
                        size_t bytes);
    /* The choices as text, for other ranks and attempts; the caller frees it.
     */
    enum err (*choices)(char **text);
    /* Takes them, for ops with no less scratch than ctx has. ERR_DATA: the text is
     * damaged; ERR_UNSUPPORTED: a library is missing, of another version, or has
     * them not on this GPU. */
    enum err (*choose)(const struct kernel_ctx *ctx, const char *text);
    /* Whether slower kernels of our own may compute where a library is missing
     * or has nothing for a shape: true until this is called, and the log says
     * so. false: ops and measure return ERR_UNSUPPORTED then, and so does this
     * if a library is missing. Behind memory->use(), whose GPU the libraries'
     * handles are for. NULL, as the next: there are no libraries. */
    enum err (*allow_fallback)(bool allow);
    /* Which of them compute what was asked for so far. */
    void (*chosen)(struct kernel_chosen *out);

    /* The same table, but that its ops tell ctx->profile when they are done
     * (kernel_profile.h); its own is itself. */
    const struct kernels *profiled;

/* The ops: kernel_ops.h. */
#define KERNEL_MEMBER(op, parameters, ...)                                     \
    enum err(*op) KERNEL_PARAMETERS(parameters);
    KERNEL_OPS(KERNEL_MEMBER)
    KERNEL_OPS_FP8(KERNEL_MEMBER)
};

/* Bytes of a packed tensor, a multiple of 64; PACKING_NONE: of the fp32 one. */
size_t kernels_packed_bytes(enum packing packing, int64_t rows, int64_t cols);

/* Bytes of matrices in panels, a multiple of 64; of their elements, which the
 * rows' scales follow. */
size_t kernels_panels_bytes(const struct panels *shape);
size_t kernels_panels_elements_bytes(const struct panels *shape);

/* The table for a backend ("cpu", "cuda") and kernel set ("auto": the best that
 * this processor runs, or a name). ERR_UNSUPPORTED names what was not built or
 * what the processor lacks, and what there is instead. The table is static.
 * "cuda" needs a build with CUDA and a GPU. */
enum err kernels_find(const char *backend, const char *kernel_set,
                      const struct kernels **out);

/* The same for a plan: the table may only be asked for sizes, and "cuda" needs
 * no GPU. */
enum err kernels_find_planned(const char *backend, const char *kernel_set,
                              const struct kernels **out);

/* All tables of this build that the processor can run, NULL-terminated, best
 * first, those of a GPU's memory not among them: for tests that run every op on
 * every table. Programs that are linked with the CUDA kernels for the processor
 * (tests/cuda_emulator.h) have these as the last one, cuda/emulated. */
const struct kernels *const *kernels_all(void);

/* Address space that each of a rank's threads but the first takes: the stack
 * that the C library gives it (ulimit -s; 2 MiB without a limit) and its guard
 * page. Kernels take nothing else: their space is ctx->scratch. */
size_t kernels_thread_space(void);

/* Threads that a rank should use: processors in its affinity mask divided by
 * the ranks that share them, no more than SLURM_CPUS_PER_TASK (which counts for
 * one rank already), at least 1. `shared_by` is the number of ranks on this
 * node with the same mask. */
int kernels_threads_default(int shared_by);

/* Give each thread that OpenMP adds to the caller a processor of its own, where
 * the affinity mask has as many processors as there are `threads`. A thread
 * that slept is often woken on the processor of the one that woke it, and Linux
 * parts them only milliseconds later: products take up to twice their time
 * (docs/benchmarks.md). The caller itself stays free, and with it what it
 * starts later. Does nothing with fewer threads than processors: then ranks may
 * share them. */
void kernels_spread_threads(int threads);

/* Let OpenMP's idle threads spin for a moment, then sleep: a thread that goes
 * on spinning takes the core from the one that it waits for when processors are
 * shared (measured: a step beside one busy process is 9 times slower), one that
 * sleeps at once is woken for every product (4 % of them). The moment is
 * KERNEL_SPINS of GCC's runtime, some 25 us where a pause is 40 cycles. OpenMP
 * reads this from the environment before main, so the program is started anew,
 * once, unless OMP_WAIT_POLICY asks for something else than "passive" or
 * GOMP_SPINCOUNT, which outdoes it, is there. The first call of a main that has
 * kernels. */
#define KERNEL_SPINS "2000"
void kernels_wait_passively(char **argv);
