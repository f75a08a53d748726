/* Shape, operations and bytes of every op, from its arguments.
 *
 * Together with an op's time they say what it is limited by: operations over
 * bytes, its intensity, is above or below what the machine has of the two in a
 * second (the roofline: Williams, Waterman and Patterson 2009). So only the
 * operations of products count, which is what a machine's peak is told in, and
 * bytes are those that must move if nothing is read twice: an op that is far
 * from both limits has something to gain. */
#include "kernels/kernel_profile.h"

#include <assert.h>

/* A row uses of an op's arguments what it needs. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

#define F32 4.0
#define I32 4.0
#define F64 8.0
#define E(dtype) ((double)dtype_bytes(dtype))

/* ROW(op, "names of dimensions", (dimensions), operations, bytes) */
#define BODY(names, list, operations, moved)                                   \
    {                                                                          \
        return (struct timeline_detail){ .dims = names,                        \
                                         .dim = { KERNEL_BARE list },          \
                                         .flop = (double)(operations),         \
                                         .bytes = (double)(moved) };           \
    }
#define ROW(op, names, list, operations, moved)                                \
    struct timeline_detail kernel_work_##op KERNEL_LIKE(op)                    \
        BODY(names, list, operations, moved)
/* One that moves `count` rows or columns of n elements and computes little. */
#define PASSES(op, n, count, dtype)                                            \
    ROW(op, "n", (n), 0, (double)(n) * (count)*E(dtype))

/* --- products --- */

static double product(double m, double n, double k)
{
    return 2.0 * m * n * k;
}

static double product_bytes(const struct gemm *gemm, enum dtype dtype)
{
    bool sums = gemm->form == GEMM_TN;
    double m = (double)gemm->m, n = (double)gemm->n, k = (double)gemm->k;
    double writes = gemm->accumulate && !gemm->begins ? 2.0 : 1.0;
    return (m * k + n * k) * E(dtype) +
           writes * m * n * (sums ? F32 : E(dtype));
}

struct timeline_detail kernel_work_gemm KERNEL_LIKE(gemm) {
    static const char *const labels[] = {
        [GEMM_NT] = "gemm NT", [GEMM_NN] = "gemm NN", [GEMM_TN] = "gemm TN"
    };
    assert(gemm->form < sizeof labels / sizeof labels[0]);
    return (struct timeline_detail){
        .label = labels[gemm->form],
        .dims = "m n k",
        .dim = { gemm->m, gemm->n, gemm->k },
        .flop = product((double)gemm->m, (double)gemm->n, (double)gemm->k),
        .bytes = product_bytes(gemm, dtype),
    };
}

ROW(gemm_fp8, "m n k", (gemm->m, gemm->n, gemm->k),
    product((double)gemm->m, (double)gemm->n, (double)gemm->k),
    (double)gemm->m *(double)gemm->k + (double)gemm->n * (double)gemm->k +
        (double)gemm->m * (double)gemm->n * E(gemm->c_type) *
            (gemm->accumulate ? 2 : 1))

    /* The rows of all groups; on a device they are its secret. */
    static int64_t
    grouped_rows(const struct kernel_ctx *ctx, const struct grouped_gemm *gemm)
{
    return ctx->stream == NULL ? gemm->offsets[gemm->groups] : 0;
}

struct timeline_detail kernel_work_grouped_gemm KERNEL_LIKE(grouped_gemm) {
    int64_t rows = grouped_rows(ctx, gemm);
    assert(rows >= 0);
    double r = (double)rows, n = (double)gemm->n, groups = gemm->groups;
    double k = (double)(gemm->form == GEMM_TN ? gemm->m : gemm->k);
    return (struct timeline_detail){
        .dims = "rows n k groups",
        .dim = { rows, gemm->n, (int64_t)k, gemm->groups },
        .flop = product(r, n, k),
        .bytes = rows == 0 ? 0.0 : (r *(n + k) + groups * n * k) * E(dtype),
    };
}

static int64_t
panels_rows_of(const struct panels *shape)
{
    return shape->groups * shape->n;
}

ROW(panels_fill, "n k", (panels_rows_of(shape), shape->k), 0,
    2.0 * (double)panels_rows_of(shape) * (double)shape->k * F32)
ROW(panels_rows, "rows k", (count, shape->k), 0,
    2.0 * (double)count * (double)shape->k * F32)
ROW(panels_product, "m n k", (product->m, product->shape.n, product->shape.k),
    2.0 * (double)product->m * (double)product->shape.n *
        (double)product->shape.k,
    (double)panels_rows_of(&product->shape) * (double)product->shape.k * F32)

/* --- attention: causal, documents and windows are not looked at --- */

/* `products` counts halves: a product of queries and keys has 2 S S head_dim
 * operations of a head, of which those below the diagonal are half. Forward has
 * two such products, backward five: the scores again, and the gradients of
 * probabilities, values, queries and keys. */
static double attention_flop(const struct attention *a, double products)
{
    assert(products > 0);
    return products * (double)a->batch * (double)a->heads * (double)a->seq *
           (double)a->seq * (double)a->head_dim;
}

/* Bytes of packed queries, keys and values, and of rows as long as the queries.
 */
static double attention_bytes(const struct attention *a, enum dtype dtype,
                              double packed, double rows)
{
    assert(a->kv_heads > 0 && a->heads % a->kv_heads == 0);
    double tokens = (double)a->batch * (double)a->seq;
    double d = (double)a->head_dim;
    return tokens * d * E(dtype) *
           (packed * (double)(a->heads + 2 * a->kv_heads) +
            rows * (double)a->heads);
}

#define ATTENTION(op, shape, products, packed, rows)                           \
    ROW(op, "batch seq heads head_dim",                                        \
        ((shape)->batch, (shape)->seq, (shape)->heads, (shape)->head_dim),     \
        attention_flop(shape, products),                                       \
        attention_bytes(shape, dtype, packed, rows))
/* Products' halves below the diagonal; a chunk of earlier keys counts whole. */
ATTENTION(attention_forward, shape, 2, 1, 1)
ATTENTION(attention_backward, shape, 5, 2, 3)
ATTENTION(attention_chunk_forward, &chunk->shape, chunk->distance == 0 ? 2 : 4,
          1, 2)
ATTENTION(attention_chunk_backward, &chunk->shape,
          chunk->distance == 0 ? 5 : 10, 2, 3)
ROW(attention_cached, "rows heads head_dim",
    (shape->rows, shape->heads, shape->head_dim), 0, 0)

/* --- rows of a matrix --- */

#define ROWS(op, rows, columns, tensors, dtype)                                \
    ROW(op, "n d", (rows, columns), 0,                                         \
        (double)(rows) * (double)(columns) * (tensors)*E(dtype))
ROWS(embedding_forward, n, d, wpe != NULL ? 3 : 2, dtype)
ROWS(embedding_backward, n, d, dwpe != NULL ? 5 : 3, dtype)
ROWS(norm_forward, norm->n * norm->groups, norm->d, 2, dtype)
ROWS(add_norm_forward, norm->n * norm->groups, norm->d, 4, dtype)
ROWS(norm_backward, norm->n * norm->groups, norm->d, accumulate ? 4 : 3, dtype)
ROWS(glu_forward, n, width, 3, dtype)
ROWS(glu_backward, n, width, 5, dtype)
ROWS(rope, n, rotated *head_dim, 2, dtype)
ROWS(dropout, samples, elements, 2, dtype)
ROWS(jitter, samples, elements, 2, dtype)
ROWS(cross_entropy, n, vocab, gradient ? 2 : 1, dtype)
ROWS(bias_backward, n, d, 1, dtype)
ROWS(copy_rows, rows, width, 2, dtype)
ROW(pack, "n d", (rows, cols), 0,
    (double)rows *(double)cols *(E(dtype) + (packing == PACKING_INT8 ? 1 : 2)))
ROW(unpack, "n d", (rows, cols), 0,
    (double)rows *(double)cols *(E(dtype) + (packing == PACKING_INT8 ? 1 : 2)))
ROW(quantize, "n d", (rows, cols), 0,
    (double)rows *(double)cols *(2.0 + (y != NULL ? 1 : 0) +
                                 (across != NULL ? 1 : 0)))

/* --- elements --- */

PASSES(activation_forward, n, 2, dtype)
PASSES(activation_backward, n, 3, dtype)
PASSES(clip_forward, n, 2, dtype)
PASSES(clip_backward, n, 3, dtype)
PASSES(accumulate, n, 3, dtype)
PASSES(add, n, 3, dtype)
static double add_tree_bytes(int64_t n, const struct add_tree *tree)
{
    double bytes = F32;
    for (int i = 0; i < tree->count; i++)
        bytes += tree->bf16[i] ? E(DTYPE_BF16) : F32;
    return (double)n * bytes;
}

ROW(add_tree, "n values", (n, tree->count), 0, add_tree_bytes(n, tree))
PASSES(zero, n, 1, dtype)
PASSES(chunk_sum_squares, n, 1, dtype)
PASSES(sum, n, 1, DTYPE_F32)
ROW(convert, "n", (n), 0, (double)n *(E(from) + E(to)))

/* --- experts --- */

#define ROUTE(op, bytes)                                                       \
    ROW(op, "n experts top_k", (route->n, route->experts, route->top_k), 0,    \
        (double)route->n *(bytes))
ROUTE(route_forward, 2.0 * route->experts * F32)
ROUTE(route_backward, 2.0 * route->experts * F32)
ROUTE(route_sort, 3.0 * route->top_k * I32)
ROUTE(route_sums, route->experts *F32)
ROUTE(balance_forward, 0)
ROUTE(balance_backward, 0)
#define CHOICES(op, width, tensors, dtype)                                     \
    ROW(op, "n top_k d", (route->n, route->top_k, width), 0,                   \
        (double)route->n * route->top_k * (double)(width) *                    \
            (tensors)*E(dtype))
CHOICES(expert_gather, d, 2, dtype)
CHOICES(expert_combine, d, 1, dtype)
CHOICES(expert_weigh, width, 4, dtype)

/* --- updates --- */

/* A row of kernel_updates.h: weights and moments are read and written. */
#define UPDATE(OP, op, names, ...)                                             \
    struct timeline_detail kernel_work_##op KERNEL_UPDATE_LIKE(op) BODY(       \
        "n", (n), 0,                                                           \
        (double)n *(E(dtype) +                                                 \
                    2.0 * F32 *                                                \
                        (1 + sizeof((const char *[]){ KERNEL_BARE names }) /   \
                                 sizeof(char *))))
KERNEL_UPDATES(UPDATE, )
