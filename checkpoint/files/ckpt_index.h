/* The folder RUN/checkpoints: which steps exist, and every rename in it.
 *
 * Besides the names in ckpt.h there are .trash-* (being deleted) and, on file
 * systems that can't exchange two folders in one call, .old-step-* (a step
 * being replaced, which ckpt_index_recover() puts back). All functions are for
 * rank 0 while it holds the run lock, except those that only read. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "checkpoint/files/ckpt_manifest.h"
#include "src/base/err.h"
#include "src/base/fsio.h"

/* RUN/checkpoints, RUN/checkpoints/step-*, RUN/checkpoints/.tmp-step-*. */
enum err ckpt_index_root(char out[FSIO_PATH_MAX], const char *run_dir);
enum err ckpt_index_path(char out[FSIO_PATH_MAX], const char *run_dir,
                         int64_t step);
enum err ckpt_index_tmp_path(char out[FSIO_PATH_MAX], const char *run_dir,
                             int64_t step, const char *attempt);

/* The committed steps, ascending; *steps is malloc'ed (NULL when none).
 * *evidence (may be NULL): something is or was here (step-* or .bad-step-*). A
 * missing folder is empty. */
enum err ckpt_index_steps(const char *run_dir, int64_t **steps, int *count,
                          bool *evidence);

/* Manifest and sizes are good (ERR_OK), or not (ERR_CHECKPOINT). *text, unless
 * NULL, is the manifest's, to be freed after an error too. */
enum err ckpt_index_quick_check(const char *checkpoint_dir, char **text,
                                size_t *bytes);

/* The newest step whose quick check is good. Damaged ones are passed over, which
 * the log tells; a file system that is away does not lead to an older one.
 * ERR_CHECKPOINT: there is none. */
enum err ckpt_index_newest(char path[FSIO_PATH_MAX], const char *run_dir);

/* Finish a replacement that was cut off: .old-step-N becomes step-N again
 * unless there is one. Part of load, save and sweep. */
enum err ckpt_index_recover(const char *run_dir);

/* Make a temporary folder, with nothing in it but the file OWNER,
 * which tells ckpt_index_sweep() who writes there. */
enum err ckpt_index_begin(const char *run_dir, const char *tmp_path,
                          const char *attempt);

/* The commit: tmp_path becomes step-N. A good step-N is replaced in one
 * exchange (if `exchange` and the file system can, else by two renames), a
 * damaged one is quarantined first; the pin of a replaced one stays. On failure
 * no new step-N stays. known: NULL, or what this process knows. */
struct ckpt_index_known;
enum err ckpt_index_commit(const char *run_dir, int64_t step,
                           const char *tmp_path, bool exchange,
                           struct ckpt_index_known *known);

/* LATEST := step-N. ckpt_index_latest_read gives -1 if there is none. */
enum err ckpt_index_latest_write(const char *run_dir, int64_t step);
int64_t ckpt_index_latest_read(const char *run_dir);

/* The "run_uuid" of the states of the run that the folder belongs to, in a file
 * RUN_UUID; written after every load, before the first save, by rank 0. A folder
 * that is made anew is of no run until then: node-local checkpoints of what was
 * there before, or of other runs, do not count. Reading gives "" if there is none;
 * where the file is damaged, what the newest checkpoint says, with a warning. */
#define CKPT_INDEX_UUID "RUN_UUID"
enum err ckpt_index_uuid_write(const char *run_dir, const char *uuid);
enum err ckpt_index_uuid_read(const char *run_dir, char uuid[CKPT_UUID_BYTES]);

/* The good one with the least loss of its step's evaluation, by a loss of the
 * same set and tokens as the newest has; *step -1: none. Reads all manifests, and where
 * `sizes` is false, nothing else but this file of losses. Damaged ones are passed over,
 * which the log tells; where one cannot be read now, its error. */
#define CKPT_EVAL_FILE "EVAL" /* as "eval" of a state */
enum err ckpt_index_best(const char *run_dir, bool sizes, int64_t *step);
#define CKPT_INDEX_OF_BYTES 96
/* The loss in a state, "eval" of loss and tokens, or in the folder's file (NULL:
 * it is not looked for), and of what; NAN: there is none. */
double ckpt_index_loss(const char *checkpoint_dir, const json_t *state,
                       char of[CKPT_INDEX_OF_BYTES]);
/* Asked from the newest to the oldest: whether it is the best so far, of which *least
 * (INFINITY at first) and newest ("") tell from then on. */
bool ckpt_index_better(double loss, const char *of, double *least,
                       char newest[CKPT_INDEX_OF_BYTES]);
/* That file, of a step that was evaluated behind its save; without a checkpoint of
 * the step nothing, and where it cannot be written a warning. */
void ckpt_index_loss_write(const char *run_dir, int64_t step,
                           const json_t *eval);

/* RUN#best and RUN#STEP become the path of that checkpoint, unless there is a
 * file of that name; any other text stays as it is. ERR_USAGE: there is none. */
bool ckpt_index_is_named(const char *text);
enum err ckpt_index_named(const char *text, char path[FSIO_PATH_MAX]);

/* What is kept for good or for a while. Steps from `step` on (the one just
 * committed), the `keep` newest good ones (keep 0: all), every multiple of
 * keep_every (0: none), with keep_best the best one, pinned ones and folders
 * without a manifest stay.
 * Deletion comes only after a commit, so the step that a run resumed from
 * outlives the run's own first commit in any case. */
struct ckpt_retention {
    int keep;
    int64_t keep_every;
    bool keep_best;
    int64_t spare;                  /* this step stays, too; 0: none */
    struct ckpt_index_known *known; /* NULL: all are looked at */
};

/* What a process that has the run lock need not look at again; zeros: nothing. The
 * last steps that it has found to be good, committed or seen, `count` so far, in
 * turn; and that no replacement is cut off. */
#define CKPT_INDEX_KNOWN 64
struct ckpt_index_known {
    int64_t steps[CKPT_INDEX_KNOWN];
    size_t count;
    bool recovered;
};
void ckpt_index_know(struct ckpt_index_known *known, int64_t step);

/* The steps that ckpt_index_prune() would delete now, ascending; *steps is
 * malloc'ed (NULL when none). Only reads. */
enum err ckpt_index_prunable(const char *run_dir,
                             const struct ckpt_retention *retention,
                             int64_t step, int64_t **steps, int *count);
/* Delete them, each by a rename to .trash-* first. trash (NULL: none): the newest
 * of them stays under that path, for whoever wrote its files to remove; "": there
 * is none. */
enum err ckpt_index_prune(const char *run_dir,
                          const struct ckpt_retention *retention, int64_t step,
                          char trash[FSIO_PATH_MAX]);

/* A pin is a file in the step's folder that holds the reason; retention
 * passes over the step. Pinning again changes the reason; unpinning what is not
 * pinned is fine. A folder that is no checkpoint is ERR_CHECKPOINT. Where that
 * cannot be looked at it counts as pinned. For any process. */
#define CKPT_INDEX_PINNED "PINNED"
enum err ckpt_index_pin(const char *checkpoint_dir, const char *reason);
enum err ckpt_index_unpin(const char *checkpoint_dir);
bool ckpt_index_pinned(const char *checkpoint_dir);

/* step-N becomes .bad-step-N.K with the reason in a file REASON. */
enum err ckpt_index_quarantine(const char *run_dir, int64_t step,
                               const char *reason);

/* Rename a folder to .trash-*, of which `trash` is the path. */
enum err ckpt_index_retire(const char *run_dir, const char *path,
                           char trash[FSIO_PATH_MAX]);
/* The same, and delete it; a missing one is fine. */
enum err ckpt_index_discard(const char *run_dir, const char *path);

/* Discard .tmp-*, .trash-* and torn temporaries of LATEST. A .tmp-* stays while
 * its OWNER lives on this host, or is of another host and anything in the
 * folder changed within the last hour. */
enum err ckpt_index_sweep(const char *run_dir);
