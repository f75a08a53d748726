/* The experts' all-to-all: dispatch sends rows to the ranks that have their
 * experts, combine brings the results back. Every rank of the group serves all
 * of them, one after the other: in round v the place that is v further, the
 * first time itself. A round's rows come while the one before is computed, its
 * results leave while the next one is. So memory is that of two or three
 * leaves' rows, however many ranks send all they have to one.
 *
 * Rows are sorted by expert, so those for one rank are neighbours: they are
 * sent from where they lie, and what comes back takes their place. */
#include "src/model/model_impl.h"

#include <assert.h>

enum { SLOT_X, SLOT_DY, SLOT_WEIGHTS, SLOT_RESULTS, SLOT_DWEIGHTS };

static const struct group_access *group_of(const struct pass *pass)
{
    return pass->model->options.experts;
}

static int own_experts(const struct pass *pass)
{
    return (int)pass->model->config.experts / group_of(pass)->size;
}

/* Whom this rank serves in a round, and who serves it. */
static int served_place(const struct pass *pass, int round)
{
    const struct group_access *group = group_of(pass);
    assert(round >= 0 && round < group->size);
    return (group->rank + round) % group->size;
}

static int serving_place(const struct pass *pass, int round)
{
    const struct group_access *group = group_of(pass);
    assert(round >= 0 && round < group->size);
    return (group->rank - round + group->size) % group->size;
}

/* The first of this rank's sorted rows that go to a place. */
static int64_t first_row(const struct pass *pass, int place)
{
    assert(place >= 0 && place <= group_of(pass)->size);
    return pass->layer->routing.host_offsets[place * own_experts(pass)];
}

/* The offsets of what a place sends, in `served` or `host_served`. */
static int64_t *served_offsets(const struct pass *pass, int64_t *all, int place)
{
    return all + place * (own_experts(pass) + 1);
}

/* The rows of a round: in round 0 this rank's own rows for its own experts,
 * afterwards those of the served place, in its buffers. */
static struct expert_rows round_rows(const struct pass *pass, int round)
{
    const struct model *model = pass->model;
    const struct workspace *ws = &model->ws;
    const struct expert_dispatch *dispatch = &ws->dispatch;
    const struct routing *routing = &pass->layer->routing;
    int place = served_place(pass, round);
    int experts = own_experts(pass);
    struct expert_rows rows = {
        .count = served_offsets(pass, routing->host_served, place)[experts],
        .experts = experts,
        .offsets = served_offsets(pass, routing->served, place),
        .source = dispatch->identity,
        .place = place,
    };
    if (round == 0) {
        int64_t first = first_row(pass, place);
        int64_t element = first * model->config.d_model;
        rows.x = at(model, ws->rows, element);
        rows.dy = at(model, dispatch->dy, element);
        rows.weights = dispatch->weights + first;
        rows.dweights = dispatch->dweights + first;
        assert(rows.count == first_row(pass, place + 1) - first);
    } else {
        int buffer = (round - 1) % DISPATCH_BUFFERS;
        rows.x = dispatch->in_x[(round - 1) % (DISPATCH_BUFFERS + 1)];
        rows.dy = dispatch->in_dy[buffer];
        rows.weights = dispatch->in_weights[buffer];
        rows.dweights = dispatch->out_dweights[buffer];
    }
    return rows;
}

/* --- dispatch and combine --- */

/* Starts an exchange of rows of so many bytes with two ranks of the group. */
static enum err start(const struct pass *pass, int slot, size_t bytes, int to,
                      const void *send, int64_t send_rows, int from, void *recv,
                      int64_t recv_rows)
{
    const struct group_access *group = group_of(pass);
    assert(to != group->rank && from != group->rank);
    assert(send_rows >= 0 && recv_rows >= 0);
    return group->start(group->arg, slot, to, send_rows > 0 ? send : NULL,
                        (size_t)send_rows * bytes, from,
                        recv_rows > 0 ? recv : NULL, (size_t)recv_rows * bytes);
}

/* Bytes of a token's row. */
static size_t row_bytes(const struct pass *pass)
{
    return (size_t)pass->model->config.d_model *
           dtype_bytes(pass->model->options.dtype);
}

static enum err finish(const struct pass *pass, int slot)
{
    return group_of(pass)->wait(group_of(pass)->arg, slot);
}

/* From every place what it sends here; the slots are all free. */
static enum err exchange_offsets(struct pass *pass)
{
    const struct model *model = pass->model;
    const struct group_access *group = group_of(pass);
    const struct routing *routing = &pass->layer->routing;
    const int64_t *own = routing->offsets;
    int experts = own_experts(pass);
    size_t bytes = (size_t)(experts + 1) * sizeof *own;
    TRY(model->kernels->memory->copy(
        model->ctx.stream, bytes, own + group->rank * experts,
        served_offsets(pass, routing->served, group->rank)));
    for (int round = 1; round < group->size; round++) {
        int to = serving_place(pass, round);
        int from = served_place(pass, round);
        if (round > GROUP_SLOTS)
            TRY(finish(pass, round % GROUP_SLOTS));
        TRY(group->start(group->arg, round % GROUP_SLOTS, to,
                         own + to * experts, bytes, from,
                         served_offsets(pass, routing->served, from), bytes));
    }
    for (int round = group->size > GROUP_SLOTS ? group->size - GROUP_SLOTS : 1;
         round < group->size; round++)
        TRY(finish(pass, round % GROUP_SLOTS));
    return ERR_OK;
}

/* How many rows go to whom the host must know: here it waits for the device. */
static enum err read_offsets(struct pass *pass)
{
    const struct model *model = pass->model;
    const struct kernel_memory *memory = model->kernels->memory;
    const struct routing *routing = &pass->layer->routing;
    void *stream = model->ctx.stream;
    size_t own = (size_t)(model->config.experts + 1) * sizeof(int64_t);
    size_t served = (size_t)(model->config.experts + group_of(pass)->size) *
                    sizeof(int64_t);
    if (!memory->device)
        return ERR_OK;
    TRY(memory->download(stream, own, routing->offsets, routing->host_offsets));
    TRY(memory->download(stream, served, routing->served,
                         routing->host_served));
    TRY(memory->event_record(model->ws.dispatch.offsets_read, stream));
    return model_reach(model, pass->access, model->ws.dispatch.offsets_read);
}

/* Which of the rows that each place sends here are whose. */
static enum err find_served(struct pass *pass)
{
    const struct model *model = pass->model;
    const struct kernel_memory *memory = model->kernels->memory;
    const struct routing *routing = &pass->layer->routing;
    int size = group_of(pass)->size, experts = own_experts(pass);
    TRY(exchange_offsets(pass));
    TRY(read_offsets(pass));
    for (int place = 0; place < size; place++) {
        int64_t *offsets = served_offsets(pass, routing->host_served, place);
        for (int e = 0; e < experts; e++)
            assert(offsets[e] <= offsets[e + 1]);
        for (int e = experts; e >= 0; e--)
            offsets[e] -= offsets[0];
        assert(offsets[experts] <= model->ws.dispatch.rows);
    }
    if (memory->device)
        TRY(memory->upload(model->ctx.stream,
                           (size_t)(model->config.experts + size) *
                               sizeof(int64_t),
                           routing->host_served, routing->served));
    return ERR_OK;
}

/* Rows go to those who serve this rank in a round, and come from the one that
 * it serves. */
static enum err start_dispatch(struct pass *pass, int round, bool backward)
{
    const struct workspace *ws = &pass->model->ws;
    const struct expert_dispatch *dispatch = &ws->dispatch;
    int64_t d = pass->model->config.d_model;
    size_t bytes = row_bytes(pass);
    int to = serving_place(pass, round);
    int64_t first = first_row(pass, to);
    int64_t count = first_row(pass, to + 1) - first;
    struct expert_rows in = round_rows(pass, round);
    int buffer = (round - 1) % DISPATCH_BUFFERS;
    TRY(start(pass, SLOT_X, bytes, to, at(pass->model, ws->rows, first * d),
              count, in.place, in.x, in.count));
    if (!backward)
        return ERR_OK;
    TRY(start(pass, SLOT_DY, bytes, to,
              at(pass->model, dispatch->dy, first * d), count, in.place,
              dispatch->in_dy[buffer], in.count));
    TRY(start(pass, SLOT_WEIGHTS, sizeof(float), to, dispatch->weights + first,
              count, in.place, dispatch->in_weights[buffer], in.count));
    return ERR_OK;
}

static enum err wait_dispatch(struct pass *pass, bool backward)
{
    TRY(finish(pass, SLOT_X));
    if (!backward)
        return ERR_OK;
    TRY(finish(pass, SLOT_DY));
    TRY(finish(pass, SLOT_WEIGHTS));
    return ERR_OK;
}

/* Results go to the rank whose rows they are. */
static enum err start_combine(struct pass *pass, int round, bool backward)
{
    const struct workspace *ws = &pass->model->ws;
    int64_t d = pass->model->config.d_model;
    int from = serving_place(pass, round);
    int64_t first = first_row(pass, from);
    int64_t count = first_row(pass, from + 1) - first;
    struct expert_rows out = round_rows(pass, round);
    TRY(start(pass, SLOT_RESULTS, row_bytes(pass), out.place, out.x, out.count,
              from, at(pass->model, ws->rows, first * d), count));
    if (backward)
        TRY(start(pass, SLOT_DWEIGHTS, sizeof(float), out.place, out.dweights,
                  out.count, from, ws->dispatch.dweights + first, count));
    return ERR_OK;
}

static enum err wait_combine(struct pass *pass, bool backward)
{
    TRY(finish(pass, SLOT_RESULTS));
    if (backward)
        TRY(finish(pass, SLOT_DWEIGHTS));
    return ERR_OK;
}

/* --- the rounds --- */

static enum err serve(struct pass *pass, int round, bool backward)
{
    struct expert_rows rows = round_rows(pass, round);
    struct block b = model_block(pass);
    const struct model_options *options = &pass->model->options;
    assert(rows.count * (b.config->ffn == FFN_GLU ? 2 : 1) <=
           model_saved_rows(pass->model, SAVED_HIDDEN,
                            options->samples * options->seq_len /
                                options->chunks));
    if (!backward)
        return block_rows(&b, &rows);
    TRY(block_rows_hidden(&b, &rows));
    TRY(model_experts_down_backward(pass, &rows));
    return model_experts_hidden_backward(pass, &rows);
}

/* Results of the last round but one have left before those of the next are
 * there, so the buffer of their tokens is free for the one after. */
static enum err exchange(struct pass *pass, bool backward)
{
    int rounds = group_of(pass)->size;
    for (int round = 0; round < rounds; round++) {
        if (round > 0)
            TRY(wait_dispatch(pass, backward));
        if (round + 1 < rounds)
            TRY(start_dispatch(pass, round + 1, backward));
        TRY(serve(pass, round, backward));
        if (round > 1)
            TRY(wait_combine(pass, backward));
        if (round > 0)
            TRY(start_combine(pass, round, backward));
    }
    return wait_combine(pass, backward);
}

enum err model_experts_exchange_create(struct model *model)
{
    if (model_expert_degree(model) == 1)
        return ERR_OK;
    return model->kernels->memory->event_create(
        &model->ws.dispatch.offsets_read);
}

void model_experts_exchange_destroy(struct model *model)
{
    if (model->ws.dispatch.offsets_read != NULL)
        model->kernels->memory->event_destroy(model->ws.dispatch.offsets_read);
}

enum err model_experts_exchange_forward(struct pass *pass)
{
    TRY(find_served(pass));
    return exchange(pass, false);
}

enum err model_experts_exchange_backward(struct pass *pass)
{
    return exchange(pass, true);
}
