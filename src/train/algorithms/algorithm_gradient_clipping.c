/* Limits the gradient: its norm over all tensors, each element, or, adaptively,
 * each unit's norm by that of its weights (Brock et al. 2021): a unit is all
 * that one output is made of, mostly a row of a matrix (norms.h).
 *
 * Adaptive clipping goes by what a step does to a unit, not by how large its
 * gradient is: with lr 1 the unit would change by |G| / |W| of itself, which is
 * held at `threshold`. `eps` stands for |W| where weights begin at 0, which
 * would otherwise never leave it. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "src/base/new.h"
#include "src/parallel/norms.h"
#include "src/train/run/run.h"

struct gradient_clipping {
    struct run *run;
    const struct algorithm_gradient_clipping *settings;
    struct norms *norms;         /* of adaptive, as the next */
    double *weights, *gradients; /* [units] sums of squares; then gradients
                                    has what each is multiplied by */
};

static enum err refuse_device(void)
{
    return err_set(ERR_USAGE, "type = adaptive computes on the processor only: "
                              "use hardware.backend = cpu, or another type");
}

static enum err gradient_clipping_check(const void *settings,
                                        const struct train_settings *all)
{
    const struct algorithm_gradient_clipping *s = settings;
    if (s->type == CLIPPING_ADAPTIVE && all->hardware.backend == BACKEND_CUDA)
        return refuse_device();
    if (s->type != CLIPPING_ADAPTIVE && s->eps != 1e-3)
        return err_set(ERR_USAGE, "eps is for type = adaptive: leave it out");
    return ERR_OK;
}

static enum err gradient_clipping_needs(const void *settings,
                                        struct algorithm_needs *needs)
{
    const struct algorithm_gradient_clipping *s = settings;
    needs->clips = true;
    needs->units |= s->type == CLIPPING_ADAPTIVE;
    return ERR_OK;
}

static enum err gradient_clipping_create(void *self, const void *settings,
                                         struct run *run)
{
    struct gradient_clipping *clip = self;
    clip->run = run;
    clip->settings = settings;
    if (clip->settings->type != CLIPPING_ADAPTIVE)
        return ERR_OK;
    if (run->engine.kernels->memory->device)
        return refuse_device();
    TRY(norms_create(run->engine.replica, true, &clip->norms));
    size_t units = (size_t)norms_count(clip->norms);
    TRY(new_zeroed(&clip->weights, units));
    return new_zeroed(&clip->gradients, units);
}

static void gradient_clipping_destroy(void *self)
{
    struct gradient_clipping *clip = self;
    norms_destroy(clip->norms);
    free(clip->weights);
    free(clip->gradients);
}

/* --- each element --- */

struct cut {
    const struct run *run;
    float limit;
};

static enum err cut_partition(void *arg,
                              const struct replica_partition *partition)
{
    const struct cut *cut = arg;
    return cut->run->engine.kernels->clip_forward(
        &cut->run->engine.ctx, DTYPE_F32, partition->elements, cut->limit,
        partition->gradient);
}

/* --- each unit --- */

/* What a unit's gradient, times `scale`, is to be multiplied by. */
static double unit_factor(const struct gradient_clipping *clip, int64_t unit,
                          double scale)
{
    assert(unit >= 0 && unit < norms_count(clip->norms));
    double weights = sqrt(clip->weights[unit]);
    double norm = sqrt(clip->gradients[unit]) * scale;
    double least = clip->settings->eps;
    double limit =
        (weights > least ? weights : least) * clip->settings->threshold;
    return norm > limit ? limit / norm : 1.0;
}

/* The units of the partition, of which the ends may be other ranks'. */
static enum err adapt_partition(void *arg,
                                const struct replica_partition *partition)
{
    const struct gradient_clipping *clip = arg;
    int64_t end = partition->begin + partition->elements;
    assert(partition->gradient != NULL);
    for (int p = 0; p < partition->params->count; p++) {
        const struct param *param = &partition->params->list[p];
        int64_t at =
            param->offset > partition->begin ? param->offset : partition->begin;
        int64_t last = param->offset + param->numel;
        for (last = last < end ? last : end; at < last; at++) {
            int64_t unit = norms_part(clip->norms, p, at - param->offset);
            partition->gradient[at - partition->begin] *=
                (float)clip->gradients[unit];
        }
    }
    return ERR_OK;
}

static enum err clip_units(struct gradient_clipping *clip, double scale)
{
    TRY(norms_sum(clip->norms, NORMS_WEIGHTS, 0, clip->weights));
    TRY(norms_sum(clip->norms, NORMS_GRADIENT, 0, clip->gradients));
    for (int64_t unit = 0; unit < norms_count(clip->norms); unit++)
        clip->gradients[unit] = unit_factor(clip, unit, scale);
    return replica_visit(clip->run->engine.replica, adapt_partition, clip);
}

/* --- a step --- */

static enum err gradient_clipping_change_gradient(void *self,
                                                  struct algorithm_step *step)
{
    struct gradient_clipping *clip = self;
    double threshold = clip->settings->threshold;
    if (step->scale <= 0.0)
        return ERR_OK;
    if (clip->settings->type == CLIPPING_VALUE) {
        struct cut cut = { clip->run, (float)(threshold / step->scale) };
        step->stale = true;
        return replica_visit(clip->run->engine.replica, cut_partition, &cut);
    }
    if (clip->settings->type == CLIPPING_ADAPTIVE) {
        step->stale = true;
        return clip_units(clip, step->scale);
    }
    TRY(algorithm_norm(clip->run->engine.replica, step));
    if (step->norm > threshold)
        step->scale *= threshold / step->norm;
    return ERR_OK;
}

const struct algorithm_ops algorithm_gradient_clipping_ops = {
    ALGORITHM_OF(struct gradient_clipping),
    .check = gradient_clipping_check,
    .needs = gradient_clipping_needs,
    .create = gradient_clipping_create,
    .destroy = gradient_clipping_destroy,
    .change_gradient = gradient_clipping_change_gradient
};
