/* The model's way to weights and gradients. */
#include <assert.h>

#include "src/parallel/replica_impl.h"

/* --- whole gradients of a slot: nothing happens but the first call -----------
 */

static enum err whole_gather(void *arg, int block, const float **weights)
{
    struct replica *replica = arg;
    *weights = replica->weights + replica->params->blocks[block].offset;
    return ERR_OK;
}

static enum err whole_nothing(void *arg, int block)
{
    (void)arg;
    (void)block;
    return ERR_OK;
}

static enum err whole_gradient(void *arg, int block, float **gradient)
{
    struct replica *replica = arg;
    bool first =
        replica_leaf(replica, replica->turn) % replica->options.leaves == 0;
    float *base = first || replica->leaf_gradient == NULL
                      ? replica->slot_gradient
                      : replica->leaf_gradient;
    assert(base != NULL);
    *gradient = base + replica->params->blocks[block].offset;
    return ERR_OK;
}

/* --- block by block ----------------------------------------------------------
 */

/* After a failed exchange the order of calls is lost for good. */
static enum err noted(struct replica *replica, enum err rc)
{
    replica->broken |= rc != ERR_OK;
    return rc;
}

static enum err block_gather(void *arg, int block, const float **weights)
{
    struct replica *replica = arg;
    walk_step(replica->walk, WALK_GATHER, block);
    if (replica->gather == NULL)
        return whole_gather(arg, block, weights);
    return noted(replica, gather_block(replica->gather, block, weights));
}

static enum err block_release(void *arg, int block)
{
    struct replica *replica = arg;
    walk_step(replica->walk, WALK_RELEASE, block);
    if (replica->gather != NULL)
        gather_release(replica->gather, block);
    return ERR_OK;
}

static enum err block_gradient(void *arg, int block, float **gradient)
{
    struct replica *replica = arg;
    walk_step(replica->walk, WALK_GRADIENT, block);
    return noted(replica, scatter_gradient(replica->scatter, block, gradient));
}

static enum err block_done(void *arg, int block)
{
    struct replica *replica = arg;
    walk_step(replica->walk, WALK_DONE, block);
    return noted(replica, scatter_done(replica->scatter, block));
}

struct param_access replica_access_table(struct replica *replica)
{
    if (replica_by_block(&replica->options))
        return (struct param_access){ .arg = replica,
                                      .gather = block_gather,
                                      .release = block_release,
                                      .gradient = block_gradient,
                                      .gradient_done = block_done };
    return (struct param_access){ .arg = replica,
                                  .gather = whole_gather,
                                  .release = whole_nothing,
                                  .gradient = whole_gradient,
                                  .gradient_done = whole_nothing };
}

enum err replica_walk_on(struct replica *replica)
{
    enum err rc = ERR_OK;
    const struct walk_call *call;
    const float *weights;
    float *gradient;
    while (!replica->broken && (call = walk_look(replica->walk, 0)) != NULL) {
        switch (call->kind) {
        case WALK_GATHER:
            TRY(block_gather(replica, call->block, &weights));
            break;
        case WALK_RELEASE:
            TRY(block_release(replica, call->block));
            break;
        case WALK_GRADIENT:
            TRY(block_gradient(replica, call->block, &gradient));
            break;
        case WALK_DONE:
            TRY(block_done(replica, call->block));
            break;
        }
    }
out:
    return rc;
}
