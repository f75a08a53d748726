/* Which examples stand before which in a few-shot prompt, as LLM Foundry draws
 * them: one random.Random(seed) for a task, and for each example in turn a
 * sample of the others' numbers, written in the order of the set that they
 * make. */
#pragma once

#include <stdint.h>

#include "src/base/err.h"

struct icl_shots;

/* shots >= 0 before each of count > 0 examples; count < 2^32. Where there are
 * fewer others than shots they are all shown. */
enum err icl_shots_create(int64_t count, int64_t shots, uint64_t seed,
                          struct icl_shots **out);
void icl_shots_destroy(struct icl_shots *choice);

/* Those of the next example: numbers in [0, count), lent until the next call.
 * At most `count` calls. */
enum err icl_shots_next(struct icl_shots *choice, const int64_t **list,
                        int64_t *listed);
