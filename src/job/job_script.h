/* The batch script of a job, as a person would write it: what Slurm is asked for,
 * with a word on each line that is no matter of course, and what is run. A run that
 * tessera-launch keeps has what jobs/pretrain.sbatch has; anything else is one task
 * on one node. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "src/base/err.h"

struct job_script {
    const char *name, *folder; /* of the job; where it begins */
    const char *output;        /* as sbatch has it: %j is the job's number */
    /* NULL: as Slurm has them without */
    const char *time, *partition, *account;
    int nodes, spares;  /* to train on, and kept in reserve */
    int ranks, gpus;    /* of a node; 0 GPUs: none are asked for */
    bool kept;          /* by tessera-launch */
    bool requeue;       /* the site allows it; else: one job after another */
    const char *module; /* loaded first; NULL: `programs` is on the PATH */
    const char *programs;
    const char *const *options; /* of sbatch, as they are; NULL ends them */
    char *const *command;       /* NULL ends it; [0] is a program's name */
};

/* ERR_USAGE: a text has a line end, which would begin a line of the script. Errors
 * of `out` are its owner's to ask for. */
enum err job_script_write(const struct job_script *script, FILE *out);
