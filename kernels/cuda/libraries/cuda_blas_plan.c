/* One product as cuBLASLt wants it: descriptors, candidate algorithms, the
 * launch. Which candidate is taken is decided in cuda_blas.c.
 *
 * cuBLAS counts columns first, so our row-major C [m, n] is to it a matrix of n
 * rows and m columns, which is C^T = B^T A^T. Hence b is its first operand and
 * a the second, and nothing is moved for it:
 *
 *     form    c = ...     its first     its second
 *     NT      a b^T       b, turned     a
 *     NN      a b         b             a
 *     TN      a^T b       b             a, turned
 *
 * A bias, one number for each of our columns, is one for each of its rows, which
 * its epilogue adds.
 *
 * Bits follow from the algorithm, and the algorithm from what the heuristics are
 * told. So all they are told is in the key, and what only happens to be so is
 * not: an address that is better aligned than algorithms tell apart counts as
 * one that is just so. */
#include "kernels/cuda/libraries/cuda_blas_plan.h"

#include <assert.h>
#include <string.h>

_Static_assert(sizeof(struct cuda_blas_plan_key) == 40, "a key has no gaps");

#define BLAS_TRY(status, what)                                                 \
    TRY(cuda_blas_library_error(library, (status), (what)))
#define DESC_SET(attribute, value, what)                                       \
    BLAS_TRY(library->desc_set(plan->desc, CUBLASLT_MATMUL_DESC_##attribute,   \
                               &(value), sizeof(value)),                       \
             what)

static uint16_t alignment_of(const void *p)
{
    uintptr_t lowest = (uintptr_t)p & (0 - (uintptr_t)p);
    return (uint16_t)(lowest == 0 || lowest > CUDA_BLAS_PLAN_ALIGNMENT
                          ? CUDA_BLAS_PLAN_ALIGNMENT
                          : lowest);
}

static uint8_t wide_type(enum dtype dtype)
{
    return dtype == DTYPE_BF16 ? CUDA_BLAS_PLAN_BF16 : CUDA_BLAS_PLAN_F32;
}

static uint8_t narrow_type(enum fp8 type)
{
    return type == FP8_E4M3 ? CUDA_BLAS_PLAN_E4M3 : CUDA_BLAS_PLAN_E5M2;
}

static bool is_narrow(const struct cuda_blas_plan_key *key)
{
    return key->a_type >= CUDA_BLAS_PLAN_E4M3;
}

struct cuda_blas_plan_key cuda_blas_plan_key(enum dtype dtype,
                                             const struct gemm *gemm)
{
    struct cuda_blas_plan_key key = {
        .m = gemm->m,
        .n = gemm->n,
        .k = gemm->k,
        .form = (uint8_t)gemm->form,
        .a_type = wide_type(dtype),
        .b_type = wide_type(dtype),
        .c_type = wide_type(gemm->form == GEMM_TN ? DTYPE_F32 : dtype),
        .accumulate = gemm->accumulate && !gemm->begins,
        .bias = gemm->bias != NULL,
        .align_a = alignment_of(gemm->a),
        .align_b = alignment_of(gemm->b),
        .align_c = alignment_of(gemm->c),
        .align_bias = gemm->bias != NULL ? alignment_of(gemm->bias) : 0,
    };
    return key;
}

struct cuda_blas_plan_key cuda_blas_plan_key_fp8(const struct gemm_fp8 *gemm)
{
    const struct gemm plain = { GEMM_NT,    gemm->m, gemm->n, gemm->k,
                                gemm->a,    gemm->b, gemm->c, gemm->accumulate,
                                gemm->bias, false };
    struct cuda_blas_plan_key key = cuda_blas_plan_key(gemm->c_type, &plain);
    key.a_type = narrow_type(gemm->a_type);
    key.b_type = narrow_type(gemm->b_type);
    key.fast = gemm->fast;
    return key;
}

enum cuda_blas_plan_type
cuda_blas_plan_bias(const struct cuda_blas_plan_key *key)
{
    return is_narrow(key) ? CUDA_BLAS_PLAN_BF16
                          : (enum cuda_blas_plan_type)key->a_type;
}

size_t cuda_blas_plan_bytes(enum cuda_blas_plan_type type)
{
    static const size_t bytes[] = { 4, 2, 1, 1 };
    assert((unsigned)type < sizeof bytes / sizeof *bytes);
    return bytes[type];
}

static cudaDataType type_of(uint8_t type)
{
    static const cudaDataType types[] = { CUDA_R_32F, CUDA_R_16BF,
                                          CUDA_R_8F_E4M3, CUDA_R_8F_E5M2 };
    assert(type < sizeof types / sizeof *types);
    return types[type];
}

static enum err layout_make(const struct cuda_blas_library *library,
                            uint8_t type, int64_t rows, int64_t columns,
                            cublasLtMatrixLayout_t *layout)
{
    return cuda_blas_library_error(
        library,
        library->layout_create(layout, type_of(type), (uint64_t)rows,
                               (uint64_t)columns, rows),
        "describing a matrix");
}

/* Scales of operands in 8 bits change places as these do: cuBLASLt's A is our b. */
static enum err unscales_set(const struct cuda_blas_library *library,
                             const struct cuda_blas_plan *plan,
                             const float *unscale_a, const float *unscale_b)
{
    const char *what = "placing the scales";
    DESC_SET(A_SCALE_POINTER, unscale_b, what);
    DESC_SET(B_SCALE_POINTER, unscale_a, what);
    return ERR_OK;
}

/* Completes the description of a product of 8-bit floats. What stands for the
 * scales shows that there are some. */
static enum err desc_fp8_make(const struct cuda_blas_library *library,
                              const struct cuda_blas_plan *plan)
{
    const float *some = (const float *)(uintptr_t)CUDA_BLAS_PLAN_ALIGNMENT;
    int8_t fast = (int8_t)plan->key.fast;
    TRY(unscales_set(library, plan, some, some));
    DESC_SET(FAST_ACCUM, fast, "describing a product of 8-bit floats");
    return ERR_OK;
}

/* The bias's address stands for its alignment until there is one. */
static enum err desc_make(const struct cuda_blas_library *library,
                          struct cuda_blas_plan *plan)
{
    const struct cuda_blas_plan_key *key = &plan->key;
    const char *what = "describing a product";
    cublasOperation_t first = key->form == GEMM_NT ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t second = key->form == GEMM_TN ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    uintptr_t bias = key->align_bias;
    BLAS_TRY(library->desc_create(&plan->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F),
             what);
    DESC_SET(TRANSA, first, what);
    DESC_SET(TRANSB, second, what);
    if (is_narrow(key))
        TRY(desc_fp8_make(library, plan));
    if (!key->bias)
        return ERR_OK;
    DESC_SET(EPILOGUE, epilogue, what);
    DESC_SET(BIAS_POINTER, bias, what);
    return ERR_OK;
}

static enum err descriptors_make(const struct cuda_blas_library *library,
                                 struct cuda_blas_plan *plan)
{
    const struct cuda_blas_plan_key *key = &plan->key;
    bool nt = key->form == GEMM_NT, tn = key->form == GEMM_TN;
    TRY(desc_make(library, plan));
    TRY(layout_make(library, key->b_type, nt ? key->k : key->n,
                    nt ? key->n : key->k, &plan->b));
    TRY(layout_make(library, key->a_type, tn ? key->m : key->k,
                    tn ? key->k : key->m, &plan->a));
    return layout_make(library, key->c_type, key->n, key->m, &plan->c);
}

static enum err preference_make(const struct cuda_blas_library *library,
                                const struct cuda_blas_plan_key *key,
                                cublasLtMatmulPreference_t *preference)
{
    const uint64_t workspace = CUDA_BLAS_WORKSPACE;
    /* Parts of a split k stay in fp32 and are added by a step of its own: one
     * order, whoever is done first. */
    const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const struct {
        cublasLtMatmulPreferenceAttributes_t attribute;
        uint32_t bytes;
    } alignments[] = {
        { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key->align_b },
        { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key->align_a },
        { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key->align_c },
        { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key->align_c },
    };
    const char *what = "stating what an algorithm may need";
    BLAS_TRY(library->preference_create(preference), what);
    BLAS_TRY(library->preference_set(*preference,
                                     CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                     &workspace, sizeof workspace),
             what);
    BLAS_TRY(library->preference_set(*preference,
                                     CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                     &reductions, sizeof reductions),
             what);
    for (size_t i = 0; i < sizeof alignments / sizeof *alignments; i++)
        BLAS_TRY(library->preference_set(*preference, alignments[i].attribute,
                                         &alignments[i].bytes,
                                         sizeof alignments[i].bytes),
                 what);
    return ERR_OK;
}

enum err cuda_blas_plan_candidates(const struct cuda_blas_library *library,
                                   cublasLtHandle_t handle,
                                   const struct cuda_blas_plan *plan, int most,
                                   cublasLtMatmulHeuristicResult_t *results,
                                   int *count)
{
    enum err rc = ERR_OK;
    cublasLtMatmulPreference_t preference = NULL;
    *count = 0;
    TRY_OUT(preference_make(library, &plan->key, &preference));
    cublasStatus_t status =
        library->heuristic(handle, plan->desc, plan->b, plan->a, plan->c,
                           plan->c, preference, most, results, count);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED)
        *count = 0;
    else
        TRY_OUT(cuda_blas_library_error(library, status,
                                        "looking for an algorithm"));
    assert(*count >= 0 && *count <= most);
    int good = 0;
    for (int i = 0; i < *count; i++)
        if (results[i].state == CUBLAS_STATUS_SUCCESS)
            results[good++] = results[i];
    *count = good;
out:
    if (preference != NULL)
        (void)library->preference_destroy(preference);
    return rc;
}

/* An algorithm from a text is of the version that is loaded, but maybe of
 * another GPU: the library says whether it runs here and in what workspace. */
static enum err chosen_check(const struct cuda_blas_library *library,
                             cublasLtHandle_t handle,
                             const struct cuda_blas_plan *plan)
{
    cublasLtMatmulHeuristicResult_t result;
    memset(&result, 0, sizeof result);
    cublasStatus_t status =
        library->check(handle, plan->desc, plan->b, plan->a, plan->c, plan->c,
                       &plan->algo, &result);
    if (status == CUBLAS_STATUS_SUCCESS &&
        result.workspaceSize <= CUDA_BLAS_WORKSPACE)
        return ERR_OK;
    return err_set(ERR_DATA,
                   "gemm: the algorithm chosen for %lld x %lld x %lld does not "
                   "run on this GPU; use the kind of GPU that chose it or "
                   "drop the choices",
                   (long long)plan->key.m, (long long)plan->key.n,
                   (long long)plan->key.k);
}

enum err cuda_blas_plan_make(const struct cuda_blas_library *library,
                             cublasLtHandle_t handle,
                             struct cuda_blas_plan *plan)
{
    enum err rc = ERR_OK;
    cublasLtMatmulHeuristicResult_t result;
    const struct cuda_blas_plan_key *key = &plan->key;
    int count = 0;
    TRY_OUT(descriptors_make(library, plan));
    if (plan->chosen) {
        if (plan->found)
            TRY_OUT(chosen_check(library, handle, plan));
    } else if (!key->bias || cuda_blas_plan_bias(key) == key->c_type) {
        memset(&result, 0, sizeof result);
        TRY_OUT(cuda_blas_plan_candidates(library, handle, plan, 1, &result,
                                          &count));
        plan->found = count > 0;
        if (plan->found)
            plan->algo = result.algo;
    }
    plan->made = true;
out:
    if (rc != ERR_OK)
        cuda_blas_plan_free(library, plan);
    return rc;
}

void cuda_blas_plan_free(const struct cuda_blas_library *library,
                         struct cuda_blas_plan *plan)
{
    if (plan->desc != NULL)
        (void)library->desc_destroy(plan->desc);
    if (plan->b != NULL)
        (void)library->layout_destroy(plan->b);
    if (plan->a != NULL)
        (void)library->layout_destroy(plan->a);
    if (plan->c != NULL)
        (void)library->layout_destroy(plan->c);
    plan->desc = NULL;
    plan->a = plan->b = plan->c = NULL;
    plan->made = false;
}

enum err cuda_blas_plan_run(const struct cuda_blas_library *library,
                            cublasLtHandle_t handle,
                            const struct cuda_blas_plan *plan,
                            const cublasLtMatmulAlgo_t *algo,
                            const struct cuda_blas_plan_operands *operands,
                            const struct kernel_ctx *ctx)
{
    const float one = 1, beta = plan->key.accumulate ? 1 : 0;
    assert(plan->made);
    assert(ctx->scratch_bytes >= CUDA_BLAS_WORKSPACE);
    assert((uintptr_t)ctx->scratch % 256 == 0);
    if (plan->key.bias)
        BLAS_TRY(library->desc_set(plan->desc,
                                   CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                   &operands->bias, sizeof operands->bias),
                 "placing the bias");
    if (is_narrow(&plan->key))
        TRY(unscales_set(library, plan, operands->unscale_a,
                         operands->unscale_b));
    BLAS_TRY(library->matmul(handle, plan->desc, &one, operands->b, plan->b,
                             operands->a, plan->a, &beta, operands->c, plan->c,
                             operands->c, plan->c, algo, ctx->scratch,
                             CUDA_BLAS_WORKSPACE, (cudaStream_t)ctx->stream),
             "multiplying");
    return ERR_OK;
}
