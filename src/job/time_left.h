/* How long the job has left before Slurm ends it. Slurm is asked once at the
 * start and again when the end comes near, at most every 30 s, because a limit
 * can be moved. Outside a job, without a limit or without an answer the end never
 * comes near: the signal that the job's script asks Slurm for remains. */
#ifndef TESSERA_JOB_TIME_LEFT_H
#define TESSERA_JOB_TIME_LEFT_H

#include <stdbool.h>

struct time_left {
    long job_id;
    double end_at; /* clock_now(); negative: unknown or none */
    double asked_at;
};

/* Asks Slurm (slurm_seconds_left()); job 0: none. */
void time_left_begin(struct time_left *left, long job_id);
/* Are fewer than `need_s` seconds left? */
bool time_left_under(struct time_left *left, double need_s);

#endif
