/* make growth: how cost grows with the number of ranks, 64 to 4,096 (GROWTH=N:
 * up to N), and what it comes to at 16,384. A law above P^1.2 fails, and so does
 * more than 1 s a start or 5 ms a step at 16,384, unless the row says who mends
 * it. Seconds are this rank's processor's, best of some calls. */
#include "tests/growth/growth.h"

#include <malloc.h>
#include <time.h>

#define EXPONENT_MAX 1.2
#define POINTS_MAX 8
#define SECONDS_LEAST 1e-3 /* shorter ones tell nothing of a law */
#define CALLS 3
#define SMALL 0.1       /* of a limit: a time below is not held to a law */
#define MESSAGES_MAX 64 /* to or from single ranks, at GROWTH_FAR */

static const double limits[GROWTH_WHENS] = {
    [GROWTH_STEP] = 5e-3, [GROWTH_START] = 1.0
};
static const char *const names[GROWTH_WHENS] = {
    [GROWTH_STEP] = "step", [GROWTH_START] = "start"
};

double growth_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

int64_t growth_memory(void)
{
    struct mallinfo2 info = mallinfo2();
    return (int64_t)(info.uordblks + info.hblkhd);
}

const struct params *growth_params(const char *preset)
{
    static struct params *made[8];
    static char of[8][32];
    int i = 0;
    while (made[i] != NULL && strcmp(of[i], preset) != 0)
        i++;
    struct model_config config;
    if (made[i] == NULL && (model_config_preset(preset, &config) != ERR_OK ||
                            params_create(&config, &made[i]) != ERR_OK)) {
        printf("Bail out! %s: %s\n", preset, err_text());
        exit(1);
    }
    snprintf(of[i], sizeof of[i], "%s", preset);
    return made[i];
}

struct point {
    double ranks, value;
};

/* The exponent b of value = a ranks^b, by least squares of the logarithms; 0
 * where too few points tell anything. */
static double exponent(const struct point *points, int count, double least)
{
    double n = 0, x = 0, y = 0, xx = 0, xy = 0;
    for (int i = 0; i < count; i++) {
        if (points[i].value < least)
            continue;
        double u = log(points[i].ranks), v = log(points[i].value);
        n++;
        x += u;
        y += v;
        xx += u * u;
        xy += u * v;
    }
    return n >= 2 ? (n * xy - x * y) / (n * xx - x * x) : 0.0;
}

/* What it comes to at GROWTH_FAR, from the last point on. */
static double far(const struct point *last, double law)
{
    return last->value * pow(GROWTH_FAR / last->ranks, law);
}

enum { SECONDS, MEMORY, ROUNDS, MESSAGES, BYTES, VALUES };

static bool measure(const struct growth_row *row, int ranks,
                    struct point points[VALUES])
{
    struct growth_cost best = { .seconds = HUGE_VAL };
    for (int i = 0; i < CALLS; i++) {
        struct growth_cost cost = { 0 };
        if (!row->run(ranks, &cost))
            return false;
        if (cost.seconds < best.seconds)
            best = cost;
        if (cost.seconds > 0.3)
            break;
    }
    const double values[VALUES] = { best.seconds, (double)best.memory,
                                    (double)best.counts.rounds,
                                    (double)best.counts.messages,
                                    (double)best.counts.bytes };
    for (int v = 0; v < VALUES; v++)
        points[v] = (struct point){ ranks, values[v] };
    printf("# %-30s %6d %10.4f %10.3f %8.0f %8.0f %12.0f\n", row->thing, ranks,
           values[SECONDS], values[MEMORY] / 1e6, values[ROUNDS],
           values[MESSAGES], values[BYTES]);
    fflush(stdout);
    return true;
}

static void judge(const struct growth_row *row, int ranks_max)
{
    struct point points[VALUES][POINTS_MAX];
    int count = 0;
    bool ran = true;
    for (int ranks = 64; ranks <= ranks_max && ran; ranks *= 4) {
        struct point at[VALUES] = { 0 };
        if (row->ranks_max > 0 && ranks > row->ranks_max)
            break;
        ran = measure(row, ranks, at);
        for (int v = 0; v < VALUES; v++)
            points[v][count] = at[v];
        count += ran;
    }
    if (!tap_ok(ran, "%s: is what it should be", row->thing))
        return;
    double limit_s = limits[row->when], law[VALUES], steepest = 0;
    for (int v = 0; v < VALUES; v++) {
        law[v] = exponent(points[v], count, v == SECONDS ? SECONDS_LEAST : 1);
        if (v != SECONDS ||
            far(&points[v][count - 1], law[v]) > SMALL * limit_s)
            steepest = fmax(steepest, law[v]);
    }
    double interim_s = row->limit_s > 0 ? row->limit_s : limit_s;
    /* of times too short to tell, the worst that may be */
    double seconds_law = law[SECONDS] > 0 ? law[SECONDS] : EXPONENT_MAX;
    double seconds = far(&points[SECONDS][count - 1], seconds_law);
    double messages = far(&points[MESSAGES][count - 1], law[MESSAGES]);
    bool good = steepest <= EXPONENT_MAX && messages <= MESSAGES_MAX &&
                seconds <= (row->known != NULL ? limit_s : interim_s);
    bool excused = row->known != NULL &&
                   (row->limit_s == 0 ||
                    (steepest <= EXPONENT_MAX && seconds <= interim_s));
    char text[256];
    snprintf(text, sizeof text,
             "%s: P^%.2f (memory %.2f, rounds %.2f, messages %.2f, bytes "
             "%.2f), %.3g s a %s at %d",
             row->thing, law[SECONDS], law[MEMORY], law[ROUNDS], law[MESSAGES],
             law[BYTES], seconds, names[row->when], GROWTH_FAR);
    if (good || !excused)
        tap_ok(good, "%s", text);
    else
        tap_skip("KNOWN, %s: %s", row->known, text);
    if (good && row->known != NULL)
        tap_note("%s is no longer a known failure", row->thing);
}

/* What has no row as yet, or is another's to mend. */
static const char *const known[] = {
    "finding 5: gradients of ddp and zero1 go from all ranks to all, and NCCL "
    "connects all",
};

int main(void)
{
    const struct growth_row *const tables[] = { growth_norms, growth_loads,
                                                growth_saves, growth_starts };
    const char *most = getenv("GROWTH"), *only = getenv("ROW");
    int ranks_max = most != NULL ? atoi(most) : 4096;
    tap_note("%-30s %6s %10s %10s %8s %8s %12s", "thing", "ranks", "s",
             "memory MB", "rounds", "messages", "bytes here");
    for (size_t t = 0; t < sizeof tables / sizeof tables[0]; t++)
        for (const struct growth_row *row = tables[t]; row->thing != NULL;
             row++)
            if (only == NULL || strstr(row->thing, only) != NULL)
                judge(row, ranks_max);
    for (size_t i = 0; i < sizeof known / sizeof known[0] && only == NULL; i++)
        tap_skip("KNOWN, %s", known[i]);
    return tap_done();
}
