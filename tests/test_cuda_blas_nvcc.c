/* gemm through cuBLASLt as far as it goes without a GPU: what a fake library is
 * told (it multiplies on the processor), plans, choices as text; then which
 * calls of the real library work here. */
#include "kernels/cuda/libraries/cuda_blas.h"
#include "kernels/cuda/libraries/cuda_blas_plan.h"
#include "kernels/cuda/libraries/cuda_fallback.h"
#include "tests/cuda_blas_fake.h"
#include "tests/kernel_check.h"

#define M 5
#define N 7
#define K 11
#define MEMORY ((size_t)1 << 20)

static const char *const forms[] = { "NT", "NN", "TN" };

static struct kernel_ctx scratch_create(void)
{
    struct kernel_ctx ctx = { .threads = 1,
                              .scratch_bytes = CUDA_BLAS_WORKSPACE };
    ctx.scratch = aligned_alloc(256, CUDA_BLAS_WORKSPACE);
    if (ctx.scratch == NULL)
        abort();
    return ctx;
}

static struct cuda_blas *blas_create(void)
{
    struct cuda_blas *blas = NULL;
    fake = (struct fake){ .offered = 8 };
    if (cuda_blas_create(&fake_library, &blas) != ERR_OK)
        abort();
    return blas;
}

/* Integers in [-4, 4]: products of them are exact in fp32. */
static void *integers(int64_t n, uint64_t seed, enum dtype dtype)
{
    void *p = check_alloc((size_t)n * sizeof(float));
    for (int64_t i = 0; i < n; i++) {
        float x = (float)nearbyint(4 * check_uniform(seed, i));
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        if (dtype == DTYPE_F32)
            ((float *)p)[i] = x;
        else
            ((uint16_t *)p)[i] = (uint16_t)(bits >> 16);
    }
    return p;
}

static double at(const void *p, int64_t i, enum dtype dtype)
{
    uint32_t bits;
    float x;
    if (dtype == DTYPE_F32)
        return (double)((const float *)p)[i];
    bits = (uint32_t)((const uint16_t *)p)[i] << 16;
    memcpy(&x, &bits, sizeof x);
    return (double)x;
}

/* Elements of C that are not what row-major arithmetic says. */
static int wrong(const struct gemm *g, enum dtype dtype, const void *before)
{
    enum dtype out = g->form == GEMM_TN ? DTYPE_F32 : dtype;
    int count = 0;
    for (int64_t i = 0; i < M; i++)
        for (int64_t j = 0; j < N; j++) {
            double sum = g->accumulate ? at(before, i * N + j, out) : 0;
            if (g->bias != NULL)
                sum += at(g->bias, j, dtype);
            for (int64_t l = 0; l < K; l++)
                sum +=
                    at(g->a, g->form == GEMM_TN ? l * M + i : i * K + l,
                       dtype) *
                    at(g->b, g->form == GEMM_NT ? j * K + l : l * N + j, dtype);
            if (out == DTYPE_BF16 && sum != 0)
                sum = (double)check_bf16_of((float)sum);
            count += at(g->c, i * N + j, out) != sum;
        }
    return count;
}

static void check_product(struct cuda_blas *blas, struct kernel_ctx *ctx,
                          enum dtype dtype, enum gemm_form form,
                          bool accumulate, bool bias)
{
    enum dtype out = form == GEMM_TN ? DTYPE_F32 : dtype;
    void *a = integers(M * K, 1, dtype), *b = integers(N * K, 2, dtype);
    void *add = integers(N, 3, dtype), *before = integers(M * N, 4, out);
    void *c = integers(M * N, 4, out);
    struct gemm g = { form, M, N, K, a, b, c, accumulate, bias ? add : NULL,
                      false };
    bool lacks = bias && out != dtype;
    enum err rc = cuda_blas_gemm(blas, ctx, dtype, &g, NULL);
    tap_is_int(rc, lacks ? ERR_UNSUPPORTED : ERR_OK, "%s %s%s%s", forms[form],
               dtype_name(dtype), accumulate ? " +=" : "",
               bias ? " with bias" : "");
    if (!lacks)
        tap_is_int(wrong(&g, dtype, before), 0, "its elements");
    free(c);
    free(before);
    free(add);
    free(b);
    free(a);
}

static void check_products(struct kernel_ctx *ctx)
{
    struct cuda_blas *blas = blas_create();
    for (int d = DTYPE_F32; d <= DTYPE_BF16; d++)
        for (int f = GEMM_NT; f <= GEMM_TN; f++) {
            enum dtype dtype = (enum dtype)d;
            enum gemm_form form = (enum gemm_form)f;
            check_product(blas, ctx, dtype, form, false, false);
            check_product(blas, ctx, dtype, form, true, false);
            check_product(blas, ctx, dtype, form, false, true);
        }
    cuda_blas_destroy(blas);
    tap_is_int(fake.alive, 0, "everything is destroyed");
}

/* --- 8-bit floats --- */

#define FP8_N 16
#define FP8_K 32

/* Codes of -1, 0 and 1, whose products are exact. */
static uint8_t *units(int64_t n, uint64_t seed, enum fp8 type)
{
    const uint8_t one = type == FP8_E4M3 ? 7 << 3 : 15 << 2;
    const uint8_t codes[] = { one | 0x80, 0, one };
    uint8_t *p = check_alloc((size_t)n);
    for (int64_t i = 0; i < n; i++)
        p[i] = codes[1 + (int)nearbyint(check_uniform(seed, i))];
    return p;
}

static double unit(uint8_t code)
{
    return code == 0 ? 0 : code & 0x80 ? -1 : 1;
}

static int wrong_fp8(const struct gemm_fp8 *g, const void *before)
{
    int count = 0;
    for (int64_t i = 0; i < M; i++)
        for (int64_t j = 0; j < FP8_N; j++) {
            double sum = 0;
            for (int64_t l = 0; l < FP8_K; l++)
                sum += unit(((const uint8_t *)g->a)[i * FP8_K + l]) *
                       unit(((const uint8_t *)g->b)[j * FP8_K + l]);
            sum *= (double)*g->unscale_a * (double)*g->unscale_b;
            if (g->accumulate)
                sum += at(before, i * FP8_N + j, g->c_type);
            if (g->bias != NULL)
                sum += at(g->bias, j, DTYPE_BF16);
            count += at(g->c, i * FP8_N + j, g->c_type) != sum;
        }
    return count;
}

static void check_product_fp8(struct cuda_blas *blas, struct kernel_ctx *ctx,
                              struct gemm_fp8 g)
{
    const float unscales[2] = { 2, 0.5f };
    void *add = integers(FP8_N, 3, DTYPE_BF16);
    void *before = integers(M * FP8_N, 4, g.c_type);
    uint8_t *a = units(M * FP8_K, 1, g.a_type);
    uint8_t *b = units(FP8_N * FP8_K, 2, g.b_type);
    g.m = M;
    g.n = FP8_N;
    g.k = FP8_K;
    g.a = a;
    g.b = b;
    g.c = integers(M * FP8_N, 4, g.c_type);
    g.bias = g.bias != NULL ? add : NULL;
    g.unscale_a = &unscales[0];
    g.unscale_b = &unscales[1];
    tap_is_int(cuda_blas_gemm_fp8(blas, ctx, &g, NULL), ERR_OK,
               "%s x %s to %s%s%s", g.a_type == FP8_E4M3 ? "e4m3" : "e5m2",
               g.b_type == FP8_E4M3 ? "e4m3" : "e5m2", dtype_name(g.c_type),
               g.accumulate ? " +=" : "", g.bias != NULL ? " with bias" : "");
    tap_is_int(wrong_fp8(&g, before), 0, "its elements");
    tap_ok(fake.fast == g.fast, "%s", g.fast ? "fast" : "not fast");
    free(g.c);
    free(b);
    free(a);
    free(before);
    free(add);
}

static void check_fp8(struct kernel_ctx *ctx, char *memory)
{
    const struct gemm_fp8 products[] = {
        { .c_type = DTYPE_BF16, .fast = true },
        { .c_type = DTYPE_BF16, .fast = true, .bias = memory },
        { .a_type = FP8_E5M2, .c_type = DTYPE_BF16 },
        { .a_type = FP8_E5M2, .c_type = DTYPE_F32, .accumulate = true },
        { .b_type = FP8_E5M2, .c_type = DTYPE_F32, .accumulate = true },
        { .b_type = FP8_E5M2, .c_type = DTYPE_F32 },
    };
    struct cuda_blas *blas = blas_create();
    char *text = NULL, *again = NULL;
    for (size_t i = 0; i < sizeof products / sizeof *products; i++)
        check_product_fp8(blas, ctx, products[i]);
    tap_is_int(fake.heuristics, 6, "each has a plan");
    tap_ok(fake.scaled, "which was made for scaled operands");
    check_product_fp8(blas, ctx, products[1]);
    tap_is_int(fake.heuristics, 6, "that stays");
    tap_is_int(cuda_blas_measure(blas, ctx, memory, MEMORY), ERR_OK,
               "measuring");
    check_product_fp8(blas, ctx, products[0]);
    tap_is_int((long long)fake.used, 100 + FAKE_FASTEST, "takes the fastest");
    cuda_blas_choices(blas, &text);
    tap_ok(strstr(text, "\nNT e5m2 e4m3 f32 5 16 32 1 0 0 16 16 16 0 0") !=
               NULL,
           "choices as text: %.50s", strchr(text, 'N'));
    cuda_blas_destroy(blas);
    blas = blas_create();
    tap_is_int(cuda_blas_choose(blas, text), ERR_OK, "are taken elsewhere");
    check_product_fp8(blas, ctx, products[3]);
    tap_ok(fake.heuristics == 0 && fake.used == 100 + FAKE_FASTEST,
           "and used, without asking the heuristics");
    cuda_blas_choices(blas, &again);
    tap_is_str(again, text, "and are told the same");
    free(again);
    free(text);
    cuda_blas_destroy(blas);
    tap_is_int(fake.alive, 0, "everything is destroyed");
}

/* A product in memory whose tensors are `a`, `b`, `c`, `bias` bytes past 64. */
static enum err run_at(struct cuda_blas *blas, struct kernel_ctx *ctx,
                       char *memory, size_t a, size_t b, size_t c, size_t bias)
{
    struct gemm g = { .form = GEMM_NT, .m = M, .n = N, .k = K };
    g.a = memory + 64 + a;
    g.b = memory + 4096 + 64 + b;
    g.c = memory + 8192 + 64 + c;
    g.bias = memory + 12288 + 64 + bias;
    return cuda_blas_gemm(blas, ctx, DTYPE_F32, &g, NULL);
}

static void check_plans(struct kernel_ctx *ctx, char *memory)
{
    struct cuda_blas *blas = blas_create();
    const struct fake_preference *p = &fake.preference;
    run_at(blas, ctx, memory, 0, 0, 0, 0);
    tap_ok(p->workspace == CUDA_BLAS_WORKSPACE &&
               p->reductions == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE,
           "algorithms have the workspace, and add parts in fp32 and in order");
    tap_is_int((long long)fake.asked, 16, "the heuristics see the alignment");
    run_at(blas, ctx, memory, 16, 32, 48, 16);
    tap_is_int(fake.heuristics, 1, "alignments from 16 on have one plan");
    tap_is_int(fake.products, 2, "which is used twice");
    run_at(blas, ctx, memory, 4, 8, 0, 4);
    tap_is_int(fake.heuristics, 2, "lesser ones have another");
    tap_ok(p->alignment[0] == 8 && p->alignment[1] == 4 &&
               p->alignment[2] == 16 && p->alignment[3] == 16,
           "cuBLASLt's A is our B");
    tap_is_int((long long)fake.asked, 4, "and the bias has its alignment");
    fake.refuses = true;
    tap_is_int(run_at(blas, ctx, memory, 0, 0, 0, 0), ERR_UNSUPPORTED,
               "what fails as not supported says so");
    fake.refuses = false;
    tap_is_int(run_at(blas, ctx, memory, 0, 0, 0, 0), ERR_UNSUPPORTED,
               "and stays so");
    fake.offered = 0;
    for (int i = 0; i < 2; i++)
        tap_is_int(run_at(blas, ctx, memory, 0, 0, 4, 0), ERR_UNSUPPORTED,
                   "no algorithm: %s", err_text());
    tap_is_int(fake.heuristics, 3, "is asked for once");
    cuda_blas_destroy(blas);
    tap_is_int(fake.alive, 0, "everything is destroyed");
}

static void check_measure(struct kernel_ctx *ctx, char *memory)
{
    struct cuda_blas *blas = blas_create();
    run_at(blas, ctx, memory, 0, 0, 0, 0);
    tap_is_int((long long)fake.used, 100, "the first algorithm is taken");
    tap_is_int(cuda_blas_measure(blas, ctx, memory, 256), ERR_OK,
               "too little memory to measure in");
    run_at(blas, ctx, memory, 0, 0, 0, 0);
    tap_is_int((long long)fake.used, 100, "leaves it");
    tap_is_int(cuda_blas_measure(blas, ctx, memory, MEMORY), ERR_OK,
               "measuring");
    run_at(blas, ctx, memory, 0, 0, 0, 0);
    tap_is_int((long long)fake.used, 100 + FAKE_FASTEST, "takes the fastest");
    cuda_blas_destroy(blas);
    tap_is_int(fake.alive, 0, "everything is destroyed");
}

static void check_choices(struct kernel_ctx *ctx, char *memory)
{
    struct cuda_blas *blas = blas_create();
    char *text = NULL, *again = NULL;
    run_at(blas, ctx, memory, 0, 0, 0, 0);
    run_at(blas, ctx, memory, 4, 8, 0, 4);
    cuda_blas_measure(blas, ctx, memory, MEMORY);
    fake.offered = 0;
    run_at(blas, ctx, memory, 0, 0, 4, 0);
    tap_is_int(cuda_blas_choices(blas, &text), ERR_OK, "choices as text");
    cuda_blas_destroy(blas);
    tap_ok(strstr(text,
                  "cublasLt 130100\nNT f32 f32 f32 5 7 11 0 1 0 16 16 16 16 "
                  "0000000000000067") == text,
           "which can be read: %.60s", strchr(text, 'N'));
    blas = blas_create();
    tap_is_int(cuda_blas_choose(blas, text), ERR_OK, "are taken elsewhere");
    tap_is_int(run_at(blas, ctx, memory, 0, 0, 0, 0), ERR_OK, "and used");
    tap_ok(fake.used == 100 + FAKE_FASTEST && fake.heuristics == 0,
           "without asking the heuristics");
    tap_is_int(run_at(blas, ctx, memory, 0, 0, 4, 0), ERR_UNSUPPORTED,
               "also that there is none");
    cuda_blas_choices(blas, &again);
    tap_is_str(again, text, "and are told the same");
    tap_is_int(cuda_blas_measure(blas, ctx, memory, MEMORY), ERR_OK, "measure");
    free(again);
    cuda_blas_choices(blas, &again);
    tap_is_str(again, text, "leaves what was chosen");
    free(again);
    free(text);
    cuda_blas_destroy(blas);
    tap_is_int(fake.alive, 0, "everything is destroyed");
}

#define DIGITS_127                                                             \
    "0000000000000064000000000000000000000000000000000000000000000000"         \
    "000000000000000000000000000000000000000000000000fedcba987654321"
#define LINE "NT f32 f32 f32 5 7 11 0 1 0 16 16 16 16 " DIGITS_127 "0"
#define HEAD "cublasLt 130100\n"

static const struct {
    const char *name, *text;
    enum err rc;
} texts[] = {
    { "nothing chosen", HEAD, ERR_OK },
    { "one", HEAD LINE "\n", ERR_OK },
    { "no line end", HEAD LINE, ERR_OK },
    { "empty", "", ERR_DATA },
    { "no version", LINE "\n", ERR_DATA },
    { "a version and more", "cublasLt 130100x\n", ERR_DATA },
    { "another version", "cublasLt 130200\n" LINE "\n", ERR_UNSUPPORTED },
    { "a digit too few",
      HEAD "NT f32 f32 f32 5 7 11 0 1 0 16 16 16 16 " DIGITS_127, ERR_DATA },
    { "a digit too many", HEAD LINE "0\n", ERR_DATA },
    { "no digit",
      HEAD "NT f32 f32 f32 5 7 11 0 1 0 16 16 16 16 " DIGITS_127 "g",
      ERR_DATA },
    { "a field too many", HEAD LINE " 1\n", ERR_DATA },
    { "form", HEAD "TT f32 f32 f32 5 7 11 0 1 0 16 16 16 16 -\n", ERR_DATA },
    { "8 bits", HEAD "NT e4m3 e5m2 bf16 5 16 16 0 1 1 16 16 16 16 -\n",
      ERR_OK },
    { "one operand in 8 bits",
      HEAD "NT e4m3 bf16 bf16 5 16 16 0 1 1 16 16 16 16 -\n", ERR_DATA },
    { "C in 8 bits", HEAD "NT e4m3 e4m3 e4m3 5 16 16 0 1 1 16 16 16 16 -\n",
      ERR_DATA },
    { "another form in 8 bits",
      HEAD "NN e4m3 e4m3 bf16 5 16 16 0 1 1 16 16 16 16 -\n", ERR_DATA },
    { "fast in bf16", HEAD "NT bf16 bf16 bf16 5 7 11 0 0 1 16 16 16 0 -\n",
      ERR_DATA },
    { "C of another type", HEAD "NT bf16 bf16 f32 5 7 11 0 0 0 16 16 16 0 -\n",
      ERR_DATA },
    { "type", HEAD "NT f32 f32 f64 5 7 11 0 1 0 16 16 16 16 -\n", ERR_DATA },
    { "no rows", HEAD "NT f32 f32 f32 0 7 11 0 1 0 16 16 16 16 -\n", ERR_DATA },
    { "negative", HEAD "NT f32 f32 f32 5 -7 11 0 1 0 16 16 16 16 -\n",
      ERR_DATA },
    { "flag", HEAD "NT f32 f32 f32 5 7 11 2 1 0 16 16 16 16 -\n", ERR_DATA },
    { "alignment", HEAD "NT f32 f32 f32 5 7 11 0 1 0 12 16 16 16 -\n",
      ERR_DATA },
    { "bias without one", HEAD "NT f32 f32 f32 5 7 11 0 0 0 16 16 16 16 -\n",
      ERR_DATA },
    { "cut short", HEAD "NT f32 f32 f32 5 7 11 0 1 0 16", ERR_DATA },
    { "text after an empty line", HEAD "\n" LINE "\n", ERR_DATA },
};

static void check_texts(struct kernel_ctx *ctx, char *memory)
{
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct cuda_blas *blas = blas_create();
        char *after = NULL;
        tap_is_int(cuda_blas_choose(blas, texts[i].text), texts[i].rc,
                   "choices, %s", texts[i].name);
        cuda_blas_choices(blas, &after);
        if (texts[i].rc != ERR_OK)
            tap_is_str(after, HEAD, "change nothing: %s", err_text());
        free(after);
        cuda_blas_destroy(blas);
    }
    struct cuda_blas *blas = blas_create();
    cuda_blas_choose(blas, HEAD "NT f32 f32 f32 5 7 11 0 1 0 16 16 16 16 "
                                "1" DIGITS_127 "\n");
    tap_is_int(run_at(blas, ctx, memory, 0, 0, 0, 0), ERR_DATA,
               "an algorithm that does not run here: %s", err_text());
    cuda_blas_destroy(blas);
    tap_is_int(fake.alive, 0, "everything is destroyed");
}

static int own_products;

static enum err own_gemm KERNEL_LIKE(gemm)
{
    (void)ctx;
    (void)dtype;
    (void)gemm;
    own_products++;
    return ERR_OK;
}

static enum err own_gemm_fp8 KERNEL_LIKE(gemm_fp8)
{
    (void)gemm;
    return own_gemm(ctx, DTYPE_BF16, NULL);
}

/* What cuBLASLt has no algorithm for is the own kernel's, said once for each
 * kind, or an error that says how to allow it. */
static void check_instead(struct kernel_ctx *ctx, char *memory)
{
    struct cuda_blas *blas = blas_create();
    struct gemm gemm = { .form = GEMM_NT,
                         .m = M,
                         .n = N,
                         .k = K,
                         .a = memory,
                         .b = memory + 4096,
                         .c = memory + 8192 };
    const struct gemm_fp8 small = { .m = 16,
                                    .n = 16,
                                    .k = 16,
                                    .a = memory,
                                    .b = memory + 4096,
                                    .c = memory + 8192,
                                    .unscale_a = (float *)memory,
                                    .unscale_b = (float *)memory };
    int kinds, own, before = cuda_fallback_count();
    own_products = 0;
    tap_ok(cuda_blas_gemm(blas, ctx, DTYPE_F32, &gemm, own_gemm) == ERR_OK &&
               own_products == 0,
           "what cuBLASLt can do it does");
    bool good = true, there = true;
    int tried = 0;
    for (int which = 0; which < 9 && good; which++) {
        good = cuda_blas_gemm_by(blas, ctx, DTYPE_F32, &gemm, which, &there) ==
                   ERR_OK &&
               (!there || fake.used == 100 + (uint64_t)which);
        tried += there;
    }
    tap_ok(good && !there && tried == 7,
           "every algorithm can be had, but for the one that refuses");
    fake.offered = 0;
    gemm.m = M + 1;
    good = true;
    for (int i = 0; i < 3; i++)
        good = good &&
               cuda_blas_gemm(blas, ctx, DTYPE_F32, &gemm, own_gemm) == ERR_OK;
    tap_ok(good && own_products == 3, "what it can't the own kernel does");
    tap_is_int(cuda_fallback_count() - before, 1, "which is said once");
    gemm.m = M + 2;
    good = cuda_blas_gemm(blas, ctx, DTYPE_F32, &gemm, own_gemm) == ERR_OK &&
           cuda_blas_gemm_fp8(blas, ctx, &small, own_gemm_fp8) == ERR_OK;
    cuda_blas_count(blas, &kinds, &own);
    tap_ok(good && kinds == 4 && own == 3 &&
               cuda_fallback_count() - before == 3,
           "for every kind of product, fp8 too");
    cuda_fallback_allow(false);
    own_products = 0;
    gemm.m = M + 3;
    tap_ok(cuda_blas_gemm(blas, ctx, DTYPE_F32, &gemm, own_gemm) ==
                   ERR_UNSUPPORTED &&
               own_products == 0 &&
               strstr(err_text(), "NT 8 x 7 x 11 in f32") != NULL &&
               strstr(err_text(), "hardware.fallback") != NULL,
           "or it is an error: %s", err_text());
    cuda_fallback_allow(true);
    cuda_blas_destroy(blas);
}

static void check_no_device(void)
{
    struct cuda_blas *blas = NULL;
    fake = (struct fake){ .no_device = true };
    tap_is_int(cuda_blas_create(&fake_library, &blas), ERR_UNSUPPORTED,
               "without a GPU: %s", err_text());
    tap_ok(blas == NULL && strstr(err_text(), "NOT_INITIALIZED") != NULL,
           "it says what cuBLASLt says");
}

/* Descriptors need no GPU, the handle and the heuristics do. */
static void check_real(void)
{
    struct cuda_blas_library library;
    struct cuda_blas *blas = NULL;
    struct gemm g = { .form = GEMM_TN, .m = 64, .n = 128, .k = 256 };
    struct gemm_fp8 narrow = { .m = 64, .n = 128, .k = 256, .fast = true };
    struct cuda_blas_plan plan = { .key = cuda_blas_plan_key(DTYPE_BF16, &g) };
    struct cuda_blas_plan fp8 = { .key = cuda_blas_plan_key_fp8(&narrow) };
    if (cuda_blas_library_open(&library) != ERR_OK) {
        tap_skip("%s", err_text());
        return;
    }
    tap_ok(library.version() >= 130000, "cuBLASLt %zu opens",
           library.version());
    plan.chosen = true; /* and none found: descriptors only */
    tap_is_int(cuda_blas_plan_make(&library, NULL, &plan), ERR_OK,
               "its descriptors take all that a plan says");
    cuda_blas_plan_free(&library, &plan);
    fp8.chosen = true;
    tap_is_int(cuda_blas_plan_make(&library, NULL, &fp8), ERR_OK,
               "so do those of 8-bit floats");
    cuda_blas_plan_free(&library, &fp8);
    enum err rc = cuda_blas_create(NULL, &blas);
    if (rc == ERR_OK)
        tap_ok(cuda_blas_version(blas) == library.version(), "and it starts");
    else
        tap_ok(rc == ERR_UNSUPPORTED && blas == NULL,
               "without a GPU it says so: %s", err_text());
    cuda_blas_destroy(blas);
    cuda_blas_library_close(&library);
}

int main(void)
{
    struct kernel_ctx ctx = scratch_create();
    char *memory = aligned_alloc(256, MEMORY);
    if (memory == NULL)
        abort();
    memset(memory, 0, MEMORY);
    check_products(&ctx);
    check_fp8(&ctx, memory);
    check_plans(&ctx, memory);
    check_measure(&ctx, memory);
    check_choices(&ctx, memory);
    check_texts(&ctx, memory);
    check_instead(&ctx, memory);
    check_no_device();
    check_real();
    free(memory);
    free(ctx.scratch);
    return tap_done();
}
