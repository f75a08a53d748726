/* One leaf forward and backward, without an optimizer, in memory of the
 * caller's: to compare ways of keeping activations. */
#pragma once

#include <stdint.h>

#include "src/base/err.h"
#include "src/model/model.h"

struct bench_leaf;

/* Flat arenas of params_create()'s table, [elements]; weights as params_init()
 * makes them. All borrowed. */
enum err bench_leaf_create(const struct model_config *config,
                           const struct model_options *options,
                           const float *weights, float *gradient,
                           struct bench_leaf **out);
void bench_leaf_destroy(struct bench_leaf *bench);

/* The gradient of the leaf anew, and how long it took without zeroing. */
enum err bench_leaf_run(struct bench_leaf *bench, double *seconds);

/* Elements of the arenas. */
enum err bench_leaf_elements(const struct model_config *config,
                             int64_t *elements);

/* Fresh weights. Uses OpenMP: in a child only. */
enum err bench_leaf_init(const struct model_config *config, float *weights);

/* What model_plan() says of these options. */
enum err bench_leaf_plan(const struct model_config *config,
                         const struct model_options *options,
                         struct model_bytes *bytes);
