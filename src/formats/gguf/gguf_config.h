/* The shape of a model in the keys of a GGUF file.
 *
 * One table for each architecture says what each key means. A key of the
 * architecture that is not known, or a value that our model cannot have, is
 * refused by name, as in hf_config.h. What files leave to the architecture's
 * name, say biases, is seen from the tensors. */
#pragma once

#include "src/base/err.h"
#include "src/formats/gguf/gguf.h"
#include "src/formats/gguf/gguf_writer.h"
#include "src/formats/hf/hf_config.h"
#include "src/model/model_config.h"

enum gguf_arch {
    GGUF_LLAMA, /* Mistral, too */
    GGUF_QWEN2,
    GGUF_GPT2,
    GGUF_MPT,
    GGUF_ARCHS
};

#define GGUF_CONFIG_ARCH_KEY "general.architecture"
/* Ours, model.activation: programs that do not know it take that of the
 * architecture. GPT-2's is gelu_tanh, MPT's gelu where the key is not there. */
#define GGUF_CONFIG_ACTIVATION_KEY "tessera.activation"
#define GGUF_CONFIG_EMBEDDING "token_embd.weight"

/* "llama" */
const char *gguf_config_arch_name(enum gguf_arch arch);

/* ERR_DATA: a key is missing or malformed; ERR_UNSUPPORTED: names what our
 * model lacks. */
enum err gguf_config_read(const struct gguf *gguf, enum gguf_arch *arch,
                          struct model_config *model);

/* Files have floats: 1e-5 where 9.99999974e-06 is meant by it. */
double gguf_config_shortest(double value);

/* The one that expresses the model; ERR_UNSUPPORTED: none does. */
enum err gguf_config_choose(const struct model_config *model,
                            enum gguf_arch *arch);
/* The architecture and its keys. */
enum err gguf_config_write(struct gguf_writer *writer, enum gguf_arch arch,
                           const struct model_config *model);
