/* What options.c and options_usage.c share. */
#pragma once

#include "src/base/settings/options.h"

const struct options_command *
options_command_at(const struct options_program *program, size_t i);
/* Not the end of the rows. */
bool options_row_is(const struct options_row *row);
/* The word of a command's choice that is this option's, "" of no choice; NULL: the
 * command does not have it. Must it, or one of those beside it, be given? */
const char *options_chosen(const char *choice, const char *name);
bool options_must(const char *word);
