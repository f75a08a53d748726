/* An exponential moving average of the weights, which evaluations read instead
 * of them (Composer's EMA): from `start` on mean = s mean + (1 - s) weights
 * every `update_interval`, s = 2^(-update_interval / half_life). The mean begins
 * as a copy of the weights and not at 0, so nothing has to be divided by
 * 1 - s^t for its beginning, as Adam's moments have to. */
#include <assert.h>

#include "src/base/real.h"
#include "src/train/run/run.h"

struct ema {
    struct run *run;
    int kept;
    double smoothing;
    int64_t start, interval, half_life; /* steps */
    double keep;
    bool started;
};

static enum err ema_check(const void *settings,
                          const struct train_settings *all)
{
    const struct algorithm_ema *s = settings;
    (void)all;
    if (s->smoothing > 0.0 &&
        (s->half_life.value != 1000.0 || s->half_life.unit != UNIT_BA))
        return err_set(ERR_USAGE, "half_life and smoothing say the same: leave "
                                  "one of them out");
    if (s->half_life.value <= 0.0 || s->update_interval.value <= 0.0)
        return err_set(ERR_USAGE,
                       "half_life and update_interval must be above 0");
    return ERR_OK;
}

static enum err ema_needs(const void *settings, struct algorithm_needs *needs)
{
    (void)settings;
    return algorithm_keep(needs, "ema", true);
}

static enum err ema_create(void *self, const void *settings, struct run *run)
{
    struct ema *ema = self;
    const struct algorithm_ema *s = settings;
    ema->run = run;
    ema->kept = algorithm_kept(&run->settings.needs, "ema");
    ema->smoothing = s->smoothing;
    TRY(run_algorithm_steps(run, ema, "start", s->start, &ema->start));
    TRY(run_algorithm_steps(run, ema, "update_interval", s->update_interval,
                            &ema->interval));
    return run_algorithm_steps(run, ema, "half_life", s->half_life,
                               &ema->half_life);
}

static enum err ema_begin(void *self)
{
    struct ema *ema = self;
    if (ema->interval == 0 || ema->half_life == 0)
        return err_set(ERR_USAGE,
                       "half_life and update_interval must be above 0");
    double lives = (double)ema->interval / (double)ema->half_life;
    ema->keep = ema->smoothing > 0.0 ? ema->smoothing : real_pow(2.0, -lives);
    return ERR_OK;
}

static enum err ema_after_update(void *self)
{
    struct ema *ema = self;
    int64_t step = ema->run->position.step;
    assert(step > 0 && ema->interval > 0); /* begun, and a step is done */
    if (!ema->started && step >= ema->start) {
        ema->started = true;
        return run_average(ema->run, ema->kept, 0.0);
    }
    if (!ema->started || step % ema->interval != 0)
        return ERR_OK;
    return run_average(ema->run, ema->kept, ema->keep);
}

static enum err ema_swap(void *self)
{
    struct ema *ema = self;
    return ema->started ? replica_swap(ema->run->engine.replica, ema->kept)
                        : ERR_OK;
}

static enum err ema_store(const void *self, json_t *state)
{
    const struct ema *ema = self;
    return run_put(state, "weights", json_boolean(ema->started));
}

static enum err ema_restore(void *self, const json_t *state)
{
    struct ema *ema = self;
    ema->started = json_is_true(json_object_get(state, "weights"));
    return ERR_OK;
}

const struct algorithm_ops algorithm_ema_ops = {
    ALGORITHM_OF(struct ema), .check = ema_check,
    .needs = ema_needs,       .create = ema_create,
    .begin = ema_begin,       .after_update = ema_after_update,
    .swap = ema_swap,         .store = ema_store,
    .restore = ema_restore
};
