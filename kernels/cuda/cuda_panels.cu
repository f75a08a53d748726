/* Matrices in panels: a warp's lanes are a panel's rows, so that a column of it
 * is read at once, and each lane has one chain over k for each row of A. That is
 * how a token is generated: a row or a few times a matrix that is read once, so
 * that its bytes are what the time is. Written to be right, not fast with many
 * rows. */
#include "kernels/cuda/cuda_reduce.h"
#include "kernels/cuda/cuda_vec.h"

/* Warps of a block, of which each has a panel; rows of A at a time. */
#define WARPS 4
#define ROWS 4

#define PEAK_MIN 0x1p-120f

/* Panels as kernels get them. */
struct places {
    enum panel_type type;
    int64_t n, k;
    int64_t count; /* of a group */
    size_t stride; /* bytes */
    char *panels;
    float *scales;
};

static struct places places_of(const struct panels *shape, const void *panels)
{
    struct places at;
    at.type = shape->type;
    at.n = shape->n;
    at.k = shape->k;
    at.count = cuda_parts(shape->n, KERNEL_PANEL);
    at.stride = kernels_panels_elements_bytes(shape) /
                (size_t)(shape->groups * at.count);
    at.panels = (char *)panels;
    at.scales = (float *)(at.panels + kernels_panels_elements_bytes(shape));
    return at;
}

CUDA_DEVICE float element(enum panel_type type, const char *panel, int64_t at)
{
    if (type == PANEL_BF16)
        return cuda_value(((const struct cuda_bf16 *)panel)[at]);
    if (type == PANEL_INT8)
        return cuda_value(((const int8_t *)panel)[at]);
    return ((const float *)panel)[at];
}

/* --- fill --- */

/* A row's largest magnitude: integers are ordered like numbers, Inf and NaN
 * above them. */
CUDA_DEVICE float row_peak(int64_t k, const float *x, int64_t step)
{
    unsigned most = 0;
    for (int64_t l = 0; l < k; l++) {
        unsigned bits = __float_as_uint(x[l * step]) & 0x7fffffffu;
        most = bits > most ? bits : most;
    }
    return __uint_as_float(most);
}

/* A block, which is a warp, per panel, and a lane per row. */
static __global__ void panels_make(struct places at, int turned, const float *x)
{
    int64_t group = blockIdx.x / at.count, lane = threadIdx.x;
    int64_t row = blockIdx.x % at.count * KERNEL_PANEL + lane;
    int64_t step = turned ? at.n : 1;
    char *panel = at.panels + blockIdx.x * at.stride;
    int there = row < at.n;
    float factor = 0;
    x += group * at.n * at.k + row * (turned ? 1 : at.k);
    if (at.type == PANEL_INT8) {
        float peak = there ? row_peak(at.k, x, step) : 0.0f, scale = 0;
        if (!(peak < INFINITY)) {
            scale = NAN;
        } else if (peak >= PEAK_MIN) {
            factor = 127.0f / peak;
            scale = peak / 127.0f;
        }
        at.scales[(int64_t)blockIdx.x * KERNEL_PANEL + lane] = scale;
        ((int8_t *)panel)[at.stride - KERNEL_PANEL + lane] = 0;
        __syncthreads();
    }
    for (int64_t l = 0; l < at.k; l++) {
        float value = there ? x[l * step] : 0.0f;
        int64_t to = l * KERNEL_PANEL + lane;
        if (at.type == PANEL_F32)
            ((float *)panel)[to] = value;
        else if (at.type == PANEL_BF16)
            cuda_put(value, (struct cuda_bf16 *)panel + to);
        else if (factor == 0.0f)
            ((int8_t *)panel)[to] = 0;
        else
            cuda_put(value * factor, (int8_t *)panel + to);
    }
}

enum err CUDA_SYMBOL(panels_fill) KERNEL_LIKE(panels_fill)
{
    assert(shape->n > 0 && shape->k > 0 && shape->groups > 0);
    struct places at = places_of(shape, panels);
    CUDA_LAUNCH(panels_make, cuda_blocks(shape->groups * at.count),
                KERNEL_PANEL, 0, cuda_stream(ctx), at, (int)turned, x);
    return cuda_launched("panels_fill");
}

/* --- rows --- */

static __global__ void panels_lookup(struct places at, const int32_t *rows,
                                     float *out)
{
    int64_t row = rows[blockIdx.x];
    const char *panel = at.panels + row / KERNEL_PANEL * at.stride;
    float scale = at.type == PANEL_INT8 ? at.scales[row] : 1.0f;
    out += blockIdx.x * at.k;
    for (int64_t l = threadIdx.x; l < at.k; l += blockDim.x)
        out[l] =
            element(at.type, panel, l * KERNEL_PANEL + row % KERNEL_PANEL) *
            scale;
}

enum err CUDA_SYMBOL(panels_rows) KERNEL_LIKE(panels_rows)
{
    assert(count >= 0);
    if (count == 0)
        return ERR_OK;
    CUDA_LAUNCH(panels_lookup, cuda_blocks(count), cuda_threads(shape->k), 0,
                cuda_stream(ctx), places_of(shape, panels), rows, out);
    return cuda_launched("panels_rows");
}

/* --- product --- */

static __global__ void panels_chains(struct places at, int64_t m,
                                     const int64_t *offsets, const float *a,
                                     const float *bias, float *c)
{
    int64_t group = blockIdx.z;
    int64_t lane = threadIdx.x % CUDA_WARP;
    int64_t panel = (int64_t)blockIdx.x * WARPS + threadIdx.x / CUDA_WARP;
    int64_t end = offsets == NULL ? m : offsets[group + 1];
    int64_t row =
        (offsets == NULL ? 0 : offsets[group]) + (int64_t)blockIdx.y * ROWS;
    if (panel >= at.count || row >= end)
        return;
    const char *from = at.panels + (group * at.count + panel) * at.stride;
    int64_t column = panel * KERNEL_PANEL + lane;
    float sum[ROWS] = { 0 };
    for (int64_t l = 0; l < at.k; l++) {
        float b = element(at.type, from, l * KERNEL_PANEL + lane);
        for (int i = 0; i < ROWS; i++)
            if (row + i < end)
                sum[i] = fmaf(a[(row + i) * at.k + l], b, sum[i]);
    }
    if (column >= at.n)
        return;
    for (int i = 0; i < ROWS && row + i < end; i++) {
        float value = sum[i];
        if (at.type == PANEL_INT8)
            value *= at.scales[group * at.count * KERNEL_PANEL + column];
        if (bias != NULL)
            value += bias[column];
        c[(row + i) * at.n + column] = value;
    }
}

enum err CUDA_SYMBOL(panels_product) KERNEL_LIKE(panels_product)
{
    struct places at = places_of(&product->shape, product->panels);
    int groups = product->offsets == NULL ? 1 : product->shape.groups;
    assert(product->m >= 0 &&
           (product->offsets == NULL || product->bias == NULL));
    if (product->m == 0)
        return ERR_OK;
    /* a grid's other dimensions are short */
    int64_t tiles = cuda_parts(product->m, ROWS);
    assert(groups <= 65535);
    for (int64_t first = 0; first < tiles; first += 65535) {
        dim3 grid(cuda_blocks(cuda_parts(at.count, WARPS)),
                  (unsigned)cuda_min(65535, tiles - first), (unsigned)groups);
        assert(first == 0 || product->offsets == NULL);
        CUDA_LAUNCH(panels_chains, grid, WARPS * CUDA_WARP, 0, cuda_stream(ctx),
                    at, product->m - first * ROWS, product->offsets,
                    product->a + first * ROWS * at.k, product->bias,
                    product->c + first * ROWS * at.n);
    }
    return cuda_launched("panels_product");
}
