/* Optimizers of whole tensors against fp64 on random gradients: Muon's
 * iterations, Adafactor's factors, Lions that look out for outliers; and the
 * same bits on any number of threads. */

#include "src/parallel/optimizer/optimizer_whole.h"
#include "tests/tap.h"

#define ELEMENTS 2000
#define SPACE (1 << 20)

static uint64_t state = 17;

static float draw(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (float)((double)(state >> 33) / (double)(1u << 30) - 1.0);
}

struct tensor {
    struct param param;
    struct params params;
    float weights[ELEMENTS], gradient[ELEMENTS], moment[ELEMENTS];
    float states[3][ELEMENTS];
    float scratch[SPACE];
};

static void fill(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = draw();
}

static void open_tensor(struct tensor *t, enum param_role role, int64_t rows,
                        int64_t columns)
{
    memset(t, 0, sizeof *t);
    t->param = (struct param){ .role = role,
                               .dims = columns > 0 ? 2 : 1,
                               .shape = { rows, columns },
                               .numel = rows * (columns > 0 ? columns : 1),
                               .block = 1 };
    t->params =
        (struct params){ .list = &t->param, .count = 1, .layer_blocks = 1 };
    fill(t->weights, t->param.numel);
    fill(t->gradient, t->param.numel);
}

static enum err update(const struct optimizer_ops *optimizer,
                       const struct optimizer_step *step, struct tensor *t,
                       int threads)
{
    const struct kernels *kernels = kernels_all()[0];
    const struct kernel_limits limits = {
        .threads = threads, .tokens = 1, .width = 1, .vocab = 1
    };
    struct kernel_ctx ctx = { .threads = threads };
    ctx.scratch_bytes = (kernels->scratch_bytes(&limits) + 63) / 64 * 64;
    ctx.scratch = aligned_alloc(64, ctx.scratch_bytes);
    struct optimizer_partition partition = {
        .params = &t->params,
        .elements = t->param.numel,
        .weights = t->weights,
        .gradient = t->gradient,
        .moments = { t->moment },
        .tensor = &t->param,
        .states = { t->states[0], t->states[1], t->states[2] },
        .scratch = t->scratch
    };
    enum err rc = optimizer->update(step, kernels, &ctx, &partition);
    free(ctx.scratch);
    return rc;
}

/* C = A B or, of a transposed B, A B^T. */
static void product(int64_t m, int64_t n, int64_t k, const double *a,
                    const double *b, bool transposed, double *c)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = 0.0;
            for (int64_t l = 0; l < k; l++)
                sum +=
                    a[i * k + l] * (transposed ? b[j * k + l] : b[l * n + j]);
            c[i * n + j] = sum;
        }
}

/* X = 3.4445 X + (-4.775 G + 2.0315 G G) X with G = X X^T, five times. */
static void orthogonalize(int64_t rows, int64_t columns, double *x)
{
    static double g[ELEMENTS], square[ELEMENTS], next[ELEMENTS];
    double norm = 0.0;
    for (int64_t i = 0; i < rows * columns; i++)
        norm += x[i] * x[i];
    for (int64_t i = 0; i < rows * columns; i++)
        x[i] /= sqrt(norm);
    for (int step = 0; step < 5; step++) {
        product(rows, rows, columns, x, x, true, g);
        product(rows, rows, rows, g, g, false, square);
        for (int64_t i = 0; i < rows * rows; i++)
            g[i] = -4.7750 * g[i] + 2.0315 * square[i];
        product(rows, columns, rows, g, x, false, next);
        for (int64_t i = 0; i < rows * columns; i++)
            x[i] = 3.4445 * x[i] + next[i];
    }
}

static void test_muon(int64_t rows, int64_t columns)
{
    static struct tensor t, other;
    static double x[ELEMENTS];
    const struct optimizer_step step = { .lr = 0.5,
                                         .decay = 0.125,
                                         .grad_scale = 0.25,
                                         .momentum = 0.75,
                                         .ns_steps = 5,
                                         .adjust_lr = ADJUST_ORIGINAL };
    double error = 0.0;
    double largest = 0.0;
    double rate = 0.5 * sqrt(fmax(1.0, (double)rows / (double)columns));
    open_tensor(&t, PARAM_OUT_WEIGHT, rows, columns);
    fill(t.moment, t.param.numel);
    other = t;
    other.params.list = &other.param;
    struct tensor before = t;
    for (int64_t i = 0; i < t.param.numel; i++) {
        double g = 0.25 * (double)t.gradient[i];
        double m = 0.75 * (double)t.moment[i] + 0.25 * g;
        x[i] = 0.75 * m + 0.25 * g;
    }
    orthogonalize(rows, columns, x);
    bool done = update(&optimizer_muon, &step, &t, 1) == ERR_OK &&
                update(&optimizer_muon, &step, &other, 3) == ERR_OK;
    for (int64_t i = 0; i < t.param.numel; i++) {
        double want = 0.875 * (double)before.weights[i] - rate * x[i];
        error = fmax(error, fabs((double)t.weights[i] - want));
        largest = fmax(largest, fabs(want));
    }
    tap_ok(done && error <= 1e-5 * largest, "muon %lld x %lld: within %g",
           (long long)rows, (long long)columns, error / largest);
    tap_ok(memcmp(t.weights, other.weights, sizeof t.weights) == 0 &&
               memcmp(t.moment, other.moment, sizeof t.moment) == 0,
           "the same bits on 3 threads");
}

/* Queries, keys and values are as if they were layers of their own. */
static void test_qkv(const struct optimizer_ops *optimizer)
{
    static struct tensor whole, part;
    const struct optimizer_step step = { .lr = 0.5,
                                         .grad_scale = 1.0,
                                         .ns_steps = 5,
                                         .count = 1,
                                         .clip_threshold = 0.75,
                                         .decay_rate = 0.8,
                                         .scale_parameter = true };
    const int64_t d = 16, begins[] = { 0, 16, 20 }, rows[] = { 16, 4, 4 };
    bool same = true;
    open_tensor(&whole, PARAM_WQKV_WEIGHT, 24, d);
    whole.param.tail = 16 * d;
    struct tensor before = whole;
    same = update(optimizer, &step, &whole, 2) == ERR_OK;
    for (int i = 0; i < 3; i++) {
        size_t bytes = (size_t)(rows[i] * d) * sizeof(float);
        open_tensor(&part, PARAM_OUT_WEIGHT, rows[i], d);
        memcpy(part.weights, before.weights + begins[i] * d, bytes);
        memcpy(part.gradient, before.gradient + begins[i] * d, bytes);
        same = same && update(optimizer, &step, &part, 1) == ERR_OK &&
               memcmp(part.weights, whole.weights + begins[i] * d, bytes) == 0;
    }
    tap_ok(same, "%s: queries, keys and values are three matrices",
           optimizer->name);
}

static void test_adafactor(int64_t rows, int64_t columns)
{
    static struct tensor t;
    static double u[ELEMENTS];
    struct optimizer_step step = { .lr = 0.01,
                                   .decay = 0.125,
                                   .grad_scale = 0.5,
                                   .clip_threshold = 0.75,
                                   .decay_rate = 0.8 };
    double row[64] = { 0 }, column[64] = { 0 };
    double error = 0.0;
    bool done = true;
    open_tensor(&t, PARAM_OUT_WEIGHT, rows, columns);
    for (step.count = 1; step.count <= 3; step.count++) {
        double keep = 1.0 - pow((double)step.count, -0.8), mean = 0, sum = 0;
        struct tensor before;
        fill(t.gradient, t.param.numel);
        before = t;
        done = done && update(&optimizer_adafactor, &step, &t, 2) == ERR_OK;
        for (int64_t r = 0; r < rows; r++)
            row[r] *= keep;
        for (int64_t c = 0; c < columns; c++)
            column[c] *= keep;
        for (int64_t i = 0; i < rows * columns; i++) {
            double g = 0.5 * (double)t.gradient[i];
            row[i / columns] += (1 - keep) * g * g / (double)columns;
            column[i % columns] += (1 - keep) * g * g / (double)rows;
        }
        for (int64_t r = 0; r < rows; r++)
            mean += row[r] / (double)rows;
        for (int64_t i = 0; i < rows * columns; i++) {
            u[i] = 0.5 * (double)t.gradient[i] /
                   sqrt(row[i / columns] * column[i % columns] / mean);
            sum += u[i] * u[i] / (double)(rows * columns);
        }
        for (int64_t i = 0; i < rows * columns; i++) {
            double want = 0.875 * (double)before.weights[i] -
                          0.01 * u[i] / fmax(1.0, sqrt(sum) / 0.75);
            error = fmax(error, fabs((double)t.weights[i] - want));
        }
    }
    tap_ok(done && error <= 1e-6, "adafactor %lld x %lld: within %g",
           (long long)rows, (long long)columns, error);
}

/* 500 usual gradients before any can be an outlier. */
static void test_outliers(const struct optimizer_ops *optimizer)
{
    static struct tensor t;
    struct optimizer_step step = { .lr = 0x1p-10,
                                   .grad_scale = 1.0,
                                   .beta1 = 0.5,
                                   .beta2 = 0.0,
                                   .outlier_threshold = 4.0,
                                   .outlier_penalty = 0.5,
                                   .outlier_floor = 0.1,
                                   .outlier_timeout = 2 };
    bool clips = optimizer == &optimizer_clip_lion;
    float moved[508];
    open_tensor(&t, PARAM_OUT_WEIGHT, 1, 2);
    for (int i = 0; i < 508; i++) {
        float before = t.weights[0];
        float size = i == 400 || i == 502 || i == 503 ? 8.0f : 1.0f;
        t.gradient[0] = 0.6f * size;
        t.gradient[1] = 0.8f * size;
        if (update(optimizer, &step, &t, 1) != ERR_OK)
            break;
        moved[i] = (before - t.weights[0]) / 0x1p-10f;
        if (i == 502)
            tap_is_close((double)t.moment[0], clips ? 0.6 * 4.0 : 0.6 * 8.0,
                         1e-5, "%s: the moment after an outlier",
                         optimizer->name);
    }
    static const double rates[] = { 1, 1, 0.5, 0.25, 0.25, 0.5, 1, 1 };
    bool right = true;
    for (int i = 0; i < 8; i++)
        right = right &&
                fabs((double)moved[500 + i] - (clips ? 1.0 : rates[i])) < 1e-3;
    tap_ok(right && fabs((double)moved[400] - 1.0) < 1e-3, "%s: its rates",
           optimizer->name);
}

/* Without momentum there is nothing that dampening is of (torch.optim.SGD). */
static void test_sgd(void)
{
    static struct tensor t;
    int index = 0;
    double error = 0.0;
    struct optimizer_step step = {
        .lr = 0.5, .grad_scale = 0.25, .dampening = 0.75, .count = 7
    };
    open_tensor(&t, PARAM_OUT_WEIGHT, 12, 20);
    const struct tensor before = t;
    while (strcmp(optimizer_names[index], "sgd") != 0)
        index++;
    bool done = update(optimizer_at(index), &step, &t, 1) == ERR_OK;
    for (int64_t i = 0; i < t.param.numel; i++) {
        double want =
            (double)before.weights[i] - 0.125 * (double)before.gradient[i];
        error = fmax(error, fabs((double)t.weights[i] - want));
    }
    tap_ok(done && error < 1e-6, "sgd, dampening without momentum: off by %.1e",
           error);
}

int main(void)
{
    test_sgd();
    test_muon(12, 20);
    test_muon(31, 9);
    test_muon(16, 16);
    test_qkv(&optimizer_muon);
    test_qkv(&optimizer_adafactor);
    test_adafactor(12, 20);
    test_adafactor(40, 7);
    test_outliers(&optimizer_adalr_lion);
    test_outliers(&optimizer_clip_lion);
    return tap_done();
}
