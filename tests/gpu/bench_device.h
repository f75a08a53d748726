/* What the parts of bench_kernels share: the table that is measured, memory of
 * ordinary numbers for operands, times, and rows of the result. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "kernels/kernels.h"

struct bench {
    const struct kernels *table;
    struct kernel_ctx ctx;
    enum dtype dtype;      /* of tensors: bf16, on a CPU fp32 */
    int64_t shrink;        /* what widths are divided by: 1, in a rehearsal 8 */
    int64_t tokens;        /* of a step on one device */
    struct arena operands; /* sums of bf16 and fp32 of order 1 */
    struct arena scratch;
    double copy_gbs; /* the ceilings, measured first */
    double gemm_tflops;
    bool json;
    int rows, shorts, failed, skipped;
};

enum bench_unit { BENCH_GBS, BENCH_TFLOPS };

/* `cpu`: a rehearsal with small shapes on this machine's processor, whose
 * figures mean nothing. ERR_UNSUPPORTED without a GPU otherwise. A zeroed
 * struct bench may be destroyed. */
enum err bench_create(bool cpu, bool json, struct bench *out);
void bench_destroy(struct bench *bench);

/* Makes all operands ordinary numbers again. */
enum err bench_fill(struct bench *bench);

/* All operands are free again; the next ones are bench_take()'s. */
void bench_begin(struct bench *bench);
void *bench_take(struct bench *bench, int64_t elements, size_t element_bytes);

/* Host memory to a tensor, done when it returns. */
enum err bench_upload(struct bench *bench, size_t bytes, const void *host,
                      void *tensor);

/* The mean time of one of several run(argument). */
enum err bench_time(struct bench *bench, enum err (*run)(void *),
                    void *argument, double *us);

/* ERR_UNSUPPORTED: the table has no such op. */
enum err bench_lacks(const char *op);

/* Prints the row of an op that moves `amount` bytes or does so many operations
 * in `us`; `goal` is a share of the ceiling. */
void bench_row(struct bench *bench, const char *op, const char *shape,
               double us, enum bench_unit unit, double amount, double goal);

/* Prints the row of an op that failed with `rc`. */
void bench_failed(struct bench *bench, const char *op, const char *shape,
                  enum err rc);

/* Times and prints. */
void bench_run(struct bench *bench, const char *op, const char *shape,
               enum err (*run)(void *), void *argument, enum bench_unit unit,
               double amount, double goal);

/* The parts. Errors of an op are rows, not errors of theirs. */
enum err bench_ceilings(struct bench *bench);
enum err bench_products(struct bench *bench); /* sets the ceiling of products */
/* The tiled kernel beside every algorithm of cuBLASLt that is measured: a line
 * for each shape, "not ok" ones are counted as failed. */
enum err bench_products_compare(struct bench *bench);
enum err bench_memory_ops(struct bench *bench);
enum err bench_attention(struct bench *bench);
enum err bench_fp8(struct bench *bench);
