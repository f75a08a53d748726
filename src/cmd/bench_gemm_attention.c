/* The part of tessera-bench gemm that times attention beside the peak. The
 * tables are made in bench_gemm_report.c. */

#include "src/base/clock.h"
#include "src/base/median.h"
#include "src/base/rng.h"
#include "src/cmd/bench_flops.h"
#include "src/cmd/bench_gemm.h"

#define SEED 29

struct attention_bench {
    struct attention shape;
    struct arena arena;
    float *qkv, *dqkv; /* [tokens, 3 heads, head_dim] */
    float *out, *dout; /* [tokens, heads, head_dim] */
    float *lse;        /* [heads, tokens] */
};

static enum err make(int64_t tokens, struct attention_bench *out)
{
    size_t one = (size_t)(tokens * BENCH_GEMM_HEADS * BENCH_GEMM_HEAD_DIM);
    size_t bytes = one * sizeof(float);
    struct arena *arena = &out->arena;
    out->shape = (struct attention){ .batch = 1,
                                     .seq = tokens,
                                     .heads = BENCH_GEMM_HEADS,
                                     .kv_heads = BENCH_GEMM_HEADS,
                                     .head_dim = BENCH_GEMM_HEAD_DIM,
                                     .scale = 0.125f };
    TRY(arena_create(9 * bytes + 4096, arena));
    out->qkv = arena_take(arena, 3 * bytes);
    out->dqkv = arena_take(arena, 3 * bytes);
    out->out = arena_take(arena, bytes);
    out->dout = arena_take(arena, bytes);
    out->lse = arena_take(arena, bytes / BENCH_GEMM_HEAD_DIM);
    rng_fill_normal(SEED, 1, 0, (int64_t)(3 * one), 1.0f, out->qkv);
    rng_fill_normal(SEED, 2, 0, (int64_t)one, 1.0f, out->dout);
    return ERR_OK;
}

static enum err compute(const struct bench_gemm_ours *ours,
                        const struct attention_bench *a, bool backward,
                        double *seconds)
{
    const struct kernels *kernels = ours->kernels;
    double begin = clock_now();
    if (backward)
        TRY(kernels->attention_backward(&ours->ctx, DTYPE_F32, &a->shape,
                                        a->qkv, a->out, a->lse, a->dout,
                                        a->dqkv));
    else
        TRY(kernels->attention_forward(&ours->ctx, DTYPE_F32, &a->shape, a->qkv,
                                       a->out, a->lse));
    *seconds = clock_now() - begin;
    return ERR_OK;
}

static json_t *entry(const struct attention_bench *a, bool backward,
                     double seconds, double peak)
{
    double flops = backward ? bench_flops_attention_backward(&a->shape)
                            : bench_flops_attention_forward(&a->shape);
    return json_pack(
        "{s:s, s:I, s:I, s:I, s:f, s:f, s:f}", "what",
        backward ? "backward" : "forward", "tokens", (json_int_t)a->shape.seq,
        "heads", (json_int_t)a->shape.heads, "head_dim",
        (json_int_t)a->shape.head_dim, "gflops", flops / seconds * 1e-9,
        "peak_gflops", peak * 1e-9, "peak_fraction", flops / seconds / peak);
}

enum err bench_gemm_attention(const struct bench_gemm_ours *ours,
                              int64_t tokens, int rounds, json_t **result)
{
    enum err rc = ERR_OK;
    double seconds[2][BENCH_GEMM_SAMPLES], peak[BENCH_GEMM_SAMPLES];
    struct attention_bench a = { .qkv = NULL };
    *result = json_array();
    TRY_OUT(make(tokens, &a));
    for (int round = -1; round < rounds; round++) {
        /* the first time, which touches memory, is not counted */
        int at = round < 0 ? 0 : round;
        TRY_OUT(compute(ours, &a, false, &seconds[0][at]));
        peak[at] = bench_gemm_peak(ours);
        TRY_OUT(compute(ours, &a, true, &seconds[1][at]));
    }
    double most = median_of(peak, rounds);
    for (int backward = 0; backward < 2; backward++)
        json_array_append_new(
            *result, entry(&a, backward == 1,
                           median_of(seconds[backward], rounds), most));
out:
    arena_destroy(&a.arena);
    if (rc != ERR_OK) {
        json_decref(*result);
        *result = NULL;
    }
    return rc;
}
