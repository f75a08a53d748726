/* Sums of several tensors in the order of a tree. A thread has a vector of every
 * value, and what waits to be added stays in its registers, which cannot be
 * indexed: so the stack moves, and its last one is always the first register.
 * Each value is read once, some of them at a time. */
#include "kernels/cuda/cuda_mma.h"

#define LANES 4
#define AHEAD 4 /* values that are on their way together */

static_assert(ADD_TREE_VALUES % AHEAD == 0, "");

/* The value comes onto the stack, or is added at once; then the last two become
 * one, folds - 1 times. */
CUDA_DEVICE void take(int folds, const float x[LANES],
                      float stack[LANES][ADD_TREE_DEEP])
{
    CUDA_UNROLL
    for (int l = 0; l < LANES; l++) {
        float *s = stack[l];
        CUDA_UNROLL
        for (int d = ADD_TREE_DEEP - 1; d > 0 && folds == 0; d--)
            s[d] = s[d - 1];
        s[0] = folds == 0 ? x[l] : s[0] + x[l];
    }
    for (int f = 1; f < folds; f++) {
        CUDA_UNROLL
        for (int l = 0; l < LANES; l++) {
            float *s = stack[l];
            s[0] = s[1] + s[0];
            CUDA_UNROLL
            for (int d = 1; d + 1 < ADD_TREE_DEEP; d++)
                s[d] = s[d + 1];
        }
    }
}

static __global__ void add_tree_kernel(int64_t n, struct add_tree tree,
                                       float *out)
{
    float stack[LANES][ADD_TREE_DEEP] = {}, x[AHEAD][LANES], sum[LANES];
    int64_t at = cuda_index() * LANES, left = n - at;
    if (left <= 0)
        return;
    CUDA_UNROLL
    for (int first = 0; first < ADD_TREE_VALUES; first += AHEAD) {
        CUDA_UNROLL
        for (int i = 0; i < AHEAD; i++) {
            if (first + i >= tree.count)
                break;
            const void *value = tree.values[first + i];
            if (tree.bf16[first + i])
                cuda_load<LANES>((const struct cuda_bf16 *)value + at, left, 0,
                                 x[i]);
            else
                cuda_load<LANES>((const float *)value + at, left, 0, x[i]);
        }
        CUDA_UNROLL
        for (int i = 0; i < AHEAD; i++)
            if (first + i < tree.count)
                take(tree.folds[first + i], x[i], stack);
    }
    CUDA_UNROLL
    for (int l = 0; l < LANES; l++)
        sum[l] = stack[l][0];
    cuda_store<LANES>(out + at, left, sum);
}

enum err CUDA_SYMBOL(add_tree) KERNEL_LIKE(add_tree)
{
    assert(n >= 0 && tree->count > 0 && tree->count <= ADD_TREE_VALUES);
    if (n == 0)
        return ERR_OK;
    int64_t vectors = cuda_parts(n, LANES);
    unsigned threads = cuda_threads(vectors);
    CUDA_LAUNCH(add_tree_kernel, cuda_blocks(cuda_parts(vectors, threads)),
                threads, 0, cuda_stream(ctx), n, *tree, out);
    return cuda_launched("add_tree");
}
