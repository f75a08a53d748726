/* Groups of tensors with an optimizer, a rate or a decay of their own:
 * optimizer.groups, as settings and as what a replica is made of. */
#pragma once

#include <stdbool.h>

#include "src/base/err.h"
#include "src/base/settings/settings_list.h"
#include "src/parallel/optimizer/optimizer.h"

struct train_settings;

/* The kind of optimizer.groups' items. */
extern const struct settings_kind optimizer_group_kinds[];

/* What a group has of its own, resolved. */
struct train_group {
    double lr;   /* at the peak */
    bool has_lr; /* not as parts of the others' */
    double weight_decay;
    double beta1, beta2, eps;
    double outlier_threshold;
    const char *unused; /* a field that was given to another optimizer than
                           those that use it; NULL: none */
};

struct train_groups {
    int count;
    struct optimizer_group list[OPTIMIZER_GROUPS];
    struct train_group own[OPTIMIZER_GROUPS];
};

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
