/* Sums of several tensors in the order of a tree. Some vectors of every value
 * are added before the next ones, so that what waits to be added stays in
 * registers and the nearest cache: each value is read once, and the sum is
 * written once. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/cpu_bf16.h"

/* Elements that one task adds, and those that are added together. */
#define BLOCK 4096
#define VECS 4
#define PIECE (VECS * VEC_LANES)
/* How far ahead a value is fetched: there are more of them than a processor
 * follows by itself. */
#define AHEAD (4 * PIECE)

struct piece {
    vec part[VECS];
};

static inline struct piece load(const struct add_tree *tree, int i, int64_t at,
                                int64_t left)
{
    struct piece x;
    const float *wide = tree->values[i];
    const uint16_t *half = tree->values[i];
    for (int v = 0; v < VECS; v++) {
        int64_t j = at + v * VEC_LANES, rest = left - v * VEC_LANES;
        if (tree->bf16[i]) {
            x.part[v] = vec_load_bf16(half + j, rest);
        } else {
            __builtin_prefetch(wide + j + AHEAD);
            x.part[v] = vec_load(wide + j, rest);
        }
    }
    return x;
}

static inline struct piece sum_of(struct piece a, struct piece b)
{
    for (int v = 0; v < VECS; v++)
        a.part[v] += b.part[v];
    return a;
}

/* Elements from `at` on, of which `left` are there. */
static inline __attribute__((always_inline)) void
add_piece(const struct add_tree *tree, int64_t at, int64_t left, float *out)
{
    struct piece waits[ADD_TREE_DEEP - 1]; /* below the last one, `top` */
    struct piece top = load(tree, 0, at, left);
    int depth = 0;
    for (int i = 1; i < tree->count; i++) {
        struct piece x = load(tree, i, at, left);
        if (tree->folds[i] == 0) {
            assert(depth + 1 < ADD_TREE_DEEP);
            waits[depth++] = top;
            top = x;
            continue;
        }
        top = sum_of(top, x);
        for (int f = 1; f < tree->folds[i]; f++)
            top = sum_of(waits[--depth], top);
    }
    assert(depth == 0);
    for (int v = 0; v < VECS; v++)
        vec_store(out + at + v * VEC_LANES, left - v * VEC_LANES, top.part[v]);
}

enum err CPU_SYMBOL(add_tree) KERNEL_LIKE(add_tree)
{
    assert(n >= 0 && tree->count > 0 && tree->count <= ADD_TREE_VALUES);
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t block = 0; block < n; block += BLOCK) {
        int64_t end = cpu_min(n, block + BLOCK), at = block;
        for (; at + PIECE <= end; at += PIECE)
            add_piece(tree, at, PIECE, out);
        if (at < end)
            add_piece(tree, at, end - at, out);
    }
    return ERR_OK;
}
