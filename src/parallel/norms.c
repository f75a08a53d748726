/* Walks over the fragments of this rank's partitions, sums each, and has all ranks'
 * added: of a tensor sums, of units, which are too many for wide ones, fragments.
 *
 * A sum of squares has other bits for every way of cutting it, and who has what
 * of a tensor depends on strategy and ranks. So all cut where the flat space
 * says, at multiples of KERNEL_CHUNK and at the ends of parts, wherever partitions
 * end: partitions are whole chunks, so a fragment is always one rank's, and one
 * double. */
#include "src/parallel/norms.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/new.h"
#include "src/parallel/norms_impl.h"
#include "src/parallel/optimizer/optimizer_whole.h"

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

bool norms_fragment(const struct norms *norms, struct cursor *c,
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

struct cursor norms_cursor(const struct params *params, int64_t begin,
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

/* No more sums of units' fragments than this: each chunk's end cuts one. */
static size_t sums_max(const struct params *params)
{
    int64_t count = params->elements / KERNEL_CHUNK;
    for (int p = 0; p < params->count; p++) {
        const struct param *param = &params->list[p];
        count += param->numel / part_elements(params, param, true);
        if (columns_of(params, param, true) > 0)
            count += (param->numel / KERNEL_CHUNK + 2) * param->shape[1];
    }
    return (size_t)count;
}

size_t norms_bytes(const struct params *params, bool units)
{
    size_t sums = units ? sums_max(params) * sizeof(double)
                        : (size_t)params->count * sizeof(struct exact);
    return sums + (size_t)(params->count + 1) * sizeof(int64_t) +
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
                norms_cursor(norms->replica->params, owner_begin(owner, b, p),
                             owner_begin(owner, b, p + 1));
            while (norms_fragment(norms, &c, &f))
                total += (size_t)f.sums;
        }
    }
    norms->at[owner->ranks] = total;
    assert(total <= sums_max(norms->replica->params));
}

enum err norms_create(const struct replica *replica, bool units,
                      struct norms **out)
{
    enum err rc = ERR_OK;
    const struct params *params = replica->params;
    const struct kernel_memory *memory = replica->kernels->memory;
    size_t ranks = (size_t)replica->owner->ranks;
    struct norms *norms = NULL;
    TRY(new_zeroed(&norms, 1));
    norms->replica = replica;
    norms->units = units;
    TRY_OUT(new_zeroed(&norms->first, (size_t)params->count + 1));
    TRY_OUT(new_zeroed(&norms->columns, (size_t)params->count + 1));
    if (units) {
        TRY_OUT(new_zeroed(&norms->packed, sums_max(params) + 1));
        TRY_OUT(new_zeroed(&norms->at, ranks + 1));
        TRY_OUT(new_zeroed(&norms->next, ranks));
    } else {
        TRY_OUT(new_zeroed(&norms->exact, (size_t)params->count));
    }
    if (memory->device)
        TRY_OUT(
            memory->host_create(KERNEL_CHUNK * sizeof(float), &norms->host));
    for (int p = 0; p < params->count; p++) {
        const struct param *param = &params->list[p];
        norms->columns[p] = columns_of(params, param, units);
        norms->first[p + 1] =
            norms->first[p] +
            param->numel / part_elements(params, param, units);
    }
    if (units)
        place(norms);
out:
    return new_or_none(rc, norms, out, norms_destroy);
}

void norms_destroy(struct norms *norms)
{
    if (norms == NULL)
        return;
    norms->replica->kernels->memory->host_destroy(&norms->host);
    norms->replica->kernels->memory->host_destroy(&norms->stretch);
    free(norms->first);
    free(norms->columns);
    free(norms->exact);
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

/* Sums of each column's elements among n that lie row by row. */
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
    double *to; /* of units */
};

/* Where an element lies; NULL: its tensor has no such moment. */
static const float *element_of(const struct sum *sum,
                               const struct replica_partition *partition,
                               int64_t element)
{
    switch (sum->what) {
    case NORMS_WEIGHTS:
        return partition->weights + (element - partition->begin);
    case NORMS_GRADIENT:
        assert(partition->gradient != NULL);
        return partition->gradient + (element - partition->begin);
    case NORMS_MOMENT:
        return replica_moment_at(sum->norms->replica, sum->index, element);
    default:
        return partition->kept[sum->index] + (element - partition->begin);
    }
}

/* The fragments of [begin, end), a partition's or of what this rank owns of it. */
static enum err sum_interval(struct sum *sum,
                             const struct replica_partition *partition,
                             int64_t begin, int64_t end)
{
    const struct norms *norms = sum->norms;
    struct cursor c = norms_cursor(norms->replica->params, begin, end);
    struct fragment f;
    while (norms_fragment(norms, &c, &f)) {
        const float *x = element_of(sum, partition, f.begin);
        if (x != NULL)
            TRY(reach(norms, x, f.end - f.begin, &x));
        if (norms->exact != NULL) {
            if (x != NULL)
                exact_add(&norms->exact[f.part], squares(x, f.end - f.begin));
            continue;
        }
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

static enum err sum_partition(void *arg,
                              const struct replica_partition *partition)
{
    struct sum *sum = arg;
    const struct replica *replica = sum->norms->replica;
    const struct owner_block *own = &replica->owner->blocks[0];
    if (replica->options.strategy == REPLICA_DDP)
        return sum_interval(sum, partition, own->begin, own->end);
    return sum_interval(sum, partition, partition->begin,
                        partition->begin + partition->elements);
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
                norms_cursor(norms->replica->params, owner_begin(owner, b, p),
                             owner_begin(owner, b, p + 1));
            while (norms_fragment(norms, &c, &f))
                for (int64_t i = 0; i < f.sums; i++)
                    sums[f.part +
                         (f.width > 0 ? (f.shift + i) % f.width : 0)] +=
                        norms->packed[(*next)++];
        }
}

void norms_begin(struct norms *norms)
{
    size_t count = (size_t)norms->replica->params->count;
    if (norms->exact != NULL)
        memset(norms->exact, 0, count * sizeof *norms->exact);
}

static enum err gather_exact(struct norms *norms, double *sums)
{
    size_t count = (size_t)norms->replica->params->count;
    TRY(comm_all_reduce_i64(norms->replica->comm, norms->exact[0].word,
                            count * EXACT_WORDS, COMM_SUM));
    for (size_t p = 0; p < count; p++)
        sums[p] = exact_value(&norms->exact[p]);
    return ERR_OK;
}

enum err norms_gather(struct norms *norms, double *sums)
{
    struct comm *comm = norms->replica->comm;
    const struct owner *owner = norms->replica->owner;
    if (norms->exact != NULL)
        return gather_exact(norms, sums);
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
    struct sum sum = { .norms = norms, .what = what, .index = index };
    if (norms->units)
        sum.to = norms->packed + norms->at[replica->owner->rank];
    norms_begin(norms);
    TRY(replica_visit(replica, sum_partition, &sum));
    return norms_gather(norms, sums);
}
