/* What optimizers go by besides what all of them have, as settings of the group
 * "optimizer" (src/base/settings/settings.h): an optimizer with numbers of its
 * own has its rows here, and nothing else is to be touched. Of the rows come
 * the settings, the members of struct optimizer_step by which its update finds
 * them, and the way from the ones to the other (trainer_groups.c).
 *
 * ADDED: the flag of settings that older runs did not have. */
#pragma once

#include "src/base/settings/settings.h"

enum adjust_lr { ADJUST_MATCH_RMS, ADJUST_ORIGINAL };
static const char *const adjust_lr_names[] = { "match_rms_adamw", "original",
                                               NULL };

#define SGD_SETTINGS(S, ADDED)                                                 \
    S(optimizer, FLOAT(0, 1), dampening, "0", ADDED,                           \
      "of sgd: 1 - dampening of a gradient goes into the momentum")            \
    S(optimizer, BOOL, nesterov, "false", ADDED, "of sgd: Nesterov's momentum")
#define MUON_SETTINGS(S, ADDED)                                                \
    S(optimizer, FLOAT(0, 0.99999), momentum, "0.95", ADDED,                   \
      "of muon; beta1, beta2 and eps are of AdamW, which has the other "       \
      "tensors")                                                               \
    S(optimizer, INT(0, 99), ns_steps, "5", ADDED,                             \
      "of muon: Newton-Schulz iterations")                                     \
    S(optimizer, CHOICE(adjust_lr), adjust_lr, "match_rms_adamw", ADDED,       \
      "of muon: a matrix's rate is 0.2 sqrt(longer side) lr, so that lr and "  \
      "decay are as AdamW's, or sqrt(max(1, rows / columns)) lr (original)")
#define ADAFACTOR_SETTINGS(S, ADDED)                                           \
    S(optimizer, FLOAT(1e-6, 1e6), clip_threshold, "1", ADDED,                 \
      "of adafactor: the largest root mean square of an update")               \
    S(optimizer, FLOAT(0, 10), decay_rate, "0.8", ADDED,                       \
      "of adafactor: the second moment's decay is 1 - step^-this")             \
    S(optimizer, BOOL, scale_parameter, "false", ADDED,                        \
      "of adafactor: lr is multiplied by a tensor's root mean square")
#define LION_SETTINGS(S, ADDED)                                                \
    S(optimizer, FLOAT(1, 1e6), outlier_threshold, "10", ADDED,                \
      "of adalr_lion and clip_lion: a norm so many times the usual one is an " \
      "outlier (clip_lion: 5 where it is not given)")                          \
    S(optimizer, INT(0, 999), outlier_timeout, "100", ADDED,                   \
      "of adalr_lion: steps for which an outlier lowers its tensor's rate")    \
    S(optimizer, FLOAT(0, 1), outlier_penalty, "0.707", ADDED,                 \
      "of adalr_lion: what each outlier multiplies the rate by")               \
    S(optimizer, FLOAT(0, 1), outlier_floor, "1e-4", ADDED,                    \
      "of adalr_lion: the rate's share that is left at least")

#define OPTIMIZER_OWN_SETTINGS(S, ADDED)                                       \
    SGD_SETTINGS(S, ADDED)                                                     \
    MUON_SETTINGS(S, ADDED)                                                    \
    ADAFACTOR_SETTINGS(S, ADDED)                                               \
    LION_SETTINGS(S, ADDED)
