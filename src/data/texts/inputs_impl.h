/* What the parts of inputs.c share. */
#pragma once

#include "src/data/texts/inputs.h"

/* Keep what is meant of the files from `first` on, which are the folder's. */
enum err inputs_split(struct inputs *inputs, size_t first, const char *folder);

/* A file of a folder is left out. */
enum err inputs_pass(struct inputs *inputs, const char *path, const char *why);
