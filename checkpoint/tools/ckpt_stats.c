/* Counts, extremes, mean and deviation of a tensor's values, for tessera-ckpt
 * show. */
#include "checkpoint/tools/ckpt_tools.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "checkpoint/ckpt_place.h"
#include "src/base/new.h"

/* Sums over the finite values so far. They are wider than double, so that
 * squares of large values do not overflow. */
struct sums {
    int64_t count;
    long double mean;
    long double deviation; /* sum of squared differences from the mean */
    long double squares;
};

/* Count the window's values and turn `values` into the finite ones. */
static int64_t sort_out(struct ckpt_stats *stats, double *values, int64_t count)
{
    int64_t finite = 0;
    for (int64_t i = 0; i < count; i++) {
        double value = values[i];
        if (isnan(value)) {
            stats->nan++;
        } else if (isinf(value)) {
            stats->inf++;
        } else {
            stats->zero += value == 0;
            stats->min = fmin(stats->min, value);
            stats->max = fmax(stats->max, value);
            values[finite++] = value;
        }
    }
    return finite;
}

/* Two passes over the window, then the rule of Chan, Golub and LeVeque (1979)
 * for the sums of two groups: no cancellation, however many windows. */
static void add_window(struct sums *sums, const double *values, int64_t count)
{
    assert(count >= 0);
    if (count == 0)
        return;
    long double total = 0;
    long double deviation = 0;
    for (int64_t i = 0; i < count; i++) {
        total += values[i];
        sums->squares += (long double)values[i] * values[i];
    }
    long double mean = total / (long double)count;
    for (int64_t i = 0; i < count; i++)
        deviation += (values[i] - mean) * (values[i] - mean);
    long double before = (long double)sums->count;
    long double all = before + (long double)count;
    long double shift = mean - sums->mean;
    sums->deviation +=
        deviation + shift * shift * before * (long double)count / all;
    sums->mean += shift * (long double)count / all;
    sums->count += count;
}

static enum err add_tensor(struct ckpt_tensor_reader *reader,
                           const struct ckpt_tensor *tensor, int number,
                           void *window, double *values,
                           struct ckpt_stats *stats, struct sums *sums)
{
    for (int64_t at = 0, count; at < tensor->elements; at += count) {
        count = ckpt_tensor_window(tensor, at);
        TRY(ckpt_tensor_read(reader, number, at, at + count, window));
        for (int64_t i = 0; i < count; i++)
            values[i] = ckpt_place_value(tensor->dtype, window, i);
        add_window(sums, values, sort_out(stats, values, count));
    }
    return ERR_OK;
}

enum err ckpt_stats_tensor(struct ckpt_tensor_reader *reader,
                           const struct ckpt_manifest *manifest, int tensor,
                           struct ckpt_stats *out)
{
    enum err rc = ERR_OK;
    assert(tensor >= 0 && tensor < manifest->tensor_count);
    const struct ckpt_tensor *which = &manifest->tensors[tensor];
    struct sums sums = { 0 };
    char *window = NULL;
    double *values = NULL;
    size_t most = (size_t)ckpt_tensor_window(which, 0);
    *out = (struct ckpt_stats){ .elements = which->elements,
                                .min = NAN,
                                .max = NAN,
                                .mean = NAN,
                                .std = NAN,
                                .l2 = NAN };
    TRY_OUT(new_room(&window, (size_t)CKPT_TENSOR_WINDOW_BYTES));
    TRY_OUT(new_room(&values, most + 1));
    TRY_OUT(add_tensor(reader, which, tensor, window, values, out, &sums));
    if (sums.count > 0) {
        out->mean = (double)sums.mean;
        out->std = (double)sqrtl(sums.deviation / (long double)sums.count);
        out->l2 = (double)sqrtl(sums.squares);
    }
out:
    free(values);
    free(window);
    return rc;
}
