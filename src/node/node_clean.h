/* What users have left on the node goes, with the rights of each and no others, so
 * that whatever links and names there are nothing else can be removed. */
#pragma once

#include "src/node/node_known.h"

/* The job's folders for MPI and for node-local checkpoints in /dev/shm. A tree of a
 * million files is left to a later cleaning. */
void node_clean_job(struct node *node);
/* The same of ordinary users who have neither a job nor a process here. What was changed
 * since Slurm was asked for jobs stays, also folders that had to be opened first.
 * True: something may be gone. */
bool node_clean_leavings(struct node *node, const char *folder);
/* Users of other jobs here, as Slurm says, each once or more; the caller frees the
 * list. False: `why` it is not known. */
struct node_users {
    long *list;
    size_t count, room;
};
bool node_clean_jobs(const struct node *node, struct node_users *users,
                     char *why, size_t size);
/* Says whose files are the most in a folder. */
void node_clean_tell_owner(struct node *node, const char *folder);
