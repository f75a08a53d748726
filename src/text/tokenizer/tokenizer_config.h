/* What stands beside a tokenizer.json that we write, so that transformers uses
 * it as it is. */
#pragma once

#include <jansson.h>

/* A tokenizer_config.json: which inputs a model has, on which side a batch of
 * prompts is filled up (where answers do not begin), and tokens by their texts,
 * which it takes over; NULL: there is none. Without one for padding it is that
 * of the end. NULL: out of memory. */
json_t *tokenizer_config_make(json_t *bos, json_t *eos, json_t *pad);
