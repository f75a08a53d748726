/* Staged rows of the embeddings' gradient.
 *
 * A leaf may add its gradients to those of former leaves in place if each
 * element gets one addition, of the leaf's finished sum (params.h: `once`).
 * Both matrices of the embedding get theirs in parts: from every token, and the
 * first one from the head, too, where that is tied to it. So the few rows that
 * this leaf's tokens have are staged in a buffer and begin at zero, and what
 * they held is added back when they are finished: (former leaves) + (this
 * leaf), as if the leaf had a whole gradient of its own, which would have to be
 * zeroed and added for a few of its rows. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/array.h"
#include "src/model/model_impl.h"

/* Each token of the pass once, in order. */
static int64_t list_rows(const struct pass *pass, int32_t *rows)
{
    int64_t count = 0;
    assert(pass->n <=
           pass->model->options.samples * pass->model->options.seq_len);
    memcpy(rows, pass->leaf.tokens, (size_t)pass->n * sizeof *rows);
    qsort(rows, (size_t)pass->n, sizeof *rows, array_order_i32);
    for (int64_t i = 0; i < pass->n; i++)
        if (count == 0 || rows[i] != rows[count - 1])
            rows[count++] = rows[i];
    return count;
}

bool model_staged_rows_fit(const struct model *model)
{
    int64_t n = model->options.samples * model->options.seq_len;
    bool parts = model->config.tied && n > model_logit_rows(model, n);
    return !model->kernels->memory->device && model->options.chunks == 1 &&
           !parts;
}

void model_staged_rows_layout(struct model *model, struct arena *arena)
{
    struct staged_rows *staged = &model->staged;
    int64_t d = model->config.d_model;
    int64_t n = model->options.samples * model->options.seq_len;
    if (!model_staged_rows_fit(model))
        return;
    staged->rows = arena_take(arena, (size_t)n * sizeof(int32_t));
    staged->tokens = arena_take(arena, (size_t)(n * d) * sizeof(float));
    if (model->config.positions == POSITIONS_LEARNED)
        staged->positions = arena_take(
            arena, (size_t)(model->options.seq_len * d) * sizeof(float));
}

static size_t row_bytes(const struct model *model)
{
    return (size_t)model->config.d_model * sizeof(float);
}

/* This and the way back are one loop for all rows: an op for each would wake
 * the threads for each. */
void model_staged_rows_take_tokens(struct pass *pass, float *dwte)
{
    struct staged_rows *staged = &pass->model->staged;
    int64_t d = pass->model->config.d_model;
    size_t bytes = row_bytes(pass->model);
    assert(staged->open);
    staged->count = list_rows(pass, staged->rows);
    /* rows of other tensors would be zeroed */
    assert(staged->rows[0] >= 0);
    assert(staged->rows[staged->count - 1] < pass->model->config.vocab_size);
#pragma omp parallel for num_threads(pass->model->ctx.threads) schedule(static)
    for (int64_t i = 0; i < staged->count; i++) {
        float *row = dwte + staged->rows[i] * d;
        memcpy(staged->tokens + i * d, row, bytes);
        memset(row, 0, bytes);
    }
}

void model_staged_rows_take_positions(struct pass *pass, float *dwpe)
{
    size_t bytes = (size_t)pass->leaf.seq_len * row_bytes(pass->model);
    if (dwpe == NULL)
        return;
    assert(pass->leaf.seq_len <= pass->model->options.seq_len);
    memcpy(pass->model->staged.positions, dwpe, bytes);
    memset(dwpe, 0, bytes);
}

enum err model_staged_rows_add(struct pass *pass, float *dwte, float *dwpe)
{
    const struct model *model = pass->model;
    const struct staged_rows *staged = &model->staged;
    int64_t d = model->config.d_model;
    assert(staged->open && staged->count > 0);
#pragma omp parallel for num_threads(model->ctx.threads) schedule(static)
    for (int64_t i = 0; i < staged->count; i++) {
        const float *before = staged->tokens + i * d;
        float *row = dwte + staged->rows[i] * d;
#pragma omp simd
        for (int64_t j = 0; j < d; j++)
            row[j] = before[j] + row[j];
    }
    if (dwpe == NULL)
        return ERR_OK;
    return model->kernels->add(&model->ctx, DTYPE_F32, pass->leaf.seq_len * d,
                               staged->positions, 1.0f, dwpe, dwpe);
}
