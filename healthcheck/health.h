/* Node health: a table of checks, a runner, a verdict.
 *
 * Every check runs in a child process of its own with a deadline on the
 * monotonic clock, because a check hangs exactly when what it looks at is
 * sick. A child that does not end is killed, and abandoned when even that does
 * not help; the parent touches nothing but /proc, the names of PCI devices and
 * pipes. A check that waited its whole time asleep (state S or D) is a hang:
 * bad, since every check here looks at something local. One that was still
 * computing, or whose time the phase's budget cut short, is unknown. A hang
 * within a short deadline needs a second one after a pause: file systems stand
 * still for seconds and go on.
 *
 * Verdict of the node: the gravest state of its checks, bad > unknown > warn >
 * ok; code and reason are those of the first check with that state. Speeds are
 * reported; they are bad only below a floor that the administrator has set, or,
 * of GPUs, far below the others of the node, and only twice in a row. Products
 * far below what the processors' multiply-adds reach are warned of. Hard faults
 * (wrong arithmetic, unwritable local file systems) are bad at once.
 *
 * The phases of root, quick, prolog and epilog, lead to drains. There nothing that a
 * user of the node can bring about is bad: it is worth a warning at most. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "src/base/err.h"
#include "src/base/settings/settings.h"

#define HEALTH_CHECKS_MAX 32
#define HEALTH_REASON_MAX 150 /* characters; longer ones are cut */
#define HEALTH_PREFIX "tessera: "

/* Bits of a mask. */
enum health_phase {
    HEALTH_QUICK = 1,  /* root, every few minutes on idle nodes; jobs, again */
    HEALTH_PROLOG = 2, /* root, before a job */
    HEALTH_EPILOG = 4, /* root, after a job */
    HEALTH_JOB = 8     /* the user, at the top of the job script */
};

/* The order is the one of the exit codes, not of gravity. */
enum health_state { HEALTH_OK, HEALTH_WARN, HEALTH_BAD, HEALTH_UNKNOWN };

/* Thresholds, as LIMIT(group, key, type, default, help): "group.key" of
 * health.cfg, and group_key of the struct, which health_limits_load() fills. A
 * floor of 0 is no floor. */
#define HEALTH_LIMITS(LIMIT)                                                   \
    LIMIT(shm, free_min_mib, FLOAT(0, 1e9), "32",                              \
          "free space that /dev/shm must have, MiB")                           \
    LIMIT(shm, inodes_min, FLOAT(0, 1e12), "64",                               \
          "free inodes that /dev/shm must have")                               \
    LIMIT(tmp, free_min_mib, FLOAT(0, 1e9), "64",                              \
          "free space that /tmp must have, MiB")                               \
    LIMIT(tmp, inodes_min, FLOAT(0, 1e12), "64",                               \
          "free inodes that /tmp must have")                                   \
    LIMIT(memory, available_min_mib, FLOAT(0, 1e9), "0",                       \
          "memory that must be available, MiB; 0: only reported")              \
    LIMIT(load, max, FLOAT(0, 1e9), "0",                                       \
          "load of one minute that is worth a warning; 0: only reported")      \
    LIMIT(blocked, max, FLOAT(0, 1e9), "0",                                    \
          "processes in state D that are no reason to warn; 0: only reported") \
    LIMIT(zombies, max, FLOAT(0, 1e9), "0",                                    \
          "zombies that are no reason to warn; 0: only reported")              \
    LIMIT(past, hours, FLOAT(0.01, 1e6), "24",                                 \
          "time for which growth of a counter counts, h")                      \
    LIMIT(ports, active, FLOAT(0, 128), "0",                                   \
          "ports of InfiniBand and RoCE that must be active; 0: those that "   \
          "were")                                                              \
    LIMIT(ports, rate_min_gbps, FLOAT(0, 1e6), "0",                            \
          "rate of each active port, Gb/s; 0: the one that it had")            \
    LIMIT(ports, flaps_max, FLOAT(0, 1e6), "5",                                \
          "times that a link was down within past.hours that are bad; fewer "  \
          "are worth a warning; 0: never bad")                                 \
    LIMIT(ports, errors_per_hour, FLOAT(0, 1e12), "10",                        \
          "symbol errors and their like of a port that are no reason to "      \
          "warn, per h")                                                       \
    LIMIT(ports, skip, STRING, "",                                             \
          "cards whose ports are not looked at, as mlx5_0,mlx5_bond_0")        \
    LIMIT(bus, correctable_per_hour, FLOAT(0, 1e12), "960",                    \
          "correctable PCI Express errors of a device that are no reason to "  \
          "warn, per h")                                                       \
    LIMIT(edac, corrected_per_hour, FLOAT(0, 1e12), "10",                      \
          "corrected errors of a memory controller that are no reason to "     \
          "warn, per h")                                                       \
    LIMIT(mce, hours, FLOAT(0, 1e6), "24",                                     \
          "age of the oldest machine check in the kernel's log that counts, "  \
          "h")                                                                 \
    LIMIT(mce, corrected_max, FLOAT(0, 1e9), "24",                             \
          "corrected ones of that age that are no reason to warn")             \
    LIMIT(mounts, paths, STRING, "",                                           \
          "file systems that must be mounted: PATH, PATH:TYPE, PATH:TYPE:rw "  \
          "or PATH::rw of each")                                               \
    LIMIT(mounts, missing_bad, BOOL, "false",                                  \
          "one that is not mounted is bad, not worth a warning")               \
    LIMIT(services, running, STRING, "",                                       \
          "processes (or NAME.service) that must run")                         \
    LIMIT(services, missing_bad, BOOL, "false",                                \
          "one that does not run is bad, not worth a warning")                 \
    LIMIT(leftover, ignore, STRING, "",                                        \
          "numbers of users who may have processes without a job")             \
    LIMIT(clock, skew_max_ms, FLOAT(0, 1e9), "50",                             \
          "clocks of a job's nodes further from the median are worth a "       \
          "warning, ms; 0: never")                                             \
    LIMIT(gemm, min_gflops, FLOAT(0, 1e9), "0",                                \
          "fp32 GEMM of all processors, GFLOP/s; 0: only reported")            \
    LIMIT(gemm, peak_ratio_min, FLOAT(0, 1), "0.5",                            \
          "the same over what multiply-adds alone reach; less is worth a "     \
          "warning; 0: only reported")                                         \
    LIMIT(triad, min_gbps, FLOAT(0, 1e9), "0",                                 \
          "memory bandwidth of all processors, GB/s; 0: only reported")        \
    LIMIT(pair, min_gbps, FLOAT(0, 1e9), "0",                                  \
          "bus bandwidth between two ranks, GB/s; 0: only reported")           \
    LIMIT(pair, ratio_min, FLOAT(0, 1), "0.95",                                \
          "pairs slower than this fraction of the median, and than their "     \
          "spread explains, are tested again; 0: never")                       \
    LIMIT(gpu, count, FLOAT(0, 64), "0",                                       \
          "GPUs that the node must have; 0: as Slurm's Gres or the PCI bus "   \
          "says")                                                              \
    LIMIT(gpu, nvlinks, FLOAT(0, 36), "0",                                     \
          "active NVLinks of each GPU; 0: as many as any other one has")       \
    LIMIT(gpu, used_max_mib, FLOAT(0, 1e9), "2048",                            \
          "memory of a GPU that may be in use between jobs, MiB")              \
    LIMIT(gpu, xid_hours, FLOAT(0, 1e6), "24",                                 \
          "age of the oldest Xid in the kernel's log that counts, h")          \
    LIMIT(gpu, xid_fatal, STRING,                                              \
          "46,48,62,64,74,79,95,119,120,140,154,167,171",                      \
          "Xids that are bad at once")                                         \
    LIMIT(gpu, xid_suspect, STRING,                                            \
          "54,56,57,58,61,63,65,73,80,81,92,94,110,121,122,123,124,125,"       \
          "143,145,149",                                                       \
          "Xids that are bad when a GPU has two")                              \
    LIMIT(gpu, corrected_per_hour, FLOAT(0, 1e12), "100",                      \
          "corrected memory errors of a GPU that are no reason to warn, per "  \
          "h")                                                                 \
    LIMIT(gpu, slowed_minutes, FLOAT(0, 1e6), "10",                            \
          "time for which each look finds a GPU slowed, to be said, min")      \
    LIMIT(gpu, ratio_min, FLOAT(0, 1), "0.92",                                 \
          "GPUs slower than this fraction of the others' median are tested "   \
          "again; 0: only reported")                                           \
    LIMIT(gpu, gemm_min_tflops, FLOAT(0, 1e9), "0",                            \
          "bf16 GEMM of each GPU, TFLOP/s; 0: only reported")                  \
    LIMIT(gpu, hbm_min_gbps, FLOAT(0, 1e9), "0",                               \
          "copies in each GPU's memory, GB/s; 0: only reported")               \
    LIMIT(gpu, pcie_min_gbps, FLOAT(0, 1e9), "0",                              \
          "copies from and to host memory, GB/s; 0: only reported")            \
    LIMIT(gpu, peer_min_gbps, FLOAT(0, 1e9), "0",                              \
          "copies between two GPUs, GB/s; 0: only reported")                   \
    LIMIT(                                                                     \
        gpu, allreduce_min_gbps, FLOAT(0, 1e9), "0",                           \
        "bus bandwidth of an all-reduce in the node, GB/s; 0: only reported")

#define HEALTH_LIMIT_FIELD(group, key, type, ...)                              \
    SETTINGS_CTYPE_##type group##_##key;
struct health_limits {
    HEALTH_LIMITS(HEALTH_LIMIT_FIELD)
    settings_text_field disable; /* ids of checks, separated by commas */
};

/* Where a check runs. */
struct health_env {
    const char *root; /* before every path; "" in production */
    const char *host; /* Slurm's node name, else the host name */
    enum health_phase phase;
    int gpus;    /* that Slurm says the node has; 0: nobody has said */
    bool shared; /* others compute here: nothing that takes all processors */
    struct health_limits limits;
    /* "gemm:HOST:wrong,shm:HOST:full,gpu:HOST:lost,hbm:HOST:wrong,
     * hbm:HOST:slow,hang:fs"; NULL: none */
    const char *inject;
    const char *only; /* checks by their ids; NULL: all of the phase */
    /* where not NULL, what the one check that keeps something keeps it in, and not in
     * files: HEALTH_PAST_BYTES that processes share, zeros at first */
    char *past;
};

/* What a check found; travels through a pipe. */
struct health_result {
    char id[16];
    enum health_state state;
    char code[24]; /* "SHM_FULL"; empty when ok */
    char unit[16];
    char text[80]; /* one short clause for people; may be empty; of one that is
                       * ok: why it could not look */
    char table[4096]; /* measurements for people, whole lines; may be empty */
    double value;
    double limit;      /* 0: none */
    double peak_ratio; /* of products to multiply-adds alone; 0: not known */
    int tries;
    double dur_s;
    bool retest; /* a bad result needs a second one: speeds, hangs */
    bool cut;    /* ended by the budget */
};

/* Says what was found: state, code and a text as printf() makes it, cut to its
 * room, of a result or of one GPU's measure. */
#define health_say(out, state_, code_, ...)                                    \
    do {                                                                       \
        (out)->state = (state_);                                               \
        snprintf((out)->code, sizeof(out)->code, "%s", (code_));               \
        snprintf((out)->text, sizeof(out)->text, __VA_ARGS__);                 \
    } while (0)

/* The same if that is graver than what was found before. */
#define health_find(out, state_, code_, ...)                                   \
    do {                                                                       \
        if (health_worse((out)->state, (state_)) != (out)->state)              \
            health_say(out, state_, code_, __VA_ARGS__);                       \
    } while (0)

/* One finding more of a result that may have several: the first of the gravest
 * gives state and code, the text has all for which there is room. */
void health_also(struct health_result *out, enum health_state state,
                 const char *code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

struct health_check { /* a row of health_checks.h */
    const char *id;
    const char *group;
    unsigned phases; /* mask of enum health_phase */
    double timeout_s;
    enum err (*run)(const struct health_env *env, struct health_result *out);
    const char *about; /* what it looks at, for --help */
};

struct health_verdict {
    char host[64];
    const char *phase;
    long job; /* SLURM_JOB_ID; 0: none */
    char boot_id[64];
    double t0; /* seconds since 1970 */
    double dur_s;
    enum health_state state;
    char code[24];
    char reason[HEALTH_REASON_MAX + 1]; /* "tessera: ..."; empty when ok */
    bool cut;                           /* some checks did not fit the budget */
    int count;
    struct health_result results[HEALTH_CHECKS_MAX];
};

/* --- health_run.c --- */

/* The built-in checks. */
const struct health_check *health_table(int *count);
/* Seconds that env->phase may take unless the caller says otherwise; more with
 * GPUs, by their number. */
double health_budget_s(const struct health_env *env);
/* One line per check: its name, its phases, what it looks at. */
void health_print_checks(FILE *file);
/* Whether any build of this program has such a check. */
bool health_known(const char *id, size_t length);
/* False: no such phase. */
bool health_phase_parse(const char *text, enum health_phase *out);
/* Run the checks of env->phase one after the other within budget_s; always
 * gives a verdict. Needs a process without other threads. */
void health_run(const struct health_check *table, int count,
                const struct health_env *env, double budget_s,
                struct health_verdict *out);
/* The graver of two. */
enum health_state health_worse(enum health_state a, enum health_state b);
/* Whether a bad verdict may drain the node, so that what users can bring about must
 * not be bad: root's phases, of which a job runs the quick one as well. */
bool health_drains(const struct health_env *env);
/* "ok", "warn", "bad", "unknown". */
const char *health_state_name(enum health_state state);

/* Whether `inject` asks for kind:HOST:what; `name` is this host. "*" as host
 * means every host. */
bool health_injected(const char *inject, const char *kind, const char *name,
                     const char *what);
/* The next item of a list with commas or spaces; false: there is none. */
bool health_item(const char **list, const char **item, size_t *length);
/* Whether `word` is in such a list. */
bool health_listed(const char *list, const char *word);

/* --- health_limits.c --- */

/* Defaults, then the file (libconfig; NULL: defaults only). ERR_USAGE also for
 * a check to disable that is none, or an Xid that is no number. */
enum err health_limits_load(const char *path, struct health_limits *out);
/* The path of an administrator's file: PREFIX/etc/NAME of the running program,
 * /etc/tessera/NAME where that is /usr. false: it is not known or too long. */
bool health_site_file(const char *name, char *path, size_t bytes);
/* The same with the administrator's health.cfg, if there is one. Root obeys only
 * a file that nobody else can have written, says so, and takes the defaults
 * otherwise. */
enum err health_limits_default(struct health_limits *out);

/* --- what checks find out besides --- */

/* Whether mounts.paths can be read; ERR_USAGE says what cannot. */
enum err health_mounts_check_list(const char *list);

/* The boot id, or "unknown"; reads one file of /proc. */
void health_host_boot_id(const char *root, char *text, size_t bytes);
/* SLURMD_NODENAME, else the host name without its domain. */
void health_host_name(char *text, size_t bytes);
/* Seconds since the machine's start. */
enum err health_host_uptime(const char *root, double *seconds);
/* After a repair: what the kernel's log holds now does not count any more,
 * until the next boot, nor do earlier looks (health_past.h). Writes
 * ROOT/var/lib/tessera/repaired. */
enum err health_repaired(const char *root);

/* --- health_report.c --- */

/* Fill code and reason of a verdict from its results. */
void health_report_reason(struct health_verdict *verdict);
/* Cuts at HEALTH_REASON_MAX, drops what is not printable ASCII. */
void health_report_clean(char *reason);
/* The verdict as an array of one JSON object, schema "tessera-health/1"; the
 * caller decrefs. NULL: no memory. */
json_t *health_report_json(const struct health_verdict *verdict);
/* A table for people. */
void health_report_print(const struct health_verdict *verdict, FILE *file);
/* An array of verdicts, one line each. */
enum err health_report_dump(const json_t *verdicts, FILE *file);
/* The same for shells, which should see no JSON: "verdict HOST STATE CODE CODES
 * REASON", where CODES are those of all checks that are not ok, with commas
 * between them, REASON may have blanks, and - stands for what there is not. */
void health_report_words(const json_t *verdicts, FILE *file);
/* The verdicts of a file of such lines, others passed over, as a new array. */
enum err health_report_read(const char *path, json_t **verdicts);
/* The same into PATH, or each into PATH/HOST.json when PATH is a folder; files
 * are replaced in one step. ERR_USAGE where something else than a file that may
 * be written is in the way: a device, a link, somebody's file. */
enum err health_report_write(const json_t *verdicts, const char *path);
