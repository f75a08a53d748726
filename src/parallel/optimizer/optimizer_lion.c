/* Lion that looks out for outliers, as in LLM Foundry: of each tensor a norm is
 * compared with the mean of those of the steps T - 999 to T - 500, so that a
 * cluster of outliers does not count towards what is normal.
 *
 * adalr_lion: where the new moment's norm is beyond the threshold, the tensor's
 * rate (and decay) is multiplied by the penalty for some steps, by its power of
 * as many outliers as there are, down to a floor.
 * clip_lion: where the gradient's norm is, it is scaled down to the threshold.
 */
#include <assert.h>
#include <math.h>

#include "src/base/real.h"
#include "src/parallel/optimizer/optimizer_whole.h"

#define RING 1000  /* norms that are kept: that of step t is at t % RING */
#define DELAY 500  /* the last ones do not count */
#define COUNT RING /* where the number of them is */
/* The number of norms starts over from here: a multiple of RING, exact in
 * fp32. */
#define COUNT_MAX 2000000

/* An outlier's norm is kept with a minus sign. */
static int ring_shape(const struct params *params, const struct param *param,
                      int state, int64_t shape[2])
{
    (void)params, (void)param, (void)state;
    shape[0] = RING + 1;
    return 1;
}

/* The mean of what is old enough among `count` norms, of which the last is
 * today's; negative: nothing is. */
static double usual_norm(const float *ring, int64_t count)
{
    int64_t today = count - 1;
    int64_t first = today >= RING ? today - RING + 1 : 0;
    double sum = 0.0;
    if (today < DELAY)
        return -1.0;
    for (int64_t i = first; i <= today - DELAY; i++)
        sum += (double)fabsf(ring[i % RING]);
    return sum / (double)(today - DELAY - first + 1);
}

/* Puts today's norm into the ring; what an outlier is compared with if it is
 * one, otherwise negative. */
static double observe(float *ring, double norm, double threshold)
{
    int64_t count = (int64_t)ring[COUNT] + 1;
    if (count > COUNT_MAX)
        count -= COUNT_MAX / 2;
    ring[COUNT] = (float)count;
    ring[(count - 1) % RING] = (float)norm;
    double usual = usual_norm(ring, count);
    if (usual < 0.0 || norm <= threshold * usual)
        return -1.0;
    ring[(count - 1) % RING] = -(float)norm;
    return usual;
}

/* Outliers of the last `steps` steps before today, and today. */
static int recent_outliers(const float *ring, int64_t steps)
{
    int64_t today = (int64_t)ring[COUNT] - 1;
    int64_t first = today > steps ? today - steps : 0;
    int outliers = 0;
    assert(steps >= 0 && steps < RING);
    for (int64_t i = first; i <= today; i++)
        outliers += ring[i % RING] < 0.0f;
    return outliers;
}

static int64_t lion_scratch(const struct param *param)
{
    return 2 * optimizer_sums(param->numel);
}

static enum err lion(const struct optimizer_step *step,
                     const struct kernels *kernels,
                     const struct kernel_ctx *ctx,
                     const struct optimizer_partition *partition,
                     double scale_rate, double scale_gradient)
{
    assert(partition->elements == partition->tensor->numel);
    assert(scale_rate >= 0.0 && scale_rate <= 1.0);
    const struct lion lion = {
        .lr = (float)(step->lr * scale_rate),
        .decay = (float)(step->decay * scale_rate),
        .grad_scale = (float)(step->grad_scale * scale_gradient),
        .beta1 = (float)step->beta1,
        .beta2 = (float)step->beta2,
    };
    return kernels->lion(ctx, DTYPE_F32, partition->elements, &lion,
                         partition->weights, partition->gradient,
                         partition->moments);
}

static enum err adalr_update(const struct optimizer_step *step,
                             const struct kernels *kernels,
                             const struct kernel_ctx *ctx,
                             const struct optimizer_partition *partition)
{
    float *ring = partition->states[0];
    float fresh = (float)((1.0 - step->beta2) * step->grad_scale);
    double norm = sqrt(optimizer_sum_squares(
        ctx, partition->elements, partition->moments[0], (float)step->beta2,
        partition->gradient, fresh, (double *)(void *)partition->scratch));
    observe(ring, norm, step->outlier_threshold);
    double penalty = real_pow(step->outlier_penalty,
                              recent_outliers(ring, step->outlier_timeout));
    return lion(step, kernels, ctx, partition,
                fmax(step->outlier_floor, penalty), 1.0);
}

static enum err clip_update(const struct optimizer_step *step,
                            const struct kernels *kernels,
                            const struct kernel_ctx *ctx,
                            const struct optimizer_partition *partition)
{
    double norm = sqrt(optimizer_sum_squares(
        ctx, partition->elements, partition->gradient, (float)step->grad_scale,
        NULL, 0.0f, (double *)(void *)partition->scratch));
    double usual = observe(partition->states[0], norm, step->outlier_threshold);
    double most = step->outlier_threshold * usual;
    return lion(step, kernels, ctx, partition, 1.0,
                usual < 0.0 ? 1.0 : most / norm);
}

const struct optimizer_ops optimizer_adalr_lion = {
    .name = "adalr_lion",
    .moments = { "exp_avg" },
    .states = { "moment_norms" },
    .whole_tensors = true,
    .uses = "beta1 beta2 outlier_threshold outlier_timeout outlier_penalty "
            "outlier_floor",
    .defaults = { .beta2 = 0.99, .outlier_threshold = 10.0 },
    .state_shape = ring_shape,
    .scratch = lion_scratch,
    .update = adalr_update,
};

const struct optimizer_ops optimizer_clip_lion = {
    .name = "clip_lion",
    .moments = { "exp_avg" },
    .states = { "gradient_norms" },
    .whole_tensors = true,
    .uses = "beta1 beta2 outlier_threshold",
    .defaults = { .beta2 = 0.99, .outlier_threshold = 5.0 },
    .state_shape = ring_shape,
    .scratch = lion_scratch,
    .update = clip_update,
};
