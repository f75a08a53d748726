/* Rules by which a run ends before train.max_duration, as the items of the list
 * `finish` have them. */
#pragma once

#include "src/base/settings/settings_list.h"

enum finish_better { FINISH_LOWER, FINISH_HIGHER };
static const char *const finish_better_names[] = { "lower", "higher", NULL };

#define FINISH_METRIC                                                          \
    "figure that is watched: train/loss of every step, or one that trackers "  \
    "get, as eval/loss, whenever it is there"

#define EARLY_STOP_SETTINGS(S)                                                 \
    S(early_stop, STRING, metric, "eval/loss", 0, FINISH_METRIC)               \
    S(early_stop, CHOICE(finish_better), better, "lower", 0,                   \
      "which values are better")                                               \
    S(early_stop, FLOAT(0, 1e30), min_delta, "0", 0,                           \
      "by so much a value must be better than the best one to count")          \
    S(early_stop, DURATION, patience, "1ep", 0,                                \
      "the run ends when no value has been better for so long")

#define THRESHOLD_SETTINGS(S)                                                  \
    S(threshold, STRING, metric, "eval/loss", 0, FINISH_METRIC)                \
    S(threshold, CHOICE(finish_better), better, "lower", 0,                    \
      "the run ends at values below `value`, or above it with higher")         \
    S(threshold, FLOAT(-1e30, 1e30), value, NULL, 0, "the threshold")

struct finish_early_stop {
    EARLY_STOP_SETTINGS(SETTINGS_FIELD)
};
struct finish_threshold {
    THRESHOLD_SETTINGS(SETTINGS_FIELD)
};

/* In the order of finish_kinds. */
enum finish_kind { FINISH_EARLY_STOP, FINISH_THRESHOLD };
extern const struct settings_kind finish_kinds[];

struct train_settings;

/* ERR_USAGE: a rule watches a figure that nothing in the run gives. */
enum err finish_check(const struct train_settings *settings);
