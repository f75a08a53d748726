/* Whoever stops, dies or is late in a collective that goes by trees is named by all
 * others, and nobody but it, wherever it is in the tree and whenever the others
 * begin to wait; who is late but comes before the deadline is not. The program starts
 * itself as ranks under mpirun. */
#define RANKS 7
#define DEADLINE_S ranks_seconds(1.0)

#include "tests/dead_ranks.h"

#define LATE 0 /* for a signal */

static const struct {
    const char *what;
    int victim, second; /* -1: one */
    int signal;
    int every; /* so many of the kinds are enough */
} cases[] = {
    { "rank 0 dies", 0, -1, SIGKILL, 1 },
    { "the last rank stops", 6, -1, SIGSTOP, 3 },
    { "a rank between dies", 2, -1, SIGKILL, 3 },
    { "two ranks stop", 1, 4, SIGSTOP, 3 },
    { "two ranks die, rank 0 among them", 0, 3, SIGKILL, 3 },
    { "a rank is late", 5, -1, LATE, 3 },
    { "rank 0 is late", 0, -1, LATE, 3 },
    { "a rank between is late", 4, -1, LATE, 3 },
};
#define CASES (int)(sizeof cases / sizeof cases[0])

enum kind {
    BARRIER,
    AGREE,
    REDUCE,
    REDUCE_MANY,
    GATHER,
    GATHER_LARGE,
    CAST,      /* from 0; who has it goes on to a barrier */
    CAST_LAST, /* from the last of those who are there; then all-to-all */
    STARTED,   /* three in flight at once */
    KINDS
};
static const char *const names[KINDS] = {
    "barrier",  "agree",        "integers",  "many integers",
    "gather",   "large gather", "broadcast", "broadcast from the last",
    "in flight"
};

static const char *case_folder; /* of a rank */

static bool absent(int number, int rank)
{
    return rank == cases[number].victim || rank == cases[number].second;
}

static enum err start_all_to_all(struct comm *comm,
                                 struct comm_request **request)
{
    static char from[RANKS], to[RANKS];
    size_t *bytes = comm_sizes(comm, 0), *offsets = comm_sizes(comm, 1);
    for (int r = 0; r < RANKS; r++) {
        bytes[r] = 1;
        offsets[r] = (size_t)r;
    }
    return comm_start_all_to_all(comm, from, bytes, offsets, to, bytes, offsets,
                                 request);
}

static enum err operate(struct comm *comm, enum kind kind, int number)
{
    static int64_t many[5000];
    static char rows[RANKS][40000];
    struct comm_request *requests[3];
    int last = RANKS - 1;
    while (absent(number, last))
        last--;
    switch (kind) {
    case BARRIER:
        return comm_barrier(comm);
    case AGREE:
        return comm_agree(comm, ERR_OK);
    case REDUCE:
        return comm_all_reduce_i64(comm, many, 1, COMM_SUM);
    case REDUCE_MANY:
        return comm_all_reduce_i64(comm, many, 5000, COMM_SUM);
    case GATHER:
        return comm_gather_rows(comm, rows, 8);
    case GATHER_LARGE:
        return comm_gather_rows(comm, rows, sizeof *rows);
    case CAST:
        TRY(comm_broadcast(comm, many, 8, 0));
        return comm_barrier(comm);
    case CAST_LAST:
        TRY(comm_broadcast(comm, many, 8, last));
        TRY(start_all_to_all(comm, &requests[0]));
        return comm_wait(requests[0], 0.0);
    case STARTED:
    default:
        TRY(comm_start_broadcast(comm, many, 8, last, &requests[0]));
        TRY(comm_start_barrier(comm, &requests[1]));
        TRY(comm_start_all_reduce_i64(comm, many + 9, 3, COMM_MAX,
                                      &requests[2]));
        enum err rc = comm_wait(requests[2], 0.0);
        struct err_kept kept = { 0 };
        err_keep(&kept, rc);
        (void)comm_wait(requests[0], 0.0);
        (void)comm_wait(requests[1], 0.0);
        return err_again(&kept);
    }
}

/* Those who are there begin together: a token to the first of them and back. */
static enum err meet(struct comm *comm, int number)
{
    bool late = cases[number].signal == LATE;
    struct comm_request *request;
    int me = comm_rank(comm), hub = 0;
    while (!late && absent(number, hub))
        hub++;
    for (int pass = 0; pass < 2; pass++)
        for (int r = hub + 1; r < RANKS; r++) {
            if ((!late && absent(number, r)) || (me != hub && me != r))
                continue;
            if ((me == hub) == (pass == 0))
                TRY(comm_start_recv(comm, NULL, 0, me == hub ? r : hub, 1,
                                    &request));
            else
                TRY(comm_start_send(comm, NULL, 0, me == hub ? r : hub, 1,
                                    &request));
            TRY(comm_wait(request, PATIENCE_S));
        }
    return ERR_OK;
}

/* What a rank that is late waits for: all others have been told, however long that takes
 * on a busy machine. */
static void await_told(int number, int kind)
{
    char path[FSIO_PATH_MAX];
    for (int r = 0; r < RANKS; r++) {
        snprintf(path, sizeof path, "%s/told-%d-%d", case_folder, kind, r);
        while (!absent(number, r) && !fsio_exists(path))
            clock_sleep(0.02);
    }
}

static enum err act(struct comm *comm, int number)
{
    char path[FSIO_PATH_MAX];
    struct comm *copies[KINDS];
    char text[512];
    double longest_s = 0.0;
    int me = comm_rank(comm);
    ranks_second = cases[number].second;
    for (int kind = 0; kind < KINDS; kind++) {
        TRY(comm_duplicate(comm, &copies[kind]));
        if (me == cases[number].victim) /* late, but not too late */
            clock_sleep(0.5 * DEADLINE_S);
        TRY(operate(copies[kind], (enum kind)kind, number));
        TRY(comm_barrier(copies[kind]));
    }
    bool victim = absent(number, me);
    if (victim && cases[number].signal != LATE)
        raise(cases[number].signal);
    for (int kind = number % cases[number].every; kind < KINDS;
         kind += cases[number].every) {
        TRY(meet(comm, number));
        if (victim)
            await_told(number, kind);
        else
            clock_sleep(0.1 * DEADLINE_S * (double)(me * 5 % RANKS));
        double begin_s = clock_now();
        enum err rc = operate(copies[kind], (enum kind)kind, number);
        longest_s = fmax(longest_s, clock_now() - begin_s);
        if (!victim) {
            TRY(fsio_path(path, "%s/told-%d-%d", case_folder, kind, me));
            TRY(fsio_write_atomic(path, "", 0));
        }
        snprintf(text, sizeof text, "%s: %s", err_name(rc),
                 rc != ERR_OK ? err_text() : "it went on");
        if (!victim && !ranks_names_only(text, cases[number].victim))
            return err_set(ERR_INTERNAL, "%s: %s", names[kind], text);
        /* whoever is late has been told, too, and nobody waits for it again */
        if (comm_barrier(copies[kind]) != ERR_COMM)
            return err_set(ERR_INTERNAL, "%s: not broken", names[kind]);
    }
    return err_set(ERR_COMM, "%s (%.2f deadlines at most)",
                   text + strlen("comm: "), longest_s / DEADLINE_S);
}

int main(int argc, char **argv)
{
    case_folder = argv[argc - 1];
    if (!ranks_prepare(argc, argv, act))
        return tap_done();
    for (int i = 0; i < CASES; i++) {
        ranks_second = cases[i].second;
        ranks_test(i, cases[i].what, cases[i].victim);
    }
    return tap_done();
}
