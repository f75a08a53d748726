/* config.json of a Hugging Face folder, and the shape of our model.
 *
 * One table for each architecture says what each key means. A key that is in
 * none, or a value that our model cannot have, is refused by name: a model that
 * computes something else than its file says is worse than none. Keys that do
 * not change what the model computes (those of tokens, caches, names, numeric
 * implementations) are listed, too, and not read, nor are first values of
 * weights. The weight of a router's balance in the loss is read for who trains
 * the model: DBRX's moe_loss_weight as it is; Mixtral's router_aux_loss_coef
 * times experts_top_k, because the library adds up the choices of a token where
 * we take their mean.
 *
 * Of low_precision_* norms (model_config.h) a file knows nothing: they are
 * written as the plain ones; MPT's norm_type is read as the plain one. */
#pragma once

#include "src/base/err.h"
#include "src/model/model_config.h"

enum hf_arch {
    HF_LLAMA,
    HF_MISTRAL, /* without a sliding window: Llama by another name */
    HF_QWEN2,   /* Llama with biases of queries, keys and values alone */
    HF_GPT2,
    HF_MPT, /* ALiBi, no biases, tied */
    HF_MIXTRAL,
    HF_DBRX,
    HF_ARCHS
};

/* "LlamaForCausalLM" */
const char *hf_config_arch_name(enum hf_arch arch);

/* Reads the text of a config.json; `path` is for messages. ERR_DATA: malformed;
 * ERR_UNSUPPORTED: names the key that our model lacks. */
enum err hf_config_parse(const char *text, size_t bytes, const char *path,
                         enum hf_arch *arch, struct model_config *model);

/* The text of a config.json, which the caller frees. dtype: "bfloat16",
 * "float16" or "float32". ERR_UNSUPPORTED names a setting that the
 * architecture cannot express: what is written is read again and compared. */
enum err hf_config_text(enum hf_arch arch, const struct model_config *model,
                        const char *dtype, char **text);
/* The setting in which two models compute differently, or NULL. */
const char *hf_config_difference(const struct model_config *a,
                                 const struct model_config *b);
/* The architecture that expresses the model: the first of Llama, Qwen2, GPT-2,
 * MPT, Mixtral and DBRX. ERR_UNSUPPORTED: none does, with each one's reason. */
enum err hf_config_choose(const struct model_config *model, enum hf_arch *arch);
