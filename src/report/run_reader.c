/* What the parts of the reader of run directories share. Numbers come from files
 * that anybody may have written: a time is limited before it becomes a whole
 * number, and sums stop at the limit instead of running over. */
#include "src/report/run_history_impl.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>

#include "src/base/array.h"

int64_t run_reader_us(double seconds)
{
    if (!(seconds > 0.0) || seconds * 1e6 > (double)RUN_US_MAX)
        return 0;
    return llround(seconds * 1e6);
}

int64_t run_reader_add(int64_t a, int64_t b)
{
    assert(a >= 0 && b >= 0);
    return a > RUN_US_MAX - b ? RUN_US_MAX : a + b;
}

/* Numbers of attempts have gaps and files name them in any order, so a table leads
 * from each number to its place in the list, which is that of first mention. */
enum err run_reader_attempt(struct run_history *history, double number,
                            int *index)
{
    struct run_reader *reader = history->reader;
    size_t count = history->attempt_count, room = reader->rooms.attempts;
    *index = -1;
    if (!(number >= 1 && number <= RUN_ATTEMPTS_MAX) || number != floor(number))
        return ERR_OK;
    int *known = &reader->by_number[(int)number];
    if (*known == 0) {
        TRY(array_room(&reader->clocks, &room, count + 1));
        TRY(array_room(&history->attempts, &reader->rooms.attempts, count + 1));
        history->attempts[count] = (struct run_attempt){
            .number = (int)number,
            .ranks = 1,
            .nodes = 1,
            .threads = 1,
            .from_step = -1,
            .last_step = -1,
            .code = -1,
            .stop_code = -1,
        };
        reader->clocks[count] =
            (struct run_clock){ .first_step = -1, .commit_step = -1 };
        *known = (int)++history->attempt_count;
    }
    *index = *known - 1;
    assert(history->attempts[*index].number == (int)number);
    return ERR_OK;
}

void run_reader_heard(struct run_history *history, int attempt, int64_t us)
{
    assert(attempt >= 0 && (size_t)attempt < history->attempt_count);
    struct run_clock *clock = &history->reader->clocks[attempt];
    if (us > clock->heard_us)
        clock->heard_us = us;
}

void run_reader_text(char *out, size_t size, const char *text)
{
    snprintf(out, size, "%s", text != NULL ? text : "");
}
