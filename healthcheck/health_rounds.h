/* Which ranks meet in which round, and who is to blame: plain logic without
 * communication, the same on every rank. See health_pair.h for the idea. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "healthcheck/health.h"

/* Neighbours, then two for suspects. */
#define HEALTH_ROUNDS 3
/* Fewer speeds than that have no median to speak of. */
#define HEALTH_COHORT_MIN 8

struct health_meeting {
    int a, b;
    int round; /* from 1 */
    int wave;  /* within the round; a rank is in one meeting per wave */
    double gbps;
    int64_t wrong;   /* elements of the sum */
    bool suspicious; /* set by health_rounds_judge() */
    bool hard;       /* wrong data or below the floor, not only slow */
};

/* At most this many meetings for `size` ranks. */
int health_rounds_max(int size);
/* Round 1: (0,1), (2,3), ...; of an odd number the last meets the first in a
 * second wave. Returns the number of meetings. */
int health_rounds_neighbours(int size, struct health_meeting *out);
/* The next round: ranks whose meetings were all suspicious meet one that had a
 * good meeting and that they have not met. Appends; returns how many. */
int health_rounds_retest(int size, struct health_meeting *meetings, int count,
                         int round);
/* The speed that others are compared with: the median of the correct meetings
 * of round 1; below HEALTH_COHORT_MIN of them the upper quartile, because one
 * sick rank may be in most of them. 0: there are none. */
double health_rounds_median(const struct health_meeting *meetings, int count);
/* Mark meetings [first, count). */
void health_rounds_judge(struct health_meeting *meetings, int first, int count,
                         double median, double min_gbps, double ratio_min);
/* states[size]: ok who had a good meeting. Else, with two or more partners: bad
 * when every meeting was hard, warn otherwise. With fewer partners nobody can
 * be named: unknown where data were wrong, warn where it was only slow. */
void health_rounds_blame(int size, const struct health_meeting *meetings,
                         int count, enum health_state *states);
/* A suspicious meeting of round 1 both of whose members are ok: the link. */
bool health_rounds_is_link(const struct health_meeting *meeting,
                           const enum health_state *states);
