/* The tensors of a GGUF file and the parameters of ours: pieces as those of a
 * Hugging Face folder (hf_names.h), by the names that llama.cpp knows. The rows
 * of shape are the tensor's, so its dims are shape's backwards. */
#pragma once

#include "src/formats/gguf/gguf_config.h"
#include "src/formats/hf/hf_names.h"

/* As hf_names_create(); ERR_UNSUPPORTED, too, where files of the architecture
 * can't have the model. */
enum err gguf_names_create(enum gguf_arch arch,
                           const struct model_config *model,
                           const struct params *params, int64_t vocab,
                           struct hf_names **out);

/* The output layer, which files of tied models may have once more. */
#define GGUF_NAMES_HEAD "output.weight"
