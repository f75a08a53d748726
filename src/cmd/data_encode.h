/* tessera-data encode and decode: text to tokens and back, for eyes and pipes. */
#pragma once

#include "src/cmd/data_options.h"

/* Standard input, a text, to standard output: its tokens on one line. */
enum err data_encode(struct data_options *options);
/* Standard input, tokens with white space between them, to their text. */
enum err data_encode_back(struct data_options *options);
