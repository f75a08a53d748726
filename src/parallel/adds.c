/* Which additions one op does, and where what is too much for it is written. */
#include "src/parallel/adds.h"

#include <assert.h>
#include <string.h>

void adds_put(struct adds *adds, int at, float *value, const void *half)
{
    assert(at >= 0 && at < TREE_DEPTH_MAX);
    adds->sums[at] = (struct adds_sum){
        .tree = { .count = 1,
                  .values = { half != NULL ? half : value },
                  .bf16 = { half != NULL } },
        .place = value,
    };
}

enum err adds_write(struct adds *adds, int at, float *out)
{
    struct add_tree *tree = &adds->sums[at].tree;
    assert(tree->count > 0);
    if (tree->count > 1 || tree->values[0] != out)
        TRY(adds->kernels->add_tree(adds->ctx, adds->n, tree, out));
    adds_put(adds, at, out, NULL);
    return ERR_OK;
}

static enum err write_now(struct adds *adds, int at)
{
    const struct adds_sum *sum = &adds->sums[at];
    return sum->tree.count > 1 ? adds_write(adds, at, sum->place) : ERR_OK;
}

/* The longer one first: it has most to gain. */
static enum err make_room(struct adds *adds, int left)
{
    const struct adds_sum *l = &adds->sums[left], *r = l + 1;
    int right = left + 1;
    if (r->deep + 1 > ADD_TREE_DEEP)
        TRY(write_now(adds, right));
    if (l->tree.count + r->tree.count > ADD_TREE_VALUES)
        TRY(write_now(adds, l->tree.count < r->tree.count ? right : left));
    if (l->tree.count + r->tree.count > ADD_TREE_VALUES)
        TRY(write_now(adds, l->tree.count > 1 ? left : right));
    return ERR_OK;
}

enum err adds_join(struct adds *adds, int left)
{
    struct adds_sum *l = &adds->sums[left], *r = l + 1;
    TRY(make_room(adds, left));
    struct add_tree *to = &l->tree;
    const struct add_tree *from = &r->tree;
    size_t count = (size_t)from->count;
    memcpy(to->values + to->count, from->values, count * sizeof *to->values);
    memcpy(to->bf16 + to->count, from->bf16, count * sizeof *to->bf16);
    memcpy(to->folds + to->count, from->folds, count * sizeof *to->folds);
    to->count += from->count;
    to->folds[to->count - 1]++;
    l->deep = r->deep + 1 > l->deep ? r->deep + 1 : l->deep;
    return ERR_OK;
}
