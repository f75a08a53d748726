/* Takes a configuration through a table of keys, in both directions. The
 * configuration is a JSON object: config.json, or the keys of a GGUF file by
 * their names, with no objects within.
 *
 * A key that is in no table, or a value that our model cannot have, is refused
 * by name: a model that computes something else than its file says is worse
 * than none. Keys that do not change what the model computes are in the tables,
 * too, and not read. */
#pragma once

#include <jansson.h>

#include "src/base/err.h"
#include "src/formats/arch/arch.h"

/* From what the row says, to what `keys` say; `common` are names of others, as a
 * list of globs, that a file may have. ERR_DATA: a key is missing or malformed,
 * or two for one field differ; ERR_UNSUPPORTED: names what our model lacks. */
enum err arch_keys_read(const struct arch_row *row, const struct arch_key *keys,
                        const char *common, const json_t *root,
                        struct arch_values *values);
/* Completes and checks values->model: ERR_UNSUPPORTED where it is none. */
enum err arch_keys_end(struct arch_values *values);

/* The values of a model that is written. */
void arch_keys_begin(const struct model_config *model,
                     struct arch_values *values);
/* Is there anything to write of a key? Numbers of 0 and names that are meant
 * where the key is not there are nothing. */
bool arch_keys_given(const struct arch_key *key,
                     const struct arch_values *values);
/* As it is written; the caller has it. NULL: out of memory. */
json_t *arch_keys_value(const struct arch_key *key,
                        const struct arch_values *values);
