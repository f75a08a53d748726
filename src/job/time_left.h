/* How long the job has left before Slurm ends it. Slurm is asked once at the
 * start and again when the end comes near, at most every 30 s, because a limit
 * can be moved; where it gave no answer what it said before counts, and without
 * any it is asked again every 5 minutes. Outside a job and without a limit the
 * end never comes near. */
#pragma once

#include <stdbool.h>

struct time_left {
    long job_id;
    double end_at; /* clock_now(); INFINITY: none; negative: unknown */
    double asked_at;
};

/* Asks Slurm (slurm_seconds_left()); job 0: none. */
void time_left_begin(struct time_left *left, long job_id);
/* Are fewer than `need_s` seconds left? */
bool time_left_under(struct time_left *left, double need_s);
