/* Scales of 8-bit operands (train.precision = "fp8"), by the largest values of
 * the last steps (delayed scaling: Micikevicius et al. 2022).
 *
 * An operand is scaled before it is rounded, by the largest power of two that
 * keeps the largest magnitude of TRAINER_FP8_STEPS batches, over all ranks,
 * within its format; by 1 while there was nothing but zeros. A power of two
 * changes no bit of a value, and a maximum is the same however the leaves are
 * shared, so bits do not depend on the number of ranks. What a step finds
 * counts from the next one on; a value that has grown beyond is cut to the
 * largest of the format until then. */
#pragma once

#include <jansson.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/comm/comm.h"
#include "src/model/model.h"

#define TRAINER_FP8_STEPS 16

struct trainer_fp8;

/* For `count` operands (model_fp8_count()), with a history of zeros. memory is
 * borrowed. */
enum err trainer_fp8_create(const struct kernel_memory *memory, int64_t count,
                            struct trainer_fp8 **out);
/* When no copy is under way. */
void trainer_fp8_destroy(struct trainer_fp8 *fp8);

/* Enqueue the scales' way to the model, for what it computes from then on. */
enum err trainer_fp8_give(const struct trainer_fp8 *fp8, struct model *model);
/* Lent: [count] of host_create()'s memory, for a batch's magnitudes. */
float *trainer_fp8_found(struct trainer_fp8 *fp8);
/* What was found, with the other ranks' that are larger, into the history: new
 * scales. No earlier trainer_fp8_give() is under way any more. Collective. */
enum err trainer_fp8_learn(struct trainer_fp8 *fp8, struct comm *comm);

/* Lent: [count]. */
const float *trainer_fp8_scales(const struct trainer_fp8 *fp8);
const float *trainer_fp8_unscales(const struct trainer_fp8 *fp8);

/* The history, exactly, to and from a checkpoint's state; nothing happens
 * without one (NULL). Restoring makes new scales, as learning does.
 * ERR_CHECKPOINT, and fp8 is what it was: there is none of so many operands. */
enum err trainer_fp8_store(const struct trainer_fp8 *fp8, json_t *state);
enum err trainer_fp8_restore(struct trainer_fp8 *fp8, const json_t *state);
