/* The weights that a run's first start takes instead of fresh ones: which they
 * are by the settings, whether they fit the run's model, and how they get
 * there. Once the run has a checkpoint of its own, that is what it goes on
 * from. */
#pragma once

#include <stdbool.h>

#include "src/base/err.h"
#include "src/data/set/dataset.h"
#include "src/model/params.h"
#include "src/train/settings/train_settings.h"
#include "src/formats/weights.h"

/* ERR_USAGE: two are named, or something is said of one that is not. */
enum err start_weights_settings(const struct train_settings *s);

/* The shape of a run whose settings name weights and no preset: that of its own
 * newest checkpoint that can be read, since the others may have gone, else that
 * of those. Without `fetches` ERR_USAGE where that would fetch a model from an
 * address. */
enum err start_weights_shape(const struct train_settings *s, bool fetches,
                             struct model_config *out);

/* What the model computes must be what the weights were trained for: ERR_DATA
 * lists, besides what weights_match() does, settings of other values. A few may
 * differ with a warning (the rotary angles) or without (dropout, sequence
 * length, the start of what is not in the weights). The log has the settings
 * first, then the first tensors. */
enum err start_weights_check(const struct train_settings *s,
                             struct weights *weights,
                             const struct params *params);

/* What the data are made of. */
struct start_weights_data {
    int64_t vocab; /* tokens */
    int64_t eos;   /* ends a document; -1: none is known */
    const char *tokenizer_sha256;
    const char *tokenizer; /* its file, or the name of a built-in one */
};

struct start_weights_data start_weights_data(const struct dataset *data);

/* ERR_DATA: the data are of a tokenizer whose tokens have other texts than those
 * of the weights', which model.weights_tokenizer does not let go. Warns of what else tokens, or their
 * end, mean to the weights, and of experts that nothing balances. */
enum err start_weights_tokens(const struct train_settings *s,
                              const struct weights_about *about,
                              const struct start_weights_data *data);
/* The same of settings alone, for a plan: weights that are not there yet are
 * left out with a warning. */
enum err start_weights_plan(const struct train_settings *s);
