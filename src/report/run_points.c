/* The steps of a run: each line of metrics.jsonl becomes a point; old points
 * become buckets; what is done again is taken back.
 *
 * This is how 10^6 steps become few. The newest 4096 points lie in a list. When it
 * is full its older half is put away into 2048 buckets of equally many steps each;
 * when a step lies behind the last bucket neighbours are joined, so that the
 * buckets are twice as wide and half of them are free again. Both happen rarely:
 * a step costs a constant on average, and a run of any length fits in 1 MiB.
 *
 * An attempt that went on from a checkpoint does steps again. Its first point
 * begins behind a step that is known already, and all beyond that is taken back:
 * recent points exactly, by their attempts; of buckets, which do not know whose
 * steps they have, the share of their steps. What was taken back is wasted time
 * of the attempt that had done it. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "src/report/run_history_impl.h"

enum field {
    FIELD_ATTEMPT = RUN_VALUES,
    FIELD_STEP,
    FIELD_TOKENS,
    FIELD_TIME,
    FIELD_WHO,
    FIELD_WHO_LAST = FIELD_WHO + RUN_WHO - 1,
    FIELD_ENERGY,
    FIELDS
};

static const char *const keys[FIELDS] = {
    RUN_VALUE_NAMES,
    [FIELD_ATTEMPT] = "attempt",
    [FIELD_STEP] = "step",
    [FIELD_TOKENS] = "tokens",
    [FIELD_TIME] = "time",
    [FIELD_WHO + RUN_WHO_WORKS] = "slowest_rank",
    [FIELD_WHO + RUN_WHO_WAITS] = "waiting_rank",
    [FIELD_WHO + RUN_WHO_LOADS] = "loader_rank",
    [FIELD_ENERGY] = "energy_j",
};

/* --- buckets --------------------------------------------------------------- */

/* Twice the width, half as many. */
static void points_widen(struct run_history *history)
{
    struct run_bucket *old = history->old;
    for (size_t i = 0; i < RUN_BUCKETS_MAX; i++) {
        struct run_bucket bucket = old[i];
        if (i > 0)
            old[i] = (struct run_bucket){ .points = 0 };
        if (i % 2 == 0)
            old[i / 2] = bucket;
        else
            run_buckets_add(&old[i / 2], &bucket);
    }
    history->old_width *= 2;
}

static void put_away(struct run_history *history, const struct run_point *point)
{
    struct run_bucket bucket = run_buckets_of(point);
    if (history->old_base < 0)
        history->old_base = point->step - 1;
    int64_t distance = point->step - 1 - history->old_base;
    if (distance < 0)
        distance = 0;
    while (distance / history->old_width >= RUN_BUCKETS_MAX)
        points_widen(history);
    run_buckets_add(&history->old[distance / history->old_width], &bucket);
}

static void put_half_away(struct run_history *history)
{
    size_t half = RUN_RECENT_MAX / 2;
    assert(history->recent_count >= half);
    for (size_t i = 0; i < half; i++)
        put_away(history, &history->recent[i]);
    history->recent_count -= half;
    memmove(history->recent, history->recent + half,
            history->recent_count * sizeof history->recent[0]);
}

/* --- what is done again ---------------------------------------------------- */

static int64_t at_most(int64_t value, int64_t most)
{
    return value < most ? value : most;
}

static void points_waste(struct run_history *history, int attempt, int64_t us,
                         int64_t steps)
{
    struct run_attempt *of = &history->attempts[attempt];
    struct run_clock *clock = &history->reader->clocks[attempt];
    assert(us >= 0 && steps >= 0);
    of->wasted_us = run_reader_add(of->wasted_us, us);
    of->wasted_steps = run_reader_add(of->wasted_steps, steps);
    clock->kept_us -= at_most(us, clock->kept_us);
    clock->kept_steps -= at_most(steps, clock->kept_steps);
    history->replayed_steps = run_reader_add(history->replayed_steps, steps);
}

/* Steps out of buckets, which do not know whose they were: of the attempt that
 * went furthest, as much as it has, then of those before. */
static void waste_old(struct run_history *history, int attempt, int64_t us,
                      int64_t steps)
{
    for (int i = attempt; i >= 0 && (us > 0 || steps > 0); i--) {
        const struct run_clock *clock = &history->reader->clocks[i];
        int64_t of_us = at_most(us, clock->kept_us);
        int64_t of_steps = at_most(steps, clock->kept_steps);
        points_waste(history, i, of_us, of_steps);
        us -= of_us;
        steps -= of_steps;
    }
    /* attempts that are not in order in the files */
    points_waste(history, attempt, us, steps);
}

static int64_t points_share(int64_t value, double of)
{
    return (int64_t)((double)value * of);
}

/* Leaves the steps up to `step` of a bucket that goes beyond it; the others are
 * added to `cut`. */
static void cut_bucket(struct run_bucket *bucket, int64_t step,
                       struct run_bucket *cut)
{
    double kept = 0.0;
    assert(bucket->points > 0 && bucket->last > step);
    if (bucket->first <= step)
        kept = (double)(step - bucket->first + 1) /
               (double)(bucket->last - bucket->first + 1);
    struct run_bucket left = *bucket;
    left.last = step;
    left.points = points_share(left.points, kept);
    left.steps = points_share(left.steps, kept);
    left.training_us = points_share(left.training_us, kept);
    for (int v = 0; v < RUN_VALUES; v++) {
        int64_t count = points_share(left.of[v].count, kept);
        left.of[v].sum = run_stat_mean(&left.of[v]) * (double)count;
        left.of[v].count = count;
    }
    cut->training_us = run_reader_add(cut->training_us,
                                      bucket->training_us - left.training_us);
    cut->steps = run_reader_add(cut->steps, bucket->steps - left.steps);
    *bucket = left.points > 0 ? left : (struct run_bucket){ .points = 0 };
}

/* The run went on behind `step`. */
static void go_back(struct run_history *history, int64_t step)
{
    int attempt = -1;
    while (history->recent_count > 0) {
        const struct run_point *last =
            &history->recent[history->recent_count - 1];
        int64_t beyond = last->step - step;
        if (beyond <= 0)
            return;
        attempt = last->attempt;
        if (beyond > last->steps)
            beyond = last->steps;
        points_waste(history, attempt,
                     points_share(last->training_us,
                                  (double)beyond / (double)last->steps),
                     beyond);
        history->recent_count--;
    }
    if (attempt < 0)
        return;
    struct run_bucket cut = { .points = 0 };
    for (size_t i = 0; i < RUN_BUCKETS_MAX; i++)
        if (history->old[i].points > 0 && history->old[i].last > step)
            cut_bucket(&history->old[i], step, &cut);
    waste_old(history, attempt, cut.training_us, cut.steps);
}

/* --- lines ----------------------------------------------------------------- */

/* How many steps the point stands for. */
static int64_t steps_of(struct run_attempt *attempt, int64_t step)
{
    if (attempt->last_step < 0) {
        if (attempt->from_step < 0 || attempt->from_step >= step)
            attempt->from_step = step - 1; /* the ledger does not tell */
        return step - attempt->from_step;
    }
    if (step <= attempt->last_step)
        return 1;
    return step - attempt->last_step;
}

static int64_t points_scaled(double ms, int64_t steps)
{
    double us = ms * 1e3 * (double)steps;
    return us > 0.0 && us < (double)RUN_US_MAX ? llround(us) : 0;
}

/* The account of the attempt, and what of it is the point's. Of steps that were
 * not logged the logged one stands for all since the one before, so its times
 * count as often. */
static void count_time(struct run_history *history, struct run_point *point)
{
    struct run_attempt *attempt = &history->attempts[point->attempt];
    struct run_clock *clock = &history->reader->clocks[point->attempt];
    double loader_ms = point->of[RUN_LOADER_MS];
    int64_t whole_us = points_scaled(point->of[RUN_STEP_MS], point->steps);
    int64_t data_us = points_scaled(loader_ms, point->steps);
    if (data_us > whole_us)
        data_us = whole_us;
    point->training_us = whole_us - data_us;
    if (attempt->begin_us == 0 && point->time_us > 0)
        attempt->begin_us = point->time_us - whole_us;
    attempt->last_us = point->time_us;
    attempt->data_us = run_reader_add(attempt->data_us, data_us);
    attempt->steps_us = run_reader_add(attempt->steps_us, point->training_us);
    clock->kept_us = run_reader_add(clock->kept_us, point->training_us);
    clock->kept_steps = run_reader_add(clock->kept_steps, point->steps);
    if (clock->first_step < 0)
        clock->first_step = point->step;
    assert(clock->kept_us >= 0 && clock->kept_steps > 0);
    clock->sampled = clock->sampled || point->steps > 1;
    run_reader_heard(history, point->attempt, point->time_us);
}

static void add_point(struct run_history *history,
                      const struct run_point *point)
{
    struct run_attempt *attempt = &history->attempts[point->attempt];
    go_back(history, point->step - point->steps);
    assert(history->recent_count == 0 ||
           history->recent[history->recent_count - 1].step < point->step);
    if (history->recent_count == RUN_RECENT_MAX)
        put_half_away(history);
    assert(history->recent_count < RUN_RECENT_MAX);
    history->recent[history->recent_count++] = *point;
    attempt->last_step = point->step;
    history->last_step = point->step;
    history->tokens = point->tokens;
}

enum err run_points_line(void *arg, const char *line, size_t bytes)
{
    struct run_history *history = arg;
    struct run_point point = { .attempt = -1 };
    double values[FIELDS];
    double step;
    bool good = line_tail_numbers(line, bytes, keys, FIELDS, values);
    step = values[FIELD_STEP];
    if (good && step >= 1 && step <= RUN_STEP_MAX && step == floor(step))
        TRY(run_reader_attempt(history, values[FIELD_ATTEMPT], &point.attempt));
    if (point.attempt < 0) {
        history->skipped_lines++;
        return ERR_OK;
    }
    point.step = (int64_t)step;
    point.time_us = run_reader_us(values[FIELD_TIME]);
    if (values[FIELD_TOKENS] > 0 && values[FIELD_TOKENS] < 1e18)
        point.tokens = (int64_t)values[FIELD_TOKENS];
    for (int who = 0; who < RUN_WHO; who++) {
        double rank = values[FIELD_WHO + who];
        point.who[who] = rank >= 0 && rank < 1e9 ? (int)rank : -1;
    }
    if (values[FIELD_ENERGY] > 0 && values[FIELD_ENERGY] < 1e15)
        history->energy_j += values[FIELD_ENERGY];
    for (int v = 0; v < RUN_VALUES; v++)
        point.of[v] = fabs(values[v]) < 1e300 ? values[v] : NAN;
    point.steps = steps_of(&history->attempts[point.attempt], point.step);
    count_time(history, &point);
    add_point(history, &point);
    return ERR_OK;
}

/* --- buckets of steps: least, largest and sum of each value.
 *
 * Two buckets become one without a look at their points: the least of both, the
 * largest of both, the sums and counts added. So a bucket may be put together
 * from any others in any order, and is what it would be if all points had gone
 * into it at once; that lets old buckets be halved and new ones be filled from
 * old ones (run_history_buckets()). A median could not be kept so. */

static void stat_add(struct run_stat *stat, const struct run_stat *more)
{
    if (more->count == 0)
        return;
    if (stat->count == 0) {
        *stat = *more;
        return;
    }
    stat->min = fmin(stat->min, more->min);
    stat->max = fmax(stat->max, more->max);
    stat->sum += more->sum;
    stat->count += more->count;
    assert(stat->min <= stat->max && stat->count > 0);
}

void run_buckets_add(struct run_bucket *bucket, const struct run_bucket *more)
{
    if (more->points == 0)
        return;
    if (bucket->points == 0) {
        *bucket = *more;
        return;
    }
    if (more->last > bucket->last) {
        bucket->last = more->last;
        bucket->time_us = more->time_us;
        bucket->tokens = more->tokens;
    }
    if (more->first < bucket->first)
        bucket->first = more->first;
    bucket->points += more->points;
    bucket->steps += more->steps;
    bucket->training_us =
        run_reader_add(bucket->training_us, more->training_us);
    assert(bucket->first <= bucket->last && bucket->points > 0);
    for (int v = 0; v < RUN_VALUES; v++)
        stat_add(&bucket->of[v], &more->of[v]);
}

struct run_bucket run_buckets_of(const struct run_point *point)
{
    assert(point->step >= 1 && point->steps >= 1);
    struct run_bucket bucket = {
        .first = point->step,
        .last = point->step,
        .points = 1,
        .steps = point->steps,
        .time_us = point->time_us,
        .training_us = point->training_us,
        .tokens = point->tokens,
    };
    for (int v = 0; v < RUN_VALUES; v++)
        if (!isnan(point->of[v]))
            bucket.of[v] = (struct run_stat){ point->of[v], point->of[v],
                                              point->of[v], 1 };
    return bucket;
}
