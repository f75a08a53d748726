/* Trains on the part of a batch whose losses are high (Jiang et al. 2019), as
 * Composer's SelectiveBackprop chooses it: samples are put in the order of their
 * losses, and of N of them int(keep N) are drawn without another's return, that
 * of number r with the weight ((r + 1/2) / N)^(1 / keep - 1). What is drawn for
 * a number depends on the seed and the step, and losses on the sample alone, of
 * equal ones the place decides: so all ranks choose the same.
 *
 * It costs a forward pass of all samples, one by one. What is left out is not
 * computed otherwise; of a microbatch of which nothing is kept one sample is. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/base/new.h"
#include "src/base/real.h"
#include "src/base/rng.h"
#include "src/train/loop/trainer.h"

/* A sample in the order of losses; then a number of the order and when it is
 * drawn, the lowest first. */
struct ranked {
    double value;
    int64_t index;
};

struct selective_backprop {
    struct run *run;
    const struct algorithm_selective_backprop *settings;
    struct trainer_samples *samples;
    int64_t start, end;           /* steps */
    int64_t count, kept;          /* of a batch's samples */
    struct ranked *order, *drawn; /* [count] */
    bool *left_out;               /* [count] */
};

static enum err selective_backprop_check(const void *settings,
                                         const struct train_settings *all)
{
    const struct algorithm_selective_backprop *s = settings;
    if (all->train.global_batch > 0 &&
        s->keep * (double)all->train.global_batch < 1.0)
        return err_set(ERR_USAGE,
                       "keep = %g of train.global_batch = %lld samples is "
                       "less than one: raise one of them",
                       s->keep, (long long)all->train.global_batch);
    return ERR_OK;
}

static enum err selective_backprop_create(void *self, const void *settings,
                                          struct run *run)
{
    struct selective_backprop *b = self;
    size_t count = (size_t)run->settings.train.global_batch;
    b->run = run;
    b->settings = settings;
    b->count = (int64_t)count;
    b->kept = (int64_t)(b->settings->keep * (double)count);
    TRY(run_algorithm_steps(run, b, "start", b->settings->start, &b->start));
    TRY(run_algorithm_steps(run, b, "end", b->settings->end, &b->end));
    TRY(new_zeroed(&b->order, count));
    TRY(new_zeroed(&b->drawn, count));
    TRY(new_zeroed(&b->left_out, count));
    return trainer_samples_create(run, &b->samples);
}

static void selective_backprop_destroy(void *self)
{
    struct selective_backprop *b = self;
    trainer_samples_destroy(b->samples);
    free(b->order);
    free(b->drawn);
    free(b->left_out);
}

static int compare(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->value != y->value)
        return x->value < y->value ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

/* Draws by the smallest of exponential times, whose rates are the weights
 * (Efraimidis and Spirakis 2006): one after the other is the same. */
static void draw(const struct selective_backprop *b)
{
    char name[64];
    double power = 1.0 / b->settings->keep - 1.0;
    uint64_t seed = (uint64_t)b->run->settings.train.seed;
    snprintf(name, sizeof name, "selective_backprop/%lld",
             (long long)b->run->position.step);
    for (int64_t r = 0; r < b->count; r++) {
        double share = ((double)r + 0.5) / (double)b->count;
        double u = rng_uniform(seed, rng_stream(name), (uint64_t)r);
        b->drawn[r] = (struct ranked){
            .value = -real_log(1.0 - u) / real_pow(share, power), .index = r
        };
    }
    qsort(b->drawn, (size_t)b->count, sizeof b->drawn[0], compare);
}

static bool chooses(const struct selective_backprop *b)
{
    int64_t step = b->run->position.step;
    int64_t interrupt = b->settings->interrupt;
    return b->kept < b->count && step >= b->start && step < b->end &&
           (interrupt == 0 || (step + 1) % interrupt != 0);
}

static enum err selective_backprop_before_batch(void *self,
                                                struct algorithm_step *step)
{
    const struct selective_backprop *b = self;
    const double *losses;
    if (!chooses(b))
        return ERR_OK;
    assert(step->left_out == NULL && b->kept > 0);
    TRY(trainer_samples_losses(b->samples, step->seq_len, &losses));
    for (int64_t i = 0; i < b->count; i++)
        b->order[i] = (struct ranked){ losses[i], i };
    qsort(b->order, (size_t)b->count, sizeof b->order[0], compare);
    draw(b);
    for (int64_t i = 0; i < b->count; i++)
        b->left_out[b->order[b->drawn[i].index].index] = i >= b->kept;
    step->left_out = b->left_out;
    step->samples = b->kept;
    return ERR_OK;
}

const struct algorithm_ops algorithm_selective_backprop_ops = {
    ALGORITHM_OF(struct selective_backprop), .check = selective_backprop_check,
    .create = selective_backprop_create, .destroy = selective_backprop_destroy,
    .before_batch = selective_backprop_before_batch
};
