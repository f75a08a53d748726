/* What the commands of tessera-job share. */
#pragma once

#include "src/base/settings/options.h"
#include "src/job/job_script.h"

#define JOB_ANSWER_BYTES 4096

struct job {
    struct job_script script;
    const char *options[65]; /* of sbatch; NULL ends them */
    int chain;
    bool dry, follow;
    bool secret; /* settings that nobody else may read */
};

/* The newest job of a run: that of RUN/job, or of the newest attempt; 0: none. */
long job_of(const char *run_dir);
/* Whether it may still train, and its state with the reason. */
bool job_queued(long number, char *state, size_t bytes);

enum err job_submit(struct job *job, const struct options *line);
