/* 8-bit floats: quantize beside a copy, and products of the large models'
 * layers, by the heuristics' first algorithm, the measured one and the own
 * kernel, beside the largest product in bf16. */
#include <stdio.h>

#include "kernels/cuda/device/cuda.h"
#include "kernels/cuda/libraries/cuda_blas.h"
#include "tests/gpu/bench_device.h"

#define WIDTH 4096

struct work {
    struct bench *b;
    int64_t rows, cols;
    enum fp8 type;
    void *x, *y, *across;
    float *scale, *largest;
    struct gemm_fp8 gemm;
    struct cuda_blas *blas; /* of these products only */
};

static enum err run_quantize(void *argument)
{
    struct work *f = argument;
    if (f->b->table->quantize == NULL)
        return bench_lacks("quantize");
    return f->b->table->quantize(&f->b->ctx, f->type, f->rows, f->cols, f->x,
                                 f->scale, f->y, f->across, f->largest);
}

static enum err run_gemm(void *argument)
{
    struct work *f = argument;
    if (f->b->table->gemm_fp8 == NULL)
        return bench_lacks("gemm_fp8");
    return f->b->table->gemm_fp8(&f->b->ctx, &f->gemm);
}

static enum err run_measured(void *argument)
{
    struct work *f = argument;
    return cuda_blas_gemm_fp8(f->blas, &f->b->ctx, &f->gemm);
}

static enum err run_own(void *argument)
{
    struct work *f = argument;
    return cuda_gemm_fp8_tiled(&f->b->ctx, &f->gemm);
}

/* A tensor of ordinary numbers, room for its codes, and a scale of 1. */
static enum err operands_take(struct bench *b, int64_t rows, int64_t cols,
                              struct work *f)
{
    const float one = 1, none = 0;
    f->b = b;
    f->rows = rows;
    f->cols = cols;
    f->x = bench_take(b, rows * cols, sizeof(uint16_t));
    f->y = bench_take(b, rows * cols, 1);
    f->across = bench_take(b, rows * cols, 1);
    f->scale = bench_take(b, 1, sizeof(float));
    f->largest = bench_take(b, 1, sizeof(float));
    TRY(bench_upload(b, sizeof one, &one, f->scale));
    return bench_upload(b, sizeof none, &none, f->largest);
}

static void bench_quantize(struct bench *b)
{
    static const struct {
        const char *shape;
        enum fp8 type;
        bool straight, across;
    } ways[] = { { "e4m3", FP8_E4M3, true, false },
                 { "e4m3 and transpose", FP8_E4M3, true, true },
                 { "e5m2 and transpose", FP8_E5M2, true, true },
                 { "e4m3 transpose only", FP8_E4M3, false, true } };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct work f = { .type = ways[i].type };
        bench_begin(b);
        enum err rc = operands_take(b, b->tokens, WIDTH / b->shrink, &f);
        double bytes = (double)f.rows * (double)f.cols *
                       (2 + ways[i].straight + ways[i].across);
        f.y = ways[i].straight ? f.y : NULL;
        f.across = ways[i].across ? f.across : NULL;
        if (rc == ERR_OK)
            bench_run(b, "quantize", ways[i].shape, run_quantize, &f, BENCH_GBS,
                      bytes, 0.85);
        else
            bench_failed(b, "quantize", ways[i].shape, rc);
    }
}

/* Operands are codes of ordinary numbers. */
static enum err product_take(struct bench *b, struct gemm_fp8 g, struct work *f)
{
    struct work left = { .type = g.a_type }, right = { .type = g.b_type };
    bench_begin(b);
    TRY(operands_take(b, g.m, g.k, &left));
    TRY(operands_take(b, g.n, g.k, &right));
    TRY(run_quantize(&left));
    TRY(run_quantize(&right));
    TRY(b->table->memory->wait(b->ctx.stream));
    g.a = left.y;
    g.b = right.y;
    g.unscale_a = left.scale;
    g.unscale_b = right.scale;
    g.c = bench_take(b, g.m * g.n, sizeof(float));
    f->b = b;
    f->gemm = g;
    return ERR_OK;
}

/* In the memory that this product leaves. */
static enum err measure(struct work *f)
{
    struct arena *memory = &f->b->operands;
    size_t used = (memory->used + 255) / 256 * 256;
    TRY(run_measured(f));
    return cuda_blas_measure(f->blas, &f->b->ctx, memory->base + used,
                             memory->capacity - used);
}

static void bench_product(struct bench *b, const char *shape, struct gemm_fp8 g,
                          struct cuda_blas *blas)
{
    struct work f = { .blas = blas };
    double flops = 2 * (double)g.m * (double)g.n * (double)g.k;
    enum err rc = product_take(b, g, &f);
    if (rc != ERR_OK) {
        bench_failed(b, "gemm_fp8", shape, rc);
        return;
    }
    bench_run(b, "gemm_fp8", shape, run_gemm, &f, BENCH_TFLOPS, flops, 0);
    if (blas != NULL) {
        rc = measure(&f);
        if (rc == ERR_OK)
            bench_run(b, "gemm_fp8 measured", shape, run_measured, &f,
                      BENCH_TFLOPS, flops, g.fast ? 1.4 : 1.2);
        else
            bench_failed(b, "gemm_fp8 measured", shape, rc);
    }
    if (b->table->memory->device)
        bench_run(b, "gemm_fp8 own", shape, run_own, &f, BENCH_TFLOPS, flops,
                  0.25);
}

enum err bench_fp8(struct bench *b)
{
    enum err rc = ERR_OK;
    const int64_t rows = b->tokens, d = WIDTH / b->shrink;
    struct cuda_blas *blas = NULL;
    TRY_OUT(bench_fill(b));
    bench_quantize(b);
    if (b->table->memory->device && cuda_blas_create(NULL, &blas) != ERR_OK)
        bench_failed(b, "gemm_fp8 measured", "all", ERR_UNSUPPORTED);
    bench_product(
        b, "7b up, forward",
        (struct gemm_fp8){
            .m = rows, .n = 4 * d, .k = d, .c_type = DTYPE_BF16, .fast = true },
        blas);
    bench_product(b, "7b up, dX",
                  (struct gemm_fp8){ .m = rows,
                                     .n = d,
                                     .k = 4 * d,
                                     .a_type = FP8_E5M2,
                                     .c_type = DTYPE_BF16 },
                  blas);
    bench_product(b, "7b up, dW",
                  (struct gemm_fp8){ .m = 4 * d,
                                     .n = d,
                                     .k = rows,
                                     .a_type = FP8_E5M2,
                                     .c_type = DTYPE_F32,
                                     .accumulate = true },
                  blas);
out:
    cuda_blas_destroy(blas);
    return rc;
}
