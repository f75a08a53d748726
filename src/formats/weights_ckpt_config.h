/* What a checkpoint's state says of the model: its shape, from the settings
 * that stay as they were ("fixed"), and what its tokens are ("text"):
 *
 *   "text": {"vocab_size": 50257, "bos": 0, "eos": 0, "chat_template": "..."}
 *
 * bos and eos are -1 where there is none; chat_template may be missing. States
 * of before have no "text". The tokenizer's file is a tensor. */
#pragma once

#include <jansson.h>

#include "src/base/err.h"
#include "src/model/model_config.h"
#include "src/formats/weights.h"

/* u8, the bytes of a tokenizer.json. */
#define WEIGHTS_CKPT_TOKENIZER "data/tokenizer"

/* ERR_CHECKPOINT: `where` has no model, or one that is none. A setting that is
 * younger than the checkpoint has its default. */
enum err weights_ckpt_config_read(const json_t *state, const char *where,
                                  struct model_config *out);
/* A setting's value in "fixed", a number as a number; NULL: out of memory. */
json_t *weights_ckpt_config_value(const struct setting *setting,
                                  const void *values);
/* The model's part of "fixed"; NULL: out of memory. */
json_t *weights_ckpt_config_fixed(const struct model_config *config);

/* The member "text" of a vocabulary and what texts begin and end with, and of a
 * model's other tokens and words (NULL: there is none). NULL: out of memory. */
json_t *weights_ckpt_config_text(int64_t vocab, int64_t bos, int64_t eos,
                                 const struct weights_about *about);
