/* The order of additions as a list of complete subtrees.
 *
 * Floating-point addition is not associative, so a gradient only has the same
 * bits on any number of ranks if one fixed tree says what is added to what. The
 * tree is over slot numbers; a rank that finishes its slots from left to right
 * needs to keep only subtrees that cannot be combined yet, as a binary counter
 * keeps ones: pushing slot n settles as many levels as n has trailing ones, and
 * after n slots the list is as long as n has bits set (Higham, Accuracy and
 * Stability of Numerical Algorithms, 2002, section 4.2 has pairwise summation,
 * which this is). It only says what is to be added to what; reduce.c and
 * scatter.c add tensors by it. */
#include "src/parallel/tree.h"

#include <assert.h>
#include <stdint.h>

void tree_push(struct tree *tree, int level, int index)
{
    assert(tree->depth < TREE_DEPTH_MAX);
    tree->node[tree->depth++] = (struct tree_node){ level, index };
}

bool tree_settle(struct tree *tree, int slots)
{
    for (;;) {
        struct tree_node *last = &tree->node[tree->depth - 1];
        int64_t end = (int64_t)(last->index + 1) << last->level;
        bool root = last->index == 0 && end >= slots;
        if (root)
            return false;
        if (last->index % 2 == 1) {
            struct tree_node *left = last - 1;
            if (tree->depth < 2 || left->level != last->level ||
                left->index != last->index - 1)
                return false;
            tree->depth--;
            left->level++;
            left->index /= 2;
            return true;
        }
        if (end < slots)
            return false;
        /* Nothing is right of it: the parent has this value. */
        last->level++;
        last->index /= 2;
    }
}

double tree_sum(const double *values, int slots)
{
    struct tree tree = { 0 };
    double sums[TREE_DEPTH_MAX] = { 0.0 };
    for (int slot = 0; slot < slots; slot++) {
        sums[tree.depth] = values[slot];
        tree_push(&tree, 0, slot);
        while (tree_settle(&tree, slots))
            sums[tree.depth - 1] += sums[tree.depth];
    }
    assert(tree.depth == 1);
    return sums[0];
}
