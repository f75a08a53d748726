/* The keys of a tokenizer.json beside its model. */
#pragma once

#include "src/text/tokenizer/tokenizer_decode.h"
#include "src/text/tokenizer/tokenizer_reader.h"

enum err tokenizer_parts_normalizer(const struct tokenizer_node *root,
                                    struct tokenizer *tokenizer);
enum err tokenizer_parts_pre_tokenizer(const struct tokenizer_node *root,
                                       struct tokenizer *tokenizer);
enum err tokenizer_parts_decoder(const struct tokenizer_node *root,
                                 const struct tokenizer *tokenizer,
                                 struct tokenizer_decode *decode);
/* After the model. */
enum err tokenizer_parts_post_processor(const struct tokenizer_node *root,
                                        struct tokenizer *tokenizer);
