/* What Slurm tells a process: environment only, nothing is contacted except
 * by slurm_seconds_left(), slurm_job_state() and slurm_ask_*(), which run
 * squeue or scontrol as a child process with a deadline: not in the step. Outside
 * Slurm every field has its
 * stated default. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct slurm {
    long job_id;       /* SLURM_JOB_ID; 0: not in a job */
    int restart_count; /* SLURM_RESTART_COUNT; 0 */
    int step_id;       /* SLURM_STEP_ID; 0. Grows by one with every srun */
    char cluster[128]; /* SLURM_CLUSTER_NAME; "" */
};

void slurm_read(struct slurm *out);

/* A value of `scontrol show config`, as ClusterName, up to a blank; "" when it has
 * none or Slurm does not answer. */
void slurm_ask_config(const char *key, char *value, size_t bytes);
/* What squeue says of a job in `format`, at most 28 bytes; "" of one that it does not
 * show. Returns squeue's exit status, -1: it did not end. */
int slurm_ask_job(long job_id, const char *format, char *text, size_t bytes);

/* Seconds until the job's time limit, from squeue's %L; INFINITY when there is no
 * limit, -1 when that is not known or this is no job. */
double slurm_seconds_left(long job_id);

/* Seconds from squeue's form of a time: [days-]hours:minutes:seconds or
 * minutes:seconds; -1 for anything else ("UNLIMITED", "NOT_SET", "INVALID"). */
double slurm_parse_seconds(const char *text);

/* Whether processes of the job may still run. ENDED: finished, or pending again.
 * ABSENT: the controller shows no such job, which may be forgotten, of another
 * cluster, or hidden from this user (PrivateData=jobs). UNKNOWN: squeue is
 * missing or failed, so that nothing may be concluded. */
enum slurm_job_state {
    SLURM_JOB_UNKNOWN,
    SLURM_JOB_RUNNING,
    SLURM_JOB_ENDED,
    SLURM_JOB_ABSENT,
};
enum slurm_job_state slurm_job_state(long job_id);

/* How long the job has left before Slurm ends it. Slurm is asked once at the
 * start and again when the end comes near, at most every 30 s, because a limit
 * can be moved; where it gave no answer what it said before counts, and without
 * any it is asked again every 5 minutes. Outside a job and without a limit the
 * end never comes near. */
struct time_left {
    long job_id;
    double end_at; /* clock_now(); INFINITY: none; negative: unknown */
    double asked_at;
};

/* Asks Slurm (slurm_seconds_left()); job 0: none. */
void time_left_begin(struct time_left *left, long job_id);
/* Are fewer than `need_s` seconds left? */
bool time_left_under(struct time_left *left, double need_s);
