/* Walks over the fragments of this rank's pieces, sums each, and has all ranks'
 * fragments gathered and added. */
#include "src/parallel/norms.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/parallel/replica_impl.h"

struct norms {
    const struct replica *replica;
    bool units;
    int64_t *first;    /* [params.count + 1] */
    double *packed;    /* fragments, rank by rank, as owner_chunk_sum()'s */
    size_t *at;        /* [ranks + 1] where a rank's begin */
    size_t *next;      /* [ranks] */
    struct arena host; /* a device's chunk */
};

/* A place in the flat space, and the tensor that is there or follows. */
struct cursor {
    int64_t at, end;
    int param;
};

struct fragment {
    int64_t begin, end, part;
};

static int64_t part_elements(const struct param *param, bool units)
{
    return units && param->dims == 2 ? param->shape[1] : param->numel;
}

/* The next one of the interval; false: there is none. */
static bool next_fragment(const struct norms *norms, struct cursor *c,
                          struct fragment *out)
{
    const struct params *params = norms->replica->params;
    while (c->param < params->count) {
        const struct param *param = &params->list[c->param];
        int64_t begin = param->offset > c->at ? param->offset : c->at;
        int64_t width = part_elements(param, norms->units);
        if (begin >= c->end)
            return false;
        if (begin >= param->offset + param->numel) {
            c->param++;
            continue;
        }
        int64_t part = (begin - param->offset) / width;
        int64_t end = param->offset + (part + 1) * width;
        int64_t chunk = (begin / KERNEL_CHUNK + 1) * KERNEL_CHUNK;
        end = end < chunk ? end : chunk;
        *out = (struct fragment){ .begin = begin,
                                  .end = end < c->end ? end : c->end,
                                  .part = norms->first[c->param] + part };
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
        count += params->list[p].numel / part_elements(&params->list[p], units);
    return count;
}

/* No more fragments than this: each chunk's end cuts one. */
static size_t fragments_max(const struct params *params, bool units)
{
    return (size_t)(parts(params, units) + params->elements / KERNEL_CHUNK);
}

size_t norms_bytes(const struct params *params, bool units)
{
    return fragments_max(params, units) * sizeof(double) +
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
                total++;
        }
    }
    norms->at[owner->ranks] = total;
    assert(total <= fragments_max(norms->replica->params, norms->units));
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
    norms->packed =
        calloc(fragments_max(params, units) + 1, sizeof norms->packed[0]);
    norms->at = calloc(ranks + 1, sizeof norms->at[0]);
    norms->next = calloc(ranks, sizeof norms->next[0]);
    if (norms->first == NULL || norms->packed == NULL || norms->at == NULL ||
        norms->next == NULL)
        rc = err_set(ERR_MEMORY, "norms: out of memory");
    if (rc == ERR_OK && memory->device)
        rc = memory->host_create(KERNEL_CHUNK * sizeof(float), &norms->host);
    if (rc != ERR_OK) {
        norms_destroy(norms);
        return rc;
    }
    for (int p = 0; p < params->count; p++)
        norms->first[p + 1] =
            norms->first[p] +
            params->list[p].numel / part_elements(&params->list[p], units);
    place(norms);
    *out = norms;
    return ERR_OK;
}

void norms_destroy(struct norms *norms)
{
    if (norms == NULL)
        return;
    norms->replica->kernels->memory->host_destroy(&norms->host);
    free(norms->first);
    free(norms->packed);
    free(norms->at);
    free(norms->next);
    free(norms);
}

int64_t norms_count(const struct norms *norms)
{
    return norms->first[norms->replica->params->count];
}

int64_t norms_first(const struct norms *norms, int tensor)
{
    return norms->first[tensor];
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
        *sum->to++ = x != NULL ? squares(x, f.end - f.begin) : 0.0;
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
                sums[f.part] += norms->packed[(*next)++];
        }
}

enum err norms_sum(struct norms *norms, enum norms_of what, int index,
                   double *sums)
{
    const struct replica *replica = norms->replica;
    const struct owner *owner = replica->owner;
    size_t *bytes = comm_sizes(replica->comm, 0);
    size_t *offsets = comm_sizes(replica->comm, 1);
    struct sum sum = { .norms = norms,
                       .what = what,
                       .index = index,
                       .to = norms->packed + norms->at[owner->rank] };
    TRY(comm_agree(replica->comm, replica_visit(replica, sum_piece, &sum)));
    for (int r = 0; r < owner->ranks; r++) {
        offsets[r] = norms->at[r] * sizeof(double);
        bytes[r] = (norms->at[r + 1] - norms->at[r]) * sizeof(double);
    }
    TRY(comm_all_gather(replica->comm, norms->packed, bytes, offsets));
    add(norms, sums);
    return ERR_OK;
}
