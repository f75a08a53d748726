/* Walks over the fragments of this rank's pieces, sums each, and has all ranks'
 * fragments gathered and added. */
#include "src/parallel/norms.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/parallel/optimizer_whole.h"
#include "src/parallel/replica_impl.h"

/* A place in the flat space, and the tensor that is there or follows. */
struct cursor {
    int64_t at, end;
    int param;
};

/* Of one part; or of `width` columns, from that of number `part` on when it
 * begins with the first one, of which it has `sums`, and begins with `shift`. */
struct fragment {
    int64_t begin, end, part;
    int64_t sums, width, shift;
};

/* Over the fragments of this rank's pieces, in the order of the flat space. */
struct walk {
    int block;
    bool open; /* the cursor is in it */
    struct cursor cursor;
};

struct norms {
    const struct replica *replica;
    bool units;
    int64_t *first;    /* [params.count + 1] */
    int64_t *columns;  /* [params.count] elements of one expert's transposed
                          matrix, whose columns are parts; 0: no such tensor */
    double *packed;    /* fragments, rank by rank, as owner_chunk_sum()'s */
    size_t *at;        /* [ranks + 1] where a rank's begin */
    size_t *next;      /* [ranks] */
    struct arena host; /* a device's chunk */

    /* of an update: */
    struct replica_watch watch;
    struct arena stretch; /* before, and of a device after it */
    int64_t stretch_elements;
    struct walk walk;
    struct fragment fragment; /* of this rank's, where there is one left */
    bool left;
    double *to;
};

/* Elements of a transposed matrix whose columns are parts; 0: rows are. */
static int64_t columns_of(const struct params *params,
                          const struct param *param, bool units)
{
    return units && param->role == PARAM_EXPERTS_DOWN
               ? param->numel / optimizer_experts(params, param)
               : 0;
}

static int64_t part_elements(const struct params *params,
                             const struct param *param, bool units)
{
    int64_t matrix = columns_of(params, param, units);
    if (matrix > 0)
        return matrix / param->shape[1];
    return units && param->dims == 2 ? param->shape[1] : param->numel;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The next one of the interval; false: there is none. */
static bool next_fragment(const struct norms *norms, struct cursor *c,
                          struct fragment *out)
{
    const struct params *params = norms->replica->params;
    while (c->param < params->count) {
        const struct param *param = &params->list[c->param];
        int64_t begin = param->offset > c->at ? param->offset : c->at;
        int64_t matrix = norms->columns[c->param];
        int64_t width =
            norms->units && param->dims == 2 ? param->shape[1] : param->numel;
        if (begin >= c->end)
            return false;
        if (begin >= param->offset + param->numel) {
            c->param++;
            continue;
        }
        int64_t place = begin - param->offset;
        int64_t whole = matrix > 0 ? matrix : width;
        int64_t end = param->offset + (place / whole + 1) * whole;
        end = least(end, (begin / KERNEL_CHUNK + 1) * KERNEL_CHUNK);
        end = least(end, c->end);
        *out = (struct fragment){ .begin = begin,
                                  .end = end,
                                  .part = norms->first[c->param] +
                                          (matrix > 0 ? place / matrix * width
                                                      : place / width),
                                  .sums = 1 };
        if (matrix > 0) {
            out->width = width;
            out->shift = place % width;
            out->sums = least(end - begin, width);
        }
        c->at = out->end;
        return true;
    }
    return false;
}

static struct cursor cursor_at(const struct params *params, int64_t begin,
                               int64_t end)
{
    struct cursor c = { .at = begin, .end = end };
    int low = 0, high = params->count;
    while (low < high) { /* tensors follow each other in the space */
        int middle = low + (high - low) / 2;
        const struct param *param = &params->list[middle];
        if (param->offset + param->numel <= begin)
            low = middle + 1;
        else
            high = middle;
    }
    c.param = low;
    return c;
}

static int64_t parts(const struct params *params, bool units)
{
    int64_t count = 0;
    for (int p = 0; p < params->count; p++)
        count += params->list[p].numel /
                 part_elements(params, &params->list[p], units);
    return count;
}

/* No more sums of fragments than this: each chunk's end cuts one. */
static size_t sums_max(const struct params *params, bool units)
{
    int64_t count = parts(params, units) + params->elements / KERNEL_CHUNK;
    for (int p = 0; p < params->count; p++) {
        const struct param *param = &params->list[p];
        int64_t matrix = columns_of(params, param, units);
        if (matrix > 0)
            count += (param->numel / KERNEL_CHUNK + 2) * param->shape[1];
    }
    return (size_t)count;
}

size_t norms_bytes(const struct params *params, bool units)
{
    return sums_max(params, units) * sizeof(double) +
           (size_t)(params->count + 1) * sizeof(int64_t) +
           KERNEL_CHUNK * sizeof(float);
}

/* Where each rank's fragments begin. */
static void place(struct norms *norms)
{
    const struct owner *owner = norms->replica->owner;
    size_t total = 0;
    for (int r = 0; r < owner->ranks; r++) {
        norms->at[r] = total;
        for (int b = 0; b < owner->block_count; b++) {
            int p = owner_place(owner, b, r);
            struct fragment f;
            struct cursor c =
                cursor_at(norms->replica->params, owner_begin(owner, b, p),
                          owner_begin(owner, b, p + 1));
            while (next_fragment(norms, &c, &f))
                total += (size_t)f.sums;
        }
    }
    norms->at[owner->ranks] = total;
    assert(total <= sums_max(norms->replica->params, norms->units));
}

enum err norms_create(const struct replica *replica, bool units,
                      struct norms **out)
{
    enum err rc = ERR_OK;
    const struct params *params = replica->params;
    const struct kernel_memory *memory = replica->kernels->memory;
    size_t ranks = (size_t)replica->owner->ranks;
    struct norms *norms = calloc(1, sizeof *norms);
    if (norms == NULL)
        return err_set(ERR_MEMORY, "norms: out of memory");
    norms->replica = replica;
    norms->units = units;
    norms->first = calloc((size_t)params->count + 1, sizeof norms->first[0]);
    norms->columns =
        calloc((size_t)params->count + 1, sizeof norms->columns[0]);
    norms->packed =
        calloc(sums_max(params, units) + 1, sizeof norms->packed[0]);
    norms->at = calloc(ranks + 1, sizeof norms->at[0]);
    norms->next = calloc(ranks, sizeof norms->next[0]);
    if (norms->first == NULL || norms->columns == NULL ||
        norms->packed == NULL || norms->at == NULL || norms->next == NULL)
        rc = err_set(ERR_MEMORY, "norms: out of memory");
    if (rc == ERR_OK && memory->device)
        rc = memory->host_create(KERNEL_CHUNK * sizeof(float), &norms->host);
    if (rc != ERR_OK) {
        norms_destroy(norms);
        return rc;
    }
    for (int p = 0; p < params->count; p++) {
        const struct param *param = &params->list[p];
        norms->columns[p] = columns_of(params, param, units);
        norms->first[p + 1] =
            norms->first[p] +
            param->numel / part_elements(params, param, units);
    }
    place(norms);
    *out = norms;
    return ERR_OK;
}

void norms_destroy(struct norms *norms)
{
    if (norms == NULL)
        return;
    norms->replica->kernels->memory->host_destroy(&norms->host);
    norms->replica->kernels->memory->host_destroy(&norms->stretch);
    free(norms->first);
    free(norms->columns);
    free(norms->packed);
    free(norms->at);
    free(norms->next);
    free(norms);
}

int64_t norms_count(const struct norms *norms)
{
    return norms->first[norms->replica->params->count];
}

int64_t norms_part(const struct norms *norms, int tensor, int64_t place)
{
    const struct param *param = &norms->replica->params->list[tensor];
    int64_t matrix = norms->columns[tensor];
    int64_t width = param->shape[param->dims - 1];
    if (!norms->units)
        return norms->first[tensor];
    if (matrix > 0)
        return norms->first[tensor] + place / matrix * width + place % width;
    return norms->first[tensor] + (param->dims == 2 ? place / width : 0);
}

/* In eight lanes, so that the compiler may use registers for them. */
static double squares(const float *x, int64_t n)
{
    double lane[8] = { 0.0 };
    double sum = 0.0;
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int l = 0; l < 8; l++)
            lane[l] += (double)x[i + l] * (double)x[i + l];
    for (int l = 0; l < 8; l++)
        sum += lane[l];
    for (; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sum;
}

/* Of each column's elements among n that lie row by row. */
static void column_squares(const float *x, int64_t n,
                           const struct fragment *fragment, double *to)
{
    memset(to, 0, (size_t)fragment->sums * sizeof *to);
    for (int64_t i = 0; i < n; i++)
        to[i % fragment->width] += (double)x[i] * (double)x[i];
}

/* n elements, of a chunk at most, where the host can read them. */
static enum err reach(const struct norms *norms, const float *tensor, int64_t n,
                      const float **out)
{
    const struct replica *replica = norms->replica;
    const struct kernel_memory *memory = replica->kernels->memory;
    void *stream = replica->ctx->stream;
    *out = tensor;
    if (!memory->device)
        return ERR_OK;
    TRY(memory->download(stream, (size_t)n * sizeof(float), tensor,
                         norms->host.base));
    TRY(memory->wait(stream));
    *out = (const float *)(const void *)norms->host.base;
    return ERR_OK;
}

/* What is asked for, and where its next fragment's sum goes. */
struct sum {
    const struct norms *norms;
    enum norms_of what;
    int index;
    double *to;
};

/* Where an element lies; NULL: its tensor has no such moment. */
static const float *element_of(const struct sum *sum,
                               const struct replica_piece *piece,
                               int64_t element)
{
    switch (sum->what) {
    case NORMS_WEIGHTS:
        return piece->weights + (element - piece->begin);
    case NORMS_GRADIENT:
        assert(piece->gradient != NULL);
        return piece->gradient + (element - piece->begin);
    case NORMS_MOMENT:
        return replica_moment_at(sum->norms->replica, sum->index, element);
    default:
        return piece->kept[sum->index] + (element - piece->begin);
    }
}

/* The fragments of [begin, end), a piece's or of what this rank owns of it. */
static enum err sum_interval(struct sum *sum, const struct replica_piece *piece,
                             int64_t begin, int64_t end)
{
    const struct norms *norms = sum->norms;
    struct cursor c = cursor_at(norms->replica->params, begin, end);
    struct fragment f;
    while (next_fragment(norms, &c, &f)) {
        const float *x = element_of(sum, piece, f.begin);
        if (x != NULL)
            TRY(reach(norms, x, f.end - f.begin, &x));
        if (x == NULL)
            memset(sum->to, 0, (size_t)f.sums * sizeof *sum->to);
        else if (f.width > 0)
            column_squares(x, f.end - f.begin, &f, sum->to);
        else
            *sum->to = squares(x, f.end - f.begin);
        sum->to += f.sums;
    }
    return ERR_OK;
}

static enum err sum_piece(void *arg, const struct replica_piece *piece)
{
    struct sum *sum = arg;
    const struct replica *replica = sum->norms->replica;
    const struct owner_block *own = &replica->owner->blocks[0];
    if (replica->options.strategy == REPLICA_DDP)
        return sum_interval(sum, piece, own->begin, own->end);
    return sum_interval(sum, piece, piece->begin,
                        piece->begin + piece->elements);
}

/* Adds what was gathered, in the order of the flat space. */
static void add(struct norms *norms, double *sums)
{
    const struct owner *owner = norms->replica->owner;
    memset(sums, 0, (size_t)norms_count(norms) * sizeof *sums);
    memcpy(norms->next, norms->at, (size_t)owner->ranks * sizeof norms->at[0]);
    for (int b = 0; b < owner->block_count; b++)
        for (int p = 0; p < owner->ranks; p++) {
            size_t *next = &norms->next[owner_rank_at(owner, b, p)];
            struct fragment f;
            struct cursor c =
                cursor_at(norms->replica->params, owner_begin(owner, b, p),
                          owner_begin(owner, b, p + 1));
            while (next_fragment(norms, &c, &f))
                for (int64_t i = 0; i < f.sums; i++)
                    sums[f.part +
                         (f.width > 0 ? (f.shift + i) % f.width : 0)] +=
                        norms->packed[(*next)++];
        }
}

/* The other ranks' fragments, and all added. */
static enum err gather(struct norms *norms, double *sums)
{
    struct comm *comm = norms->replica->comm;
    const struct owner *owner = norms->replica->owner;
    size_t *bytes = comm_sizes(comm, 0);
    size_t *offsets = comm_sizes(comm, 1);
    for (int r = 0; r < owner->ranks; r++) {
        offsets[r] = norms->at[r] * sizeof(double);
        bytes[r] = (norms->at[r + 1] - norms->at[r]) * sizeof(double);
    }
    TRY(comm_all_gather(comm, norms->packed, bytes, offsets));
    add(norms, sums);
    return ERR_OK;
}

enum err norms_sum(struct norms *norms, enum norms_of what, int index,
                   double *sums)
{
    const struct replica *replica = norms->replica;
    struct sum sum = { .norms = norms,
                       .what = what,
                       .index = index,
                       .to = norms->packed + norms->at[replica->owner->rank] };
    TRY(replica_visit(replica, sum_piece, &sum));
    return gather(norms, sums);
}

/* --- what an update changes --- */

static bool next_own(struct norms *norms)
{
    const struct owner *owner = norms->replica->owner;
    struct walk *walk = &norms->walk;
    for (; walk->block < owner->block_count; walk->block++) {
        int p = owner_place(owner, walk->block, owner->rank);
        if (!walk->open)
            walk->cursor = cursor_at(norms->replica->params,
                                     owner_begin(owner, walk->block, p),
                                     owner_begin(owner, walk->block, p + 1));
        walk->open = true;
        if (next_fragment(norms, &walk->cursor, &norms->fragment))
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
         norms->left = next_own(norms), norms->to++)
        if (norms->fragment.begin >= own_begin)
            *norms->to =
                squares_between(weights + (norms->fragment.begin - begin),
                                before + (norms->fragment.begin - begin),
                                norms->fragment.end - norms->fragment.begin);
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
    *out = norms;
    norms = NULL;
out:
    norms_destroy(norms);
    return rc;
}

void norms_watch_update(struct norms *norms, struct replica *replica)
{
    const struct owner *owner = replica->owner;
    size_t first = norms->at[owner->rank];
    assert(replica == norms->replica && norms->stretch_elements > 0);
    norms->to = norms->packed + first;
    memset(norms->to, 0,
           (norms->at[owner->rank + 1] - first) * sizeof norms->to[0]);
    norms->walk = (struct walk){ .block = 0 };
    norms->left = next_own(norms);
    replica_watch(replica, &norms->watch);
}

enum err norms_watched_update(struct norms *norms, struct replica *replica,
                              double *sums)
{
    replica_watch(replica, NULL);
    return gather(norms, sums);
}

const char *norms_moment_name(const struct norms *norms, int tensor, int index)
{
    struct spans_input input = replica_spans_input(norms->replica);
    const struct optimizer_ops *optimizer =
        spans_optimizer(&input, &norms->replica->params->list[tensor]);
    return index < optimizer_moments(optimizer) ? optimizer->moments[index]
                                                : NULL;
}
