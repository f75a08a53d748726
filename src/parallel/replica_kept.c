/* What others than the optimizer do with a replica's tensors: visits of the
 * partitions that this rank updates, and weights that change places with what is
 * kept beside the moments. */
#include "src/parallel/replica_impl.h"

/* Elements [begin, end) of the flat space, which lie at `at` in what is kept
 * beside the masters. */
static struct replica_partition partition_of(const struct replica *replica,
                                             int64_t begin, int64_t end,
                                             float *master, float *gradient,
                                             int64_t at)
{
    struct replica_partition partition = { .params = replica->params,
                                           .begin = begin,
                                           .elements = end - begin,
                                           .weights = master,
                                           .gradient = gradient };
    for (int i = 0; i < replica_kept_count(&replica->options); i++)
        partition.kept[i] = replica->kept[i] + at;
    return partition;
}

static enum err visit_own(
    const struct replica *replica,
    enum err (*visit)(void *arg, const struct replica_partition *partition),
    void *arg)
{
    const struct owner *owner = replica->owner;
    bool summed = replica->gradient != NULL;
    if (replica_is_ddp(replica)) {
        struct replica_partition all =
            partition_of(replica, 0, replica->params->elements,
                         replica_all_masters(replica), replica->gradient, 0);
        return visit(arg, &all);
    }
    for (int i = 0; i < owner->block_count; i++) {
        const struct owner_block *b = &owner->blocks[i];
        struct replica_partition partition = partition_of(
            replica, b->begin, b->end, replica_own_master(replica, i),
            summed ? replica_gradient_at(replica, i, b->begin) : NULL,
            replica_own_at(replica, i));
        if (b->end > b->begin)
            TRY(visit(arg, &partition));
    }
    return ERR_OK;
}

enum err replica_visit(
    const struct replica *replica,
    enum err (*visit)(void *arg, const struct replica_partition *partition),
    void *arg)
{
    return comm_agree(replica->comm, visit_own(replica, visit, arg));
}

const float *replica_moment_at(const struct replica *replica, int moment,
                               int64_t element)
{
    const struct span *span = spans_at(replica->spans, element);
    if (span == NULL || moment >= optimizer_moments(span->optimizer))
        return NULL;
    return replica->moments[moment] + span->moment_at[moment] +
           (element - span->begin);
}

struct swap {
    const struct replica *replica;
    int kept;
};

static enum err swap_partition(void *arg,
                               const struct replica_partition *partition)
{
    const struct swap *swap = arg;
    const struct replica *replica = swap->replica;
    const struct kernel_memory *memory = replica->kernels->memory;
    void *stream = replica->ctx->stream;
    for (int64_t at = 0; at < partition->elements; at += REPLICA_SWAP) {
        int64_t n = partition->elements - at;
        size_t bytes =
            (size_t)(n < REPLICA_SWAP ? n : REPLICA_SWAP) * sizeof(float);
        float *kept = partition->kept[swap->kept] + at;
        TRY(memory->copy(stream, bytes, kept, replica->swapped));
        TRY(memory->copy(stream, bytes, partition->weights + at, kept));
        TRY(memory->copy(stream, bytes, replica->swapped,
                         partition->weights + at));
    }
    return ERR_OK;
}

enum err replica_swap(struct replica *replica, int kept)
{
    struct swap swap = { replica, kept };
    TRY(replica_visit(replica, swap_partition, &swap));
    return replica_publish(replica);
}
