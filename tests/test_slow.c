/* Who is named as slow, in simulated tables of times:
 *
 *   found      a rank that is slower by a fifth is named within 50 steps, and no
 *              other one
 *   clean      noise and bursts accuse nobody
 *   recovered  who is as fast as the others again is told so, and can be named
 *              again
 *   gaps       what lies between steps keeps them from being judged where it is out
 *              of the ordinary, not where it is long */
#include "src/control/slow.h"

#include "src/base/clock.h"
#include "src/base/rng.h"
#include "tests/tap.h"

#define RANKS_MAX 16384
#define NOISE 0.03

struct table {
    int ranks, window;
    uint64_t seed;
    int slow;         /* -1: none */
    int64_t from, to; /* of its steps */
    double factor;    /* of its work in them */
    bool bursts;      /* three times the work for up to six steps */
    double step_s;    /* 0: a tenth of a second */
    double often;     /* share of these that are slow; 0: all */
    double loader;    /* of the steps in [from, to) */
    double rate;      /* of the usual one, likewise */
};

struct outcome {
    int named, wrong, over; /* verdicts: of the slow rank; of others; ends */
    int64_t first;          /* step of the first that is right; -1 */
    struct slow_verdict last;
};

static double work_s[RANKS_MAX];

/* A second that is busy with something else, on one rank or another. */
static double burst(const struct table *t, int64_t step, int rank)
{
    for (int64_t begin = step - 5; t->bursts && begin <= step; begin++) {
        uint64_t draw = rng_u64(t->seed, 7, (uint64_t)(begin + 5));
        int length = 1 + (int)(draw >> 40) % 6;
        if (draw % 50 == 0 && (int)((draw >> 8) % (uint64_t)t->ranks) == rank &&
            begin + length > step)
            return 3.0;
    }
    return 1.0;
}

static void fill(const struct table *t, int64_t step, bool held)
{
    for (int r = 0; r < t->ranks; r++) {
        double noise =
            rng_normal(t->seed, 1, (uint64_t)step * 65536 + (uint64_t)r);
        work_s[r] = 0.1 * (1 + NOISE * noise) * burst(t, step, r);
        if (held && r == t->slow &&
            (t->often == 0 || (double)(rng_u64(t->seed, 9, (uint64_t)step) %
                                       1000) < 1000 * t->often))
            work_s[r] *= t->factor;
    }
}

static struct outcome course(const struct table *t, int64_t steps)
{
    struct slow *slow = NULL;
    struct slow_verdict verdicts[SLOW_VERDICTS];
    struct outcome out = { .first = -1 };
    if (slow_create(t->ranks, t->window, &slow) != ERR_OK)
        return out;
    for (int64_t step = 1; step <= steps; step++) {
        bool held = step >= t->from && step < t->to;
        fill(t, step, held);
        double noise = 1 + NOISE * rng_normal(t->seed, 2, (uint64_t)step);
        struct slow_seen seen = { .step = step, .work_s = work_s };
        seen.step_s = t->step_s > 0 ? t->step_s : 0.1;
        seen.loader = held ? t->loader : 0.02;
        seen.rate = 1e6 * noise * (held && t->rate > 0 ? t->rate : 1);
        int count = slow_step(slow, &seen, verdicts);
        for (int i = 0; i < count; i++) {
            bool right = (verdicts[i].kind == SLOW_RANK &&
                          verdicts[i].rank == t->slow) ||
                         (verdicts[i].kind == SLOW_LOADER && t->loader > 0) ||
                         (verdicts[i].kind == SLOW_RATE && t->rate > 0);
            out.over += verdicts[i].over;
            out.named += right && !verdicts[i].over;
            out.wrong += !right;
            if (right && out.first < 0)
                out.first = step;
            out.last = verdicts[i];
        }
    }
    slow_destroy(slow);
    return out;
}

static void test_found(int ranks)
{
    int found = 0, wrong = 0;
    int64_t longest = 0;
    int64_t from = 1;
    for (int seed = 0; seed < 100; seed++) {
        struct table t = { .ranks = ranks, .window = 20 };
        t.seed = (uint64_t)seed;
        t.slow = seed % ranks;
        t.from = from;
        t.to = 1000;
        t.factor = 1.2;
        struct outcome out = course(&t, from + 49);
        found += out.named == 1 && out.over == 0 && out.last.factor > 1.1 &&
                 out.last.factor < 1.3;
        wrong += out.wrong;
        if (out.first - from > longest)
            longest = out.first - from;
    }
    tap_is_int(found, 100,
               "%d ranks, one slower by a fifth: named in as many "
               "of 100 seeds within 50 steps",
               ranks);
    tap_is_int(wrong, 0, "and nobody else");
    tap_note("at the latest after %lld steps", (long long)longest + 1);
}

static void test_clean(int ranks, bool bursts)
{
    struct table t = { .ranks = ranks, .window = 20 };
    t.seed = 77;
    t.slow = -1;
    t.bursts = bursts;
    struct outcome out = course(&t, 100000);
    tap_is_int(out.wrong, 0,
               "%d ranks, 10^5 steps of noise%s: nobody is "
               "accused",
               ranks, bursts ? " and bursts" : "");
}

static void test_recovered(void)
{
    struct table t = { .ranks = 8, .window = 20, .seed = 5, .slow = 3 };
    t.from = 10;
    t.to = 60;
    t.factor = 1.3;
    struct outcome out = course(&t, 100);
    tap_is_int(out.named, 1, "a rank that is slow for a while is named");
    tap_is_int(out.over, 1, "and forgotten");
    tap_ok(out.last.over && out.last.rank == 3, "it alone");
    tap_ok(llabs(out.last.since - 10) <= 2, "since its first slow step");
}

/* The slowest alone is nothing: all are as slow. */
static void test_others(void)
{
    struct table loader = { .ranks = 4, .window = 20, .slow = -1 };
    loader.from = 30;
    loader.to = 80;
    loader.loader = 0.4;
    struct outcome out = course(&loader, 120);
    tap_ok(out.named == 1 && out.over == 1 && out.wrong == 0 &&
               out.last.kind == SLOW_LOADER &&
               fabs(out.last.factor - 0.4) < 0.01,
           "steps that wait for samples are told, and their end");
    struct table rate = { .ranks = 4, .window = 20, .slow = -1 };
    rate.from = 101;
    rate.to = 161;
    rate.rate = 0.6;
    out = course(&rate, 220);
    tap_ok(out.named == 1 && out.over == 1 && out.wrong == 0 &&
               out.last.kind == SLOW_RATE,
           "a run at 0.6 of its own rate is told, and its end");
    rate.rate = 0.9;
    tap_is_int(course(&rate, 220).named, 0, "one at 0.9 is not");
}

/* What a scheduler does for less than a second is told of nobody, however many steps
 * that are; what goes on is. */
static void test_short(void)
{
    static const struct {
        const char *what;
        struct table t;
    } rows[] = {
        { "a rank", { .slow = 1, .factor = 1.3 } },
        { "samples", { .slow = -1, .loader = 0.4 } },
        { "the rate", { .slow = -1, .rate = 0.6 } },
        { "a rank, now and then", { .slow = 1, .factor = 2, .often = 0.85 } },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct table t = rows[i].t;
        t.ranks = 4;
        t.window = 20;
        t.step_s = 0.004;
        t.from = 101;
        t.to = 301;
        tap_is_int(course(&t, 1000).named, 0, "%s: 0.8 s in steps of 4 ms",
                   rows[i].what);
        t.to = 501;
        struct outcome out = course(&t, 1000);
        tap_ok(out.named == 1 && out.over == 1 && out.wrong == 0 &&
                   out.first - t.from < 300,
               "and 1.6 s");
    }
}

/* What is done about one that stays slow: a row for each rule, and for its edge. */
static void test_act(void)
{
    static const struct {
        const char *what;
        struct slow_job job;
        enum slow_action action;
    } rows[] = {
#define ROW(may, kind, ...) { SLOW_##may, SLOW_##kind, __VA_ARGS__ }
        { "a spare", ROW(REPLACE, RANK, 40, 20, 2, 1, 0, 3, 0, 1800),
          SLOW_REPLACE },
        { "not wanted", ROW(WARN, RANK, 40, 20, 2, 1, 0, 3, 0, 1800),
          SLOW_WARN },
        { "not for long", ROW(REPLACE, RANK, 39, 20, 2, 1, 0, 3, 0, 1800),
          SLOW_WARN },
        { "one node", ROW(REPLACE, RANK, 40, 20, 1, 1, 0, 3, 0, 1800),
          SLOW_ONE_NODE },
        { "no spare", ROW(REPLACE, RANK, 40, 20, 2, 0, 0, 3, 0, 1800),
          SLOW_NO_SPARE },
        { "spent", ROW(REPLACE, RANK, 40, 20, 2, 1, 3, 3, 1e6, 1800),
          SLOW_SPENT },
        { "the last one", ROW(REPLACE, RANK, 40, 20, 2, 1, 2, 3, 1e6, 1800),
          SLOW_REPLACE },
        { "too soon", ROW(REPLACE, RANK, 40, 20, 2, 1, 1, 3, 1799, 1800),
          SLOW_COOLS },
        { "in time", ROW(REPLACE, RANK, 40, 20, 2, 1, 1, 3, 1800, 1800),
          SLOW_REPLACE },
        { "set back", ROW(REPLACE, RANK, 40, 20, 2, 1, 1, 3, -5, 1800),
          SLOW_COOLS },
        { "no cool-down", ROW(REPLACE, RANK, 40, 20, 2, 1, 1, 3, 0, 0),
          SLOW_REPLACE },
        { "a rate has no node that could be replaced",
          ROW(REPLACE, RATE, 40, 20, 2, 1, 0, 3, 0, 1800), SLOW_SWEEP },
        { "a check needs no spare, nor a second node",
          ROW(SWEEP, RANK, 40, 20, 1, 0, 0, 3, 0, 1800), SLOW_SWEEP },
        { "but a job", ROW(SWEEP, RATE, 40, 20, 2, -1, 0, 3, 0, 1800),
          SLOW_NO_JOB },
        { "and time", ROW(SWEEP, RATE, 39, 20, 2, 0, 0, 3, 0, 1800),
          SLOW_WARN },
        { "checks are counted with replacements",
          ROW(SWEEP, RATE, 40, 20, 2, 0, 3, 3, 1e6, 1800), SLOW_SPENT },
#undef ROW
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        tap_is_str(slow_action_names[slow_act(&rows[i].job)],
                   slow_action_names[rows[i].action], "%s", rows[i].what);
}

/* The worse one of two stragglers, and the other when that has recovered. */
static void test_worst(void)
{
    struct slow *slow = NULL;
    struct slow_verdict verdicts[SLOW_VERDICTS];
    struct slow_seen seen = { .step_s = 1, .work_s = work_s, .rate = 1 };
    if (slow_create(8, 8, &slow) != ERR_OK)
        return;
    for (seen.step = 1; seen.step <= 24; seen.step++) {
        for (int r = 0; r < 8; r++)
            work_s[r] = 0.1 * (r == 2 ? 1.5 : r == 5 && seen.step < 12 ? 2 : 1);
        slow_step(slow, &seen, verdicts);
        if (seen.step == 1)
            tap_is_int(slow_told(slow, SLOW_RANK).rank, -1,
                       "nobody is told yet");
        if (seen.step == 8)
            tap_is_int(slow_told(slow, SLOW_RANK).rank, 5, "the worse of two");
    }
    struct slow_verdict worst = slow_told(slow, SLOW_RANK);
    tap_ok(worst.rank == 2 && worst.since == 1 &&
               fabs(worst.factor - 1.5) < 0.01,
           "then the other, since its first slow step");
    slow_destroy(slow);
}

/* A rate that is told stays so since its first window, and is nobody's once steps have
 * another length: a check of all nodes would find nothing. */
static void test_rate(void)
{
    struct slow *slow = NULL;
    struct slow_verdict verdicts[SLOW_VERDICTS];
    struct slow_seen seen = { .step_s = 1, .rate = 1 };
    if (slow_create(2, 8, &slow) != ERR_OK)
        return;
    for (seen.step = 1; seen.step <= 40; seen.step++) {
        seen.rate = seen.step > 16 ? 0.5 : 1;
        seen.fresh = seen.step == 37;
        slow_step(slow, &seen, verdicts);
        if (seen.step == 23)
            tap_is_int(slow_told(slow, SLOW_RATE).since, -1,
                       "no rate is told yet");
        if (seen.step == 24 || seen.step == 36)
            tap_is_int(slow_told(slow, SLOW_RATE).since, 17,
                       "one is, since its window");
    }
    tap_is_int(slow_told(slow, SLOW_RATE).since, -1,
               "with other steps it is forgotten");
    slow_destroy(slow);
}

/* Courses of 60 steps of 10 ms, by what lies between them. */
static void test_gaps(void)
{
    static const struct {
        const char *what;
        double usual_s, noise_s; /* of each gap, and spread around that */
        int every;               /* each so many steps there are 2 s more */
        double grows;            /* from gap to gap */
        int least, most;         /* that count */
    } rows[] = {
        { "back to back", 0.001, 0, 0, 1, 60, 60 },
        { "an evaluation every tenth step", 0.001, 0, 10, 1, 54, 54 },
        { "a save every second step", 0.001, 0, 2, 1, 30, 30 },
        { "a save behind each", 2, 0, 0, 1, 59, 59 },
        { "a wait before each", 0.45, 0, 0, 1, 59, 59 },
        { "that is not always as long", 0.45, 0.05, 0, 1, 58, 59 },
        { "with an evaluation every tenth step", 0.45, 0, 10, 1, 53, 53 },
        { "half a minute before each, more or less", 30, 5, 0, 1, 57, 59 },
        { "longer and longer ones", 1, 0, 0, 1.1, 0, 6 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct slow_gaps gaps = { .count = 0 };
        double usual_s = rows[i].usual_s;
        int count = 0;
        for (int step = 1; step <= 60; step++, usual_s *= rows[i].grows) {
            double late = rng_uniform(5, i, (uint64_t)step) * 2.0 - 1.0;
            double gap_s = usual_s + rows[i].noise_s * late;
            if (rows[i].every > 0 && step % rows[i].every == 0)
                gap_s += 2.0;
            count += slow_gap(&gaps, gap_s, 0.01);
        }
        tap_ok(count >= rows[i].least && count <= rows[i].most,
               "%s: %d of 60 steps count", rows[i].what, count);
    }
}

static void test_many(void)
{
    struct slow *slow = NULL;
    struct slow_verdict verdicts[SLOW_VERDICTS];

    struct slow_seen seen = { .step_s = 1, .work_s = work_s, .rate = 1 };
    int named = 0, most = 0;
    double best_s = 1e9;
    for (int r = 0; r < RANKS_MAX; r++)
        work_s[r] = 0.1;
    for (int r = 0; r < 30; r++)
        work_s[r * 100] *= 2;
    if (slow_create(RANKS_MAX, 20, &slow) != ERR_OK)
        return;
    for (seen.step = 1; seen.step <= 30; seen.step++) {
        double begin = clock_now();
        int count = slow_step(slow, &seen, verdicts);
        best_s = fmin(best_s, clock_now() - begin);
        named += count;
        most = count > most ? count : most;
    }
    slow_destroy(slow);
    tap_is_int(named, 30, "30 slow ranks of 16,384 are all told");
    tap_is_int(most, SLOW_VERDICTS, "no more than 8 with a step");
    tap_note("a step of 16,384 ranks: %.3f ms", best_s * 1e3);
}

int main(void)
{
    test_found(2);
    test_found(4);
    test_found(64);
    test_clean(2, false);
    test_clean(8, false);
    test_clean(8, true);
    test_recovered();
    test_short();
    test_others();
    test_act();
    test_worst();
    test_rate();
    test_gaps();
    test_many();
    return tap_done();
}
