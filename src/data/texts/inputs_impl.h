/* What finding the files (inputs.c) and choosing among those of a folder
 * (inputs_split.c) share. */
#pragma once

#include "src/data/texts/inputs.h"

/* A file of a folder is left out. */
enum err inputs_pass(struct inputs *inputs, const char *path, const char *why);

/* Keep what is meant of the files from `first` on, which are a folder's. */
enum err inputs_split(struct inputs *inputs, size_t first, const char *folder);
