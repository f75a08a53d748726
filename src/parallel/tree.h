/* The one order in which slots are added: a binary tree over slot numbers,
 * built from the left.
 *
 * Node (level l, index i) covers slots [i 2^l, min((i+1) 2^l, slots)); its
 * value is left child + right child, or the left child's alone where the right
 * one is empty. A struct tree is the list of complete subtrees of a range of
 * slots, left to right, none of which can be combined further; whoever keeps it
 * keeps a value for each place of the list. */
#pragma once

#include <stdbool.h>

/* A range of slots leaves at most two subtrees per level. */
#define TREE_DEPTH_MAX 64

struct tree_node {
    int level;
    int index;
};

struct tree {
    int depth;
    struct tree_node node[TREE_DEPTH_MAX];
};

/* Append a subtree; what it can be combined with is settled next. */
void tree_push(struct tree *tree, int level, int index);

/* One step of combining the last subtree with what is left of it. True: the
 * last two became one, at the place of the left one; the value at place `depth`
 * is to be added to that at `depth - 1` now, and there may be more to do. */
bool tree_settle(struct tree *tree, int slots);

/* The root, of one double per slot. */
double tree_sum(const double *values, int slots);
