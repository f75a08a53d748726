/* What a sweep is: a configuration, and settings of which every combination of
 * values is a run of its own. */
#pragma once

#include <stdint.h>
#include <stdio.h>

#include "src/base/err.h"
#include "src/base/settings/settings_list.h"

#define SWEEP_RUNS_MAX 10000
#define SWEEP_AXES_MAX 16
#define SWEEP_NAME_BYTES 160

enum sweep_quality { SWEEP_LOWER, SWEEP_HIGHER };
static const char *const sweep_quality_names[] = { "lower", "higher", NULL };

#define SWEEP_SETTINGS(S)                                                      \
    S(PATH, config, NULL, "the configuration of all runs")                     \
    S(PATH, dir, NULL, "folder of the run directories")                        \
    S(STRING, command, "tessera-train",                                        \
      "what starts a run; it gets the configuration and key=value behind it, " \
      "as tessera-train does: \"mpirun -n 4 tessera-train\", \"bash "          \
      "pretrain.sbatch\"")                                                     \
    S(STRING, sbatch, "",                                                      \
      "options of sbatch for --slurm: \"--time=2:00:00 --nodes=1\"")           \
    S(STRING, metric, "eval/loss",                                             \
      "what quality is: eval/loss, train/loss, or the accuracy of a task by "  \
      "its name in eval.jsonl")                                                \
    S(CHOICE(sweep_quality), better, "lower", "which quality is better")       \
    S(FLOAT(-1e30, 1e30), target, "0",                                         \
      "quality of which the time to reach it is told; 0: none")                \
    S(LIST(axis), grid, NULL,                                                  \
      "settings and their values: ( { key = \"optimizer.lr\"; values = "       \
      "\"1e-3 | 3e-3\"; }, ... )")

#define SWEEP_FIELD(type, field, ...) SETTINGS_CTYPE_##type field;

/* One setting of the grid. */
struct sweep_axis {
    settings_text_field key, values; /* values: as written, with | between */
    char **list;                     /* [count] */
    int count;
};

struct sweep {
    struct {
        SWEEP_SETTINGS(SWEEP_FIELD)
    } settings;
    struct sweep_axis axes[SWEEP_AXES_MAX];
    int axis_count;
    int64_t runs;
};

/* Reads and checks the file; sweep_free() in any case. */
enum err sweep_load(const char *path, struct sweep *sweep);
void sweep_free(struct sweep *sweep);

/* The value of an axis in run `number`, from 0 on; the last axis changes
 * fastest. Lent. */
const char *sweep_value(const struct sweep *sweep, int64_t number, int axis);

/* The run's folder within `dir`: "003-optimizer.lr=3e-3". The same for the same
 * values wherever they stand in the file but for the number; one that would be
 * too long ends with a hash of them. */
void sweep_name(const struct sweep *sweep, int64_t number,
                char name[SWEEP_NAME_BYTES]);

/* The command line, NULL behind the last word; the caller frees it with
 * sweep_command_free(). */
enum err sweep_command(const struct sweep *sweep, int64_t number, char ***out);
void sweep_command_free(char **command);

/* The help of the file's settings. */
void sweep_help(FILE *out);
