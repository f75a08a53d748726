/* The learning rate's multiplier as a function of the step alone. Durations
 * become steps in trainer_schedule.c.
 *
 * Of the step alone: nothing is kept from one step to the next, so a run that is
 * resumed, goes back or asks for the rate of another step gets the same double.
 * Cosines and powers are src/base/real.c's, whose bits do not depend on a library.
 * The formulas stand in the rows of schedule.h. */
#include "src/train/settings/schedule.h"

#include <assert.h>
#include <math.h>

#include "src/base/globs.h"
#include "src/base/real.h"

#define SCHEDULE_USES(NAME, name, formula, uses) uses,
static const char *const fields[] = { SCHEDULES(SCHEDULE_USES) };

bool schedule_uses(enum schedule_kind kind, const char *field)
{
    return globs_match("name warmup scale scale_warmup", field) ||
           globs_match(fields[kind], field);
}

/* part / whole, clipped to 1; 0 of nothing. */
static double share(int64_t part, int64_t whole)
{
    if (whole <= 0 || part <= 0)
        return 0.0;
    return part < whole ? (double)part / (double)whole : 1.0;
}

/* From 1 to 0 as r goes from 0 to 1. */
static double half_cosine(double r)
{
    const double pi = 3.14159265358979323846;
    return (1.0 + real_cos(pi * r)) / 2.0;
}

/* From 1 to `final` as `left` goes from 1 to 0. */
static double between(double final, double left)
{
    return final + (1.0 - final) * left;
}

/* Each cycle is a cosine from 1 to alpha_final and t_mult times as long as the one
 * before (Loshchilov and Hutter 2017: SGDR), in whole steps. Cycles that do not
 * grow any more are all alike. */
static double restarts(const struct schedule *s, int64_t n)
{
    int64_t length = s->period;
    assert(length > 0 && n >= 0 && s->t_mult >= 1.0);
    while (n >= length) {
        double grown = floor(s->t_mult * (double)length);
        n -= length;
        if (grown == (double)length)
            n %= length;
        if (grown > (double)n)
            return between(s->alpha_final, half_cosine((double)n / grown));
        length = (int64_t)grown;
    }
    return between(s->alpha_final, half_cosine(share(n, length)));
}

/* 1 at the end of the warm-up, then falling as 1 / sqrt(step) does, stretched by
 * t_scale; over the cooldown a line from where that has come to. */
static double inverse_sqrt(const struct schedule *s, int64_t step)
{
    int64_t end = s->t_max - s->cooldown; /* of the decay */
    assert(s->t_scale > 0);
    int64_t at = step < end ? step : end;
    double stretched =
        (double)(at - s->warmup + s->t_scale) / (double)s->t_scale;
    double a = between(s->alpha_decay, 1.0 / sqrt(stretched));
    return a + share(step - end, s->cooldown) * (s->alpha_final - a);
}

/* Warm-up, stable, decay: all of the run but its end is at the peak, so that one
 * can decide late how long it is to be (Hu et al. 2024: MiniCPM). */
static double wsd(const struct schedule *s, int64_t step)
{
    int64_t end = s->t_max - s->cooldown; /* of what is stable */
    if (step < end)
        return 1.0;
    double r = share(step - end, s->cooldown);
    double left = s->cooldown_shape == COOLDOWN_SQRT     ? 1.0 - sqrt(r)
                  : s->cooldown_shape == COOLDOWN_COSINE ? half_cosine(r)
                                                         : 1.0 - r;
    return between(s->alpha_final, left);
}

static int passed(const struct schedule *s, int64_t step)
{
    int count = 0;
    assert(s->milestone_count <= SCHEDULE_MILESTONES);
    for (int i = 0; i < s->milestone_count; i++)
        count += step >= s->milestones[i];
    return count;
}

/* Step 0 of a warm-up has rate 0: moments begin to fill, weights stay. */
double schedule_multiplier(const struct schedule *s, int64_t step)
{
    assert(step >= 0);
    if (step < s->warmup)
        return (double)step / (double)s->warmup *
               (s->kind == SCHEDULE_LINEAR ? s->alpha_initial : 1.0);
    int64_t n = step - s->warmup;
    double tau = share(n, s->t_max - s->warmup);
    assert(n >= 0 && tau >= 0.0 && tau <= 1.0);
    switch (s->kind) {
    case SCHEDULE_COSINE:
        return between(s->alpha_final, half_cosine(tau));
    case SCHEDULE_LINEAR:
        return s->alpha_initial + tau * (s->alpha_final - s->alpha_initial);
    case SCHEDULE_POLYNOMIAL:
        return between(s->alpha_final, real_pow(1.0 - tau, s->power));
    case SCHEDULE_STEP:
        assert(s->period > 0);
        return real_pow(s->gamma, (double)(n / s->period));
    case SCHEDULE_EXPONENTIAL:
        assert(s->period > 0);
        return real_pow(s->gamma, (double)n / (double)s->period);
    case SCHEDULE_MULTISTEP:
        return real_pow(s->gamma, passed(s, step));
    case SCHEDULE_COSINE_RESTARTS:
        return restarts(s, n);
    case SCHEDULE_INVERSE_SQRT:
        return inverse_sqrt(s, step);
    case SCHEDULE_WSD:
        return wsd(s, step);
    case SCHEDULE_CONSTANT:
        break;
    }
    return 1.0;
}
