/* Listener: warns at the start of a run where the matrix products of rank 0's
 * kernels take less than half of what its threads' multiply-adds alone reach
 * with the best kernel set: such kernels train at a fraction of the processor's
 * rate, and only a comparison shows that. Each thread is timed alone and by its
 * fastest product of 256 x 256 x 256, so that other work on the processors
 * counts in neither. Takes 20 ms, 0.2 s where products are slow. On a GPU
 * nothing is looked at. tessera-health has the same comparison for nodes. */

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/train/run/run.h"

#define SIDE 256
#define ELEMENTS ((size_t)SIDE * SIDE)
#define FLOP (2.0 * SIDE * SIDE * SIDE)
#define SHARE_MIN 0.5
#define MEASURE_S 0.2

/* One thread's fastest product, FLOP/s; ends at `enough`. `place` has room for
 * C and scratch. */
static double measure_thread(const struct kernels *kernels,
                             const float *operands, float *place,
                             size_t scratch_bytes, double enough)
{
    struct kernel_ctx ctx = { .threads = 1,
                              .scratch = place + ELEMENTS,
                              .scratch_bytes = scratch_bytes };
    struct gemm gemm = { .form = GEMM_NT,
                         .m = SIDE,
                         .n = SIDE,
                         .k = SIDE,
                         .a = operands,
                         .b = operands + ELEMENTS,
                         .c = place };
    double best = 0.0, end_s = clock_now() + MEASURE_S;
    do {
        double begin_s = clock_now();
        if (kernels->gemm(&ctx, DTYPE_F32, &gemm) != ERR_OK)
            return 0.0;
        best = fmax(best, FLOP / fmax(clock_now() - begin_s, 1e-9));
    } while (best < enough && clock_now() < end_s);
    return best;
}

/* The rate of all threads together, FLOP/s; 0: no memory. */
static double measure(const struct run *run, double peak_flops)
{
    const struct kernels *kernels = run->engine.kernels;
    const struct kernel_limits limits = { .threads = 1,
                                          .tokens = SIDE,
                                          .batch = 1,
                                          .seq = SIDE,
                                          .width = SIDE,
                                          .heads = 1,
                                          .head_dim = SIDE,
                                          .vocab = SIDE };
    int threads = run->engine.ctx.threads;
    assert(threads > 0 && peak_flops >= 0.0);
    size_t scratch = (kernels->scratch_bytes(&limits) + 63) / 64 * 64;
    size_t bytes = ELEMENTS * sizeof(float) + scratch;
    float *operands = aligned_alloc(64, 2 * ELEMENTS * sizeof *operands);
    char *places = aligned_alloc(64, (size_t)threads * bytes);
    double rate = 0.0;
    if (operands != NULL && places != NULL) {
        for (size_t i = 0; i < 2 * ELEMENTS; i++)
            operands[i] = (float)(i % 7);
#pragma omp parallel for num_threads(threads) reduction(+ : rate)
        for (int i = 0; i < threads; i++)
            rate += measure_thread(
                kernels, operands,
                (float *)(void *)(places + (size_t)i * bytes), scratch,
                (SHARE_MIN + 0.1) * peak_flops / threads);
    }
    free(operands);
    free(places);
    return rate;
}

static void warn(const struct run *run, const struct kernels *best, double rate,
                 double peak)
{
    char rate_text[32], peak_text[32];
    units_count(rate, rate_text, sizeof rate_text);
    units_count(peak, peak_text, sizeof peak_text);
    if (run->engine.kernels != best && run->engine.kernels != best->profiled)
        log_warn("products take %s FLOP/s of the processor's %s: "
                 "hardware.kernel_set is %s, set it to auto",
                 rate_text, peak_text, run->engine.kernels->kernel_set);
    else
        log_warn("products take %s FLOP/s of the processor's %s: its caches "
                 "are slow, or the kernels (%s) do not suit it; see "
                 "`tessera-health job` here",
                 rate_text, peak_text, run->engine.kernels->kernel_set);
}

struct on_products {
    const struct run *run;
};

static enum err products_create(void *self, const struct run *run)
{
    struct on_products *products = self;
    products->run = run;
    return ERR_OK;
}

static enum err products_handle(void *self, enum event event,
                                const struct step_record *step,
                                struct asks *asks)
{
    const struct on_products *products = self;
    const struct run *run = products->run;
    const struct kernels *best;
    const char *source;
    (void)event;
    (void)step;
    (void)asks;
    /* where the run goes back it was told already */
    if (strcmp(run->engine.kernels->backend, "cpu") != 0 ||
        run->position.came_back.asked)
        return ERR_OK;
    TRY(kernels_find("cpu", "auto", &best));
    double peak = best->peak_flops(&run->engine.ctx, DTYPE_F32, false, &source);
    double rate = measure(run, peak);
    if (rate == 0.0)
        return err_set(ERR_MEMORY, "no memory to time products");
    if (rate < SHARE_MIN * peak)
        warn(run, best, rate, peak);
    return ERR_OK;
}

const struct listener_ops on_products_ops = {
    .bytes = sizeof(struct on_products),
    .create = products_create,
    .handle = products_handle,
};
