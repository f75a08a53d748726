/* For tests of checkpoints on several ranks: points that hold on all of them,
 * nodes (this machine under several names, which only root can give), and the
 * fixture's tensors with a large one behind them. */
#pragma once

#include <sched.h>
#include <stdarg.h>

#include "tests/ckpt_fixture.h"

#define ITEMS (FIXTURE_ITEMS + 1)
#define TIMEOUT_S 60.0

/* So large that a chunk has several segments, where the test says nothing else. */
#ifndef BIG_ROWS
#define BIG_ROWS 2100
#endif
static const struct ckpt_item big = { .name = "big",
                                      .dims = 2,
                                      .shape = { BIG_ROWS, 1024 } };

/* The ranks of the program; others than rank 0 print no points. */
static inline struct comm *ranks_begin(int *argc, char ***argv)
{
    struct comm *comm = NULL;
    if (comm_create("auto", argc, argv, TIMEOUT_S, &comm) != ERR_OK) {
        fprintf(stderr, "%s\n", err_text());
        exit(1);
    }
    log_init("test", comm_rank(comm), LOG_ERROR);
    if (comm_rank(comm) != 0)
        tap_silence();
    return comm;
}

/* A folder of all ranks. */
static inline void ranks_folder(struct comm *comm, char folder[FSIO_PATH_MAX])
{
    if (comm_rank(comm) == 0)
        (void)fsio_path(folder, "%s", tap_folder());
    comm_broadcast(comm, folder, FSIO_PATH_MAX, 0);
}

static inline int ranks_end(struct comm *comm)
{
    comm_barrier(comm);
    comm_destroy(comm);
    return tap_done();
}

/* A host name for the rank's node, before communication starts; of four ranks
 * two share the first of three nodes. */
static const int node_of[] = { 0, 0, 1, 2 };
static inline bool become_node(bool alone)
{
    const char *text = getenv("OMPI_COMM_WORLD_RANK");
    long rank = text != NULL ? strtol(text, NULL, 10) : 0;
    char name[32];
    int length = snprintf(name, sizeof name, "node%ld",
                          alone ? rank : node_of[rank % 4]);
    return unshare(CLONE_NEWUTS) == 0 && sethostname(name, (size_t)length) == 0;
}

/* Ends the program unless its ranks are the nodes that it needs. */
static inline void need_nodes(struct comm *comm, bool good)
{
    if (good)
        return;
    tap_skip("needs up to 4 ranks and the right to give host names");
    comm_destroy(comm);
    exit(tap_done());
}

/* A point counts when it holds on every rank. */
static inline void everywhere(struct comm *comm, bool pass, const char *format,
                              ...) __attribute__((format(printf, 3, 4)));
static inline void everywhere(struct comm *comm, bool pass, const char *format,
                              ...)
{
    int64_t good = pass;
    char what[160];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    if (!pass)
        fprintf(stderr, "# rank %d: %s: %s\n", comm_rank(comm), what,
                err_text());
    enum err rc = comm_all_reduce_i64(comm, &good, 1, COMM_MIN);
    tap_ok(rc == ERR_OK && good == 1, "%s", what);
}

/* The first `count` items, with or without the large one, as rank `part` of
 * `parts` has them. */
static inline void ranks_items(struct ckpt_item *items, int count, int part,
                               int parts)
{
    memcpy(items, fixture_tensors, sizeof fixture_tensors);
    if (count == ITEMS)
        items[FIXTURE_ITEMS] = big;
    fixture_make(items, count, part, parts);
}

/* Load the newest of a run, or of the nodes where `local` is their folder: the
 * step, if all is as it was saved under that number; -2: an error or other
 * values. *from_nodes may be NULL. */
static inline int64_t ranks_load(struct comm *comm, const char *run,
                                 const char *local, int count, int part,
                                 int parts, bool *from_nodes)
{
    struct ckpt_item items[ITEMS];
    struct ckpt_load_options options = { .local_dir = local };
    struct ckpt_load_stats stats;
    json_t *state = NULL;
    int64_t step = -2;
    ranks_items(items, count, part, parts);
    enum err rc =
        ckpt_load(comm, run, &options, items, count, &step, &state, &stats);
    json_t *same = fixture_state(step);
    if (rc != ERR_OK || (step >= 0 && !(json_equal(state, same) &&
                                        fixture_holds(items, count, step))))
        step = -2;
    if (from_nodes != NULL)
        *from_nodes = stats.local;
    json_decref(same);
    json_decref(state);
    fixture_free(items, count);
    return step;
}

/* A save to the nodes, whose items change as soon as it has begun. */
static inline enum err ranks_save(struct comm *comm, struct ckpt_saver *saver,
                                  struct ckpt_item *items, int count,
                                  int64_t step, struct ckpt_progress *progress)
{
    enum err rc = ERR_OK;
    json_t *state = comm_rank(comm) == 0 ? fixture_state(step) : NULL;
    *progress = (struct ckpt_progress){ 0 };
    fixture_fill(items, count, step);
    TRY_OUT(ckpt_saver_start_local(saver, step, state));
    fixture_fill(items, count, step + 1000);
    TRY_OUT(ckpt_saver_wait(saver, progress));
out:
    json_decref(state);
    return rc;
}
