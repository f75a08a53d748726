/* The CPU's kernel sets give the same bits: every op runs with every set and
 * with 1 and 3 threads on the same operands, of sizes that no vector divides
 * and with numbers that sloppy arithmetic treats differently. A NaN may have
 * any payload. */
#include "src/base/array.h"
#include "src/base/digest.h"
#include "tests/kernel_check.h"

/* Who computes, and what ops wrote, one output after the other. */
static const struct kernels *table;
static struct kernel_ctx ctx;
static struct buffer kept;

static void keep(const void *from, size_t bytes)
{
    if (buffer_add(&kept, from, bytes) != ERR_OK)
        abort();
}

static void keep_f32(const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float y = isnan(x[i]) ? check_nan() : x[i];
        keep(&y, sizeof(y));
    }
}

static const int64_t sizes[] = { 1,  2,  3,  7,   8,   9,    15,   16,   17,
                                 31, 33, 63, 100, 127, 1000, 1025, 5003, 0 };

/* Mostly numbers of order 1, with all that a float can be among them. */
static float *operand(int64_t n, uint64_t seed)
{
    static const float odd[] = { 0.0f,         -0.0f,         0x1p-149f,
                                 -0x1.8p-127f, 0x1p-126f,     0x1.fffffep127f,
                                 -0x1p100f,    1.0f,          -87.3f,
                                 88.3f,        3.919f,        -0x1p-64f,
                                 INFINITY,     -INFINITY,     NAN,
                                 1.5f,         0x1.fffffep-1f };
    const int kinds = sizeof odd / sizeof odd[0];
    float *x = check_random(n, seed, 4.0);
    for (int64_t i = 0; i < n; i++) {
        int kind = (int)((check_uniform(seed + 1, i) + 1.0) * 4.0 * kinds);
        if (kind < kinds)
            x[i] = odd[kind];
    }
    return x;
}

/* The same without what overflows and spreads to a whole row: zeros and
 * denormals among numbers of many sizes. */
static float *tame(int64_t n, uint64_t seed)
{
    static const float scales[] = { 1.0f, 1.0f, 0x1p-10f, 3.0f,
                                    0.0f, 1.0f, 0x1p-80f, 0x1p-130f };
    float *x = check_random(n, seed, 1.0);
    for (int64_t i = 0; i < n; i++)
        x[i] *= scales[(int)((check_uniform(seed + 1, i) + 1.0) * 4.0)];
    return x;
}

#define RUN(op, ...)                                                           \
    do {                                                                       \
        if (table->op(&ctx, __VA_ARGS__) != ERR_OK)                            \
            abort();                                                           \
    } while (0)

static void run_embedding(void)
{
    enum { N = 37, SEQ = 9, VOCAB = 11 };
    int32_t *tokens = check_alloc(N * sizeof(*tokens));
    for (int i = 0; i < N; i++)
        tokens[i] = (int32_t)((check_uniform(1, i) + 1.0) * VOCAB / 2);
    for (const int64_t *d = sizes; *d != 0; d++) {
        float *wte = operand(VOCAB * *d, 2), *wpe = operand(SEQ * *d, 3);
        float *out = check_poisoned(N * *d);
        RUN(embedding_forward, DTYPE_F32, N, SEQ, *d, tokens, wte, wpe, out);
        RUN(embedding_backward, DTYPE_F32, N, SEQ, *d, tokens, out, wte, wpe);
        keep_f32(out, N * *d);
        keep_f32(wte, VOCAB * *d);
        keep_f32(wpe, SEQ * *d);
    }
}

/* Rows of one kind and size, forward and backward. */
static void norm_rows(const struct norm *norm)
{
    int64_t n = norm->n * norm->stride, groups = norm->n * norm->groups;
    int64_t width = norm->shared ? norm->d : norm->groups * norm->d;
    float *a = tame(n, 4), *b = tame(n, 5), *gamma = tame(width, 6);
    float *beta = tame(width, 7), *x = check_copy(a, n), *y = check_copy(a, n);
    float *mean = check_poisoned(groups), *rstd = check_poisoned(groups);
    float *dx = tame(n, 8);
    if (norm->groups == 1)
        RUN(add_norm_forward, DTYPE_F32, norm, a, 0.3f, b, x, gamma, beta, y,
            mean, rstd);
    else
        RUN(norm_forward, DTYPE_F32, norm, x, gamma, beta, y, mean, rstd);
    RUN(norm_backward, DTYPE_F32, norm, b, x, gamma, mean, rstd, true, dx, a,
        beta);
    keep_f32(y, n);
    keep_f32(mean, groups);
    keep_f32(rstd, groups);
    keep_f32(dx, n);
    keep_f32(a, width);
    keep_f32(beta, width);
}

static void run_norm(void)
{
    for (const int64_t *d = sizes; *d != 0; d++)
        for (int kind = 0; kind < 8; kind++) {
            struct norm norm = {
                .kind = kind & 1 ? NORM_RMS : NORM_LAYER,
                .n = 19,
                .groups = kind & 2 ? 3 : 1,
                .d = *d,
                .stride = kind & 2 ? 3 * *d + 5 : *d,
                .shared = true,
                .eps = 1e-5f,
                .low_precision = kind & 4,
            };
            norm_rows(&norm);
        }
}

static void activate(enum activation act, int64_t n)
{
    float *x = operand(n, 9), *dy = operand(n, 10);
    float *y = check_poisoned(n), *dx = check_poisoned(n);
    RUN(activation_forward, DTYPE_F32, act, n, x, y);
    RUN(activation_backward, DTYPE_F32, act, n, x, dy, dx);
    keep_f32(y, n);
    keep_f32(dx, n);
}

static void gate(enum activation act, int64_t width)
{
    enum { N = 3 };
    int64_t n = N * width;
    float *x = operand(n, 11), *up = operand(n, 12);
    float *dy = operand(n, 13), *y = check_poisoned(n);
    RUN(glu_forward, DTYPE_F32, act, N, width, width, x, up, y);
    RUN(glu_backward, DTYPE_F32, act, N, width, width, x, up, dy, x, up);
    keep_f32(y, n);
    keep_f32(x, n);
    keep_f32(up, n);
}

static void run_activation(void)
{
    for (const int64_t *n = sizes; *n != 0; n++) {
        activate(ACTIVATION_GELU, *n);
        activate(ACTIVATION_SILU, *n);
    }
}

static void run_glu(void)
{
    for (const int64_t *width = sizes; *width != 0; width++) {
        gate(ACTIVATION_GELU, *width);
        gate(ACTIVATION_SILU, *width);
    }
}

static void run_gelu_tanh(void)
{
    for (const int64_t *n = sizes; *n != 0; n++) {
        activate(ACTIVATION_GELU_TANH, *n);
        gate(ACTIVATION_GELU_TANH, *n);
    }
}

static void run_clip(void)
{
    for (const int64_t *n = sizes; *n != 0; n++) {
        float *x = operand(*n, 14), *dx = operand(*n, 15);
        RUN(clip_forward, DTYPE_F32, *n, 1.5f, x);
        RUN(clip_backward, DTYPE_F32, *n, 1.5f, x, dx);
        keep_f32(x, *n);
        keep_f32(dx, *n);
    }
}

static void run_rope(void)
{
    enum { N = 10, SEQ = 5, HEADS = 3, ROTATED = 2 };
    for (int64_t head_dim = 2; head_dim < 150; head_dim += 14) {
        int64_t n = N * HEADS * head_dim;
        float *x = operand(n, 16), *turns = tame(SEQ * head_dim, 17);
        for (int inverse = 0; inverse < 2; inverse++) {
            RUN(rope, DTYPE_F32, N, SEQ, HEADS, ROTATED, head_dim, turns,
                inverse, x);
            keep_f32(x, n);
        }
    }
}

static void run_random(void)
{
    enum { SAMPLES = 3 };
    const struct random_place place = { .seed = 18, .stream = 19 };
    for (const int64_t *d = sizes; *d != 0; d++) {
        int64_t n = SAMPLES * *d;
        float *x = operand(n, 20), *y = check_poisoned(n);
        for (int dropped = 0; dropped < 3; dropped++) {
            RUN(dropout, DTYPE_F32, SAMPLES, *d, 0.25f * (float)dropped, &place,
                0.7f, x, y);
            keep_f32(y, n);
        }
        RUN(jitter, DTYPE_F32, SAMPLES, *d, 0.1f, &place, x, y);
        keep_f32(y, n);
    }
}

static void keep_losses(bool plain)
{
    enum { N = 7 };
    int32_t *labels = check_alloc(N * sizeof(*labels));
    float *losses = check_poisoned(N);
    for (const int64_t *vocab = sizes; *vocab != 0; vocab++) {
        float *logits = check_random(N * *vocab, 21, 12.0);
        float *wild = operand(*vocab, 22);
        memcpy(logits, wild, (size_t)*vocab * sizeof(*wild));
        for (int i = 0; i < N; i++)
            labels[i] = i == 3 ? -1 : (int32_t)(i * 977 % *vocab);
        const struct target target = {
            .smoothing = !plain && *vocab % 2 ? 0.1f : 0,
            .z = !plain && *vocab % 3 ? 1e-3f : 0,
        };
        RUN(cross_entropy, DTYPE_F32, N, *vocab, 0.9f, &target, logits, labels,
            true, losses);
        keep_f32(losses, N);
        keep_f32(logits, N * *vocab);
    }
}

static void run_cross_entropy(void)
{
    keep_losses(true);
}

static void run_targets(void)
{
    keep_losses(false);
}

static void route_one(const struct route *route)
{
    int64_t n = route->n * route->experts, choices = route->n * route->top_k;
    float *probs = check_random(n, 23, 3.0), *weights = check_poisoned(choices);
    float *dweights = tame(choices, 24), *dlogits = check_poisoned(n);
    float *dprobs = tame(route->experts, 25);
    int32_t *chosen = check_alloc((size_t)choices * 4);
    int32_t *place = check_alloc((size_t)choices * 4);
    int32_t *source = check_alloc((size_t)choices * 4);
    int64_t *offsets = check_alloc((size_t)(route->experts + 1) * 8);
    int64_t *counts = check_alloc((size_t)route->experts * 8);
    double *sums = check_f64(route->experts), *loss = check_f64(1);
    memset(counts, 0, (size_t)route->experts * 8);
    RUN(route_forward, route, probs, chosen, weights);
    RUN(route_sort, route, chosen, offsets, place, source);
    RUN(route_sums, route, probs, sums);
    RUN(balance_forward, route, 0.01, offsets, sums, counts, loss);
    RUN(balance_backward, route, 0.01, offsets, dprobs);
    RUN(route_backward, route, probs, chosen, dweights, dprobs, dlogits);
    keep(chosen, (size_t)choices * 4);
    keep(place, (size_t)choices * 4);
    keep(source, (size_t)choices * 4);
    keep(offsets, (size_t)(route->experts + 1) * 8);
    keep(counts, (size_t)route->experts * 8);
    keep(sums, (size_t)route->experts * 8);
    keep(loss, 8);
    keep_f32(probs, n);
    keep_f32(weights, choices);
    keep_f32(dlogits, n);
    keep_f32(dprobs, route->experts);
}

static void run_route(void)
{
    static const float norms[] = { 0.0f, 1.0f, 2.0f, 1.25f, 3.0f, 7.5f };
    static const int experts[] = { 3, 8, 16, 29, 64, 100 };
    for (int i = 0; i < 6; i++)
        for (int j = 0; j < 6; j++) {
            const struct route route = { .n = 131,
                                         .experts = experts[i],
                                         .top_k = 3,
                                         .normalize = norms[j] };
            route_one(&route);
        }
}

static void run_expert(void)
{
    enum { N = 5, K = 2, ROWS = N * K };
    const struct route route = { .n = N, .experts = 4, .top_k = K };
    int32_t *place = check_alloc(ROWS * 4), *source = check_alloc(ROWS * 4);
    for (int i = 0; i < ROWS; i++) {
        place[i] = i * 3 % ROWS;
        source[place[i]] = i;
    }
    for (const int64_t *d = sizes; *d != 0; d++) {
        int64_t n = ROWS * *d;
        float *x = tame(N * *d, 26), *h = check_poisoned(n), *dh = tame(n, 27);
        float *weights = tame(ROWS, 28), *dweights = check_poisoned(ROWS);
        RUN(expert_gather, DTYPE_F32, &route, *d, source, x, h);
        RUN(expert_weigh, DTYPE_F32, &route, *d, source, weights, h, dh,
            dweights);
        keep_f32(dweights, ROWS);
        RUN(expert_combine, DTYPE_F32, &route, *d, place, NULL, h, x);
        keep_f32(x, N * *d);
        RUN(expert_combine, DTYPE_F32, &route, *d, place, weights, dh, x);
        keep_f32(x, N * *d);
        keep_f32(h, n);
        keep_f32(dh, n);
    }
}

static void run_pack(void)
{
    enum { ROWS = 4 };
    for (const int64_t *d = sizes; *d != 0; d++)
        for (enum packing packing = PACKING_NONE; packing <= PACKING_INT8;
             packing++) {
            int64_t n = ROWS * *d;
            size_t bytes = kernels_packed_bytes(packing, ROWS, *d);
            float *x = tame(n, 29), *wild = operand(*d, 30);
            void *packed = check_alloc(bytes);
            memset(packed, 0, bytes);
            memcpy(x + *d, wild, (size_t)*d * sizeof(*x));
            RUN(pack, DTYPE_F32, packing, ROWS, *d, x, packed);
            RUN(unpack, DTYPE_F32, packing, ROWS, *d, packed, x);
            keep_f32(x, n);
            if (packing == PACKING_INT8) /* the others may hold a NaN */
                keep((float *)packed + ROWS, (size_t)n);
        }
}

static void run_elementwise(void)
{
    enum { N = 53 };
    for (const int64_t *d = sizes; *d != 0; d++) {
        int64_t n = N * *d;
        float *x = operand(n, 31), *y = tame(n, 32), *bias = tame(*d, 33);
        uint16_t *half = check_alloc((size_t)n * sizeof(*half));
        RUN(bias_backward, DTYPE_F32, N, *d, y, bias);
        keep_f32(bias, *d);
        RUN(accumulate, DTYPE_F32, n, x, y);
        keep_f32(y, n);
        RUN(add, DTYPE_F32, n, x, -1.3f, y, y);
        keep_f32(y, n);
        RUN(convert, n, DTYPE_F32, x, DTYPE_BF16, half);
        RUN(convert, n, DTYPE_BF16, half, DTYPE_F32, y);
        keep_f32(y, n);
        RUN(copy_rows, DTYPE_F32, N, *d, *d, x, *d, y);
        keep_f32(y, n);
        RUN(zero, DTYPE_F32, n, x);
        keep_f32(x, n);
    }
}

static void run_sums(void)
{
    enum { CHUNKS = 5 };
    int64_t n = CHUNKS * KERNEL_CHUNK;
    float *x = tame(n, 34);
    double *out = check_f64(CHUNKS);
    RUN(chunk_sum_squares, DTYPE_F32, n, x, out);
    keep(out, CHUNKS * sizeof(*out));
    for (const int64_t *size = sizes; *size != 0; size++)
        for (int whole = 0; whole < 2; whole++) {
            RUN(sum, whole ? n - *size : *size, x, out);
            keep(out, sizeof(*out));
        }
}

static void run_optimizers(void)
{
    struct adamw step = { .lr = 1e-3f,
                          .decay = 1e-4f,
                          .beta1 = 0.9f,
                          .beta2 = 0.95f,
                          .eps = 1e-8f,
                          .correction1 = 0.19f,
                          .correction2 = 0.0975f,
                          .grad_scale = 0.37f };
    for (const int64_t *n = sizes; *n != 0; n++) {
        float *p = tame(*n, 35), *g = operand(*n, 36), *m = tame(*n, 37);
        float *v = tame(*n, 38);
        for (int64_t i = 0; i < *n; i++)
            v[i] = fabsf(v[i]);
        step.copy =
            check_poisoned(*n); /* twice as long as its numbers in bf16 */
        memset(step.copy, 0, (size_t)*n * sizeof(float));
        float *moments[UPDATE_MOMENTS] = { m, v };
        struct lion lion = { .lr = step.lr,
                             .decay = step.decay,
                             .beta1 = step.beta1,
                             .beta2 = step.beta2,
                             .grad_scale = step.grad_scale,
                             .copy = step.copy };
        RUN(adamw, DTYPE_F32, *n, &step, p, g, moments);
        keep_f32(p, *n);
        RUN(lion, DTYPE_F32, *n, &lion, p, g, moments);
        keep_f32(p, *n);
        keep_f32(m, *n);
        keep_f32(v, *n);
    }
}

/* One row and many, of every type. */
static void run_panels(void)
{
    enum { M = 20, N = 45 };
    for (const int64_t *k = sizes; *k <= 1025; k++)
        for (int type = PANEL_F32; type <= PANEL_INT8; type++) {
            const struct panels shape = { (enum panel_type)type, 1, N, *k };
            size_t bytes = kernels_panels_bytes(&shape);
            float *x = tame(N * *k, 51), *a = tame(M * *k, 52);
            float *bias = tame(N, 53), *c = check_poisoned(M * N);
            void *panels = check_alloc(bytes);
            struct panels_product product = {
                .shape = shape, .panels = panels, .a = a, .c = c, .bias = bias
            };
            RUN(panels_fill, &shape, false, x, panels);
            keep(panels, bytes);
            for (product.m = 1; product.m <= M; product.m += 4)
                RUN(panels_product, &product);
            keep_f32(c, M * N - 3 * N);
        }
}

/* Two slots' rows, all at once. */
static void run_cached(void)
{
    enum { HEADS = 4, KV = 2, LENGTH = 45, CAPACITY = 48, ROWS = 2 * LENGTH };
    int32_t *slots = check_alloc(ROWS * sizeof *slots);
    int32_t *positions = check_alloc(ROWS * sizeof *positions);
    for (int i = 0; i < ROWS; i++) {
        slots[i] = i / LENGTH;
        positions[i] = i % LENGTH;
    }
    for (const int64_t *d = sizes; *d < 1000; d++) {
        int64_t cache = 2 * KV * CAPACITY * *d;
        float *qkv = tame(ROWS * (HEADS + 2 * KV) * *d, 54);
        float *out = check_poisoned(ROWS * HEADS * *d);
        float *slopes = tame(HEADS, 55);
        const struct attention_cached shape = {
            .rows = ROWS,
            .heads = HEADS,
            .kv_heads = KV,
            .head_dim = *d,
            .scale = 0.3f,
            .alibi_slopes = slopes,
            .slots = slots,
            .positions = positions,
            .capacity = CAPACITY,
            .keys = check_poisoned(cache),
            .values = check_poisoned(cache),
        };
        RUN(attention_cached, &shape, qkv, out);
        keep_f32(out, ROWS * HEADS * *d);
    }
}

/* Sixteen leaves of a binary tree. */
static void run_add_tree(void)
{
    for (const int64_t *n = sizes; *n != 0; n++) {
        struct add_tree tree = { .count = ADD_TREE_VALUES };
        float *out = check_poisoned(*n);
        for (int i = 0; i < ADD_TREE_VALUES; i++) {
            float *x =
                i % 5 == 0 ? operand(*n, 60) : tame(*n, 61 + (uint64_t)i);
            uint16_t *half = check_alloc((size_t)*n * sizeof *half);
            RUN(convert, *n, DTYPE_F32, x, DTYPE_BF16, half);
            tree.bf16[i] = i % 3 == 1;
            tree.values[i] = tree.bf16[i] ? (void *)half : x;
            for (int at = i; at % 2 == 1; at /= 2)
                tree.folds[i]++;
        }
        RUN(add_tree, *n, &tree, out);
        keep_f32(out, *n);
    }
}

/* With the CRC32C of the bits, which every compiler and processor must come to:
 * whoever changes an op's bits on purpose raises KERNEL_ARITHMETIC and records
 * the new ones. Products and attention are the last to come. */
static const struct {
    const char *op;
    void (*run)(void);
    uint32_t crc;
} cases[] = {
    { "embedding", run_embedding, 0x613fad51 },
    { "norm", run_norm, 0x26414a9e },
    { "activation", run_activation, 0x9b5ab8d4 },
    { "glu", run_glu, 0x34a71ce6 },
    { "gelu with tanh", run_gelu_tanh, 0xb5617213 },
    { "clip", run_clip, 0xb4aa94ff },
    { "rope", run_rope, 0xeb4bc25f },
    { "dropout and jitter", run_random, 0x68a4e067 },
    { "cross_entropy", run_cross_entropy, 0x5ab97fa2 },
    { "cross_entropy of targets", run_targets, 0xfa74a2d1 },
    { "routing", run_route, 0x96fd0475 },
    { "experts", run_expert, 0xb8d06915 },
    { "pack", run_pack, 0x75265abc },
    { "elementwise", run_elementwise, 0x2d9a297d },
    { "add_tree", run_add_tree, 0x3a88a5a3 },
    { "panels", run_panels, 0xea80a758 },
    { "attention over a cache", run_cached, 0x25a4fc12 },
    { "sums", run_sums, 0xda75f4ff },
    { "optimizers", run_optimizers, 0xdf233881 },
};

#define CASES (sizeof cases / sizeof cases[0])

/* Runs all cases; the first time `want` is filled instead. */
static void check_table(int threads, struct buffer want[CASES])
{
    const struct kernel_limits limits = { .tokens = 200,
                                          .width = 5003 * 3,
                                          .heads = 1,
                                          .head_dim = 8,
                                          .experts = 100,
                                          .positions = 48 };
    for (size_t i = 0; i < CASES; i++) {
        ctx = check_ctx(table, limits, threads);
        kept = (struct buffer){ 0 };
        cases[i].run();
        check_release();
        if (want[i].bytes == 0) {
            want[i] = kept;
            continue;
        }
        tap_ok(kept.bytes == want[i].bytes &&
                   memcmp(kept.data, want[i].data, kept.bytes) == 0,
               "%s/%s: %s has the bits of the first set with %d threads",
               table->backend, table->kernel_set, cases[i].op, threads);
        buffer_free(&kept);
    }
}

int main(void)
{
    struct buffer want[CASES] = { 0 };
    for (const struct kernels *const *t = kernels_all(); *t != NULL; t++) {
        table = *t;
        for (int threads = 1; threads <= 3; threads += 2)
            if (strcmp(table->backend, "cpu") == 0)
                check_table(threads, want);
    }
    for (size_t i = 0; i < CASES; i++) {
        uint32_t crc = crc32c(0, want[i].data, want[i].bytes);
        if (!tap_ok(crc == cases[i].crc, "%s has the bits on record",
                    cases[i].op))
            tap_note("0x%08x", crc);
        buffer_free(&want[i]);
    }
    return tap_done();
}
