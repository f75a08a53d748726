/* Keeps the state of each finished step in the nodes' memory (checkpoint.keep_state):
 * a node-local checkpoint of every step, by a saver of its own, so that none waits for
 * one into the run directory.
 *
 * A step is kept while the next one computes. That one is not finished, and has no
 * line in the metrics, before the copy is committed on all nodes: each rank waits for
 * its own saver before the exchange that ends a step, and so all know it by that
 * exchange, without a round of their own. What a death costs is the last finished
 * step, if it was being copied, and the one that was running; without
 * checkpoint.async, where a step begins when the one before is kept, the running one
 * alone. */
#include "src/train/state/on_checkpoint_parts.h"

#include <linux/magic.h>
#include <sys/vfs.h>

#include "checkpoint/files/ckpt_index.h"
#include "checkpoint/local/ckpt_nodes.h"
#include "src/base/log.h"
#include "src/train/state/state_parts.h"

/* In the saver's thread. */
static void record(void *arg, const struct ckpt_progress *progress)
{
    on_checkpoint_tell(arg, progress);
}

/* A disk would be written in each step, and is not read again as one should be. */
static void warn_of_disk(const struct on_checkpoint_local *local)
{
    struct statfs about;
    if (fstatfs(local->own.fd, &about) == 0 && about.f_type != TMPFS_MAGIC &&
        about.f_type != RAMFS_MAGIC)
        log_warn("checkpoint.keep_state: %s is no memory, so every step is "
                 "written to a disk: give a checkpoint.local_dir in /dev/shm",
                 local->own.path);
}

void on_checkpoint_kept_begin(struct run *run, int64_t stays,
                              const struct on_checkpoint_local *local,
                              struct ckpt_options *options,
                              struct on_checkpoint_kept *kept)
{
    *kept = (struct on_checkpoint_kept){ .told = { .run = run, .kept = true },
                                         .dir = local->own.path,
                                         .at = local->dir };
    if (run->rank == 0)
        warn_of_disk(local);
    options->local_dir = local->dir;
    options->local_two = true;
    options->local_kept = stays;
    options->file_ranks = 0;
    options->record = record;
    options->record_arg = &kept->told;
    /* nodes commit only with all ranks of the attempt */
    options->may_commit = NULL;
    options->spared = NULL;
}

/* That a step could not be kept is told by the saver, and costs nothing as long as
 * no node dies. */
enum err on_checkpoint_kept_wait(struct on_checkpoint_kept *kept)
{
    struct ckpt_progress progress;
    return kept->saver != NULL ? ckpt_saver_wait(kept->saver, &progress)
                               : ERR_OK;
}

enum err on_checkpoint_kept_step(struct on_checkpoint_kept *kept,
                                 struct on_checkpoint_copies *copies,
                                 json_t *arithmetics)
{
    struct run *run = kept->told.run;
    struct state_run its = { run, .arithmetics = arithmetics };
    json_t *state = NULL;
    TRY(on_checkpoint_kept_wait(kept));
    TRY(on_checkpoint_copies_begin(copies));
    /* without one the save fails, on all ranks */
    if (run->rank == 0 && state_parts_store(&its, &state) != ERR_OK)
        log_warn("step %lld is not kept: %s", (long long)run->position.step,
                 err_text());
    enum err rc =
        ckpt_saver_start_local(kept->saver, run->position.step, state);
    json_decref(state);
    TRY(rc);
    TRY(on_checkpoint_copies_end(copies));
    return run->settings.checkpoint.async ? ERR_OK
                                          : on_checkpoint_kept_wait(kept);
}

enum err on_checkpoint_kept_forget(const struct comm *comm, const char *at,
                                   const char *dir)
{
    char path[FSIO_PATH_MAX];
    if (!ckpt_nodes_leads(comm))
        return ERR_OK;
    TRY(ckpt_index_root(path, at));
    if (fsio_remove_tree(path) != ERR_OK)
        log_warn("kept steps stay in %s: %s", dir, err_text());
    return ERR_OK;
}

enum err on_checkpoint_kept_end(struct on_checkpoint_kept *kept)
{
    TRY(on_checkpoint_kept_wait(kept));
    return on_checkpoint_kept_forget(kept->told.run->comm, kept->at, kept->dir);
}
