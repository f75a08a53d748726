/* A rank that stops or dies while rank 0 is at work for all is named by all
 * survivors, though that work takes longer than any deadline; one that is only
 * slow is waited for. The program starts itself as ranks under mpirun. */
#include <pthread.h>

#include "src/train/start/start.h"
/* a quarter of it is for an answer at the roll call, on a busy machine too */
#define DEADLINE_S 4.0
#include "tests/dead_ranks.h"

static const struct {
    const char *what;
    int victim;
    int signal;
    bool meanwhile; /* while rank 0 works, and not after it */
} cases[] = {
    { "rank 0 stops at its work", 0, SIGSTOP, false },
    { "rank 0 dies at its work", 0, SIGKILL, false },
    { "another dies after the work", 2, SIGKILL, false },
    /* 2 is between rank 0 and rank 3 in a tree, 3 is at its end */
    { "another stops at the work", 2, SIGSTOP, true },
    { "another dies at the work", 2, SIGKILL, true },
    { "the last stops at the work", 3, SIGSTOP, true },
};
#define CASES (int)(sizeof cases / sizeof cases[0])

struct job {
    int number;
    bool worked;
};

/* Longer than two deadlines. */
static enum err work(void *arg)
{
    struct job *job = arg;
    clock_sleep(0.8 * DEADLINE_S);
    if (cases[job->number].victim == 0)
        kill(getpid(), cases[job->number].signal);
    clock_sleep(1.5 * DEADLINE_S);
    job->worked = true;
    return ERR_OK;
}

static void *end_later(void *arg)
{
    const struct job *job = arg;
    clock_sleep(0.3 * DEADLINE_S);
    kill(getpid(), cases[job->number].signal);
    return NULL;
}

static enum err act(struct comm *comm, int number)
{
    struct job job = { .number = number };
    pthread_t thread;
    if (cases[number].meanwhile && comm_rank(comm) == cases[number].victim &&
        pthread_create(&thread, NULL, end_later, &job) != 0)
        return err_set(ERR_MEMORY, "no thread");
    TRY(start_alone(comm, work, &job));
    if (job.worked != (comm_rank(comm) == 0))
        return err_set(ERR_INTERNAL, "rank 0 works, and nobody else");
    if (comm_rank(comm) == cases[number].victim)
        kill(getpid(), cases[number].signal);
    return comm_barrier(comm);
}

int main(int argc, char **argv)
{
    if (!ranks_prepare(argc, argv, act))
        return tap_done();
    for (int i = 0; i < CASES; i++)
        ranks_test(i, cases[i].what, cases[i].victim);
    return tap_done();
}
