/* Sums of squares of what an update changes, stretch by stretch while it goes on
 * (replica_watch()). */
#include <assert.h>
#include <string.h>

#include "src/base/new.h"
#include "src/parallel/norms_impl.h"

static bool next_own(struct norms *norms)
{
    const struct owner *owner = norms->replica->owner;
    struct walk *walk = &norms->walk;
    for (; walk->block < owner->block_count; walk->block++) {
        int p = owner_place(owner, walk->block, owner->rank);
        if (!walk->open)
            walk->cursor = norms_cursor(norms->replica->params,
                                        owner_begin(owner, walk->block, p),
                                        owner_begin(owner, walk->block, p + 1));
        walk->open = true;
        if (norms_fragment(norms, &walk->cursor, &norms->fragment))
            return true;
        walk->open = false;
    }
    return false;
}

/* The part of [begin, end) that is this rank's, which under ddp updates what is
 * others', too. */
static bool own_part(const struct norms *norms, int64_t *begin, int64_t *end)
{
    const struct owner_block *own = &norms->replica->owner->blocks[0];
    if (norms->replica->options.strategy == REPLICA_DDP) {
        *begin = *begin > own->begin ? *begin : own->begin;
        *end = *end < own->end ? *end : own->end;
    }
    return *begin < *end;
}

/* Elements of the stretch that begins at `begin`, to the host. */
static enum err copy_own(const struct norms *norms, int64_t begin, int64_t end,
                         const float *weights, float *out)
{
    const struct replica *replica = norms->replica;
    const struct kernel_memory *memory = replica->kernels->memory;
    int64_t from = begin;
    if (!own_part(norms, &from, &end))
        return ERR_OK;
    assert(end - begin <= norms->stretch_elements);
    weights += from - begin;
    out += from - begin;
    if (!memory->device) {
        memcpy(out, weights, (size_t)(end - from) * sizeof *out);
        return ERR_OK;
    }
    return memory->download(replica->ctx->stream,
                            (size_t)(end - from) * sizeof *out, weights, out);
}

static enum err before_update(void *arg, int64_t begin, int64_t end,
                              const float *weights)
{
    const struct norms *norms = arg;
    return copy_own(norms, begin, end, weights,
                    (float *)(void *)norms->stretch.base);
}

/* In lanes as squares(). */
static double squares_between(const float *x, const float *y, int64_t n)
{
    double lane[8] = { 0.0 };
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        double d = (double)x[i] - (double)y[i];
        lane[i % 8] += d * d;
    }
    for (int l = 0; l < 8; l++)
        sum += lane[l];
    return sum;
}

static enum err after_update(void *arg, int64_t begin, int64_t end,
                             const float *weights)
{
    struct norms *norms = arg;
    const struct replica *replica = norms->replica;
    const struct kernel_memory *memory = replica->kernels->memory;
    const float *before = (const float *)(const void *)norms->stretch.base;
    int64_t own_begin = begin, own_end = end;
    if (!own_part(norms, &own_begin, &own_end))
        return ERR_OK;
    if (memory->device) {
        float *after =
            (float *)(void *)norms->stretch.base + norms->stretch_elements;
        TRY(copy_own(norms, begin, end, weights, after));
        TRY(memory->wait(replica->ctx->stream));
        weights = after;
    }
    for (; norms->left && norms->fragment.begin < own_end;
         norms->left = next_own(norms))
        if (norms->fragment.begin >= own_begin)
            exact_add(
                &norms->exact[norms->fragment.part],
                squares_between(weights + (norms->fragment.begin - begin),
                                before + (norms->fragment.begin - begin),
                                norms->fragment.end - norms->fragment.begin));
    return ERR_OK;
}

/* Elements of a stretch at most: whole tensors have the padding behind them. */
static int64_t stretch_elements(const struct params *params, bool whole)
{
    int64_t most = REPLICA_WATCHED, end = params->elements;
    for (int p = params->count - 1; p >= 0 && whole; p--) {
        int64_t elements = end - params->list[p].offset;
        most = elements > most ? elements : most;
        end = params->list[p].offset;
    }
    return most;
}

size_t norms_watch_bytes(const struct params *params, bool whole)
{
    /* twice on a device, which has no whole ones */
    return norms_bytes(params, false) +
           2 * (size_t)stretch_elements(params, whole) * sizeof(float);
}

enum err norms_watch_create(const struct replica *replica, struct norms **out)
{
    enum err rc = ERR_OK;
    const struct kernel_memory *memory = replica->kernels->memory;
    struct norms *norms = NULL;
    TRY_OUT(norms_create(replica, false, &norms));
    norms->stretch_elements = stretch_elements(
        replica->params, replica_whole(&replica->options, replica->params));
    TRY_OUT(memory->host_create((memory->device ? 2 : 1) *
                                    (size_t)norms->stretch_elements *
                                    sizeof(float),
                                &norms->stretch));
    norms->watch = (struct replica_watch){ .before = before_update,
                                           .after = after_update,
                                           .arg = norms };
out:
    return new_or_none(rc, norms, out, norms_destroy);
}

void norms_watch_update(struct norms *norms, struct replica *replica)
{
    assert(replica == norms->replica && norms->stretch_elements > 0);
    norms_begin(norms);
    norms->walk = (struct walk){ .block = 0 };
    norms->left = next_own(norms);
    replica_watch(replica, &norms->watch);
}

enum err norms_watched_update(struct norms *norms, struct replica *replica,
                              double *sums)
{
    replica_watch(replica, NULL);
    return norms_gather(norms, sums);
}

const char *norms_moment_name(const struct norms *norms, int tensor, int index)
{
    struct spans_input input = replica_spans_input(norms->replica);
    const struct optimizer_ops *optimizer =
        spans_optimizer(&input, &norms->replica->params->list[tensor]);
    return index < optimizer_moments(optimizer) ? optimizer->moments[index]
                                                : NULL;
}
