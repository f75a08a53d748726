/* The transfers of collectives in which a rank sends to few others, and what it
 * has comes to all by way of these: a message to each of log2 of the ranks.
 *
 * Barriers and gathers are by dissemination: in round k everybody hears from the
 * rank 2^k places before, all that this one has heard so far (Bruck et al. 1997,
 * Efficient algorithms for all-to-all communications in multiport message-passing
 * systems). Broadcasts go down a binomial tree. Integers are combined by pairs whose
 * numbers differ in one bit; ranks beyond the largest power of two give theirs to one
 * below it before, and are told the result after. */
#include "src/comm/comm_impl.h"

#include <assert.h>

/* Parts are gathered by way of others up to this mean, as then the number of
 * messages counts and not their bytes. What is larger goes to all at once, and
 * needs nobody between who would have to look. */
#define TREE_BYTES ((size_t)16 << 10)

enum err comm_tree_barrier(struct comm_request *request, const int *members,
                           int count, int own)
{
    request->tree = true;
    request->members = members;
    request->member_count = count;
    for (int step = 1; step < count; step *= 2, request->round++) {
        int from = (own - step + count) % count;
        int to = (own + step) % count;
        if (members != NULL) {
            from = members[from];
            to = members[to];
        }
        TRY(comm_request_add(request, true, NULL, 0, from, request->tag));
        TRY(comm_request_add(request, false, NULL, 0, to, request->tag));
    }
    return ERR_OK;
}

enum err comm_tree_broadcast(struct comm_request *request, void *data,
                             size_t bytes, int root)
{
    int size = request->comm->size, step = 1;
    int place = comm_peer(request->comm, -root);
    request->tree = true;
    while (step < size && (place & step) == 0)
        step *= 2;
    if (place > 0) {
        TRY(comm_request_add(request, true, data, bytes,
                             (place - step + root) % size, request->tag));
        request->round++;
    }
    while ((step /= 2) > 0)
        if (place + step < size)
            TRY(comm_request_add(request, false, data, bytes,
                                 (place + step + root) % size, request->tag));
    return ERR_OK;
}

bool comm_tree_gathers(const struct comm *comm, const size_t *bytes)
{
    size_t total = 0, size = (size_t)comm->size;
    for (size_t r = 0; r < size; r++)
        total += bytes[r];
    return total <= size * TREE_BYTES && total <= COMM_FRAGMENT_BYTES;
}

/* The parts of `count` ranks up to `last`, each row of neighbours as one. */
static enum err add_parts(struct comm_request *request, bool receive, int peer,
                          char *data, const size_t *bytes,
                          const size_t *offsets, int count)
{
    int size = request->comm->size;
    int last = receive ? peer : request->comm->rank;
    size_t begin = 0, length = 0;
    for (int i = count - 1; i >= 0; i--) {
        int r = (last - i + size) % size;
        if (length > 0 && bytes[r] > 0 && offsets[r] != begin + length) {
            TRY(comm_request_add(request, receive, data + begin, length, peer,
                                 request->tag));
            length = 0;
        }
        if (length == 0)
            begin = offsets[r];
        length += bytes[r];
    }
    if (length > 0)
        TRY(comm_request_add(request, receive, data + begin, length, peer,
                             request->tag));
    return ERR_OK;
}

enum err comm_tree_all_gather(struct comm_request *request, char *data,
                              const size_t *bytes, const size_t *offsets)
{
    const struct comm *comm = request->comm;
    request->tree = true;
    for (int step = 1; step < comm->size; step *= 2, request->round++) {
        int count = step < comm->size - step ? step : comm->size - step;
        TRY(add_parts(request, true, comm_peer(comm, -step), data, bytes,
                      offsets, count));
        TRY(add_parts(request, false, comm_peer(comm, step), data, bytes,
                      offsets, count));
    }
    return ERR_OK;
}

size_t comm_tree_fold_count(const struct comm_fold *fold)
{
    size_t left = fold->count - fold->done;
    return left < COMM_FOLD_COUNT ? left : COMM_FOLD_COUNT;
}

static enum err fold_with(struct comm_request *request, int peer, bool takes,
                          bool gives)
{
    const struct comm_fold *fold = &request->fold;
    size_t bytes = comm_tree_fold_count(fold) * sizeof *fold->values;
    if (takes)
        TRY(comm_request_add(request, true, request->fold_scratch, bytes, peer,
                             request->tag));
    if (gives)
        TRY(comm_request_add(request, false, fold->values + fold->done, bytes,
                             peer, request->tag));
    request->round++;
    return ERR_OK;
}

enum err comm_tree_fold(struct comm_request *request)
{
    const struct comm_fold *fold = &request->fold;
    int rank = request->comm->rank, size = request->comm->size;
    int power = 1 << (comm_bits(size) - 1), beyond = size - power;
    assert(request->collective && request->pending == 0);
    request->tree = true;
    request->transfer_count = request->round = 0;
    request->started = request->ended = 0;
    if (rank >= power) {
        TRY(fold_with(request, rank - power, false, true));
        return comm_request_add(request, true, fold->values + fold->done,
                                comm_tree_fold_count(fold) *
                                    sizeof *fold->values,
                                rank - power, request->tag);
    }
    if (rank < beyond)
        TRY(fold_with(request, rank + power, true, false));
    for (int step = 1; step < power; step *= 2)
        TRY(fold_with(request, rank ^ step, true, true));
    if (rank < beyond)
        TRY(fold_with(request, rank + power, false, true));
    return ERR_OK;
}
