/* The folder RUN/checkpoints: which steps exist, and every rename in it.
 *
 * Besides the names in ckpt.h there are .trash-* (being deleted) and, on file
 * systems that can't exchange two folders in one call, .old-step-* (a step
 * being replaced, which ckpt_index_recover() puts back). All functions are for
 * rank 0 while it holds the run lock, except those that only read. */
#ifndef TESSERA_CHECKPOINT_CKPT_INDEX_H
#define TESSERA_CHECKPOINT_CKPT_INDEX_H

#include <stdbool.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/base/fsio.h"

/* RUN/checkpoints, RUN/checkpoints/step-*, RUN/checkpoints/.tmp-step-*. */
enum err ckpt_index_root(char out[FSIO_PATH_MAX], const char *run_dir);
enum err ckpt_index_path(char out[FSIO_PATH_MAX], const char *run_dir,
                         int64_t step);
enum err ckpt_index_tmp_path(char out[FSIO_PATH_MAX], const char *run_dir,
                             int64_t step, const char *attempt);

/* The step that a path ending in "step-000000060" (with or without slashes
 * after it) is named after; -1: another name. */
int64_t ckpt_index_step_of(const char *path);

/* The committed steps, ascending; *steps is malloc'ed (NULL when none).
 * *evidence: something is or was here (step-* or .bad-step-*). A missing folder
 * is empty. */
enum err ckpt_index_steps(const char *run_dir, int64_t **steps, int *count,
                          bool *evidence);

/* Manifest and sizes are good (ERR_OK), or not (ERR_CHECKPOINT). */
enum err ckpt_index_quick_check(const char *checkpoint_dir);

/* Finish a replacement that was cut off: .old-step-N becomes step-N again
 * unless there is one. Part of load, save and sweep. */
enum err ckpt_index_recover(const char *run_dir);

/* Make an empty temporary folder, durably. */
enum err ckpt_index_begin(const char *run_dir, const char *tmp_path);

/* The commit: tmp_path becomes step-N. A good step-N is replaced in one
 * exchange (if `exchange` and the file system can, else by two renames), a
 * damaged one is quarantined first. On failure no new step-N stays. */
enum err ckpt_index_commit(const char *run_dir, int64_t step,
                           const char *tmp_path, bool exchange);

/* LATEST := step-N. ckpt_index_latest_read gives -1 if there is none. */
enum err ckpt_index_latest_write(const char *run_dir, int64_t step);
int64_t ckpt_index_latest_read(const char *run_dir);

/* Delete the steps older than the `keep` newest good ones and older than
 * `step`; keep 0: nothing. */
enum err ckpt_index_prune(const char *run_dir, int keep, int64_t step);

/* step-N becomes .bad-step-N.K with the reason in a file REASON. */
enum err ckpt_index_quarantine(const char *run_dir, int64_t step,
                               const char *reason);

/* Rename a folder to .trash-* and delete it; a missing one is fine. */
enum err ckpt_index_discard(const char *run_dir, const char *path);

/* Discard .tmp-*, .trash-* and torn temporaries of LATEST. */
enum err ckpt_index_sweep(const char *run_dir);

#endif
