/* The settings of a training run: one schema for checking, overrides, --help
 * and the resolved config.cfg. */
#ifndef TESSERA_TRAIN_TRAIN_SETTINGS_H
#define TESSERA_TRAIN_TRAIN_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/base/settings.h"
#include "src/base/units.h"
#include "src/model/model_config.h"

struct train_settings {
    struct {
        char dir[SETTINGS_TEXT_BYTES];
    } run;
    struct {
        char preset[SETTINGS_TEXT_BYTES];
        int64_t d_model, n_heads, n_layers, vocab_size, max_seq_len;
        int64_t expansion_ratio;
    } model; /* after train_settings_load() complete, never 0 */
    struct {
        char train[SETTINGS_TEXT_BYTES];
        char eval[SETTINGS_TEXT_BYTES];
        int64_t seq_len;
    } data;
    struct {
        struct duration max_duration;
        int64_t global_batch; /* samples */
        int64_t microbatch;   /* samples per leaf */
        int64_t seed;
        double clip_norm;
    } train;
    struct {
        double lr, beta1, beta2, eps, weight_decay;
    } optimizer;
    struct {
        char name[SETTINGS_TEXT_BYTES];
        struct duration warmup;
        double alpha_final;
        struct duration t_max;
    } scheduler;
    struct {
        struct duration interval;
        int64_t samples;
    } eval;
    struct {
        struct duration interval;
        char local_dir[SETTINGS_TEXT_BYTES];
        struct duration local_interval;
        char redundancy[SETTINGS_TEXT_BYTES];
        int64_t redundancy_group; /* nodes */
        int64_t keep;
        int64_t keep_every; /* steps */
        bool async;
        double timeout_s;
        int64_t failures_max;
    } checkpoint;
    struct {
        char determinism[SETTINGS_TEXT_BYTES];
        int64_t slots;
        double timeout_s;
        bool allow_arithmetic_change;
    } parallel;
    struct {
        int64_t threads;
        char kernel_set[SETTINGS_TEXT_BYTES];
        double peak_flops; /* per rank */
    } hardware;
    struct {
        int64_t interval; /* steps */
        char level[SETTINGS_TEXT_BYTES];
    } log;
};

extern const struct setting train_settings_schema[];
extern const int train_settings_count;

/* Load, complete (preset, automatic values) and cross-check. path may be NULL.
 * Automatic values depend on other settings only, never on the machine or the
 * number of ranks. */
enum err train_settings_load(const char *path, char *const *overrides,
                             int override_count, struct train_settings *out);

struct model_config train_settings_model(const struct train_settings *settings);

/* One setting as text, for `tessera-train --print KEY`; *text is malloc'ed. */
enum err train_settings_print(const struct train_settings *settings,
                              const char *key, char **text);

/* SHA-256 over the resolved settings that decide the result (model.*, data.*,
 * train.*, optimizer.*, scheduler.*, parallel.slots, parallel.determinism). */
enum err train_settings_hash(const struct train_settings *settings,
                             char hex[65]);

#endif
