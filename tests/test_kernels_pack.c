/* Packing on every table: to bf16 against rounding in fp64, to int8, from fp32
 * and from bf16, against its error bound. */
#include "tests/bf16_tensor.h"

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* Packs on 1, 2 and 3 threads into poisoned memory, unpacks into `out`; true if
 * all bytes were the same and none behind the end was written. */
static bool round_trip(const struct kernels *table, enum packing packing,
                       int64_t rows, int64_t cols, const float *x, float *out)
{
    size_t bytes = kernels_packed_bytes(packing, rows, cols);
    unsigned char *first = NULL;
    bool same = true;
    for (int t = 1; t <= CHECK_THREADS_MAX; t++) {
        struct kernel_ctx ctx = { .threads = t };
        unsigned char *packed = check_alloc(bytes + 64);
        float *back = check_poisoned(rows * cols + 1);
        memset(packed, 0xff, bytes + 64);
        table->pack(&ctx, DTYPE_F32, packing, rows, cols, x, packed);
        table->unpack(&ctx, DTYPE_F32, packing, rows, cols, packed, back);
        for (size_t i = bytes; i < bytes + 64; i++)
            same &= packed[i] == 0xff;
        same &= isnan(back[rows * cols]);
        if (first == NULL) {
            memcpy(out, back, (size_t)(rows * cols) * sizeof(float));
            first = packed;
            continue;
        }
        same &= memcmp(packed, first, bytes) == 0 &&
                check_same(back, out, rows * cols);
    }
    return same;
}

static void check_exact(const struct kernels *table, enum packing packing,
                        int64_t rows, int64_t cols)
{
    int64_t n = rows * cols;
    float *x = check_random(n, 1, 300), *got = check_poisoned(n);
    bool same = round_trip(table, packing, rows, cols, x, got), right = true;
    for (int64_t i = 0; i < n; i++)
        right &=
            got[i] == (packing == PACKING_BF16 ? check_bf16_of(x[i]) : x[i]);
    check_that(table, right && same,
               "pack %s: %lld x %lld exact, same on 1, 2, 3 threads",
               packing == PACKING_BF16 ? "bf16" : "none", (long long)rows,
               (long long)cols);
    check_release();
}

/* All tables pack into the same bytes: what one writes another may read. */
static void check_bytes(const struct kernels *table, enum packing packing)
{
    enum { ROWS = 13, COLS = 131 };
    const struct kernels *tables[] = { kernels_all()[0], table };
    size_t bytes = kernels_packed_bytes(packing, ROWS, COLS);
    float *x = check_random(ROWS * COLS, 1, 1);
    struct kernel_ctx ctx = { .threads = 1 };
    unsigned char *packed[2];
    for (int i = 0; i < 2; i++) {
        packed[i] = check_alloc(bytes);
        memset(packed[i], 0, bytes);
        tables[i]->pack(&ctx, DTYPE_F32, packing, ROWS, COLS, x, packed[i]);
    }
    check_that(table, memcmp(packed[0], packed[1], bytes) == 0,
               "pack %s: the bytes of %s/%s",
               packing == PACKING_BF16 ? "bf16" : "int8", tables[0]->backend,
               tables[0]->kernel_set);
    check_release();
}

static void check_bf16_edges(const struct kernels *table)
{
    static const struct {
        uint32_t in, out;
    } edges[] = {
        { 0x00000000, 0x00000000 }, { 0x80000000, 0x80000000 },
        { 0x3f808000, 0x3f800000 }, /* a tie goes to even, down */
        { 0x3f818000, 0x3f820000 }, /* a tie goes to even, up */
        { 0x3f808001, 0x3f810000 }, { 0x3f807fff, 0x3f800000 },
        { 0xbf818000, 0xbf820000 }, { 0x3fffffff, 0x40000000 },
        { 0x7f7f7fff, 0x7f7f0000 }, /* the largest */
        { 0x7f7f8000, 0x7f800000 }, /* rounds to Inf */
        { 0x7f800000, 0x7f800000 }, { 0xff800000, 0xff800000 },
        { 0x00000001, 0x00000000 }, { 0x00018000, 0x00020000 },
    };
    static const uint32_t nans[] = { 0x7fc00000, 0x7f800001, 0x7fffffff,
                                     0xffffffff, 0xff80ffff, 0x7fc12345 };
    enum {
        EDGES = sizeof(edges) / sizeof(*edges),
        NANS = sizeof(nans) / sizeof(*nans),
    };
    float *x = check_poisoned(EDGES + NANS);
    float *got = check_poisoned(EDGES + NANS);
    for (size_t i = 0; i < EDGES; i++)
        x[i] = float_of(edges[i].in);
    for (size_t i = 0; i < NANS; i++)
        x[EDGES + i] = float_of(nans[i]);
    bool right = round_trip(table, PACKING_BF16, 1, EDGES + NANS, x, got);
    for (size_t i = 0; i < EDGES; i++) {
        float want = float_of(edges[i].out);
        bool same = check_same(&got[i], &want, 1);
        if (!same)
            tap_note("%08x", edges[i].in);
        right &= same;
    }
    check_that(table, right, "pack bf16: ties, limits and Inf");
    check_that(table, check_all_nan(got + EDGES, NANS),
               "pack bf16: NaN stays NaN");
    check_release();
}

/* Every row has its own size; its largest is kept up to fp32 rounding. */
static void check_int8(const struct kernels *table, int64_t rows, int64_t cols)
{
    int64_t n = rows * cols;
    float *x = check_random(n, 1, 1), *got = check_poisoned(n);
    bool near = true;
    for (int64_t i = 0; i < n; i++)
        x[i] =
            i / cols % 4 == 3 ? 0 : ldexpf(x[i], (int)(i / cols % 19) * 8 - 80);
    bool same = round_trip(table, PACKING_INT8, rows, cols, x, got);
    for (int64_t i = 0; i < rows; i++) {
        const float *row = x + i * cols;
        double peak = 0;
        for (int64_t j = 0; j < cols; j++)
            peak = fmax(peak, fabs((double)row[j]));
        for (int64_t j = 0; j < cols; j++) {
            double off = fabs((double)got[i * cols + j] - (double)row[j]);
            bool largest = fabs((double)row[j]) == peak;
            near &= off <= (largest ? 1e-6 * peak : 0.50001 * peak / 127);
        }
    }
    check_that(table, same && near,
               "pack int8: %lld x %lld within half a step, same on 1, 2, 3 "
               "threads",
               (long long)rows, (long long)cols);
    check_release();
}

static void check_int8_edges(const struct kernels *table)
{
    enum { ROWS = 6, COLS = 21 };
    float *x = check_random(ROWS * COLS, 1, 1);
    float *got = check_poisoned(ROWS * COLS);
    struct kernel_ctx ctx = { .threads = 1 };
    float *scales = check_alloc(kernels_packed_bytes(PACKING_INT8, ROWS, COLS));
    for (int j = 0; j < COLS; j++) {
        x[j] = 0;
        x[COLS + j] = -0.0f;
        x[2 * COLS + j] *= 0x1p-121f;
        x[5 * COLS + j] = (float)j - 10 + (j % 2 ? 0.5f : 0);
    }
    x[3 * COLS + 20] = check_nan();
    x[4 * COLS + 3] = -INFINITY;
    x[5 * COLS] = -127; /* a scale of 1: ties are seen */
    table->pack(&ctx, DTYPE_F32, PACKING_INT8, ROWS, COLS, x, scales);
    table->unpack(&ctx, DTYPE_F32, PACKING_INT8, ROWS, COLS, scales, got);
    bool zero = scales[0] == 0 && scales[1] == 0 && scales[2] == 0;
    bool even = scales[5] == 1;
    for (int j = 0; j < 3 * COLS; j++)
        zero &= got[j] == 0;
    for (int j = 0; j < COLS; j++)
        even &= got[5 * COLS + j] == nearbyintf(x[5 * COLS + j]);
    check_that(table, zero, "pack int8: rows of zeros have scale 0");
    check_that(table,
               check_all_nan(got + 3 * COLS, 2 * COLS) && isnan(scales[3]) &&
                   isnan(scales[4]),
               "pack int8: a row with NaN or Inf becomes NaN");
    check_that(table, even, "pack int8: ties go to even");
    check_release();
}

/* The bytes are those of the same numbers in fp32, and what comes back is off
 * by half a step and one rounding. */
static void check_int8_half(const struct kernels *table, int64_t rows,
                            int64_t cols)
{
    int64_t n = rows * cols;
    size_t bytes = kernels_packed_bytes(PACKING_INT8, rows, cols);
    struct kernel_ctx ctx = { .threads = 1 };
    struct tensor x = tensor_random(n + 1, 1, 1),
                  got = tensor_random(n + 1, 2, 1);
    unsigned char *packed = check_alloc(bytes), *want = check_alloc(bytes);
    uint16_t guard = got.half[n];
    bool near = true;
    for (int64_t i = 0; i < n; i++)
        x.wide[i] = i / cols % 4 == 3
                        ? 0
                        : ldexpf(x.wide[i], (int)(i / cols % 19) * 8 - 80);
    tensor_narrow(&x);
    memset(packed, 0, bytes);
    memset(want, 0, bytes);
    kernels_all()[0]->pack(&ctx, DTYPE_F32, PACKING_INT8, rows, cols, x.wide,
                           want);
    table->pack(&ctx, DTYPE_BF16, PACKING_INT8, rows, cols, x.half, packed);
    table->unpack(&ctx, DTYPE_BF16, PACKING_INT8, rows, cols, packed, got.half);
    for (int64_t i = 0; i < rows; i++) {
        double peak = 0;
        for (int64_t j = i * cols; j < (i + 1) * cols; j++)
            peak = fmax(peak, fabs((double)x.wide[j]));
        for (int64_t j = i * cols; j < (i + 1) * cols; j++) {
            double back = (double)widened(got.half[j]);
            bool largest = fabs((double)x.wide[j]) == peak;
            near &= fabs(back - (double)x.wide[j]) <=
                    (largest ? 0 : 0.50001 * peak / 127 + fabs(back) / 256);
        }
    }
    check_that(table,
               near && memcmp(packed, want, bytes) == 0 && got.half[n] == guard,
               "pack bf16 to int8: %lld x %lld within half a step and a "
               "rounding, fp32's bytes",
               (long long)rows, (long long)cols);
}

static void check_int8_half_edges(const struct kernels *table)
{
    enum { ROWS = 4, COLS = 21 };
    struct tensor x = tensor_random(ROWS * COLS, 1, 1);
    struct tensor got = tensor_random(ROWS * COLS, 2, 1);
    struct kernel_ctx ctx = { .threads = 1 };
    void *packed = check_alloc(kernels_packed_bytes(PACKING_INT8, ROWS, COLS));
    bool zero = true, nan = true;
    for (int j = 0; j < COLS; j++) {
        x.wide[j] = -0.0f;
        x.wide[COLS + j] *= 0x1p-121f;
    }
    x.wide[2 * COLS + 20] = float_of(0x7fc10000);
    x.wide[3 * COLS + 3] = -INFINITY;
    tensor_narrow(&x);
    table->pack(&ctx, DTYPE_BF16, PACKING_INT8, ROWS, COLS, x.half, packed);
    table->unpack(&ctx, DTYPE_BF16, PACKING_INT8, ROWS, COLS, packed, got.half);
    for (int i = 0; i < 2 * COLS; i++) {
        zero &= widened(got.half[i]) == 0;
        nan &= isnan(widened(got.half[2 * COLS + i]));
    }
    check_that(table, zero && nan,
               "pack bf16 to int8: rows of zeros, and with NaN or Inf");
}

static void check_half(const struct kernels *table)
{
    uint16_t *x = check_alloc(64);
    void *packed = check_alloc(64);
    memset(x, 0, 64);
    bool lacks = check_lacks(
        table, table->pack(&(struct kernel_ctx){ .threads = 1 }, DTYPE_BF16,
                           PACKING_INT8, 1, 1, x, packed));
    if (lacks)
        return;
    check_int8_half(table, 1, 1);
    check_int8_half(table, 41, 67);
    check_int8_half(table, 23, 512);
    check_int8_half(table, 5, 4100);
    check_int8_half_edges(table);
    check_release();
}

/* bf16 to fp32 is exact, the way back rounds once: the bytes of `pack`. */
static void check_convert(const struct kernels *table, int64_t n)
{
    float *x = check_random(n, 1, 300), *back = check_poisoned(n + 1);
    size_t bytes = kernels_packed_bytes(PACKING_BF16, 1, n);
    uint16_t *packed = check_alloc(bytes);
    bool right = true;
    table->pack(&(struct kernel_ctx){ .threads = 1 }, DTYPE_F32, PACKING_BF16,
                1, n, x, packed);
    for (int t = 1; t <= CHECK_THREADS_MAX; t++) {
        struct kernel_ctx ctx = { .threads = t };
        uint16_t *half = check_alloc((size_t)(n + 1) * sizeof(*half));
        memset(half, 0xff, (size_t)(n + 1) * sizeof(*half));
        table->convert(&ctx, n, DTYPE_F32, x, DTYPE_BF16, half);
        table->convert(&ctx, n, DTYPE_BF16, half, DTYPE_F32, back);
        right &= memcmp(half, packed, (size_t)n * sizeof(*half)) == 0;
        right &= half[n] == 0xffff && isnan(back[n]);
        for (int64_t i = 0; i < n; i++)
            right &= back[i] == check_bf16_of(x[i]);
    }
    check_that(table, right, "convert: %lld elements to bf16 and back, exact",
               (long long)n);
    check_release();
}

int main(void)
{
    tap_is_int((long long)kernels_packed_bytes(PACKING_INT8, 3, 5), 64,
               "packed sizes are whole cache lines");
    for (const struct kernels *const *t = kernels_all(); *t != NULL; t++) {
        check_exact(*t, PACKING_NONE, 3, 4999);
        check_exact(*t, PACKING_BF16, 1, 1);
        check_exact(*t, PACKING_BF16, 7, 1357);
        check_exact(*t, PACKING_BF16, 2, 8192);
        check_bf16_edges(*t);
        check_int8(*t, 1, 1);
        check_int8(*t, 41, 67);
        check_int8(*t, 23, 512);
        check_int8_edges(*t);
        check_bytes(*t, PACKING_BF16);
        check_convert(*t, 0);
        check_convert(*t, 1);
        check_convert(*t, 3 * 4096 + 77);
        check_bytes(*t, PACKING_INT8);
        if (strcmp((*t)->backend, "cpu") != 0)
            check_half(*t);
    }
    return tap_done();
}
