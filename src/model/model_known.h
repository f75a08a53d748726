/* Whoever computes a model anew can do so with the options that he knows, and
 * says which: one that is not in his list is refused by itself until somebody
 * teaches him. */
#pragma once

#include "src/base/settings/settings.h"

/* MODEL_SETTINGS as a table, by names within the group. */
extern const struct setting model_known_rows[];
extern const int model_known_row_count;

/* `known` has names, each between two blanks. ERR_UNSUPPORTED names the first
 * row of the table that is not among them and whose value is not its default. */
enum err model_known_check(const struct setting *rows, int count,
                           const void *config, const char *known,
                           const char *who);
