/* Turns the durations of the settings into steps and checks them against each
 * other. The multiplier of a step is schedule.c. */
#include "src/train/trainer_schedule.h"

#include "src/base/log.h"

static enum err steps_of(const char *key, struct duration duration,
                         const struct unit_rates *rates, int64_t *steps)
{
    enum err rc = units_steps(duration, rates, steps);
    return rc == ERR_OK ? rc : err_prefix(rc, "%s", key);
}

enum err trainer_schedule(const struct train_settings *s,
                          int64_t samples_per_epoch,
                          struct trainer_schedule *out)
{
    out->rates = (struct unit_rates){
        .samples_per_step = s->train.global_batch,
        .tokens_per_step = s->train.global_batch * s->data.seq_len,
        .samples_per_epoch = samples_per_epoch,
    };
    out->max_steps = -1;
    if (s->train.max_duration.unit != UNIT_SEC) {
        TRY(steps_of("train.max_duration", s->train.max_duration, &out->rates,
                     &out->max_steps));
        if (out->max_steps == 0)
            return err_set(ERR_USAGE, "train.max_duration is less than a step");
        out->rates.max_steps = out->max_steps;
    }
    out->schedule.kind = s->scheduler.name;
    out->schedule.alpha_final = s->scheduler.alpha_final;
    TRY(steps_of("scheduler.warmup", s->scheduler.warmup, &out->rates,
                 &out->schedule.warmup));
    return steps_of("scheduler.t_max", s->scheduler.t_max, &out->rates,
                    &out->schedule.t_max);
}

enum err trainer_schedule_check(const struct train_settings *s,
                                const struct trainer_schedule *plan)
{
    const struct schedule *schedule = &plan->schedule;
    struct duration t_max = s->scheduler.t_max;
    bool whole_run = t_max.unit == UNIT_DUR && t_max.value == 1.0;
    if (schedule->kind != SCHEDULE_CONSTANT && !whole_run &&
        schedule->t_max < schedule->warmup)
        return err_set(ERR_USAGE,
                       "scheduler.t_max is %lld step%s, before the end of "
                       "scheduler.warmup, %lld steps: the learning rate would "
                       "never decay; make it longer, or scheduler.name "
                       "\"constant\"",
                       (long long)schedule->t_max,
                       schedule->t_max == 1 ? "" : "s",
                       (long long)schedule->warmup);
    if (plan->max_steps >= 0 && schedule->warmup > plan->max_steps)
        log_warn("scheduler.warmup is %lld steps and the run has %lld: the "
                 "learning rate never reaches optimizer.lr",
                 (long long)schedule->warmup, (long long)plan->max_steps);
    return ERR_OK;
}
