/* The parts of a tokenizer.json: each reads one key of it into the tokenizer,
 * and refuses what it can't do by file and place. */
#pragma once

#include "src/text/tokenizer/tokenizer_decode.h"
#include "src/text/tokenizer/tokenizer_reader.h"

/* model and added_tokens, of which the latter's numbers follow the former's,
 * after all parts but the post-processor. */
enum err tokenizer_model_read(const struct tokenizer_node *root,
                              const struct tokenizer_decode *decode,
                              struct tokenizer *tokenizer);
