/* The logic of pairing rounds: who meets whom, which meeting is suspicious, who
 * is to blame. Messages and measurements are in health_pair.c.
 *
 * A meeting of two says that one of them is sick, or what is between them, and
 * not which. In round 1 neighbours meet, 0 with 1, 2 with 3. Say that 2 and 3 are
 * slow. In round 2 each meets one of a pair that was fine, here 0 and 1, and in
 * round 3 another:
 *
 *     2 slow with 0 and 4, 3 fine      2 is sick
 *     both slow with all               both are
 *     both fine                        neither is: the link 2 - 3 is
 *
 * A rank is clear as soon as one meeting was good, for that took both of them;
 * it is blamed only if it had two partners at least, since with one alone the
 * other could be the cause. Partners are only such as had a good meeting, so a
 * suspect never meets a suspect.
 *
 * Meetings of a round are in waves, in each of which a rank is in one at most:
 * whoever goes through the list in its order finds his partner free, and nobody
 * waits in a circle. All ranks compute all of this from the same numbers.
 *
 * Quadratic in the number of suspects and meetings, which are few. */
#include "healthcheck/health_rounds.h"

#include <assert.h>
#include <stdlib.h>

#include "src/base/real.h"

#define ROUNDS_PARTNERS_MIN 2

int health_rounds_max(int size)
{
    return size + 1 + (HEALTH_ROUNDS - 1) * size;
}

int health_rounds_neighbours(int size, struct health_meeting *out)
{
    int count = 0;
    for (int a = 0; a + 1 < size; a += 2)
        out[count++] =
            (struct health_meeting){ .a = a, .b = a + 1, .round = 1 };
    if (size % 2 == 1 && size > 1)
        out[count++] = (struct health_meeting){
            .a = 0, .b = size - 1, .round = 1, .wave = 1
        };
    return count;
}

static bool rounds_has(const struct health_meeting *meeting, int rank)
{
    return meeting->a == rank || meeting->b == rank;
}

static bool rounds_met(const struct health_meeting *meetings, int count, int a,
                       int b)
{
    for (int i = 0; i < count; i++)
        if (rounds_has(&meetings[i], a) && rounds_has(&meetings[i], b))
            return true;
    return false;
}

static bool rounds_had_good(const struct health_meeting *meetings, int count,
                            int rank)
{
    for (int i = 0; i < count; i++)
        if (rounds_has(&meetings[i], rank) && !meetings[i].suspicious)
            return true;
    return false;
}

/* A good rank that `suspect` has not met and that is free in this wave; the
 * search starts at different places so that suspects spread over partners. */
static int rounds_partner(int size, const struct health_meeting *meetings,
                          int count, int before, int suspect, int wave)
{
    for (int step = 1; step < size; step++) {
        int other = (suspect + step) % size;
        bool busy = false;
        if (!rounds_had_good(meetings, before, other) ||
            rounds_met(meetings, count, suspect, other))
            continue;
        for (int i = before; i < count; i++)
            busy |= meetings[i].wave == wave && rounds_has(&meetings[i], other);
        if (!busy)
            return other;
    }
    return -1;
}

static bool rounds_meets_since(const struct health_meeting *meetings, int first,
                               int count, int rank)
{
    for (int i = first; i < count; i++)
        if (rounds_has(&meetings[i], rank))
            return true;
    return false;
}

int health_rounds_retest(int size, struct health_meeting *meetings, int count,
                         int round)
{
    int before = count;
    for (int wave = 0, added = 1; added > 0; wave++) {
        added = 0;
        for (int rank = 0; rank < size; rank++) {
            if (rounds_had_good(meetings, before, rank) ||
                rounds_meets_since(meetings, before, count, rank))
                continue;
            int other =
                rounds_partner(size, meetings, count, before, rank, wave);
            if (other < 0)
                continue;
            assert(count < health_rounds_max(size));
            meetings[count++] = (struct health_meeting){
                .a = rank, .b = other, .round = round, .wave = wave
            };
            added++;
        }
    }
    return count - before;
}

double health_rounds_median(const struct health_meeting *meetings, int count)
{
    double *values = malloc((size_t)(count + 1) * sizeof *values);
    int used = 0;
    if (values == NULL)
        return 0; /* then speeds are judged by the floor alone */
    for (int i = 0; i < count; i++)
        if (meetings[i].round == 1 && meetings[i].wrong == 0)
            values[used++] = meetings[i].gbps;
    real_sort(values, used);
    int middle = used < HEALTH_COHORT_MIN ? used * 3 / 4 : used / 2;
    double median = used > 0 ? values[middle] : 0;
    free(values);
    return median;
}

void health_rounds_judge(struct health_meeting *meetings, int first, int count,
                         double median, double min_gbps, double ratio_min)
{
    assert(first >= 0 && first <= count);
    for (int i = first; i < count; i++) {
        struct health_meeting *meeting = &meetings[i];
        meeting->hard = meeting->wrong > 0 || meeting->gbps < min_gbps;
        meeting->suspicious =
            meeting->hard || meeting->gbps < ratio_min * median;
    }
}

void health_rounds_blame(int size, const struct health_meeting *meetings,
                         int count, enum health_state *states)
{
    for (int rank = 0; rank < size; rank++) {
        int met = 0;
        bool hard = true;
        bool wrong = false;
        states[rank] = HEALTH_OK;
        if (rounds_had_good(meetings, count, rank))
            continue;
        for (int i = 0; i < count; i++) {
            if (!rounds_has(&meetings[i], rank))
                continue;
            met++; /* nobody meets the same rank twice */
            hard &= meetings[i].hard;
            wrong |= meetings[i].wrong > 0;
        }
        if (met < ROUNDS_PARTNERS_MIN)
            states[rank] = wrong ? HEALTH_UNKNOWN : HEALTH_WARN;
        else
            states[rank] = hard ? HEALTH_BAD : HEALTH_WARN;
    }
}

bool health_rounds_is_link(const struct health_meeting *meeting,
                           const enum health_state *states)
{
    return meeting->suspicious && meeting->round == 1 &&
           states[meeting->a] == HEALTH_OK && states[meeting->b] == HEALTH_OK;
}
