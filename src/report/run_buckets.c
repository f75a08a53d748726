/* Buckets of steps: least, largest and sum of each value.
 *
 * Two buckets become one without a look at their points: the least of both, the
 * largest of both, the sums and counts added. So a bucket may be put together
 * from any others in any order, and is what it would be if all points had gone
 * into it at once; that lets old buckets be halved and new ones be filled from
 * old ones (run_points.c, run_history_buckets()). A median could not be kept so. */
#include <assert.h>
#include <math.h>

#include "src/report/run_history_impl.h"

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
