/* Leaves as graphs (kernel_memory.h): on a device whose ops are short the host
 * is not done with enqueuing one when the device is done with the one before.
 * So the calls of a leaf are made twice at most for all leaves of its kind,
 * which differ in their numbers alone: the first leaf is enqueued op by op,
 * because libraries make their plans then; the second one is kept, and from
 * then on a leaf is one launch. Its numbers are uploaded before, and its loss
 * goes to a place of the model's and is copied from there, so that neither
 * belongs to the graph. The bits are the same.
 *
 * Kept is training where a leaf's calls depend on little: not with dropout or
 * jitter, which draw by the number of the sample, not in a group of ranks, and
 * not if the weights come by exchanges (params.h: `fixed`). What cannot be
 * captured is said once, and goes on op by op, as do leaves while a profile is
 * on, which is to show their ops. */
#pragma once

#include <stdint.h>

#include "src/base/arena.h"
#include "src/base/err.h"

/* Kinds of a model; leaves of more of them are enqueued op by op. */
#define MODEL_GRAPHS_MAX 64

struct model;

/* Forget all kinds: to be called when the ops do otherwise than before
 * (kernels->choose). Waits for the stream. */
enum err model_graph_forget(struct model *model);

/* Leaves that were launched as graphs so far. */
int64_t model_graph_launches(const struct model *model);

/* For the model's own files: a place for the loss; what there is to remember;
 * and a leaf, whose numbers are there, by run(model) or as a graph of it. */
void model_graph_layout(struct model *model, struct arena *arena);
enum err model_graph_create(struct model *model);
void model_graph_destroy(struct model *model);
enum err model_graph_run(struct model *model, enum err (*run)(struct model *));
