/* Stochastic weight averaging (Izmailov et al. 2018): the plain mean of the
 * weights at every `update_interval` from `start` on, which evaluations read,
 * and which become the model's weights at `end`. The learning rate is the
 * schedule's. No sum is kept: with n weights in it the mean becomes
 * n/(n + 1) mean + 1/(n + 1) weights, which stays in the range of weights. */
#include <assert.h>

#include "src/train/run/run.h"

struct swa {
    struct run *run;
    int kept;
    int64_t start, end, interval; /* steps */
    int64_t count;                /* of weights in the mean */
    bool done;
};

static enum err swa_needs(const void *settings, struct algorithm_needs *needs)
{
    (void)settings;
    return algorithm_keep(needs, "swa", true);
}

static enum err swa_create(void *self, const void *settings, struct run *run)
{
    struct swa *swa = self;
    const struct algorithm_swa *s = settings;
    swa->run = run;
    swa->kept = algorithm_kept(&run->settings.needs, "swa");
    TRY(run_algorithm_steps(run, swa, "start", s->start, &swa->start));
    TRY(run_algorithm_steps(run, swa, "end", s->end, &swa->end));
    return run_algorithm_steps(run, swa, "update_interval", s->update_interval,
                               &swa->interval);
}

static enum err swa_begin(void *self)
{
    const struct swa *swa = self;
    if (swa->interval == 0 || swa->end <= swa->start)
        return err_set(ERR_USAGE, "end must come after start, and "
                                  "update_interval must be above 0");
    /* the first at `start`, the others at multiples of the interval */
    if (swa->end / swa->interval - swa->start / swa->interval < 1)
        return err_set(ERR_USAGE,
                       "between start (step %lld) and end (step %lld) only one "
                       "step's weights go into the mean, which would undo the "
                       "steps behind it: give a shorter update_interval than "
                       "%lld steps",
                       (long long)swa->start, (long long)swa->end,
                       (long long)swa->interval);
    return ERR_OK;
}

static bool has_mean(const struct swa *swa)
{
    return swa->count > 0 && !swa->done;
}

static enum err swa_after_update(void *self)
{
    struct swa *swa = self;
    int64_t step = swa->run->position.step;
    assert(step > 0 && swa->interval > 0); /* begun, and a step is done */
    if (swa->done || step < swa->start)
        return ERR_OK;
    if (swa->count == 0 || step % swa->interval == 0) {
        double n = (double)swa->count++;
        TRY(run_average(swa->run, swa->kept, n / (n + 1.0)));
    }
    if (step < swa->end)
        return ERR_OK;
    assert(swa->count > 0);
    swa->done = true;
    return replica_swap(swa->run->engine.replica, swa->kept);
}

static enum err swa_swap(void *self)
{
    struct swa *swa = self;
    return has_mean(swa) ? replica_swap(swa->run->engine.replica, swa->kept)
                         : ERR_OK;
}

static enum err swa_store(const void *self, json_t *state)
{
    const struct swa *swa = self;
    TRY(run_put(state, "count", json_integer((json_int_t)swa->count)));
    TRY(run_put(state, "done", json_boolean(swa->done)));
    return run_put(state, "weights", json_boolean(has_mean(swa)));
}

static enum err swa_restore(void *self, const json_t *state)
{
    struct swa *swa = self;
    const json_t *count = json_object_get(state, "count");
    swa->count = json_integer_value(count);
    swa->done = json_is_true(json_object_get(state, "done"));
    if (!json_is_integer(count) || swa->count < 0)
        return err_set(ERR_CHECKPOINT, "its state in the checkpoint is none");
    return ERR_OK;
}

const struct algorithm_ops algorithm_swa_ops = { ALGORITHM_OF(struct swa),
                                                 .needs = swa_needs,
                                                 .create = swa_create,
                                                 .begin = swa_begin,
                                                 .after_update =
                                                     swa_after_update,
                                                 .swap = swa_swap,
                                                 .store = swa_store,
                                                 .restore = swa_restore };
