#include "tests/cuda_blas_fake.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct fake fake;

struct desc {
    cublasComputeType_t compute;
    cudaDataType_t scale;
    cublasOperation_t first, second;
    cublasLtEpilogue_t epilogue;
    const void *bias;
    const float *first_scale, *second_scale;
    int8_t fast;
};

struct layout {
    cudaDataType type;
    uint64_t rows, columns;
    int64_t pitch;
};

static void *make(size_t bytes)
{
    void *object = calloc(1, bytes);
    if (object == NULL)
        abort();
    fake.alive++;
    return object;
}

static cublasStatus_t unmake(void *object)
{
    free(object);
    fake.alive--;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_create(cublasLtHandle_t *handle)
{
    if (fake.no_device)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    *handle = make(8);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_destroy(cublasLtHandle_t handle)
{
    return unmake(handle);
}

static size_t fake_version(void)
{
    return FAKE_VERSION;
}

static const char *fake_status_name(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_NOT_INITIALIZED
               ? "CUBLAS_STATUS_NOT_INITIALIZED"
               : "another status";
}

static cublasStatus_t fake_desc_create(cublasLtMatmulDesc_t *desc,
                                       cublasComputeType_t compute,
                                       cudaDataType_t scale)
{
    struct desc *d = make(sizeof *d);
    d->compute = compute;
    d->scale = scale;
    d->first = d->second = CUBLAS_OP_N;
    d->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    *desc = (cublasLtMatmulDesc_t)d;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_desc_destroy(cublasLtMatmulDesc_t desc)
{
    return unmake(desc);
}

static cublasStatus_t keep(void *to, size_t bytes, const void *from,
                           size_t given)
{
    if (bytes != given)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(to, from, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_desc_set(cublasLtMatmulDesc_t desc,
                                    cublasLtMatmulDescAttributes_t attribute,
                                    const void *value, size_t bytes)
{
    struct desc *d = (struct desc *)desc;
    switch ((int)attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
        return keep(&d->first, sizeof d->first, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
        return keep(&d->second, sizeof d->second, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return keep(&d->epilogue, sizeof d->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return keep(&d->bias, sizeof d->bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER:
        return keep(&d->first_scale, sizeof d->first_scale, value, bytes);
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER:
        return keep(&d->second_scale, sizeof d->second_scale, value, bytes);
    case CUBLASLT_MATMUL_DESC_FAST_ACCUM:
        return keep(&d->fast, sizeof d->fast, value, bytes);
    default:
        return CUBLAS_STATUS_INVALID_VALUE;
    }
}

static cublasStatus_t fake_layout_create(cublasLtMatrixLayout_t *layout,
                                         cudaDataType type, uint64_t rows,
                                         uint64_t columns, int64_t pitch)
{
    struct layout *l = make(sizeof *l);
    *l = (struct layout){ type, rows, columns, pitch };
    *layout = (cublasLtMatrixLayout_t)l;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_layout_destroy(cublasLtMatrixLayout_t layout)
{
    return unmake(layout);
}

static cublasStatus_t
fake_preference_create(cublasLtMatmulPreference_t *preference)
{
    *preference =
        (cublasLtMatmulPreference_t)make(sizeof(struct fake_preference));
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t
fake_preference_destroy(cublasLtMatmulPreference_t preference)
{
    return unmake(preference);
}

static cublasStatus_t
fake_preference_set(cublasLtMatmulPreference_t preference,
                    cublasLtMatmulPreferenceAttributes_t attribute,
                    const void *value, size_t bytes)
{
    struct fake_preference *p = (struct fake_preference *)preference;
    int a = (int)attribute;
    if (a == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
        return keep(&p->workspace, sizeof p->workspace, value, bytes);
    if (a == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK)
        return keep(&p->reductions, sizeof p->reductions, value, bytes);
    if (a < CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES ||
        a > CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES)
        return CUBLAS_STATUS_INVALID_VALUE;
    return keep(&p->alignment[a - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES],
                sizeof p->alignment[0], value, bytes);
}

static cublasStatus_t
fake_heuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
               cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
               cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
               cublasLtMatmulPreference_t preference, int most,
               cublasLtMatmulHeuristicResult_t results[], int *count)
{
    (void)handle;
    (void)a;
    (void)b;
    (void)c;
    (void)d;
    fake.heuristics++;
    fake.preference = *(struct fake_preference *)preference;
    fake.asked = (uintptr_t)((struct desc *)desc)->bias;
    fake.scaled = ((struct desc *)desc)->first_scale != NULL &&
                  ((struct desc *)desc)->second_scale != NULL;
    *count = most < fake.offered ? most : fake.offered;
    for (int i = 0; i < *count; i++) {
        memset(&results[i], 0, sizeof results[i]);
        results[i].algo.data[0] = 100 + (uint64_t)i;
        results[i].algo.data[7] = 0xfedcba9876543210 + (uint64_t)i;
    }
    return *count == 0 ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t
fake_check(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
           cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
           cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
           const cublasLtMatmulAlgo_t *algo,
           cublasLtMatmulHeuristicResult_t *result)
{
    (void)handle;
    (void)desc;
    (void)a;
    (void)b;
    (void)c;
    (void)d;
    memset(result, 0, sizeof *result);
    return algo->data[0] >= 100 && algo->data[0] < 108
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_NOT_SUPPORTED;
}

static bool is_narrow(cudaDataType type)
{
    return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2;
}

/* Of finite numbers. */
static double narrow(uint8_t code, int mantissa, int bias)
{
    int exponent = (code & 0x7f) >> mantissa, one = 1 << mantissa;
    double x = ldexp(code % one + (exponent > 0 ? one : 0),
                     (exponent > 0 ? exponent : 1) - bias - mantissa);
    return code & 0x80 ? -x : x;
}

static double get(const void *p, cudaDataType type, int64_t at)
{
    uint32_t bits;
    float x;
    if (is_narrow(type))
        return type == CUDA_R_8F_E4M3 ? narrow(((const uint8_t *)p)[at], 3, 7)
                                      : narrow(((const uint8_t *)p)[at], 2, 15);
    if (type == CUDA_R_32F)
        return (double)((const float *)p)[at];
    bits = (uint32_t)((const uint16_t *)p)[at] << 16;
    memcpy(&x, &bits, sizeof x);
    return (double)x;
}

/* bf16 of an integer: ties to even. */
static void put(void *p, cudaDataType type, int64_t at, double value)
{
    float x = (float)value;
    uint32_t bits;
    if (type == CUDA_R_32F) {
        ((float *)p)[at] = x;
        return;
    }
    memcpy(&bits, &x, sizeof bits);
    bits += 0x7fff + ((bits >> 16) & 1);
    ((uint16_t *)p)[at] = (uint16_t)(bits >> 16);
}

/* Element (i, j) of op(matrix). */
static double element(const void *p, const struct layout *l,
                      cublasOperation_t op, int64_t i, int64_t j)
{
    return get(p, l->type,
               op == CUBLAS_OP_N ? j * l->pitch + i : i * l->pitch + j);
}

/* Whether the library would multiply 8-bit floats like that. */
static bool narrow_fits(const struct desc *t, const struct layout *a,
                        const struct layout *b, const struct layout *d)
{
    if (!is_narrow(a->type))
        return !is_narrow(b->type) && t->first_scale == NULL && t->fast == 0;
    return is_narrow(b->type) && !is_narrow(d->type) &&
           (a->type == CUDA_R_8F_E4M3 || b->type == CUDA_R_8F_E4M3) &&
           t->first == CUBLAS_OP_T && t->second == CUBLAS_OP_N &&
           t->first_scale != NULL && t->second_scale != NULL &&
           a->rows % 16 == 0 && d->rows % 16 == 0 &&
           (t->epilogue != CUBLASLT_EPILOGUE_BIAS || d->type == CUDA_R_16BF);
}

static cublasStatus_t
fake_matmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
            const void *alpha, const void *a, cublasLtMatrixLayout_t a_layout,
            const void *b, cublasLtMatrixLayout_t b_layout, const void *beta,
            const void *c, cublasLtMatrixLayout_t c_layout, void *d,
            cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo,
            void *workspace, size_t workspace_bytes, cudaStream_t stream)
{
    const struct desc *t = (const struct desc *)desc;
    const struct layout *la = (const struct layout *)a_layout;
    const struct layout *lb = (const struct layout *)b_layout;
    const struct layout *ld = (const struct layout *)d_layout;
    bool na = t->first == CUBLAS_OP_N, nb = t->second == CUBLAS_OP_N;
    uint64_t inner = na ? la->columns : la->rows;
    double scale = 1;
    (void)handle;
    (void)stream;
    fake.used = algo->data[0];
    if (fake.refuses || fake.used == 100 + FAKE_REFUSED)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (t->compute != CUBLAS_COMPUTE_32F || t->scale != CUDA_R_32F ||
        *(const float *)alpha != 1 || c != d || c_layout != d_layout ||
        workspace == NULL || workspace_bytes > (size_t)32 << 20 ||
        ld->rows != (na ? la->rows : la->columns) ||
        ld->columns != (nb ? lb->columns : lb->rows) ||
        inner != (nb ? lb->rows : lb->columns) ||
        la->pitch < (int64_t)la->rows || lb->pitch < (int64_t)lb->rows ||
        !narrow_fits(t, la, lb, ld))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (is_narrow(la->type))
        scale = (double)*t->first_scale * (double)*t->second_scale;
    fake.fast = t->fast != 0;
    fake.products++;
    for (int64_t j = 0; j < (int64_t)ld->columns; j++)
        for (int64_t i = 0; i < (int64_t)ld->rows; i++) {
            double sum = 0;
            if (t->epilogue == CUBLASLT_EPILOGUE_BIAS)
                sum = get(t->bias, ld->type, i);
            if (*(const float *)beta != 0)
                sum += get(c, ld->type, j * ld->pitch + i);
            for (int64_t l = 0; l < (int64_t)inner; l++)
                sum += scale * element(a, la, t->first, i, l) *
                       element(b, lb, t->second, l, j);
            put(d, ld->type, j * ld->pitch + i, sum);
        }
    return CUBLAS_STATUS_SUCCESS;
}

static enum err fake_time(void *stream, enum err (*run)(void *), void *argument,
                          double *us)
{
    (void)stream;
    enum err rc = run(argument);
    *us = fake.used == 100 + FAKE_FASTEST ? 5 : 10;
    return rc;
}

const struct cuda_blas_library fake_library = {
    .create = fake_create,
    .destroy = fake_destroy,
    .version = fake_version,
    .status_name = fake_status_name,
    .matmul = fake_matmul,
    .desc_create = fake_desc_create,
    .desc_destroy = fake_desc_destroy,
    .desc_set = fake_desc_set,
    .layout_create = fake_layout_create,
    .layout_destroy = fake_layout_destroy,
    .preference_create = fake_preference_create,
    .preference_destroy = fake_preference_destroy,
    .preference_set = fake_preference_set,
    .heuristic = fake_heuristic,
    .check = fake_check,
    .time = fake_time,
};
