/* The model's way to weights and gradients: the calls of struct param_access,
 * which hide from the model whether a block is here or has to be gathered.
 *
 * The model says of each block "gather", "release", "gradient", "done", in the
 * order in which it walks, and knows no strategy. Under ddp and zero1 these
 * calls return a place in memory, or do nothing; under zero2 "done" sends a
 * gradient to its owners; under zero3 "gather" waits for weights that were
 * asked for some blocks ago. So a strategy is a table of calls, and the model
 * is written once for all. */
#include <assert.h>

#include "src/parallel/gradient_zero.h"
#include "src/base/log.h"
#include "src/parallel/replica_impl.h"
#include "src/parallel/tree.h"

/* After a failed exchange the order of calls is lost for good. */
static enum err noted(struct replica *replica, enum err rc)
{
    replica->broken |= rc != ERR_OK;
    return rc;
}

enum err replica_sent(struct replica *replica, enum err rc)
{
    if (noted(replica, rc) == ERR_OK || rc == ERR_COMM)
        return rc;
    log_error("%s", err_text());
    return err_set(ERR_COMM, "%s", err_text());
}

/* --- whole gradients of a slot: nothing happens but the first call, and in the rank's
 * last leaf the last one --- */

static enum err whole_gather(void *arg, int block, const void **weights)
{
    struct replica *replica = arg;
    size_t item = dtype_bytes(replica->options.dtype);
    replica->leaf_opened &= block != 0; /* with which a leaf begins */
    *weights = replica_by_block(&replica->options)
                   ? replica_shard(replica, block)
                   : replica->weights +
                         (size_t)replica->params->blocks[block].offset * item;
    return ERR_OK;
}

static enum err frozen_weights(void *arg, int block, const void **weights)
{
    const struct replica *replica = arg;
    *weights = frozen_block(replica->frozen, block);
    return ERR_OK;
}

static enum err whole_release(void *arg, int block)
{
    (void)arg;
    (void)block;
    return ERR_OK;
}

/* NULL: the leaf adds to its slot's gradient itself. */
static float *leaf_block(const struct replica *replica, int block)
{
    int leaf = replica_leaf(replica, replica->microstep);
    bool last = block == replica->params->block_count - 1;
    if (leaf % replica->options.leaves == 0 || (last && replica->once[1]) ||
        (block == 0 && replica->once[0]))
        return NULL;
    return replica->leaf_block[access_trace_place(replica->params, block)];
}

static bool whole_once(void *arg, int block)
{
    struct replica *replica = arg;
    if (!replica->options.adds_once || leaf_block(replica, block) == NULL)
        return false;
    replica->once[block != 0] = true;
    return true;
}

/* The leaf's gradient begins at zero, and so does the slot's with its first
 * leaf. */
static bool begins_at_zero(const struct replica *replica, int block)
{
    return leaf_block(replica, block) != NULL ||
           replica_begins_slot(replica, replica->microstep);
}

/* A library's products that begin are others than those that add, and only the
 * first leaf's are measured: so it is all leaves, or none where some go on in
 * place. */
static bool whole_begins(void *arg, int block)
{
    struct replica *replica = arg;
    const struct replica_options *options = &replica->options;
    bool alike =
        options->adds_once || options->exact ||
        (int64_t)options->slots * options->leaves <= replica->owner->ranks;
    if (!alike || !begins_at_zero(replica, block))
        return false;
    replica->begun = block;
    return true;
}

static enum err whole_gradient(void *arg, int block, float **gradient)
{
    struct replica *replica = arg;
    const struct param_block *b = &replica->params->blocks[block];
    float *leaf = leaf_block(replica, block);
    bool opened = block == 0 && replica->leaf_opened;
    bool begun = replica->begun == block;
    assert(replica->slot_gradient != NULL);
    *gradient = leaf != NULL ? leaf : replica->slot_gradient + b->offset;
    if (replica->sends)
        reduce_test(replica->reduce);
    replica->begun = -1;
    replica->leaf_opened |= block == 0;
    return opened || !begins_at_zero(replica, block)
               ? ERR_OK
               : gradient_zero(replica->kernels, replica->ctx, replica->params,
                               block, begun, *gradient);
}

static enum err whole_done(void *arg, int block)
{
    struct replica *replica = arg;
    const struct param_block *b = &replica->params->blocks[block];
    const float *leaf = leaf_block(replica, block);
    if (leaf != NULL)
        TRY(replica->kernels->accumulate(replica->ctx, DTYPE_F32, b->elements,
                                         leaf,
                                         replica->slot_gradient + b->offset));
    if (!replica->sends)
        return ERR_OK;
    int piece = owner_block_at(replica->pieces, b->offset);
    return replica_sent(replica, reduce_piece_done(replica->reduce, piece));
}

/* In which of the sum's buffers the slot's gradient is, whether it begins, and
 * whether the leaf has one of its own. Who asks keeps the leaf's ops and may leave out
 * its calls, and a message is no op: blocks are sent when the leaf has ended. */
static int64_t whole_fixed(void *arg)
{
    struct replica *replica = arg;
    replica->sends = false;
    int64_t number =
        replica->leaf_layouts * TREE_DEPTH_MAX + reduce_lent(replica->reduce);
    return 4 * number + 2 * replica_begins_slot(replica, replica->microstep) +
           (leaf_block(replica, 0) != NULL);
}

/* --- block by block --- */

static bool is_gathered(const struct replica *replica, int block)
{
    return replica->gather != NULL && !replica->owner->blocks[block].apart;
}

static enum err block_gather(void *arg, int block, const void **weights)
{
    struct replica *replica = arg;
    access_trace_step(replica->trace, TRACE_GATHER, block);
    if (!is_gathered(replica, block))
        return whole_gather(arg, block, weights);
    return noted(replica, gather_block(replica->gather, block, weights));
}

static enum err block_release(void *arg, int block)
{
    struct replica *replica = arg;
    access_trace_step(replica->trace, TRACE_RELEASE, block);
    if (is_gathered(replica, block))
        gather_release(replica->gather, block);
    return ERR_OK;
}

/* Each leaf has gradients of its own. */
static bool block_begins(void *arg, int block)
{
    struct replica *replica = arg;
    replica->begun = block;
    return true;
}

static enum err block_gradient(void *arg, int block, float **gradient)
{
    struct replica *replica = arg;
    bool begun = replica->begun == block;
    replica->begun = -1;
    access_trace_step(replica->trace, TRACE_GRADIENT, block);
    return noted(replica,
                 scatter_gradient(replica->scatter, block, begun, gradient));
}

static enum err block_done(void *arg, int block)
{
    struct replica *replica = arg;
    access_trace_step(replica->trace, TRACE_DONE, block);
    return noted(replica, scatter_done(replica->scatter, block));
}

static enum err reach(void *arg, void *event)
{
    struct replica *replica = arg;
    return noted(replica, comm_tensors_reach(replica->tensors, event, 0.0));
}

/* A block is some 40 launches for each of this rank's leaves; a device takes
 * about 1000 before it stops the host. */
static enum err pace(void *arg)
{
    struct replica *replica = arg;
    int ahead = COMM_TENSORS_AHEAD / replica_part(&replica->options);
    return noted(replica,
                 comm_tensors_pace(replica->tensors, ahead > 0 ? ahead : 1));
}

struct param_access replica_access_table(struct replica *replica)
{
    if (replica_by_block(&replica->options))
        return (struct param_access){ .arg = replica,
                                      .gather = block_gather,
                                      .release = block_release,
                                      .frozen = frozen_weights,
                                      .gradient = block_gradient,
                                      .begins = block_begins,
                                      .gradient_done = block_done,
                                      .reach = reach,
                                      .pace = pace };
    return (struct param_access){ .arg = replica,
                                  .gather = whole_gather,
                                  .release = whole_release,
                                  .frozen = frozen_weights,
                                  .gradient = whole_gradient,
                                  .once = whole_once,
                                  .begins = whole_begins,
                                  .gradient_done = whole_done,
                                  .fixed = whole_fixed,
                                  .reach = reach,
                                  .pace = pace };
}

enum err replica_finish_trace(struct replica *replica)
{
    const struct trace_call *call;
    const void *weights;
    float *gradient;
    while (!replica->broken &&
           (call = access_trace_look(replica->trace, 0)) != NULL) {
        switch (call->kind) {
        case TRACE_GATHER:
            TRY(block_gather(replica, call->block, &weights));
            break;
        case TRACE_RELEASE:
            TRY(block_release(replica, call->block));
            break;
        case TRACE_GRADIENT:
            TRY(block_gradient(replica, call->block, &gradient));
            break;
        case TRACE_DONE:
            TRY(block_done(replica, call->block));
            break;
        }
    }
    return ERR_OK;
}
