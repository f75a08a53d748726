/* What an attempt does before its first step, and for how long: told on rank 0 while
 * one part takes long, and of all parts when the first step is at hand. */
#pragma once

#include <jansson.h>

struct train_stages;

/* NULL, for which the others do nothing, but where the launcher says rank 0. */
struct train_stages *train_stages_create(void);
/* From now on it is at this; `name` lives on. NULL: the end, and it is freed. */
void train_stages_next(struct train_stages *stages, const char *name);
/* The end: tells the seconds of each, and returns them. */
json_t *train_stages_end(struct train_stages *stages);
