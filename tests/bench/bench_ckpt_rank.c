/* tessera-bench ckpt, one of the ranks: saves and loads a state in turns with
 * plain writes of the same bytes. */
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "checkpoint/ckpt.h"
#include "src/base/arena.h"
#include "src/base/clock.h"
#include "src/base/fsio.h"
#include "src/base/log.h"
#include "src/base/new.h"
#include "src/base/real.h"
#include "src/model/params.h"
#include "tests/bench/bench.h"
#include "tests/bench/bench_ranks.h"
#include "tests/ckpt_save.h"

#define TIMEOUT_S 300.0
#define ROUNDS_MAX 7
#define ROUNDS_MIN 3
#define COPIES 3 /* weights and two moments */
#define PAGE_BYTES 4096
#define IO_BYTES ((int64_t)8 << 20)
#define SMALL_TENSORS 10000
#define FEW_TENSORS 10
#define SMALL_ELEMENTS 4096 /* of a tensor, per rank */
#define STATE_BYTES_MAX ((int64_t)256 << 20)
#define STALLS 9

/* a file for each rank, or one for both */
enum { RAW_DIRECT, RAW_CACHED, OURS, TOGETHER, KINDS };
enum { INDEX_FEW, INDEX_MANY, INDEX_KINDS };

struct bench {
    const char *dir;
    struct comm *comm;
    int rank;
    int64_t step;
    struct arena arena; /* the state: one interval of each copy */
    struct ckpt_item *items;
    int item_count;
    int64_t bytes;                    /* of this rank's state, whole pages */
    struct ckpt_saver *savers[KINDS]; /* of the state */
    struct ckpt_item *small[INDEX_KINDS];
    double write_s[KINDS][ROUNDS_MAX];
    double read_s[KINDS][ROUNDS_MAX];
    double index_s[INDEX_KINDS][ROUNDS_MAX];
    int rounds;
};

/* --- state --- */

/* Every parameter once per copy, with the part that lies in this rank's half of
 * the flat space. The parts begin at page borders, as those do that a saver has
 * set aside in memory. */
static void lay_out(struct bench *b, const struct params *params,
                    struct arena *arena)
{
    static const char *const copies[COPIES] = { "", "optimizer/exp_avg/",
                                                "optimizer/exp_avg_sq/" };
    int64_t half = params->elements / 2;
    int64_t begin = b->rank * half, end = begin + half;
    b->item_count = 0;
    for (int copy = 0; copy < COPIES; copy++)
        for (int i = 0; i < params->count; i++) {
            const struct param *p = &params->list[i];
            struct ckpt_item *item = &b->items[b->item_count++];
            int64_t from = p->offset > begin ? p->offset : begin;
            int64_t to =
                p->offset + p->numel < end ? p->offset + p->numel : end;
            *item = (struct ckpt_item){ .dims = p->dims };
            snprintf(item->name, sizeof item->name, "%s%s", copies[copy],
                     p->name);
            memcpy(item->shape, p->shape, sizeof p->shape);
            if (from >= to)
                continue;
            item->part.begin = from - p->offset;
            item->part.end = to - p->offset;
            size_t bytes = (size_t)(to - from) * sizeof(float);
            item->data = arena_take(arena, (bytes + PAGE_BYTES - 1) /
                                               PAGE_BYTES * PAGE_BYTES);
        }
}

/* The same memory as so many tensors of two rows, of which this rank has one.
 */
static enum err lay_out_small(struct bench *b, int count,
                              struct ckpt_item **out)
{
    int64_t elements = (int64_t)SMALL_TENSORS * SMALL_ELEMENTS / count;
    TRY(new_zeroed(out, (size_t)count));
    struct ckpt_item *items = *out;
    assert(elements * count * (int64_t)sizeof(float) <= b->bytes);
    for (int i = 0; i < count; i++) {
        items[i] = (struct ckpt_item){ .dims = 2, .shape = { 2, elements } };
        snprintf(items[i].name, sizeof items[i].name,
                 "transformer.blocks.%d.weight", i);
        items[i].part.begin = b->rank * elements;
        items[i].part.end = (b->rank + 1) * elements;
        items[i].data = b->arena.base + i * elements * (int64_t)sizeof(float);
    }
    return ERR_OK;
}

static enum err make_state(struct bench *b)
{
    enum err rc = ERR_OK;
    struct model_config config;
    struct params *params = NULL;
    TRY_OUT(model_config_preset("mpt-125m", &config));
    TRY_OUT(params_create(&config, &params));
    TRY_OUT(new_zeroed(&b->items, (size_t)params->count * COPIES));
    struct arena plan = { 0 };
    lay_out(b, params, &plan);
    b->bytes = (int64_t)plan.used;
    TRY_OUT(arena_create(plan.used, &b->arena));
    lay_out(b, params, &b->arena);
    uint64_t *words = (uint64_t *)(void *)b->arena.base;
    for (int64_t i = 0; i < b->bytes / 8; i++)
        words[i] = (uint64_t)i * 0x9e3779b97f4a7c15u;
    TRY_OUT(lay_out_small(b, FEW_TENSORS, &b->small[INDEX_FEW]));
    TRY_OUT(lay_out_small(b, SMALL_TENSORS, &b->small[INDEX_MANY]));
out:
    params_destroy(params);
    return rc;
}

/* --- the bare disk --- */

static enum err raw_open(struct bench *b, int kind, int flags, int *fd,
                         char path[FSIO_PATH_MAX])
{
    TRY(fsio_path(path, "%s/raw.%d", b->dir, b->rank));
    *fd = open(path, flags | (kind == RAW_DIRECT ? O_DIRECT : 0), 0666);
    if (*fd < 0 && kind == RAW_DIRECT) /* refused: the other kind, twice */
        *fd = open(path, flags, 0666);
    if (*fd < 0)
        return err_errno("%s: open", path);
    return ERR_OK;
}

static enum err raw_transfer(struct bench *b, int kind, bool writing)
{
    enum err rc = ERR_OK;
    char path[FSIO_PATH_MAX];
    int fd = -1;
    TRY_OUT(raw_open(b, kind, writing ? O_WRONLY | O_CREAT | O_TRUNC : O_RDONLY,
                     &fd, path));
    for (int64_t at = 0; at < b->bytes; at += IO_BYTES) {
        size_t part =
            (size_t)(b->bytes - at < IO_BYTES ? b->bytes - at : IO_BYTES);
        TRY_OUT((writing) ? fsio_pwrite(fd, b->arena.base + at, part, at, path)
                          : fsio_pread(fd, b->arena.base + at, part, at, path));
    }
    if (writing && fsync(fd) != 0)
        rc = err_errno("%s: fsync", path);
out:
    if (fd >= 0)
        close(fd);
    return rc;
}

static void drop(const char *path)
{
    int fd = open(path, O_RDONLY);
    if (fd < 0)
        return;
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
}

/* What is read next comes from the disk. */
static void drop_all(struct bench *b)
{
    char path[FSIO_PATH_MAX];
    const char *const shards[] = { "shard-00000-of-00002.h5",
                                   "shard-00001-of-00002.h5",
                                   "shard-00000-of-00001.h5" };
    if (fsio_path(path, "%s/raw.%d", b->dir, b->rank) == ERR_OK)
        drop(path);
    for (int i = 0; i < 3; i++)
        if (fsio_path(path, "%s/run/checkpoints/step-%09lld/%s", b->dir,
                      (long long)b->step, shards[i]) == ERR_OK &&
            fsio_exists(path))
            drop(path);
}

/* --- measuring --- */

static enum err save(struct bench *b, const struct ckpt_item *items, int count)
{
    char run[FSIO_PATH_MAX];
    struct ckpt_options options = { .attempt = "1.1", .keep = 0 };
    enum err rc = fsio_path(run, "%s/run", b->dir);
    if (rc == ERR_OK)
        rc = ckpt_save(b->comm, run, ++b->step, NULL, items, count, &options,
                       NULL);
    return rc;
}

/* As training does it: with a saver that has saved before. */
static enum err save_state(struct bench *b, int kind)
{
    char run[FSIO_PATH_MAX];
    struct ckpt_saver **saver = &b->savers[kind];
    struct ckpt_options options = { .attempt = "1.1",
                                    .file_ranks = kind == TOGETHER ? 2 : 0 };
    struct ckpt_progress progress;
    TRY(fsio_path(run, "%s/run", b->dir));
    if (*saver == NULL)
        TRY(ckpt_saver_create(b->comm, run, &options, b->items, b->item_count,
                              saver));
    TRY(ckpt_saver_start(*saver, ++b->step, NULL));
    TRY(ckpt_saver_wait(*saver, &progress));
    if (progress.phase == CKPT_FAILED)
        return err_set(progress.error, "%s", progress.text);
    return ERR_OK;
}

static enum err load(struct bench *b)
{
    char run[FSIO_PATH_MAX];
    int64_t step;
    json_t *state = NULL;
    enum err rc = fsio_path(run, "%s/run", b->dir);
    if (rc == ERR_OK)
        rc = ckpt_load(b->comm, run, NULL, b->items, b->item_count, &step,
                       &state, NULL);
    if (rc == ERR_OK && step != b->step)
        rc = err_set(ERR_INTERNAL, "%s: another step was loaded", run);
    json_decref(state);
    return rc;
}

/* Deleting is not measured, nor may it go on while something else is. */
static enum err clear(struct bench *b)
{
    enum err rc = ERR_OK;
    char path[FSIO_PATH_MAX];
    TRY(comm_barrier(b->comm));
    TRY(fsio_path(path, "%s/raw.%d", b->dir, b->rank));
    (void)unlink(path);
    TRY(fsio_path(path, "%s/run", b->dir));
    if (b->rank == 0)
        rc = fsio_remove_tree(path);
    sync();
    return comm_agree(b->comm, rc);
}

static enum err one_write(struct bench *b, int kind, double *seconds)
{
    enum err rc = ERR_OK;
    TRY(comm_barrier(b->comm));
    double begin = clock_now();
    rc = kind >= OURS ? save_state(b, kind) : raw_transfer(b, kind, true);
    TRY(comm_agree(b->comm, rc));
    *seconds = clock_now() - begin;
    return rc;
}

static enum err one_read(struct bench *b, int kind, double *seconds)
{
    enum err rc = ERR_OK;
    drop_all(b);
    TRY(comm_barrier(b->comm));
    double begin = clock_now();
    rc = kind >= OURS ? load(b) : raw_transfer(b, kind, false);
    TRY(comm_agree(b->comm, rc));
    *seconds = clock_now() - begin;
    return rc;
}

static enum err one_index(struct bench *b, int kind, double *seconds)
{
    enum err rc = ERR_OK;
    TRY(clear(b));
    double begin = clock_now();
    rc = save(b, b->small[kind],
              kind == INDEX_MANY ? SMALL_TENSORS : FEW_TENSORS);
    TRY(comm_agree(b->comm, rc));
    *seconds = clock_now() - begin;
    return rc;
}

/* Ours between the two raw ones, in turn from either end. */
static enum err one_round(struct bench *b)
{
    static const int orders[2][KINDS] = {
        { RAW_DIRECT, OURS, TOGETHER, RAW_CACHED },
        { RAW_CACHED, TOGETHER, OURS, RAW_DIRECT }
    };
    int r = b->rounds;
    for (int i = 0; i < KINDS; i++) {
        int kind = orders[r % 2][i];
        TRY(clear(b));
        TRY(one_write(b, kind, &b->write_s[kind][r]));
    }
    TRY(clear(b));
    double unused;
    TRY(one_write(b, RAW_DIRECT, &unused));
    for (int i = 0; i < KINDS; i++) {
        int kind = orders[r % 2][i];
        if (kind >= OURS) /* the newest is loaded */
            TRY(one_write(b, kind, &unused));
        TRY(one_read(b, kind, &b->read_s[kind][r]));
    }
    for (int i = 0; i < INDEX_KINDS; i++) {
        int kind = r % 2 == 0 ? i : 1 - i;
        TRY(one_index(b, kind, &b->index_s[kind][r]));
    }
    if (b->rank == 0)
        log_info(
            "round %d: write %.2f s (one file %.2f, raw direct %.2f, cached "
            "%.2f), read %.2f s (one file %.2f, raw direct %.2f, cached "
            "%.2f), 10,000 tensors %.2f s, few %.2f s",
            r + 1, b->write_s[OURS][r], b->write_s[TOGETHER][r],
            b->write_s[RAW_DIRECT][r], b->write_s[RAW_CACHED][r],
            b->read_s[OURS][r], b->read_s[TOGETHER][r],
            b->read_s[RAW_DIRECT][r], b->read_s[RAW_CACHED][r],
            b->index_s[INDEX_MANY][r], b->index_s[INDEX_FEW][r]);
    b->rounds++;
    return ERR_OK;
}

/* --- what training waits for --- */

/* How many items, and this rank's bytes of them. */
static int first_items(const struct ckpt_item *items, int item_count,
                       int64_t *bytes)
{
    int64_t total = 0;
    int count = 0;
    *bytes = 0;
    for (; count < item_count; count++) {
        const struct ckpt_item *item = &items[count];
        int64_t whole = (int64_t)dtype_bytes(item->dtype);
        for (int d = 0; d < item->dims; d++)
            whole *= item->shape[d];
        if (count > 0 && total + whole > STATE_BYTES_MAX)
            break;
        total += whole;
        *bytes += ckpt_part_elements(&item->part, item->dims) *
                  (int64_t)dtype_bytes(item->dtype);
    }
    return count;
}

static enum err one_stall(struct ckpt_saver *saver, int64_t step,
                          double *seconds)
{
    struct ckpt_progress progress;
    double begin = clock_now();
    TRY(ckpt_saver_start(saver, step, NULL));
    *seconds = clock_now() - begin;
    TRY(ckpt_saver_wait(saver, &progress));
    if (progress.phase == CKPT_FAILED)
        return err_set(progress.error, "%s", progress.text);
    return ERR_OK;
}

/* Medians of ckpt_saver_start() with staging, for the first items of the state,
 * up to 256 MiB over all ranks, and of one memcpy() of as many bytes into
 * memory that is touched already, taken in turn. Rank 0's; the others get 0. */
static enum err measure_stall(struct comm *comm, const char *run_dir,
                              const struct ckpt_item *items, int item_count,
                              double *stall_s, double *copy_s)
{
    enum err rc = ERR_OK;
    int64_t bytes;
    int count = first_items(items, item_count, &bytes);
    double stalls[STALLS], copies[STALLS];
    struct ckpt_options options = { .attempt = "1.1",
                                    .keep = 1,
                                    .stage = true };
    struct ckpt_saver *saver = NULL;
    struct arena from = { 0 }, to = { 0 };
    *stall_s = *copy_s = 0.0;
    if (comm_rank(comm) == 0) {
        rc = arena_create((size_t)bytes + 1, &from);
        if (rc == ERR_OK)
            rc = arena_create((size_t)bytes + 1, &to);
    }
    TRY_OUT(comm_agree(comm, rc));
    TRY_OUT(ckpt_saver_create(comm, run_dir, &options, items, count, &saver));
    for (int round = 0; round < STALLS; round++) {
        TRY_OUT(comm_barrier(comm));
        TRY_OUT(one_stall(saver, round + 1, &stalls[round]));
        TRY_OUT(comm_barrier(comm));
        double begin = clock_now();
        if (from.base != NULL)
            memcpy(to.base, from.base, (size_t)bytes);
        copies[round] = clock_now() - begin;
    }
    if (comm_rank(comm) == 0) {
        *stall_s = real_median(stalls, STALLS);
        *copy_s = real_median(copies, STALLS);
    }
out:
    ckpt_saver_destroy(saver);
    arena_destroy(&from);
    arena_destroy(&to);
    return rc;
}

/* --- the result --- */

static int64_t peak_bytes(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (int64_t)usage.ru_maxrss * 1024;
}

static double smaller(double a, double b)
{
    return a < b ? a : b;
}

/* Sorts the times. */
static json_t *report(struct bench *b, const int64_t *sums, double stall_s,
                      double copy_s)
{
    int n = b->rounds;
    double ours_write = real_median(b->write_s[OURS], n);
    double ours_read = real_median(b->read_s[OURS], n);
    double raw_write = smaller(real_median(b->write_s[RAW_DIRECT], n),
                               real_median(b->write_s[RAW_CACHED], n));
    double raw_read = smaller(real_median(b->read_s[RAW_DIRECT], n),
                              real_median(b->read_s[RAW_CACHED], n));
    double many = real_median(b->index_s[INDEX_MANY], n);
    double few = real_median(b->index_s[INDEX_FEW], n);
    return json_pack(
        "{s:s, s:i, s:i, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, "
        "s:f, s:f, s:f, s:f, s:f, s:I}",
        "bench", "ckpt", "ranks", comm_size(b->comm), "rounds", n, "bytes",
        (json_int_t)sums[0], "persist_s", ours_write, "raw_write_s", raw_write,
        "persist_ratio", raw_write / ours_write, "load_s", ours_read,
        "raw_read_s", raw_read, "load_ratio", raw_read / ours_read, "stall_s",
        stall_s, "persist_together_s", real_median(b->write_s[TOGETHER], n),
        "load_together_s", real_median(b->read_s[TOGETHER], n), "copy_s",
        copy_s, "stall_ratio", stall_s / copy_s, "save_10k_s", many,
        "save_few_s", few, "index_10k_s", many - few, "buffers_bytes",
        (json_int_t)sums[1]);
}

static enum err measure(struct bench *b, const struct bench_options *options,
                        json_t **result)
{
    char path[FSIO_PATH_MAX];
    double begin = clock_now();
    int64_t go = 1;
    TRY(comm_agree(b->comm, make_state(b)));
    int64_t before = peak_bytes();
    while (go != 0) {
        TRY(one_round(b));
        go = b->rounds < ROUNDS_MIN ||
             (b->rounds < ROUNDS_MAX && clock_now() - begin < options->seconds);
        TRY(comm_broadcast(b->comm, &go, sizeof go, 0));
    }
    int64_t total = b->bytes, grown = peak_bytes() - before;
    double stall_s, copy_s;
    TRY(clear(b));
    TRY(fsio_path(path, "%s/run", b->dir));
    TRY(measure_stall(b->comm, path, b->items, b->item_count, &stall_s,
                      &copy_s));
    TRY(comm_all_reduce_i64(b->comm, &total, 1, COMM_SUM));
    TRY(comm_all_reduce_i64(b->comm, &grown, 1, COMM_MAX));
    TRY(clear(b));
    if (b->rank != 0)
        return ERR_OK;
    const int64_t sums[2] = { total, grown };
    *result = report(b, sums, stall_s, copy_s);
    TRY(bench_ranks_write(options, *result));
    return ERR_OK;
}

enum err bench_ckpt_rank(const struct bench_options *options, json_t **result)
{
    enum err rc = ERR_OK;
    struct bench *b = NULL;
    *result = NULL;
    TRY(new_zeroed(&b, 1));
    b->dir = options->dir;
    TRY_OUT(bench_ranks_open(TIMEOUT_S, 2, &b->comm));
    b->rank = comm_rank(b->comm);
    TRY_OUT(measure(b, options, result));
out:
    for (int i = 0; i < KINDS; i++)
        ckpt_saver_destroy(b->savers[i]);
    comm_destroy(b->comm);
    for (int i = 0; i < INDEX_KINDS; i++)
        free(b->small[i]);
    free(b->items);
    arena_destroy(&b->arena);
    free(b);
    return rc;
}
