/* Gradients for the tests of src/parallel/reduce.h: values of widely varying
 * magnitude, so that another order of adding gives other bits, the same tree
 * evaluated serially by recursion, and a kernel table of the ops. */
#pragma once

#include <stdint.h>
#include <string.h>

#include "kernels/kernels.h"
#include "src/parallel/reduce.h"
#include "src/parallel/shard.h"

static inline uint64_t fixture_hash(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Of batch, slot and element: sign, 23 bits, exponent -20 to 19. */
static inline float fixture_value(int batch, int slot, int64_t element)
{
    uint64_t h = fixture_hash(((uint64_t)batch << 56) ^ ((uint64_t)slot << 40) ^
                              (uint64_t)element);
    uint32_t exponent = 127 - 20 + (uint32_t)(h % 40);
    uint32_t bits = (uint32_t)(h >> 63) << 31 | exponent << 23 |
                    ((uint32_t)(h >> 32) & 0x7fffff);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Node (level, index) of the tree, as the header defines it. */
static inline float fixture_node(int batch, int slots, int level, int index,
                                 int64_t element)
{
    if (level == 0)
        return fixture_value(batch, index, element);
    float left = fixture_node(batch, slots, level - 1, 2 * index, element);
    if (((int64_t)(2 * index + 1) << (level - 1)) >= slots)
        return left;
    return left + fixture_node(batch, slots, level - 1, 2 * index + 1, element);
}

static inline float fixture_tree(int batch, int slots, int64_t element)
{
    int level = 0;
    while (((int64_t)1 << level) < slots)
        level++;
    return fixture_node(batch, slots, level, 0, element);
}

static inline bool fixture_same_bits(float a, float b)
{
    return memcmp(&a, &b, sizeof a) == 0;
}

static inline enum err fixture_add_tree KERNEL_LIKE(add_tree)
{
    (void)ctx;
    for (int64_t i = 0; i < n; i++) {
        float sums[ADD_TREE_DEEP + 1] = { 0 };
        int depth = 0;
        for (int v = 0; v < tree->count; v++) {
            sums[depth++] = ((const float *)tree->values[v])[i];
            for (int f = 0; f < tree->folds[v]; f++, depth--)
                sums[depth - 2] += sums[depth - 1];
        }
        out[i] = sums[0];
    }
    return ERR_OK;
}

static inline enum err fixture_zero KERNEL_LIKE(zero)
{
    (void)ctx;
    memset(x, 0, (size_t)n * dtype_bytes(dtype));
    return ERR_OK;
}

static const struct kernels fixture_kernels = {
    .backend = "cpu",
    .kernel_set = "fixture",
    .memory = &kernel_memory_cpu,
    .add_tree = fixture_add_tree,
    .zero = fixture_zero,
};

/* Every `stride`th element has a value, the others are zero. */
static inline void fixture_fill(float *gradient, int64_t begin, int64_t end,
                                int batch, int slot, int64_t stride)
{
    memset(gradient + begin, 0, (size_t)(end - begin) * sizeof *gradient);
    for (int64_t i = (begin + stride - 1) / stride * stride; i < end;
         i += stride)
        gradient[i] += fixture_value(batch, slot, i);
}

/* The rank's last slot, piece by piece as backward has them: pairs of them the other way
 * round, and in some batches the first ones are left to reduce_slot_done(). */
static inline enum err fixture_pieces(struct reduce *reduce,
                                      const struct owner *owner,
                                      float *gradient, int batch, int slot,
                                      int64_t stride)
{
    int count = owner->block_count;
    memset(gradient, 0xff, (size_t)owner->elements * sizeof *gradient);
    for (int i = count - 1; i >= 0; i--) {
        int piece = (i ^ 1) < count ? i ^ 1 : i;
        const struct owner_block *b = &owner->blocks[piece];
        fixture_fill(gradient, b->offset, b->offset + b->elements, batch, slot,
                     stride);
        if (b->elements > 0 && i >= batch % 3 * 2)
            TRY(reduce_piece_done(reduce, piece));
    }
    return ERR_OK;
}

/* Let this rank's slots of a batch finish; owner: of pieces, or NULL. */
static inline enum err fixture_slots(struct reduce *reduce,
                                     const struct owner *owner, int rank,
                                     int ranks, int slots, int64_t elements,
                                     int batch, int64_t stride)
{
    int end = shard_slot_begin(rank + 1, ranks, slots);
    reduce_begin(reduce, batch % 2 != 0);
    for (int s = shard_slot_begin(rank, ranks, slots); s < end; s++) {
        float *gradient = reduce_slot(reduce);
        if (owner != NULL && s + 1 == end)
            TRY(fixture_pieces(reduce, owner, gradient, batch, s, stride));
        else
            fixture_fill(gradient, 0, elements, batch, s, stride);
        TRY(reduce_slot_done(reduce));
    }
    return ERR_OK;
}

/* Elements of an interval whose bits are not those of the serial tree. */
static inline int64_t fixture_wrong(const float *total, int64_t begin,
                                    int64_t end, int slots, int batch,
                                    int64_t stride)
{
    int64_t wrong = 0;
    for (int64_t i = begin; i < end; i++) {
        float want = i % stride == 0 ? fixture_tree(batch, slots, i) : 0.0f;
        wrong += !fixture_same_bits(total[i], want);
    }
    return wrong;
}
