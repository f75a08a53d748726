/* The shape of a model in the keys of a GGUF file.
 *
 * The architecture's table (arch.h) says what each key means. What files leave
 * to the architecture's name, say biases, is seen from the tensors. */
#pragma once

#include "src/base/err.h"
#include "src/formats/arch/arch.h"
#include "src/formats/gguf/gguf.h"
#include "src/formats/gguf/gguf_writer.h"

#define GGUF_CONFIG_ARCH_KEY "general.architecture"
#define GGUF_CONFIG_EMBEDDING "token_embd.weight"

/* ERR_DATA: a key is missing or malformed; ERR_UNSUPPORTED: names what our
 * model lacks. */
enum err gguf_config_read(const struct gguf *gguf, enum arch *arch,
                          struct model_config *model);

/* Files have floats: 1e-5 where 9.99999974e-06 is meant by it. */
double gguf_config_shortest(double value);

/* The one that expresses the model; ERR_UNSUPPORTED: none does. */
enum err gguf_config_choose(const struct model_config *model, enum arch *arch);
/* Pairs of the tensor ARCH_GGUF_FREQS, and what it holds; 0: files of this
 * model have none. */
int64_t gguf_config_freqs(const struct model_config *model,
                          float freqs[MODEL_ROPE_PAIRS_MAX]);
/* The architecture and its keys. */
enum err gguf_config_write(struct gguf_writer *writer, enum arch arch,
                           const struct model_config *model);
