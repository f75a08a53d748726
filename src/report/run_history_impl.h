/* The parts of the reader of run directories (run_history.h), which alone
 * includes this: one for the steps, one for the ledger, one for the other
 * files, one for the account of time. */
#pragma once

#include <sys/stat.h>

#include "src/report/line_tail.h"
#include "src/report/run_history.h"

/* What a list has room for. */
struct run_rooms {
    size_t attempts, evals, commits, events, samples, tasks, settings;
};

/* What training has waited for, by step, in the file's order: the first and the
 * newest one by one, for steps that were not logged lie there; those between
 * are one sum. */
#define RUN_STALLS_MAX 32
#define RUN_STALLS_SUM                                                         \
    (RUN_STALLS_MAX / 2) /* the sum's place, if there is one */
struct run_stalls {
    int count;
    bool summed; /* more have come than there is room for */
    int64_t step[RUN_STALLS_MAX], us[RUN_STALLS_MAX];
};

/* What a launch script told between two attempts. */
struct run_pause {
    int64_t decided_us; /* when it knew what next; 0: it told nothing */
    int64_t begin_us;   /* of the first check since; 0: none */
    int64_t checks_us;  /* all of them */
    bool requeued;
};

/* Beside an attempt: what only the account of its time needs. */
struct run_clock {
    struct run_pause before;
    struct run_stalls saves, evals;
    int64_t first_step;     /* the first logged one; -1: none */
    int64_t kept_us;        /* of training that was not done again so far */
    int64_t kept_steps;     /* likewise */
    int64_t heard_us;       /* its last sign of life */
    int64_t stop_us;        /* it told its end then; 0: it did not */
    int64_t commit_step;    /* the newest commit's; -1: none */
    int64_t commit_rest_us; /* that it took behind the copy */
    bool sampled;           /* not all of its steps were logged */
};

struct run_reader {
    struct line_tail metrics, eval, ledger, samples;
    struct run_rooms rooms;
    struct run_clock *clocks;       /* beside the attempts */
    int *by_number;                 /* [RUN_ATTEMPTS_MAX + 1] index + 1 */
    struct run_pause pause;         /* since the newest start */
    int eval_stride, commit_stride; /* one of so many is kept */
    int64_t evals_seen, commits_seen;
    struct stat config; /* of config.cfg as it was read; zeros: not yet */
};

/* Longer times are no times of a run: 3000 years, so that sums stay whole. */
#define RUN_US_MAX ((int64_t)100000000000000000)

/* As in metrics.jsonl. */
#define RUN_VALUE_NAMES                                                        \
    [RUN_LOSS] = "loss", [RUN_LR] = "lr", [RUN_GRAD_NORM] = "grad_norm",       \
    [RUN_STEP_MS] = "step_ms", [RUN_STEP_MS_MIN] = "step_ms_min",              \
    [RUN_STEP_MS_MAX] = "step_ms_max", [RUN_LOADER_MS] = "loader_ms",          \
    [RUN_WORK_MS] = "work_ms_median", [RUN_WORK_MS_MAX] = "work_ms_max",       \
    [RUN_WAIT_MS_MAX] = "wait_ms_max", [RUN_TOKENS_PER_S] = "tokens_per_s",    \
    [RUN_MFU] = "mfu"

/* Microseconds of seconds, 0 of what is no time. */
int64_t run_reader_us(double seconds);
/* The sum, at most RUN_US_MAX. */
int64_t run_reader_add(int64_t a, int64_t b);
/* Index of the attempt of this number, which is made if need be; -1 where no
 * run has such a number. ERR_MEMORY alone. */
enum err run_reader_attempt(struct run_history *history, double number,
                            int *index);
void run_reader_heard(struct run_history *history, int attempt, int64_t us);
/* Text of a file into a field, cut. */
void run_reader_text(char *out, size_t size, const char *text);

/* Buckets of steps. */
struct run_bucket run_buckets_of(const struct run_point *point);
void run_buckets_add(struct run_bucket *bucket, const struct run_bucket *more);

/* A line of RUN/metrics.jsonl. */
enum err run_points_line(void *arg, const char *line, size_t bytes);
/* A line of RUN/ledger.jsonl. */
enum err run_ledger_line(void *arg, const char *line, size_t bytes);
/* Lines of RUN/eval.jsonl and RUN/samples.jsonl. */
enum err run_results_eval(void *arg, const char *line, size_t bytes);
enum err run_results_sample(void *arg, const char *line, size_t bytes);
/* What is in RUN/config.cfg, where it is another than the one that was read
 * last: every attempt writes its own. None there is fine. */
enum err run_config_read(struct run_history *history);
void run_config_forget(struct run_history *history);
/* Training waited so long after this step. */
void run_account_stall(struct run_stalls *stalls, int64_t step, int64_t us);
/* Divides the time (run_history.h). */
void run_account(struct run_history *history);
