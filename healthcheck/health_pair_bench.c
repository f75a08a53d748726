/* What one rank does in a meeting: sums a vector with its peer and times it. The
 * first sum warms up, brings both to the same time and is looked at; then the best
 * of some repeats counts, as others use the network, too. Between leaves some more
 * follow, which are not timed: many share that way at once, and the last of them
 * would have it for themselves.
 *
 * Over MPI both send their vector to the other and add what comes: an all-reduce of
 * two, whose bytes on the wire are those of one vector each way. Only the exchange
 * is timed, since one processor adds slower than networks carry. Numbers are small
 * and whole, so that each side knows every sum without having seen the other's
 * vector, and one wrong bit on the way or in memory shows. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "healthcheck/health_pair_impl.h"
#include "src/base/clock.h"
#include "src/base/new.h"

#define PAIR_TAG 77
#define PAIR_INJECTED 1e6 /* times as long as it took: a busy machine is less */
#define PAIR_LEAST_REPEATS 64 /* of the smallest vector */
#define PAIR_AFTER 2

/* --- over MPI --- */

/* Small whole numbers: their sums are exact. */
static float pair_value(int rank, size_t index)
{
    return (float)((index * 7 + (size_t)rank * 13) % 1021);
}

static enum err mpi_fill(struct pair_bench *bench, int peer, size_t count)
{
    int rank = comm_rank(bench->comm);
    assert(peer != rank);
    (void)peer;
    for (; bench->filled < count; bench->filled++)
        bench->own[bench->filled] = pair_value(rank, bench->filled);
    bench->own[0] = pair_value(rank, 0) + (float)bench->wrong;
    memset(bench->other, 0, count * sizeof(float));
    return ERR_OK;
}

/* Both receive before they send, so that no message has to wait for room. */
static enum err mpi_sum(struct pair_bench *bench, int peer, size_t count)
{
    struct comm_request *recv = NULL;
    struct comm_request *send = NULL;
    size_t bytes = count * sizeof(float);
    double timeout_s = bench->options->timeout_s;
    TRY(comm_start_recv(bench->comm, bench->other, bytes, peer, PAIR_TAG,
                        &recv));
    TRY(comm_start_send(bench->comm, bench->own, bytes, peer, PAIR_TAG, &send));
    TRY(comm_wait(recv, timeout_s));
    return comm_wait(send, timeout_s);
}

static enum err mpi_wrong(struct pair_bench *bench, int peer, size_t count,
                          int64_t *wrong)
{
    int rank = comm_rank(bench->comm);
    *wrong = 0;
    for (size_t i = 0; i < count; i++)
        *wrong += bench->own[i] + bench->other[i] !=
                  pair_value(rank, i) + pair_value(peer, i);
    return ERR_OK;
}

static enum err mpi_round_end(struct pair_bench *bench)
{
    (void)bench;
    return ERR_OK;
}

static void mpi_close(struct pair_bench *bench)
{
    free(bench->other);
    free(bench->own);
}

static const struct pair_wire pair_mpi = { .name = "MPI, host memory",
                                           .fill = mpi_fill,
                                           .sum = mpi_sum,
                                           .wrong = mpi_wrong,
                                           .round_end = mpi_round_end,
                                           .close = mpi_close };

static enum err mpi_open(struct pair_bench *bench, size_t bytes_max)
{
    TRY(new_room(&bench->own, bytes_max / sizeof(float)));
    return new_room(&bench->other, bytes_max / sizeof(float));
}

/* --- over either --- */

static bool bench_injected(const struct pair_bench *bench, int rails,
                           const char *what)
{
    char rank[32], rail[32];
    const char *inject = bench->options->inject;
    int own = comm_rank(bench->comm);
    snprintf(rank, sizeof rank, "rank%d", own);
    snprintf(rail, sizeof rail, "rail%d", own % rails);
    return health_injected(inject, "pair", rank, what) ||
           health_injected(inject, "pair", rail, what) ||
           health_injected(inject, "pair", comm_host(bench->comm, own), what);
}

enum err health_pair_bench_create(struct comm *comm,
                                  const struct health_pair_options *options,
                                  int rails, struct pair_bench *bench,
                                  size_t *bytes_max)
{
    *bench = (struct pair_bench){ .comm = comm, .options = options };
    bool on_gpus = options->gpus != NULL && options->nccl != NULL;
    bench->wire = on_gpus ? &health_pair_nccl : &pair_mpi;
    bench->wrong = bench_injected(bench, rails, "wrong");
    bench->slow = bench_injected(bench, rails, "slow");
    bench->late = bench_injected(bench, rails, "late");
    TRY(comm_agree(comm, on_gpus ? health_pair_nccl_open(bench, bytes_max)
                                 : mpi_open(bench, *bytes_max)));
    int64_t least = (int64_t)*bytes_max;
    TRY(comm_all_reduce_i64(comm, &least, 1, COMM_MIN));
    *bytes_max = (size_t)least;
    return ERR_OK;
}

void health_pair_bench_destroy(struct pair_bench *bench)
{
    if (bench->wire != NULL)
        bench->wire->close(bench);
}

enum err health_pair_bench_meet(struct pair_bench *bench, int peer, bool across,
                                size_t bytes, int64_t *nanoseconds,
                                int64_t *wrong)
{
    double best_s = INFINITY;
    int64_t found;
    size_t count = bytes / sizeof(float);
    bool least = bytes == HEALTH_PAIR_LEAST;
    int repeats = least ? PAIR_LEAST_REPEATS : bench->options->repeats;
    TRY(bench->wire->fill(bench, peer, count));
    TRY(bench->wire->sum(bench, peer, count));
    TRY(bench->wire->wrong(bench, peer, count, &found));
    *wrong = found > *wrong ? found : *wrong;
    for (int i = 0; i < repeats; i++) {
        double start = clock_now();
        TRY(bench->wire->sum(bench, peer, count));
        best_s = fmin(best_s, clock_now() - start);
    }
    if (least ? bench->late : bench->slow || (across && bench->leaf_slow))
        best_s *= PAIR_INJECTED;
    for (int i = 0; across && i < PAIR_AFTER; i++)
        TRY(bench->wire->sum(bench, peer, count));
    *nanoseconds = (int64_t)(best_s * 1e9);
    return ERR_OK;
}
