/* Divides a run's wall time among its kinds (run_history.h).
 *
 * Goodput is training / wall time, and is worth something only if nothing is
 * counted twice or forgotten. The sources do not agree to the microsecond: steps
 * are measured by one clock, a line of the ledger has that of the node that wrote
 * it, and a run may have logged one step of ten. So kinds are
 * not measured and added, but cut out of the wall time, one after the other, each
 * at most what is left; "other" is the rest. The sum is the whole by
 * construction, and an error in one source makes one kind wrong, not all.
 *
 * Attempts are laid on one axis first: one begins no earlier than the one before
 * has ended, and ends no later than the next begins, so time in which two of them
 * seem to run is the later one's. What lies between is cut likewise. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "src/report/run_history_impl.h"

static int64_t account_take(int64_t wanted, int64_t *left)
{
    int64_t taken = wanted < 0 ? 0 : wanted < *left ? wanted : *left;
    *left -= taken;
    assert(taken >= 0 && *left >= 0);
    return taken;
}

/* Waits are needed one by one at both ends of an attempt only: those before its
 * first logged step and those since its last. In the middle they are one sum, so
 * an attempt has 32 of them however long it runs. When there is no more room the
 * oldest of the newer half is added to the sum. */
void run_account_stall(struct run_stalls *stalls, int64_t step, int64_t us)
{
    assert(stalls->count >= 0 && stalls->count <= RUN_STALLS_MAX);
    const int sum = RUN_STALLS_SUM;
    if (us <= 0)
        return;
    if (stalls->count == RUN_STALLS_MAX) {
        size_t behind = (size_t)(RUN_STALLS_MAX - sum - 2) * sizeof(int64_t);
        stalls->us[sum] = run_reader_add(stalls->us[sum], stalls->us[sum + 1]);
        stalls->step[sum] = stalls->step[sum + 1];
        memmove(stalls->us + sum + 1, stalls->us + sum + 2, behind);
        memmove(stalls->step + sum + 1, stalls->step + sum + 2, behind);
        stalls->summed = true;
        stalls->count--;
    }
    assert(stalls->count < RUN_STALLS_MAX);
    stalls->step[stalls->count] = step;
    stalls->us[stalls->count++] = us;
}

/* Stalls before the first logged step: its time is that of the steps alone. */
static int64_t stalls_before(const struct run_stalls *stalls, int64_t step)
{
    int end = stalls->summed ? RUN_STALLS_SUM : stalls->count;
    int64_t us = 0;
    for (int i = 0; i < end && stalls->step[i] < step; i++)
        us = run_reader_add(us, stalls->us[i]);
    return us;
}

/* Stalls since the last logged step, which ends before an evaluation or a
 * save at it begins. A run that went back within an attempt had waited at later
 * steps before. */
static int64_t stalls_since(const struct run_stalls *stalls, int64_t step)
{
    int begin = stalls->summed ? RUN_STALLS_SUM + 1 : 0;
    int64_t us = 0, next = INT64_MAX;
    for (int i = stalls->count; i-- > begin;) {
        if (stalls->step[i] < step || stalls->step[i] > next)
            break;
        next = stalls->step[i];
        us = run_reader_add(us, stalls->us[i]);
    }
    return us;
}

/* What was computed from the first logged step's begin to the last one's end,
 * by the clock: logged steps are not all. */
static int64_t steps_by_clock(const struct run_attempt *attempt,
                              const struct run_clock *clock, int64_t before_us)
{
    int64_t since_us = stalls_since(&clock->saves, attempt->last_step) +
                       stalls_since(&clock->evals, attempt->last_step);
    int64_t waited_us =
        attempt->checkpoint_us + attempt->evaluation_us - before_us - since_us;
    int64_t us = attempt->last_us - attempt->begin_us - attempt->data_us -
                 (waited_us > 0 ? waited_us : 0);
    return us < 0 ? 0 : us < RUN_US_MAX ? us : RUN_US_MAX;
}

/* The wall time of one attempt. What is known best is cut first: the start, then
 * what the program itself says that training waited for; steps get what they say
 * that they took, or where not all were logged what the clock says, shared
 * between wasted and training as the logged ones are. */
static void account_divide(struct run_attempt *attempt,
                           const struct run_clock *clock, int64_t wall_us)
{
    int64_t *us = attempt->time_us;
    int64_t left = wall_us;
    int64_t steps_us = attempt->steps_us, wasted_us = attempt->wasted_us;
    int64_t tail_us =
        clock->commit_step >= attempt->last_step ? clock->commit_rest_us : 0;
    int64_t before_us = stalls_before(&clock->saves, clock->first_step) +
                        stalls_before(&clock->evals, clock->first_step);
    int64_t init_us = attempt->begin_us > 0
                          ? attempt->begin_us - attempt->start_us - before_us
                          : wall_us;
    us[RUN_TIME_INITIALIZATION] = account_take(init_us, &left);
    us[RUN_TIME_CHECKPOINT] =
        account_take(attempt->checkpoint_us + tail_us, &left);
    us[RUN_TIME_EVALUATION] = account_take(attempt->evaluation_us, &left);
    us[RUN_TIME_DATA] = account_take(attempt->data_us, &left);
    if (clock->sampled && steps_us > 0) {
        int64_t clock_us = steps_by_clock(attempt, clock, before_us);
        double share = fmin(1, (double)wasted_us / (double)steps_us);
        wasted_us = (int64_t)(share * (double)clock_us);
        steps_us = clock_us;
    }
    int64_t done_us = account_take(steps_us, &left);
    us[RUN_TIME_WASTED] = account_take(wasted_us, &done_us);
    us[RUN_TIME_TRAINING] = done_us;
    us[RUN_TIME_OTHER] = left;
}

static void find_times(struct run_attempt *attempt,
                       const struct run_clock *clock)
{
    memset(attempt->time_us, 0, sizeof attempt->time_us);
    if (attempt->start_us == 0) /* the ledger does not know it */
        attempt->start_us = attempt->begin_us;
    attempt->end_us = clock->stop_us > 0 ? clock->stop_us : clock->heard_us;
    if (attempt->start_us == 0)
        attempt->end_us = 0;
}

/* Hours of a GPU, or of a core where no GPU computed. */
static double account_hours(const struct run_attempt *attempt, int64_t wall_us)
{
    double devices =
        (double)attempt->ranks * (attempt->device ? 1 : attempt->threads);
    return devices * (double)wall_us / 3.6e9;
}

/* The time from the end of one attempt to the start of the next. */
static void account_between(const struct run_pause *pause, int64_t from_us,
                            int64_t wall_us, int64_t us[RUN_TIMES])
{
    int64_t left = wall_us;
    if (pause->decided_us == 0) {
        us[RUN_TIME_BETWEEN] = wall_us;
        return;
    }
    us[RUN_TIME_DETECTION] = account_take(pause->decided_us - from_us, &left);
    if (pause->requeued && pause->begin_us > 0)
        us[RUN_TIME_QUEUE] = account_take(
            pause->begin_us - from_us - us[RUN_TIME_DETECTION], &left);
    us[RUN_TIME_CHECKS] = account_take(pause->checks_us, &left);
    us[RUN_TIME_LAUNCH] = left;
}

void run_account(struct run_history *history)
{
    const struct run_clock *clocks = history->reader->clocks;
    struct run_attempt *list = history->attempts;
    size_t count = history->attempt_count;
    int64_t cursor = 0;
    memset(history->time_us, 0, sizeof history->time_us);
    history->begin_us = history->end_us = 0;
    history->device_hours = 0;
    history->device = false;
    for (size_t i = 0; i < count; i++)
        find_times(&list[i], &clocks[i]);
    for (size_t i = 0; i < count; i++) {
        int64_t from = list[i].start_us, to = list[i].end_us;
        if (from == 0)
            continue;
        if (history->begin_us == 0)
            history->begin_us = cursor = from;
        if (from < cursor)
            from = cursor;
        /* the next one has begun when this one is last heard of */
        if (i + 1 < count && list[i + 1].start_us > from &&
            list[i + 1].start_us < to)
            to = list[i + 1].start_us;
        if (to < from)
            to = from;
        account_divide(&list[i], &clocks[i], to - from);
        if (i > 0)
            account_between(&clocks[i].before, cursor, from - cursor,
                            list[i - 1].time_us);
        history->device_hours += account_hours(&list[i], to - from);
        history->device = history->device || list[i].device;
        cursor = to;
    }
    history->end_us = cursor;
    for (size_t i = 0; i < count; i++)
        for (int k = 0; k < RUN_TIMES; k++) {
            history->time_us[k] += list[i].time_us[k];
            cursor -= list[i].time_us[k];
        }
    assert(cursor == history->begin_us); /* without rest */
}
