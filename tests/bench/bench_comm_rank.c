/* tessera-bench comm, one of the ranks: times our sum of gradients in turns
 * with MPI_Allreduce(). */

#include "src/base/arena.h"
#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/base/real.h"
#include "src/parallel/reduce.h"
#include "tests/bench/bench.h"
#include "tests/bench/bench_ranks.h"

#if TESSERA_WITH_MPI
#include <mpi.h>
#endif

#define TIMEOUT_S 60.0
#define ROUNDS_MAX 25
#define ROUNDS_MIN 5
#define MIB ((int64_t)1 << 20)

enum { OURS, MPI_APART, MPI_INSIDE, KINDS };

static const int sizes_mib[] = { 1, 64, 256 };
#define SIZES (int)(sizeof sizes_mib / sizeof sizes_mib[0])

struct bench {
    struct comm *comm;
    struct comm_tensors *tensors;
    const struct kernels *kernels;
    struct kernel_ctx ctx;
    int rank;
    int64_t elements;
    struct reduce *reduce;
    struct arena arena;
    float *total;    /* [elements] ours; lent */
    float *values;   /* [elements] this rank's summand */
    float *received; /* [elements] MPI's sum, the same every time */
    bool known;      /* that sum */
    double seconds[KINDS][ROUNDS_MAX];
    int rounds;
};

static void lay_out(struct bench *b, struct arena *arena)
{
    size_t bytes = (size_t)b->elements * sizeof(float);
    b->values = arena_take(arena, bytes);
    b->received = arena_take(arena, bytes);
}

static enum err open_size(struct bench *b)
{
    struct arena plan = { 0 };
    lay_out(b, &plan);
    TRY(comm_agree(b->comm, arena_create(plan.used, &b->arena)));
    lay_out(b, &b->arena);
    for (int64_t i = 0; i < b->elements; i++)
        b->values[i] =
            (float)((i * 2654435761 + b->rank * 7) % 1000003) * 1e-3f;
    TRY(reduce_create(b->comm, b->tensors, b->kernels, &b->ctx, b->elements,
                      NULL, comm_size(b->comm), &b->reduce));
    b->rounds = 0;
    b->known = false;
    return ERR_OK;
}

static void close_size(struct bench *b)
{
    reduce_destroy(b->reduce);
    arena_destroy(&b->arena);
    b->reduce = NULL;
}

static enum err sum_mpi(struct bench *b, const float *gradient, bool in_place)
{
#if TESSERA_WITH_MPI
    const void *from = in_place ? MPI_IN_PLACE : gradient;
    if (MPI_Allreduce(from, b->received, (int)b->elements, MPI_FLOAT, MPI_SUM,
                      MPI_COMM_WORLD) == MPI_SUCCESS)
        return ERR_OK;
    return err_set(ERR_COMM, "MPI_Allreduce has failed");
#else
    (void)b, (void)gradient, (void)in_place;
    return err_set(ERR_UNSUPPORTED, "this program was built without MPI");
#endif
}

/* The slot's gradient is made anew each time: the sum overwrites a part. */
static enum err one_sum(struct bench *b, int kind, double *seconds)
{
    size_t bytes = (size_t)b->elements * sizeof(float);
    reduce_begin(b->reduce, true);
    float *gradient = reduce_slot(b->reduce);
    memcpy(gradient, b->values, bytes);
    TRY(reduce_slot_done(b->reduce));
    if (kind == MPI_INSIDE)
        memcpy(b->received, b->values, bytes);
    TRY(comm_barrier(b->comm));
    double begin = clock_now();
    TRY(kind == OURS ? reduce_finish(b->reduce, &b->total)
                     : sum_mpi(b, gradient, kind == MPI_INSIDE));
    int64_t ns = (int64_t)(1e9 * (clock_now() - begin));
    TRY(comm_all_reduce_i64(b->comm, &ns, 1, COMM_MAX));
    *seconds = 1e-9 * (double)ns;
    return ERR_OK;
}

static enum err check_bits(struct bench *b, int kind)
{
    enum err rc = ERR_OK;
    size_t bytes = (size_t)b->elements * sizeof(float);
    b->known |= kind != OURS;
    if (kind == OURS && b->known && memcmp(b->received, b->total, bytes) != 0)
        rc = err_set(ERR_INTERNAL, "the two sums have other bits");
    return comm_agree(b->comm, rc);
}

static enum err one_round(struct bench *b)
{
    double seconds;
    for (int i = 0; i < KINDS; i++) {
        int kind = b->rounds % 2 == 0 ? i : KINDS - 1 - i;
        TRY(one_sum(b, kind, &seconds));
        TRY(check_bits(b, kind));
        b->seconds[kind][b->rounds] = seconds;
    }
    b->rounds++;
    return ERR_OK;
}

static enum err add_figures(struct bench *b, int mib, json_t *result)
{
    char name[64];
    double bytes = (double)(mib * MIB);
    double ours = real_median_upper(b->seconds[OURS], b->rounds);
    double other = real_median_upper(b->seconds[MPI_APART], b->rounds);
    double in_place = real_median_upper(b->seconds[MPI_INSIDE], b->rounds);
    double mpi = other < in_place ? other : in_place;
    const struct {
        const char *format;
        double value;
    } figures[] = { { "allreduce_%dMiB_s", ours },
                    { "mpi_%dMiB_s", mpi },
                    { "allreduce_%dMiB_speedup", mpi / ours },
                    { "allreduce_%dMiB_gb_s", 1e-9 * bytes / ours },
                    { "mpi_%dMiB_gb_s", 1e-9 * bytes / mpi } };
    for (size_t i = 0; i < sizeof figures / sizeof figures[0]; i++) {
        snprintf(name, sizeof name, figures[i].format, mib);
        if (json_object_set_new(result, name, json_real(figures[i].value)) != 0)
            return err_set(ERR_MEMORY, "out of memory");
    }
    log_info("%d MiB, %d rounds: %.3f ms, MPI_Allreduce %.3f ms, in place "
             "%.3f ms",
             mib, b->rounds, 1e3 * ours, 1e3 * other, 1e3 * in_place);
    return ERR_OK;
}

static enum err measure_size(struct bench *b, int mib, double seconds,
                             json_t *result)
{
    enum err rc = ERR_OK;
    int64_t go = 1;
    b->elements = mib * MIB / (int64_t)sizeof(float);
    TRY_OUT(open_size(b));
    TRY_OUT(one_round(b)); /* pages, caches, MPI's buffers */
    b->rounds = 0;
    double begin = clock_now();
    while (go != 0) {
        TRY_OUT(one_round(b));
        go = b->rounds < ROUNDS_MIN ||
             (b->rounds < ROUNDS_MAX && clock_now() - begin < seconds);
        TRY_OUT(comm_broadcast(b->comm, &go, sizeof go, 0));
    }
    if (b->rank == 0)
        rc = add_figures(b, mib, result);
    TRY_OUT(comm_agree(b->comm, rc));
out:
    close_size(b);
    return rc;
}

enum err bench_comm_rank(const struct bench_options *options, json_t **result)
{
    enum err rc = ERR_OK;
    struct bench b = { .ctx = { .threads = 1 } };
    *result = NULL;
    TRY_OUT(bench_ranks_open(TIMEOUT_S, 2, &b.comm));
    b.rank = comm_rank(b.comm);
    TRY_OUT(kernels_find("cpu", "auto", &b.kernels));
    TRY_OUT(comm_tensors_create(b.comm, b.kernels->memory, NULL, EXCHANGE_AUTO,
                                &b.tensors));
    *result = json_pack("{s:s, s:i}", "bench", "comm", "ranks", 2);
    for (int i = 0; i < SIZES; i++)
        TRY_OUT(
            measure_size(&b, sizes_mib[i], options->seconds / SIZES, *result));
    if (b.rank == 0)
        rc = bench_ranks_write(options, *result);
out:
    comm_tensors_destroy(b.tensors);
    comm_destroy(b.comm);
    return rc;
}
