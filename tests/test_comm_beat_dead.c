/* Signs of life: a rank that stops or dies is named by all others long before any
 * deadline, whatever they are at, and so is one whose work does not end; one that waits,
 * rests, or is away for a moment is not. The program starts itself as ranks. */
#define DEADLINE_S 60.0
#if TESSERA_WITH_MPI
#include <mpi.h>
#endif
#include <pthread.h>
#include <stdatomic.h>

#include "tests/dead_ranks.h"

#define LOST_S 2.0
#define LIMIT_S 1.5
#define SOON_S 10.0 /* for a busy machine: far from DEADLINE_S all the same */

#define REST (-1)
#define HOLD                                                                   \
    (-2) /* stopped, and a message to it keeps a thread in the library */
#define HOLD_MAIN (-3)  /* the main thread, of the rank before it */
#define OTHER (-4)      /* it begins another collective than the others, */
#define OTHER_SIZE (-5) /* or one of another size */

static const char *case_folder; /* of a rank */

enum at {
    AT_BARRIER,
    AT_RECEIVE, /* from one that itself waits for the victim */
    AT_WORK,    /* within its limit, then at a barrier */
    AT_TWO, /* a message that fails, then a collective on another communicator */
    AT_DEADLINE, /* as AT_RECEIVE, but with a deadline that passes */
    AT_SUM
};

static const struct {
    const char *what;
    int victim;
    int signal; /* 0: it works for longer than its limit; REST: at rest for good */
    enum at others;
} cases[] = {
    { "stopped while others wait", 2, SIGSTOP, AT_BARRIER },
    { "dead while others wait", 2, SIGKILL, AT_BARRIER },
    { "rank 0 stopped", 0, SIGSTOP, AT_BARRIER },
    { "the last stopped", 3, SIGSTOP, AT_BARRIER },
    { "stopped, and others wait for who waits", 1, SIGSTOP, AT_RECEIVE },
    { "stopped while others compute", 2, SIGSTOP, AT_WORK },
    { "stopped, with two waits in a row", 2, SIGSTOP, AT_TWO },
    { "work without an end", 1, 0, AT_BARRIER },
    { "rank 0's work without an end", 0, 0, AT_RECEIVE },
    { "alive, and without an end", 1, REST, AT_DEADLINE },
    { "rank 0 alive, and without an end", 0, REST, AT_DEADLINE },
    { "a sign of life to a stopped rank does not return", 2, HOLD, AT_BARRIER },
    { "nor does a message of the main thread", 2, HOLD_MAIN, AT_RECEIVE },
    { "another collective", 2, OTHER, AT_SUM },
    { "rank 0's other collective", 0, OTHER, AT_SUM },
    { "a collective of another size", 1, OTHER_SIZE, AT_SUM },
    { "rank 0's collective of another size", 0, OTHER_SIZE, AT_SUM },
};
#define CASES (int)(sizeof cases / sizeof cases[0])

/* As OpenMPI's mtl/ofi does with a peer that is dead. */
static _Atomic int held_peer = -1;
static pthread_t main_thread;
static bool main_held;

#if TESSERA_WITH_MPI
int MPI_Isend(const void *data, int count, MPI_Datatype type, int peer, int tag,
              MPI_Comm comm, MPI_Request *request)
{
    while (peer == held_peer &&
           (pthread_equal(pthread_self(), main_thread) != 0) == main_held)
        clock_sleep(0.01);
    return PMPI_Isend(data, count, type, peer, tag, comm, request);
}
#endif

/* A rank that another thread ends says so. */
static void say_leaving(void *folder, enum err rc)
{
    char said[FSIO_PATH_MAX], text[1024];
    snprintf(said, sizeof said, "%s/said-1", (const char *)folder);
    int n = snprintf(text, sizeof text, "%s: %s", err_name(rc), err_text());
    (void)fsio_write_atomic(said, text, (size_t)n);
}

static enum err hold(struct comm *comm, int number)
{
    static char byte;
    struct comm_request *request;
    int victim = cases[number].victim;
    main_held = cases[number].signal == HOLD_MAIN;
    main_thread = pthread_self();
    if (comm_rank(comm) != victim - 1)
        return ERR_OK;
    if (main_held)
        comm_on_leave(comm, say_leaving, (void *)(uintptr_t)case_folder);
    held_peer = victim;
    return main_held ? comm_start_send(comm, &byte, 1, victim, 3, &request)
                     : ERR_OK;
}

static enum err receive_from(struct comm *comm, int peer, double timeout_s)
{
    static char byte;
    struct comm_request *request;
    TRY(comm_start_recv(comm, &byte, 1, peer, 3, &request));
    return comm_wait(request, timeout_s);
}

static enum err sum(struct comm *comm, size_t count)
{
    int64_t values[8] = { 0 };
    return comm_all_reduce_i64(comm, values, count, COMM_SUM);
}

static enum err wait_with_others(struct comm *comm, struct comm *copy,
                                 enum at at)
{
    int before = (comm_rank(comm) + RANKS - 1) % RANKS;
    switch (at) {
    case AT_RECEIVE:
        return receive_from(copy, before, 0.0);
    case AT_DEADLINE:
        return receive_from(copy, before, 2.0);
    case AT_SUM:
        return sum(copy, 2);
    case AT_WORK:
        comm_work(comm, 7, 100.0 * LIMIT_S);
        clock_sleep(LOST_S + 2.0);
        break;
    case AT_TWO:
        if (receive_from(copy, before, 0.0) != ERR_COMM)
            return err_set(ERR_INTERNAL, "it went on");
        break;
    case AT_BARRIER:
    default:
        break;
    }
    return comm_barrier(comm);
}

/* Nobody is named for any of this. */
static enum err be_slow(struct comm *comm)
{
    int me = comm_rank(comm);
    comm_work(comm, 1, LIMIT_S);
    if (me == 1) {
        comm_work(comm, 1, 0.0); /* files */
        clock_sleep(2.0 * LIMIT_S + LOST_S);
    }
    TRY(comm_barrier(comm)); /* the others have waited for it */
    for (int i = 0; i < 6; i++) {
        comm_work(comm, 2 + i, LIMIT_S);
        clock_sleep(0.4 * LIMIT_S);
    }
    return comm_barrier(comm);
}

static enum err act(struct comm *comm, int number)
{
    struct comm *copy;
    TRY(comm_beat_start(comm, LOST_S));
    TRY(comm_duplicate(comm, &copy));
    if (cases[number].signal > OTHER)
        TRY(be_slow(comm));
    comm_work(comm, 9, 0.0);
    if (comm_rank(comm) == cases[number].victim) {
        if (cases[number].signal > 0)
            raise(cases[number].signal);
        if (cases[number].signal == OTHER)
            (void)comm_barrier(copy);
        else if (cases[number].signal == OTHER_SIZE)
            (void)sum(copy, 5);
        else if (cases[number].signal <= HOLD)
            raise(SIGSTOP);
        else if (cases[number].signal != REST)
            comm_work(comm, 9, LIMIT_S);
        for (;;)
            clock_sleep(0.01);
    }
    double begin_s = clock_now();
    bool holds =
        cases[number].signal <= HOLD && cases[number].signal >= HOLD_MAIN;
    enum err rc = holds ? hold(comm, number) : ERR_OK;
    if (rc == ERR_OK)
        rc = wait_with_others(comm, copy, cases[number].others);
    double took_s = clock_now() - begin_s;
    if (rc == ERR_COMM && took_s > SOON_S)
        return err_set(ERR_INTERNAL, "after %.1f s: %s", took_s, err_text());
    struct err_kept kept = { 0 };
    err_keep(&kept, rc);
    if (comm_barrier(copy) != ERR_COMM)
        return err_set(ERR_INTERNAL, "a relative is not broken");
    return err_again(&kept);
}

static const struct {
    const char *what;
    double stop_s; /* of all ranks, or of rank 2 alone */
    bool all;
} pauses[] = {
    { "a rank that is away for a moment", 0.5 * LOST_S, false },
    { "all ranks, stopped for long and resumed", 2.0 * LOST_S, true },
};

/* They stop by themselves; mpirun's parent resumes them. */
static enum err pause_and_meet(struct comm *comm)
{
    TRY(comm_beat_start(comm, LOST_S));
    TRY(comm_barrier(comm));
    for (int i = 0; i < 40; i++) {
        comm_work(comm, i, LIMIT_S);
        clock_sleep(0.1);
        TRY(comm_barrier(comm));
    }
    return ERR_OK;
}

static enum err act_any(struct comm *comm, int number)
{
    return number < CASES ? act(comm, number) : pause_and_meet(comm);
}

static void test_pause(int number)
{
    int which = number - CASES;
    struct ranks ranks;
    char text[1024];
    ranks_start(&ranks, number);
    bool good = ranks.started;
    clock_sleep(1.0);
    for (int signal = 0; good && signal < 2; signal++) {
        for (int r = 0; r < RANKS; r++)
            if (pauses[which].all || r == 2)
                kill(ranks.pids[r], signal == 0 ? SIGSTOP : SIGCONT);
        clock_sleep(signal == 0 ? pauses[which].stop_s : 0.0);
    }
    for (int r = 0; good && r < RANKS; r++) {
        ranks_await(ranks.folder, "said", r, text, sizeof text);
        if (strstr(text, "it went on") == NULL)
            tap_note("rank %d says: %s", r, text);
        good = good && strstr(text, "it went on") != NULL;
    }
    tap_ok(good, "%s: nobody is named", pauses[which].what);
    ranks_stop(&ranks);
}

/* Who computes without an end shows where it is, and nobody else does. */
static void test_stack(int number, const char *folder)
{
    static const char head[] = "stack of the main thread";
    char path[FSIO_PATH_MAX], *text = NULL;
    size_t bytes;
    int stacks = 0, frames = 0;
    snprintf(path, sizeof path, "%s/stderr", folder);
    (void)fsio_read_file(path, 1 << 20, &text, &bytes);
    for (char *at = text; at != NULL && (at = strstr(at, head)) != NULL; at++) {
        stacks++;
        frames += strstr(at, "test_comm_beat_dead") != NULL;
    }
    tap_ok(stacks == 1 && frames == 1, "%s: its stack is shown",
           cases[number].what);
    if (stacks != 1 || frames != 1)
        tap_note("%d stacks, %d with frames of ours: %s", stacks, frames, text);
    free(text);
}

int main(int argc, char **argv)
{
    case_folder = argc == 3 ? argv[2] : "";
    if (!ranks_prepare(argc, argv, act_any))
        return tap_done();
    const char *only = getenv("CASE"); /* those with these words */
    for (int i = 0; i < CASES; i++)
        if (only == NULL || strstr(cases[i].what, only) != NULL) {
            const char *folder = ranks_test(i, cases[i].what, cases[i].victim);
            if (cases[i].signal == 0)
                test_stack(i, folder);
        }
    for (int i = 0; i < (int)(sizeof pauses / sizeof pauses[0]); i++)
        if (only == NULL)
            test_pause(CASES + i);
    return tap_done();
}
