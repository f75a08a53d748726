/* config.json of a Hugging Face folder, and the shape of our model.
 *
 * The architecture's table (arch.h) says what each key means. Keys that do not
 * change what the model computes are those of tokens, caches, names, numeric
 * implementations, and of first values of weights. The weight of a router's
 * balance in the loss is read for who trains the model: DBRX's moe_loss_weight
 * as it is; Mixtral's router_aux_loss_coef times experts_top_k, because the
 * library adds up the choices of a token where we take their mean.
 *
 * Of low_precision_* norms (model_config.h) a file knows nothing: they are
 * written as the plain ones; MPT's norm_type is read as the plain one. */
#pragma once

#include "src/base/err.h"
#include "src/formats/arch/arch.h"

/* Reads the text of a config.json; `path` is for messages. ERR_DATA: malformed;
 * ERR_UNSUPPORTED: names the key that our model lacks. */
enum err hf_config_parse(const char *text, size_t bytes, const char *path,
                         enum arch *arch, struct model_config *model);

/* The text of a config.json, which the caller frees. dtype: "bfloat16",
 * "float16" or "float32". ERR_UNSUPPORTED names a setting that the
 * architecture cannot express: what is written is read again and compared. */
enum err hf_config_text(enum arch arch, const struct model_config *model,
                        const char *dtype, char **text);
/* The setting in which two models compute differently, or NULL. */
const char *hf_config_difference(const struct model_config *a,
                                 const struct model_config *b);
/* The first architecture that expresses the model. ERR_UNSUPPORTED: none does,
 * with each one's reason. */
enum err hf_config_choose(const struct model_config *model, enum arch *arch);
