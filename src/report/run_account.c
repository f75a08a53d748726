/* Divides a run's wall time among its kinds (run_history.h). Shares are cut out
 * of what is left, in a fixed order, so that they add up to the whole whatever
 * the files say. */
#include <string.h>

#include "src/report/run_reader.h"

static int64_t take(int64_t wanted, int64_t *left)
{
    int64_t taken = wanted < 0 ? 0 : wanted < *left ? wanted : *left;
    *left -= taken;
    return taken;
}

/* The wall time of one attempt. */
static void divide(struct run_attempt *attempt, const struct run_clock *clock,
                   int64_t wall_us)
{
    int64_t *us = attempt->time_us;
    int64_t left = wall_us;
    int64_t steps_us = attempt->steps_us, wasted_us = attempt->wasted_us;
    int64_t tail_us =
        clock->commit_step >= attempt->last_step ? clock->commit_rest_us : 0;
    int64_t init_us =
        attempt->begin_us > 0 ? attempt->begin_us - attempt->start_us : wall_us;
    us[RUN_TIME_INITIALIZATION] = take(init_us, &left);
    us[RUN_TIME_CHECKPOINT] = take(attempt->checkpoint_us + tail_us, &left);
    us[RUN_TIME_EVALUATION] = take(attempt->evaluation_us, &left);
    us[RUN_TIME_DATA] = take(attempt->data_us, &left);
    if (clock->sampled && steps_us > 0) {
        /* logged steps are not all: what the clock says counts */
        int64_t between_us = attempt->last_us - attempt->begin_us -
                             attempt->checkpoint_us - attempt->evaluation_us -
                             attempt->data_us;
        wasted_us = (int64_t)((double)wasted_us * (double)between_us /
                              (double)steps_us);
        steps_us = between_us;
    }
    int64_t done_us = take(steps_us, &left);
    us[RUN_TIME_WASTED] = take(wasted_us, &done_us);
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
}

/* Of a GPU, or of a core where no GPU computed. */
static double hours(const struct run_attempt *attempt, int64_t wall_us)
{
    double devices =
        (double)attempt->ranks * (attempt->device ? 1 : attempt->threads);
    return devices * (double)wall_us / 3.6e9;
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
        divide(&list[i], &clocks[i], to - from);
        if (i > 0)
            list[i - 1].time_us[RUN_TIME_BETWEEN] += from - cursor;
        history->device_hours += hours(&list[i], to - from);
        history->device = history->device || list[i].device;
        cursor = to;
    }
    history->end_us = cursor;
    for (size_t i = 0; i < count; i++)
        for (int k = 0; k < RUN_TIMES; k++)
            history->time_us[k] += list[i].time_us[k];
}
