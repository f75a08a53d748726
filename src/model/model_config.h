/* The shape of a language model, and the presets.
 *
 * Parameters of an MPT model with learned positions, biases and tied
 * embeddings: V d + S d + L (12 d^2 + 13 d) + 2 d with expansion 4 (MosaicML
 * LLM Foundry's pretraining configurations). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernel_shapes.h"
#include "src/base/err.h"
#include "src/base/settings/settings.h"

#define MODEL_LAYERS_MAX 1024

enum model_positions {
    POSITIONS_LEARNED, /* added to the embedding: max_seq_len rows */
    POSITIONS_ALIBI,   /* bias of the scores, linear in the distance */
    POSITIONS_ROPE     /* rotation of queries and keys */
};
static const char *const model_positions_names[] = { "learned", "alibi", "rope",
                                                     NULL };

enum model_norm_kind {
    MODEL_NORM_LAYERNORM,
    MODEL_NORM_RMSNORM,
    MODEL_NORM_LOW_LAYERNORM, /* read and write bf16 */
    MODEL_NORM_LOW_RMSNORM
};
static const char *const model_norm_kind_names[] = { "layernorm", "rmsnorm",
                                                     "low_precision_layernorm",
                                                     "low_precision_rmsnorm",
                                                     NULL };

static inline bool model_norm_is_rms(enum model_norm_kind kind)
{
    return kind == MODEL_NORM_RMSNORM || kind == MODEL_NORM_LOW_RMSNORM;
}

static inline bool model_norm_is_low(enum model_norm_kind kind)
{
    return kind == MODEL_NORM_LOW_LAYERNORM || kind == MODEL_NORM_LOW_RMSNORM;
}

enum model_qk_norm {
    QK_NORM_NONE,
    QK_NORM_FULL, /* one norm over all heads of the queries, one of the keys */
    QK_NORM_HEAD  /* each head apart, weights shared by the heads */
};
static const char *const model_qk_norm_names[] = { "none", "full", "head",
                                                   NULL };

/* Where each half of a block has its norm. */
enum model_norm_place {
    NORM_BEFORE, /* x + branch(norm(x)): GPT-2 */
    NORM_AFTER,  /* x + norm(branch(x)): OLMo 2 */
    NORM_AROUND  /* x + norm(branch(norm(x))): Gemma */
};
static const char *const model_norm_place_names[] = { "before", "after",
                                                      "around", NULL };

enum model_ffn {
    FFN_MLP, /* down(act(up(x))) */
    FFN_GLU  /* down(act(gate(x)) * up(x)) */
};
static const char *const model_ffn_names[] = { "mlp", "glu", NULL };

enum model_activation {
    MODEL_GELU, /* with the normal distribution's integral */
    MODEL_SILU,
    MODEL_GELU_TANH /* with a tanh that is near to it: GPT-2's */
};
static const char *const model_activation_names[] = { "gelu", "silu",
                                                      "gelu_tanh", NULL };

/* The op's. */
static inline enum activation model_activation_op(enum model_activation act)
{
    static const enum activation ops[] = {
        [MODEL_GELU] = ACTIVATION_GELU,
        [MODEL_SILU] = ACTIVATION_SILU,
        [MODEL_GELU_TANH] = ACTIVATION_GELU_TANH,
    };
    return ops[act];
}

/* How the rotary angles of a model that was trained on shorter sequences are
 * changed, as in transformers. */
enum model_rope_scaling {
    ROPE_SCALING_NONE,
    ROPE_SCALING_LINEAR, /* all are divided by the factor */
    ROPE_SCALING_LLAMA3, /* slow ones are, quick ones stay, by what part of a
                            turn they make in the original length */
    ROPE_SCALING_YARN    /* so too, and between by the pair's number; queries
                            and keys become longer */
};
static const char *const model_rope_scaling_names[] = { "none", "linear",
                                                        "llama3", "yarn",
                                                        NULL };

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
static const char *const model_init_names[] = {
    "kaiming_normal", "kaiming_uniform",
    "xavier_normal",  "xavier_uniform",
    "small",          "neox",
    "baseline",       NULL
};

/* The presets' names, by the number that the setting has. The last one,
 * "weights", is no shape of its own but that of the weights which a run starts
 * from. */
extern const char *const model_preset_names[];
extern const int model_preset_weights;

/* The group "model" of settings: a shape is what its settings say. Each entry
 * is a field of the struct, too (src/base/settings/settings.h). */
#define MODEL_SETTINGS(S)                                                      \
    S(model, INDEX(model_preset), preset, "mpt-tiny", SETTING_DECIDES,         \
      "shape of the model; every other model setting that is not given is "    \
      "the preset's; weights: that of model.weights or checkpoint.load, as "   \
      "it is where one is given and no preset",                                \
      .theirs = {                                                              \
          ALSO("flavor model_name model_type model_name_or_path "              \
               "pretrained_model_name_or_path"),                               \
          THEIRS("model.name*", "a shape: \"mpt-125m\", \"llama3-8b\"") })     \
    S(model, INT(0, 65536), d_model, "0", SETTING_STAYS,                       \
      "width of the residual stream; 0: the preset's",                         \
      .theirs = { ALSO("n_embd hidden_size hidden_dim dim") })                 \
    S(model, INT(0, 1024), n_heads, "0", SETTING_STAYS,                        \
      "attention heads; 0: the preset's",                                      \
      .theirs = { ALSO("num_attention_heads num_heads") })                     \
    S(model, INT(0, 1024), n_kv_heads, "0", SETTING_STAYS,                     \
      "heads of keys and values, a divisor of model.n_heads; 0: as many "      \
      "queries for each as in the preset",                                     \
      .theirs = { ALSO("num_key_value_heads num_query_groups kv_n_heads") })   \
    S(model, INT(0, 256), head_dim, "0", SETTING_STAYS_ADDED,                  \
      "width of a head; 0: model.d_model / model.n_heads",                     \
      .theirs = { ALSO("kv_channels") })                                       \
    S(model, INT(0, MODEL_LAYERS_MAX), n_layers, "0", SETTING_STAYS,           \
      "transformer blocks; 0: the preset's",                                   \
      .theirs = { ALSO("n_layer num_layers num_hidden_layers") })              \
    S(model, INT(0, 16777216), vocab_size, "0", SETTING_STAYS,                 \
      "rows of the embedding, at least the data set's; 0: the preset's",       \
      .theirs = { ALSO("padded_vocab_size") })                                 \
    S(model, INT(0, 1048576), max_seq_len, "0", SETTING_STAYS,                 \
      "longest sequence; 0: the preset's",                                     \
      .theirs = { ALSO("n_positions max_position_embeddings") })               \
    S(model, FLOAT(0, 64), expansion_ratio, "0", SETTING_STAYS,                \
      "width of the MLP / d_model; 0: the preset's")                           \
    S(model, INT(0, 1048576), ffn_width, "0", SETTING_STAYS,                   \
      "width of the MLP, of each expert; 0: model.expansion_ratio x "          \
      "model.d_model",                                                         \
      .theirs = { ALSO("intermediate_size ffn_hidden_size") })                 \
    S(model, CHOICE(model_positions), positions, "learned", SETTING_STAYS,     \
      "how the model knows the order of tokens",                               \
      .theirs = { THEIRS("alibi", "\"alibi\""), THEIRS("rope", "\"rope\""),    \
                  THEIRS("learned_pos_emb", "\"learned\""),                    \
                  ALSO("position_embedding_type") })                           \
    S(model, FLOAT(1, 1e12), rope_theta, "1e4", SETTING_STAYS,                 \
      "base of the rotary angles")                                             \
    S(model, CHOICE(model_rope_scaling), rope_scaling, "none",                 \
      SETTING_STAYS_ADDED, "change of the rotary angles for longer sequences") \
    S(model, FLOAT(0, 1e6), rope_factor, "0", SETTING_STAYS_ADDED,             \
      "of model.rope_scaling: what angles are divided by, at least 1",         \
      .theirs = { ALSO("rope_scaling_factor") })                               \
    S(model, FLOAT(0, 1e6), rope_low_freq_factor, "0", SETTING_STAYS_ADDED,    \
      "of llama3: turns within the original length up to which angles are "    \
      "divided by all of the factor")                                          \
    S(model, FLOAT(0, 1e6), rope_high_freq_factor, "0", SETTING_STAYS_ADDED,   \
      "of llama3: turns from which they stay")                                 \
    S(model, INT(0, 1048576), rope_original_len, "0", SETTING_STAYS_ADDED,     \
      "of llama3 and yarn: the original longest sequence",                     \
      .theirs = { ALSO("original_max_position_embeddings") })                  \
    S(model, FLOAT(0, 1e6), rope_beta_fast, "0", SETTING_STAYS_ADDED,          \
      "of yarn: turns within the original length from which angles stay; 0: "  \
      "32")                                                                    \
    S(model, FLOAT(0, 1e6), rope_beta_slow, "0", SETTING_STAYS_ADDED,          \
      "of yarn: turns up to which they are divided by all of the factor; 0: "  \
      "1")                                                                     \
    S(model, FLOAT(0, 1e6), rope_attention_factor, "0", SETTING_STAYS_ADDED,   \
      "of yarn: multiplies queries and keys; 0: 1 + 0.1 ln(factor)")           \
    S(model, INT(0, MODEL_LAYERS_MAX), no_rope_interval, "0",                  \
      SETTING_STAYS_ADDED,                                                     \
      "every layer of this number has no rotary positions, 4: the 4th, the "   \
      "8th; 0: all have",                                                      \
      .theirs = { ALSO("no_rope_layer_interval") })                            \
    S(model, INT(0, 1048576), window, "0", SETTING_STAYS_ADDED,                \
      "tokens that a token attends to, itself the last; 0: all before it",     \
      .theirs = { ALSO("sliding_window sliding_window_size") })                \
    S(model, INT(0, MODEL_LAYERS_MAX), window_interval, "0",                   \
      SETTING_STAYS_ADDED,                                                     \
      "every layer of this number has no window, 4: the 4th, the 8th; 0: all " \
      "have",                                                                  \
      .theirs = { ALSO("sliding_window_pattern") })                            \
    S(model, FLOAT(0, 1e12), window_rope_theta, "0", SETTING_STAYS_ADDED,      \
      "base of the rotary angles in layers with a window, where "              \
      "model.rope_scaling changes nothing; 0: they are as in the others",      \
      .theirs = { ALSO("rope_local_base_freq") })                              \
    S(model, FLOAT(0, 64), alibi_bias_max, "8", SETTING_STAYS,                 \
      "exponent of ALiBi's smallest slope, 2^-this")                           \
    S(model, CHOICE(model_norm_kind), norm, "layernorm", SETTING_STAYS,        \
      "normalisation; low_precision: of bf16 values",                          \
      .theirs = { ALSO("normalization norm_type") })                           \
    S(model, FLOAT(1e-20, 1), norm_eps, "1e-5", SETTING_STAYS,                 \
      "added to the variance",                                                 \
      .theirs = { ALSO("rms_norm_eps layer_norm_eps layer_norm_epsilon "       \
                       "layernorm_epsilon") })                                 \
    S(model, CHOICE(model_norm_place), norm_place, "before",                   \
      SETTING_STAYS_ADDED,                                                     \
      "norms of the stream that a block reads, of what it adds, or of both")   \
    S(model, BOOL, norm_plus_one, "false", SETTING_STAYS_ADDED,                \
      "norms multiply by 1 + their weight")                                    \
    S(model, FLOAT(1e-6, 1e6), embedding_scale, "1", SETTING_STAYS_ADDED,      \
      "multiplies what the embeddings give; in bf16 it is rounded, too",       \
      .theirs = { ALSO("embedding_multiplier") })                              \
    S(model, FLOAT(0, 1e6), attention_scale, "0", SETTING_STAYS_ADDED,         \
      "multiplies products of queries and keys; 0: 1 / sqrt(head_dim)",        \
      .theirs = { ALSO("softmax_scale attention_multiplier") })                \
    S(model, CHOICE(model_qk_norm), qk_norm, "none", SETTING_STAYS,            \
      "norm of queries and keys: of all heads, or each",                       \
      .theirs = { ALSO("qk_ln attn_qk_ln qk_layernorm") })                     \
    S(model, FLOAT(0, 1e6), clip_qkv, "0", SETTING_STAYS,                      \
      "bound of queries, keys and values; 0: none")                            \
    S(model, BOOL, attn_uses_sequence_id, "true", SETTING_STAYS,               \
      "tokens attend within their document; false: within their sample")       \
    S(model, CHOICE(model_ffn), ffn, "mlp", SETTING_STAYS,                     \
      "down(act(up(x))), or down(act(gate(x)) up(x))",                         \
      .theirs = {                                                              \
          THEIRS("swiglu", "\"glu\", with model.activation = \"silu\""),       \
          ALSO("ffn_type") })                                                  \
    S(model, CHOICE(model_activation), activation, "gelu", SETTING_STAYS,      \
      "of the MLP", .theirs = { ALSO("hidden_act activation_function") })      \
    S(model, BOOL, bias, "true", SETTING_STAYS,                                \
      "biases of linear layers and layer norms",                               \
      .theirs = { THEIRS("no_bias", "the opposite"),                           \
                  ALSO("add_bias_linear") })                                   \
    S(model, BOOL, qkv_bias, "false", SETTING_STAYS_ADDED,                     \
      "biases of queries, keys and values where model.bias is false",          \
      .theirs = { ALSO("add_qkv_bias"),                                        \
                  THEIRS("attention_bias", "and model.out_bias") })            \
    S(model, BOOL, out_bias, "false", SETTING_STAYS_ADDED,                     \
      "bias of attention's output where model.bias is false")                  \
    S(model, BOOL, mlp_bias, "false", SETTING_STAYS_ADDED,                     \
      "biases of a dense MLP where model.bias is false")                       \
    S(model, BOOL, tied, "true", SETTING_STAYS,                                \
      "the output layer is the embedding",                                     \
      .theirs = {                                                              \
          ALSO("tie_word_embeddings"),                                         \
          THEIRS("untie_embeddings_and_output_weights", "the opposite") })     \
    S(model, FLOAT(1e-6, 1e6), logit_scale, "1", SETTING_STAYS,                \
      "multiplies logits")                                                     \
    S(model, FLOAT(1e-6, 1e6), residual_scale, "1", SETTING_STAYS,             \
      "multiplies what a block adds to the stream")                            \
    S(model, FLOAT(0, 0.99), dropout_embedding, "0", SETTING_STAYS,            \
      "probability of dropping after the embedding",                           \
      .theirs = { ALSO("emb_pdrop embd_pdrop") })                              \
    S(model, FLOAT(0, 0.99), dropout_attention, "0", SETTING_STAYS,            \
      "probability of dropping an attention weight",                           \
      .theirs = { ALSO("attn_pdrop attention_dropout") })                      \
    S(model, FLOAT(0, 0.99), dropout_residual, "0", SETTING_STAYS,             \
      "probability of dropping what a block adds",                             \
      .theirs = { ALSO("resid_pdrop hidden_dropout"),                          \
                  THEIRS("dropout",                                            \
                         "model.dropout_embedding and "                        \
                         "model.dropout_attention are the others") })          \
    S(model, CHOICE(model_init), init, "kaiming_normal", SETTING_STAYS,        \
      "fresh matrices; those that write into the stream are smaller, and "     \
      "with kaiming the one that makes logits")                                \
    S(model, FLOAT(0, 1e3), init_std, "0", SETTING_STAYS,                      \
      "standard deviation of model.init = \"baseline\"",                       \
      .theirs = { THEIRS("initializer_range init_method_std",                  \
                         "with model.init = \"baseline\"") })                  \
    S(model, FLOAT(0, 1e3), init_embedding_std, "0", SETTING_STAYS,            \
      "of the embedding; 0: by model.init")                                    \
    S(model, INT(0, 256), experts, "0", SETTING_STAYS,                         \
      "experts of each block; 0: a dense model",                               \
      .theirs = { ALSO("num_experts num_local_experts moe_num_experts") })     \
    S(model, INT(0, 16), experts_top_k, "0", SETTING_STAYS,                    \
      "experts of each token",                                                 \
      .theirs = { ALSO("num_experts_per_tok moe_router_topk moe_top_k") })     \
    S(model, FLOAT(0, 0.99), router_jitter, "0", SETTING_STAYS,                \
      "the router's input is multiplied by U(1 - j, 1 + j)",                   \
      .theirs = { ALSO("moe_jitter_eps") })                                    \
    S(model, FLOAT(0, 64), router_normalize, "0", SETTING_STAYS,               \
      "p of the L_p norm of a token's weights; 0: as they are")                \
    S(model, FLOAT(0, 1e3), balance_weight, "0", SETTING_STAYS,                \
      "weight of the load-balance loss",                                       \
      .theirs = {                                                              \
          ALSO("router_aux_loss_coef moe_aux_loss_coeff moe_loss_weight") })

struct model_config {
    MODEL_SETTINGS(SETTINGS_FIELD)
};

/* Widths of a head, of all queries, of all keys. */
static inline int64_t model_config_head_dim(const struct model_config *config)
{
    return config->head_dim > 0 ? config->head_dim
                                : config->d_model / config->n_heads;
}

static inline int64_t model_config_queries(const struct model_config *config)
{
    return config->n_heads * model_config_head_dim(config);
}

static inline int64_t model_config_kv(const struct model_config *config)
{
    return config->n_kv_heads * model_config_head_dim(config);
}

/* What products of queries and keys are multiplied by. */
float model_config_attention_scale(const struct model_config *config);

/* Whether positions turn in a layer, counted from 0. */
static inline bool model_config_turns(const struct model_config *config,
                                      int64_t layer)
{
    return config->positions == POSITIONS_ROPE &&
           (config->no_rope_interval == 0 ||
            (layer + 1) % config->no_rope_interval != 0);
}

/* The window of a layer; 0: none. */
static inline int64_t model_config_window(const struct model_config *config,
                                          int64_t layer)
{
    bool whole = config->window_interval > 0 &&
                 (layer + 1) % config->window_interval == 0;
    return whole ? 0 : config->window;
}

/* Whether the layer's rotary angles are those of model.window_rope_theta. */
static inline bool model_config_turns_apart(const struct model_config *config,
                                            int64_t layer)
{
    return config->window_rope_theta > 0.0 &&
           model_config_window(config, layer) > 0;
}

/* Which linear layers have biases; experts and routers have none. Norms have
 * them as model.bias says. */
static inline bool model_config_qkv_bias(const struct model_config *config)
{
    return config->bias || config->qkv_bias;
}

static inline bool model_config_out_bias(const struct model_config *config)
{
    return config->bias || config->out_bias;
}

static inline bool model_config_mlp_bias(const struct model_config *config)
{
    return config->bias || config->mlp_bias;
}

/* The named shape; ERR_USAGE: there is none of that name. */
enum err model_config_preset(const char *name, struct model_config *out);

/* Fills in what is 0 where 0 says so: from the shape `preset`, or from what
 * else the configuration has. */
void model_config_complete(struct model_config *config,
                           const struct model_config *preset);

/* Limits and divisibility; ERR_USAGE names the setting. */
enum err model_config_check(const struct model_config *config);

/* Trainable parameters; nothing is allocated. */
int64_t model_config_param_count(const struct model_config *config);
/* Those that take part in one token: top_k of the experts. */
int64_t model_config_active_count(const struct model_config *config);

/* Model FLOPs of one sequence of `seq_len` tokens, forward and backward, by the
 * convention of LLM Foundry: 3 * (2 P S + 4 L d S^2), P the active parameters,
 * without the embedding when it is not tied; attention is not halved for the
 * causal mask, but a layer with a window W has S W instead of S^2. The basis of `mfu`. */
double model_config_flops_per_sequence(const struct model_config *config,
                                       int64_t seq_len);
/* The same, causal: 3 * (2 P S + 2 L d S^2), P without the embeddings that no
 * matrix product reads (6 N + 6 L d S per token, llm.c and torchtitan), and the
 * pairs that are seen of a layer with a window. The
 * basis of `mfu_causal`. */
double model_config_flops_per_sequence_causal(const struct model_config *config,
                                              int64_t seq_len);

/* Pairs of a query and a key in the first layers, whole or those that are seen:
 * S^2 of a layer or S^2 / 2, with a window W S W or S W - W^2 / 2. */
double model_config_pairs(const struct model_config *config, int64_t layers,
                          int64_t seq_len, bool causal);

/* Slopes of ALiBi for any number of heads: with h' the next power of two,
 * 2^(-bias_max i / h') for i = 1..h'; when h' is not heads, those at odd places
 * (0-based 1, 3, ...), then at even ones, the first `heads` of them (Press,
 * Smith and Lewis 2021, as in LLM Foundry). */
void model_config_alibi_slopes(const struct model_config *config,
                               float *slopes);

/* Rotary angles of positions [first, first + count), as the op `rope` reads
 * them: cosines and sines, [count, 2, head_dim / 2]. The angle of pair j at
 * position t is t theta^(-2 j / head_dim), by model.rope_scaling less, in
 * fp64; with yarn both are multiplied by the attention factor. `apart`: those of
 * model.window_rope_theta, without scaling. */
#define MODEL_ROPE_PAIRS_MAX 128 /* of a head; model_config_check() */
/* What the angle of each pair is divided by: 1 without scaling. */
void model_config_rope_divisors(const struct model_config *config,
                                double divisors[MODEL_ROPE_PAIRS_MAX]);
void model_config_rope_table(const struct model_config *config, bool apart,
                             int64_t first, int64_t count, float *table);
/* What model_config_check() says of rotary positions; for it alone. */
enum err model_config_rope_check(const struct model_config *config);

/* Whoever computes a model anew can do so with the options that he knows, and
 * says which: one that is not in his list is refused by itself until somebody
 * teaches him. MODEL_SETTINGS as a table, by names within the group: */
extern const struct setting model_known_rows[];
extern const int model_known_row_count;
/* `known` has names, each between two blanks. ERR_UNSUPPORTED names the first
 * row of the table that is not among them and whose value is not its default. */
enum err model_known_check(const struct setting *rows, int count,
                           const void *config, const char *known,
                           const char *who);
