/* How long a rank may compute without a pause, by the steps that it has taken. */
#include <assert.h>
#include <math.h>

#include "src/comm/comm.h"
#include "src/train/loop/trainer.h"

#define LIMIT_STEPS 5 /* so many times the longest of the last ones */
#define FIRST_STEPS 3 /* may take any time: memory, connections, kernels */

static double limit_s(const struct run *run)
{
    const struct run_pace *pace = &run->now.pace;
    double longest_s = 0.0;
    if (pace->steps < FIRST_STEPS)
        return 0.0;
    for (int i = 0; i < RUN_PACE_STEPS; i++)
        longest_s = fmax(longest_s, pace->step_s[i]);
    return fmax(run->settings.parallel.lost_s, LIMIT_STEPS * longest_s);
}

void trainer_pace_begin(struct run *run)
{
    run->now.pace.limit_s = limit_s(run);
    comm_work(run->comm, run->position.step + 1, run->now.pace.limit_s);
}

void trainer_pace_rest(const struct run *run, bool rests)
{
    if (run->now.pace.limit_s > 0.0)
        comm_work(run->comm, run->position.step + 1,
                  rests ? 0.0 : run->now.pace.limit_s);
}

void trainer_pace_end(struct run *run, double step_s)
{
    struct run_pace *pace = &run->now.pace;
    assert(step_s >= 0.0);
    pace->step_s[pace->steps++ % RUN_PACE_STEPS] = step_s;
    trainer_pace_rest(run, true);
    pace->limit_s = 0.0;
}
