/* From the times of a step to who is slow: slow.h says by which rules. */
#include "src/control/slow.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/new.h"
#include "src/base/real.h"

#define BEYOND 0.1     /* of the median */
#define DEVIATIONS 4.0 /* robust ones */
#define NORMAL 1.4826  /* standard deviation / median absolute one */
#define BEYOND_S 0.001 /* what clocks and schedulers do to any step */
#define LEAST_S 1.0    /* for which schedulers leave a rank beside another */
#define LOADER 0.25    /* of a step */
#define RATE_LEAST 0.8 /* of the windows before */
#define WINDOWS_MAX 64 /* that are remembered */
#define BETWEEN 0.25   /* of a step and its usual gap, */
#define BETWEEN_S 0.1  /* and at least, that a gap is longer than usual */

const char *const slow_kind_names[] = { "straggler", "loader", "rate", NULL };
const char *const slow_action_names[] = { "warn",   "one-node", "no-spare",
                                          "no-job", "budget",   "cool-down",
                                          "sweep",  "replace",  NULL };

struct tally {
    uint64_t bits; /* of the last steps, the newest lowest */
    int64_t since; /* the first slow one of a row that has not gone by */
    double sum;    /* of the factors of its slow steps */
    int64_t count; /* of them */
    double held_s; /* since there would be a verdict */
    bool told;
};

struct slow {
    int ranks, window;
    struct tally loader, rate;
    double rates[SLOW_WINDOW_MAX], rates_s, medians[WINDOWS_MAX];
    int rate_count, windows, loader_rank; /* who was told */
    double *values;                       /* [ranks] scratch */
    struct tally of_rank[];
};

enum err slow_create(int ranks, int window, struct slow **out)
{
    enum err rc = ERR_OK;
    struct slow *slow = NULL;
    assert(ranks > 0 && window >= SLOW_WINDOW_MIN && window <= SLOW_WINDOW_MAX);
    size_t bytes = sizeof *slow + (size_t)ranks * sizeof slow->of_rank[0];
    TRY(new_memory((void **)&slow, 1, bytes, true, "who is slow"));
    slow->ranks = ranks;
    slow->window = window;
    TRY_OUT(new_room(&slow->values, (size_t)ranks));
out:
    return new_or_none(rc, slow, out, slow_destroy);
}

void slow_destroy(struct slow *slow)
{
    if (slow == NULL)
        return;
    free(slow->values);
    free(slow);
}

/* --- verdicts --- */

/* True: there is a verdict of it. */
static bool count(const struct slow *slow, struct tally *tally,
                  const struct slow_seen *seen, bool is_slow, double factor)
{
    if (tally->bits == 0) {
        tally->since = seen->step;
        tally->sum = 0.0;
        tally->count = 0;
    }
    tally->bits =
        (tally->bits << 1 | is_slow) & ((UINT64_C(1) << slow->window) - 1);
    if (is_slow) {
        tally->sum += factor;
        tally->count++;
    }
    int slow_steps = __builtin_popcountll(tally->bits);
    bool over = 4 * slow_steps <= slow->window;
    bool holds = 4 * slow_steps >= 3 * slow->window;
    if (over)
        tally->held_s = 0.0;
    else if (holds)
        tally->held_s += seen->step_s;
    return tally->told ? over : holds && tally->held_s >= LEAST_S;
}

struct verdicts {
    struct slow_verdict *list;
    int count;
};

/* What finds no place stays untold for now. */
static void tell(struct verdicts *out, struct tally *tally, enum slow_kind kind,
                 int rank)
{
    if (out->count == SLOW_VERDICTS)
        return;
    out->list[out->count++] =
        (struct slow_verdict){ .kind = kind,
                               .over = tally->told,
                               .rank = rank,
                               .since = tally->since,
                               .factor = tally->sum / (double)tally->count };
    tally->told = !tally->told;
}

static void judge_ranks(struct slow *slow, const struct slow_seen *seen,
                        struct verdicts *out)
{
    double *values = slow->values, limit_s;
    memcpy(values, seen->work_s, (size_t)slow->ranks * sizeof *values);
    double median = real_median_lower(values, slow->ranks);
    for (int r = 0; r < slow->ranks; r++)
        values[r] = fabs(seen->work_s[r] - median);
    limit_s = DEVIATIONS * NORMAL * real_median_lower(values, slow->ranks);
    limit_s = median + fmax(fmax(BEYOND * median, BEYOND_S), limit_s);
    for (int r = 0; r < slow->ranks; r++) {
        struct tally *tally = &slow->of_rank[r];
        bool is_slow = seen->work_s[r] > limit_s;
        if ((is_slow || tally->bits != 0 || tally->told) &&
            count(slow, tally, seen, is_slow,
                  seen->work_s[r] / fmax(median, BEYOND_S)))
            tell(out, tally, SLOW_RANK, r);
    }
}

static void judge_loader(struct slow *slow, const struct slow_seen *seen,
                         struct verdicts *out)
{
    bool turns =
        count(slow, &slow->loader, seen, seen->loader > LOADER, seen->loader);
    if (!slow->loader.told)
        slow->loader_rank = seen->loader_rank;
    if (turns)
        tell(out, &slow->loader, SLOW_LOADER, slow->loader_rank);
}

/* A window of drops is none that later ones are held against. */
static void judge_window(struct slow *slow, struct verdicts *out)
{
    double values[WINDOWS_MAX], best = 0.0, usual = 0.0;
    int windows = slow->windows < WINDOWS_MAX ? slow->windows : WINDOWS_MAX;
    memcpy(values, slow->medians, sizeof values);
    if (windows > 0)
        usual = real_median_lower(values, windows);
    for (int i = 0; i < slow->window; i++)
        best = fmax(best, slow->rates[i]);
    double median = real_median_lower(slow->rates, slow->window);
    bool drops = best < RATE_LEAST * usual;
    if (!drops)
        slow->medians[slow->windows++ % WINDOWS_MAX] = median;
    slow->rate.held_s = drops ? slow->rate.held_s + slow->rates_s : 0.0;
    slow->rates_s = 0.0;
    if (drops == slow->rate.told || (drops && slow->rate.held_s < LEAST_S))
        return;
    slow->rate.sum = usual > 0.0 ? median / usual : 1.0;
    slow->rate.count = 1;
    tell(out, &slow->rate, SLOW_RATE, -1);
}

static void judge_rate(struct slow *slow, const struct slow_seen *seen,
                       struct verdicts *out)
{
    if (seen->fresh) {
        slow->windows = slow->rate_count = 0;
        slow->rate.told = false;
        slow->rate.held_s = slow->rates_s = 0.0;
    }
    if (slow->rate_count == 0 && slow->rate.held_s == 0.0)
        slow->rate.since = seen->step;
    slow->rates[slow->rate_count++] = seen->rate;
    slow->rates_s += seen->step_s;
    if (slow->rate_count < slow->window)
        return;
    slow->rate_count = 0;
    judge_window(slow, out);
}

int slow_step(struct slow *slow, const struct slow_seen *seen,
              struct slow_verdict verdicts[SLOW_VERDICTS])
{
    struct verdicts out = { verdicts, 0 };
    if (seen->work_s != NULL)
        judge_ranks(slow, seen, &out);
    judge_loader(slow, seen, &out);
    judge_rate(slow, seen, &out);
    return out.count;
}

struct slow_verdict slow_told(const struct slow *slow, enum slow_kind kind)
{
    const struct tally *list = kind == SLOW_RANK     ? slow->of_rank
                               : kind == SLOW_LOADER ? &slow->loader
                                                     : &slow->rate;
    struct slow_verdict worst = { .kind = kind, .rank = -1, .since = -1 };
    for (int i = 0; i < (kind == SLOW_RANK ? slow->ranks : 1); i++) {
        double factor =
            list[i].told ? list[i].sum / (double)list[i].count : 0.0;
        if (factor > worst.factor)
            worst =
                (struct slow_verdict){ kind, false, kind == SLOW_RANK ? i : -1,
                                       list[i].since, factor };
    }
    return worst;
}

bool slow_gap(struct slow_gaps *gaps, double gap_s, double step_s)
{
    double values[SLOW_GAPS], usual_s = 0.0;
    int count = gaps->count < SLOW_GAPS ? (int)gaps->count : SLOW_GAPS;
    memcpy(values, gaps->s, sizeof values);
    if (count > 0)
        usual_s = real_median_lower(values, count);
    gaps->s[gaps->count++ % SLOW_GAPS] = gap_s;
    return gap_s - usual_s < fmax(BETWEEN * (step_s + usual_s), BETWEEN_S);
}

enum slow_action slow_act(const struct slow_job *job)
{
    bool replace = job->may == SLOW_REPLACE && job->kind == SLOW_RANK;
    if (job->may == SLOW_WARN || job->steps < 2 * job->window)
        return SLOW_WARN;
    if (replace && job->nodes < 2)
        return SLOW_ONE_NODE;
    if (replace && job->spares < 1)
        return SLOW_NO_SPARE;
    if (job->spares < 0)
        return SLOW_NO_JOB;
    if (job->done >= job->budget)
        return SLOW_SPENT;
    if (job->done > 0 && job->since_s < job->cooldown_s)
        return SLOW_COOLS;
    return replace ? SLOW_REPLACE : SLOW_SWEEP;
}
