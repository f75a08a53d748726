/* The settings of optimizer, its groups and the schedule, part of
 * train_settings_rows.h; and the flags that all rows there may have. */
#pragma once

#include "src/base/settings/settings_list.h"
#include "src/parallel/optimizer/optimizer.h"
#include "src/train/settings/schedule.h"

/* More of enum setting_flag: stays with compression, for what is computed again
 * is exact and what is packed is not; stays under parallel.determinism = "run",
 * which promises the same bits on the same topology only. */
enum train_setting_flag {
    TRAIN_STAYS_IF_PACKED = SETTING_OWN,
    TRAIN_STAYS_IF_RUN = 2 * SETTING_OWN,
    /* of the sample order: the same, and what is the default is left out, as
     * runs that are older than the setting had it; data.change lets it change */
    TRAIN_STAYS_OF_ORDER = 4 * SETTING_OWN,
    /* the result depends on it where it is given; a run may be moved, and does
     * not need it any more after its first checkpoint */
    TRAIN_DECIDES_START = 8 * SETTING_OWN,
    /* the result depends on it; a run that is older than it had the default */
    TRAIN_DECIDES_ADDED = 16 * SETTING_OWN
};
/* What is told only where it is not the default. */
#define TRAIN_STAYS_IF_GIVEN                                                   \
    (TRAIN_STAYS_OF_ORDER | SETTING_STAYS_ADDED | TRAIN_DECIDES_START |        \
     TRAIN_DECIDES_ADDED)

#define OPTIMIZER_SETTINGS(S)                                                  \
    S(optimizer, INDEX(optimizer), name, "adamw", SETTING_STAYS,               \
      "each has its own moments",                                              \
      .theirs = { ALSO("optim"), CHOICES("decoupled_adamw", "\"adamw\""),      \
                  CHOICES("decoupled_lionw lionw", "\"lion\""),                \
                  CHOICES("adamw_torch adamw_torch_fused adamw_hf",            \
                          "\"torch_adamw\"") })                                \
    S(optimizer, FLOAT(0, 1e3), lr, "6e-4", SETTING_DECIDES,                   \
      "peak learning rate",                                                    \
      .theirs = { ALSO("learning_rate max_lr peak_lr") })                      \
    S(optimizer, FLOAT(0, 0.99999), beta1, "0.9", SETTING_DECIDES,             \
      "decay of the first moment, for Lion that of the sum whose sign "        \
      "counts, for SGD its momentum",                                          \
      .theirs = { ALSO("adam_beta1") })                                        \
    S(optimizer, FLOAT(0, 0.999999), beta2, "0.95", SETTING_DECIDES,           \
      "decay of the second moment, of Lion's one moment (then 0.99 where "     \
      "it is not given)",                                                      \
      .theirs = { ALSO("adam_beta2") })                                        \
    S(optimizer, FLOAT(1e-20, 1), eps, "1e-8", SETTING_DECIDES,                \
      "added to the root of the second moment",                                \
      .theirs = { ALSO("adam_eps adam_epsilon epsilon") })                     \
    S(optimizer, FLOAT(0, 1), weight_decay, "0", SETTING_DECIDES,              \
      "decoupled: weights shrink by lr / peak lr * this per step; by lr * "    \
      "this with torch_adamw, adafactor and muon",                             \
      .theirs = { ALSO("wd") })                                                \
    OPTIMIZER_OWN_SETTINGS(S, TRAIN_DECIDES_ADDED)                             \
    S(optimizer, LIST(optimizer_group), groups, "()", TRAIN_DECIDES_ADDED,     \
      "tensors that are updated otherwise; the first group that matches "      \
      "counts: ( { match = \"*norm*\"; weight_decay = 0.0; } )")

#define SCHEDULER_SETTINGS(S)                                                  \
    S(scheduler, CHOICE(schedule_kind), name, "cosine", SETTING_DECIDES,       \
      "learning rate after warm-up",                                           \
      .theirs = {                                                              \
          ALSO("lr_scheduler_type lr_scheduler lr_decay_style decay_lr"),      \
          CHOICES("cosine_with_warmup", "\"cosine\", with scheduler.warmup"),  \
          CHOICES("constant_with_warmup",                                      \
                  "\"constant\", with scheduler.warmup"),                      \
          CHOICES("linear_decay_with_warmup",                                  \
                  "\"linear\", with scheduler.warmup"),                        \
          CHOICES("inv_sqrt_with_warmup",                                      \
                  "\"inverse_sqrt\", with scheduler.warmup"),                  \
          CHOICES("cosine_with_restarts", "\"cosine_restarts\""),              \
          CHOICES("cosine_with_min_lr",                                        \
                  "\"cosine\", with scheduler.alpha_final"),                   \
          CHOICES("warmup_stable_decay", "\"wsd\"") })                         \
    S(scheduler, DURATION, warmup, "0ba", SETTING_DECIDES,                     \
      "linear warm-up from 0: the rate of step 1 is 0 and changes nothing, "   \
      "as "                                                                    \
      "in Composer and Hugging Face",                                          \
      .theirs = { THEIRS("warmup_steps num_warmup_steps warmup_iters "         \
                         "lr_warmup_iters lr_warmup_steps",                    \
                         "as \"100ba\""),                                      \
                  THEIRS("lr_warmup_samples", "as \"100sp\""),                 \
                  THEIRS("lr_warmup_fraction warmup_ratio", "as \"0.01dur\""), \
                  ALSO("t_warmup") })                                          \
    S(scheduler, FLOAT(0, 1), alpha_final, "0.1", SETTING_DECIDES,             \
      "final learning rate / peak (inverse_sqrt: 0 where it is not given)",    \
      .theirs = { THEIRS("min_lr", "final learning rate / peak"),              \
                  ALSO("min_lr_ratio min_lr_rate min_lr_factor alpha_f") })    \
    S(scheduler, DURATION, t_max, "1dur", SETTING_DECIDES,                     \
      "where the schedule ends",                                               \
      .theirs = { THEIRS("lr_decay_iters lr_decay_steps", "as \"1000ba\""),    \
                  THEIRS("lr_decay_samples", "as \"5000sp\"") })               \
    S(scheduler, FLOAT(0, 1), alpha_initial, "1", TRAIN_DECIDES_ADDED,         \
      "of linear: learning rate after warm-up / peak")                         \
    S(scheduler, FLOAT(0, 1e3), power, "2", TRAIN_DECIDES_ADDED,               \
      "of polynomial: its exponent")                                           \
    S(scheduler, FLOAT(0, 1), gamma, "0.1", TRAIN_DECIDES_ADDED,               \
      "of step, exponential and multistep: factor of each drop")               \
    S(scheduler, DURATION, period, "0ba", TRAIN_DECIDES_ADDED,                 \
      "of step and exponential: from drop to drop; of cosine_restarts: the "   \
      "first cycle")                                                           \
    S(scheduler, STRING, milestones, "", TRAIN_DECIDES_ADDED,                  \
      "of multistep: durations with blanks between, \"1000ba 2000ba\", at "    \
      "which the rate drops")                                                  \
    S(scheduler, FLOAT(1, 1e6), t_mult, "1", TRAIN_DECIDES_ADDED,              \
      "of cosine_restarts: how much longer than the one before a cycle is")    \
    S(scheduler, DURATION, t_scale, "0ba", TRAIN_DECIDES_ADDED,                \
      "of inverse_sqrt: how slowly it decays; 0ba: as long as the warm-up")    \
    S(scheduler, FLOAT(0, 1), alpha_decay, "0", TRAIN_DECIDES_ADDED,           \
      "of inverse_sqrt: what it decays towards / peak")                        \
    S(scheduler, DURATION, cooldown, "0.2dur", TRAIN_DECIDES_ADDED,            \
      "of wsd and inverse_sqrt: the end of the schedule, over which the rate " \
      "goes to alpha_final")                                                   \
    S(scheduler, CHOICE(cooldown_shape), cooldown_shape, "linear",             \
      TRAIN_DECIDES_ADDED, "of wsd: how it goes there")                        \
    S(scheduler, FLOAT(1e-9, 1e9), scale, "1", TRAIN_DECIDES_ADDED,            \
      "multiplies train.max_duration and the schedule's durations (Composer: " \
      "scale_schedule_ratio)")                                                 \
    S(scheduler, BOOL, scale_warmup, "false", TRAIN_DECIDES_ADDED,             \
      "scheduler.scale multiplies the warm-up, too")

/* --- optimizer.groups, as settings and as what a replica is made of --- */

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
