/* Who holds a run up while it trains: a pure function of what all ranks know of a
 * step. In synchronous training one slow rank makes every step as long as its own,
 * and all of them look slow; what tells them apart is the work of each: the step
 * without waiting for others and for samples.
 *
 *   straggler  the work of a rank lies beyond the median of all by a tenth of it,
 *              by four robust deviations (of the median absolute one), and by a
 *              millisecond, in three quarters of the last `window` steps
 *   loader     the rank that waits longest for samples does so for a quarter of
 *              the step, in as many steps
 *   rate       a whole window of steps, each below 0.8 of the median of the run's
 *              earlier windows
 *
 * Each is told once, when it has been so for a second, and again when a quarter of the
 * window or less is left of it. Short steps are over before a scheduler has moved what
 * shares a rank's processor: of 10^5 steps of 4 ms beside a busy one some five hundred
 * windows were slow. Of steps of a tenth of a second 25 name a rank that is always slow.
 *
 * What stays so for another window may be acted on: the run saves, and the job's next
 * attempt has a spare node in place of a straggler's node, or begins with the whole
 * check of all nodes, which a rate that has dropped is worth, too. slow_act() says
 * whether that is worth it, and allowed. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "src/base/err.h"

#define SLOW_WINDOW_MIN 4
#define SLOW_WINDOW_MAX 63
#define SLOW_VERDICTS 8 /* of a step; what is more is told with the next */
#define SLOW_KINDS 3
#define SLOW_GAPS 15

struct slow; /* 56 bytes a rank */

enum slow_kind { SLOW_RANK, SLOW_LOADER, SLOW_RATE };
extern const char *const slow_kind_names[];

/* What is done about it, in the order in which rules are asked. */
enum slow_action {
    SLOW_WARN,     /* it is told, and that is all, or all so far */
    SLOW_ONE_NODE, /* the ranks share one, which is not what is slow */
    SLOW_NO_SPARE, /* nor a launch script that would take one, perhaps */
    SLOW_NO_JOB,   /* no launch script would start again */
    SLOW_SPENT,    /* the job has had its replacements and checks */
    SLOW_COOLS,    /* the last one was too short a time ago */
    SLOW_SWEEP,
    SLOW_REPLACE,
};
extern const char *const slow_action_names[];

struct slow_seen {
    int64_t step;
    double step_s;
    const double *work_s; /* [ranks]; NULL: they are uneven by design */
    double loader;        /* the longest wait for samples / its step */
    int loader_rank;
    double rate; /* tokens per second, of all ranks */
    bool fresh;  /* rates are not to be compared with those before */
};

struct slow_verdict {
    enum slow_kind kind;
    bool over;     /* it was told of, and is no longer so */
    int rank;      /* SLOW_RATE: -1 */
    int64_t since; /* the first step of it */
    double factor; /* SLOW_RANK: work / median, mean of its slow steps;
                      SLOW_LOADER: likewise of the shares;
                      SLOW_RATE: median of the window / that of those before */
};

enum err slow_create(int ranks, int window, struct slow **out);
void slow_destroy(struct slow *slow); /* NULL: nothing */

/* A step that is to count: none that is longer by design, as the first ones of a
 * start, or one behind an evaluation. Returns how many verdicts there are. O(ranks),
 * without memory of its own. */
int slow_step(struct slow *slow, const struct slow_seen *seen,
              struct slow_verdict verdicts[SLOW_VERDICTS]);
/* What is told and not over; since -1: nothing is (a rate: or it is of steps of another
 * length). Of ranks the one with the largest factor, -1: none; O(ranks). */
struct slow_verdict slow_told(const struct slow *slow, enum slow_kind kind);

/* The last times between steps; zeros at first. */
struct slow_gaps {
    double s[SLOW_GAPS];
    int64_t count;
};

/* Is the step behind this gap one like those before? What lies between steps makes the
 * next one longer where it is out of the ordinary (an evaluation, a save); a wait that
 * every step has, whatever its length, is none. */
bool slow_gap(struct slow_gaps *gaps, double gap_s, double step_s);

struct slow_job {
    enum slow_action may; /* at most, by the setting */
    enum slow_kind kind;  /* what stays so */
    int64_t steps;        /* since the first slow one */
    int window;           /* likewise steps */
    int nodes;            /* of this attempt */
    int spares; /* in the job, with nothing known against them; -1: no job */
    int done, budget;  /* replacements and checks in this job */
    double since_s;    /* the last of them */
    double cooldown_s; /* between two */
};

enum slow_action slow_act(const struct slow_job *job);
