/* Products at the shapes of models: the heuristics' first algorithm and the
 * measured one, and the experts'. */
#include <stdio.h>
#include <stdlib.h>

#include "kernels/cuda_blas.h"
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
    enum err rc = ERR_OK;
    if (!b->table->memory->device)
        return ERR_OK;
    struct cuda_blas *blas = cuda_blas_shared();
    if (blas == NULL)
        return err_set(ERR_UNSUPPORTED, "there is no cuBLASLt");
    TRY(cuda_blas_measure(blas, &b->ctx, b->operands.base,
                          b->operands.capacity));
    TRY(bench_fill(b));
out:
    return rc;
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
