/* Which ranks meet in which round, and who is to blame: plain logic without
 * communication, the same on every rank. See health_rounds.c for the idea.
 *
 *     TRY(health_rounds_create(size, leaf, ratio_min, min_gbps, &rounds));
 *     while (health_rounds_next(&rounds) > 0) {
 *         for those from rounds.first to rounds.count: measure rates and wrong
 *         health_rounds_judge(&rounds);
 *     }
 *     health_rounds_blame(&rounds);
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "healthcheck/health.h"

enum health_round {
    HEALTH_ROUND_NONE,
    HEALTH_ROUND_NEIGHBOURS,
    HEALTH_ROUND_SUSPECTS, /* each meets somebody who had a good meeting */
    HEALTH_ROUND_SUSPECTS_AGAIN,
    HEALTH_ROUND_LINKS, /* neighbours who were slow with each other alone */
    HEALTH_ROUND_LINKS_AGAIN,
    HEALTH_ROUND_LEAVES, /* everybody meets somebody behind another switch */
    HEALTH_ROUNDS_END,
};

/* What is compared, each with its own spread: of the largest vector GB/s, of the
 * smallest how often one goes in a microsecond. More is better. */
enum health_rate { HEALTH_BANDWIDTH, HEALTH_PROMPTNESS, HEALTH_RATES };
#define HEALTH_RATES_ALL ((1u << HEALTH_RATES) - 1)

struct health_meeting {
    int a, b;
    enum health_round round;
    int wave;     /* within the round; a rank is in one meeting per wave */
    int again_of; /* the meeting of neighbours that this repeats; -1: none */
    double rates[HEALTH_RATES];
    int64_t wrong;                /* elements of the sum */
    double medians[HEALTH_RATES]; /* the rates that it was compared with */
    /* sets of rates, a bit each: */
    unsigned suspicious; /* set by health_rounds_judge() */
    unsigned cleared;    /* a repetition of it was good */
    bool hard;           /* wrong data or below the floor, not only slow */
};

struct health_rounds {
    int size, leaves;
    const int *leaf; /* of each rank, from 0; the caller's */
    double ratio_min, min_gbps;
    struct health_meeting *meetings;
    int count, first; /* in all, and before this round */
    int room;         /* never more than that */
    enum health_round round;
    double
        spreads[HEALTH_RATES]; /* robust deviation of round 1 over its median */
    int *order;                /* ranks by leaf */
    struct rounds_tally *tallies;
    /* what health_rounds_blame() finds: of ranks, and of leaves */
    enum health_state *states;
    bool *slow_leaves;
};

/* For `size` ranks; `leaf` has the number of each one's leaf switch, all 0 where
 * nothing is known of that. After a failure there is nothing to destroy. */
enum err health_rounds_create(int size, const int *leaf, double ratio_min,
                              double min_gbps, struct health_rounds *out);
void health_rounds_destroy(struct health_rounds *rounds);
/* Appends the meetings of the next round, in order of waves; rounds in which
 * nobody has to meet are passed over. Returns how many; 0: it is over. */
int health_rounds_next(struct health_rounds *rounds);
/* Marks those of this round, which have been measured: suspicious is what is
 * hard, or slower than ratio_min of the round's median (promptness: than half of
 * it) and than the cohort's own spread explains (2.5 robust deviations). Below 8
 * pairs there is no spread to speak of, and less than half (promptness: a quarter)
 * of the upper quartile is suspicious. */
void health_rounds_judge(struct health_rounds *rounds);
/* states[size]: ok who had a good meeting, of each rate. Else, with two or more partners: bad
 * when every meeting was hard, warn otherwise. With fewer partners nobody can
 * be named: unknown where data were wrong, warn where it was only slow. Where
 * most of a leaf are slow, or most of its meetings across are, the leaf is
 * named and not its ranks. */
void health_rounds_blame(struct health_rounds *rounds);
/* A suspicious meeting of neighbours, again each time, both of whose members are
 * ok: the link. */
bool health_rounds_is_link(const struct health_rounds *rounds,
                           const struct health_meeting *meeting);
/* With how many partners a rank met before the leaves' round. */
int health_rounds_partners(const struct health_rounds *rounds, int rank);
