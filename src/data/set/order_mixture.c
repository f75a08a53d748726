/* Deals each step's batch to the streams of a mixture.
 *
 * A stream of weight w is owed w B samples of a batch of B, mostly no whole
 * number. What it is owed beyond what it got is carried on, in units of 2^-32
 * of a sample, and counts in the next batch: shares are right within a sample
 * or two at every step, and nothing is drawn. Only whole numbers are carried
 * from step to step, so no machine rounds otherwise than another. What a step
 * gets depends on all steps before it; the state is kept every 1024 steps, so
 * any step is reached by at most as many additions. */
#include "src/data/set/order_mixture.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/array.h"
#include "src/base/new.h"

#define MIXTURE_UNIT ((int64_t)1 << 32) /* of a sample that is owed */
#define MIXTURE_ANCHOR 1024             /* steps between those that are kept */

/* What is known when a step begins. */
struct state {
    int64_t before[STREAMS_MAX];
    int64_t owed[STREAMS_MAX];
};

struct order_mixture {
    int count;
    int64_t batch, first;
    struct mixture_curve *curves;
    int64_t *anchors; /* [anchor_count][2][count]: before, owed */
    int64_t anchor_count, anchor_room; /* room: elements of `anchors` */
    int64_t step; /* of `state` and `counts`; -1: of none */
    struct state state;
    struct mixture_counts counts;
};

static double weight_at(const struct mixture_curve *curve, int64_t step)
{
    int i = 0;
    while (i + 1 < curve->count && curve->points[i + 1].step <= step)
        i++;
    const struct mixture_point *from = &curve->points[i];
    const struct mixture_point *to = from + 1;
    if (i + 1 == curve->count || to->jump)
        return from->weight;
    return from->weight +
           (to->weight - from->weight) *
               ((double)(step - from->step) / (double)(to->step - from->step));
}

static double weigh(const struct order_mixture *mixture, int64_t step,
                    double *weights)
{
    double sum = 0.0;
    for (int i = 0; i < mixture->count; i++) {
        weights[i] = weight_at(&mixture->curves[i], mixture->first + step);
        sum += weights[i];
    }
    return sum;
}

/* Between two points weights are lines, so their sum is 0 nowhere if it is not
 * at both ends. */
static enum err check_weights(const struct order_mixture *mixture)
{
    double weights[STREAMS_MAX];
    for (int i = 0; i < mixture->count; i++)
        for (int p = 0; p < mixture->curves[i].count; p++) {
            int64_t step = mixture->curves[i].points[p].step - mixture->first;
            for (int64_t s = step > 0 ? step - 1 : 0; s <= step || s == 0; s++)
                if (!(weigh(mixture, s, weights) > 0.0))
                    return err_set(ERR_USAGE,
                                   "all weights of the mixture are 0 at step "
                                   "%lld: give one data set a weight there",
                                   (long long)(mixture->first + s + 1));
        }
    return ERR_OK;
}

enum err order_mixture_create(const struct mixture_curve *curves, int count,
                              int64_t batch, int64_t first,
                              struct order_mixture **out)
{
    enum err rc = ERR_OK;
    assert(count > 0 && count <= STREAMS_MAX);
    assert(batch > 0 && batch < MIXTURE_UNIT / 4 && first >= 0);
    struct order_mixture *mixture = NULL;
    TRY(new_zeroed(&mixture, 1));
    mixture->count = count;
    mixture->batch = batch;
    mixture->first = first;
    mixture->step = -1;
    TRY_OUT(new_room(&mixture->curves, (size_t)count));
    memcpy(mixture->curves, curves, (size_t)count * sizeof *curves);
    TRY_OUT(check_weights(mixture));
out:
    return new_or_none(rc, mixture, out, order_mixture_destroy);
}

void order_mixture_destroy(struct order_mixture *mixture)
{
    if (mixture == NULL)
        return;
    free(mixture->curves);
    free(mixture->anchors);
    free(mixture);
}

/* Every stream's share of the batch is added to what it is owed, which then
 * adds up to the batch. */
static void owe(const struct order_mixture *mixture, const double *weights,
                double sum, int64_t *owed)
{
    /* what rounding leaves of the unit, and what a stream without weight was
     * owed, goes to the heaviest: all that is owed is always whole batches */
    int64_t left = MIXTURE_UNIT, idle = 0;
    int most = 0;
    for (int i = 0; i < mixture->count; i++) {
        int64_t share = (int64_t)(weights[i] / sum * (double)MIXTURE_UNIT);
        owed[i] += share * mixture->batch;
        left -= share;
        if (weights[i] > weights[most])
            most = i;
        if (weights[i] > 0.0)
            continue;
        idle += owed[i];
        owed[i] = 0;
    }
    owed[most] += left * mixture->batch + idle;
}

/* The stream that is owed most, beyond what it has, or least of those that have
 * something; streams without weight are not asked. */
static int find(const struct order_mixture *mixture, const double *weights,
                const int64_t *owed, const int64_t *now, bool least)
{
    int best = -1;
    int64_t best_rest = 0;
    for (int i = 0; i < mixture->count; i++) {
        int64_t rest = owed[i] - now[i] * MIXTURE_UNIT;
        if (weights[i] <= 0.0 || (least && now[i] == 0))
            continue;
        if (best < 0 || (least ? rest < best_rest : rest > best_rest)) {
            best = i;
            best_rest = rest;
        }
    }
    return best;
}

/* The counts of the step that begins with `state`. */
static void deal(struct order_mixture *mixture, int64_t step)
{
    double weights[STREAMS_MAX];
    struct state *state = &mixture->state;
    int64_t *now = mixture->counts.now;
    int64_t left = mixture->batch;
    double sum = weigh(mixture, step, weights);
    memcpy(mixture->counts.before, state->before, sizeof state->before);
    owe(mixture, weights, sum, state->owed);
    for (int i = 0; i < mixture->count; i++) {
        now[i] = state->owed[i] > 0 ? state->owed[i] / MIXTURE_UNIT : 0;
        left -= now[i];
    }
    /* one more for whoever is owed most; one less where debts below 0, of those
     * that had more before, made the others' whole numbers too many */
    for (; left > 0; left--)
        now[find(mixture, weights, state->owed, now, false)]++;
    for (; left < 0; left++)
        now[find(mixture, weights, state->owed, now, true)]--;
}

/* From a step whose counts are there to the beginning of the next. */
static void go_on(struct order_mixture *mixture)
{
    struct state *state = &mixture->state;
    for (int i = 0; i < mixture->count; i++) {
        state->before[i] += mixture->counts.now[i];
        state->owed[i] -= mixture->counts.now[i] * MIXTURE_UNIT;
    }
}

static enum err keep(struct order_mixture *mixture)
{
    size_t count = (size_t)mixture->count;
    size_t used = (size_t)mixture->anchor_count * 2 * count;
    TRY(array_room(&mixture->anchors, &mixture->anchor_room, used + 2 * count));
    int64_t *at = mixture->anchors + used;
    mixture->anchor_count++;
    memcpy(at, mixture->state.before, count * sizeof *at);
    memcpy(at + count, mixture->state.owed, count * sizeof *at);
    return ERR_OK;
}

/* To the beginning of a step that is not beyond the last anchor. */
static void go_to(struct order_mixture *mixture, int64_t anchor)
{
    size_t count = (size_t)mixture->count;
    memset(&mixture->state, 0, sizeof mixture->state);
    if (anchor < 0)
        return;
    const int64_t *at = mixture->anchors + (size_t)anchor * 2 * count;
    memcpy(mixture->state.before, at, count * sizeof *at);
    memcpy(mixture->state.owed, at + count, count * sizeof *at);
}

enum err order_mixture_at(struct order_mixture *mixture, int64_t step,
                          const struct mixture_counts **out)
{
    assert(step >= 0);
    if (mixture->step < 0 || step < mixture->step ||
        step / MIXTURE_ANCHOR > mixture->step / MIXTURE_ANCHOR) {
        /* anchor k is the beginning of step (k + 1) * MIXTURE_ANCHOR */
        int64_t anchor = step / MIXTURE_ANCHOR;
        anchor =
            anchor < mixture->anchor_count ? anchor : mixture->anchor_count;
        if (mixture->step < anchor * MIXTURE_ANCHOR || step < mixture->step) {
            go_to(mixture, anchor - 1);
            mixture->step = anchor * MIXTURE_ANCHOR;
            deal(mixture, mixture->step);
        }
    }
    while (mixture->step < step) {
        go_on(mixture);
        mixture->step++;
        if (mixture->step == (mixture->anchor_count + 1) * MIXTURE_ANCHOR) {
            enum err rc = keep(mixture);
            if (rc != ERR_OK) {
                mixture->step = -1;
                return rc;
            }
        }
        deal(mixture, mixture->step);
    }
    *out = &mixture->counts;
    return ERR_OK;
}
