/* Rotary positions (Su et al. 2021): a block per row of x. A thread has a pair
 * of vectors' place in the head (x), whose cosines and sines it loads once, and
 * some heads (y). Element j is turned with element j + head_dim / 2, as in
 * GPT-NeoX and Hugging Face's Llama, not with its neighbour: so both are read as vectors. Backward is
 * the same with the angle's sign changed, for a rotation's transpose is its
 * inverse. */
#include "kernels/cuda/cuda_vec.h"

template <class T>
static __global__ void rope(int64_t seq, int64_t heads, int64_t rotated,
                            int64_t head_dim, const float *table,
                            float direction, T *x)
{
    const int lanes = cuda_lanes<T>::count;
    int64_t half = head_dim / 2;
    const float *cosines = table + blockIdx.x % seq * head_dim;
    float a[lanes], b[lanes], c[lanes], s[lanes];
    x += blockIdx.x * heads * head_dim;
    CUDA_FOR_COLUMNS(j, half, lanes)
    {
        int64_t left = half - j;
        cuda_load<lanes>(cosines + j, left, 0, c);
        cuda_load<lanes>(cosines + half + j, left, 0, s);
        for (int64_t head = threadIdx.y; head < rotated; head += blockDim.y) {
            T *first = x + head * head_dim + j;
            cuda_load<lanes>(first, left, 0, a);
            cuda_load<lanes>(first + half, left, 0, b);
            for (int k = 0; k < lanes; k++) {
                float sine = s[k] * direction;
                float turned = fmaf(a[k], c[k], -(b[k] * sine));
                b[k] = fmaf(b[k], c[k], a[k] * sine);
                a[k] = turned;
            }
            cuda_store<lanes>(first, left, a);
            cuda_store<lanes>(first + half, left, b);
        }
    }
}

enum err CUDA_SYMBOL(rope) KERNEL_LIKE(rope)
{
    assert(n > 0 && seq > 0 && head_dim > 0 && head_dim % 2 == 0);
    assert(rotated >= 0 && rotated <= heads);
    return cuda_by_dtype(dtype, "rope", [&](auto element) {
        typedef decltype(element) T;
        int64_t vectors = cuda_parts(head_dim / 2, cuda_lanes<T>::count);
        int64_t wide = cuda_min(vectors, CUDA_THREADS);
        dim3 block(
            (unsigned)wide,
            (unsigned)cuda_max(1, cuda_min(rotated, CUDA_THREADS / wide)));
        CUDA_LAUNCH(rope<T>, cuda_blocks(n), block, 0, cuda_stream(ctx), seq,
                    heads, rotated, head_dim, table, inverse ? -1.0f : 1.0f,
                    (T *)x);
        return cuda_launched("rope");
    });
}
