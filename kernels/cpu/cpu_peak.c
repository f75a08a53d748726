/* What the processor can do at most, measured: nothing but multiply-adds in
 * registers. A clock rate times pipes times lanes would have to know processors
 * and what they clock at under such a load. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/cpu_vec.h"
#include "src/base/clock.h"

/* Independent sums, so that each multiply-add need not wait for the one before:
 * enough for two pipes of five cycles, and together with the factors few enough
 * for 16 registers. */
#define SUMS 12
#define EACH(OP)                                                               \
    OP(0) OP(1) OP(2) OP(3) OP(4) OP(5) OP(6) OP(7) OP(8) OP(9) OP(10) OP(11)
#define DECLARE(i) vec sum##i = vec_splat((float)i);
#define ADD(i) sum##i = vec_fma(sum##i, factor, term);
#define TAKE(i) total += sum##i[0];

#define TURNS 20000 /* some 50 us: few are interrupted */
#define MEASURE_S 0.01

/* FLOP/s of this thread. The sums stay about 1. */
static double burst(float *total_out)
{
    const vec factor = vec_splat(0.5f), term = vec_splat(0.5f);
    float total = 0.0f;
    EACH(DECLARE)
    double begin_s = clock_now();
    for (int turn = 0; turn < TURNS; turn++) {
        EACH(ADD)
    }
    EACH(TAKE)
    *total_out += total;
    return 2.0 * TURNS * SUMS * VEC_LANES / (clock_now() - begin_s);
}

double CPU_SYMBOL(peak_flops)(const struct kernel_ctx *ctx, enum dtype dtype,
                              bool fp8, const char **source)
{
    double rate = 0.0;
    float total = 0.0f;
    assert(ctx->threads >= 1);
    (void)dtype; /* all that there is is computed in fp32 */
    (void)fp8;
#pragma omp parallel num_threads(ctx->threads) reduction(+ : rate, total)
    {
        double best = 0.0;
        double end_s = clock_now() + MEASURE_S;
        do {
            double one = burst(&total);
            best = one > best ? one : best;
        } while (clock_now() < end_s);
        rate += best;
    }
    *source = "measured";
    /* uses the sums, which are positive, so that they are computed */
    return total > 0.0f ? rate : 0.0;
}
