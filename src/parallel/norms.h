/* Sums of squares of the parts of a model that a replica's ranks have together:
 * of each tensor, or of each unit, all that one output is made of: a row of a
 * matrix, a column of an expert's that is transposed (params.h), or a tensor of
 * one dimension.
 *
 * A part is cut where the flat space is, at multiples of KERNEL_CHUNK: each
 * fragment is one rank's, however the space is dealt. Fragments are summed
 * alone, those of a tensor are added without rounding (src/base/exact.h) and
 * those of a unit, of which there are few, in the order of the space, so that the
 * bits are the same on any number of ranks and with any strategy. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/parallel/replica.h"

struct norms;

/* How many parts the model has, and the number of the one in which an element
 * of a tensor is, by its place there. Those of a tensor follow each other. */
int64_t norms_count(const struct norms *norms);
int64_t norms_part(const struct norms *norms, int tensor, int64_t place);

/* Borrows the replica. Fails on one rank alone. */
enum err norms_create(const struct replica *replica, bool units,
                      struct norms **out);
/* NULL is fine. */
void norms_destroy(struct norms *norms);
/* The memory of it, of the host's. */
size_t norms_bytes(const struct params *params, bool units);

enum norms_of { NORMS_WEIGHTS, NORMS_GRADIENT, NORMS_MOMENT, NORMS_KEPT };

/* sums[norms_count()] of the weights, of the summed gradient, or of the moment
 * or the kept tensor of that index, the same on every rank; units that are zero
 * are 0. On a device the host waits for all that was enqueued. Collective. */
enum err norms_sum(struct norms *norms, enum norms_of what, int index,
                   double *sums);

/* What the next update changes: norms_watch_update() before it, and after it sums
 * of the squares of new weights less old ones, in fp32 masters, the same on
 * every rank; of tensors that it leaves out 0. The replica is the one that
 * norms_create() got, for norms that were made by norms_watch_create(); nothing
 * else is asked of them in between. norms_watched_update() is collective. */
enum err norms_watch_create(const struct replica *replica, struct norms **out);
void norms_watch_update(struct norms *norms, struct replica *replica);
enum err norms_watched_update(struct norms *norms, struct replica *replica,
                              double *sums);
/* The memory of such norms: of parts as tensors; `whole`: some optimizer needs
 * whole tensors. */
size_t norms_watch_bytes(const struct params *params, bool whole);

/* The name of that moment of the tensor; NULL: it has none. */
const char *norms_moment_name(const struct norms *norms, int tensor, int index);
