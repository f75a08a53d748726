/* cross_entropy and the embedding on every table against fp64. */
#include "tests/kernel_check.h"

static const struct target plain = { 0 };
static const struct target smooth = { .smoothing = 0.125f };
static const struct target both = { .smoothing = 0.25f, .z = 0x1p-9f };

static double reference_row(int64_t vocab, double scale,
                            const struct target *target, const double *x,
                            int32_t label, double *grad)
{
    double peak = x[0], sum = 0, loss = 0;
    double e = (double)target->smoothing, z = (double)target->z;
    for (int64_t j = 1; j < vocab; j++)
        peak = fmax(peak, x[j]);
    for (int64_t j = 0; j < vocab; j++)
        sum += exp(scale * (x[j] - peak));
    double lse = log(sum) + scale * peak;
    for (int64_t j = 0; j < vocab; j++) {
        double wanted = (j == label ? 1 - e : 0) + e / (double)vocab;
        grad[j] =
            scale *
            (exp(scale * (x[j] - peak)) / sum * (1 + 2 * z * lse) - wanted);
        loss += wanted * (lse - scale * x[j]);
    }
    return loss + z * lse * lse;
}

static void check_reference(double scale, const struct target *target)
{
    enum { VOCAB = 11, LABEL = 4 };
    double x[VOCAB], grad[VOCAB], unused[VOCAB];
    double worst = 0;
    for (int j = 0; j < VOCAB; j++)
        x[j] = 3 * check_uniform(1, j);
    reference_row(VOCAB, scale, target, x, LABEL, grad);
    for (int j = 0; j < VOCAB; j++) {
        double kept = x[j];
        x[j] = kept + 1e-5;
        double up = reference_row(VOCAB, scale, target, x, LABEL, unused);
        x[j] = kept - 1e-5;
        double down = reference_row(VOCAB, scale, target, x, LABEL, unused);
        x[j] = kept;
        worst = fmax(worst, fabs((up - down) / 2e-5 - grad[j]));
    }
    tap_ok(worst < 1e-8, "the loss reference passes a gradient check, scale %g",
           scale);
}

/* `slope` makes later logits larger: the running maximum must move. */
static void check_loss(const struct kernels *table, int64_t n, int64_t vocab,
                       double slope, float scale, const struct target *target)
{
    float *logits = check_random(n * vocab, 1, 5);
    int32_t *labels = check_alloc((size_t)n * sizeof(*labels));
    double *want = check_f64(n), *grad = check_f64(n * vocab);
    float *losses[CHECK_THREADS_MAX], *x[CHECK_THREADS_MAX];
    double error = 0;
    bool same = true;
    for (int64_t i = 0; i < n * vocab; i++)
        logits[i] += (float)(slope * (double)(i % vocab) / (double)vocab);
    double *wide = check_widened(logits, n * vocab);
    for (int64_t i = 0; i < n; i++) {
        labels[i] = i % 5 == 3 ? -100 : (int32_t)(i * 7919 % vocab);
        if (labels[i] >= 0)
            want[i] =
                reference_row(vocab, (double)scale, target, wide + i * vocab,
                              labels[i], grad + i * vocab);
    }
    for (int t = 0; t < CHECK_THREADS_MAX; t++) {
        struct kernel_ctx ctx = { .threads = t + 1 };
        float *only = check_poisoned(n);
        losses[t] = check_poisoned(n);
        x[t] = check_copy(logits, n * vocab);
        table->cross_entropy(&ctx, DTYPE_F32, n, vocab, scale, target, x[t],
                             labels, false, only);
        memcpy(x[t], logits, (size_t)(n * vocab) * sizeof(float));
        table->cross_entropy(&ctx, DTYPE_F32, n, vocab, scale, target, x[t],
                             labels, true, losses[t]);
        same &= check_same(only, losses[0], n) &&
                check_same(losses[t], losses[0], n) &&
                check_same(x[t], x[0], n * vocab);
    }
    for (int64_t i = 0; i < n; i++)
        if (labels[i] < 0)
            same &= losses[0][i] == 0;
    error = fmax(check_error(losses[0], want, n),
                 check_error(x[0], grad, n * vocab));
    char what[192];
    snprintf(what, sizeof(what),
             "%lld rows of %lld, slope %g, scale %g, smoothing %g, z %g",
             (long long)n, (long long)vocab, slope, (double)scale,
             (double)target->smoothing, (double)target->z);
    check_below(table, "cross_entropy", what, error, 5e-6);
    check_that(table, same,
               "cross_entropy: %s, same with and without gradient, on "
               "1, 2, 3 threads",
               what);
    for (int t = 0; t < CHECK_THREADS_MAX; t++) {
    }
    check_release();
}

static void check_not_finite(const struct kernels *table)
{
    enum { ROWS = 5, VOCAB = 2500 };
    struct kernel_ctx ctx = { .threads = 2 };
    float *x = check_random(ROWS * VOCAB, 1, 5);
    int32_t *labels = CHECK_HELD(int32_t, 1, 2, 3, 4, 2000);
    float *losses = check_poisoned(ROWS);
    x[1 * VOCAB + 2499] = check_nan();
    x[2 * VOCAB + 5] = INFINITY;
    for (int64_t j = 0; j < 1500; j++)
        x[4 * VOCAB + j] = -INFINITY;
    table->cross_entropy(&ctx, DTYPE_F32, ROWS, VOCAB, 1, &plain, x, labels,
                         true, losses);
    check_that(table,
               isnan(losses[1]) && check_all_nan(x + VOCAB, VOCAB) &&
                   !isfinite(losses[2]) && isfinite(losses[0]) &&
                   isfinite(losses[3]) && check_no_nan(x, VOCAB) &&
                   check_no_nan(x + 3 * VOCAB, VOCAB),
               "cross_entropy: NaN and Inf reach the loss of their row");
    check_that(table,
               isfinite(losses[4]) && x[4 * VOCAB] == 0 &&
                   check_no_nan(x + 4 * VOCAB, VOCAB),
               "cross_entropy: logits of -Inf have probability zero");
    check_release();
}

enum { N = 57, SEQ = 19, D = 133, VOCAB = 11 };

static bool embedding_run(const struct kernels *table, bool with_positions,
                          int threads, const int32_t *tokens, const float *wte,
                          const float *wpe, const float *dout, float *out,
                          float *dwte, float *dwpe)
{
    struct kernel_ctx ctx = { .threads = threads };
    enum err rc =
        table->embedding_forward(&ctx, DTYPE_F32, N, SEQ, D, tokens, wte,
                                 with_positions ? wpe : NULL, out);
    if (rc == ERR_OK)
        rc = table->embedding_backward(&ctx, DTYPE_F32, N, SEQ, D, tokens, dout,
                                       dwte, with_positions ? dwpe : NULL);
    return rc == ERR_OK;
}

static void check_embedding(const struct kernels *table, bool with_positions)
{
    float *wte = check_random(VOCAB * D, 1, 1);
    float *wpe = check_random(SEQ * D, 2, 1);
    float *dout = check_random(N * D, 3, 1);
    float *grads = check_random((VOCAB + SEQ) * D, 4, 1);
    double *want_out = check_f64(N * D);
    double *want_grads = check_widened(grads, (VOCAB + SEQ) * D);
    float *first_out = NULL, *first = NULL;
    int32_t *tokens = check_alloc(N * sizeof(*tokens));
    bool same = true;
    for (int64_t i = 0; i < N * D; i++) {
        int64_t row = i / D, j = i % D;
        tokens[row] = (int32_t)(row * row % VOCAB);
        want_out[i] = (double)wte[tokens[row] * D + j];
        want_grads[tokens[row] * D + j] += (double)dout[i];
        if (!with_positions)
            continue;
        want_out[i] += (double)wpe[row % SEQ * D + j];
        want_grads[(VOCAB + row % SEQ) * D + j] += (double)dout[i];
    }
    for (int t = 1; t <= CHECK_THREADS_MAX; t++) {
        float *out = check_poisoned(N * D);
        float *got = check_copy(grads, (VOCAB + SEQ) * D);
        same &= embedding_run(table, with_positions, t, tokens, wte, wpe, dout,
                              out, got, got + VOCAB * D);
        if (t == 1) {
            first_out = out;
            first = got;
            continue;
        }
        same &= check_same(out, first_out, N * D) &&
                check_same(got, first, (VOCAB + SEQ) * D);
    }
    check_below(table, "embedding_forward",
                with_positions ? "with positions" : "without positions",
                check_error(first_out, want_out, N * D), 1e-6);
    check_below(table, "embedding_backward",
                with_positions ? "with positions" : "without positions",
                check_error(first, want_grads, (VOCAB + SEQ) * D), 1e-6);
    check_that(table, same, "embedding: same bits on 1, 2, 3 threads");
    check_release();
}

int main(void)
{
    check_reference(1, &plain);
    check_reference(0.3, &plain);
    check_reference(0.3, &smooth);
    check_reference(1.5, &both);
    for (const struct kernels *const *t = kernels_all(); *t != NULL; t++) {
        check_loss(*t, 1, 1, 0, 1, &plain);
        check_loss(*t, 7, 5, 0, 1, &plain);
        check_loss(*t, 7, 5, 0, 1, &both);
        check_loss(*t, 13, 1025, 20, 1, &plain);
        check_loss(*t, 13, 1025, -20, 1, &plain);
        check_loss(*t, 13, 1025, -20, 1, &smooth);
        check_loss(*t, 3, 50257, 200, 1, &plain);
        check_loss(*t, 3, 50257, 20, 1, &both);
        check_loss(*t, 13, 3001, 8, 0.125f, &plain);
        check_loss(*t, 13, 3001, 8, 0.125f, &both);
        check_loss(*t, 7, 2049, -20, 3, &smooth);
        check_not_finite(*t);
        check_embedding(*t, true);
        check_embedding(*t, false);
    }
    return tap_done();
}
