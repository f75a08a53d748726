/* How an attempt is watched: courses of ticks, and random ones of which must hold
 *
 *   hang   an attempt is ended exactly when it has been silent for so long, of
 *          which standing still is no part
 *   ask    Slurm is asked every minute, in silence every 15 s, and never twice
 *          within 2 s */
#include "src/control/watch.h"

#include "src/base/rng.h"
#include "tests/tap.h"

struct course {
    double tick_s, start_at_s; /* 0: it never starts */
    double every_s, until_s;   /* steps; 0: for ever */
    double still_at_s, still_s;
};

#define DAY_S 86400

/* Seconds until the end, or those of a day; *asked counts the questions. */
static int run(struct watch *watch, const struct course *c,
               enum watch_what *what, int *asked)
{
    double still_s = 0;
    for (double now_s = 0; now_s < DAY_S; now_s += c->tick_s) {
        if (c->still_s > 0 && still_s == 0 && now_s >= c->still_at_s)
            now_s += still_s = c->still_s;
        double last_s =
            c->until_s > 0 && now_s > c->until_s ? c->until_s : now_s;
        struct watch_seen seen = { .now_s = 1000 + now_s };
        seen.started = c->start_at_s > 0 && now_s >= c->start_at_s;
        if (seen.started && c->every_s > 0)
            seen.beat = 1 + (uint64_t)((last_s - c->start_at_s) / c->every_s);
        *what = watch_tick(watch, &seen);
        *asked += *what == WATCH_ASK;
        if (*what > WATCH_ASK)
            return (int)now_s;
    }
    return DAY_S;
}

static void test_rows(void)
{
    static const struct {
        const char *name;
        struct course course;
        double start_s, hang_s;
        enum watch_what what; /* of the end */
        int end_s, asked;     /* -1: not looked at */
    } rows[] = {
        { "steps come", TUPLE(1, 5, 1, 0, 0, 0), 300, 600, WATCH_ON, DAY_S,
          1439 },
        { "slow steps are no silence, but for the first one",
          TUPLE(1, 5, 100, 0, 0, 0), 300, 600, WATCH_ON, DAY_S, 1451 },
        { "never started", TUPLE(1, 0, 0, 0, 0, 0), 300, 600, WATCH_START, 300,
          -1 },
        { "a slow start does not eat the time of the first step",
          TUPLE(10, 250, 80, 0, 0, 0), 300, 100, WATCH_ON, DAY_S, -1 },
        { "no first step", TUPLE(1, 250, 0, 0, 0, 0), 300, 100, WATCH_HANG, 350,
          -1 },
        { "a hang", TUPLE(1, 5, 1, 105, 0, 0), 300, 600, WATCH_HANG, 705, -1 },
        { "standing still is none", TUPLE(1, 5, 1, 105, 200, 5000), 300, 600,
          WATCH_HANG, 5705, -1 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct watch watch = { .start_s = rows[i].start_s,
                               .hang_s = rows[i].hang_s,
                               .tick_s = rows[i].course.tick_s };
        enum watch_what what = WATCH_ON;
        int asked = 0;
        int end_s = run(&watch, &rows[i].course, &what, &asked);
        tap_is_int(end_s, rows[i].end_s, "%s", rows[i].name);
        tap_ok(end_s == DAY_S || what == rows[i].what, "its end");
        tap_ok(rows[i].asked < 0 || asked == rows[i].asked, "asked %d times",
               asked);
    }
}

static void test_start(void)
{
    static const struct {
        double took_s;
        int failed;
        double limit_s;
    } rows[] = { { 0, 0, 300 },  { 0, 3, 300 },    { 0.75, 0, 13 },
                 { 60, 0, 250 }, { 0.75, 2, 52 },  { 80, 0, 300 },
                 { 1, 60, 300 }, { 1, 20000, 300 } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        tap_is_close(watch_start_s(300, rows[i].took_s, rows[i].failed),
                     rows[i].limit_s, 1e-9,
                     "a start that took %g s, and %d that failed",
                     rows[i].took_s, rows[i].failed);
}

/* Ticks of a quarter of a second until an attempt whose ranks part at the 400th is
 * ended; those that are together again, as another attempt's are, are left alone. */
static int apart_for(int ticks)
{
    struct watch watch = { .start_s = 300, .hang_s = 600, .tick_s = 0.25 };
    for (int i = 0; i < 800; i++) {
        struct watch_seen seen = { .now_s = 0.25 * i,
                                   .started = true,
                                   .apart = i >= 400 && i < 400 + ticks };
        if (watch_tick(&watch, &seen) == WATCH_APART)
            return i;
    }
    return 800;
}

/* How often what must hold was broken, by a second book of how long it was silent. */
static int broken(uint64_t seed)
{
    uint64_t draws = 0;
    double now_s = 0, quiet_s = 0, asked_s = 0;
    double pace = rng_uniform(seed, 4, draws++);
    struct watch watch = { .start_s = 50, .tick_s = 1 + (double)(seed % 3) };
    struct watch_seen seen = { .started = true };
    int fails = 0;
    watch.hang_s = 20 + rng_uniform(seed, 4, draws++) * 600;
    for (int tick = 0; tick < 3000; tick++) {
        bool still = tick > 0 && rng_uniform(seed, 4, draws++) < 0.01;
        bool step = rng_uniform(seed, 4, draws++) < pace * pace;
        double passed_s =
            watch.tick_s + (still ? 1000 : 4 * rng_uniform(seed, 4, draws++));
        now_s += tick == 0 ? 0 : passed_s;
        quiet_s =
            step || tick == 0 ? 0 : quiet_s + (still ? watch.tick_s : passed_s);
        seen.now_s = now_s;
        seen.beat += step;
        enum watch_what what = watch_tick(&watch, &seen);
        fails += (what == WATCH_HANG) != (quiet_s >= watch.hang_s) ||
                 what == WATCH_START ||
                 (what == WATCH_ASK && now_s - asked_s < 2);
        if (what == WATCH_HANG)
            break;
        if (what == WATCH_ASK)
            asked_s = now_s;
        fails += now_s - asked_s >= (quiet_s > 5 + 2 * watch.gap_s ? 15 : 60);
    }
    return fails;
}

/* A start is asked about when it takes longer than twice the longest one before. */
static void test_drags(void)
{
    static const struct {
        double took_s;
        int asked_s;
    } rows[] = { { 0, 60 }, { 1, 5 }, { 10, 23 }, { 100, 60 } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct watch watch = {
            .start_s = 300, .hang_s = 600, .tick_s = 1, .took_s = rows[i].took_s
        };
        struct watch_seen seen = { .now_s = 1000 };
        while (watch_tick(&watch, &seen) == WATCH_ON)
            seen.now_s++;
        tap_is_int((int)seen.now_s - 1000, rows[i].asked_s,
                   "a start behind one of %.0f s is asked about",
                   rows[i].took_s);
    }
}

int main(void)
{
    test_drags();
    int fails = 0;
    test_rows();
    test_start();
    tap_is_int(apart_for(100), 403, "ranks that have parted are ended soon");
    tap_is_int(apart_for(3), 800, "not those that leave by themselves");
    for (uint64_t seed = 1; seed <= 1000; seed++)
        fails += broken(seed);
    tap_is_int(fails, 0, "1,000 courses hold what they must");
    return tap_done();
}
