/* Opens the model of an evaluation and lays its weights out over the ranks.
 *
 *                     tasks alone             perplexity, too
 *   a node's copy     panels, in shared       fp32 as they are, shared
 *                     memory
 *   over ranks        shards, fp32            shards, fp32
 *
 * Panels are what decoding reads quickest, in any type of --weights, and each rank
 * makes those of some blocks. Perplexity is training's forward, which reads rows; the
 * engine then reads the same, with the same bits, so that there is one copy. */
#include "src/eval/eval_model.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/base/units.h"

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
        return err_set(ERR_USAGE,
                       "%s: there is no tokenizer with the model: give its "
                       "tokenizer.json with --tokenizer FILE, or --tokenizer "
                       "bytes",
                       model->about->path);
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
    model->ctx.threads = options->threads > 0
                             ? options->threads
                             : kernels_threads_default(comm_local_size(comm));
    return open_tokenizer(model);
}

/* --- weights --- */

static bool on_device(const struct eval_model *model)
{
    return model->kernels->memory->device;
}

/* Whether the engine computes with panels. */
static bool holds(const struct eval_model *model)
{
    return model->way == SPREAD_NODE && model->options->dataset_count == 0 &&
           (!on_device(model) || model->options->weights != INFER_F32);
}

/* *held: bytes of the weights, of a node or a device that has all of them; *needed:
 * with all that its ranks' engines take besides. */
static enum err prepare(struct eval_model *model, struct infer_options *options,
                        size_t *held, size_t *needed)
{
    size_t cache, total;
    TRY(infer_backend_find(model->options->backend,
                           comm_local_rank(model->comm), &model->kernels,
                           &model->ctx.stream));
    options->stream = model->ctx.stream;
    TRY(params_create(&model->about->config, &model->params));
    *held = total = (size_t)model->params->elements * sizeof(float);
    if (options->positions > 0)
        TRY(infer_plan(&model->about->config, model->params, model->kernels,
                       options, model->options->weights, &cache, held, &total));
    size_t engines =
        on_device(model) ? 1 : (size_t)comm_local_size(model->comm);
    *needed = arena_sum(*held, (total - *held) * engines);
    return weights_readers_create(model->weights, model->params,
                                  model->kernels->memory, model->ctx.stream,
                                  model->ctx.threads, &model->readers);
}

/* All ranks return the same. */
static enum err choose(struct eval_model *model, size_t needed)
{
    enum infer_weights weights = model->options->weights;
    model->way = model->options->spread;
    TRY(spread_choose(model->comm, needed <= infer_available(model->kernels),
                      &model->way));
    if (model->way == SPREAD_RANKS && weights != INFER_F32)
        return err_set(ERR_USAGE,
                       "--weights %s: weights that are spread over ranks are "
                       "fp32: leave it out, or choose --spread node",
                       infer_weights_names[weights]);
    return ERR_OK;
}

static enum err spread_weights(struct eval_model *model)
{
    const struct replica_source source = { weights_readers_fill, model->readers,
                                           true };
    return spread_create(model->comm, model->kernels, &model->ctx,
                         model->params, &source, model->way, &model->spread);
}

/* This rank's place among those that share memory with it. */
static enum err share_room(struct eval_model *model, size_t held)
{
    int rank = comm_rank(model->comm), node;
    TRY(comm_window_create(model->comm, COMM_WINDOW_NODE, held,
                           &model->window));
    node = comm_window_node(model->window, rank);
    model->room.memory = comm_window_part(model->window, rank);
    model->room.parts = 0;
    for (int r = 0; r < comm_size(model->comm); r++) {
        if (r == rank)
            model->room.part = model->room.parts;
        model->room.parts += comm_window_node(model->window, r) == node;
    }
    return ERR_OK;
}

/* Panels are made of blocks out of the files, one at a time. */
static enum err hold(struct eval_model *model)
{
    enum err rc =
        infer_hold(model->infer, weights_readers_access(model->readers),
                   model->options->weights);
    TRY(comm_agree(model->comm, rc));
    return comm_barrier(model->comm);
}

static void tell(const struct eval_model *model, double begin, size_t held)
{
    int ranks = comm_size(model->comm);
    char text[32];
    size_t bytes = held;
    if (comm_rank(model->comm) != 0)
        return;
    log_info("%s read in %.1f s", model->about->place, clock_now() - begin);
    if (model->way == SPREAD_RANKS &&
        spread_plan(model->params, ranks, &bytes) != ERR_OK)
        return;
    units_bytes((double)bytes, text, sizeof text);
    if (model->way == SPREAD_RANKS)
        log_info("weights are spread over %d ranks, %s on each with the blocks "
                 "at work",
                 ranks, text);
    else if (ranks > 1)
        log_info("weights are there once a %s, %s",
                 on_device(model) ? "rank" : "node", text);
}

/* --- the engine --- */

static enum err forward(void *self, const struct infer_tokens *list, int count)
{
    struct eval_model *model = self;
    struct err_kept kept = { ERR_OK, "" };
    if (model->spread == NULL)
        return infer_forward(model->infer, NULL, list, count);
    spread_begin(model->spread);
    if (count > 0)
        err_keep(&kept,
                 infer_forward(model->infer, spread_access(model->spread), list,
                               count));
    if (kept.code == ERR_COMM)
        return err_again(&kept);
    TRY(spread_end(model->spread));
    return err_again(&kept);
}

static void cut(void *self, int64_t slot, int64_t length)
{
    struct eval_model *model = self;
    infer_cut(model->infer, slot, length);
}

static enum err any(void *self, bool mine, bool *out)
{
    struct eval_model *model = self;
    int64_t word = mine;
    TRY(comm_all_reduce_i64(model->comm, &word, 1, COMM_MAX));
    *out = word != 0;
    return ERR_OK;
}

static struct icl_model icl_of(struct eval_model *model, int64_t positions)
{
    bool together = model->spread != NULL && spread_together(model->spread);
    return (struct icl_model){ .self = model,
                               .slots = model->options->batch,
                               .positions = positions,
                               .rows = together ? ROWS : INT64_MAX,
                               .forward = forward,
                               .cut = cut,
                               .any = together ? any : NULL };
}

enum err eval_model_load(struct eval_model *model, int64_t positions)
{
    size_t held = 0, needed = 0;
    double begin = clock_now();
    struct infer_options options = { .threads = model->ctx.threads,
                                     .sequences = model->options->batch,
                                     .positions = positions,
                                     .rows = ROWS };
    assert(model->params == NULL && positions >= 0);
    TRY(comm_agree(model->comm, prepare(model, &options, &held, &needed)));
    TRY(choose(model, needed));
    if (!holds(model))
        TRY(spread_weights(model));
    else if (!on_device(model))
        TRY(share_room(model, held));
    if (positions > 0) {
        options.room = model->window != NULL ? &model->room : NULL;
        TRY(comm_agree(model->comm,
                       infer_create(&model->about->config, model->params,
                                    model->kernels, &options, &model->infer)));
        model->icl = icl_of(model, positions);
    }
    if (holds(model))
        TRY(hold(model));
    weights_readers_destroy(model->readers);
    model->readers = NULL;
    tell(model, begin, held);
    return ERR_OK;
}

void eval_model_close(struct eval_model *model)
{
    infer_destroy(model->infer);
    spread_destroy(model->spread);
    comm_window_destroy(model->window);
    weights_readers_destroy(model->readers);
    params_destroy(model->params);
    if (model->ctx.stream != NULL)
        model->kernels->memory->stream_destroy(model->ctx.stream);
    tokenizer_destroy(model->tokenizer);
    weights_close(model->weights);
}
