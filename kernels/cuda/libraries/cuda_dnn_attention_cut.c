/* How attention by cuDNN goes through a batch.
 *
 * Backward's variant without atomics writes dS to memory before it multiplies it
 * by the keys, so its workspace grows with the square of the sequence. The batch
 * is cut until a part fits: into equal numbers of sequences, and where one
 * sequence is too much, into slices of its heads, each with its own heads of
 * keys, so that nothing has to be added across parts. As few parts as possible.
 * The cut decides the plan and so the bits; a choice names it. */
#include "kernels/cuda/libraries/cuda_dnn_attention.h"

#define TILE 128

/* Scores of an even number of GiB are common, and cuDNN wants somewhat more: 8
 * heads of 8192 tokens, 32 of 4096. Twice that only for what is as small as can
 * be: 4 heads of 16384 tokens that have one head of keys. */
#define SCRATCH_USUAL (((size_t)1 << 30) + ((size_t)1 << 28))

/* For the rows of heads of a part, of whole tiles: their scores in bf16, and in
 * fp32 a sum and the gradient of queries; cuDNN 9.19 takes less. */
static double scratch_of(const struct attention *s,
                         struct cuda_dnn_attention_cut cut)
{
    double seq = (double)((s->seq + TILE - 1) / TILE * TILE);
    double row = 2.0 * seq + sizeof(float) * (1 + (double)s->head_dim);
    return (double)cut.sequences * (double)cut.heads * seq * row + 0x1p20;
}

bool cuda_dnn_attention_cut_is(const struct attention *s,
                               struct cuda_dnn_attention_cut cut)
{
    if (cut.sequences < 1 || cut.heads < 1 || s->batch % cut.sequences != 0 ||
        s->heads % cut.heads != 0)
        return false;
    return cut.heads == s->heads || (cut.sequences == 1 && s->kv_heads > 0 &&
                                     s->kv_heads % (s->heads / cut.heads) == 0);
}

bool cuda_dnn_attention_cut_finer(const struct attention *s,
                                  struct cuda_dnn_attention_cut *cut)
{
    struct cuda_dnn_attention_cut next = *cut;
    while (next.sequences > 1 || next.heads > 1) {
        if (next.sequences > 1)
            next.sequences--;
        else
            next.heads--;
        if (cuda_dnn_attention_cut_is(s, next)) {
            *cut = next;
            return true;
        }
    }
    return false;
}

bool cuda_dnn_attention_cut_of(const struct attention *s, size_t bytes,
                               struct cuda_dnn_attention_cut *cut)
{
    *cut = (struct cuda_dnn_attention_cut){ s->batch, s->heads };
    while (scratch_of(s, *cut) > (double)bytes)
        if (!cuda_dnn_attention_cut_finer(s, cut))
            return false;
    return true;
}

size_t cuda_dnn_attention_cut_scratch(const struct kernel_limits *limits)
{
    const struct attention s = { .batch = limits->batch,
                                 .seq = limits->seq,
                                 .heads = limits->heads,
                                 .kv_heads = limits->kv_heads,
                                 .head_dim = limits->head_dim };
    struct cuda_dnn_attention_cut cut;
    if (limits->positions == 0 && /* with a cache nobody goes backward */
        cuda_dnn_attention_fits(DTYPE_BF16, &s) &&
        (cuda_dnn_attention_cut_of(&s, SCRATCH_USUAL, &cut) ||
         cuda_dnn_attention_cut_of(&s, CUDA_DNN_ATTENTION_SCRATCH_MAX, &cut)))
        return (size_t)scratch_of(&s, cut);
    return 0;
}
