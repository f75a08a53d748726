/* How backward by cuDNN goes through a batch.
 *
 * Its variant without atomics writes dS to memory before it multiplies it by the
 * keys, so its workspace grows with the square of the sequence. The batch is
 * cut until a part fits: into equal numbers of sequences, and where one sequence
 * is too much, into slices of its heads, each with its own heads of keys, so
 * that nothing has to be added across parts. As few parts as possible, and no
 * part may begin where a pointer is not 16-byte aligned, for which plans are
 * made. The cut decides the plan and so the bits: it follows from the shape
 * alone. */
#include "kernels/cuda/libraries/cuda_dnn_attention.h"

#define ALIGNED_FLOATS 4 /* where numbers of a part begin */

/* For so many rows of heads: their scores in bf16, and in fp32 a sum and the
 * gradient of queries; cuDNN 9.19 takes less. */
static size_t scratch_of(int64_t rows, int64_t seq, int64_t head_dim)
{
    size_t row =
        (size_t)seq * 2 + sizeof(float) + (size_t)head_dim * sizeof(float);
    return (size_t)rows * row + ((size_t)1 << 20);
}

static bool is_roomy(const struct attention *s, int64_t sequences,
                     int64_t heads)
{
    return scratch_of(sequences * heads * s->seq, s->seq, s->head_dim) <=
           CUDA_DNN_ATTENTION_SCRATCH_MAX;
}

/* The most sequences, 0: not one fits. */
static int64_t sequences_of(const struct attention *s)
{
    for (int64_t n = s->batch; n > 0; n--)
        if (s->batch % n == 0 && is_roomy(s, n, s->heads) &&
            (n == s->batch || n * s->heads * s->seq % ALIGNED_FLOATS == 0))
            return n;
    return 0;
}

/* The fewest slices, 0: none fits. Slopes are numbers of heads. */
static int64_t slices_of(const struct attention *s)
{
    for (int64_t n = 2; n <= s->kv_heads; n++) {
        int64_t heads = s->heads / n;
        if (s->kv_heads % n == 0 && is_roomy(s, 1, heads) &&
            heads * s->seq % ALIGNED_FLOATS == 0 &&
            (heads % ALIGNED_FLOATS == 0 || s->alibi_slopes == NULL))
            return n;
    }
    return 0;
}

struct cuda_dnn_attention_cut
cuda_dnn_attention_cut_of(const struct attention *shape)
{
    int64_t sequences = sequences_of(shape);
    if (sequences > 0)
        return (struct cuda_dnn_attention_cut){ sequences, 1 };
    return (struct cuda_dnn_attention_cut){ 1, slices_of(shape) };
}

size_t cuda_dnn_attention_cut_scratch(const struct kernel_limits *limits)
{
    const struct attention s = { .seq = limits->seq,
                                 .heads = limits->heads,
                                 .kv_heads = limits->kv_heads,
                                 .head_dim = limits->head_dim };
    int64_t slices = slices_of(&s);
    for (int64_t n = limits->batch; n > 0; n--)
        if (is_roomy(&s, n, s.heads))
            return scratch_of(n * s.heads * s.seq, s.seq, s.head_dim);
    return slices > 0 ? scratch_of(s.heads / slices * s.seq, s.seq, s.head_dim)
                      : 0;
}
