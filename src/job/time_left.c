#include "src/job/time_left.h"

#include "src/base/clock.h"
#include "src/job/slurm.h"

#define TIME_LEFT_ASK_S 30.0

static void ask(struct time_left *left)
{
    double seconds = slurm_seconds_left(left->job_id);
    left->asked_at = clock_now();
    left->end_at = seconds < 0 ? -1 : left->asked_at + seconds;
}

void time_left_begin(struct time_left *left, long job_id)
{
    *left = (struct time_left){ .job_id = job_id, .end_at = -1 };
    if (job_id > 0)
        ask(left);
}

bool time_left_under(struct time_left *left, double need_s)
{
    double now = clock_now();
    if (left->end_at < 0 || left->end_at - now >= need_s)
        return false;
    if (now - left->asked_at >= TIME_LEFT_ASK_S)
        ask(left);
    return left->end_at >= 0 && left->end_at - clock_now() < need_s;
}
