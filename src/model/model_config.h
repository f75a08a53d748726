/* The shape of a language model, and the presets.
 *
 * Parameters of an MPT model with learned positions, biases and tied
 * embeddings: V d + S d + L (12 d^2 + 13 d) + 2 d with expansion 4 (MosaicML
 * LLM Foundry's pretraining configurations). */
#ifndef TESSERA_MODEL_MODEL_CONFIG_H
#define TESSERA_MODEL_MODEL_CONFIG_H

#include <stdint.h>

#include "src/base/err.h"

struct model_config {
    int64_t d_model;
    int64_t n_heads;
    int64_t n_layers;
    int64_t vocab_size;
    int64_t max_seq_len;
    int64_t expansion_ratio; /* width of the MLP / d_model */
    double norm_eps;
};

/* "mpt-tiny", "mpt-125m", "mpt-350m"; ERR_USAGE lists the names. */
enum err model_config_preset(const char *name, struct model_config *out);

/* The presets' names as "a|b|c", for the settings schema. */
const char *model_config_presets(void);

/* Limits and divisibility; ERR_USAGE names the setting. */
enum err model_config_check(const struct model_config *config);

/* Trainable parameters; nothing is allocated. */
int64_t model_config_param_count(const struct model_config *config);

/* Model FLOPs of one sequence of `seq_len` tokens, forward and backward, by the
 * convention of LLM Foundry: 3 * (2 P S + 4 L d S^2); attention is not halved
 * for the causal mask. The basis of `mfu`. */
double model_config_flops_per_sequence(const struct model_config *config,
                                       int64_t seq_len);

#endif
