/* Products by cuBLASLt: keeps a plan for each shape that a process has met, and
 * measures or reads which algorithm each takes. One plan is made in
 * cuda_blas_plan.c; where there is no cuBLASLt, cuda_gemm.cu computes.
 *
 * cuBLASLt has many kernels for a product (tiles, stages, ways to cut k) and a
 * heuristic that puts them in order. Its first is mostly good and sometimes far
 * from the best, so after the first steps, when all shapes of a run are known,
 * up to 8 of each are timed on operands that are aligned as the real ones are.
 * What is measured differs from time to time, and algorithms differ in bits, for
 * they add in other orders. So one rank measures, all take its text, and
 * checkpoints have it: the next attempt computes the same. */
#include "kernels/cuda/libraries/cuda_blas.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/device/cuda.h"
#include "kernels/cuda/libraries/cuda_blas_plan.h"
#include "kernels/cuda/libraries/cuda_fallback.h"
#include "src/base/array.h"
#include "src/base/new.h"

#define CANDIDATES 8

struct cuda_blas {
    struct cuda_blas_library own; /* opened by us, or zeros */
    const struct cuda_blas_library *library;
    cublasLtHandle_t handle;
    struct cuda_blas_plan *plans;
    size_t count, room;
};

enum err cuda_blas_create(const struct cuda_blas_library *library,
                          struct cuda_blas **out)
{
    enum err rc = ERR_OK;
    struct cuda_blas *blas = NULL;
    *out = NULL;
    TRY(new_zeroed(&blas, 1));
    if (library == NULL)
        TRY_OUT(cuda_blas_library_open(&blas->own));
    blas->library = library != NULL ? library : &blas->own;
    TRY_OUT(cuda_blas_library_error(blas->library,
                                    blas->library->create(&blas->handle),
                                    "starting on the GPU"));
out:
    return new_or_none(rc, blas, out, cuda_blas_destroy);
}

void cuda_blas_destroy(struct cuda_blas *blas)
{
    if (blas == NULL)
        return;
    for (size_t i = 0; i < blas->count; i++)
        cuda_blas_plan_free(blas->library, &blas->plans[i]);
    if (blas->handle != NULL)
        (void)blas->library->destroy(blas->handle);
    cuda_blas_library_close(&blas->own);
    free(blas->plans);
    free(blas);
}

size_t cuda_blas_version(const struct cuda_blas *blas)
{
    return blas->library->version();
}

/* The key's plan, a new one if there is none. */
static enum err plan_of(struct cuda_blas *blas,
                        const struct cuda_blas_plan_key *key,
                        struct cuda_blas_plan **out)
{
    for (size_t i = 0; i < blas->count; i++)
        if (memcmp(&blas->plans[i].key, key, sizeof *key) == 0) {
            *out = &blas->plans[i];
            return ERR_OK;
        }
    TRY(array_room(&blas->plans, &blas->room, blas->count + 1));
    *out = &blas->plans[blas->count++];
    **out = (struct cuda_blas_plan){ .key = *key };
    return ERR_OK;
}

static enum err none_found(const struct cuda_blas_plan_key *key)
{
    return err_set(ERR_UNSUPPORTED,
                   "gemm: cuBLASLt has no algorithm for %s %lld x %lld x %lld "
                   "in %s%s",
                   cuda_blas_text_form(key->form), (long long)key->m,
                   (long long)key->n, (long long)key->k,
                   cuda_blas_text_type(key->a_type),
                   key->bias ? " with a bias" : "");
}

/* Planned at the first product of its kind, which is in the first steps, and
 * then a look into a short list: a model has some dozens of kinds. An algorithm
 * that the heuristics propose may still refuse when it is launched. */
static enum err multiply(struct cuda_blas *blas, const struct kernel_ctx *ctx,
                         const struct cuda_blas_plan_key *key,
                         const struct cuda_blas_plan_operands *operands)
{
    struct cuda_blas_plan *plan;
    assert(key->m > 0 && key->n > 0 && key->k > 0);
    assert(!key->bias || !key->accumulate);
    TRY(plan_of(blas, key, &plan));
    if (!plan->made)
        TRY(cuda_blas_plan_make(blas->library, blas->handle, plan));
    if (!plan->found)
        return none_found(key);
    enum err rc = cuda_blas_plan_run(blas->library, blas->handle, plan,
                                     &plan->algo, operands, ctx);
    if (rc == ERR_UNSUPPORTED) {
        plan->found = false; /* the heuristics did not know; so from now on */
        rc = none_found(key);
    }
    return rc;
}

/* The own kernel may, which is asked once for each kind of product: the answer
 * of a run does not change, and thousands of calls a step must not fill the
 * log. After an ERR_UNSUPPORTED, whose text is the reason. */
static enum err ask_for_own(struct cuda_blas *blas,
                            const struct cuda_blas_plan_key *key)
{
    struct cuda_blas_plan *plan;
    TRY(plan_of(blas, key, &plan));
    if (!plan->told)
        TRY(cuda_fallback("%s", err_text()));
    plan->told = true;
    return ERR_OK;
}

static struct cuda_blas_plan_operands operands_of(const struct gemm *gemm)
{
    return (struct cuda_blas_plan_operands){
        .a = gemm->a, .b = gemm->b, .bias = gemm->bias, .c = gemm->c
    };
}

enum err cuda_blas_gemm(struct cuda_blas *blas, const struct kernel_ctx *ctx,
                        enum dtype dtype, const struct gemm *gemm,
                        enum err(*own) KERNEL_LIKE(gemm))
{
    const struct cuda_blas_plan_key key = cuda_blas_plan_key(dtype, gemm);
    const struct cuda_blas_plan_operands operands = operands_of(gemm);
    enum err rc = multiply(blas, ctx, &key, &operands);
    if (rc != ERR_UNSUPPORTED || own == NULL)
        return rc;
    TRY(ask_for_own(blas, &key));
    return own(ctx, dtype, gemm);
}

enum err cuda_blas_gemm_fp8(struct cuda_blas *blas,
                            const struct kernel_ctx *ctx,
                            const struct gemm_fp8 *gemm,
                            enum err(*own) KERNEL_LIKE(gemm_fp8))
{
    const struct cuda_blas_plan_key key = cuda_blas_plan_key_fp8(gemm);
    const struct cuda_blas_plan_operands operands = {
        gemm->a, gemm->b, gemm->bias, gemm->c, gemm->unscale_a, gemm->unscale_b
    };
    enum err rc = multiply(blas, ctx, &key, &operands);
    if (rc != ERR_UNSUPPORTED || own == NULL)
        return rc;
    TRY(ask_for_own(blas, &key));
    return own(ctx, gemm);
}

enum err cuda_blas_gemm_by(struct cuda_blas *blas, const struct kernel_ctx *ctx,
                           enum dtype dtype, const struct gemm *gemm, int which,
                           bool *there)
{
    enum err rc = ERR_OK;
    const struct cuda_blas_plan_key key = cuda_blas_plan_key(dtype, gemm);
    const struct cuda_blas_plan_operands operands = operands_of(gemm);
    cublasLtMatmulHeuristicResult_t results[CANDIDATES];
    struct cuda_blas_plan *plan;
    int count = 0;
    assert(which >= 0);
    *there = false;
    TRY(plan_of(blas, &key, &plan));
    memset(results, 0, sizeof results);
    if (!plan->made)
        TRY(cuda_blas_plan_make(blas->library, blas->handle, plan));
    TRY(cuda_blas_plan_candidates(blas->library, blas->handle, plan, CANDIDATES,
                                  results, &count));
    if (which >= count)
        return ERR_OK;
    rc = cuda_blas_plan_run(blas->library, blas->handle, plan,
                            &results[which].algo, &operands, ctx);
    *there = rc == ERR_OK;
    return rc == ERR_UNSUPPORTED ? ERR_OK : rc;
}

/* A kind is one that was planned, or handed to the own kernel; those that a text
 * has named and nobody has used yet do not count. */
void cuda_blas_count(const struct cuda_blas *blas, int *kinds, int *own)
{
    *kinds = *own = 0;
    for (size_t i = 0; i < blas->count; i++) {
        *kinds += blas->plans[i].made || blas->plans[i].told;
        *own += blas->plans[i].told;
    }
}

struct timing {
    struct cuda_blas *blas;
    const struct cuda_blas_plan *plan;
    const cublasLtMatmulAlgo_t *algo;
    const struct cuda_blas_plan_operands *operands;
    const struct kernel_ctx *ctx;
};

static enum err timing_run(void *argument)
{
    const struct timing *t = argument;
    return cuda_blas_plan_run(t->blas->library, t->blas->handle, t->plan,
                              t->algo, t->operands, t->ctx);
}

/* Where the next tensor lies, as aligned as the plan's and no better. */
static void *place(char *memory, size_t *used, uint16_t alignment, int64_t n,
                   enum cuda_blas_plan_type type)
{
    size_t from = (*used + 255) / 256 * 256;
    if (alignment < CUDA_BLAS_PLAN_ALIGNMENT)
        from += alignment;
    *used = from + (size_t)n * cuda_blas_plan_bytes(type);
    return memory + from;
}

/* False if they need more than `bytes`. */
static bool operands_place(const struct cuda_blas_plan_key *key, char *memory,
                           size_t bytes, struct cuda_blas_plan_operands *to)
{
    size_t used = 0;
    to->a = place(memory, &used, key->align_a, key->m * key->k,
                  (enum cuda_blas_plan_type)key->a_type);
    to->b = place(memory, &used, key->align_b, key->n * key->k,
                  (enum cuda_blas_plan_type)key->b_type);
    to->c = place(memory, &used, key->align_c, key->m * key->n,
                  (enum cuda_blas_plan_type)key->c_type);
    to->bias =
        place(memory, &used, key->align_bias, key->n, cuda_blas_plan_bias(key));
    to->unscale_a = to->unscale_b =
        place(memory, &used, CUDA_BLAS_PLAN_ALIGNMENT, 1, CUDA_BLAS_PLAN_F32);
    return used <= bytes;
}

/* Memory is one place for all kinds of products, of ordinary numbers: a GPU that
 * multiplies zeros draws less power and clocks higher. */
static enum err plan_measure(struct cuda_blas *blas,
                             const struct kernel_ctx *ctx,
                             struct cuda_blas_plan *plan,
                             const struct cuda_blas_plan_operands *operands)
{
    enum err rc = ERR_OK;
    cublasLtMatmulHeuristicResult_t results[CANDIDATES];
    struct timing timing = { blas, plan, NULL, operands, ctx };
    double best_us = 0, us;
    int count, best = -1;
    memset(results, 0, sizeof results);
    TRY(cuda_blas_plan_candidates(blas->library, blas->handle, plan, CANDIDATES,
                                  results, &count));
    for (int i = 0; i < count; i++) {
        timing.algo = &results[i].algo;
        rc = blas->library->time(ctx->stream, timing_run, &timing, &us);
        if (rc == ERR_UNSUPPORTED)
            continue; /* the heuristics did not know */
        TRY(rc);
        if (best >= 0 && us >= best_us)
            continue;
        best = i;
        best_us = us;
    }
    rc = ERR_OK;
    if (best >= 0)
        plan->algo = results[best].algo;
    return rc;
}

enum err cuda_blas_measure(struct cuda_blas *blas, const struct kernel_ctx *ctx,
                           void *memory, size_t bytes)
{
    struct cuda_blas_plan_operands operands;
    assert((uintptr_t)memory % 256 == 0);
    for (size_t i = 0; i < blas->count; i++) {
        struct cuda_blas_plan *plan = &blas->plans[i];
        if (plan->made && plan->found && !plan->chosen &&
            operands_place(&plan->key, memory, bytes, &operands))
            TRY(plan_measure(blas, ctx, plan, &operands));
    }
    return ERR_OK;
}

enum err cuda_blas_choices(const struct cuda_blas *blas, char **text)
{
    return cuda_blas_text_write(blas->library->version(), blas->plans,
                                blas->count, text);
}

enum err cuda_blas_choose(struct cuda_blas *blas, const char *text)
{
    enum err rc = ERR_OK;
    struct cuda_blas_plan *chosen = NULL;
    size_t count = 0;
    TRY_OUT(
        cuda_blas_text_read(blas->library->version(), text, &chosen, &count));
    for (size_t i = 0; i < count; i++) {
        struct cuda_blas_plan *plan;
        TRY_OUT(plan_of(blas, &chosen[i].key, &plan));
        cuda_blas_plan_free(blas->library, plan);
        chosen[i].told = plan->told;
        *plan = chosen[i];
    }
out:
    free(chosen);
    return rc;
}

/* One for the process, made when it is first asked for: a handle is of the GPU
 * that the thread uses then. */
static struct cuda_blas *shared;
static char missing[256];
static pthread_once_t shared_once = PTHREAD_ONCE_INIT;

static void shared_create(void)
{
    if (cuda_blas_create(NULL, &shared) != ERR_OK)
        snprintf(missing, sizeof missing, "%s", err_text());
}

struct cuda_blas *cuda_blas_shared(void)
{
    pthread_once(&shared_once, shared_create);
    return shared;
}

const char *cuda_blas_missing(void)
{
    pthread_once(&shared_once, shared_create);
    return missing;
}

enum err cuda_gemm KERNEL_LIKE(gemm)
{
    struct cuda_blas *blas = NULL;
    if (dtype == DTYPE_F32 || dtype == DTYPE_BF16)
        blas = cuda_blas_shared();
    if (blas == NULL)
        return cuda_gemm_tiled(ctx, dtype, gemm);
    return cuda_blas_gemm(blas, ctx, dtype, gemm, cuda_gemm_tiled);
}

enum err cuda_gemm_fp8 KERNEL_LIKE(gemm_fp8)
{
    struct cuda_blas *blas = cuda_blas_shared();
    if (blas == NULL)
        return cuda_gemm_fp8_tiled(ctx, gemm);
    return cuda_blas_gemm_fp8(blas, ctx, gemm, cuda_gemm_fp8_tiled);
}
