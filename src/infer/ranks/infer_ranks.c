/* Lays the weights out over the ranks.
 *
 *                     the engine alone      training's forward, too
 *   a node's copy     panels, in shared     fp32 as they are, shared
 *                     memory
 *   over ranks        shards, fp32          shards, fp32
 *
 * Panels are what decoding reads quickest, in any type of --weights, and each rank
 * makes those of some blocks. Training's forward reads rows; the engine then reads the
 * same, with the same bits, so that there is one copy. */
#include "src/infer/ranks/infer_ranks.h"

#include <assert.h>
#include <inttypes.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/base/units.h"

static bool on_device(const struct infer_ranks *ranks)
{
    return ranks->kernels->memory->device;
}

/* Whether the engine computes with panels. */
static bool holds(const struct infer_ranks *ranks)
{
    return ranks->way == SPREAD_NODE && !ranks->options.forward &&
           (!on_device(ranks) || ranks->options.weights != INFER_F32);
}

/* Bytes: of keys and values of a rank; of the weights, of a node or a device that has
 * all of them; of a node or device with all that its ranks' engines take besides. */
struct sizes {
    size_t cache, held, needed;
};

static enum err prepare(struct infer_ranks *ranks, struct weights *weights,
                        struct infer_options *options, struct sizes *sizes)
{
    size_t total;
    const struct model_config *config = &weights_about(weights)->config;
    TRY(infer_backend_find(ranks->options.backend, comm_local_rank(ranks->comm),
                           &ranks->kernels, &ranks->ctx.stream));
    options->stream = ranks->ctx.stream;
    TRY(params_create(config, &ranks->params));
    sizes->held = total = (size_t)ranks->params->elements * sizeof(float);
    if (options->positions > 0)
        TRY(infer_plan(config, ranks->params, ranks->kernels, options,
                       ranks->options.weights, &sizes->cache, &sizes->held,
                       &total));
    size_t engines =
        on_device(ranks) ? 1 : (size_t)comm_local_size(ranks->comm);
    sizes->needed = arena_sum(sizes->held, (total - sizes->held) * engines);
    TRY(weights_readers_create(weights, ranks->params, ranks->kernels->memory,
                               ranks->ctx.stream, ranks->options.readers,
                               &ranks->readers));
    weights_readers_ended(ranks->readers, ranks->options.interrupted,
                          ranks->options.arg);
    return ERR_OK;
}

/* All ranks return the same. */
static enum err choose(struct infer_ranks *ranks, const struct sizes *sizes)
{
    const struct infer_ranks_options *options = &ranks->options;
    size_t available = infer_available(ranks->kernels);
    ranks->way = options->spread;
    TRY(spread_choose(ranks->comm, sizes->needed <= available, &ranks->way));
    if (ranks->way == SPREAD_RANKS && options->weights != INFER_F32)
        return err_set(ERR_USAGE,
                       "--weights %s: weights that are spread over ranks are "
                       "fp32: leave it out, or choose --spread node",
                       infer_weights_names[options->weights]);
    bool lacks = ranks->way == SPREAD_NODE && sizes->needed > available;
    return comm_agree(
        ranks->comm,
        lacks ? err_set(ERR_MEMORY,
                        "%s of memory are needed, weights %s and %" PRId64
                        " x %" PRId64 " tokens of a rank %s, and %s are left: "
                        "choose --weights bf16 or int8, shorter texts, or "
                        "more ranks",
                        UNITS_BYTES(sizes->needed), UNITS_BYTES(sizes->held),
                        options->sequences, options->positions,
                        UNITS_BYTES(sizes->cache), UNITS_BYTES(available))
              : ERR_OK);
}

static enum err spread_weights(struct infer_ranks *ranks)
{
    const struct replica_source source = { weights_readers_fill, ranks->readers,
                                           true };
    return spread_create(ranks->comm, ranks->kernels, &ranks->ctx,
                         ranks->params, &source, ranks->way, &ranks->spread);
}

/* This rank's place among those that share memory with it. */
static enum err share_room(struct infer_ranks *ranks, size_t held)
{
    int rank = comm_rank(ranks->comm), node;
    TRY(comm_window_create(ranks->comm, COMM_WINDOW_NODE, held,
                           &ranks->window));
    node = comm_window_node(ranks->window, rank);
    ranks->room.memory = comm_window_part(ranks->window, rank);
    ranks->room.parts = 0;
    for (int r = 0; r < comm_size(ranks->comm); r++) {
        if (r == rank)
            ranks->room.part = ranks->room.parts;
        ranks->room.parts += comm_window_node(ranks->window, r) == node;
    }
    return ERR_OK;
}

/* Panels are made of blocks out of the files, one at a time. */
static enum err hold(struct infer_ranks *ranks)
{
    enum err rc =
        infer_hold(ranks->infer, weights_readers_access(ranks->readers),
                   ranks->options.weights);
    TRY(comm_agree(ranks->comm, rc));
    return comm_barrier(ranks->comm);
}

static void tell(const struct infer_ranks *ranks,
                 const struct weights_about *about, double begin,
                 const struct sizes *sizes)
{
    int count = comm_size(ranks->comm);
    size_t bytes = sizes->held;
    if (comm_rank(ranks->comm) != 0)
        return;
    log_info("%s: %.1fM parameters, stored as %s, read in %.1f s", about->place,
             (double)ranks->params->numel / 1e6, about->dtype,
             clock_now() - begin);
    if (ranks->way == SPREAD_RANKS &&
        spread_plan(ranks->params, count, &bytes) == ERR_OK)
        log_info("weights are spread over %d ranks, %s on each with the blocks "
                 "at work",
                 count, UNITS_BYTES(bytes));
    else if (count > 1)
        log_info("weights are there once a %s, %s",
                 on_device(ranks) ? "rank" : "node", UNITS_BYTES(bytes));
    if (ranks->infer != NULL)
        log_info(
            "memory: weights as %s %s, %" PRId64 " x %" PRId64 " tokens %s; "
            "%d threads",
            infer_weights_names[ranks->options.weights], UNITS_BYTES(bytes),
            ranks->options.sequences, ranks->options.positions,
            UNITS_BYTES(sizes->cache), ranks->ctx.threads);
}

enum err infer_ranks_open(struct weights *weights, struct comm *comm,
                          const struct infer_ranks_options *options,
                          struct infer_ranks *out)
{
    struct sizes sizes = { 0 };
    double begin = clock_now();
    const struct weights_about *about = weights_about(weights);
    struct infer_options engine = { .threads = options->threads,
                                    .sequences = options->sequences,
                                    .positions = options->positions,
                                    .rows = options->rows };
    assert(out->params == NULL && options->positions >= 0);
    out->comm = comm;
    out->options = *options;
    out->ctx.threads = options->threads;
    TRY(comm_agree(comm, prepare(out, weights, &engine, &sizes)));
    TRY(choose(out, &sizes));
    if (!holds(out))
        TRY(spread_weights(out));
    else if (!on_device(out) && comm_size(comm) > 1)
        TRY(share_room(out, sizes.held));
    if (options->positions > 0) {
        engine.room = out->window != NULL ? &out->room : NULL;
        TRY(comm_agree(comm, infer_create(&about->config, out->params,
                                          out->kernels, &engine, &out->infer)));
    }
    if (holds(out))
        TRY(hold(out));
    weights_readers_destroy(out->readers);
    out->readers = NULL;
    tell(out, about, begin, &sizes);
    return ERR_OK;
}

void infer_ranks_close(struct infer_ranks *ranks)
{
    infer_destroy(ranks->infer);
    spread_destroy(ranks->spread);
    comm_window_destroy(ranks->window);
    weights_readers_destroy(ranks->readers);
    params_destroy(ranks->params);
    if (ranks->ctx.stream != NULL)
        ranks->kernels->memory->stream_destroy(ranks->ctx.stream);
    *ranks = (struct infer_ranks){ .comm = NULL };
}

/* --- calls --- */

bool infer_ranks_together(const struct infer_ranks *ranks)
{
    return ranks->spread != NULL && spread_together(ranks->spread);
}

enum err infer_ranks_ask(struct infer_ranks *ranks, bool mine, bool *any)
{
    int64_t word = mine;
    TRY(comm_all_reduce_i64(ranks->comm, &word, 1, COMM_MAX));
    *any = word != 0;
    return ERR_OK;
}

void infer_ranks_begin(struct infer_ranks *ranks)
{
    if (ranks->spread != NULL)
        spread_begin(ranks->spread);
}

enum err infer_ranks_end(struct infer_ranks *ranks, enum err rc)
{
    struct err_kept kept;
    err_keep(&kept, rc);
    if (rc != ERR_COMM && ranks->spread != NULL)
        TRY(spread_end(ranks->spread));
    return err_again(&kept);
}

enum err infer_ranks_forward(struct infer_ranks *ranks,
                             const struct infer_tokens *list, int count)
{
    enum err rc = ERR_OK;
    infer_ranks_begin(ranks);
    if (count > 0 || ranks->spread == NULL)
        rc =
            infer_forward(ranks->infer, infer_ranks_access(ranks), list, count);
    return infer_ranks_end(ranks, rc);
}

const struct param_access *infer_ranks_access(const struct infer_ranks *ranks)
{
    return ranks->spread != NULL ? spread_access(ranks->spread) : NULL;
}
