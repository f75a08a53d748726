/* A rank that stops or dies while groups of ranks compute together is named by
 * all survivors, and by its name alone: also by those that waited for somebody
 * who waited for it, and by those of other groups, who come to the roll call
 * from an exchange of their own. The program starts itself as ranks under
 * mpirun. */
#include "src/parallel/group.h"
#include "tests/dead_ranks.h"

static const struct {
    const char *what;
    int degree;
    int victim;
    int signal;
} cases[] = {
    { "a ring of 4, stopped", 4, 3, SIGSTOP },
    { "a ring of 4, killed", 4, 1, SIGKILL },
    { "rings of 2, stopped", 2, 0, SIGSTOP },
    { "rings of 2, killed", 2, 3, SIGKILL },
};
#define CASES (int)(sizeof cases / sizeof cases[0])

/* --- a rank -------------------------------------------------------------- */

/* What comes goes on to the next one: only the next one of the victim waits for
 * the victim itself. */
static enum err pass_on(const struct group_access *group, int laps)
{
    enum err rc = ERR_OK;
    int data = 0;
    int next = (group->rank + 1) % group->size;
    int last = (group->rank + group->size - 1) % group->size;
    for (int lap = 0; lap < laps; lap++) {
        if (group->rank > 0 || lap > 0) {
            TRY(group->start(group->arg, 0, next, NULL, 0, last, &data,
                             sizeof data));
            TRY(group->wait(group->arg, 0));
        }
        TRY(group->start(group->arg, 0, next, &data, sizeof data, last, NULL,
                         0));
        TRY(group->wait(group->arg, 0));
    }
out:
    return rc;
}

static enum err compute(struct comm *comm, int number)
{
    enum err rc = ERR_OK;
    struct group *group = NULL;
    bool victim = comm_rank(comm) == cases[number].victim;
    TRY(group_create(comm, &kernel_memory_cpu, NULL, "auto",
                     cases[number].degree, &group));
    TRY(comm_barrier(comm));
    rc = pass_on(group_access(group), victim ? 1 : 3);
    if (rc == ERR_OK && victim)
        raise(cases[number].signal);
    if (rc == ERR_OK) /* of a group that is whole */
        rc = comm_barrier(comm);
    if (rc != ERR_OK)
        rc = group_roll_call(group, rc);
out:
    return rc;
}

int main(int argc, char **argv)
{
    char folder[FSIO_PATH_MAX], program[FSIO_PATH_MAX];
    if (argc == 3)
        return ranks_main(atoi(argv[1]), argv[2], compute);
    if (!ranks_prepare(program, folder))
        return tap_done();
    for (int i = 0; i < CASES; i++)
        ranks_test(program, i, folder, cases[i].what, cases[i].victim);
    fsio_remove_tree(folder);
    return tap_done();
}
