/* Products at the shapes of models: the heuristics' first algorithm and the
 * measured one, and the experts'. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/device/cuda.h"
#include "kernels/cuda/libraries/cuda_blas.h"
#include "tests/gpu/bench_device.h"

#define LARGEST 8192
#define GROUPS 8

struct product {
    struct bench *b;
    struct gemm gemm;
    struct grouped_gemm grouped;
    char shape[64];
    double us[2]; /* of the heuristics' algorithm, of the measured one */
    double goal;
    enum err rc;
};

static const struct {
    const char *name;
    int64_t d;
    double goal;
} models[] = {
    { "125m", 768, 0.55 }, { "350m", 1024, 0.65 }, { "760m", 1536, 0.7 },
    { "1.3b", 2048, 0.8 }, { "7b", 4096, 0.85 },
};

#define MODELS (sizeof models / sizeof *models)
#define LAYERS 5
#define FORMS 3
#define PRODUCTS (1 + MODELS * LAYERS * FORMS)

static enum err run_gemm(void *argument)
{
    struct product *p = argument;
    return p->b->table->gemm(&p->b->ctx, p->b->dtype, &p->gemm);
}

static enum err run_grouped(void *argument)
{
    struct product *p = argument;
    if (p->b->table->grouped_gemm == NULL)
        return bench_lacks("grouped_gemm");
    return p->b->table->grouped_gemm(&p->b->ctx, p->b->dtype, &p->grouped);
}

/* Y[rows, outputs] = X[rows, inputs] W^T, dX and dW, of which dW is fp32. */
static struct product product_of(struct bench *b, enum gemm_form form,
                                 int64_t rows, int64_t inputs, int64_t outputs)
{
    struct product p = { .b = b };
    size_t size = dtype_bytes(b->dtype);
    int64_t m = form == GEMM_TN ? outputs : rows;
    int64_t n = form == GEMM_NT ? outputs : inputs;
    int64_t k = form == GEMM_NT ? inputs : form == GEMM_NN ? outputs : rows;
    bench_begin(b);
    p.gemm = (struct gemm){
        .form = form,
        .m = m,
        .n = n,
        .k = k,
        .a = bench_take(b, m * k, size),
        .b = bench_take(b, n * k, size),
        .c = bench_take(b, m * n, sizeof(float)),
        .accumulate = form == GEMM_TN,
    };
    return p;
}

static void list_products(struct bench *b, struct product *products)
{
    static const char *const forms[] = { "NT", "NN", "TN" };
    static const char *const layers[] = { "qkv", "out", "up", "down",
                                          "logits" };
    struct product *p = products;
    int64_t largest = LARGEST / b->shrink / b->shrink;
    *p = product_of(b, GEMM_NT, largest, largest, largest);
    p->goal = 0.95;
    snprintf(p++->shape, sizeof p->shape, "%lld^3", (long long)largest);
    for (size_t i = 0; i < MODELS; i++) {
        int64_t d = models[i].d / b->shrink;
        const int64_t sizes[LAYERS][2] = {
            { d, 3 * d },
            { d, d },
            { d, 4 * d },
            { 4 * d, d },
            { d, 50368 / b->shrink },
        };
        for (int l = 0; l < LAYERS; l++)
            for (int f = 0; f < FORMS; f++) {
                int64_t rows = l == LAYERS - 1 ? b->tokens / 4 : b->tokens;
                *p = product_of(b, (enum gemm_form)f, rows, sizes[l][0],
                                sizes[l][1]);
                p->goal = models[i].goal;
                snprintf(p->shape, sizeof p->shape, "%s %s %s", models[i].name,
                         layers[l], forms[f]);
                p++;
            }
    }
}

static void time_products(struct bench *b, struct product *products, int pass)
{
    for (size_t i = 0; i < PRODUCTS; i++) {
        struct product *p = &products[i];
        if (p->rc == ERR_OK)
            p->rc = bench_time(b, run_gemm, p, &p->us[pass]);
        if (p->rc != ERR_OK && pass == 0)
            bench_failed(b, "gemm", p->shape, p->rc);
    }
}

static double flops(const struct gemm *g)
{
    return 2 * (double)g->m * (double)g->n * (double)g->k;
}

/* On one device, the plans that the first pass made. */
static enum err measure(struct bench *b)
{
    if (!b->table->memory->device)
        return ERR_OK;
    struct cuda_blas *blas = cuda_blas_shared();
    if (blas == NULL)
        return err_set(ERR_UNSUPPORTED, "there is no cuBLASLt");
    TRY(cuda_blas_measure(blas, &b->ctx, b->operands.base,
                          b->operands.capacity));
    return bench_fill(b);
}

/* Rows of an expert each; the forms as above. */
static void bench_grouped(struct bench *b)
{
    static const char *const names[] = { "NT", "NN", "TN" };
    int64_t rows = 2 * b->tokens, d = 1024 / b->shrink, width = 4 * d;
    size_t size = dtype_bytes(b->dtype);
    int64_t offsets[GROUPS + 1];
    for (int g = 0; g <= GROUPS; g++)
        offsets[g] = rows * g / GROUPS;
    for (int f = 0; f < FORMS; f++) {
        struct product p = { .b = b };
        bench_begin(b);
        int64_t *lies = bench_take(b, GROUPS + 1, sizeof *lies);
        enum err rc = bench_upload(b, sizeof offsets, offsets, lies);
        p.grouped = (struct grouped_gemm){
            .form = (enum gemm_form)f,
            .groups = GROUPS,
            .offsets = lies,
            .m = f == GEMM_TN ? width : 0,
            .n = f == GEMM_NT ? width : d,
            .k = f == GEMM_NT   ? d
                 : f == GEMM_NN ? width
                                : 0,
            .a = bench_take(b, rows * width, size),
            .b = bench_take(b, GROUPS * rows * d / GROUPS + GROUPS * width * d,
                            size),
            .c =
                bench_take(b, GROUPS * width * d + rows * width, sizeof(float)),
            .accumulate = f == GEMM_TN,
        };
        snprintf(p.shape, sizeof p.shape, "8 x %lldx%lldx%lld %s",
                 (long long)(rows / GROUPS), (long long)width, (long long)d,
                 names[f]);
        if (rc == ERR_OK)
            bench_run(b, "grouped_gemm", p.shape, run_grouped, &p, BENCH_TFLOPS,
                      2 * (double)rows * (double)width * (double)d, 0.5);
        else
            bench_failed(b, "grouped_gemm", p.shape, rc);
    }
}

/* --- algorithms beside each other --- */

/* Of the largest element: one rounding of bf16 and another order of sums. */
#define APART_BF16 0x1p-7
#define APART_F32 1e-4
#define ALGORITHMS 8

/* Of GEMM_TN they are fp32 also where a and b are bf16. */
static enum dtype result_dtype(const struct product *p)
{
    return p->gemm.form == GEMM_TN ? DTYPE_F32 : p->b->dtype;
}

static float element(const void *x, enum dtype dtype, int64_t i)
{
    uint32_t bits;
    float value;
    if (dtype == DTYPE_F32)
        return ((const float *)x)[i];
    bits = (uint32_t)((const uint16_t *)x)[i] << 16;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The largest difference, of the largest element of y. */
static double apart(const void *x, const void *y, enum dtype dtype, int64_t n)
{
    double worst = 0, largest = 0;
    int64_t wrong = 0;
#pragma omp parallel for reduction(max : worst, largest) reduction(+ : wrong)
    for (int64_t i = 0; i < n; i++) {
        double a = (double)element(x, dtype, i);
        double b = (double)element(y, dtype, i);
        wrong += !isfinite(a) || !isfinite(b);
        worst = fmax(worst, fabs(a - b));
        largest = fmax(largest, fabs(b));
    }
    return wrong > 0 ? INFINITY : worst / largest;
}

/* C from nothing by algorithm `which`, or by the tiled kernel, to `host`. */
static enum err product_by(const struct product *p, int which,
                           struct arena *host, bool *there)
{
    struct bench *b = p->b;
    const struct kernel_memory *memory = b->table->memory;
    const struct gemm *g = &p->gemm;
    enum dtype dtype = result_dtype(p);
    *there = true;
    TRY(b->table->zero(&b->ctx, dtype, g->m * g->n, g->c));
    if (!memory->device) {
        *there = which < 1;
        TRY(b->table->gemm(&b->ctx, b->dtype, g));
    } else if (which < 0) {
        TRY(cuda_gemm_tiled(&b->ctx, b->dtype, g));
    } else {
        TRY(cuda_blas_gemm_by(cuda_blas_shared(), &b->ctx, b->dtype, g, which,
                              there));
    }
    TRY(memory->download(b->ctx.stream,
                         (size_t)(g->m * g->n) * dtype_bytes(dtype), g->c,
                         host->base));
    return memory->wait(b->ctx.stream);
}

static enum err compare(const struct product *p, struct arena host[2])
{
    enum err rc = ERR_OK;
    enum dtype dtype = result_dtype(p);
    double limit = dtype == DTYPE_F32 ? APART_F32 : APART_BF16, worst = 0;
    int tried = 0;
    bool there = true;
    TRY_OUT(bench_fill(p->b)); /* it was another product's result */
    TRY_OUT(product_by(p, -1, &host[0], &there));
    for (int which = 0; which < ALGORITHMS; which++) {
        TRY_OUT(product_by(p, which, &host[1], &there));
        if (!there)
            continue;
        tried++;
        worst = fmax(worst, apart(host[1].base, host[0].base, dtype,
                                  p->gemm.m * p->gemm.n));
    }
    if (tried == 0)
        rc = err_set(ERR_UNSUPPORTED, "cuBLASLt has no algorithm");
    else if (!(worst <= limit))
        rc = err_set(ERR_DATA, "%d algorithms, %.3g apart, limit %.3g", tried,
                     worst, limit);
    else
        printf("ok - gemm %s: %d algorithms, %.3g apart from the tiled one\n",
               p->shape, tried, worst);
out:
    return rc;
}

enum err bench_products_compare(struct bench *b)
{
    enum err rc = ERR_OK;
    struct arena host[2] = { { 0 }, { 0 } };
    struct product *products = calloc(PRODUCTS, sizeof *products);
    size_t most = 0;
    if (products == NULL)
        return err_set(ERR_MEMORY, "no memory for the list of products");
    if (b->table->memory->device && cuda_blas_shared() == NULL)
        TRY_OUT(err_set(ERR_UNSUPPORTED, "%s", cuda_blas_missing()));
    list_products(b, products);
    for (size_t i = 0; i < PRODUCTS; i++) {
        size_t bytes = (size_t)(products[i].gemm.m * products[i].gemm.n) *
                       dtype_bytes(result_dtype(&products[i]));
        most = bytes > most ? bytes : most;
    }
    for (int i = 0; i < 2; i++)
        TRY_OUT(b->table->memory->host_create(most, &host[i]));
    for (size_t i = 0; i < PRODUCTS; i++) {
        enum err found = compare(&products[i], host);
        b->failed += found != ERR_OK;
        if (found != ERR_OK)
            printf("not ok - gemm %s: %s\n", products[i].shape, err_text());
    }
out:
    for (int i = 0; i < 2; i++)
        b->table->memory->host_destroy(&host[i]);
    free(products);
    return rc;
}

enum err bench_products(struct bench *b)
{
    struct product *products = calloc(PRODUCTS, sizeof *products);
    if (products == NULL)
        return err_set(ERR_MEMORY, "no memory for the list of products");
    list_products(b, products);
    time_products(b, products, 0);
    enum err measured = measure(b);
    if (measured == ERR_OK)
        time_products(b, products, 1);
    else
        bench_failed(b, "gemm measured", "all", measured);
    for (int pass = 0; pass < 2; pass++)
        if (products[0].us[pass] > 0) {
            double rate =
                flops(&products[0].gemm) / products[0].us[pass] * 1e-6;
            if (rate > b->gemm_tflops)
                b->gemm_tflops = rate;
        }
    for (size_t i = 0; i < PRODUCTS && b->gemm_tflops > 0; i++)
        for (int pass = 0; pass < 2; pass++)
            if (products[i].us[pass] > 0)
                bench_row(b, pass == 0 ? "gemm" : "gemm measured",
                          products[i].shape, products[i].us[pass], BENCH_TFLOPS,
                          flops(&products[i].gemm),
                          pass == 0 ? 0 : products[i].goal);
    free(products);
    bench_grouped(b);
    return b->gemm_tflops > 0 ? ERR_OK
                              : err_set(ERR_INTERNAL, "no product was timed");
}
