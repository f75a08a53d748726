/* products [--rehearse | --quick] | --describe: whether products have the numbers that they
 * should, by every algorithm of cuBLASLt, beside our own tiled kernel, at the
 * shapes of models: a line for each shape, or --quick for four of them. --describe says only which GPU there
 * is, and which libraries; --rehearse takes small shapes on the CPU, where there
 * is nothing to compare. What ops take of the time is told by train.profile, what
 * the GPU can do by tessera-health. Exit status 77: there is no GPU. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/device/cuda.h"
#include "kernels/cuda/libraries/cuda_blas.h"
#include "kernels/kernels.h"
#include "src/base/log.h"
#include "src/base/rng.h"

#define NO_GPU 77
#define LARGEST 8192
#define OPERANDS ((size_t)6 << 30)
#define OPERANDS_REHEARSAL ((size_t)192 << 20)
#define BLOCK ((size_t)16 << 20)

/* The table that is tested, and memory of ordinary numbers for operands. */
struct bench {
    const struct kernels *table;
    struct kernel_ctx ctx;
    enum dtype dtype;      /* of tensors: bf16, on a CPU fp32 */
    int64_t shrink;        /* what widths are divided by: 1, in a rehearsal 8 */
    int64_t tokens;        /* of a step on one device */
    size_t step;           /* of the list every so many */
    struct arena operands; /* sums of bf16 and fp32 of order 1 */
    struct arena scratch;
    int failed;
};

static enum err scratch_create(struct bench *b)
{
    const struct kernel_limits limits = {
        .threads = 1,
        .tokens = b->tokens * 4,
        .batch = 16,
        .seq = b->tokens,
        .width = 16384 / b->shrink,
        .heads = 32,
        .head_dim = 128 / b->shrink,
        .vocab = 50368 / b->shrink,
    };
    size_t bytes = b->table->scratch_bytes(&limits);
    TRY(b->table->memory->tensors_create(bytes, &b->scratch));
    b->ctx.scratch = arena_take(&b->scratch, bytes);
    b->ctx.scratch_bytes = bytes;
    return ERR_OK;
}

/* Two bf16 numbers of 0.5 to 2 in size, which are a fp32 one of that size. */
static void fill_block(uint32_t *block, size_t words)
{
    uint64_t key = rng_u64(17, 1, 0);
    for (size_t i = 0; i < words; i++) {
        uint64_t bits = rng_u64(key, 2, i);
        block[i] = ((uint32_t)bits & 0x80ff80ffu) | 0x3f003f00u;
    }
}

static enum err bench_fill(struct bench *b)
{
    const struct kernel_memory *memory = b->table->memory;
    struct arena host = { 0 };
    enum err rc = ERR_OK;
    TRY_OUT(memory->host_create(BLOCK, &host));
    fill_block((void *)host.base, BLOCK / sizeof(uint32_t));
    for (size_t at = 0; at < b->operands.capacity; at += BLOCK)
        TRY_OUT(memory->upload(b->ctx.stream, BLOCK, host.base,
                               b->operands.base + at));
    TRY_OUT(memory->wait(b->ctx.stream));
out:
    memory->host_destroy(&host);
    return rc;
}

static enum err bench_create(bool cpu, struct bench *out)
{
    enum err rc = ERR_OK;
    struct bench b = {
        .ctx = { .threads = 1 },
        .dtype = cpu ? DTYPE_F32 : DTYPE_BF16,
        .shrink = cpu ? 8 : 1,
        .tokens = cpu ? 256 : 16384,
    };
    memset(out, 0, sizeof *out);
    TRY_OUT(kernels_find(cpu ? "cpu" : "cuda", "auto", &b.table));
    TRY_OUT(b.table->memory->use(0));
    TRY_OUT(b.table->memory->stream_create(false, &b.ctx.stream));
    TRY_OUT(scratch_create(&b));
    TRY_OUT(b.table->memory->tensors_create(cpu ? OPERANDS_REHEARSAL : OPERANDS,
                                            &b.operands));
    TRY_OUT(bench_fill(&b));
out:
    *out = b;
    return rc;
}

static void bench_destroy(struct bench *b)
{
    if (b->table == NULL)
        return;
    b->table->memory->tensors_destroy(&b->operands);
    b->table->memory->tensors_destroy(&b->scratch);
    b->table->memory->stream_destroy(b->ctx.stream);
}

/* --- shapes --- */

struct product {
    struct bench *b;
    struct gemm gemm;
    char shape[64];
};

static const struct {
    const char *name;
    int64_t d;
} models[] = {
    { "125m", 768 },  { "350m", 1024 }, { "760m", 1536 },
    { "1.3b", 2048 }, { "7b", 4096 },
};

#define MODELS (sizeof models / sizeof *models)
#define LAYERS 5
#define FORMS 3
#define PRODUCTS (1 + MODELS * LAYERS * FORMS)
/* Every so many are 8192^3 and one of each form, of three models and layers. */
#define QUICK_STEP 25

/* Y[rows, outputs] = X[rows, inputs] W^T, dX and dW, of which dW is fp32. */
static struct product product_of(struct bench *b, enum gemm_form form,
                                 int64_t rows, int64_t inputs, int64_t outputs)
{
    struct product p = { .b = b };
    size_t size = dtype_bytes(b->dtype);
    int64_t m = form == GEMM_TN ? outputs : rows;
    int64_t n = form == GEMM_NT ? outputs : inputs;
    int64_t k = form == GEMM_NT ? inputs : form == GEMM_NN ? outputs : rows;
    b->operands.used = 0;
    p.gemm = (struct gemm){
        .form = form,
        .m = m,
        .n = n,
        .k = k,
        .a = arena_take(&b->operands, (size_t)(m * k) * size),
        .b = arena_take(&b->operands, (size_t)(n * k) * size),
        .c = arena_take(&b->operands, (size_t)(m * n) * sizeof(float)),
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
                snprintf(p->shape, sizeof p->shape, "%s %s %s", models[i].name,
                         layers[l], forms[f]);
                p++;
            }
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

static enum err compare_all(struct bench *b)
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
    for (size_t i = 0; i < PRODUCTS; i += b->step) {
        size_t bytes = (size_t)(products[i].gemm.m * products[i].gemm.n) *
                       dtype_bytes(result_dtype(&products[i]));
        most = bytes > most ? bytes : most;
    }
    for (int i = 0; i < 2; i++)
        TRY_OUT(b->table->memory->host_create(most, &host[i]));
    for (size_t i = 0; i < PRODUCTS; i += b->step) {
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

static enum err describe(void)
{
    const struct kernels *table;
    char text[256];
    int count = 0;
    TRY(kernels_find("cuda", "auto", &table));
    TRY(table->memory->visible(&count));
    TRY(table->memory->use(0));
    table->describe(text, sizeof text);
    printf("GPUs %d\n%s\n", count, text);
    return ERR_OK;
}

static enum err bench(bool rehearse, bool quick, int *failed)
{
    struct bench bench;
    enum err rc = bench_create(rehearse, &bench);
    bench.step = quick ? QUICK_STEP : 1;
    if (rc == ERR_OK)
        rc = compare_all(&bench);
    *failed = bench.failed;
    bench_destroy(&bench);
    return rc;
}

int main(int argc, char **argv)
{
    const char *option = argc > 1 ? argv[1] : "";
    bool rehearse = strcmp(option, "--rehearse") == 0;
    bool quick = strcmp(option, "--quick") == 0;
    bool name = strcmp(option, "--describe") == 0;
    int failed = 0;
    log_init("products", -1, LOG_INFO);
    if (argc > 2 || (argc == 2 && !rehearse && !quick && !name)) {
        fprintf(stderr,
                "usage: products [--rehearse | --quick | --describe]\n");
        return 64;
    }
    enum err rc = name ? describe() : bench(rehearse, quick, &failed);
    if (rc == ERR_UNSUPPORTED)
        printf("# no GPU: %s\n", err_text());
    else if (rc != ERR_OK)
        log_error("%s", err_text());
    return rc == ERR_UNSUPPORTED ? NO_GPU : rc != ERR_OK || failed > 0;
}
