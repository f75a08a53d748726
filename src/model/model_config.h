/* The shape of a language model, and the presets.
 *
 * Parameters of an MPT model with learned positions, biases and tied
 * embeddings: V d + S d + L (12 d^2 + 13 d) + 2 d with expansion 4 (MosaicML
 * LLM Foundry's pretraining configurations). */
#ifndef TESSERA_MODEL_MODEL_CONFIG_H
#define TESSERA_MODEL_MODEL_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "src/base/err.h"

enum model_positions {
    POSITIONS_LEARNED, /* added to the embedding: max_seq_len rows */
    POSITIONS_ALIBI,   /* bias of the scores, linear in the distance */
    POSITIONS_ROPE     /* rotation of queries and keys */
};

enum model_norm_kind { MODEL_NORM_LAYERNORM, MODEL_NORM_RMSNORM };

enum model_qk_norm {
    QK_NORM_NONE,
    QK_NORM_FULL, /* one norm over all heads of the queries, one of the keys */
    QK_NORM_HEAD  /* each head apart, weights shared by the heads */
};

enum model_ffn {
    FFN_MLP, /* down(act(up(x))) */
    FFN_GLU  /* down(act(gate(x)) * up(x)) */
};

enum model_activation { MODEL_GELU, MODEL_SILU };

/* Standard deviation (or half width) of fresh matrices; every kind but neox
 * divides those that write into the residual stream by sqrt(2 L). With kaiming
 * the matrix that makes the logits, and the positions beside it where it is the
 * embedding, are those of PARAM_LOGIT_VARIANCE (params.h). */
enum model_init {
    MODEL_INIT_KAIMING_NORMAL,  /* sqrt(2 / fan_in) */
    MODEL_INIT_KAIMING_UNIFORM, /* within sqrt(6 / fan_in) */
    MODEL_INIT_XAVIER_NORMAL,   /* sqrt(2 / (fan_in + fan_out)) */
    MODEL_INIT_XAVIER_UNIFORM,  /* within sqrt(6 / (fan_in + fan_out)) */
    MODEL_INIT_SMALL,           /* sqrt(2 / (5 d)) */
    MODEL_INIT_NEOX,            /* small; residual ones / (L / sqrt(10)) */
    MODEL_INIT_BASELINE         /* init_std */
};

struct model_config {
    int64_t d_model;
    int64_t n_heads;
    int64_t n_kv_heads; /* divides n_heads; 1: multi-query */
    int64_t n_layers;
    int64_t vocab_size;
    int64_t max_seq_len;
    int64_t ffn_width; /* hidden width of the MLP, of each expert */

    enum model_positions positions;
    double rope_theta;
    double alibi_bias_max;

    enum model_norm_kind norm;
    bool norm_low_precision; /* norms read and write bf16 */
    double norm_eps;
    enum model_qk_norm qk_norm;
    double clip_qkv; /* bound of |q|, |k|, |v|; 0: none */

    enum model_ffn ffn;
    enum model_activation activation;
    bool bias; /* of linear layers and layer norms */
    bool tied; /* logits use the embedding */

    double logit_scale;    /* multiplies logits */
    double residual_scale; /* multiplies what a branch adds to the stream */

    double dropout_embedding; /* probabilities, in training only */
    double dropout_attention;
    double dropout_residual;

    enum model_init init;
    double init_std;           /* of MODEL_INIT_BASELINE */
    double init_embedding_std; /* 0: by init */

    int64_t experts;         /* 0: no mixture of experts */
    int64_t experts_top_k;   /* of them for each token */
    double router_jitter;    /* router's input times U(1 - j, 1 + j) */
    double router_normalize; /* p of the L_p norm of a token's weights; 0: no */
    double balance_weight;   /* of the load-balance loss */
};

/* The named shape; ERR_USAGE lists the names. */
enum err model_config_preset(const char *name, struct model_config *out);

/* The presets' names as "a|b|c", for the settings schema. */
const char *model_config_presets(void);

/* Limits and divisibility; ERR_USAGE names the setting. */
enum err model_config_check(const struct model_config *config);

/* Trainable parameters; nothing is allocated. */
int64_t model_config_param_count(const struct model_config *config);
/* Those that take part in one token: top_k of the experts. */
int64_t model_config_active_count(const struct model_config *config);

/* Model FLOPs of one sequence of `seq_len` tokens, forward and backward, by the
 * convention of LLM Foundry: 3 * (2 P S + 4 L d S^2), P the active parameters,
 * without the embedding when it is not tied; attention is not halved for the
 * causal mask. The basis of `mfu`. */
double model_config_flops_per_sequence(const struct model_config *config,
                                       int64_t seq_len);
/* The same, causal: 3 * (2 P S + 2 L d S^2), P without the embeddings that no
 * matrix product reads (6 N + 6 L d S per token, llm.c and torchtitan). The
 * basis of `mfu_causal`. */
double model_config_flops_per_sequence_causal(const struct model_config *config,
                                              int64_t seq_len);

/* Slopes of ALiBi for any number of heads: with h' the next power of two,
 * 2^(-bias_max i / h') for i = 1..h'; when h' is not heads, those at odd places
 * (0-based 1, 3, ...), then at even ones, the first `heads` of them (Press,
 * Smith and Lewis 2021, as in LLM Foundry). */
void model_config_alibi_slopes(const struct model_config *config,
                               float *slopes);

#endif
