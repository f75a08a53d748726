/* Batches that a thread reads before they are asked for.
 *
 * Which ones is known in advance: a step takes samples at the same offsets from
 * its first position on, and the next step begins `stride` positions later.
 * Who asks for another batch than the next gets it, too, and the thread goes on
 * from there; so nothing of it has to be saved, and a batch is the same as
 * without. An error is that of the batch in whose reading it occurred, and is
 * told when that one is asked for. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/data/set/loader.h"

struct loader_ahead;
struct timeline;

struct loader_ahead_plan {
    /* lent, and until the end nobody else's to read */
    struct dataset *const *datasets;
    int dataset_count;
    struct order *order;
    int depth; /* batches, > 0 */
    int64_t samples, seq_len;
    bool truncate, joined;     /* as in the batch */
    int64_t stride;            /* positions */
    const int64_t *offsets;    /* [count] ascending, < stride; copied */
    int count;                 /* batches of a step, > 0 */
    struct timeline *timeline; /* that is told of the reading; NULL: none */
};

/* All memory is taken here: `depth` batches. */
enum err loader_ahead_create(const struct loader_ahead_plan *plan,
                             struct loader_ahead **out);
/* Ends a reading that waits for a remote file. NULL is fine. */
void loader_ahead_destroy(struct loader_ahead *ahead);

/* As loader_read() for the plan's number of samples at `first`, which is one of
 * its positions. */
enum err loader_ahead_read(struct loader_ahead *ahead, int64_t first,
                           struct batch *batch);
