/* The tokenizer of a MODEL. */
#pragma once

#include <stdbool.h>

#include "src/base/err.h"
#include "src/text/tokenizer/tokenizer.h"
#include "src/formats/weights.h"

/* The one that is called `given`, as tokenizer_create() has it, with a warning
 * if it is not the one that the model was trained with, as far as that is
 * known; NULL: the model's own, *out NULL where it has none. ERR_USAGE, of the
 * model's own ERR_DATA: it has more tokens than the model's embedding has rows.
 */
enum err weights_tokenizer_create(const struct weights_about *about,
                                  const char *given, struct tokenizer **out);

/* For who makes something lasting with it: warns of tokens that the model's
 * files name and number differently. */
void weights_tokenizer_warn_names(const struct weights_about *about);

/* That of the model's own; false: it is not known. */
bool weights_tokenizer_sha256(const struct weights_about *about,
                              char sha256[65]);
