/* add_tree, and the additions that are put off for it (src/parallel/adds.h), on
 * every table: the bits of one accumulate after the other, in whatever order they
 * are asked for, with values in fp32 and bf16 that begin anywhere. */
#include "src/parallel/adds.h"
#include "tests/kernel_check.h"

#define VALUES_MAX 40
#define CASES 40
#define GUARD 5

enum order { CHAIN, TREE, DRAWN, ORDERS };
static const char *const order_names[] = { "a chain", "a tree",
                                           "a drawn order" };

static int ops; /* that were asked for */
static const struct kernels *real;

static enum err count_op KERNEL_LIKE(add_tree)
{
    ops++;
    return real->add_tree(ctx, n, tree, out);
}

static uint64_t draws;

static int draw(int most)
{
    return (int)((check_uniform(77, (int64_t)draws++) + 1.0) / 2 * (most + 1));
}

/* Of many sizes, so that another order has other bits. */
static float *value(int64_t n, int number)
{
    float *x = check_random(n, 100 + draws + (uint64_t)number, 1.0);
    for (int64_t i = 0; i < n; i++)
        x[i] = ldexpf(x[i], (int)(i * 7 + number * 5) % 23 - 11);
    return x;
}

/* x rounded down to bf16 stays in fp32 as well. */
static uint16_t *halves(float *x, int64_t n, int first)
{
    uint16_t *half = check_alloc((size_t)(n + first) * sizeof *half);
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        half[first + i] = (uint16_t)(bits >> 16);
        bits &= 0xffff0000u;
        memcpy(&x[i], &bits, sizeof bits);
    }
    return half + first;
}

struct both {
    struct adds adds;
    float *plain[TREE_DEPTH_MAX];
    int depth;
};

static void put(struct both *b, int number)
{
    int64_t n = b->adds.n;
    int first = draw(5);
    float *x = value(n, number);
    b->plain[b->depth] = x;
    if (draw(2) == 0) {
        const uint16_t *half = halves(x, n, first);
        adds_put(&b->adds, b->depth++, check_poisoned(n), half);
        return;
    }
    float *given = check_poisoned(n + first);
    memcpy(given + first, x, (size_t)n * sizeof *x);
    adds_put(&b->adds, b->depth++, given + first, NULL);
}

static enum err join(struct both *b)
{
    int left = --b->depth - 1;
    TRY(real->accumulate(b->adds.ctx, DTYPE_F32, b->adds.n, b->plain[left + 1],
                         b->plain[left]));
    return adds_join(&b->adds, left);
}

static enum err add(struct both *b, enum order order, int count)
{
    struct tree tree = { 0 };
    for (int i = 0; i < count; i++) {
        put(b, i);
        tree_push(&tree, 0, i);
        while (order == TREE && tree_settle(&tree, count))
            TRY(join(b));
        while (order != TREE && b->depth > 1 &&
               (order == CHAIN || b->depth == TREE_DEPTH_MAX || draw(2) == 0))
            TRY(join(b));
    }
    while (b->depth > 1)
        TRY(join(b));
    return ERR_OK;
}

/* Ops of `count` values: of 16 leaves each, and what is joined after them. */
static int ops_most(enum order order, int count)
{
    int tens = (count + 13) / 14;
    return order == DRAWN ? count : order == CHAIN ? tens : 2 * tens + 1;
}

static void check_order(const struct kernels *table, enum order order,
                        int64_t length)
{
    struct kernels counting = *table;
    bool same = true, few = true;
    real = table;
    counting.add_tree = count_op;
    for (int i = 0; i < CASES; i++) {
        const struct kernel_ctx ctx = { .threads = 1 + i % CHECK_THREADS_MAX };
        int count = 1 + (i < 20 ? i : draw(VALUES_MAX - 1));
        int64_t n = 1 + draw((int)length - 1);
        struct both b = { .adds = {
                              .kernels = &counting, .ctx = &ctx, .n = n } };
        float *out = check_poisoned(n + GUARD);
        ops = 0;
        same = same && add(&b, order, count) == ERR_OK &&
               adds_write(&b.adds, 0, out) == ERR_OK &&
               check_same(out, b.plain[0], n) && check_all_nan(out + n, GUARD);
        few = few && ops <= ops_most(order, count);
        check_release();
    }
    check_that(table, same && few,
               "add_tree: %s of 1 to 40 values as one by one, and few ops",
               order_names[order]);
}

/* The sum may take the place of any value in fp32. */
static void check_in_place(const struct kernels *table)
{
    enum { N = 1003, COUNT = ADD_TREE_VALUES };
    const struct kernel_ctx ctx = { .threads = 2 };
    bool same = true;
    for (int at = 0; at < COUNT; at++) {
        struct add_tree tree = { .count = COUNT };
        float *want = value(N, 0), *x = NULL;
        for (int i = 0; i < COUNT; i++) {
            float *one = value(N, i);
            x = i == at ? one : x;
            tree.values[i] = one;
            tree.folds[i] = i > 0;
            if (i > 0)
                same &=
                    table->accumulate(&ctx, DTYPE_F32, N, one, want) == ERR_OK;
        }
        same &= table->add_tree(&ctx, N, &tree, x) == ERR_OK &&
                table->add_tree(&ctx, 0, &tree, NULL) == ERR_OK &&
                check_same(x, want, N);
        check_release();
    }
    check_that(table, same, "add_tree: in the place of each of its values");
}

int main(void)
{
    for (const struct kernels *const *t = kernels_all(); *t != NULL; t++) {
        bool cpu = strcmp((*t)->backend, "cpu") == 0;
        for (int order = 0; order < ORDERS; order++)
            check_order(*t, (enum order)order, cpu ? 20000 : 3000);
        check_in_place(*t);
    }
    return tap_done();
}
