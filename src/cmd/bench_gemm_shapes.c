/* Lists the shapes of products that tessera-bench gemm times; see
 * bench_gemm.h. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "src/cmd/bench_bound.h"
#include "src/cmd/bench_gemm.h"
#include "src/cmd/bench_model.h"

#define BYTES_MAX ((int64_t)256 << 20)
#define GROUPS 8
#define GROUP_ROWS 64

static const enum gemm_form forms[] = { GEMM_NT, GEMM_NN, GEMM_TN };

struct shape_list {
    struct bench_gemm_shape *shapes;
    int count;
};

static void add(struct shape_list *list, const char *model, const char *name,
                const struct bench_product *product)
{
    int64_t elements =
        product->groups * (product->m * product->k + product->n * product->k +
                           product->m * product->n);
    if (elements * (int64_t)sizeof(float) > BYTES_MAX)
        return;
    assert(list->count < BENCH_GEMM_SHAPES);
    struct bench_gemm_shape *shape = &list->shapes[list->count++];
    *shape = (struct bench_gemm_shape){ .product = *product };
    snprintf(shape->what, sizeof shape->what, "%s %s", model, name);
}

static void add_linear(struct shape_list *list, const char *model,
                       const char *name, int groups, int64_t tokens,
                       const struct bench_shape *shape)
{
    for (int f = 0; f < 3; f++) {
        struct bench_product product = bench_product_linear(
            forms[f], tokens, shape->outputs, shape->inputs);
        product.groups = groups;
        add(list, model, name, &product);
    }
}

/* Scores, values, and the gradient of keys or values. */
static void add_attention(struct shape_list *list, int64_t tokens)
{
    const int64_t width = BENCH_GEMM_HEAD_DIM;
    const struct bench_product products[] = {
        { GEMM_NT, 1, tokens, tokens, width },
        { GEMM_NN, 1, tokens, width, tokens },
        { GEMM_TN, 1, tokens, width, tokens },
    };
    for (int i = 0; i < 3; i++)
        add(list, "attention", i == 0 ? "scores" : "values", &products[i]);
}

static enum err add_model(struct shape_list *list, const char *model,
                          const int64_t *tokens, int counts)
{
    struct bench_model_kind kind;
    struct bench_shape shapes[BENCH_BOUND_SHAPES];
    TRY(bench_model_find(model, &kind));
    bench_bound_shapes(&kind.config, shapes);
    for (int t = 0; t < counts; t++)
        for (int i = 0; i < BENCH_BOUND_SHAPES; i++)
            add_linear(list, model, shapes[i].name, 1, tokens[t], &shapes[i]);
    return ERR_OK;
}

/* One layer's; what has no experts there is like 10m's. */
static enum err add_experts(struct shape_list *list)
{
    struct bench_model_kind kind;
    struct bench_shape shapes[BENCH_BOUND_SHAPES];
    TRY(bench_model_find("moe", &kind));
    bench_bound_shapes(&kind.config, shapes);
    for (int i = 0; i < BENCH_BOUND_SHAPES; i++)
        if (strcmp(shapes[i].name, "up") == 0 ||
            strcmp(shapes[i].name, "down") == 0)
            add_linear(list, "moe", shapes[i].name, GROUPS, GROUP_ROWS,
                       &shapes[i]);
    return ERR_OK;
}

enum err bench_gemm_shapes(const struct bench_options *options,
                           struct bench_gemm_shape *shapes, int *count)
{
    static const int64_t usual[] = { 64, 256, 2048 };
    const int64_t given[] = { options->tokens };
    const int64_t *tokens = options->tokens > 0 ? given : usual;
    int counts = options->tokens > 0 ? 1 : 3;
    struct shape_list list = { shapes, 0 };
    struct bench_model_kind kind;
    const char *model = options->model;
    if (model != NULL)
        TRY(bench_model_find(model, &kind));
    if (model == NULL || strcmp(model, "125m") == 0)
        TRY(add_model(&list, "125m", tokens, counts));
    if (model == NULL || strcmp(model, "10m") == 0)
        TRY(add_model(&list, "10m", tokens, counts));
    if (model == NULL || strcmp(model, "moe") == 0)
        TRY(add_experts(&list));
    for (int t = 0; t < counts; t++)
        add_attention(&list, tokens[t]);
    *count = list.count;
    return ERR_OK;
}
