/* Measures how long training waits for a staged save, beside one memcpy of the
 * same bytes. */
#include "tests/bench/bench_ckpt_stall.h"

#include <string.h>

#include "src/base/arena.h"
#include "src/base/clock.h"
#include "src/base/real.h"

#define STATE_BYTES_MAX ((int64_t)256 << 20)
#define ROUNDS 9

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

enum err bench_ckpt_stall(struct comm *comm, const char *run_dir,
                          const struct ckpt_item *items, int item_count,
                          double *stall_s, double *copy_s)
{
    enum err rc = ERR_OK;
    int64_t bytes;
    int count = first_items(items, item_count, &bytes);
    double stalls[ROUNDS], copies[ROUNDS];
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
    for (int round = 0; round < ROUNDS; round++) {
        TRY_OUT(comm_barrier(comm));
        TRY_OUT(one_stall(saver, round + 1, &stalls[round]));
        TRY_OUT(comm_barrier(comm));
        double begin = clock_now();
        if (from.base != NULL)
            memcpy(to.base, from.base, (size_t)bytes);
        copies[round] = clock_now() - begin;
    }
    if (comm_rank(comm) == 0) {
        *stall_s = real_median(stalls, ROUNDS);
        *copy_s = real_median(copies, ROUNDS);
    }
out:
    ckpt_saver_destroy(saver);
    arena_destroy(&from);
    arena_destroy(&to);
    return rc;
}
