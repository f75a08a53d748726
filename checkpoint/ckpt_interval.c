/* The formulas for how often to save (Young, Daly, and the exact one by
 * Lambert's W). Who saves often pays for saves, who saves seldom for the work
 * that a failure takes; Young's root is where the two are equal at first order,
 * and is good while a save is short beside the time between failures. There the
 * exact formula is a difference of nearly equal numbers, hence the series.
 * Their inputs are measured in src/train/state/on_checkpoint_interval.c and
 * src/job/ledger_history.c. */
#include "checkpoint/ckpt_interval.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>

#define PERSIST_MARGIN 1.1
#define HALLEY_ROUNDS_MAX 64
/* Where the series around the branch point is better than the iteration, which
 * loses digits there because x itself has lost them. */
#define SERIES_MAX 1e-3

/* W0 + 1 near the branch point x = -1/e, for p = sqrt(2 (e x + 1)). */
static double branch_series(double p)
{
    assert(p >= 0);
    return p * (1 - p / 3 * (1 - p * (11.0 / 24)));
}

double ckpt_interval_lambert_w0(double x)
{
    if (isnan(x) || x < -exp(-1))
        return NAN;
    if (x == 0 || isinf(x))
        return x;
    double p = sqrt(fmax(0, 2 * (M_E * x + 1)));
    if (p < SERIES_MAX)
        return branch_series(p) - 1;
    /* Halley's iteration triples the good digits a round; it begins with the
     * series, or with what W is like for small and for large x. */
    double w = x < 0     ? branch_series(fmin(p, 1)) - 1
               : x < M_E ? log1p(x)
                         : log(x) - log(log(x));
    for (int round = 0; round < HALLEY_ROUNDS_MAX; round++) {
        /* Divided by exp(w), which overflows where w does not. */
        double off = w - x * exp(-w);
        double next = w - off / (w + 1 - (w + 2) * off / (2 * w + 2));
        if (fabs(next - w) <= 1e-15 * fabs(next))
            return next;
        w = next;
    }
    return w;
}

/* 1 + W0(-exp(-1 - y)) for y > 0. */
static double exact_share(double y)
{
    double p = sqrt(-2 * expm1(-y));
    return p < SERIES_MAX ? branch_series(p)
                          : 1 + ckpt_interval_lambert_w0(-exp(-1 - y));
}

static double daly(double cost_s, double mtbf_s)
{
    if (cost_s >= 2 * mtbf_s)
        return mtbf_s;
    double half = cost_s / (2 * mtbf_s);
    return sqrt(2 * cost_s * mtbf_s) * (1 + sqrt(half) / 3 + half / 9) - cost_s;
}

static enum err check(const struct ckpt_interval_input *input)
{
    const struct {
        const char *name;
        double value;
        bool positive;
    } fields[] = {
        { "cost of a save", input->cost_s, true },
        { "time between failures", input->mtbf_s, true },
        { "persist time", input->persist_s, false },
        { "restart time", input->restart_s, false },
        { "detection time", input->detect_s, false },
        { "largest overhead", input->overhead_max, false },
    };
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        double value = fields[i].value;
        if (!isfinite(value) || value < 0 || (fields[i].positive && value == 0))
            return err_set(
                ERR_USAGE, "the %s must be a number %s, not %g", fields[i].name,
                fields[i].positive ? "above 0" : "of at least 0", value);
    }
    if (input->overhead_max >= 1)
        return err_set(ERR_USAGE, "the largest overhead must be below 1");
    return ERR_OK;
}

enum err ckpt_interval(const struct ckpt_interval_input *input,
                       struct ckpt_interval *out)
{
    double cost_s = input->cost_s;
    double mtbf_s = input->mtbf_s;
    TRY(check(input));
    *out = (struct ckpt_interval){
        .young_s = sqrt(2 * cost_s * mtbf_s),
        .daly_s = daly(cost_s, mtbf_s),
        .exact_s = mtbf_s * exact_share(cost_s / mtbf_s),
        .limit = CKPT_INTERVAL_EXACT,
    };
    out->recommended_s = out->exact_s;
    if (out->recommended_s < PERSIST_MARGIN * input->persist_s) {
        out->recommended_s = PERSIST_MARGIN * input->persist_s;
        out->limit = CKPT_INTERVAL_PERSIST;
    }
    if (input->overhead_max > 0 &&
        out->recommended_s < cost_s / input->overhead_max) {
        out->recommended_s = cost_s / input->overhead_max;
        out->limit = CKPT_INTERVAL_OVERHEAD;
    }
    out->wall_factor =
        mtbf_s *
        exp((input->restart_s + input->detect_s + input->persist_s) / mtbf_s) *
        expm1((out->recommended_s + cost_s) / mtbf_s) / out->recommended_s;
    out->goodput = 1 / out->wall_factor;
    return ERR_OK;
}

double ckpt_interval_node_mtbf_h(double prior_hours, double node_hours,
                                 int failures)
{
    assert(failures >= 0);
    return (prior_hours + node_hours) / (1 + failures);
}
