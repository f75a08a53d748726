/* Normal noise on the gradient (Neelakantan et al. 2015): of step t, counted
 * from 0, its variance is eta / (1 + t)^gamma. An element's number is drawn from
 * the seed, the step, the tensor's name and its place in the tensor. */
#include <assert.h>
#include <math.h>
#include <stdio.h>

#include "src/base/real.h"
#include "src/base/rng.h"
#include "src/train/run/run.h"

/* So many numbers are drawn at once. */
#define STRETCH ((int64_t)1 << 16)

struct gradient_noise {
    struct run *run;
    const struct algorithm_gradient_noise *settings;
    struct arena host;  /* the numbers of a stretch */
    struct arena there; /* the same where tensors lie */
    float factor;       /* of this step's numbers */
};

static enum err gradient_noise_create(void *self, const void *settings,
                                      struct run *run)
{
    struct gradient_noise *noise = self;
    const struct kernel_memory *memory = run->engine.kernels->memory;
    noise->run = run;
    noise->settings = settings;
    TRY(memory->host_create((size_t)STRETCH * sizeof(float), &noise->host));
    return memory->tensors_create((size_t)STRETCH * sizeof(float),
                                  &noise->there);
}

static void gradient_noise_destroy(void *self)
{
    struct gradient_noise *noise = self;
    const struct run *run = noise->run;
    if (run == NULL)
        return;
    run->engine.kernels->memory->tensors_destroy(&noise->there);
    run->engine.kernels->memory->host_destroy(&noise->host);
}

/* Draws the noise of elements [at, at + n) of the flat space, none where there
 * is padding. */
static void draw(const struct gradient_noise *noise,
                 const struct params *params, int64_t at, int64_t n)
{
    const struct run *run = noise->run;
    float *out = (float *)(void *)noise->host.base;
    char name[160];
    assert(n > 0 && n <= STRETCH);
    for (int64_t i = 0; i < n; i++)
        out[i] = 0.0f;
    for (int p = 0; p < params->count; p++) {
        const struct param *param = &params->list[p];
        int64_t begin = param->offset > at ? param->offset : at;
        int64_t end = param->offset + param->numel;
        end = end < at + n ? end : at + n;
        if (begin >= end)
            continue;
        snprintf(name, sizeof name, "gradient_noise/%lld/%s",
                 (long long)run->position.step, param->name);
        rng_fill_normal((uint64_t)run->settings.train.seed, rng_stream(name),
                        (uint64_t)(begin - param->offset), end - begin,
                        noise->factor, out + (begin - at));
    }
}

static enum err add_partition(void *arg,
                              const struct replica_partition *partition)
{
    const struct gradient_noise *noise = arg;
    const struct run *run = noise->run;
    const struct kernel_memory *memory = run->engine.kernels->memory;
    float *drawn = (float *)(void *)noise->there.base;
    assert(partition->gradient != NULL);
    for (int64_t at = 0; at < partition->elements; at += STRETCH) {
        int64_t n = partition->elements - at;
        n = n < STRETCH ? n : STRETCH;
        draw(noise, partition->params, partition->begin + at, n);
        TRY(memory->upload(run->engine.stream, (size_t)n * sizeof(float),
                           noise->host.base, drawn));
        TRY(run->engine.kernels->add(&run->engine.ctx, DTYPE_F32, n,
                                     partition->gradient + at, 1.0f, drawn,
                                     partition->gradient + at));
        TRY(memory->wait(run->engine.stream));
    }
    return ERR_OK;
}

static enum err gradient_noise_change_gradient(void *self,
                                               struct algorithm_step *step)
{
    struct gradient_noise *noise = self;
    const struct algorithm_gradient_noise *s = noise->settings;
    double t = (double)noise->run->position.step;
    double deviation = sqrt(s->eta / real_pow(1.0 + t, s->gamma));
    if (step->scale <= 0.0)
        return ERR_OK;
    /* the optimizer multiplies the sum by the scale, the noise with it: this
     * much is `deviation` of the mean's gradient */
    noise->factor = (float)(deviation / step->scale);
    step->stale = true;
    return replica_visit(noise->run->engine.replica, add_partition, noise);
}

const struct algorithm_ops algorithm_gradient_noise_ops = {
    ALGORITHM_OF(struct gradient_noise), .create = gradient_noise_create,
    .destroy = gradient_noise_destroy,
    .change_gradient = gradient_noise_change_gradient
};
