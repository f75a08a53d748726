/* Opens models for tessera-eval. In three steps, since each costs more than the one
 * before and may be the last: the tokenizer, by which all prompts are made and
 * judged; the weights in fp32, which perplexity needs; and the engine with its
 * cache, whose size the longest prompt decides. The engine has a copy of the
 * weights in its own form, so the first ones go where nobody else needs them. */
#include "src/eval/eval_model.h"

#include <assert.h>
#include <stdlib.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/formats/weights.h"

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

static enum err open_tokenizer(const struct eval_options *options,
                               struct comm *comm, struct eval_model *model)
{
    TRY(weights_tokenizer_create(model->about, options->tokenizer,
                                 &model->tokenizer));
    bool needed = options->task_count > 0 || options->gauntlet != NULL;
    if (model->tokenizer == NULL && needed)
        return err_set(ERR_USAGE,
                       "%s: there is no tokenizer with the model: give its "
                       "tokenizer.json with --tokenizer FILE, or --tokenizer "
                       "bytes",
                       model->about->path);
    return needed && comm_rank(comm) == 0 ? warn_of_padding(model) : ERR_OK;
}

enum err eval_model_open(const struct eval_options *options, struct comm *comm,
                         struct eval_model *model)
{
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
    model->threads = options->threads > 0
                         ? options->threads
                         : kernels_threads_default(comm_local_size(comm));
    return open_tokenizer(options, comm, model);
}

enum err eval_model_load(struct eval_model *model)
{
    double begin = clock_now();
    assert(model->params == NULL);
    TRY(kernels_find("cpu", "auto", &model->kernels));
    TRY(params_create(&model->about->config, &model->params));
    TRY(weights_resident_create(model->weights, model->params, DTYPE_F32,
                                model->threads, &model->resident));
    log_info("%s read in %.1f s", model->about->path, clock_now() - begin);
    return ERR_OK;
}

static enum err forward(void *self, const struct infer_tokens *list, int count)
{
    struct eval_model *model = self;
    return infer_forward(model->infer, NULL, list, count);
}

static void cut(void *self, int64_t slot, int64_t length)
{
    struct eval_model *model = self;
    infer_cut(model->infer, slot, length);
}

enum err eval_model_start(struct eval_model *model,
                          const struct eval_options *options, int64_t positions,
                          bool alone)
{
    assert(positions > 0 && model->resident != NULL && model->infer == NULL);
    const struct infer_options infer = { .threads = model->threads,
                                         .sequences = options->batch,
                                         .positions = positions,
                                         .rows = ROWS };
    TRY(infer_create(&model->about->config, model->params, model->kernels,
                     &infer, &model->infer));
    TRY(infer_hold(model->infer, weights_resident_access(model->resident),
                   options->weights));
    if (alone) {
        weights_resident_destroy(model->resident);
        model->resident = NULL;
    }
    model->icl = (struct icl_model){ .self = model,
                                     .slots = options->batch,
                                     .positions = positions,
                                     .rows = INT64_MAX,
                                     .forward = forward,
                                     .cut = cut };
    return ERR_OK;
}

void eval_model_close(struct eval_model *model)
{
    infer_destroy(model->infer);
    weights_resident_destroy(model->resident);
    params_destroy(model->params);
    tokenizer_destroy(model->tokenizer);
    weights_close(model->weights);
}
