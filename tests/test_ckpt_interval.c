/* The interval between saves: Lambert's W, the three formulas, the limits and
 * the goodput. */
#include <float.h>

#include "checkpoint/ckpt_interval.h"
#include "tests/tap.h"

#define HOUR_S 3600.0

static void test_lambert(void)
{
    static const struct {
        double x, w;
    } table[] = {
        { -0.36787944117144233, -1 },
        { -0.3, -0.48940222718021164 },
        { -0.1, -0.11183255915896297 },
        { -1e-10, -1.0000000001e-10 },
        { 0, 0 },
        { 1e-3, 0.0009990014973385308 },
        { 0.5, 0.35173371124919584 },
        { 1, 0.56714329040978384 }, /* the omega constant */
        { 2.7182818284590452, 1 },
        { 10, 1.7455280027406994 },
        { 1e6, 11.383358086140053 },
        { 1e300, 684.24720862976085 },
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        double w = ckpt_interval_lambert_w0(table[i].x);
        double tolerance = table[i].w == -1 ? 1e-7 : 1e-13;
        tap_ok(fabs(w - table[i].w) <= tolerance * fabs(table[i].w),
               "W0(%.17g) = %.17g, got %.17g", table[i].x, table[i].w, w);
    }
    tap_ok(isnan(ckpt_interval_lambert_w0(-0.4)), "none below -1/e");
    tap_ok(isnan(ckpt_interval_lambert_w0(NAN)), "none of NaN");
    double worst = 0;
    int points = 0;
    for (double x = -0.367; x < 1e12; x += 0.003 + fabs(x) * 0.1, points++) {
        double w = ckpt_interval_lambert_w0(x);
        worst = fmax(worst, fabs(w * exp(w) - x) / fmax(fabs(x), DBL_MIN));
    }
    tap_ok(worst < 1e-13, "W exp(W) = x at %d points, worst %g", points, worst);
}

/* T where the derivative of (exp((T + delta)/M) - 1)/T changes its sign, by
 * bisection: independent of W. */
static double minimum_of(double cost_s, double mtbf_s)
{
    double low = 1e-12;
    double high = mtbf_s;
    for (int i = 0; i < 200; i++) {
        double t = (low + high) / 2;
        /* exp(-(T + delta)/M) - 1 + T/M has the sign of the derivative. */
        double sign = expm1(-(t + cost_s) / mtbf_s) + t / mtbf_s;
        if (sign < 0)
            low = t;
        else
            high = t;
    }
    return low;
}

static void test_exact(void)
{
    for (double ratio = 1e-9; ratio < 30; ratio *= 7) {
        struct ckpt_interval_input input = { .cost_s = ratio * 1e4,
                                             .mtbf_s = 1e4 };
        struct ckpt_interval out;
        enum err rc = ckpt_interval(&input, &out);
        double want = minimum_of(input.cost_s, input.mtbf_s);
        tap_ok(rc == ERR_OK && fabs(out.exact_s - want) <= 1e-9 * want,
               "delta = %.3g M: T = %.9g, the minimum is at %.9g", ratio,
               out.exact_s, want);
    }
}

static bool near(double got, double want, double relative)
{
    return fabs(got - want) <= relative * want;
}

/* Known results for clusters of three sizes, rounded to two or three digits. */
static void test_clusters(void)
{
    static const struct {
        double mtbf_h, cost_s, persist_s, exact_s, goodput_percent;
    } table[] = {
        { 333, 0.5, 60, 1095, 99.9 }, { 48, 0.5, 60, 415, 99.6 },
        { 48, 30, 30, 3200, 98.0 },   { 48, 120, 120, 6360, 96.1 },
        { 3.09, 0.5, 60, 105, 95.9 }, { 3.09, 5, 60, 330, 94.0 },
        { 3.09, 30, 30, 797, 90.1 },  { 3.09, 120, 120, 1556, 82.8 },
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct ckpt_interval_input input = {
            .cost_s = table[i].cost_s,
            .persist_s = table[i].persist_s,
            .mtbf_s = table[i].mtbf_h * HOUR_S,
            .restart_s = 300,
        };
        struct ckpt_interval out;
        enum err rc = ckpt_interval(&input, &out);
        tap_ok(rc == ERR_OK && near(out.exact_s, table[i].exact_s, 5e-3) &&
                   fabs(100 * out.goodput - table[i].goodput_percent) < 0.1,
               "M = %g h, delta = %g s: T = %.1f s, goodput %.2f %%",
               table[i].mtbf_h, table[i].cost_s, out.exact_s,
               100 * out.goodput);
        tap_ok(near(out.goodput * out.wall_factor, 1, 1e-12),
               "the wall-time factor is its inverse");
        tap_ok(input.cost_s >= input.mtbf_s / 90 ||
                   (near(out.young_s, out.exact_s, 0.06) &&
                    near(out.daly_s, out.exact_s, 0.06)),
               "Young %.1f and Daly %.1f are near", out.young_s, out.daly_s);
    }
}

static void test_daly(void)
{
    struct ckpt_interval out;
    struct ckpt_interval_input input = { .cost_s = 200, .mtbf_s = 100 };
    ckpt_interval(&input, &out);
    tap_is_close(out.daly_s, 100, 1e-12, "Daly from delta = 2M on: M");
    tap_is_close(out.young_s, 200, 1e-12, "Young does not know that");
    tap_ok(out.exact_s < 100, "the exact T is below M (%g)", out.exact_s);
    input.cost_s = 50;
    ckpt_interval(&input, &out);
    tap_is_close(out.daly_s, 100 * (1 + 0.5 / 3 + 0.25 / 9) - 50, 1e-12,
                 "Daly's correction");
}

static void test_limits(void)
{
    static const struct {
        const char *name;
        double persist_s, overhead_max, want_s;
        enum ckpt_interval_limit limit;
    } table[] = {
        { "none", 0, 0, 0, CKPT_INTERVAL_EXACT },
        { "short persist", 10, 0, 0, CKPT_INTERVAL_EXACT },
        { "long persist", 1000, 0, 1100, CKPT_INTERVAL_PERSIST },
        { "loose cap", 10, 0.5, 0, CKPT_INTERVAL_EXACT },
        { "tight cap", 10, 0.001, 5000, CKPT_INTERVAL_OVERHEAD },
        { "both, cap longer", 1000, 0.001, 5000, CKPT_INTERVAL_OVERHEAD },
        { "both, persist longer", 9000, 0.001, 9900, CKPT_INTERVAL_PERSIST },
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct ckpt_interval_input input = {
            .cost_s = 5,
            .mtbf_s = 1e4,
            .persist_s = table[i].persist_s,
            .overhead_max = table[i].overhead_max,
        };
        struct ckpt_interval out;
        enum err rc = ckpt_interval(&input, &out);
        double want = table[i].want_s > 0 ? table[i].want_s : out.exact_s;
        tap_ok(rc == ERR_OK && near(out.recommended_s, want, 1e-12) &&
                   out.limit == table[i].limit,
               "limit %s: %.1f s", table[i].name, out.recommended_s);
    }
}

static void test_failures(void)
{
    static const struct {
        struct ckpt_interval_input input;
        const char *text;
    } table[] = {
        { { .cost_s = 0, .mtbf_s = 1 }, "cost" },
        { { .cost_s = -1, .mtbf_s = 1 }, "cost" },
        { { .cost_s = NAN, .mtbf_s = 1 }, "cost" },
        { { .cost_s = 1, .mtbf_s = 0 }, "between failures" },
        { { .cost_s = 1, .mtbf_s = INFINITY }, "between failures" },
        { { .cost_s = 1, .mtbf_s = 1, .persist_s = -1 }, "persist" },
        { { .cost_s = 1, .mtbf_s = 1, .restart_s = NAN }, "restart" },
        { { .cost_s = 1, .mtbf_s = 1, .detect_s = -2 }, "detection" },
        { { .cost_s = 1, .mtbf_s = 1, .overhead_max = -2 }, "overhead" },
        { { .cost_s = 1, .mtbf_s = 1, .overhead_max = 1 }, "overhead" },
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct ckpt_interval out;
        tap_ok(ckpt_interval(&table[i].input, &out) == ERR_USAGE &&
                   strstr(err_text(), table[i].text) != NULL,
               "refused: %s", err_text());
    }
    struct ckpt_interval out;
    struct ckpt_interval_input hopeless = { .cost_s = 1e6, .mtbf_s = 1 };
    tap_ok(ckpt_interval(&hopeless, &out) == ERR_OK && out.goodput == 0,
           "saves that never end between failures have no goodput");
}

int main(void)
{
    test_lambert();
    test_exact();
    test_clusters();
    test_daly();
    test_limits();
    test_failures();
    tap_is_close(ckpt_interval_node_mtbf_h(6000, 1500, 4), 1500, 1e-12,
                 "a node's time between failures");
    return tap_done();
}
