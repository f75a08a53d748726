/* The parts of a tokenizer.json: each reads one key of it into the tokenizer,
 * and refuses what it can't do by file and place. */
#ifndef TESSERA_TEXT_TOKENIZER_MODEL_H
#define TESSERA_TEXT_TOKENIZER_MODEL_H

#include "src/text/tokenizer_reader.h"

/* model and added_tokens, of which the latter's numbers follow the former's.
 * byte_level: texts are those of the pre-tokenizer ByteLevel. */
enum err tokenizer_model_read(const struct tokenizer_node *root,
                              bool byte_level, struct tokenizer *tokenizer);

#endif
