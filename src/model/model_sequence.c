/* Attention across the chunks of a sequence, which may lie on several ranks:
 * ring attention (Liu, Zaharia and Abbeel 2023), with chunks dealt in zigzag
 * (model.h), so that all ranks have the same work in each step.
 *
 * In step t a rank works with the keys and values of the rank t places before
 * it, around the ring, which come straight from there while step t - 1 is
 * computed. The gradient of a set of keys and values goes from its owner once
 * around the ring, and each rank adds what its queries give. So a query chunk
 * meets the key chunks of its own place, of the one before and so on around all
 * places, but for those that it does not see, and a key chunk's gradient is
 * added in the order of queries' places from its own on: on any number of ranks.
 * Of a rank's own places those behind the query come last: its own set has its
 * turn at both ends, half each.
 *
 * To gather all keys first would take one exchange instead of many, and the
 * memory of all ranks' keys on each of them, which is what a long sequence has
 * not. Here two sets are there at a time, of which a rank gets the chunks that
 * it has queries for. A query chunk's results are merged with those of the key
 * chunks before by their lse, as attention's tiles are within a chunk, and all
 * that is added across chunks is added in fp32. */
#include <assert.h>
#include <stdio.h>

#include "src/base/rng.h"
#include "src/model/model_impl.h"

/* First of two slots each, used in turn; all ranks agree on them. */
#define SLOT_KV 0
#define SLOT_DKV 2

static_assert(SLOT_DKV + 2 <= GROUP_SLOTS, "one exchange per slot");

static int rank_of(const struct model *model)
{
    return model->options.first_place / model->options.own_chunks;
}

static int ranks_of(const struct model *model)
{
    return model->options.chunks / model->options.own_chunks;
}

static int64_t kv_width(const struct model *model)
{
    return 2 * model->config.n_kv_heads * model->head_dim;
}

/* Number of the j-th chunk of a rank, by place. */
static int chunk_of(const struct model *model, int rank, int j)
{
    return model_chunk_at(model->options.chunks,
                          rank * model->options.own_chunks + j);
}

/* Where in its owner's set it lies. */
static int index_of(const struct model *model, int owner, int j)
{
    int before = 0;
    for (int i = 0; i < model->options.own_chunks; i++)
        before += chunk_of(model, owner, i) < chunk_of(model, owner, j);
    return before;
}

/* The chunks of a set for which a reader has queries: the first ones. */
static int seen_by(const struct model *model, int owner, int reader)
{
    int last = 0, count = 0, own = model->options.own_chunks;
    for (int i = 0; i < own; i++)
        if (chunk_of(model, reader, i) > last)
            last = chunk_of(model, reader, i);
    for (int i = 0; i < own; i++)
        count += chunk_of(model, owner, i) <= last;
    return count;
}

/* Elements of the keys and values of a chunk of this leaf. */
static int64_t chunk_elements(const struct model *model)
{
    return model->passes[0].n * kv_width(model);
}

static int64_t set_elements(const struct model *model)
{
    return model->options.own_chunks * chunk_elements(model);
}

/* Sums are fp32, whatever the tensors are that they are rounded to. */
static bool rounds(const struct model *model)
{
    return model->options.dtype != DTYPE_F32;
}

static int64_t sum_elements(const struct pass *pass)
{
    return pass->n * model_config_queries(&pass->model->config);
}

void model_sequence_layout(struct model *model, int64_t n, struct arena *arena)
{
    struct ring *ring = &model->ring;
    size_t rows = (size_t)(model->options.own_chunks * n);
    size_t elements = rows * (size_t)kv_width(model);
    size_t set = elements * dtype_bytes(model->options.dtype);
    ring->kv = arena_take(arena, set);
    ring->dkv[0] = arena_take(arena, elements * sizeof *ring->dkv[0]);
    if (rounds(model))
        ring->sums = arena_take(
            arena, rows * (size_t)model_config_queries(&model->config) *
                       sizeof *ring->sums);
    if (ranks_of(model) > 1) {
        ring->kv_in[0] = arena_take(arena, set);
        ring->kv_in[1] = arena_take(arena, set);
        ring->dkv[1] = arena_take(arena, elements * sizeof *ring->dkv[1]);
    }
}

/* --- one step: the own queries, the keys and values of one rank --- */

/* The own keys and values without the queries between them. */
static enum err collect_kv(const struct model *model)
{
    int64_t width = kv_width(model);
    int64_t queries = model_config_queries(&model->config);
    for (int i = 0; i < model->options.own_chunks; i++) {
        const struct pass *pass = &model->passes[i];
        int64_t first =
            index_of(model, rank_of(model), i) * chunk_elements(model);
        TRY(model->kernels->copy_rows(&model->ctx, model->options.dtype,
                                      pass->n, width, model->qkv_width,
                                      at(model, pass_ready(pass), queries),
                                      width, at(model, model->ring.kv, first)));
    }
    return ERR_OK;
}

static float *sums_of(const struct pass *pass)
{
    return pass->model->ring.sums + pass->place * sum_elements(pass);
}

/* Sums where they are complete, rounded once. */
static enum err round_sums(const struct model *model, int64_t n,
                           const float *sums, void *out)
{
    return model->kernels->convert(&model->ctx, n, DTYPE_F32, sums,
                                   model->options.dtype, out);
}

/* The gradients of the own keys and values, when they are complete, to their
 * place beside the queries', and these. */
static enum err spread_gradients(const struct model *model, const float *set)
{
    const struct kernels *k = model->kernels;
    const struct kernel_ctx *ctx = &model->ctx;
    enum dtype dtype = model->options.dtype;
    int64_t width = kv_width(model);
    int64_t queries = model_config_queries(&model->config);
    const void *rounded = rounds(model) ? model->ring.kv : (const void *)set;
    if (rounds(model))
        TRY(round_sums(model, set_elements(model), set, model->ring.kv));
    for (int i = 0; i < model->options.own_chunks; i++) {
        const struct pass *pass = &model->passes[i];
        int64_t first =
            index_of(model, rank_of(model), i) * chunk_elements(model);
        TRY(k->copy_rows(ctx, dtype, pass->n, width, width,
                         at(model, rounded, first), model->qkv_width,
                         at(model, pass->dqkv, queries)));
        if (!rounds(model))
            continue;
        /* by way of dout, which nobody needs any more */
        TRY(round_sums(model, sum_elements(pass), sums_of(pass), pass->x_last));
        TRY(k->copy_rows(ctx, dtype, pass->n, queries, queries, pass->x_last,
                         model->qkv_width, pass->dqkv));
    }
    return ERR_OK;
}

static struct attention_chunk chunk_shape(const struct pass *pass, int keys)
{
    const struct model *model = pass->model;
    struct attention_chunk chunk = { .shape = model_attention_shape(pass) };
    char name[96];
    snprintf(name, sizeof name, "dropout/%d/probabilities/%d/%d", pass->number,
             pass->chunk, keys);
    chunk.shape.random.stream = rng_stream(name);
    chunk.distance = (pass->chunk - keys) * pass->leaf.seq_len;
    chunk.dq_stride =
        rounds(model) ? model_config_queries(&model->config) : model->qkv_width;
    if (pass->leaf.sequence_ids != NULL)
        chunk.key_ids = model_input_documents(model, keys);
    return chunk;
}

/* The queries of one chunk, and chunk `keys` of the sequence, which begins with
 * that element of a set. */
static enum err attend(const struct pass *pass, int keys, int64_t first,
                       const void *kv, float *dkv)
{
    const struct model *model = pass->model;
    const struct kernels *k = model->kernels;
    struct attention_chunk chunk = chunk_shape(pass, keys);
    assert(keys <= pass->chunk); /* queries see no later keys */
    void *out = pass->layer->live[SAVED_ATT];
    float *lse = pass->layer->live[SAVED_LSE];
    if (dkv == NULL)
        return k->attention_chunk_forward(
            &model->ctx, model->options.dtype, &chunk, pass_ready(pass),
            at(model, kv, first), keys == pass->chunk,
            rounds(model) ? sums_of(pass) : out, lse);
    return k->attention_chunk_backward(
        &model->ctx, model->options.dtype, &chunk, pass_ready(pass),
        at(model, kv, first), out, lse, pass->x_last,
        rounds(model) ? sums_of(pass) : pass->dqkv, dkv + first);
}

/* Step t, of which step 0 and the one after all ranks' have the own set: a
 * query meets keys of its own place and before, and then of those behind. dkv:
 * of the set; NULL in forward. */
static enum err work(const struct model *model, int t, const void *kv,
                     float *dkv)
{
    int own = model->options.own_chunks, ranks = ranks_of(model);
    int owner = (rank_of(model) + ranks - t) % ranks;
    assert(t >= 0 && t <= ranks);
    for (int j = own - 1; j >= 0; j--) {
        int keys = chunk_of(model, owner, j);
        int64_t first = index_of(model, owner, j) * chunk_elements(model);
        for (int i = 0; i < own; i++) {
            const struct pass *pass = &model->passes[i];
            bool turn = t == 0 ? i >= j : t < ranks || i < j;
            if (turn && keys <= pass->chunk)
                TRY(attend(pass, keys, first, kv, dkv));
        }
    }
    return ERR_OK;
}

/* --- exchanges --- */

/* A set, or its first elements, to one rank, and one from another. */
struct exchange {
    int slot;
    int to;
    const void *send;
    size_t send_bytes;
    int from;
    void *recv;
    size_t recv_bytes;
};

/* What step t works with. */
static struct exchange kv_exchange(const struct model *model, int t)
{
    int rank = rank_of(model), ranks = ranks_of(model);
    int to = (rank + t) % ranks, from = (rank + ranks - t) % ranks;
    size_t chunk =
        (size_t)chunk_elements(model) * dtype_bytes(model->options.dtype);
    return (struct exchange){ .slot = SLOT_KV + t % 2,
                              .to = to,
                              .send = model->ring.kv,
                              .send_bytes =
                                  chunk * (size_t)seen_by(model, rank, to),
                              .from = from,
                              .recv = model->ring.kv_in[t % 2],
                              .recv_bytes =
                                  chunk * (size_t)seen_by(model, from, rank) };
}

/* The gradient that step t has added to, for that of step t + 1. */
static struct exchange dkv_exchange(const struct model *model, int t)
{
    int rank = rank_of(model), ranks = ranks_of(model);
    size_t bytes = (size_t)set_elements(model) * sizeof(float);
    return (struct exchange){ .slot = SLOT_DKV + t % 2,
                              .to = (rank + 1) % ranks,
                              .send = model->ring.dkv[t % 2],
                              .send_bytes = bytes,
                              .from = (rank + ranks - 1) % ranks,
                              .recv = model->ring.dkv[(t + 1) % 2],
                              .recv_bytes = bytes };
}

static enum err start(const struct model *model, struct exchange e)
{
    const struct group_access *group = model->options.sequence;
    bool sends = e.send_bytes > 0, receives = e.recv_bytes > 0;
    if (!sends && !receives)
        return ERR_OK;
    assert(e.to != group->rank && e.from != group->rank);
    assert(group->rank == rank_of(model) && e.slot < GROUP_SLOTS);
    return group->start(group->arg, e.slot, e.to, sends ? e.send : NULL,
                        e.send_bytes, e.from, receives ? e.recv : NULL,
                        e.recv_bytes);
}

static enum err finish(const struct model *model, struct exchange e)
{
    const struct group_access *group = model->options.sequence;
    if (e.send_bytes == 0 && e.recv_bytes == 0)
        return ERR_OK;
    return group->wait(group->arg, e.slot);
}

/* --- both directions --- */

/* The set of step t, when it has come; the next one is on its way then. */
static enum err turn_to(const struct model *model, int t, const void **kv)
{
    bool own = t == 0 || t == ranks_of(model);
    *kv = own ? model->ring.kv : model->ring.kv_in[t % 2];
    if (!own)
        TRY(finish(model, kv_exchange(model, t)));
    return t + 1 < ranks_of(model) ? start(model, kv_exchange(model, t + 1))
                                   : ERR_OK;
}

enum err model_sequence_forward(struct model *model)
{
    const void *kv;
    TRY(collect_kv(model));
    for (int t = 0; t <= ranks_of(model); t++) {
        TRY(turn_to(model, t, &kv));
        TRY(work(model, t, kv, NULL));
    }
    for (int i = 0; rounds(model) && i < model->options.own_chunks; i++) {
        const struct pass *pass = &model->passes[i];
        TRY(round_sums(model, sum_elements(pass), sums_of(pass),
                       pass->layer->live[SAVED_ATT]));
    }
    return ERR_OK;
}

static enum err begin_backward(struct model *model)
{
    const struct kernels *k = model->kernels;
    const struct kernel_ctx *ctx = &model->ctx;
    for (int i = 0; i < model->options.own_chunks; i++) {
        const struct pass *pass = &model->passes[i];
        TRY(k->zero(ctx, DTYPE_F32,
                    rounds(model) ? sum_elements(pass)
                                  : pass->n * model->qkv_width,
                    rounds(model) ? sums_of(pass) : pass->dqkv));
    }
    TRY(k->zero(ctx, DTYPE_F32, set_elements(model), model->ring.dkv[0]));
    return collect_kv(model);
}

enum err model_sequence_backward(struct model *model)
{
    int ranks = ranks_of(model);
    const void *kv;
    TRY(begin_backward(model));
    for (int t = 0; t <= ranks; t++) {
        float *dkv = model->ring.dkv[ranks > 1 ? t % 2 : 0];
        TRY(turn_to(model, t, &kv));
        if (ranks > 1 && t > 0)
            TRY(finish(model, dkv_exchange(model, t - 1)));
        TRY(work(model, t, kv, dkv));
        if (ranks > 1 && t < ranks)
            TRY(start(model, dkv_exchange(model, t)));
        if (t == ranks)
            TRY(spread_gradients(model, dkv));
    }
    return ERR_OK;
}
