/* The settings of checkpoints, part of train_settings_rows.h. */
#pragma once

#include "src/train/settings/train_settings_optimizer.h"

#define CHECKPOINT_SETTINGS(S)                                                 \
    S(checkpoint, DURATION, interval, "100ba", SETTING_AUTO,                   \
      "between checkpoints, of which the last step has one in any case "       \
      "(0ba: it alone); auto: what loses the least time by measured cost "     \
      "and the ledger's failures",                                             \
      .theirs = {                                                              \
          THEIRS("save_steps save_every save_interval", "as \"100ba\"") })     \
    S(checkpoint, CHOICE(checkpoint_writers), writers, "auto", 0,              \
      "a file for each rank, or one in which a node's ranks write together; "  \
      "auto: that from 64 ranks on")                                           \
    S(checkpoint, STRING, local_dir, "", 0,                                    \
      "folder on every node (tmpfs, NVMe) for checkpoints of its own, "        \
      "which survive the loss of a node; %j is the job's number; empty: "      \
      "none")                                                                  \
    S(checkpoint, DURATION, local_interval, "0ba", 0,                          \
      "between checkpoints in checkpoint.local_dir")                           \
    S(checkpoint, BOOL, keep_state, "false", 0,                                \
      "every finished step stays in checkpoint.local_dir, a folder in the "    \
      "nodes' memory, until the second after it: a node's death costs one "    \
      "finished step at most and the one at work, which is all with "          \
      "checkpoint.async = false")                                              \
    S(checkpoint, CHOICE(checkpoint_redundancy), redundancy, "partner", 0,     \
      "of checkpoints in checkpoint.local_dir: parity over pairs of nodes, "   \
      "or over groups")                                                        \
    S(checkpoint, INT(2, 32), redundancy_group, "8", 0,                        \
      "nodes of a group at most, which survives the loss of one of them")      \
    S(checkpoint, INT(0, 1e6), keep, "3", 0,                                   \
      "committed checkpoints to keep; 0: all",                                 \
      .theirs = { ALSO(                                                        \
          "save_total_limit save_num_checkpoints_to_keep keep_latest_k") })    \
    S(checkpoint, INT(0, SETTINGS_LARGE), keep_every, "0", 0,                  \
      "steps that are a multiple of it are kept for good; 0: none")            \
    S(checkpoint, BOOL, keep_best, "false", 0,                                 \
      "and the one with the least loss on data.eval is kept (RUN#best)",       \
      .theirs = { ALSO("save_best load_best_model_at_end save_top_k") })       \
    S(checkpoint, STRING, mirror, "", 0,                                       \
      "s3://BUCKET/FOLDER to which each commit is copied behind the "          \
      "training, and from which a run goes on whose directory has lost it; "   \
      "empty: none")                                                           \
    S(checkpoint, INT(0, 1e6), mirror_keep, "3", 0,                            \
      "checkpoints to keep there, those of checkpoint.keep_every, the best "   \
      "with keep_best, and pinned ones; 0: all")                               \
    S(checkpoint, FLOAT(0, 1e6), mirror_wait_s, "600", 0,                      \
      "seconds that an attempt's end waits at most for the newest to be "      \
      "there; after a signal 30")                                              \
    S(checkpoint, BOOL, async, "true", 0,                                      \
      "copy the state and write it while training goes on; needs memory "      \
      "for the copy",                                                          \
      .theirs = { ALSO("async_save async_mode") })                             \
    S(checkpoint, FLOAT(0.1, 1e6), timeout_s, "600", 0,                        \
      "seconds a rank may write, or be waited for in a save")                  \
    S(checkpoint, INT(1, 1e6), failures_max, "3", 0,                           \
      "failed saves in a row that end the run")                                \
    S(checkpoint, PATH, load, "", TRAIN_DECIDES_START | SETTING_ADDRESS,       \
      "the first start goes on from this checkpoint, or run directory's "      \
      "newest, of another run: weights, optimizer, position; data, schedule "  \
      "and seed may be others; or of a mirror, s3://BUCKET/PREFIX; empty: no") \
    S(checkpoint, BOOL, load_weights_only, "false", TRAIN_DECIDES_START,       \
      "of checkpoint.load only weights, from step 0, as model.weights does")   \
    S(checkpoint, STRING, load_ignore, "", TRAIN_DECIDES_START,                \
      "globs of names, with blanks between, such as lm_head.*: tensors of "    \
      "checkpoint.load that are left out, and of the run that stay fresh")
