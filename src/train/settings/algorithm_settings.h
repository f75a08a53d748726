/* The settings of the algorithms (algorithm.h): a group of rows for each, as
 * the items of the list `algorithms` have them, and the table of all. A new
 * algorithm is an entry in ALGORITHMS and its group here, and a file
 * algorithm_NAME.c. */
#pragma once

#include <stdbool.h>

#include "kernels/kernel_shapes.h"
#include "src/base/settings/settings_list.h"
#include "src/parallel/replica.h"

/* What the algorithms of a run ask of its parts, before these are made. */
struct algorithm_needs {
    struct replica_kept kept[REPLICA_KEPT];
    struct target target;                /* of the loss */
    double drop_depth, embedding_shrink; /* struct model_options */
    bool clips;                          /* train.clip_norm gives way */
    bool swaps;                          /* has other weights for evaluations */
    bool units; /* norms of rows (src/parallel/norms.h) */
};

enum clipping_type { CLIPPING_NORM, CLIPPING_VALUE, CLIPPING_ADAPTIVE };
static const char *const clipping_type_names[] = { "norm", "value", "adaptive",
                                                   NULL };

#define GRADIENT_CLIPPING_SETTINGS(S)                                          \
    S(gradient_clipping, CHOICE(clipping_type), type, "norm", 0,               \
      "norm: the whole gradient is scaled; value: each element is cut to "     \
      "[-threshold, threshold]; adaptive: rows of matrices and vectors are "   \
      "scaled by the norm of their weights (Brock et al. 2021)")               \
    S(gradient_clipping, FLOAT(1e-30, 1e30), threshold, "1.0", 0,              \
      "of the norm or the value; adaptive: times the weights' norm")           \
    S(gradient_clipping, FLOAT(1e-30, 1e30), eps, "1e-3", 0,                   \
      "of adaptive: the least norm that weights count as")

#define EMA_SETTINGS(S)                                                        \
    S(ema, DURATION, half_life, "1000ba", 0,                                   \
      "in which what has gone into the mean loses half its weight")            \
    S(ema, FLOAT(0, 1), smoothing, "0", 0,                                     \
      "what the mean keeps of itself in an update, instead of a half-life; "   \
      "0: by half_life")                                                       \
    S(ema, DURATION, update_interval, "1ba", 0, "between updates")             \
    S(ema, DURATION, start, "0ba", 0,                                          \
      "the mean begins with the weights of the first step at or after it")

#define SWA_SETTINGS(S)                                                        \
    S(swa, DURATION, start, "0.7dur", 0,                                       \
      "the first weights that go into the mean are those at or after it")      \
    S(swa, DURATION, end, "0.97dur", 0,                                        \
      "here the model's weights become the mean, and training goes on with "   \
      "them")                                                                  \
    S(swa, DURATION, update_interval, "1ep", 0,                                \
      "between weights that go into the mean")

#define LABEL_SMOOTHING_SETTINGS(S)                                            \
    S(label_smoothing, FLOAT(0, 0.999), smoothing, "0.1", 0,                   \
      "share of a label's probability that is spread over the vocabulary")

#define Z_LOSS_SETTINGS(S)                                                     \
    S(z_loss, FLOAT(0, 1e3), weight, "1e-4", 0,                                \
      "of the squared log of the softmax's sum, which is added to the loss")

#define LAYER_FREEZING_SETTINGS(S)                                             \
    S(layer_freezing, STRING, match, NULL, 0,                                  \
      "globs of names, with blanks between: parameters that are held "         \
      "(\"transformer.wte.* *.blocks.0.*\")")                                  \
    S(layer_freezing, DURATION, start, "0.5dur", 0,                            \
      "from when on they are neither updated nor decay")

#define GRADIENT_NOISE_SETTINGS(S)                                             \
    S(gradient_noise, FLOAT(0, 1e6), eta, "0.01", 0,                           \
      "the noise of step t, from 0 on, has the variance eta / (1 + t)^gamma")  \
    S(gradient_noise, FLOAT(0, 100), gamma, "0.55", 0, "see eta")

#define SEQ_LENGTH_WARMUP_SETTINGS(S)                                          \
    S(seq_length_warmup, DURATION, duration, "0.3dur", 0,                      \
      "in which the length grows to max_seq_len")                              \
    S(seq_length_warmup, INT(1, 1048576), min_seq_len, "8", 0,                 \
      "tokens of each sample that the first steps train on, its first ones")   \
    S(seq_length_warmup, INT(0, 1048576), max_seq_len, "0", 0,                 \
      "to which it grows, and where it stays; 0: data.seq_len")                \
    S(seq_length_warmup, INT(1, 1048576), step_size, "8", 0,                   \
      "of which lengths are multiples, but for the least and the largest")

#define STOCHASTIC_DEPTH_SETTINGS(S)                                           \
    S(stochastic_depth, FLOAT(0, 0.99), drop_rate, "0.2", 0,                   \
      "probability of leaving out the last layer of a sample; of lower ones "  \
      "it is less, in proportion to their number (Huang et al. 2016)")

#define SAM_SETTINGS(S)                                                        \
    S(sam, FLOAT(0, 1e6), rho, "0.05", 0,                                      \
      "how far against the gradient's fall the weights go before the "         \
      "gradient that counts is computed (Foret et al. 2021)")                  \
    S(sam, FLOAT(0, 1), epsilon, "1e-12", 0, "added to the gradient's norm")   \
    S(sam, INT(1, 1e9), interval, "1", 0,                                      \
      "every so many steps; the others are plain ones")

#define SELECTIVE_BACKPROP_SETTINGS(S)                                         \
    S(selective_backprop, DURATION, start, "0.5dur", 0,                        \
      "samples are chosen from the first step at or after it on")              \
    S(selective_backprop, DURATION, end, "0.9dur", 0, "and no more from here") \
    S(selective_backprop, FLOAT(1e-6, 1), keep, "0.5", 0,                      \
      "share of a batch's samples that is trained on")                         \
    S(selective_backprop, INT(0, 1e9), interrupt, "2", 0,                      \
      "every so many steps a whole batch; 0: never")

#define EMBEDDING_SCALING_SETTINGS(S)                                          \
    S(embedding_scaling, FLOAT(0, 1e3), gradient, "0.1", 0,                    \
      "what the gradient of the looked up embeddings is multiplied by")

#define PLUGIN_ALGORITHM_SETTINGS(S)                                           \
    S(plugin, STRING, path, NULL, 0,                                           \
      "a shared object with algorithms (tessera_plugin.h)")                    \
    S(plugin, STRING, options, "", 0, "what it is given as text")

/* X(name, settings, help) */
#define ALGORITHMS(X)                                                          \
    X(gradient_clipping, GRADIENT_CLIPPING_SETTINGS,                           \
      "limits the gradient, instead of train.clip_norm")                       \
    X(ema, EMA_SETTINGS,                                                       \
      "an exponential moving average of the weights, which is evaluated "      \
      "instead of them")                                                       \
    X(swa, SWA_SETTINGS,                                                       \
      "the mean of weights along the way, which the model takes over")         \
    X(label_smoothing, LABEL_SMOOTHING_SETTINGS,                               \
      "spreads some of each label's probability over the vocabulary")          \
    X(z_loss, Z_LOSS_SETTINGS, "keeps the softmax's sum near 1")               \
    X(layer_freezing, LAYER_FREEZING_SETTINGS,                                 \
      "holds parameters from some time on")                                    \
    X(gradient_noise, GRADIENT_NOISE_SETTINGS,                                 \
      "adds normal noise to the gradient, ever less (Neelakantan et al. "      \
      "2015)")                                                                 \
    X(seq_length_warmup, SEQ_LENGTH_WARMUP_SETTINGS, "short sequences first")  \
    X(stochastic_depth, STOCHASTIC_DEPTH_SETTINGS,                             \
      "leaves out layers of samples at random")                                \
    X(sam, SAM_SETTINGS,                                                       \
      "sharpness-aware minimization: a second gradient where the first one "   \
      "leads")                                                                 \
    X(selective_backprop, SELECTIVE_BACKPROP_SETTINGS,                         \
      "trains on the part of a batch that has the highest losses (Jiang et "   \
      "al. 2019)")                                                             \
    X(embedding_scaling, EMBEDDING_SCALING_SETTINGS,                           \
      "lets the embedding learn more slowly than the rest (Zeng et al. 2022)") \
    X(plugin, PLUGIN_ALGORITHM_SETTINGS,                                       \
      "algorithms of your own, of a shared object")

#define ALGORITHM_STRUCT(name, settings, help)                                 \
    struct algorithm_##name {                                                  \
        settings(SETTINGS_FIELD)                                               \
    };
ALGORITHMS(ALGORITHM_STRUCT)

/* The kinds of the setting `algorithms`, in the order of the table. */
extern const struct settings_kind algorithm_kinds[];
