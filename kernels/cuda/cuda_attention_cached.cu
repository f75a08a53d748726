/* Attention over a cache: a block per row and head goes through the keys a block
 * of them at a time, with a running maximum (Milakov and Gimelshein 2018), so
 * that a row's bits follow from positions alone. */
#include "kernels/cuda/cuda_reduce.h"
#include "kernels/cuda/cuda_vec.h"

#define THREADS 128
#define WARPS (THREADS / CUDA_WARP)
#define COLUMNS 2 /* of a head, of each thread */
#define KEYS KERNEL_CACHE_KEYS

static __global__ void cache_store(struct attention_cached s, const float *qkv)
{
    int64_t row = blockIdx.x, d = s.head_dim;
    int64_t slot = s.slots[row], position = s.positions[row];
    const float *from = qkv + (row * (s.heads + 2 * s.kv_heads) + s.heads) * d;
    for (int64_t i = threadIdx.x; i < s.kv_heads * d; i += blockDim.x) {
        int64_t base = (slot * s.kv_heads + i / d) * s.capacity * d;
        s.keys[base + (position / KEYS * d + i % d) * KEYS + position % KEYS] =
            from[i];
        s.values[base + position * d + i % d] = from[s.kv_heads * d + i];
    }
}

static __global__ void cache_attend(struct attention_cached s, const float *qkv,
                                    float *out)
{
    __shared__ float weights[THREADS];
    int64_t row = blockIdx.x / s.heads, head = blockIdx.x % s.heads;
    int64_t d = s.head_dim, position = s.positions[row];
    int64_t kv = s.slots[row] * s.kv_heads + head / (s.heads / s.kv_heads);
    const float *q = qkv + (row * (s.heads + 2 * s.kv_heads) + head) * d;
    const float *keys = s.keys + kv * s.capacity * d;
    const float *values = s.values + kv * s.capacity * d;
    float slope = s.alibi_slopes != NULL ? s.alibi_slopes[head] : 0.0f;
    float peak = -INFINITY, total = 0.0f, sum[COLUMNS] = { 0 };
    int64_t oldest = s.window > 0 ? position - s.window + 1 : 0;
    for (int64_t first = oldest > 0 ? oldest : 0; first <= position;
         first += THREADS) {
        int64_t key = first + threadIdx.x;
        float score = -INFINITY;
        if (key <= position) {
            const float *from = keys + key / KEYS * KEYS * d + key % KEYS;
            float chain = 0.0f;
            for (int64_t l = 0; l < d; l++)
                chain = fmaf(q[l], from[l * KEYS], chain);
            score = fmaf((float)(key - position), slope, chain * s.scale);
        }
        float top = cuda_team_reduce(WARPS, score, cuda_most());
        top = top > peak ? top : peak;
        float factor = peak == -INFINITY ? 0.0f : expf(peak - top);
        float weight = key <= position ? expf(score - top) : 0.0f;
        weights[threadIdx.x] = weight;
        total = total * factor + cuda_team_sum(WARPS, weight);
        peak = top;
        __syncthreads();
        int64_t count = cuda_min(THREADS, position + 1 - first);
        for (int c = 0; c < COLUMNS; c++) {
            int64_t column = threadIdx.x + (int64_t)c * THREADS;
            sum[c] *= factor;
            for (int64_t t = 0; t < count && column < d; t++)
                sum[c] =
                    fmaf(weights[t], values[(first + t) * d + column], sum[c]);
        }
        __syncthreads();
    }
    for (int c = 0; c < COLUMNS; c++)
        if (threadIdx.x + c * THREADS < d)
            out[(row * s.heads + head) * d + threadIdx.x + c * THREADS] =
                sum[c] / total;
}

enum err CUDA_SYMBOL(attention_cached) KERNEL_LIKE(attention_cached)
{
    assert(shape->heads % shape->kv_heads == 0 && shape->capacity % KEYS == 0);
    if (shape->head_dim > COLUMNS * THREADS)
        return err_set(ERR_UNSUPPORTED,
                       "op attention_cached: the CUDA kernels have heads of at "
                       "most %d elements, not %lld",
                       COLUMNS * THREADS, (long long)shape->head_dim);
    if (shape->rows == 0)
        return ERR_OK;
    CUDA_LAUNCH(cache_store, cuda_blocks(shape->rows),
                cuda_threads(shape->kv_heads * shape->head_dim), 0,
                cuda_stream(ctx), *shape, qkv);
    CUDA_LAUNCH(cache_attend, cuda_blocks(shape->rows * shape->heads), THREADS,
                0, cuda_stream(ctx), *shape, qkv, out);
    return cuda_launched("attention_cached");
}
