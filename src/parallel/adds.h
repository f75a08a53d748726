/* Additions of tensors that are put off until an op can do many of them at once
 * (struct add_tree): each value is then read once, and sums on their way are not
 * written. The order is the caller's, who keeps a list of sums as the tree's
 * list of subtrees is (tree.h); which additions go together never changes the
 * bits. */
#pragma once

#include "kernels/kernels.h"
#include "src/base/err.h"
#include "src/parallel/tree.h"

/* A sum on its way: of values that lie in memory, which may be overwritten. */
struct adds_sum {
    struct add_tree tree;
    int deep;     /* the most that wait between two of its values */
    float *place; /* that it may be written to before all is added: its first
                     value's, or in place of one in bf16 another one */
};

/* The first three are the caller's. */
struct adds {
    const struct kernels *kernels;
    const struct kernel_ctx *ctx;
    int64_t n;
    struct adds_sum sums[TREE_DEPTH_MAX];
};

/* Sum number `at` is this value: with `half` of as many bf16, else `value`. */
void adds_put(struct adds *adds, int at, float *value, const void *half);

/* Sum number `left` gets the one behind it added. */
enum err adds_join(struct adds *adds, int left);

/* The sum is wanted in `out`, from where on other sums' values, which are not
 * written yet, do not lie. */
enum err adds_write(struct adds *adds, int at, float *out);
