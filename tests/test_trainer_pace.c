/* What a rank may compute without a pause follows from its steps. */

#include "src/train/loop/trainer.h"
#include "tests/tap.h"

#define LOST_S 10.0

/* The limit of the step after those that took so long. */
static double limit_after(struct run *run, int steps, double step_s)
{
    for (int i = 0; i < steps; i++) {
        trainer_pace_begin(run);
        trainer_pace_end(run, step_s);
    }
    trainer_pace_begin(run);
    return run->now.pace.limit_s;
}

int main(void)
{
    struct run *run = calloc(1, sizeof *run);
    struct comm *comm = NULL;
    if (run == NULL || comm_create("self", NULL, NULL, 60.0, &comm) != ERR_OK)
        return 1;
    run->comm = comm;
    run->settings.parallel.lost_s = LOST_S;
    tap_ok(limit_after(run, 2, 900.0) == 0.0, "the first steps have none");
    tap_ok(limit_after(run, 1, 1.0) == 4500.0,
           "after them it is five times the longest");
    tap_ok(limit_after(run, 60, 1.0) == 4500.0, "which is remembered");
    tap_ok(limit_after(run, 64, 1.0) == LOST_S,
           "for 64 steps; of short ones it is lost_s");
    tap_ok(limit_after(run, 1, 3.0) == 15.0, "one is enough");
    trainer_pace_end(run, 3.0);
    tap_ok(run->now.pace.limit_s == 0.0, "none between two steps");
    comm_destroy(comm);
    free(run);
    return tap_done();
}
