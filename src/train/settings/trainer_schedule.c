/* Turns the durations of the settings into steps and checks them against each
 * other. The multiplier of a step is schedule.c.
 *
 * Settings say how long something is in steps, tokens, samples, epochs or parts of
 * the run; the schedule knows steps alone. That needs the rates: of a step the
 * samples and tokens are settings, of an epoch they come from the data, and of a
 * "dur" from the run's length, which is found first. So durations become steps
 * once, when the data are open, and a duration in seconds never does: bits would
 * depend on how fast a machine is. */
#include "src/train/settings/trainer_schedule.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/base/clean.h"

#define PREFIX "scheduler."

/* The durations of a schedule: of the settings, and as steps. */
#define TIMING(field)                                                          \
    {                                                                          \
#field, offsetof(struct train_settings, scheduler.field),              \
            offsetof(struct schedule, field)                                   \
    }
static const struct timing {
    const char *field;
    size_t setting, steps;
} timings[] = { TIMING(warmup), TIMING(t_max), TIMING(period), TIMING(t_scale),
                TIMING(cooldown) };
#define TIMINGS (sizeof timings / sizeof timings[0])

static struct duration duration_of(const struct train_settings *s,
                                   const struct timing *timing)
{
    return *(const struct duration *)(const void *)((const char *)s +
                                                    timing->setting);
}

static int64_t *steps_at(struct schedule *schedule, const struct timing *timing)
{
    return (int64_t *)(void *)((char *)schedule + timing->steps);
}

/* Fractions of the run follow its length, which is scaled already. */
static struct duration scaled(struct duration duration, double scale)
{
    assert(scale > 0.0 && duration.value >= 0.0);
    bool whole = duration.unit == UNIT_BA || duration.unit == UNIT_TOK ||
                 duration.unit == UNIT_SP;
    if (duration.unit == UNIT_DUR || scale == 1.0)
        return duration;
    duration.value *= scale;
    double nearest = nearbyint(duration.value);
    if (whole) /* 0.29 of 100 is 29 */
        duration.value = fabs(duration.value - nearest) <= 1e-12 * nearest
                             ? nearest
                             : floor(duration.value);
    return duration;
}

struct duration trainer_schedule_max_duration(const struct train_settings *s)
{
    return scaled(s->train.max_duration, s->scheduler.scale);
}

/* The next of scheduler.milestones, and what follows it; an empty *text: the
 * last was read. */
static enum err next_milestone(const char **text, struct duration *out)
{
    char word[64];
    size_t bytes = strcspn(*text, " \t\r\n");
    snprintf(word, sizeof word, "%.*s", (int)(bytes < 63 ? bytes : 63), *text);
    *text += bytes;
    *text += strspn(*text, " \t\r\n");
    return err_prefix(units_parse(word, out), PREFIX "milestones");
}

static const char *first_milestone(const struct train_settings *s)
{
    const char *text = s->scheduler.milestones;
    return text + strspn(text, " \t\r\n");
}

static enum err check_unit(const struct train_settings *s, const char *field,
                           struct duration duration)
{
    if (duration.unit == UNIT_SEC)
        return err_set(ERR_USAGE,
                       PREFIX "%s cannot be in sec: the learning rate would "
                              "depend on the machine's speed",
                       field);
    if (duration.unit == UNIT_DUR && s->train.max_duration.unit == UNIT_SEC)
        return err_set(ERR_USAGE,
                       "train.max_duration in sec has no number of steps: "
                       "give " PREFIX "%s in ba, tok, sp or ep",
                       field);
    return ERR_OK;
}

static enum err check_milestones(const struct train_settings *s)
{
    int count = 0;
    const char *text = first_milestone(s);
    if (*text == '\0')
        return err_set(ERR_USAGE, PREFIX "name = multistep needs milestones: "
                                         "give " PREFIX "milestones, such as "
                                         "\"1000ba 2000ba\"");
    for (; *text != '\0'; count++) {
        struct duration duration;
        TRY(next_milestone(&text, &duration));
        TRY(check_unit(s, "milestones", duration));
    }
    if (count > SCHEDULE_MILESTONES)
        return err_set(ERR_USAGE, PREFIX "milestones has %d, more than %d",
                       count, SCHEDULE_MILESTONES);
    return ERR_OK;
}

enum err trainer_schedule_settings(const struct train_settings *s)
{
    const enum schedule_kind kind = s->scheduler.name;
    for (size_t i = 0; i < TIMINGS; i++)
        if (schedule_uses(kind, timings[i].field))
            TRY(check_unit(s, timings[i].field, duration_of(s, &timings[i])));
    if (schedule_uses(kind, "period") && s->scheduler.period.value <= 0)
        return err_set(ERR_USAGE,
                       PREFIX "name = %s needs " PREFIX "period, which is 0",
                       schedule_kind_names[kind]);
    if (schedule_uses(kind, "alpha_decay") &&
        s->scheduler.alpha_decay < s->scheduler.alpha_final)
        return err_set(ERR_USAGE,
                       PREFIX "alpha_decay (%g) is below " PREFIX
                              "alpha_final (%g): the rate would rise at the "
                              "end; raise the one or lower the other",
                       s->scheduler.alpha_decay, s->scheduler.alpha_final);
    if (schedule_uses(kind, "t_scale") && s->scheduler.t_scale.value <= 0 &&
        s->scheduler.warmup.value <= 0)
        return err_set(ERR_USAGE,
                       PREFIX "name = %s without warm-up needs " PREFIX
                              "t_scale: how slowly should it decay?",
                       schedule_kind_names[kind]);
    return kind == SCHEDULE_MULTISTEP ? check_milestones(s) : ERR_OK;
}

static enum err steps_of(const char *group, const char *key,
                         struct duration duration,
                         const struct unit_rates *rates, int64_t *steps)
{
    return err_prefix(units_steps(duration, rates, steps), "%s%s", group, key);
}

static enum err find_milestones(const struct train_settings *s,
                                const struct unit_rates *rates,
                                struct schedule *schedule)
{
    const char *text = first_milestone(s);
    while (*text != '\0' && schedule->milestone_count < SCHEDULE_MILESTONES) {
        struct duration duration;
        TRY(next_milestone(&text, &duration));
        TRY(steps_of(PREFIX, "milestones", scaled(duration, s->scheduler.scale),
                     rates, &schedule->milestones[schedule->milestone_count]));
        schedule->milestone_count++;
    }
    return ERR_OK;
}

static enum err find_steps(const struct train_settings *s,
                           const struct unit_rates *rates,
                           struct schedule *schedule)
{
    for (size_t i = 0; i < TIMINGS; i++) {
        bool warmup = strcmp(timings[i].field, "warmup") == 0;
        double scale =
            warmup && !s->scheduler.scale_warmup ? 1.0 : s->scheduler.scale;
        if (schedule_uses(schedule->kind, timings[i].field))
            TRY(steps_of(PREFIX, timings[i].field,
                         scaled(duration_of(s, &timings[i]), scale), rates,
                         steps_at(schedule, &timings[i])));
    }
    if (schedule->t_scale == 0)
        schedule->t_scale = schedule->warmup > 0 ? schedule->warmup : 1;
    /* the part of a step to which a scale may bring it */
    if (schedule->period == 0)
        schedule->period = 1;
    assert(schedule->t_scale > 0 && schedule->period > 0);
    return schedule->kind == SCHEDULE_MULTISTEP
               ? find_milestones(s, rates, schedule)
               : ERR_OK;
}

enum err trainer_schedule(const struct train_settings *s,
                          int64_t samples_per_epoch,
                          struct trainer_schedule *out)
{
    assert(samples_per_epoch >= 0);
    *out = (struct trainer_schedule){
        .rates = { .samples_per_step = s->train.global_batch,
                   .tokens_per_step = s->train.global_batch * s->data.seq_len,
                   .samples_per_epoch = samples_per_epoch },
        .schedule = { .kind = s->scheduler.name,
                      .alpha_final = s->scheduler.alpha_final,
                      .alpha_initial = s->scheduler.alpha_initial,
                      .alpha_decay = s->scheduler.alpha_decay,
                      .power = s->scheduler.power,
                      .gamma = s->scheduler.gamma,
                      .t_mult = s->scheduler.t_mult,
                      .cooldown_shape = s->scheduler.cooldown_shape },
        .max_steps = -1,
    };
    if (s->train.max_duration.unit != UNIT_SEC) {
        TRY(steps_of("train.", "max_duration", trainer_schedule_max_duration(s),
                     &out->rates, &out->max_steps));
        if (out->max_steps == 0)
            return err_set(ERR_USAGE, "train.max_duration is less than a step");
        out->rates.max_steps = out->max_steps;
    }
    return find_steps(s, &out->rates, &out->schedule);
}

enum err trainer_schedule_check(const struct train_settings *s,
                                const struct trainer_schedule *plan)
{
    const struct schedule *schedule = &plan->schedule;
    struct duration t_max = s->scheduler.t_max;
    bool whole_run = t_max.unit == UNIT_DUR && t_max.value == 1.0;
    if (schedule_uses(schedule->kind, "cooldown")) {
        if (schedule->warmup > schedule->t_max - schedule->cooldown)
            return err_set(ERR_USAGE,
                           PREFIX "warmup (%lld steps) and " PREFIX
                                  "cooldown (%lld) do not fit into " PREFIX
                                  "t_max (%lld): make one of them shorter",
                           (long long)schedule->warmup,
                           (long long)schedule->cooldown,
                           (long long)schedule->t_max);
    } else if (schedule_uses(schedule->kind, "t_max") && !whole_run &&
               schedule->t_max < schedule->warmup) {
        return err_set(ERR_USAGE,
                       "scheduler.t_max is %lld step%s, before the end of "
                       "scheduler.warmup, %lld steps: the learning rate would "
                       "never decay; make it longer, or scheduler.name "
                       "\"constant\"",
                       (long long)schedule->t_max,
                       schedule->t_max == 1 ? "" : "s",
                       (long long)schedule->warmup);
    }
    return ERR_OK;
}

/* --- what a changed schedule was --- */

/* The timing of a setting, NULL: it is no duration. */
static const struct timing *timing_of(const char *field)
{
    for (size_t i = 0; i < TIMINGS; i++)
        if (strcmp(timings[i].field, field) == 0)
            return &timings[i];
    return NULL;
}

void trainer_schedule_again(const struct train_settings *old,
                            const struct trainer_schedule *old_plan,
                            const struct train_settings *new,
                            const struct trainer_schedule *new_plan, char *text,
                            size_t bytes)
{
    assert(bytes > 0);
    struct schedule was = old_plan->schedule;
    struct schedule is = new_plan->schedule;
    bool scales = old->scheduler.scale != 1.0 || new->scheduler.scale != 1.0;
    text[0] = '\0';
    for (int i = 0; i < train_settings_count; i++) {
        const struct setting *setting = &train_settings_schema[i];
        char then[SETTINGS_VALUE_BYTES];
        char now[SETTINGS_VALUE_BYTES];
        if (strncmp(setting->key, PREFIX, strlen(PREFIX)) != 0 ||
            !schedule_uses(was.kind, setting->key + strlen(PREFIX)))
            continue;
        const struct timing *timing = timing_of(setting->key + strlen(PREFIX));
        settings_text(setting, old, then);
        settings_text(setting, new, now);
        bool differs = strcmp(then, now) != 0;
        /* the same fraction may be other steps; a scale would change these
         * again */
        if (timing != NULL && !scales) {
            long long steps = (long long)*steps_at(&was, timing);
            differs = schedule_uses(is.kind, timing->field)
                          ? steps != (long long)*steps_at(&is, timing)
                          : differs;
            snprintf(then, sizeof then, "%lldba", steps);
        }
        if (differs)
            clean_join(text, bytes, "", " %s=%s", setting->key, then);
    }
    if (old->optimizer.lr != new->optimizer.lr)
        clean_join(text, bytes, "", " optimizer.lr=%.10g", old->optimizer.lr);
}
