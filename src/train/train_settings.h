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
#include "src/model/model_memory.h"

struct train_settings {
    struct {
        char dir[SETTINGS_TEXT_BYTES];
        char mode[SETTINGS_TEXT_BYTES], group[SETTINGS_TEXT_BYTES];
    } run;
    struct {
        char preset[SETTINGS_TEXT_BYTES];
        int64_t d_model, n_heads, n_kv_heads, n_layers, vocab_size, max_seq_len;
        double expansion_ratio;
        int64_t ffn_width;
        char positions[SETTINGS_TEXT_BYTES];
        double rope_theta, alibi_bias_max;
        char norm[SETTINGS_TEXT_BYTES];
        double norm_eps;
        char qk_norm[SETTINGS_TEXT_BYTES];
        double clip_qkv;
        bool attn_uses_sequence_id;
        char ffn[SETTINGS_TEXT_BYTES];
        char activation[SETTINGS_TEXT_BYTES];
        bool bias, tied;
        double logit_scale, residual_scale;
        double dropout_embedding, dropout_attention, dropout_residual;
        char init[SETTINGS_TEXT_BYTES];
        double init_std, init_embedding_std;
        int64_t experts, experts_top_k;
        double router_jitter, router_normalize, balance_weight;
    } model; /* after train_settings_load() what is not given is the preset's */
    struct {
        char checkpoint[SETTINGS_TEXT_BYTES]; /* targets and blocks */
        char compression[SETTINGS_TEXT_BYTES];
        int64_t limit; /* bytes per rank; 0: none */
    } memory;
    struct {
        char train[SETTINGS_TEXT_BYTES];
        char eval[SETTINGS_TEXT_BYTES];
        int64_t seq_len;
        char too_long[SETTINGS_TEXT_BYTES];
        char verify[SETTINGS_TEXT_BYTES];
    } data;
    struct {
        struct duration max_duration;
        int64_t global_batch;      /* samples */
        int64_t microbatch;        /* samples per leaf */
        bool microbatch_automatic; /* not a setting: it was 0 */
        int64_t seed;
        char precision[SETTINGS_TEXT_BYTES];
        double clip_norm;
        char on_spike[SETTINGS_TEXT_BYTES];
        double spike_loss, spike_norm; /* times the median; 0: no bound */
    } train;
    struct {
        char name[SETTINGS_TEXT_BYTES];
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
        char strategy[SETTINGS_TEXT_BYTES];
        int64_t shard_degree;                   /* ranks; 0: all */
        int64_t prefetch;                       /* blocks */
        int64_t expert_degree, sequence_degree; /* ranks */
        int64_t sequence_chunks;                /* of a sequence */
        char reduce_precision[SETTINGS_TEXT_BYTES];
        char determinism[SETTINGS_TEXT_BYTES];
        char exchange[SETTINGS_TEXT_BYTES];
        int64_t slots;
        double timeout_s;
        bool allow_arithmetic_change;
    } parallel;
    struct {
        int64_t threads;
        char backend[SETTINGS_TEXT_BYTES];
        char kernel_set[SETTINGS_TEXT_BYTES];
        char graphs[SETTINGS_TEXT_BYTES];
        char fallback[SETTINGS_TEXT_BYTES];
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

/* The same for a plan: settings that a run must have may be missing, and are
 * empty or 0 then. Slots and microbatch of a global batch that is not known are
 * 8 and 1. */
enum err train_settings_load_partial(const char *path, char *const *overrides,
                                     int override_count,
                                     struct train_settings *out);

struct model_config train_settings_model(const struct train_settings *settings);

/* memory.checkpoint and memory.compression, parsed. */
enum err train_settings_memory(const struct train_settings *settings,
                               struct model_memory *out);

/* One setting as text, for `tessera-train --print KEY`; *text is malloc'ed. */
enum err train_settings_print(const struct train_settings *settings,
                              const char *key, char **text);

/* Whether the setting decides the result: model.*, data.seq_len,
 * memory.compression, train.*, optimizer.*, scheduler.*, parallel.slots,
 * parallel.sequence_chunks, parallel.determinism. */
bool train_settings_decides(const char *key);

/* SHA-256 over the resolved settings that decide the result. */
enum err train_settings_hash(const struct train_settings *settings,
                             char hex[65]);

#endif
