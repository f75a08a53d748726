/* The intervals of the flat space that a rank updates, each of them by one
 * optimizer with the settings of one group, and where what the optimizer keeps
 * of an interval lies. A tensor without a moment, or with another optimizer's,
 * takes no memory for it: what is kept is packed, span after span.
 *
 * With an optimizer for all of the model a span is a partition (owner.h). Otherwise
 * partitions are cut where the group or the optimizer changes, and one of whole
 * tensors has a span for each. Padding belongs to the tensor before it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "checkpoint/ckpt.h"
#include "src/parallel/optimizer/optimizer.h"
#include "src/parallel/owner.h"

struct span {
    int64_t begin, end; /* in the flat space */
    int block;          /* of the owner's */
    int group;          /* optimizer_find()'s */
    const struct optimizer_ops *optimizer;
    int first, last; /* tensors of which some is here: [first, last) */
    int64_t moment_at[UPDATE_MOMENTS];  /* in its arena */
    int64_t state_at[OPTIMIZER_STATES]; /* of whole tensors; -1: none */
};

struct spans {
    struct span *list;
    int count;
    int64_t moments[UPDATE_MOMENTS]; /* elements of each arena */
    int64_t states;
    int64_t scratch; /* the most that a tensor of the model needs */
    /* [ranks + 1] of each arena: where rank's part of it begins, if it has all
     * (ddp), for reduce_gather(). */
    int64_t *moment_cut[UPDATE_MOMENTS];
    int64_t *state_cut;
};

struct spans_input {
    const struct params *params;
    const struct owner *owner;
    bool all; /* ddp: the rank updates everything */
    const struct optimizer_ops *rest;
    const struct optimizer_group *groups;
    int group_count;
};

/* Whether an optimizer of the model, of those for its tensors, needs whole
 * ones: its name, otherwise NULL. */
const char *spans_whole(const struct spans_input *input);

enum err spans_create(const struct spans_input *input, struct spans **out);
void spans_destroy(struct spans *spans);

/* The span that has this element; NULL: none. */
const struct span *spans_at(const struct spans *spans, int64_t element);

const struct optimizer_ops *spans_optimizer(const struct spans_input *input,
                                            const struct param *param);
