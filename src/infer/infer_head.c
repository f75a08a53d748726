/* From the residual stream to what is wanted of rows: logits, losses, the most
 * likely token. The head is the largest product of all, vocabulary times width,
 * and of a prompt only the last row is wanted: so wanted rows are picked out
 * before the final norm, and their logits made 128 at a time, which bounds the
 * room for them. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "src/infer/infer_impl.h"

/* --- what is made of a row of logits, by the host --- */

/* The first of the largest of scale * x[n]; -1 if none is a number. */
static int64_t largest(const float *x, int64_t n, float scale)
{
    float most = -INFINITY;
    int64_t at = -1;
    for (int64_t i = 0; i < n; i++) {
        float value = x[i] * scale;
        if (value > most) {
            most = value;
            at = i;
        }
    }
    /* all may be -Inf */
    for (int64_t i = 0; i < n && at < 0; i++)
        if (!isnan(x[i]))
            at = i;
    return at;
}

static enum err take_logits(const struct infer *infer,
                            const struct infer_target *target,
                            const float *logits)
{
    int64_t v = infer->config.vocab_size;
    float scale = (float)infer->config.logit_scale;
    const struct infer_tokens *t = target->tokens;
    if (t->logits != NULL)
        for (int64_t i = 0; i < v; i++)
            t->logits[target->at * v + i] = logits[i] * scale;
    if (t->argmax == NULL)
        return ERR_OK;
    int64_t at = largest(logits, v, scale);
    if (at < 0)
        return err_set(ERR_NUMERIC,
                       "the model's logits are not numbers at position %lld of "
                       "a text: its weights are damaged or it has diverged",
                       (long long)(infer->length[t->slot] + t->count -
                                   t->wanted + target->at));
    t->argmax[target->at] = (int32_t)at;
    return ERR_OK;
}

/* --- some rows --- */

/* Whether any row's logits are looked at by the host, and whether any has a
 * label. */
static void wanted_of(const struct infer_target *targets, int64_t count,
                      bool *logits, bool *labels)
{
    *logits = *labels = false;
    for (int64_t i = 0; i < count; i++) {
        const struct infer_tokens *t = targets[i].tokens;
        *logits |= t->logits != NULL || t->argmax != NULL;
        *labels |= t->labels != NULL;
    }
}

static enum err logits_to_host(struct infer *infer,
                               const struct infer_target *targets,
                               int64_t count)
{
    const struct kernel_memory *memory = infer->kernels->memory;
    int64_t v = infer->config.vocab_size;
    if (memory->device) {
        TRY(memory->download(infer->ctx.stream,
                             (size_t)(count * v) * sizeof(float),
                             infer->work.logits, infer->host.logits));
        TRY(memory->wait(infer->ctx.stream));
    }
    for (int64_t i = 0; i < count; i++)
        TRY(take_logits(infer, &targets[i], infer->host.logits + i * v));
    return ERR_OK;
}

static enum err losses(struct infer *infer, const struct infer_target *targets,
                       int64_t count)
{
    const struct kernel_memory *memory = infer->kernels->memory;
    struct infer_host *host = &infer->host;
    struct infer_work *work = &infer->work;
    for (int64_t i = 0; i < count; i++) {
        const struct infer_tokens *t = targets[i].tokens;
        host->labels[i] = t->labels != NULL ? t->labels[targets[i].at] : -1;
    }
    if (memory->device)
        TRY(memory->upload(infer->ctx.stream, (size_t)count * sizeof(int32_t),
                           host->labels, work->labels));
    TRY(infer->kernels->cross_entropy(
        &infer->ctx, DTYPE_F32, count, infer->config.vocab_size,
        (float)infer->config.logit_scale, &(struct target){ 0 }, work->logits,
        work->labels, false, work->losses));
    if (memory->device)
        TRY(memory->download(infer->ctx.stream, (size_t)count * sizeof(float),
                             work->losses, host->losses));
    TRY(memory->wait(infer->ctx.stream));
    for (int64_t i = 0; i < count; i++)
        if (targets[i].tokens->labels != NULL)
            targets[i].tokens->nll[targets[i].at] = host->losses[i];
    return ERR_OK;
}

/* x[count, d] has passed the final norm. */
static enum err head_rows(struct infer *infer,
                          const struct infer_target *targets, int64_t count,
                          const float *x)
{
    const struct model_config *config = &infer->config;
    bool tied = config->tied, wants_logits, wants_losses;
    wanted_of(targets, count, &wants_logits, &wants_losses);
    if (!wants_logits && !wants_losses)
        return ERR_OK;
    TRY(infer_product(infer, tied ? 0 : infer->params->block_count - 1,
                      tied ? PARAM_WTE : PARAM_LM_HEAD, count,
                      config->vocab_size, config->d_model, x, NULL,
                      infer->work.logits));
    /* in this order: losses may destroy logits */
    if (wants_logits)
        TRY(logits_to_host(infer, targets, count));
    return wants_losses ? losses(infer, targets, count) : ERR_OK;
}

/* --- all wanted rows --- */

/* x + scale * branch of the wanted rows, and its norm in b.x. */
static enum err final_norm(struct infer *infer, int64_t count)
{
    const struct kernels *k = infer->kernels;
    const int32_t *wanted = infer->work.wanted;
    int64_t d = infer->config.d_model;
    struct block *b = &infer->b, rows = *b;
    struct kernel_ctx ctx = infer_ctx(infer, count * d);
    TRY(k->embedding_forward(&ctx, DTYPE_F32, count, count, d, wanted, b->x,
                             NULL, b->attended));
    TRY(k->embedding_forward(&ctx, DTYPE_F32, count, count, d, wanted,
                             b->branch, NULL, b->norm));
    b->number = infer->params->block_count - 1;
    rows.n = count;
    rows.norm = b->x;
    return block_add_norm(&rows, PARAM_NORM_F_WEIGHT, b->attended, b->norm,
                          b->attended);
}

static enum err head(struct infer *infer, int64_t count)
{
    int64_t most = infer_logit_rows(infer);
    const float *x = infer->b.x;
    TRY(final_norm(infer, count));
    for (int64_t first = 0; first < count; first += most) {
        int64_t rows = count - first < most ? count - first : most;
        TRY(head_rows(infer, infer->targets + first, rows,
                      x + first * infer->config.d_model));
    }
    return ERR_OK;
}

/* What was gathered is released also where logits are no numbers. */
enum err infer_head(struct infer *infer, int64_t count)
{
    int last = infer->params->block_count - 1;
    bool tied = infer->config.tied;
    struct err_kept kept;
    TRY(infer_enter(infer, last, 1, infer_block_elements(infer, 0)));
    if (tied)
        TRY(infer_enter(infer, 0, 1, 0));
    err_keep(&kept, count > 0 ? head(infer, count) : ERR_OK);
    if (tied)
        TRY(infer_leave(infer, 0, 1));
    TRY(infer_leave(infer, last, 1));
    return err_again(&kept);
}
