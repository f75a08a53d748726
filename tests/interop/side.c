/* Our side of dcp.sh: two ranks under mpirun save and load the state that
 * dcp.py has too, half of each tensor on each rank.
 *
 *   side shapes               name and shape of each tensor, one a line
 *   side times DIR sync|async rank 0 prints RETURN DURABLE SYNC LOAD, seconds
 *   side load DIR             rank 0 prints "same", "differs" or the error
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint/ckpt.h"
#include "src/base/arena.h"
#include "src/base/clock.h"
#include "src/base/fsio.h"
#include "src/base/new.h"
#include "src/model/params.h"

#define TIMEOUT_S 300.0
#define COPIES 3 /* weights and two moments of mpt-125m */

struct side {
    struct comm *comm;
    const char *dir;
    struct params *params;
    struct arena arena;
    struct ckpt_item *items;
    int item_count;
};

/* --- state --- */

static void lay_out(struct side *side, int rank, struct arena *arena)
{
    static const char *const copies[COPIES] = { "", "optimizer/exp_avg/",
                                                "optimizer/exp_avg_sq/" };
    side->item_count = 0;
    for (int copy = 0; copy < COPIES; copy++)
        for (int i = 0; i < side->params->count; i++) {
            const struct param *p = &side->params->list[i];
            struct ckpt_item *item = &side->items[side->item_count++];
            int64_t half = p->numel / 2;
            *item = (struct ckpt_item){ .dims = p->dims };
            snprintf(item->name, sizeof item->name, "%s%s", copies[copy],
                     p->name);
            memcpy(item->shape, p->shape, sizeof p->shape);
            item->part.begin = rank * half;
            item->part.end = item->part.begin + half;
            item->data = arena_take(arena, (size_t)half * sizeof(float));
        }
}

static enum err make_items(struct side *side, int rank)
{
    struct model_config config;
    struct arena plan = { 0 };
    TRY(model_config_preset("mpt-125m", &config));
    TRY(params_create(&config, &side->params));
    TRY(new_zeroed(&side->items, (size_t)side->params->count * COPIES));
    lay_out(side, rank, &plan);
    TRY(arena_create(plan.used, &side->arena));
    lay_out(side, rank, &side->arena);
    return ERR_OK;
}

/* The same formula as in dcp.py. */
static uint32_t word(int item, int64_t element)
{
    return (uint32_t)(element * 2654435761 + item * 40503) & 0x3fffffff;
}

static void fill(struct side *side)
{
    for (int i = 0; i < side->item_count; i++) {
        const struct ckpt_item *item = &side->items[i];
        uint32_t *words = item->data;
        for (int64_t e = item->part.begin; e < item->part.end; e++)
            words[e - item->part.begin] = word(i, e);
    }
}

static bool filled(const struct side *side)
{
    for (int i = 0; i < side->item_count; i++) {
        const struct ckpt_item *item = &side->items[i];
        const uint32_t *words = item->data;
        for (int64_t e = item->part.begin; e < item->part.end; e++)
            if (words[e - item->part.begin] != word(i, e))
                return false;
    }
    return true;
}

static void clear(struct side *side)
{
    memset(side->arena.base, 0, side->arena.used);
}

/* --- measuring --- */

/* Files of the newest step leave the page cache; they are on the disk already.
 */
static enum err drop(const struct side *side, int step)
{
    char path[FSIO_PATH_MAX];
    TRY(fsio_path(path, "%s/checkpoints/step-%09d", side->dir, step));
    DIR *dir = opendir(path);
    if (dir == NULL)
        return err_errno("%s", path);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        int fd = openat(dirfd(dir), entry->d_name, O_RDONLY);
        if (fd >= 0) {
            (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
            close(fd);
        }
    }
    closedir(dir);
    return comm_barrier(side->comm);
}

static enum err save(struct side *side, struct ckpt_saver *saver, int step,
                     double times[2])
{
    struct ckpt_progress progress;
    TRY(comm_barrier(side->comm));
    double begin_s = clock_now();
    TRY(ckpt_saver_start(saver, step, NULL));
    int64_t return_us = (int64_t)((clock_now() - begin_s) * 1e6);
    TRY(ckpt_saver_wait(saver, &progress));
    TRY(comm_barrier(side->comm));
    times[1] = clock_now() - begin_s;
    TRY(comm_all_reduce_i64(side->comm, &return_us, 1, COMM_MAX));
    times[0] = (double)return_us / 1e6;
    if (progress.phase != CKPT_COMMITTED)
        return err_set(progress.error, "%s", progress.text);
    return ERR_OK;
}

static enum err load(struct side *side, double *seconds)
{
    enum err rc = ERR_OK;
    int64_t step;
    json_t *state = NULL;
    clear(side);
    TRY_OUT(comm_barrier(side->comm));
    double begin_s = clock_now();
    TRY_OUT(ckpt_load(side->comm, side->dir, NULL, side->items,
                      side->item_count, &step, &state, NULL));
    TRY_OUT(comm_barrier(side->comm));
    *seconds = clock_now() - begin_s;
out:
    json_decref(state);
    return rc;
}

/* Each the second time, so that nothing is made or met for the first. */
static enum err run_times(struct side *side, bool async)
{
    enum err rc = ERR_OK;
    double times[2], sync_s, load_s;
    struct ckpt_saver *saver = NULL;
    struct ckpt_options options = { .attempt = "1.1", .stage = async };
    fill(side);
    TRY_OUT(fsio_mkdirs(side->dir));
    TRY_OUT(ckpt_saver_create(side->comm, side->dir, &options, side->items,
                              side->item_count, &saver));
    TRY_OUT(save(side, saver, 1, times));
    sync();
    TRY_OUT(save(side, saver, 2, times));
    if (!async)
        times[0] = times[1];
    double begin_s = clock_now();
    sync();
    sync_s = clock_now() - begin_s;
    for (int i = 0; i < 2; i++) {
        TRY_OUT(drop(side, 2));
        TRY_OUT(load(side, &load_s));
    }
    if (!filled(side))
        rc = err_set(ERR_INTERNAL, "what was loaded differs");
    TRY_OUT(comm_agree(side->comm, rc));
    if (comm_rank(side->comm) == 0)
        printf("%.4f %.4f %.4f %.4f\n", times[0], times[1], sync_s, load_s);
out:
    ckpt_saver_destroy(saver);
    return rc;
}

static enum err run_load(struct side *side)
{
    double unused;
    enum err rc = load(side, &unused);
    int64_t differs = rc == ERR_OK && !filled(side);
    if (rc == ERR_OK)
        rc = comm_all_reduce_i64(side->comm, &differs, 1, COMM_MAX);
    if (comm_rank(side->comm) == 0)
        printf("%s\n", rc != ERR_OK ? err_text()
                       : differs    ? "differs"
                                    : "same");
    return ERR_OK;
}

static void print_shapes(const struct side *side)
{
    for (int i = 0; i < side->item_count; i++) {
        printf("%s", side->items[i].name);
        for (int d = 0; d < side->items[i].dims; d++)
            printf(" %lld", (long long)side->items[i].shape[d]);
        printf("\n");
    }
}

int main(int argc, char **argv)
{
    enum err rc = ERR_OK;
    struct side side = { .dir = argc > 2 ? argv[2] : "" };
    if (argc == 2 && strcmp(argv[1], "shapes") == 0) {
        TRY_OUT(make_items(&side, 0));
        print_shapes(&side);
        goto out;
    }
    TRY_OUT(comm_create("mpi", NULL, NULL, TIMEOUT_S, &side.comm));
    if (argc < 3 || comm_size(side.comm) != 2) {
        rc = err_set(ERR_USAGE, "two ranks: side times DIR sync|async, or side "
                                "load DIR");
        goto out;
    }
    TRY_OUT(comm_agree(side.comm, make_items(&side, comm_rank(side.comm))));
    TRY_OUT(strcmp(argv[1], "load") == 0
                ? run_load(&side)
                : run_times(&side, argc > 3 && strcmp(argv[3], "async") == 0));
out:
    if (rc != ERR_OK)
        fprintf(stderr, "side: %s\n", err_text());
    params_destroy(side.params);
    arena_destroy(&side.arena);
    free(side.items);
    comm_destroy(side.comm);
    return err_exit_code(rc);
}
