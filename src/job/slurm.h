/* What Slurm tells a process: environment only, nothing is contacted except
 * by slurm_seconds_left(). Outside Slurm every field has its stated default. */
#ifndef TESSERA_JOB_SLURM_H
#define TESSERA_JOB_SLURM_H

#include "src/base/err.h"

struct slurm {
    long job_id;       /* SLURM_JOB_ID; 0: not in a job */
    int restart_count; /* SLURM_RESTART_COUNT; 0 */
    int nodes;         /* SLURM_JOB_NUM_NODES; 1 */
    int procid;        /* SLURM_PROCID; 0 */
    char node[64];     /* SLURMD_NODENAME or the host name */
};

void slurm_read(struct slurm *out);

/* Seconds until the job's time limit, from `squeue -h -j ID -o %L`; -1 when
 * unlimited, unknown or not in a job. Runs a child process: not in the step. */
double slurm_seconds_left(long job_id);

#endif
