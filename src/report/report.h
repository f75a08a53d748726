/* A report of one or several runs: figures, plots and tables, as an HTML file
 * that needs nothing else, and as JSON. */
#pragma once

#include "src/report/plot.h"
#include "src/report/run_history.h"

#define REPORT_RUNS_MAX INK_SERIES_COUNT
#define REPORT_PLOTS_MAX 16

/* What a run has come to. NaN: not known. */
struct report_figures {
    double loss, loss_min;       /* of the newest bucket of steps; the least */
    double eval_loss, eval_best; /* the newest, the least */
    int64_t eval_best_step;
    double tokens_per_s, mfu, step_ms; /* medians over buckets */
    double spread; /* slowest / fastest rank's step - 1, likewise */
    double work_ms, work_ms_max, wait_ms_max, loader_ms; /* likewise */
    double slowest_rank, waiting_rank, loader_rank;      /* run_history_who() */
    double wall_s, goodput;
    double device_hours, cost;
    double energy_j, tokens_per_j;
    int64_t commits, commit_bytes; /* bytes: of the newest */
    double stall_mean_s, stall_max_s;
    double memory_planned, memory_peak; /* of the newest attempt that tells */
    int64_t excluded;                   /* nodes left out */
};

struct report {
    struct run_history *runs[REPORT_RUNS_MAX]; /* lent */
    struct report_figures figures[REPORT_RUNS_MAX];
    char names[REPORT_RUNS_MAX][PLOT_NAME_BYTES]; /* by folder */
    int run_count;
    double price; /* of an hour of a GPU, or of a core; NaN: not given */
    struct plot *plots;
    int plot_count;
};

/* Reads nothing but the histories, which must outlive it. */
enum err report_create(struct run_history *const *runs, int count, double price,
                       struct report *out);
void report_free(struct report *report);

/* Each replaces the file if there is one. */
enum err report_html(const struct report *report, const char *path);
enum err report_json(const struct report *report, const char *path);
