/* A sweep: a configuration, and settings of which every combination of values is
 * a run of its own. */
#pragma once

#include <stdbool.h>
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
    S(FLOAT(0, 1e9), price, "0",                                               \
      "of an hour of a GPU, or of a core without GPUs: what each run costs "   \
      "is told; 0: not told")                                                  \
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

/* --- whose a run's folder is: the settings that it was made with, by their
 * SHA-256 in a file of it --- */

/* The file in a run's folder. */
#define SWEEP_FOLDER_DIGEST "settings.sha256"

/* Whether the folder has a run of other settings than run `number` has now; all
 * count that are not as by default, but run.dir and the hooks. Settings that
 * cannot be, and folders that tell nothing, count as the same. */
enum err sweep_folder_other(const struct sweep *sweep, int64_t number,
                            bool *other);
/* ERR_USAGE: it has. */
enum err sweep_folder_check(const struct sweep *sweep, int64_t number);
/* The same, and the folder becomes that of run `number`. */
enum err sweep_folder_take(const struct sweep *sweep, int64_t number);

/* --- who runs them --- */

/* From here on signals that end a process are passed on to the run. */
void sweep_run_signals(void);

/* One after the other, those that are not finished. *exit_code: EXIT_REQUEUE
 * where one was stopped, EXIT_STOP where some failed; else as it was. */
enum err sweep_run_all(const struct sweep *sweep, int *exit_code);
/* Number `number`, in place of this program, so that signals and exit codes are
 * the run's. Returns only with an error. */
enum err sweep_run_task(const struct sweep *sweep, int64_t number);
/* As an array of jobs of `tessera-sweep FILE --task N`, by sbatch. */
enum err sweep_run_submit(const struct sweep *sweep, const char *file,
                          int *exit_code);
/* Prints the command lines, quoted for a shell. */
enum err sweep_run_list(const struct sweep *sweep);

/* --- what the runs have come to: quality, its cost, and which of them nobody
 * beats in both --- */

enum sweep_state {
    SWEEP_ABSENT,
    SWEEP_BEGUN,
    SWEEP_FAILED,
    SWEEP_OTHER, /* of other settings, so there are no figures */
    SWEEP_FINISHED
};

struct sweep_result {
    enum sweep_state state;
    char reason[160]; /* of a failure */
    int64_t steps;
    double quality;   /* the best; NaN: none */
    double seconds;   /* in attempts */
    double to_target; /* seconds in attempts; NaN: not reached, or not known */
    double energy_j;  /* 0: not told */
    double cost;      /* at the price, of its attempts */
    bool front; /* no other is as good at less cost, or better at the same */
};

/* From what is in the run's directory. ERR_USAGE: the run is finished, and has
 * nothing that is called as the metric is. */
enum err sweep_result(const struct sweep *sweep, int64_t number,
                      struct sweep_result *out);

/* Sets `front` of all: quality against seconds. */
void sweep_front(const struct sweep *sweep, struct sweep_result *results);

/* As a table, the best first. */
enum err sweep_print(const struct sweep *sweep,
                     const struct sweep_result *results, FILE *out);
/* The finished ones as SVG: quality against time. */
enum err sweep_picture(const struct sweep *sweep,
                       const struct sweep_result *results, FILE *out);
/* As JSON; the caller sees to errors of the file. */
enum err sweep_json(const struct sweep *sweep,
                    const struct sweep_result *results, FILE *out);
