/* A rank that stops or dies while rank 0 is at work for all is named by all
 * survivors, though that work takes longer than any deadline; one that is only
 * slow is waited for. The program starts itself as ranks under mpirun. */
#include "src/train/start/start.h"
#include "tests/dead_ranks.h"

static const struct {
    const char *what;
    int victim;
    int signal;
} cases[] = {
    { "rank 0 stops at its work", 0, SIGSTOP },
    { "rank 0 dies at its work", 0, SIGKILL },
    { "another dies after the work", 2, SIGKILL },
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

static enum err act(struct comm *comm, int number)
{
    struct job job = { .number = number };
    TRY(start_alone(comm, work, &job));
    if (job.worked != (comm_rank(comm) == 0))
        return err_set(ERR_INTERNAL, "rank 0 works, and nobody else");
    if (comm_rank(comm) == cases[number].victim)
        kill(getpid(), cases[number].signal);
    return comm_barrier(comm);
}

int main(int argc, char **argv)
{
    char folder[FSIO_PATH_MAX], program[FSIO_PATH_MAX];
    if (argc == 3)
        return ranks_main((int)strtol(argv[1], NULL, 10), argv[2], act);
    if (!ranks_prepare(program, folder))
        return tap_done();
    for (int i = 0; i < CASES; i++)
        ranks_test(program, i, folder, cases[i].what, cases[i].victim);
    return tap_done();
}
