/* Listener: every monitor.experts how the tokens of the step spread over each
 * block's experts, "experts/FIGURE/transformer.blocks.N" with min, median, max
 * and std, relative to an even share: 1 is even. Of all blocks together metrics
 * have the same in every line. Rank 0; nothing without experts. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/base/real.h"
#include "src/base/new.h"
#include "src/train/listeners/monitor_due.h"
#include "src/train/run/run.h"

struct on_experts {
    struct monitor_due due;
    int64_t blocks, experts;
    double *shares; /* [experts], of one block */
};

static void on_experts_destroy(void *self)
{
    struct on_experts *on = self;
    free(on->shares);
}

static enum err on_experts_create(void *self, const struct run *run)
{
    struct on_experts *on = self;
    const struct train_settings *s = &run->settings;
    on->blocks = s->model.n_layers;
    on->experts = s->model.experts;
    TRY(monitor_due_create(run, "monitor.experts", s->monitor.experts, false,
                           &on->due));
    if (on->experts == 0)
        return ERR_OK;
    return new_zeroed(&on->shares, (size_t)on->experts);
}

static void tell(const struct step_record *step, const char *figure,
                 int64_t block, double value)
{
    char name[96];
    snprintf(name, sizeof name, "experts/%s/transformer.blocks.%lld", figure,
             (long long)block);
    tracking_list_add(step->scalars, name, value);
}

static void tell_block(const struct on_experts *on,
                       const struct step_record *step, int64_t block)
{
    assert((size_t)((block + 1) * on->experts) <= step->expert_count);
    const int64_t *counts = step->expert_counts + block * on->experts;
    int count = (int)on->experts;
    double tokens = 0.0, variance = 0.0, least = INFINITY, most = 0.0;
    for (int e = 0; e < count; e++)
        tokens += (double)counts[e];
    for (int e = 0; e < count; e++) {
        double share = tokens > 0.0 ? (double)counts[e] * count / tokens : 0.0;
        on->shares[e] = share;
        variance += (share - 1.0) * (share - 1.0) / count;
        least = fmin(least, share);
        most = fmax(most, share);
    }
    tell(step, "min", block, least);
    tell(step, "max", block, most);
    tell(step, "std", block, sqrt(variance));
    tell(step, "median", block, real_median_upper(on->shares, count));
}

static enum err on_experts_handle(void *self, enum event event,
                                  const struct step_record *step,
                                  struct asks *asks)
{
    struct on_experts *on = self;
    (void)event;
    (void)asks;
    if (on->shares == NULL || !monitor_due_step(&on->due, step->step))
        return ERR_OK;
    for (int64_t block = 0; block < on->blocks; block++)
        tell_block(on, step, block);
    return ERR_OK;
}

const struct listener_ops on_experts_ops = { LISTENER_OF(struct on_experts),
                                             .create = on_experts_create,
                                             .destroy = on_experts_destroy,
                                             .handle = on_experts_handle };
