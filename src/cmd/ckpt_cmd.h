/* The commands of tessera-ckpt: one function each. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "checkpoint/ckpt_interval.h"
#include "src/base/err.h"
#include "src/base/fsio.h"

/* What stands on the command line behind the command's name. */
struct ckpt_cmd {
#define CKPT_CMD_PATHS 2
    const char *paths[CKPT_CMD_PATHS];         /* NULL: not given */
    char named[CKPT_CMD_PATHS][FSIO_PATH_MAX]; /* of RUN#best and RUN#STEP */
    char found[CKPT_CMD_PATHS][FSIO_PATH_MAX]; /* newest checkpoints of runs */
    bool json;
    bool stats;
    bool dry_run;
    int64_t ranks;                       /* 0: not given */
    int64_t keep;                        /* 0: not given */
    int64_t keep_every;                  /* 0: not given */
    const char *reason;                  /* NULL: not given */
    const char *local_dir;               /* NULL: not given */
    double timeout_s;                    /* 0: not given */
    struct ckpt_interval_input interval; /* -1: not given */
    double prior_hours;
    /* of ledger and next: what is added, NULL: nothing; KEY=VALUE after RUN */
    const char *event;
    int64_t attempt, job;
    const char *before, *before_local; /* of next: steps; NULL: not given */
    char *const *words;
    int word_count;
    int exit_code; /* set by a command whose result is no error; 0 before */
};

typedef enum err (*ckpt_cmd_fn)(struct ckpt_cmd *cmd);

enum err ckpt_cmd_ls(struct ckpt_cmd *cmd);
enum err ckpt_cmd_show(struct ckpt_cmd *cmd);
enum err ckpt_cmd_verify(struct ckpt_cmd *cmd);
enum err ckpt_cmd_view(struct ckpt_cmd *cmd);
enum err ckpt_cmd_digest(struct ckpt_cmd *cmd);
/* exit_code is CKPT_CMD_DIFFERENT when the checkpoints differ. */
#define CKPT_CMD_DIFFERENT 1
enum err ckpt_cmd_diff(struct ckpt_cmd *cmd);
enum err ckpt_cmd_reshard(struct ckpt_cmd *cmd);
enum err ckpt_cmd_average(struct ckpt_cmd *cmd);
enum err ckpt_cmd_pin(struct ckpt_cmd *cmd);
enum err ckpt_cmd_unpin(struct ckpt_cmd *cmd);
enum err ckpt_cmd_prune(struct ckpt_cmd *cmd);
enum err ckpt_cmd_interval(struct ckpt_cmd *cmd);
enum err ckpt_cmd_ledger(struct ckpt_cmd *cmd);
enum err ckpt_cmd_next(struct ckpt_cmd *cmd);
enum err ckpt_cmd_nodes(struct ckpt_cmd *cmd);
enum err ckpt_cmd_watch(struct ckpt_cmd *cmd);
enum err ckpt_cmd_reach(struct ckpt_cmd *cmd);

/* The only one for several ranks: one on each node. */
enum err ckpt_cmd_scavenge(struct ckpt_cmd *cmd);

/* --- shared by the commands --- */

/* Print and release; ERR_MEMORY when value is NULL. */
enum err ckpt_cmd_print(json_t *value);
/* The path as people gave it: of a copy its address; NULL: no memory. */
json_t *ckpt_cmd_path(const char *path);
/* "f32[50, 8]" */
struct ckpt_tensor;
void ckpt_cmd_form(const struct ckpt_tensor *tensor, char *text, size_t size);
/* ERR_USAGE unless the run directory exists. */
enum err ckpt_cmd_need_run(const char *run_dir);
/* For a command that writes there: ERR_USAGE unless a run has been there,
 * which has RUN/checkpoints, or if they were deleted its ledger. */
enum err ckpt_cmd_need_root(const char *run_dir);
/* ERR_USAGE unless it is the folder of a checkpoint, damaged or not. */
enum err ckpt_cmd_need_checkpoint(const char *checkpoint_dir);
/* The same, but of a run directory *path becomes its newest good checkpoint,
 * which is written into room. */
enum err ckpt_cmd_find_checkpoint(const char **path, char room[FSIO_PATH_MAX]);
