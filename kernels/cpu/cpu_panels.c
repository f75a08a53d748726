/* Makes panels out of matrices, once, and reads rows of them, as an embedding
 * is read. The products are cpu_panels_product.c. */
#include "kernels/cpu/cpu_panels.h"

#include <math.h>

/* One panel: `rows` rows, whose elements are `step` apart along k and
 * `row_step` along n. */
struct source {
    const float *x;
    int64_t rows, row_step, step;
};

/* As integers magnitudes are ordered like numbers, Inf and NaN above them. */
static float row_peak(int64_t k, const float *x, int64_t step)
{
    uint32_t most = 0;
    float peak;
    for (int64_t l = 0; l < k; l++) {
        uint32_t bits;
        memcpy(&bits, x + l * step, sizeof(bits));
        bits &= 0x7fffffff;
        most = bits > most ? bits : most;
    }
    memcpy(&peak, &most, sizeof(peak));
    return peak;
}

/* The rows' scales, and what their elements are multiplied by. */
static void int8_scales(int64_t k, const struct source *from, float *factors,
                        float *scales)
{
    for (int64_t r = 0; r < KERNEL_PANEL; r++) {
        factors[r] = scales[r] = 0;
        if (r >= from->rows)
            continue;
        float peak = row_peak(k, from->x + r * from->row_step, from->step);
        if (!isfinite(peak)) {
            scales[r] = NAN;
        } else if (peak >= INT8_PEAK_MIN) {
            factors[r] = 127.0f / peak;
            scales[r] = peak / 127.0f;
        }
    }
}

/* Column l of the panel. Adding 1.5 * 2^23 rounds to an integer, which the bits
 * then count. */
static void column_put(enum panel_type type, const float *column,
                       const float *factors, int64_t l, void *panel)
{
    const vec rounder = vec_splat(12582912.0f);
    int64_t at = l * KERNEL_PANEL;
    for (int64_t j = 0; j < KERNEL_PANEL; j += VEC_LANES) {
        vec x = vec_load(column + j, VEC_LANES);
        if (type == PANEL_F32) {
            vec_store((float *)panel + at + j, VEC_LANES, x);
        } else if (type == PANEL_BF16) {
            vec_store_bf16((uint16_t *)panel + at + j, VEC_LANES, x);
        } else {
            vec f = vec_load(factors + j, VEC_LANES);
            vec shifted = x * f + rounder;
            /* a row with an Inf or a NaN is told by its scale */
            vec_i32 q = ((vec_i32)shifted - (vec_i32)rounder) & (f != 0.0f);
            vec_i8 bytes = vec_narrow(q);
            memcpy((int8_t *)panel + at + j, &bytes, sizeof(bytes));
        }
    }
}

static void panel_fill(enum panel_type type, int64_t k,
                       const struct source *from, void *panel, float *scales)
{
    float factors[KERNEL_PANEL] = { 0 };
    float column[KERNEL_PANEL] = { 0 };
    if (type == PANEL_INT8)
        int8_scales(k, from, factors, scales);
    for (int64_t l = 0; l < k; l++) {
        for (int64_t r = 0; r < from->rows; r++)
            column[r] = from->x[r * from->row_step + l * from->step];
        column_put(type, column, factors, l, panel);
    }
}

enum err CPU_SYMBOL(panels_fill) KERNEL_LIKE(panels_fill)
{
    int64_t n = shape->n, k = shape->k, each = panels_count(shape);
    size_t stride = panels_stride(shape);
    float *scales = (float *)(void *)((char *)panels +
                                      kernels_panels_elements_bytes(shape));
    assert(n > 0 && k > 0 && shape->groups > 0 && x != panels);
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t i = 0; i < shape->groups * each; i++) {
        int64_t first = i % each * KERNEL_PANEL;
        char *panel = (char *)panels + (size_t)i * stride;
        struct source from = { .rows = cpu_min(KERNEL_PANEL, n - first),
                               .row_step = turned ? 1 : k,
                               .step = turned ? n : 1 };
        from.x = x + i / each * n * k + first * from.row_step;
        /* an odd number of columns of bytes leaves half a cache line */
        memset(panel + stride - KERNEL_PANEL, 0, KERNEL_PANEL);
        panel_fill(shape->type, k, &from, panel, scales + i * KERNEL_PANEL);
    }
    return ERR_OK;
}

static float element(const struct panels *shape, const void *panel, int64_t at)
{
    uint32_t bits;
    float x;
    switch (shape->type) {
    case PANEL_BF16:
        bits = (uint32_t)((const uint16_t *)panel)[at] << 16;
        memcpy(&x, &bits, sizeof(x));
        return x;
    case PANEL_INT8:
        return ((const int8_t *)panel)[at];
    case PANEL_F32:
        break;
    }
    return ((const float *)panel)[at];
}

enum err CPU_SYMBOL(panels_rows) KERNEL_LIKE(panels_rows)
{
    const float *scales = panels_scales(shape, panels);
    int64_t k = shape->k;
    assert(count >= 0);
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t i = 0; i < count; i++) {
        int64_t row = rows[i];
        assert(row >= 0 && row < shape->n);
        const void *panel = panels_at(shape, panels, row / KERNEL_PANEL);
        float scale = shape->type == PANEL_INT8 ? scales[row] : 1.0f;
        for (int64_t l = 0; l < k; l++)
            out[i * k + l] =
                element(shape, panel, l * KERNEL_PANEL + row % KERNEL_PANEL) *
                scale;
    }
    return ERR_OK;
}
