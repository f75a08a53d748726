/* How tokens are chosen and what ends a text, of the keys of a GGUF file as a
 * generation_config.json, and back: tokenizer.ggml.eos_token_id, eot_token_id
 * and eom_token_id are ends, general.sampling.* what is drawn. */
#pragma once

#include <stdint.h>

#include "src/formats/gguf/gguf.h"
#include "src/formats/gguf/gguf_writer.h"

/* Malloc'ed; NULL: the file says nothing. Ends and padding that are none of
 * `tokens` tokens are left out. */
enum err gguf_generation_make(const struct gguf *gguf, uint64_t tokens,
                              char **text);

/* From a generation_config.json (NULL: none). `eos` is the first end, -1: none;
 * `pad` fills up texts, -1: as `eos` does. What has no key is warned of.
 * ERR_DATA: it is no JSON. */
enum err gguf_generation_write(struct gguf_writer *writer,
                               const char *generation, int32_t eos,
                               int32_t pad);
