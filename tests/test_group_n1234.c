/* Rings of messages within groups of ranks, in several slots at once. */
#include "src/parallel/group.h"

#include "tests/tap.h"

#define WORDS 1000
#define ROUNDS 5
#define USED 3 /* slots at once */

/* What a rank sends in a slot of a round. */
static int word(int rank, int round, int slot, int i)
{
    return ((rank * ROUNDS + round) * GROUP_SLOTS + slot) * WORDS + i;
}

/* Some slots are longer, so that they do not arrive in the order of starts. */
static int length(int round, int slot)
{
    return WORDS >> (2 * ((round + slot) % 3));
}

static int wrong(const int *data, int rank, int round, int slot)
{
    int count = 0;
    for (int i = 0; i < WORDS; i++)
        count += data[i] !=
                 (i < length(round, slot) ? word(rank, round, slot, i) : -1);
    return count;
}

/* Everybody sends to the next one in three slots and waits in another order. */
static enum err ring(struct comm *comm, const struct group_access *group,
                     int *errors)
{
    static int send[USED][WORDS], recv[USED][WORDS];
    int size = group->size;
    int next = (group->rank + 1) % size;
    int last = (group->rank + size - 1) % size;
    int first = comm_rank(comm) - group->rank;
    for (int round = 0; round < ROUNDS; round++) {
        for (int u = 0; u < USED; u++) {
            int slot = (u * 3 + round) % GROUP_SLOTS;
            size_t bytes = (size_t)length(round, slot) * sizeof(int);
            for (int i = 0; i < WORDS; i++)
                send[u][i] = word(comm_rank(comm), round, slot, i);
            memset(recv[u], -1, sizeof recv[u]);
            TRY(group->start(group->arg, slot, next, send[u], bytes, last,
                             recv[u], bytes));
        }
        for (int u = USED - 1; u >= 0; u--) {
            int slot = (u * 3 + round) % GROUP_SLOTS;
            TRY(group->wait(group->arg, slot));
            *errors += wrong(recv[u], first + last, round, slot);
        }
    }
    return ERR_OK;
}

/* The first one sends to the last one, and nothing comes back. */
static enum err one_way(const struct group_access *group, int *errors)
{
    int data = group->rank == 0 ? 42 : 0;
    size_t bytes = sizeof data;
    bool from = group->rank == 0, to = group->rank == group->size - 1;
    if (group->size == 1)
        return ERR_OK;
    TRY(group->start(group->arg, 7, group->size - 1, from ? &data : NULL,
                     from ? bytes : 0, 0, to ? &data : NULL, to ? bytes : 0));
    TRY(group->wait(group->arg, 7));
    *errors += (to || from) && data != 42;
    return ERR_OK;
}

static void test_groups(struct comm *comm, struct comm_tensors *tensors,
                        int degree)
{
    enum err rc = ERR_OK;
    struct group *group = NULL;
    int errors = 0;
    TRY_OUT(group_create(comm, tensors, degree, &group));
    const struct group_access *access = group_access(group);
    errors += access->size != degree;
    errors += access->rank != comm_rank(comm) % degree;
    if (degree > 1)
        TRY_OUT(ring(comm, access, &errors));
    TRY_OUT(one_way(access, &errors));
out:
    rc = comm_agree(comm, rc);
    int64_t sum = errors;
    tap_ok(rc == ERR_OK &&
               comm_all_reduce_i64(comm, &sum, 1, COMM_SUM) == ERR_OK &&
               sum == 0,
           "groups of %d of %d ranks", degree, comm_size(comm));
    if (rc != ERR_OK)
        tap_note("%s", err_text());
    group_destroy(group);
}

/* A failure of one rank alone is what all end with. */
static void test_own_error(struct comm *comm, struct comm_tensors *tensors)
{
    enum err rc = ERR_OK;
    struct group *group = NULL;
    int rank = comm_rank(comm), last = comm_size(comm) - 1;
    TRY_OUT(group_create(comm, tensors, comm_size(comm), &group));
    rc = rank == last ? err_set(ERR_NUMERIC, "it was me")
                      : err_set(ERR_COMM, "somebody did not come");
    rc = group_roll_call(group, rc);
    bool good = rc == (last > 0 || rank == last ? ERR_NUMERIC : ERR_COMM) &&
                strstr(err_text(), "it was me") != NULL;
    err_set(ERR_COMM, "another one");
    good = good && group_roll_call(group, ERR_COMM) == rc &&
           strstr(err_text(), "it was me") != NULL;
    int64_t all = good;
    tap_ok(comm_all_reduce_i64(comm, &all, 1, COMM_MIN) == ERR_OK && all == 1,
           "the error of the last rank ends all, also the second time");
    group_destroy(group);
    group = NULL;
    TRY_OUT(group_create(comm, tensors, 1, &group));
    err_set(ERR_COMM, "somebody was late, rank %d", rank);
    rc = group_roll_call(group, ERR_COMM);
    all = rc == ERR_COMM && strstr(err_text(), "was late") != NULL;
    tap_ok(comm_all_reduce_i64(comm, &all, 1, COMM_MIN) == ERR_OK && all == 1,
           "all are here: the first error stays");
    rc = ERR_OK;
out:
    if (rc != ERR_OK)
        tap_ok(false, "create: %s", err_text());
    group_destroy(group);
}

int main(int argc, char **argv)
{
    struct comm *comm;
    struct comm_tensors *tensors;
    if (comm_create("auto", &argc, &argv, 60.0, &comm) != ERR_OK ||
        comm_tensors_create(comm, &kernel_memory_cpu, NULL, EXCHANGE_AUTO,
                            &tensors) != ERR_OK) {
        tap_ok(false, "%s", err_text());
        return tap_done();
    }
    if (comm_rank(comm) > 0)
        tap_silence();
    for (int degree = 1; degree <= comm_size(comm); degree++)
        if (comm_size(comm) % degree == 0)
            test_groups(comm, tensors, degree);
    test_own_error(comm, tensors);
    comm_tensors_destroy(tensors);
    comm_destroy(comm);
    return tap_done();
}
