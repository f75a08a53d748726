/* The small sums of a step, and the gather of intervals in plain memory. */
#include "src/parallel/reduce.h"
#include "src/parallel/shard.h"
#include "src/parallel/tree.h"

enum err reduce_slot_sums(struct comm *comm, int slots, double *values,
                          double *sum)
{
    int ranks = comm_size(comm);
    size_t *bytes = comm_sizes(comm, 0);
    size_t *offsets = comm_sizes(comm, 1);
    for (int r = 0; r < ranks; r++) {
        int begin = shard_slot_begin(r, ranks, slots);
        int end = shard_slot_begin(r + 1, ranks, slots);
        offsets[r] = (size_t)begin * sizeof *values;
        bytes[r] = (size_t)(end - begin) * sizeof *values;
    }
    TRY(comm_all_gather(comm, values, bytes, offsets));
    *sum = tree_sum(values, slots);
    return ERR_OK;
}

/* Of the intervals, `item_bytes` for every `item_elements`. */
static void interval_sizes(int ranks, int64_t elements, int64_t item_elements,
                           size_t item_bytes, size_t *bytes, size_t *offsets)
{
    for (int r = 0; r < ranks; r++) {
        int64_t begin = shard_begin(elements, r, ranks) / item_elements;
        int64_t end = shard_begin(elements, r + 1, ranks) / item_elements;
        offsets[r] = (size_t)begin * item_bytes;
        bytes[r] = (size_t)(end - begin) * item_bytes;
    }
}

enum err reduce_gather(struct comm_tensors *tensors, int64_t elements,
                       enum dtype dtype, void *arena)
{
    struct comm *comm = comm_tensors_comm(tensors);
    struct comm_tensors_request *request;
    size_t *bytes = comm_sizes(comm, 0);
    size_t *offsets = comm_sizes(comm, 1);
    interval_sizes(comm_size(comm), elements, 1, dtype_bytes(dtype), bytes,
                   offsets);
    TRY(comm_tensors_start_all_gather(tensors, arena, bytes, offsets,
                                      &request));
    return comm_tensors_wait(request, 0.0);
}

enum err reduce_chunk_sums(struct comm *comm, int64_t elements, double *values,
                           double *sum)
{
    size_t *bytes = comm_sizes(comm, 0);
    size_t *offsets = comm_sizes(comm, 1);
    interval_sizes(comm_size(comm), elements, KERNEL_CHUNK, sizeof *values,
                   bytes, offsets);
    TRY(comm_all_gather(comm, values, bytes, offsets));
    double total = 0.0;
    for (int64_t i = 0; i < elements / KERNEL_CHUNK; i++)
        total += values[i];
    *sum = total;
    return ERR_OK;
}
