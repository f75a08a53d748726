/* Attention across the chunks of a sequence, which may lie on several ranks:
 * ring attention (Liu, Zaharia and Abbeel 2023).
 *
 * In step t a rank works with the keys and values of the rank t places before
 * it, which come straight from there while step t - 1 is computed. Query chunk
 * i so meets the key chunks i, i - 1, ..., 0 on any number of ranks. In
 * backward the gradient of a set of keys and values passes through its owner
 * and all later ranks, each of which adds what its queries give: so it is added
 * in the order of queries. A rank has the set in step t and the next rank in
 * step t + 1, so nobody waits for a turn; the last rank sends it home.
 *
 * To gather all keys first would take one exchange instead of many, and the
 * memory of all ranks' keys on each of them, which is what a long sequence has
 * not. Here two sets are there at a time. A query chunk's results are merged with
 * those of the key chunks before by their lse, as attention's tiles are within a
 * chunk. */
#include <assert.h>
#include <stdio.h>

#include "src/base/rng.h"
#include "src/model/model_impl.h"

/* First of two slots each, used in turn; all ranks agree on them. */
#define SLOT_KV 0
#define SLOT_DKV 2
#define SLOT_HOME 4

static_assert(SLOT_HOME + 2 <= GROUP_SLOTS, "one exchange per slot");

static int rank_of(const struct model *model)
{
    return model->options.first_chunk / model->options.own_chunks;
}

static int ranks_of(const struct model *model)
{
    return model->options.chunks / model->options.own_chunks;
}

static int64_t kv_width(const struct model *model)
{
    return 2 * model->config.n_kv_heads * model->head_dim;
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

void model_sequence_layout(struct model *model, int64_t n, struct arena *arena)
{
    struct ring *ring = &model->ring;
    size_t set = (size_t)(model->options.own_chunks * n * kv_width(model)) *
                 dtype_bytes(model->options.dtype);
    ring->kv = arena_take(arena, set);
    ring->dkv[0] = arena_take(arena, set);
    if (ranks_of(model) > 1) {
        ring->kv_in[0] = arena_take(arena, set);
        ring->kv_in[1] = arena_take(arena, set);
        ring->dkv[1] = arena_take(arena, set);
        ring->dkv_home = arena_take(arena, set);
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
        TRY(model->kernels->copy_rows(
            &model->ctx, model->options.dtype, pass->n, width, model->qkv_width,
            at(model, pass_ready(pass), queries), width,
            at(model, model->ring.kv, i * chunk_elements(model))));
    }
    return ERR_OK;
}

/* Their gradient, when it is complete, to its place beside the queries'. */
static enum err spread_dkv(const struct model *model, const void *set)
{
    int64_t width = kv_width(model);
    int64_t queries = model_config_queries(&model->config);
    for (int i = 0; i < model->options.own_chunks; i++) {
        const struct pass *pass = &model->passes[i];
        TRY(model->kernels->copy_rows(
            &model->ctx, model->options.dtype, pass->n, width, width,
            at(model, set, i * chunk_elements(model)), model->qkv_width,
            at(model, pass->dqkv, queries)));
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
    if (pass->leaf.sequence_ids != NULL)
        chunk.key_ids = model_input_documents(model, keys);
    return chunk;
}

/* The queries of one chunk, and of a set of keys and values the j-th chunk,
 * which is number `keys` of the sequence. */
static enum err attend(const struct pass *pass, int j, int keys, const void *kv,
                       void *dkv)
{
    const struct model *model = pass->model;
    const struct kernels *k = model->kernels;
    struct attention_chunk chunk = chunk_shape(pass, keys);
    /* queries see no later keys */
    assert(keys >= 0 && keys <= pass->chunk);
    assert(j >= 0 && j < model->options.own_chunks);
    void *out = pass->layer->live[SAVED_ATT];
    float *lse = pass->layer->live[SAVED_LSE];
    int64_t first = j * chunk_elements(model);
    if (dkv == NULL)
        return k->attention_chunk_forward(
            &model->ctx, model->options.dtype, &chunk, pass_ready(pass),
            at(model, kv, first), keys == pass->chunk, out, lse);
    return k->attention_chunk_backward(
        &model->ctx, model->options.dtype, &chunk, pass_ready(pass),
        at(model, kv, first), out, lse, pass->x_last, pass->dqkv,
        at(model, dkv, first));
}

/* dkv: of the set; NULL in forward. */
static enum err work(const struct model *model, int owner, const void *kv,
                     void *dkv)
{
    int own = model->options.own_chunks;
    assert(owner >= 0 && owner <= rank_of(model));
    for (int j = own - 1; j >= 0; j--)
        for (int i = owner == rank_of(model) ? j : 0; i < own; i++)
            TRY(attend(&model->passes[i], j, owner * own + j, kv, dkv));
    return ERR_OK;
}

/* --- exchanges --- */

/* A set to one rank, and one from another; a rank that there is not: nothing to
 * it or from it. */
struct exchange {
    int slot;
    int to;
    const void *send;
    int from;
    void *recv;
};

/* What step t works with. */
static struct exchange kv_exchange(const struct model *model, int t)
{
    return (struct exchange){ .slot = SLOT_KV + t % 2,
                              .to = rank_of(model) + t,
                              .send = model->ring.kv,
                              .from = rank_of(model) - t,
                              .recv = model->ring.kv_in[t % 2] };
}

/* The gradient that step t has added to, for that of step t + 1. */
static struct exchange dkv_exchange(const struct model *model, int t)
{
    int rank = rank_of(model);
    return (struct exchange){ .slot = SLOT_DKV + t % 2,
                              .to = rank + 1,
                              .send = model->ring.dkv[t % 2],
                              .from = t < rank ? rank - 1 : -1,
                              .recv = model->ring.dkv[(t + 1) % 2] };
}

/* From the last rank what its step t has completed. */
static struct exchange send_home(const struct model *model, int t)
{
    int rank = rank_of(model);
    bool sends = rank == ranks_of(model) - 1 && t > 0;
    return (struct exchange){ .slot = SLOT_HOME + t % 2,
                              .to = sends ? rank - t : -1,
                              .send = model->ring.dkv[t % 2],
                              .from = -1 };
}

static struct exchange receive_home(const struct model *model)
{
    int last = ranks_of(model) - 1;
    int t = last - rank_of(model);
    return (struct exchange){ .slot = SLOT_HOME + t % 2,
                              .to = -1,
                              .from = t > 0 ? last : -1,
                              .recv = model->ring.dkv_home };
}

static bool is_rank(const struct model *model, int rank)
{
    return rank >= 0 && rank < ranks_of(model);
}

static enum err start(const struct model *model, struct exchange e)
{
    const struct group_access *group = model->options.sequence;
    size_t bytes =
        (size_t)set_elements(model) * dtype_bytes(model->options.dtype);
    bool sends = is_rank(model, e.to), receives = is_rank(model, e.from);
    if (!sends && !receives)
        return ERR_OK;
    assert(e.to != group->rank && e.from != group->rank);
    assert(group->rank == rank_of(model) && e.slot < GROUP_SLOTS);
    return group->start(group->arg, e.slot, e.to, sends ? e.send : NULL,
                        sends ? bytes : 0, e.from, receives ? e.recv : NULL,
                        receives ? bytes : 0);
}

static enum err finish(const struct model *model, struct exchange e)
{
    const struct group_access *group = model->options.sequence;
    if (!is_rank(model, e.to) && !is_rank(model, e.from))
        return ERR_OK;
    return group->wait(group->arg, e.slot);
}

/* --- both directions --- */

static const void *kv_of_step(const struct model *model, int t)
{
    return t == 0 ? model->ring.kv : model->ring.kv_in[t % 2];
}

enum err model_sequence_forward(struct model *model)
{
    int rank = rank_of(model);
    TRY(collect_kv(model));
    for (int t = 0; t < ranks_of(model); t++) {
        if (t > 0)
            TRY(finish(model, kv_exchange(model, t)));
        TRY(start(model, kv_exchange(model, t + 1)));
        if (t <= rank)
            TRY(work(model, rank - t, kv_of_step(model, t), NULL));
    }
    return ERR_OK;
}

static enum err step_backward(struct model *model, int t)
{
    int rank = rank_of(model);
    void *dkv = model->ring.dkv[t % 2];
    if (t > 0)
        TRY(finish(model, dkv_exchange(model, t - 1)));
    TRY(work(model, rank - t, kv_of_step(model, t), dkv));
    if (t == 0 && rank == ranks_of(model) - 1)
        TRY(spread_dkv(model, dkv));
    TRY(start(model, send_home(model, t)));
    if (t > 0)
        TRY(finish(model, send_home(model, t - 1)));
    return start(model, dkv_exchange(model, t));
}

static enum err begin_backward(struct model *model)
{
    const struct kernels *k = model->kernels;
    const struct kernel_ctx *ctx = &model->ctx;
    for (int i = 0; i < model->options.own_chunks; i++)
        TRY(k->zero(ctx, model->options.dtype,
                    model->passes[i].n * model->qkv_width,
                    model->passes[i].dqkv));
    TRY(k->zero(ctx, model->options.dtype, set_elements(model),
                model->ring.dkv[0]));
    return collect_kv(model);
}

enum err model_sequence_backward(struct model *model)
{
    int rank = rank_of(model);
    int ranks = ranks_of(model);
    TRY(begin_backward(model));
    for (int t = 0; t < ranks; t++) {
        if (t > 0)
            TRY(finish(model, kv_exchange(model, t)));
        TRY(start(model, kv_exchange(model, t + 1)));
        /* where the last rank starts to send it: a device's exchanges follow
         * each other in the order of their starts, on both sides */
        if (t == ranks - 1 - rank)
            TRY(start(model, receive_home(model)));
        if (t <= rank)
            TRY(step_backward(model, t));
    }
    TRY(finish(model, dkv_exchange(model, rank)));
    TRY(finish(model, send_home(model, ranks - 1)));
    TRY(finish(model, receive_home(model)));
    if (rank < ranks - 1)
        TRY(spread_dkv(model, model->ring.dkv_home));
    return ERR_OK;
}
