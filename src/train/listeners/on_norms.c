/* Listener: every monitor.norms the L2 norms of each tensor that trains, of
 *
 *   norm/grad/NAME        the gradient of the mean loss, before clipping
 *   norm/weight/NAME      the new weights, fp32 masters
 *   norm/update/NAME      new weights less old ones
 *   norm/moment/OF/NAME   the optimizer's new moments, OF as in checkpoints
 *
 * and with "global" as NAME of all of them together. The same bits whatever the
 * ranks and the strategy. Of an update a stretch of weights at a time is copied,
 * never all of them. An update that an algorithm makes of its own, after the
 * optimizer's, is not in it. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/new.h"
#include "src/parallel/norms.h"
#include "src/train/listeners/monitor_due.h"
#include "src/train/run/run.h"

struct on_norms {
    const struct run *run;
    struct monitor_due due;
    struct norms *norms; /* NULL: never due */
    double *sums;        /* [tensors] */
    bool taking;         /* the step at hand */
};

static void on_norms_destroy(void *self)
{
    struct on_norms *on = self;
    norms_destroy(on->norms);
    free(on->sums);
}

static enum err on_norms_create(void *self, const struct run *run)
{
    struct on_norms *on = self;
    on->run = run;
    TRY(monitor_due_create(run, "monitor.norms", run->settings.monitor.norms,
                           false, &on->due));
    if (!monitor_due_ever(&on->due))
        return ERR_OK;
    TRY(new_zeroed(&on->sums, (size_t)run->engine.params->count));
    return norms_watch_create(run->engine.replica, &on->norms);
}

/* The sums' roots times `scale`, as norm/OF/NAME. */
static void tell(const struct on_norms *on, const struct step_record *step,
                 const char *of, double scale)
{
    const struct params *params = on->run->engine.params;
    char name[TRACKING_NAME_BYTES];
    double all = 0.0;
    for (int p = 0; p < params->count; p++) {
        snprintf(name, sizeof name, "norm/%s/%s", of, params->list[p].name);
        tracking_list_add(step->scalars, name, sqrt(on->sums[p]) * scale);
        all += on->sums[p];
    }
    snprintf(name, sizeof name, "norm/%s/global", of);
    tracking_list_add(step->scalars, name, sqrt(all) * scale);
}

/* Sums over all tensors, by name. */
struct moment_total {
    const char *name;
    double sum;
};

/* Moments of one number, of those tensors that have it; others may have one of
 * its name at another place. */
static void tell_moment(const struct on_norms *on,
                        const struct step_record *step, int index,
                        struct moment_total *totals, int *count)
{
    const struct params *params = on->run->engine.params;
    char name[TRACKING_NAME_BYTES];
    for (int p = 0; p < params->count; p++) {
        const char *moment = norms_moment_name(on->norms, p, index);
        int t = 0;
        if (moment == NULL)
            continue;
        snprintf(name, sizeof name, "norm/moment/%s/%s", moment,
                 params->list[p].name);
        tracking_list_add(step->scalars, name, sqrt(on->sums[p]));
        while (t < *count && strcmp(totals[t].name, moment) != 0)
            t++;
        if (t == *count)
            totals[(*count)++] = (struct moment_total){ moment, 0.0 };
        totals[t].sum += on->sums[p];
    }
}

static bool has_moment(const struct on_norms *on, int index)
{
    for (int p = 0; p < on->run->engine.params->count; p++)
        if (norms_moment_name(on->norms, p, index) != NULL)
            return true;
    return false;
}

static enum err take_moments(struct on_norms *on,
                             const struct step_record *step)
{
    /* each of a group's optimizers has its own, of other names at most */
    struct moment_total totals[UPDATE_MOMENTS * (OPTIMIZER_GROUPS + 1)];
    char name[TRACKING_NAME_BYTES];
    int count = 0;
    for (int m = 0; m < UPDATE_MOMENTS && has_moment(on, m); m++) {
        TRY(norms_sum(on->norms, NORMS_MOMENT, m, on->sums));
        tell_moment(on, step, m, totals, &count);
    }
    assert((size_t)count <= sizeof totals / sizeof totals[0]);
    for (int t = 0; t < count; t++) {
        snprintf(name, sizeof name, "norm/moment/%s/global", totals[t].name);
        tracking_list_add(step->scalars, name, sqrt(totals[t].sum));
    }
    return ERR_OK;
}

static enum err before_update(struct on_norms *on,
                              const struct step_record *step)
{
    struct replica *replica = on->run->engine.replica;
    assert(!on->taking && step->step == on->run->position.step);
    double scale =
        step->loss_tokens > 0 ? 1.0 / (double)step->loss_tokens : 0.0;
    on->taking = monitor_due_step(&on->due, step->step + 1);
    if (!on->taking)
        return ERR_OK;
    TRY(norms_sum(on->norms, NORMS_GRADIENT, 0, on->sums));
    tell(on, step, "grad", scale);
    norms_watch_update(on->norms, replica);
    return ERR_OK;
}

static enum err after_update(struct on_norms *on,
                             const struct step_record *step)
{
    on->taking = false;
    TRY(norms_watched_update(on->norms, on->run->engine.replica, on->sums));
    tell(on, step, "update", 1.0);
    TRY(norms_sum(on->norms, NORMS_WEIGHTS, 0, on->sums));
    tell(on, step, "weight", 1.0);
    return take_moments(on, step);
}

static enum err on_norms_handle(void *self, enum event event,
                                const struct step_record *step,
                                struct asks *asks)
{
    struct on_norms *on = self;
    (void)asks;
    if (on->norms == NULL)
        return ERR_OK;
    if (event == EVENT_AFTER_TRAIN_BATCH)
        return before_update(on, step);
    return on->taking ? after_update(on, step) : ERR_OK;
}

const struct listener_ops on_norms_ops = { LISTENER_OF(struct on_norms),
                                           .create = on_norms_create,
                                           .destroy = on_norms_destroy,
                                           .handle = on_norms_handle };
