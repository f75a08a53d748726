/* The settings of a training run: one schema for checking, overrides, --help
 * and the resolved config.cfg. */
#pragma once

#include <stdbool.h>

#include "src/base/err.h"
#include "src/base/settings/settings.h"
#include "src/model/model_config.h"
#include "src/model/model_memory.h"
#include "src/model/params.h"
#include "src/train/settings/algorithm_settings.h"
#include "src/train/settings/train_settings_rows.h"

#define TRAIN_ALONE_FIELD(field, type, ...) SETTINGS_CTYPE_##type field;

#define TRAIN_ONE(...) +1
enum {
    TRAIN_SETTINGS_COUNT =
        TRAIN_GROUPS(TRAIN_ONE, TRAIN_ONE) ALONE_SETTINGS(TRAIN_ONE)
};

struct train_settings {
    SETTINGS_STRUCT(RUN_SETTINGS) run;
    struct model_config model; /* as written; start_settings.h completes it */
    SETTINGS_STRUCT(START_SETTINGS) start; /* model.weights, ... */
    SETTINGS_STRUCT(MEMORY_SETTINGS) memory;
    SETTINGS_STRUCT(DATA_SETTINGS) data;
    SETTINGS_STRUCT(TRAIN_SETTINGS) train;
    SETTINGS_STRUCT(LORA_SETTINGS) lora;
    SETTINGS_STRUCT(OPTIMIZER_SETTINGS) optimizer;
    SETTINGS_STRUCT(SCHEDULER_SETTINGS) scheduler;
    SETTINGS_STRUCT(EVAL_SETTINGS) eval;
    SETTINGS_STRUCT(GENERATE_SETTINGS) generate;
    SETTINGS_STRUCT(CHECKPOINT_SETTINGS) checkpoint;
    SETTINGS_STRUCT(PARALLEL_SETTINGS) parallel;
    SETTINGS_STRUCT(HARDWARE_SETTINGS) hardware;
    struct tracking_settings tracking;
    SETTINGS_STRUCT(HOOK_SETTINGS) hooks;
    SETTINGS_STRUCT(MONITOR_SETTINGS) monitor;
    SETTINGS_STRUCT(LOG_SETTINGS) log;
    SETTINGS_STRUCT(WATCH_SETTINGS) watch;
    struct {
        ALONE_SETTINGS(TRAIN_ALONE_FIELD)
    } alone; /* of no group */
    /* no settings: */
    struct train_groups groups;   /* of optimizer.groups */
    bool microbatch_automatic;    /* train.microbatch was 0 */
    bool once;                    /* train_memory_once() */
    struct algorithm_needs needs; /* of algorithms */
    /* By file or command line, another value than the default and that of the
     * preset; in the order of the schema. */
    bool given[TRAIN_SETTINGS_COUNT];
    struct settings_origin origins[TRAIN_SETTINGS_COUNT];
    struct settings_origin source; /* of all: the file, or the command line */
    bool partial;                  /* what a run must have may be missing */
};

extern const struct setting train_settings_schema[];
extern const int train_settings_count;

/* The setting of this key; NULL: there is none. */
const struct setting *train_settings_setting(const char *key);

/* What path, which may be NULL, and overrides say, each setting within its
 * limits, and what follows from settings alone. No other file is opened: the
 * model and data.seq_len are as written. partial, for a plan: what a run must
 * have may be missing, and is empty or 0 then; slots and microbatch of a global
 * batch that is not known are 8 and 1. */
enum err train_settings_read(const char *path, char *const *overrides,
                             int override_count, bool partial,
                             struct train_settings *out);
/* Whether it was given at all, by file or override. */
bool train_settings_given(const struct train_settings *settings,
                          const char *key);
/* rc, its text with the place of the setting that is to blame before it. */
enum err train_settings_blame(const struct train_settings *settings,
                              enum err rc);

/* The parameters of the run's model, as they train or are frozen. */
enum err train_settings_params(const struct train_settings *settings,
                               struct params **out);
/* Whether some are frozen. */
bool train_settings_freezes(const struct train_settings *settings);

/* memory.checkpoint and memory.compression, parsed. */
enum err train_settings_memory(const struct train_settings *settings,
                               struct model_memory *out);

/* One setting as text, numbers with 17 digits, as checkpoints and hashes have
 * it; *text is malloc'ed. For people settings_text() has the fewest digits. */
enum err train_settings_print(const struct train_settings *settings,
                              const char *key, char **text);

/* Whether a setting has its default; not where that is "auto" and something
 * else is put in its place. */
bool train_settings_default(const struct train_settings *settings,
                            const struct setting *setting);

/* Whether the result depends on the setting. */
bool train_settings_decides(const struct setting *setting);

/* SHA-256 over keys and resolved values of the settings that count. */
typedef bool train_settings_counts(const struct train_settings *settings,
                                   const struct setting *setting);
enum err train_settings_digest(const struct train_settings *settings,
                               train_settings_counts *counts, char hex[65]);
/* The same of those that decide the result. */
enum err train_settings_hash(const struct train_settings *settings,
                             char hex[65]);

/* Whether the setting of this key, as this text, may hold a token or a password:
 * nothing that leaves the run's folder repeats it. Whether settings have any. */
bool train_settings_secret(const char *key, const char *text);
bool train_settings_any_secret(const struct train_settings *settings);

/* --- optimizer.groups (train_groups.c) --- */

/* From settings whose optimizer is complete. ERR_USAGE: an optimizer that there
 * is not, two rates, a decay that would mean another thing than the run's,
 * numbers below 0 other than -1. */
enum err train_groups_read(const struct train_settings *settings,
                           struct train_groups *out);

/* ERR_USAGE: a group that no tensor is in. */
enum err train_groups_check(const struct train_groups *groups,
                            const struct params *params);

/* Whether one of them goes by optimizer.FIELD. */
bool train_groups_use(const struct train_groups *groups, const char *field);

/* The weights that a first start takes instead of fresh ones. */
struct start_from {
    const char *key;    /* of the setting that names it */
    const char *path;   /* "": none */
    const char *ignore; /* globs */
    bool state;         /* with optimizer and position, a checkpoint's */
};

struct start_from train_settings_from(const struct train_settings *s);
