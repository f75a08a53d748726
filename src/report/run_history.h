/* What a run directory tells of a run: metrics.jsonl, eval.jsonl, ledger.jsonl,
 * samples.jsonl and config.cfg, read once, in bounded memory, while the run goes
 * on if need be. Reports, the live view and whoever compares runs read it.
 *
 * A step that was done again counts once: the last attempt's values stand, and
 * the time of those before is lost (RUN_TIME_WASTED). The newest
 * RUN_RECENT_MAX logged steps are kept one by one; what is older lies in at
 * most RUN_BUCKETS_MAX buckets of equally many steps, with the least, the
 * largest and the sum of each value, so that a spike of one step in a million is
 * seen. Where a run goes further back than the recent steps, the bucket in which
 * it begins anew loses its share of steps.
 *
 * Lines that are torn, foreign or too long are passed over and counted. Files
 * that are missing are empty. All text is as it stands in the files: who shows
 * it must escape it.
 *
 * Times. The wall time of a run is from its first start to its last sign of
 * life. It is divided among the kinds of enum run_time, in whole microseconds,
 * without rest:
 *
 *   between attempts   the end of one to the start of the next; an attempt that
 *                      told no end has ended with its last sign of life. Where a
 *                      launch script told what it did instead: detection, until it
 *                      had decided what next; queue, until a requeued job's first
 *                      check began; node checks; launch, the rest
 *   and of each attempt
 *   initialization     from its start to its first step
 *   data loading       in which the slowest rank waited for samples (loader_ms)
 *   checkpoints        that training waited for: the copy (stage_s), or all of
 *                      the save where there was no copy or no step followed
 *   evaluation         the seconds of eval.jsonl
 *   wasted             steps that a later attempt did again
 *   training           the other steps
 *   other              the rest: scoring tasks, samples, logs, the end
 *
 * An evaluation or a save at a step follows it: those before an attempt's first
 * logged step are no initialization, those since its last one no part of the
 * steps' time.
 *
 * Goodput is training / wall time. Of steps that were not logged
 * (log.interval) the logged one stands for all since the one before, and an
 * attempt's steps take what the clock says between the logged ones less what is
 * known to be no step: scoring tasks and samples there count as training. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"

#define RUN_RECENT_MAX 4096
#define RUN_BUCKETS_MAX 2048
/* When there are more, every second evaluation and commit is dropped, but the
 * last. */
#define RUN_EVALS_MAX 16384
#define RUN_COMMITS_MAX 16384
/* More are an error, or for events and samples not kept but counted. */
#define RUN_ATTEMPTS_MAX 65536
#define RUN_EVENTS_MAX 4096
#define RUN_SAMPLES_MAX 256
#define RUN_TASKS_MAX 4096
#define RUN_SETTINGS_MAX 4096
#define RUN_STEP_MAX 1e12
#define RUN_TEXT_BYTES 256

/* Values of a step, as on_metrics.c writes them. */
enum run_value {
    RUN_LOSS, /* nats per token */
    RUN_LR,
    RUN_GRAD_NORM,
    RUN_STEP_MS,
    RUN_STEP_MS_MIN, /* of the ranks; missing with one rank */
    RUN_STEP_MS_MAX,
    RUN_LOADER_MS, /* the longest, as the next but one */
    RUN_WORK_MS,   /* the median rank's own, without waiting; and the most */
    RUN_WORK_MS_MAX,
    RUN_WAIT_MS_MAX, /* for other ranks */
    RUN_TOKENS_PER_S,
    RUN_MFU, /* 0 to 1 */
    RUN_VALUES
};

/* Whose is the most of RUN_WORK_MS_MAX, RUN_WAIT_MS_MAX, RUN_LOADER_MS. */
enum run_who { RUN_WHO_WORKS, RUN_WHO_WAITS, RUN_WHO_LOADS, RUN_WHO };

enum run_time {
    RUN_TIME_TRAINING,
    RUN_TIME_INITIALIZATION,
    RUN_TIME_DATA,
    RUN_TIME_CHECKPOINT,
    RUN_TIME_WASTED,
    RUN_TIME_DETECTION,
    RUN_TIME_CHECKS,
    RUN_TIME_QUEUE,
    RUN_TIME_LAUNCH,
    RUN_TIME_BETWEEN,
    RUN_TIME_EVALUATION,
    RUN_TIME_OTHER,
    RUN_TIMES
};

/* A logged step. */
struct run_point {
    int64_t step, steps;   /* steps: it stands for so many, itself the last */
    int64_t tokens;        /* so far */
    int64_t time_us;       /* since 1970; 0: not known */
    int64_t training_us;   /* of its steps, without waiting for samples */
    int attempt;           /* index */
    int who[RUN_WHO];      /* ranks; -1: not known */
    double of[RUN_VALUES]; /* NaN: not told */
};

struct run_stat {
    double min, max, sum;
    int64_t count; /* of points; 0: none, and the rest means nothing */
};

struct run_bucket {
    int64_t first, last; /* steps; of points that are there */
    int64_t points, steps, time_us, training_us;
    int64_t tokens; /* after the last */
    struct run_stat of[RUN_VALUES];
};

struct run_eval {
    int64_t step, time_us; /* time: of its step's end; 0: not known */
    int attempt;           /* index */
    double loss, seconds;  /* loss: NaN where it was not finite */
};

struct run_commit {
    int64_t step, time_us, bytes, stall_us;
    double seconds, stage_s;
    int attempt; /* index */
    bool local;
};

struct run_attempt {
    int number; /* as in the files */
    long job;   /* Slurm's; 0: none */
    int ranks, nodes, threads;
    bool device;              /* it computed on GPUs */
    char devices[64];         /* in words; empty: processors */
    char host[64];            /* of rank 0 */
    int64_t start_us, end_us; /* 0, both: files tell no start */
    int64_t begin_us;         /* of its first step; 0: it did none */
    int64_t last_us;          /* of its last step; 0: likewise */
    int64_t from_step;        /* completed steps when it began */
    int64_t last_step;        /* -1: none */
    int64_t steps_us, data_us, evaluation_us, checkpoint_us;
    int64_t wasted_us, wasted_steps;
    int64_t memory_planned, memory_peak; /* bytes of a rank; 0: not known */
    bool ended;                          /* the program told its end */
    int code;                            /* exit code; -1: not known */
    int stop_code; /* of its newest "stop", the launch script's too; -1: none */
    char reason[RUN_TEXT_BYTES];
    int64_t time_us[RUN_TIMES]; /* its share; of those between: after it */
};

enum run_event_kind {
    RUN_EVENT_EXCLUDE, /* a node is left out: whether Slurm drains it is its own */
    RUN_EVENT_WARNING, /* of a node that takes part */
    RUN_EVENT_CHECK,
    RUN_EVENT_RESTART, /* restart and requeue */
    RUN_EVENT_GIVE_UP,
    RUN_EVENT_SAVE_FAILED,
    RUN_EVENT_OTHER /* settings, data, weights, load, hooks, ... */
};

struct run_event {
    enum run_event_kind kind;
    int64_t time_us;
    int attempt;   /* as in the file */
    char name[24]; /* the event's */
    char node[64];
    char text[RUN_TEXT_BYTES]; /* why */
};

struct run_sample {
    int64_t step, number;
    char *prompt, *text; /* cut after 2000 bytes */
};

struct run_task {
    int64_t step;
    char name[96];
    double accuracy; /* 0 to 1 */
    int64_t examples;
};

struct run_setting {
    char *key, *value;
};

struct run_history {
    char *dir, *name; /* name: the folder's */

    struct run_point *recent; /* [recent_count], by step */
    size_t recent_count;
    struct run_bucket *old; /* [RUN_BUCKETS_MAX], by step; points 0: empty */
    int64_t old_base, old_width; /* the first begins behind base */

    struct run_attempt *attempts;
    size_t attempt_count;
    struct run_eval *evals; /* by step */
    size_t eval_count;
    json_t *sets; /* the newest of eval.sets: {NAME: {loss, tokens}}; or NULL */
    struct run_commit *commits; /* in the file's order */
    size_t commit_count;
    struct run_event *events; /* likewise */
    size_t event_count;
    struct run_sample *samples; /* the newest */
    size_t sample_count;
    struct run_task *tasks; /* by step */
    size_t task_count;
    struct run_setting *settings; /* in the file's order */
    size_t setting_count;

    int64_t last_step, tokens; /* of the newest point; -1 and 0: none */
    int64_t replayed_steps;    /* were done again */
    int64_t skipped_lines;     /* torn, foreign or too long */
    int64_t events_left_out, samples_left_out;
    int64_t commit_total; /* also those that were dropped; not local */
    double energy_j;      /* of all attempts; 0: not told */

    int64_t begin_us, end_us;   /* first start and last sign of life */
    int64_t time_us[RUN_TIMES]; /* their sum is end - begin */
    double device_hours; /* GPU hours, or core hours where no GPU computed */
    bool device;

    struct run_reader *reader; /* its own */
};

extern const char *const run_value_names[RUN_VALUES];
/* "training", "initialization", ... */
extern const char *const run_time_names[RUN_TIMES];

/* Reads all that is there. ERR_DATA where the folder has neither metrics nor a
 * ledger. */
enum err run_history_create(const char *dir, struct run_history **out);
/* Only the last lines of metrics.jsonl, of so many bytes: for the newest steps and
 * what the ledger tells of attempts. Sums and times of the run are not right. */
enum err run_history_create_newest(const char *dir, int64_t bytes,
                                   struct run_history **out);
/* And what has been added since. ERR_DATA where files have become others: then
 * begin anew. */
enum err run_history_update(struct run_history *history);
void run_history_destroy(struct run_history *history);

/* All steps as at most `buckets` buckets, by step; the caller frees *list.
 * Recent steps are bucketed likewise; with few steps each has its own. */
enum err run_history_buckets(const struct run_history *history, size_t buckets,
                             struct run_bucket **list, size_t *count);

double run_stat_mean(const struct run_stat *stat);
/* The rank that it was most often in the newest 20 steps; -1: not known. */
int run_history_who(const struct run_history *history, enum run_who who);
/* training / wall time; NaN of a run that took no time. */
double run_history_goodput(const struct run_history *history);
/* Nobody will start it again: it told an end from which it does not go on, or
 * the launch script has given up since. */
bool run_history_over(const struct run_history *run);
/* The run's last step, by train.max_duration in steps or tokens; -1: unknown. */
int64_t run_history_steps_max(const struct run_history *run);
/* The value of a setting; "": it has none. */
const char *run_history_setting(const struct run_history *run, const char *key);
