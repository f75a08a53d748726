/* Sharpness-aware minimization (Foret et al. 2021): every `interval` steps the
 * weights go up the gradient to a distance of rho, the batch is computed once
 * more there, and the weights as they were are updated by that gradient. The
 * loss that is told is the first one.
 *
 *   W' = W + rho g / (|g| + epsilon)     g: the mean's gradient at W
 *   W  = W - optimizer(gradient at W')
 *
 * So W goes where all of its surroundings have a low loss. The way back is a
 * copy, not a subtraction, which would not give the same bits again. */
#include <assert.h>

#include "src/train/run/run.h"

struct sam {
    struct run *run;
    const struct algorithm_sam *settings;
    int kept;    /* the weights as they were */
    float climb; /* times the summed gradient is how far they go */
    bool away;
};

static enum err sam_needs(const void *settings, struct algorithm_needs *needs)
{
    (void)settings;
    return algorithm_keep(needs, "sam", false);
}

static enum err sam_create(void *self, const void *settings, struct run *run)
{
    struct sam *sam = self;
    sam->run = run;
    sam->settings = settings;
    sam->kept = algorithm_kept(&run->settings.needs, "sam");
    return ERR_OK;
}

static enum err climb_partition(void *arg,
                                const struct replica_partition *partition)
{
    const struct sam *sam = arg;
    const struct run *run = sam->run;
    TRY(run->engine.kernels->memory->copy(
        run->engine.stream, (size_t)partition->elements * sizeof(float),
        partition->weights, partition->kept[sam->kept]));
    return run->engine.kernels->add(
        &run->engine.ctx, DTYPE_F32, partition->elements, partition->weights,
        sam->climb, partition->gradient, partition->weights);
}

static enum err return_partition(void *arg,
                                 const struct replica_partition *partition)
{
    const struct sam *sam = arg;
    const struct run *run = sam->run;
    return run->engine.kernels->memory->copy(
        run->engine.stream, (size_t)partition->elements * sizeof(float),
        partition->kept[sam->kept], partition->weights);
}

static enum err sam_after_gradient(void *self, struct algorithm_step *step)
{
    struct sam *sam = self;
    struct run *run = sam->run;
    double norm = step->norm + sam->settings->epsilon;
    assert(!sam->away && !step->again &&
           norm >= 0.0); /* a number: not diverged */
    /* of a gradient of zeros, as without labels, there is no way up */
    if ((run->position.step + 1) % sam->settings->interval != 0 || norm == 0.0)
        return ERR_OK;
    sam->climb = (float)(sam->settings->rho / norm * step->scale);
    sam->away = true;
    step->again = true;
    TRY(replica_visit(run->engine.replica, climb_partition, sam));
    return replica_publish(run->engine.replica);
}

/* The update, or replica_publish(), makes the weights at work of them. */
static enum err sam_after_again(void *self)
{
    struct sam *sam = self;
    if (!sam->away)
        return ERR_OK;
    sam->away = false;
    return replica_visit(sam->run->engine.replica, return_partition, sam);
}

const struct algorithm_ops algorithm_sam_ops = {
    ALGORITHM_OF(struct sam), .needs = sam_needs, .create = sam_create,
    .after_gradient = sam_after_gradient, .after_again = sam_after_again
};
