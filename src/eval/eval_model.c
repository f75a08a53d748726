/* Opens the model of an evaluation, and gives its tasks the engine of the ranks. */
#include "src/eval/eval_model.h"

#include <stdlib.h>

#include "src/base/log.h"

/* Tokens that are computed at a time. */
#define ROWS 512

/* Programs that hide padding from attention hide it there, too. */
static enum err warn_of_padding(const struct eval_model *model)
{
    enum err rc = ERR_OK;
    int32_t pad = model->about->pad;
    struct token_list list = { 0 };
    struct tokenizer_encoder *encoder = NULL;
    TRY_OUT(tokenizer_encoder_create(model->tokenizer, &encoder));
    TRY_OUT(tokenizer_encode(encoder, (const uint8_t *)"", 0,
                             TOKENIZER_TEMPLATE, &list));
    if (pad >= 0 && list.count > 0 && list.token[0] == pad)
        log_warn("%s: token %d begins every prompt and is the one for padding, "
                 "too: LLM Foundry hides it from attention, so its scores "
                 "differ from these",
                 model->about->path, pad);
out:
    free(list.token);
    tokenizer_encoder_destroy(encoder);
    return rc;
}

static enum err open_tokenizer(struct eval_model *model)
{
    const struct eval_options *options = model->options;
    TRY(weights_tokenizer_create(model->about, options->tokenizer,
                                 &model->tokenizer));
    bool needed = options->task_count > 0 || options->gauntlet != NULL;
    if (model->tokenizer == NULL && needed)
        return weights_tokenizer_none(model->about);
    return needed && comm_rank(model->comm) == 0 ? warn_of_padding(model)
                                                 : ERR_OK;
}

enum err eval_model_open(const struct eval_options *options, struct comm *comm,
                         struct eval_model *model)
{
    model->options = options;
    model->comm = comm;
    TRY(weights_open(options->model, &model->weights));
    model->about = weights_about(model->weights);
    const struct model_config *config = &model->about->config;
    model->max_seq_len =
        options->max_seq_len > 0 ? options->max_seq_len : config->max_seq_len;
    if (model->max_seq_len > config->max_seq_len &&
        config->positions == POSITIONS_LEARNED)
        return err_set(ERR_USAGE,
                       "--max-seq-len is %lld, and the model has %lld "
                       "positions",
                       (long long)model->max_seq_len,
                       (long long)config->max_seq_len);
    return open_tokenizer(model);
}

/* --- the engine --- */

static enum err forward(void *self, const struct infer_tokens *list, int count)
{
    struct eval_model *model = self;
    return infer_ranks_forward(&model->ranks, list, count);
}

static void cut(void *self, int64_t slot, int64_t length)
{
    struct eval_model *model = self;
    infer_cut(model->ranks.infer, slot, length);
}

static enum err any(void *self, bool mine, bool *out)
{
    struct eval_model *model = self;
    return infer_ranks_ask(&model->ranks, mine, out);
}

enum err eval_model_load(struct eval_model *model, int64_t positions)
{
    const struct eval_options *options = model->options;
    int threads = options->threads > 0
                      ? options->threads
                      : kernels_threads_default(comm_local_size(model->comm));
    const struct infer_ranks_options over = {
        .weights = options->weights,
        .backend = options->backend,
        .spread = options->spread,
        .threads = threads,
        .readers = threads,
        .sequences = options->batch,
        .positions = positions,
        .rows = ROWS,
        .forward = options->dataset_count > 0,
    };
    TRY(infer_ranks_open(model->weights, model->comm, &over, &model->ranks));
    bool together = infer_ranks_together(&model->ranks);
    if (positions > 0)
        model->icl = (struct icl_model){ .self = model,
                                         .slots = options->batch,
                                         .positions = positions,
                                         .rows = together ? ROWS : INT64_MAX,
                                         .forward = forward,
                                         .cut = cut,
                                         .any = together ? any : NULL };
    return ERR_OK;
}

void eval_model_close(struct eval_model *model)
{
    infer_ranks_close(&model->ranks);
    tokenizer_destroy(model->tokenizer);
    weights_close(model->weights);
}
