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
 *     both fine                        neither is: the link 2 - 3 may be, and
 *                                      they meet twice more
 *
 * A rank is clear as soon as one meeting was good, for that took both of them;
 * it is blamed only if it had two partners at least, since with one alone the
 * other could be the cause. Partners are only such as had a good meeting, so a
 * suspect never meets a suspect, and of the own leaf switch where there are any,
 * or a slow switch would pass for a slow node.
 *
 * Slow is what the cohort's spread does not explain. One draw of normal noise in
 * 160 is, so nobody is blamed for one: three in a row are. A node that is slower by
 * five deviations is missed once in a hundred times.
 *
 * At last everybody meets one behind another leaf. Leaves are paired as teams of a
 * tournament are, in another way for each of their ranks: a slow one shows with
 * all, the others with that one alone.
 *
 * Meetings of a round are in waves, in each of which a rank is in one at most:
 * whoever goes through the list in its order finds his partner free, and nobody
 * waits in a circle. All ranks compute all of this from the same numbers, in a time
 * that grows as size log size. */
#include "healthcheck/health_rounds.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "src/base/new.h"
#include "src/base/real.h"

#define ROUNDS_PARTNERS_MIN 2
#define ROUNDS_PEERS_MAX 4 /* of a suspect: two neighbours, one a round */
#define ROUNDS_WAVES_MAX 8
/* Fewer speeds than that have no median to speak of, and on a busy machine they
 * differ by so much without a fault. */
#define ROUNDS_COHORT_MIN 8
static const double rounds_ratio_small[HEALTH_RATES] = { 0.5, 0.25 };
/* A way through more switches takes longer and is sound. */
#define ROUNDS_RATIO_PROMPT 0.5
#define ROUNDS_DEVIATIONS 2.5
#define ROUNDS_NORMAL 1.4826 /* a normal deviation over its median's */
/* The part of a leaf's ranks, or of its meetings across, that names it. */
#define ROUNDS_LEAF_PART 0.75

struct rounds_tally {
    int met, peers[ROUNDS_PEERS_MAX];
    unsigned good; /* rates of which a meeting was good */
    bool not_hard, wrong;
    enum health_round round; /* of the last meeting, and its wave */
    int wave;
};

void health_rounds_destroy(struct health_rounds *rounds)
{
    free(rounds->slow_leaves);
    free(rounds->states);
    free(rounds->tallies);
    free(rounds->order);
    free(rounds->meetings);
    *rounds = (struct health_rounds){ 0 };
}

/* Ranks by leaf, in their order within one: a counting sort. */
static enum err rounds_sort(struct health_rounds *rounds)
{
    int *begin = NULL;
    for (int rank = 0; rank < rounds->size; rank++)
        if (rounds->leaf[rank] >= rounds->leaves)
            rounds->leaves = rounds->leaf[rank] + 1;
    TRY(new_zeroed(&begin, (size_t)rounds->leaves + 1));
    for (int rank = 0; rank < rounds->size; rank++)
        begin[rounds->leaf[rank] + 1]++;
    for (int leaf = 0; leaf < rounds->leaves; leaf++)
        begin[leaf + 1] += begin[leaf];
    for (int rank = 0; rank < rounds->size; rank++)
        rounds->order[begin[rounds->leaf[rank]]++] = rank;
    free(begin);
    return ERR_OK;
}

enum err health_rounds_create(int size, const int *leaf, double ratio_min,
                              double min_gbps, struct health_rounds *out)
{
    enum err rc = ERR_OK;
    size_t ranks = (size_t)size;
    assert(size > 1);
    *out = (struct health_rounds){
        .size = size,
        .leaf = leaf,
        /* neighbours and links thrice, suspects twice, and the leaves */
        .room = 3 * (size / 2 + 1) + 3 * size,
        .ratio_min = ratio_min,
        .min_gbps = min_gbps,
    };
    TRY_OUT(new_zeroed(&out->meetings, (size_t)out->room));
    TRY_OUT(new_zeroed(&out->order, ranks));
    TRY_OUT(new_zeroed(&out->tallies, ranks));
    TRY_OUT(new_zeroed(&out->states, ranks));
    TRY_OUT(rounds_sort(out));
    TRY_OUT(new_zeroed(&out->slow_leaves, (size_t)out->leaves));
out:
    if (rc != ERR_OK)
        health_rounds_destroy(out);
    return rc;
}

/* --- who meets whom --- */

static void rounds_add(struct health_rounds *rounds, int a, int b, int wave,
                       int again_of)
{
    assert(a != b);
    rounds->meetings[rounds->count++] =
        (struct health_meeting){ .a = a,
                                 .b = b,
                                 .round = rounds->round,
                                 .wave = wave,
                                 .again_of = again_of };
    for (int i = 0; i < 2; i++) {
        struct rounds_tally *tally = &rounds->tallies[i == 0 ? a : b];
        tally->round = rounds->round;
        tally->wave = wave;
    }
}

/* The last of an odd number meets the first in a second wave. */
static void rounds_neighbours(struct health_rounds *rounds)
{
    for (int a = 0; a + 1 < rounds->size; a += 2)
        rounds_add(rounds, a, a + 1, 0, -1);
    if (rounds->size % 2 == 1)
        rounds_add(rounds, 0, rounds->size - 1, 1, -1);
}

static bool rounds_met(const struct rounds_tally *tally, int other)
{
    for (int i = 0; i < tally->met && i < ROUNDS_PEERS_MAX; i++)
        if (tally->peers[i] == other)
            return true;
    return false;
}

/* A good rank that `suspect` has not met and that is free in this wave, of its
 * leaf if there is one. `good` is in order of leaves; begins are spread, so that
 * suspects find different partners. */
static int rounds_partner(const struct health_rounds *rounds, const int *good,
                          int goods, int suspect, int wave)
{
    const int *leaf = rounds->leaf;
    int low = 0, high = goods;
    assert(suspect < rounds->size && wave < ROUNDS_WAVES_MAX);
    while (low < high) {
        int middle = (low + high) / 2;
        if (leaf[good[middle]] < leaf[suspect])
            low = middle + 1;
        else
            high = middle;
    }
    int own = low;
    while (own < goods && leaf[good[own]] == leaf[suspect])
        own++;
    own -= low;
    for (int step = 0; step < goods; step++) {
        int at =
            step < own ? low + (suspect + step) % own : (low + step) % goods;
        const struct rounds_tally *tally = &rounds->tallies[good[at]];
        bool busy = tally->round == rounds->round && tally->wave == wave;
        if (!busy && !rounds_met(&rounds->tallies[suspect], good[at]))
            return good[at];
    }
    return -1;
}

static void rounds_suspects(struct health_rounds *rounds)
{
    int goods = 0, added = 1;
    int *good = malloc((size_t)rounds->size * sizeof *good);
    if (good == NULL)
        return; /* then nobody is named */
    for (int i = 0; i < rounds->size; i++)
        if (rounds->tallies[rounds->order[i]].good == HEALTH_RATES_ALL)
            good[goods++] = rounds->order[i];
    for (int wave = 0; wave < ROUNDS_WAVES_MAX && added > 0; wave++) {
        added = 0;
        for (int rank = 0; rank < rounds->size; rank++) {
            const struct rounds_tally *tally = &rounds->tallies[rank];
            if (tally->good == HEALTH_RATES_ALL ||
                tally->round == rounds->round)
                continue;
            int other = rounds_partner(rounds, good, goods, rank, wave);
            if (other < 0)
                continue;
            rounds_add(rounds, rank, other, wave, -1);
            added++;
        }
    }
    free(good);
}

static bool rounds_may_be_link(const struct health_rounds *rounds,
                               const struct health_meeting *meeting)
{
    unsigned slow = meeting->suspicious & ~meeting->cleared;
    return meeting->round == HEALTH_ROUND_NEIGHBOURS &&
           (slow & rounds->tallies[meeting->a].good &
            rounds->tallies[meeting->b].good) != 0;
}

static void rounds_links(struct health_rounds *rounds)
{
    for (int i = 0, end = rounds->count; i < end; i++) {
        const struct health_meeting *meeting = &rounds->meetings[i];
        if (rounds_may_be_link(rounds, meeting))
            rounds_add(rounds, meeting->a, meeting->b, meeting->wave, i);
    }
}

/* The k-th ranks of leaves meet in the k-th round of a tournament of leaves, by
 * the circle method: the last team stays, the others turn. */
static void rounds_leaves(struct health_rounds *rounds)
{
    int teams = rounds->leaves + rounds->leaves % 2, size = rounds->size;
    int *begin = malloc((size_t)(rounds->leaves + 1) * sizeof *begin);
    if (begin == NULL || rounds->leaves < 2) {
        free(begin);
        return;
    }
    for (int i = size, leaf = rounds->leaves; leaf >= 0; leaf--) {
        while (i > 0 && rounds->leaf[rounds->order[i - 1]] >= leaf)
            i--;
        begin[leaf] = leaf == rounds->leaves ? size : i;
    }
    for (int k = 0, added = 1; added > 0; k++) {
        added = 0;
        for (int i = 0; i < teams / 2; i++) {
            int a = i == 0 ? teams - 1 : (k + i) % (teams - 1);
            int b = (k + teams - 1 - i) % (teams - 1);
            if (a >= rounds->leaves || b >= rounds->leaves ||
                begin[a] + k >= begin[a + 1] || begin[b] + k >= begin[b + 1])
                continue;
            rounds_add(rounds, rounds->order[begin[a] + k],
                       rounds->order[begin[b] + k], 0, -1);
            added++;
        }
        added += k + 1 < teams; /* unequal leaves: another pairing may fit */
    }
    free(begin);
}

int health_rounds_next(struct health_rounds *rounds)
{
    static void (*const add[HEALTH_ROUNDS_END])(struct health_rounds *) = {
        [HEALTH_ROUND_NEIGHBOURS] = rounds_neighbours,
        [HEALTH_ROUND_SUSPECTS] = rounds_suspects,
        [HEALTH_ROUND_SUSPECTS_AGAIN] = rounds_suspects,
        [HEALTH_ROUND_LINKS] = rounds_links,
        [HEALTH_ROUND_LINKS_AGAIN] = rounds_links,
        [HEALTH_ROUND_LEAVES] = rounds_leaves,
    };
    rounds->first = rounds->count;
    while (rounds->count == rounds->first &&
           ++rounds->round < HEALTH_ROUNDS_END)
        add[rounds->round](rounds);
    return rounds->count - rounds->first;
}

/* --- which meetings are suspicious --- */

/* The median of correct meetings, or of few the upper quartile, because one sick
 * rank may be in most of them; sets the spread of round 1. 0: there are none. */
static double rounds_median(struct health_rounds *rounds, enum health_rate rate)
{
    int used = 0;
    size_t room = (size_t)(rounds->count - rounds->first) + 1;
    double *values = malloc(room * sizeof *values), median = 0;
    if (values == NULL)
        return 0; /* then speeds are judged by the floor alone */
    for (int i = rounds->first; i < rounds->count; i++)
        if (rounds->meetings[i].wrong == 0)
            values[used++] = rounds->meetings[i].rates[rate];
    real_sort(values, used);
    bool few =
        used < ROUNDS_COHORT_MIN || (rounds->round == HEALTH_ROUND_LEAVES &&
                                     rounds->leaves < ROUNDS_COHORT_MIN);
    if (used > 0)
        median = values[few ? used * 3 / 4 : used / 2];
    if (rounds->round == HEALTH_ROUND_NEIGHBOURS && !few && median > 0) {
        for (int i = 0; i < used; i++)
            values[i] = fabs(values[i] - median);
        rounds->spreads[rate] =
            ROUNDS_NORMAL * real_median(values, used) / median;
    }
    free(values);
    return median;
}

static void rounds_count(struct health_rounds *rounds,
                         const struct health_meeting *meeting, int rank,
                         int other)
{
    struct rounds_tally *tally = &rounds->tallies[rank];
    assert(rank != other);
    if (tally->met < ROUNDS_PEERS_MAX)
        tally->peers[tally->met] = other;
    tally->met++; /* nobody meets the same rank twice */
    tally->good |= HEALTH_RATES_ALL & ~meeting->suspicious;
    tally->not_hard |= !meeting->hard;
    tally->wrong |= meeting->wrong > 0;
}

/* Rounds 2 to 5 are compared with round 1. Between two leaves there is nothing
 * to compare with but what neighbours reach, of which half is expected. */
static double rounds_reference(struct health_rounds *rounds,
                               enum health_rate rate)
{
    double first = rounds->first > 0 ? rounds->meetings[0].medians[rate] : 0;
    if (rounds->round == HEALTH_ROUND_NEIGHBOURS)
        return rounds_median(rounds, rate);
    if (rounds->round != HEALTH_ROUND_LEAVES)
        return first;
    return rounds->leaves == 2 ? first : rounds_median(rounds, rate);
}

/* Compares one rate of the round's meetings. */
static void rounds_compare(struct health_rounds *rounds, enum health_rate rate)
{
    double median = rounds_reference(rounds, rate);
    double ratio = rounds->ratio_min;
    bool across = rounds->round == HEALTH_ROUND_LEAVES;
    if (rate == HEALTH_PROMPTNESS)
        ratio = fmin(ratio, ROUNDS_RATIO_PROMPT);
    ratio = fmin(ratio, 1 - ROUNDS_DEVIATIONS * rounds->spreads[rate]);
    if (rounds->size / 2 < ROUNDS_COHORT_MIN || (across && rounds->leaves == 2))
        ratio = fmin(ratio, rounds_ratio_small[rate]);
    for (int i = rounds->first; i < rounds->count; i++) {
        struct health_meeting *meeting = &rounds->meetings[i];
        meeting->medians[rate] = median;
        if (meeting->rates[rate] < ratio * median)
            meeting->suspicious |= 1u << rate;
    }
}

void health_rounds_judge(struct health_rounds *rounds)
{
    assert(rounds->first <= rounds->count);
    for (int rate = 0; rate < HEALTH_RATES; rate++)
        rounds_compare(rounds, rate);
    for (int i = rounds->first; i < rounds->count; i++) {
        struct health_meeting *meeting = &rounds->meetings[i];
        meeting->hard = meeting->wrong > 0 ||
                        meeting->rates[HEALTH_BANDWIDTH] < rounds->min_gbps;
        if (meeting->hard)
            meeting->suspicious = HEALTH_RATES_ALL;
        if (meeting->again_of >= 0) {
            struct health_meeting *first = &rounds->meetings[meeting->again_of];
            if (!first->hard)
                first->cleared |= HEALTH_RATES_ALL & ~meeting->suspicious;
        } else if (rounds->round != HEALTH_ROUND_LEAVES) {
            rounds_count(rounds, meeting, meeting->a, meeting->b);
            rounds_count(rounds, meeting, meeting->b, meeting->a);
        }
    }
}

/* --- who is to blame --- */

/* What counts for or against a leaf: its ranks, and its meetings across but for
 * those with a leaf that is named already. */
struct rounds_leaf {
    int ranks, slow_ranks, across, slow_across;
};

static void rounds_count_across(const struct health_rounds *rounds,
                                enum health_rate rate,
                                struct rounds_leaf *counts)
{
    for (int leaf = 0; leaf < rounds->leaves; leaf++)
        counts[leaf].across = counts[leaf].slow_across = 0;
    for (int i = 0; i < rounds->count; i++) {
        const struct health_meeting *meeting = &rounds->meetings[i];
        int a = rounds->leaf[meeting->a], b = rounds->leaf[meeting->b];
        if (meeting->round != HEALTH_ROUND_LEAVES || rounds->slow_leaves[a] ||
            rounds->slow_leaves[b] || rounds->states[meeting->a] != HEALTH_OK ||
            rounds->states[meeting->b] != HEALTH_OK)
            continue;
        counts[a].across++;
        counts[b].across++;
        bool slow = (meeting->suspicious & 1u << rate) != 0;
        counts[a].slow_across += slow;
        counts[b].slow_across += slow;
    }
}

/* All that are as slow as the slowest are named, one after the other. */
static bool rounds_name_across(struct health_rounds *rounds,
                               enum health_rate rate,
                               struct rounds_leaf *counts)
{
    double most = ROUNDS_LEAF_PART;
    bool named = false;
    rounds_count_across(rounds, rate, counts);
    for (int leaf = 0; leaf < rounds->leaves; leaf++)
        if (counts[leaf].slow_across >= ROUNDS_PARTNERS_MIN)
            most = fmax(most,
                        (double)counts[leaf].slow_across / counts[leaf].across);
    for (int leaf = 0; leaf < rounds->leaves; leaf++)
        if (counts[leaf].slow_across >= ROUNDS_PARTNERS_MIN &&
            counts[leaf].slow_across >= most * counts[leaf].across)
            named = rounds->slow_leaves[leaf] = true;
    return named;
}

static void rounds_name_leaves(struct health_rounds *rounds)
{
    struct rounds_leaf *counts = NULL;
    if (rounds->leaves < 2 ||
        new_zeroed(&counts, (size_t)rounds->leaves) != ERR_OK)
        return;
    for (int rank = 0; rank < rounds->size; rank++) {
        counts[rounds->leaf[rank]].ranks++;
        counts[rounds->leaf[rank]].slow_ranks +=
            rounds->states[rank] == HEALTH_WARN;
    }
    for (int leaf = 0; leaf < rounds->leaves; leaf++)
        rounds->slow_leaves[leaf] =
            counts[leaf].slow_ranks >= ROUNDS_PARTNERS_MIN &&
            counts[leaf].slow_ranks >= ROUNDS_LEAF_PART * counts[leaf].ranks;
    for (int rank = 0; rank < rounds->size; rank++)
        if (rounds->slow_leaves[rounds->leaf[rank]] &&
            rounds->states[rank] == HEALTH_WARN)
            rounds->states[rank] = HEALTH_OK;
    for (int rate = 0; rate < HEALTH_RATES; rate++)
        while (rounds_name_across(rounds, rate, counts))
            ;
    free(counts);
}

void health_rounds_blame(struct health_rounds *rounds)
{
    for (int rank = 0; rank < rounds->size; rank++) {
        const struct rounds_tally *tally = &rounds->tallies[rank];
        enum health_state *state = &rounds->states[rank];
        if (tally->good == HEALTH_RATES_ALL)
            *state = HEALTH_OK;
        else if (tally->met < ROUNDS_PARTNERS_MIN)
            *state = tally->wrong ? HEALTH_UNKNOWN : HEALTH_WARN;
        else
            *state = tally->not_hard ? HEALTH_WARN : HEALTH_BAD;
    }
    rounds_name_leaves(rounds);
}

bool health_rounds_is_link(const struct health_rounds *rounds,
                           const struct health_meeting *meeting)
{
    return rounds_may_be_link(rounds, meeting) &&
           !rounds->slow_leaves[rounds->leaf[meeting->a]] &&
           !rounds->slow_leaves[rounds->leaf[meeting->b]];
}

int health_rounds_partners(const struct health_rounds *rounds, int rank)
{
    return rounds->tallies[rank].met;
}
