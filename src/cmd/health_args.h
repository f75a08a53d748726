/* What the parts of tessera-health share. The same main without pairs of ranks,
 * and so without MPI (HEALTH_NODE), is libexec/tessera/node-health. */
#pragma once

#include "healthcheck/health.h"

struct health_args {
    bool json, words, pairs, shared, allow_inject, repaired;
    double budget_s; /* 0: the phase's own */
    int gpus;        /* 0: not said */
    const char *out, *read, *root, *config, *only, *phase, *since;
    const char *run; /* of watch: the run directory, */
    int attempt;     /* and its attempt, */
    double every_s;  /* and the time between two looks; 0: its own */
    const char *act; /* as Slurm's "prolog" or "epilog"; NULL: no */
};

/* Prints and stores verdicts; steals them. They are out before a sick shared
 * file system can stop us. */
enum err health_publish(const struct health_args *arguments, json_t *verdicts);

/* Looks at the node's GPUs until one is not fit to go on, or the parent has gone; the
 * exit status. */
int health_watch(const struct health_args *arguments, struct health_env *env);

/* The pairing rounds; the exit status. */
int health_pairs(const struct health_args *arguments,
                 const struct health_env *env, int argc, char **argv);
