/* Makes a model, and trains or evaluates one leaf with it: the two entries.
 * What a leaf computes is in the files of its parts (model_ends.c,
 * model_blocks.c, model_attention.c, model_mlp.c, model_moe.c).
 *
 * All memory is laid out by one walk (model_layout.c) that is gone twice: with
 * an arena that only counts, which is also what a plan asks, then with one of
 * that size. So a plan cannot forget what a run takes, and a leaf allocates
 * nothing. */
#include "src/model/model.h"

#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/base/new.h"
#include "src/base/rng.h"
#include "src/model/model_impl.h"

int model_chunk_at(int chunks, int place)
{
    assert(place >= 0 && place < chunks);
    return place % 2 == 0 ? place / 2 : chunks - 1 - place / 2;
}

static enum err model_open_passes(struct model *model)
{
    const struct model_options *options = &model->options;
    size_t own = (size_t)model->options.own_chunks;
    size_t layers = (size_t)model->config.n_layers;
    TRY(new_zeroed(&model->passes, own));
    TRY(new_zeroed(&model->layers, own * layers));
    for (int i = 0; i < model->options.own_chunks; i++) {
        model->passes[i].model = model;
        model->passes[i].place = i;
        model->passes[i].chunk =
            model_chunk_at(model->options.chunks, options->first_place + i);
        model->passes[i].layers = model->layers + (size_t)i * layers;
    }
    return ERR_OK;
}

static enum err model_open(const struct model_config *config,
                           const struct model_options *options,
                           const struct kernels *kernels, struct model **out)
{
    assert(options->threads >= 1 && options->samples >= 1);
    assert(options->seq_len >= 1 && options->seq_len <= config->max_seq_len);
    assert(config->n_layers <= MODEL_LAYERS_MAX);
    assert(
        options->expert_degree <= 1 ||
        (config->experts > 0 && config->experts % options->expert_degree == 0));
    struct model *model = NULL;
    TRY(new_zeroed(&model, 1));
    model->kernels = kernels;
    model->config = *config;
    model->options = *options;
    if (options->chunks == 0)
        model->options.chunks = model->options.own_chunks = 1;
    assert(model->options.seq_len % model->options.chunks == 0);
    assert(model->options.own_chunks >= 1 && options->first_place >= 0);
    assert(model->options.chunks % model->options.own_chunks == 0);
    assert(options->first_place % model->options.own_chunks == 0);
    assert(options->first_place < model->options.chunks);
    assert(!options->fp8 || options->dtype == DTYPE_BF16);
    model->ctx.threads = options->threads;
    model->ctx.stream = options->stream;
    model->ctx.profile = options->profile;
    assert(config->n_heads % config->n_kv_heads == 0);
    model->head_dim = model_config_head_dim(config);
    model->qkv_width =
        (config->n_heads + 2 * config->n_kv_heads) * model->head_dim;
    model->hidden_width =
        config->ffn == FFN_GLU ? 2 * config->ffn_width : config->ffn_width;
    enum err rc = model_open_passes(model);
    return new_or_none(rc, model, out, model_destroy);
}

/* Each chunk draws from streams of its own, so that no op must know where in
 * the sequence its rows are. */
static uint64_t stream_of(const struct pass *pass, const char *name)
{
    char chunk[160];
    if (pass->model->options.chunks == 1)
        return rng_stream(name);
    snprintf(chunk, sizeof chunk, "%s/%d", name, pass->chunk);
    return rng_stream(chunk);
}

static uint64_t layer_stream(const struct pass *pass, const char *what,
                             int64_t layer, const char *which)
{
    char name[128];
    snprintf(name, sizeof name, "%s/%lld%s", what, (long long)layer, which);
    return stream_of(pass, name);
}

static void pass_streams(struct pass *pass)
{
    pass->dropout_embedding = stream_of(pass, "dropout/embedding");
    for (int64_t i = 0; i < pass->model->config.n_layers; i++) {
        struct layer *layer = &pass->layers[i];
        char depth[48];
        layer->dropout_attention =
            layer_stream(pass, "dropout", i, "/attention");
        layer->dropout_ffn = layer_stream(pass, "dropout", i, "/ffn");
        layer->dropout_probs =
            layer_stream(pass, "dropout", i, "/probabilities");
        layer->jitter = layer_stream(pass, "jitter", i, "");
        snprintf(depth, sizeof depth, "depth/%lld", (long long)i);
        layer->drop_depth = rng_stream(depth);
        for (int j = 0; j < LORA_LAYERS; j++) {
            struct lora_shape shape;
            char which[48];
            (void)lora_shape(&pass->model->config, (enum lora_layer)j, &shape);
            snprintf(which, sizeof which, "/%s", shape.name);
            layer->dropout_lora[j] = layer_stream(pass, "lora", i, which);
        }
    }
}

/* --- what does not change from leaf to leaf --- */

static enum err upload_identity(struct model *model)
{
    enum err rc = ERR_OK;
    int64_t rows = model->ws.dispatch.rows;
    size_t bytes = (size_t)rows * sizeof(int32_t);
    int32_t *numbers = NULL;
    TRY(new_room(&numbers, (size_t)rows));
    for (int64_t i = 0; i < rows; i++)
        numbers[i] = (int32_t)i;
    TRY_OUT(model->kernels->memory->upload(model->ctx.stream, bytes, numbers,
                                           model->ws.dispatch.identity));
    TRY_OUT(model->kernels->memory->wait(model->ctx.stream));
out:
    free(numbers);
    return rc;
}

static enum err model_constants(struct model *model)
{
    for (int i = 0; i < model->options.own_chunks; i++)
        pass_streams(&model->passes[i]);
    if (model->ws.dispatch.rows > 0)
        TRY(upload_identity(model));
    TRY(block_tables_fill(&model->tables, &model->config, model->kernels,
                          model->ctx.stream, model->options.seq_len));
    if (model->ws.unused != NULL)
        TRY(model->kernels->zero(&model->ctx, DTYPE_F32, model->config.d_model,
                                 model->ws.unused));
    return model_fp8_create(model);
}

/* --- making one --- */

/* Memory, laid out. */
static enum err model_allocate(struct model *model)
{
    const struct kernel_memory *memory = model->kernels->memory;
    struct arena plan = { 0 }, host = { 0 };
    struct model_bytes bytes;
    model_layout(model, &plan, &bytes);
    model_layout_host(model, &host);
    TRY(memory->tensors_create(plan.used, &model->arena));
    if (host.used > 0)
        TRY(memory->host_create(host.used, &model->host));
    model_layout(model, &model->arena, &bytes);
    model_layout_host(model, &model->host);
    assert(model->arena.used == plan.used && model->host.used == host.used);
    TRY(model_input_create(model));
    TRY(model_experts_exchange_create(model));
    return model_graph_create(model);
}

enum err model_create(const struct model_config *config,
                      const struct params *params,
                      const struct kernels *kernels,
                      const struct model_options *options, struct model **out)
{
    enum err rc = ERR_OK;
    struct model *model = NULL;
    assert(options->expert_degree <= 1 ||
           (options->experts != NULL &&
            options->experts->size == options->expert_degree));
    TRY_OUT(model_open(config, options, kernels, &model));
    const struct group_access *sequence = options->sequence;
    int ranks = model->options.chunks / model->options.own_chunks;
    assert(ranks == (sequence != NULL ? sequence->size : 1));
    assert(model->options.first_place ==
           (sequence != NULL ? sequence->rank : 0) * model->options.own_chunks);
    (void)sequence;
    (void)ranks;
    assert(options->frozen == (params->frozen != NULL));
    assert(options->lora.rank == params->lora_rank);
    model->params = params;
    TRY_OUT(model_allocate(model));
    TRY_OUT(model_constants(model));
out:
    return new_or_none(rc, model, out, model_destroy);
}

void model_spare(const struct model *model, void **memory, size_t *bytes)
{
    const size_t aligned = 256;
    size_t from = (model->spare + aligned - 1) / aligned * aligned;
    *memory = model->arena.base + from;
    *bytes = model->arena.used > from ? model->arena.used - from : 0;
}

void model_destroy(struct model *model)
{
    if (model == NULL)
        return;
    /* what is still under way has its memory here */
    if (model->arena.base != NULL)
        (void)model->kernels->memory->wait(model->ctx.stream);
    model_graph_destroy(model);
    model_input_destroy(model);
    model_experts_exchange_destroy(model);
    model->kernels->memory->host_destroy(&model->host);
    model->kernels->memory->tensors_destroy(&model->arena);
    free(model->passes);
    free(model->layers);
    free(model);
}

/* Products take so many rows at most, and sizes are whole numbers of 64 bits as
 * long as there are no more. */
static bool countable(const struct model_config *config,
                      const struct model_options *options)
{
    double rows = (double)options->samples * (double)options->seq_len;
    double choices = config->experts > 0 ? (double)config->experts_top_k : 1.0;
    return rows * choices <= INT_MAX;
}

enum err model_plan(const struct model_config *config,
                    const struct kernels *kernels,
                    const struct model_options *options,
                    struct model_bytes *out)
{
    enum err rc = ERR_OK;
    struct arena plan = { 0 }, host = { 0 };
    struct model *model = NULL;
    if (!countable(config, options)) {
        *out = (struct model_bytes){ .saved = ARENA_BYTES_MAX,
                                     .total = ARENA_BYTES_MAX };
        return ERR_OK;
    }
    TRY_OUT(model_open(config, options, kernels, &model));
    model_layout(model, &plan, out);
    model_layout_host(model, &host);
    out->host = host.used;
out:
    model_destroy(model);
    return rc;
}

const struct kernel_ctx *model_ctx(const struct model *model)
{
    return &model->ctx;
}

enum err model_expert_counts_clear(struct model *model)
{
    const struct model_config *config = &model->config;
    if (config->experts == 0)
        return ERR_OK;
    /* a zero is the same in every type of 8 bytes */
    return model->kernels->zero(&model->ctx, DTYPE_F64,
                                config->n_layers * config->experts,
                                model->ws.expert_counts);
}

enum err model_expert_counts_fetch(struct model *model)
{
    const struct kernel_memory *memory = model->kernels->memory;
    if (model->config.experts == 0 || !memory->device)
        return ERR_OK;
    return memory->download(
        model->ctx.stream,
        (size_t)(model->config.n_layers * model->config.experts) *
            sizeof(int64_t),
        model->ws.expert_counts, model->ws.host_expert_counts);
}

const int64_t *model_expert_counts(const struct model *model)
{
    return model->ws.host_expert_counts;
}

/* All that differs from leaf to leaf of a kind. */
static enum err model_begin(struct model *model,
                            const struct param_access *access,
                            const struct leaf *leaf, bool training,
                            struct leaf_loss *loss)
{
    assert(leaf->samples >= 1 && leaf->samples <= model->options.samples);
    assert(leaf->seq_len >= 1 && leaf->seq_len <= model->options.seq_len);
    assert(leaf->seq_len % model->options.chunks == 0);
    TRY(model_input_leaf(model, access, leaf));
    for (int i = 0; i < model->options.own_chunks; i++) {
        struct pass *pass = &model->passes[i];
        pass->access = access;
        pass->training = training;
        pass->n = pass->leaf.samples * pass->leaf.seq_len;
        pass->first = pass->chunk * pass->leaf.seq_len;
        pass->loss = loss + i;
    }
    return ERR_OK;
}

static enum err clear_loss(struct model *model)
{
    struct leaf_loss *loss = model->passes[0].loss;
    return model->kernels->zero(&model->ctx, DTYPE_F64,
                                model->options.own_chunks *
                                    (int64_t)(sizeof *loss / sizeof(double)),
                                loss);
}

static enum err train(struct model *model)
{
    TRY(clear_loss(model));
    TRY(model_embed(model));
    TRY(model_blocks_forward(model));
    TRY(model_head(model, true));
    TRY(model_blocks_backward(model));
    return params_trains(model->params, 0) ? model_embed_backward(model)
                                           : ERR_OK;
}

enum err model_train_leaf(struct model *model,
                          const struct param_access *access,
                          const struct leaf *leaf, struct leaf_loss *loss)
{
    TRY(model_begin(model, access, leaf, true, loss));
    return model->look != NULL ? train(model) : model_graph_run(model, train);
}

enum err model_eval_leaf(struct model *model, const struct param_access *access,
                         const struct leaf *leaf, struct leaf_loss *loss)
{
    TRY(model_begin(model, access, leaf, false, loss));
    TRY(clear_loss(model));
    TRY(model_embed(model));
    TRY(model_blocks_forward(model));
    return model_head(model, false);
}
