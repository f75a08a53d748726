/* Whether the job's time limit is near, asking Slurm as rarely as possible. The
 * question itself is slurm.c's. A limit is moved seldom, so while the end that is
 * known is far nobody asks; when it is near it is worth a question, but a thousand
 * jobs ask the same controller. */
#include "src/job/slurm.h"

#include <assert.h>
#include <math.h>

#include "src/base/clock.h"

#define TIME_LEFT_ASK_S 30.0
#define TIME_LEFT_UNKNOWN_S 300.0

static void ask(struct time_left *left)
{
    double seconds = slurm_seconds_left(left->job_id);
    left->asked_at = clock_now();
    if (seconds >= 0)
        left->end_at = left->asked_at + seconds;
}

void time_left_begin(struct time_left *left, long job_id)
{
    *left = (struct time_left){ .job_id = job_id, .end_at = INFINITY };
    if (job_id <= 0)
        return;
    left->end_at = -1;
    ask(left);
}

bool time_left_under(struct time_left *left, double need_s)
{
    double now = clock_now();
    assert(need_s >= 0);
    bool known = left->end_at >= 0;
    if (known && left->end_at - now >= need_s)
        return false;
    if (now - left->asked_at >= (known ? TIME_LEFT_ASK_S : TIME_LEFT_UNKNOWN_S))
        ask(left);
    return left->end_at >= 0 && left->end_at - clock_now() < need_s;
}
