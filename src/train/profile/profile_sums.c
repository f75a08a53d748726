/* Adds the sums of the ranks' timelines, and finds their spread.
 *
 * Two exchanges for all kinds at once, of integers, which add in any order: sums
 * of what was counted, and maxima of times and of their negatives, of which the
 * second is minus the least. FLOPs go as millions and bytes as KiB, so that the
 * sums of many ranks stay within 64 bits.
 *
 * A step's time is a frame's; work and ops inside it have each nanosecond once
 * (a span's own time is without what lies in it), so the step less all of them is
 * the time that nobody has accounted for. */
#include "src/train/profile/profile.h"

#include <assert.h>
#include <stdlib.h>

#include "src/base/new.h"

#define FIELDS 4 /* count, ns, mflop, kib */
#define SPREADS 2

/* Nested frames count with what is in them, so that a row says how much of a
 * step they are. */
static int64_t time_of(const struct timeline *timeline, int kind,
                       const struct timeline_sum *sum)
{
    return timeline->kinds[kind].place == TIMELINE_FRAME ? sum->whole_ns
                                                         : sum->ns;
}

static void put(const struct timeline *timeline,
                const struct timeline_sum *list, int64_t *added,
                int64_t *spread)
{
    for (int k = 0; k < timeline->kind_count; k++) {
        int64_t ns = time_of(timeline, k, &list[k]);
        added[FIELDS * k] = list[k].count;
        added[FIELDS * k + 1] = ns;
        added[FIELDS * k + 2] = (int64_t)(list[k].flop * 1e-6);
        added[FIELDS * k + 3] = (int64_t)(list[k].bytes / 1024.0);
        spread[SPREADS * k] = ns;
        spread[SPREADS * k + 1] = -ns;
    }
}

static void take(int count, const int64_t *added, const int64_t *spread,
                 struct profile_row *rows)
{
    for (int k = 0; k < count; k++)
        rows[k] = (struct profile_row){ .count = added[FIELDS * k],
                                        .ns = added[FIELDS * k + 1],
                                        .mflop = added[FIELDS * k + 2],
                                        .kib = added[FIELDS * k + 3],
                                        .ns_max = spread[SPREADS * k],
                                        .ns_min = -spread[SPREADS * k + 1] };
}

enum err profile_sums_gather(struct comm *comm, const struct timeline *timeline,
                             struct profile_sums *sums)
{
    enum err rc = ERR_OK;
    int kinds = timeline->kind_count;
    assert(kinds > TIMELINE_STEP && kinds <= TIMELINE_KINDS_MAX);
    assert(sums->first > 0 && sums->first <= sums->last);
    size_t added_count = (size_t)(2 * kinds * FIELDS + 1);
    size_t spread_count = (size_t)(2 * kinds * SPREADS);
    int64_t *added = NULL;
    rc = new_zeroed(&added, added_count + spread_count);
    TRY_OUT(comm_agree(comm, rc));
    int64_t *spread = added + added_count;
    put(timeline, timeline->host, added, spread);
    put(timeline, timeline->device, added + kinds * FIELDS,
        spread + kinds * SPREADS);
    added[added_count - 1] = (int64_t)timeline->lost;
    TRY_OUT(comm_all_reduce_i64(comm, added, added_count, COMM_SUM));
    TRY_OUT(comm_all_reduce_i64(comm, spread, spread_count, COMM_MAX));
    sums->ranks = comm_size(comm);
    sums->kinds = timeline->kinds;
    sums->kind_count = kinds;
    sums->lost = added[added_count - 1];
    take(kinds, added, spread, sums->host);
    take(kinds, added + kinds * FIELDS, spread + kinds * SPREADS,
         sums->device_of);
out:
    free(added);
    return rc;
}

int64_t profile_sums_steps(const struct profile_sums *sums)
{
    return sums->host[TIMELINE_STEP].ns;
}

/* The time of all that is work, whose spans lie in frames. */
static int64_t busy(const struct profile_sums *sums,
                    const struct profile_row *rows)
{
    int64_t ns = 0;
    for (int k = 0; k < sums->kind_count; k++)
        if (sums->kinds[k].place != TIMELINE_FRAME)
            ns += rows[k].ns;
    return ns;
}

int64_t profile_sums_rest(const struct profile_sums *sums)
{
    return profile_sums_steps(sums) - busy(sums, sums->host);
}

int64_t profile_sums_idle(const struct profile_sums *sums)
{
    return profile_sums_steps(sums) - busy(sums, sums->device_of);
}
