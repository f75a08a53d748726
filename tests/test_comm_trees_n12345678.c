/* Collectives that go by trees, against what each rank can compute alone: every kind
 * on any number of ranks, of several sizes, one after the other and many at a time,
 * on a communicator and a duplicate, waited for in any order. */
#include "src/base/clock.h"
#include "src/base/timeline.h"
#include "src/comm/comm.h"
#include "tests/tap.h"

#define RANKS_MAX 64
#define IN_FLIGHT 60
#define TAGS 32768

static uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t x = (a + 1) * 0x9E3779B97F4A7C15u + (b + 3) * 0xBF58476D1CE4E5B9u;
    return (x ^ x >> 29) * 0x94D049BB133111EBu;
}

static void everywhere(struct comm *comm, bool pass, const char *what)
{
    struct comm_request *request;
    int64_t good = pass;
    enum err rc = comm_start_all_reduce_i64(comm, &good, 1, COMM_MIN, &request);
    if (rc == ERR_OK)
        rc = comm_wait(request, 0.0);
    tap_ok(rc == ERR_OK && good == 1, "%s", what);
    if (rc != ERR_OK)
        tap_note("%s", err_text());
}

/* The value of rank r at place i of operation `number`. */
static int64_t given(int number, int r, size_t i)
{
    return (int64_t)mix(mix((uint64_t)number, (uint64_t)r), i);
}

static int64_t reduced(int number, int size, size_t i, enum comm_op op)
{
    int64_t result = given(number, 0, i);
    for (int r = 1; r < size; r++) {
        int64_t v = given(number, r, i);
        if (op == COMM_SUM)
            result = (int64_t)((uint64_t)result + (uint64_t)v);
        else if ((op == COMM_MAX) == (v > result))
            result = v;
    }
    return result;
}

static bool reduces(struct comm *comm, int number, size_t count,
                    enum comm_op op)
{
    int64_t *values = malloc((count + 1) * sizeof *values);
    for (size_t i = 0; i <= count; i++)
        values[i] = given(number, comm_rank(comm), i);
    bool pass = comm_all_reduce_i64(comm, values, count, op) == ERR_OK;
    for (size_t i = 0; i < count; i++)
        pass = pass && values[i] == reduced(number, comm_size(comm), i, op);
    pass = pass && values[count] == given(number, comm_rank(comm), count);
    free(values);
    return pass;
}

static void test_reduce(struct comm *comm)
{
    static const size_t counts[] = { 0,    1,    2,    16,   17,   2047,
                                     2048, 2049, 4096, 5000, 20000 };
    bool pass = true;
    for (unsigned c = 0; c < sizeof counts / sizeof counts[0]; c++)
        for (int op = COMM_SUM; op <= COMM_MIN; op++)
            pass = reduces(comm, (int)c, counts[c], (enum comm_op)op) && pass;
    everywhere(comm, pass, "integers: sum, maximum, minimum of 0 to 20000");
}

static void test_broadcast(struct comm *comm)
{
    static const size_t lengths[] = { 0, 1, 100, 70000, 1000000 };
    unsigned char *data = malloc(1000000);
    bool pass = true;
    for (unsigned l = 0; l < sizeof lengths / sizeof lengths[0]; l++)
        for (int root = 0; root < comm_size(comm); root++) {
            bool first = comm_rank(comm) == root;
            for (size_t i = 0; i < lengths[l]; i++)
                data[i] = first ? (unsigned char)mix((uint64_t)root, i) : 0;
            pass =
                comm_broadcast(comm, data, lengths[l], root) == ERR_OK && pass;
            for (size_t i = 0; i < lengths[l]; i++)
                pass = pass && data[i] == (unsigned char)mix((uint64_t)root, i);
        }
    free(data);
    everywhere(comm, pass, "broadcasts of 0 bytes to 1 MB from every root");
}

/* The parts of ranks, in order or the other way round, with bytes between them that
 * are nobody's. */
static bool gathers(struct comm *comm, size_t unit, size_t gap, bool back)
{
    size_t bytes[RANKS_MAX], offsets[RANKS_MAX], total = gap;
    int size = comm_size(comm);
    for (int i = 0; i < size; i++) {
        int r = back ? size - 1 - i : i;
        bytes[r] = unit * (size_t)(r % 3); /* some have nothing */
        offsets[r] = total;
        total += bytes[r] + gap;
    }
    unsigned char *data = malloc(total + 1);
    memset(data, 7, total + 1);
    int me = comm_rank(comm);
    for (size_t i = 0; i < bytes[me]; i++)
        data[offsets[me] + i] = (unsigned char)mix((uint64_t)me, i);
    bool pass = comm_all_gather(comm, data, bytes, offsets) == ERR_OK;
    for (int r = 0; r < size; r++) {
        for (size_t i = 0; i < bytes[r]; i++)
            pass = pass &&
                   data[offsets[r] + i] == (unsigned char)mix((uint64_t)r, i);
        for (size_t i = 0; i < gap; i++)
            pass = pass && data[offsets[r] + bytes[r] + i] == 7;
    }
    free(data);
    return pass;
}

static void test_gather(struct comm *comm)
{
    static const size_t units[] = { 0, 1, 65, 5000, 40000 };
    int64_t rows[RANKS_MAX] = { 0 };
    bool pass = true;
    for (unsigned u = 0; u < sizeof units / sizeof units[0]; u++)
        for (int form = 0; form < 4; form++)
            pass = gathers(comm, units[u], form % 2 == 0 ? 0 : 3, form >= 2) &&
                   pass;
    rows[comm_rank(comm)] = given(1, comm_rank(comm), 0);
    pass = comm_gather_rows(comm, rows, sizeof *rows) == ERR_OK && pass;
    for (int r = 0; r < comm_size(comm); r++)
        pass = pass && rows[r] == given(1, r, 0);
    everywhere(comm, pass, "gathers, with gaps, backwards, of nothing");
}

/* Nobody leaves before the last has come. */
static void test_barrier(struct comm *comm)
{
    bool pass = true;
    for (int last = 0; last < comm_size(comm); last++) {
        int64_t times[2] = { 0, 0 };
        if (comm_rank(comm) == last) {
            clock_sleep(0.02);
            times[0] = timeline_now();
        }
        pass = comm_barrier(comm) == ERR_OK && pass;
        times[1] = -timeline_now();
        pass = comm_all_reduce_i64(comm, times, 2, COMM_MAX) == ERR_OK && pass;
        pass = pass && times[0] <= -times[1];
    }
    everywhere(comm, pass, "barriers wait for whoever comes last");
}

static void test_agree(struct comm *comm)
{
    int size = comm_size(comm), me = comm_rank(comm);
    bool pass = true;
    for (int a = 0; a < size; a++) {
        int b = (a + size / 2) % size, first = a < b ? a : b;
        char want[600];
        enum err rc = ERR_OK;
        if (me == a || me == b)
            rc = err_set(ERR_DATA, "of rank %d", me);
        else if (me == (a + 1) % size)
            rc = err_set(ERR_USAGE, "less");
        bool own = rc != ERR_OK;
        rc = comm_agree(comm, rc);
        snprintf(want, sizeof want, "rank %d (%s): of rank %d", first,
                 comm_host(comm, first), first);
        pass = pass && rc == ERR_DATA && (own || strcmp(err_text(), want) == 0);
    }
    everywhere(comm, pass && comm_agree(comm, ERR_OK) == ERR_OK,
               "agreements: the worst code, its lowest rank speaks");
}

/* All kinds, on two communicators, in flight together; waits in another order on
 * each rank, now and then a look at one that is not waited for. */
static void test_overlap(struct comm *comm, struct comm *copy)
{
    static int64_t values[IN_FLIGHT][RANKS_MAX];
    struct comm_request *requests[IN_FLIGHT];
    int size = comm_size(comm), me = comm_rank(comm);
    size_t bytes[RANKS_MAX], offsets[RANKS_MAX];
    bool pass = true;
    for (int i = 0; i < IN_FLIGHT && pass; i++) {
        struct comm *on = i % 3 == 0 ? copy : comm;
        enum err rc;
        for (int r = 0; r < RANKS_MAX; r++)
            values[i][r] = r == me || i % 4 == 0 ? given(i, me, (size_t)r) : 0;
        for (int r = 0; r < size; r++) {
            bytes[r] = sizeof **values;
            offsets[r] = (size_t)r * sizeof **values;
        }
        if (i % 4 == 0)
            rc = comm_start_all_reduce_i64(on, values[i], RANKS_MAX, COMM_SUM,
                                           &requests[i]);
        else if (i % 4 == 1)
            rc = comm_start_all_gather(on, values[i], bytes, offsets,
                                       &requests[i]);
        else if (i % 4 == 2)
            rc = comm_start_broadcast(on, &values[i][i % size], sizeof **values,
                                      i % size, &requests[i]);
        else
            rc = comm_start_barrier(on, &requests[i]);
        pass = rc == ERR_OK;
    }
    for (int i = 0; i < IN_FLIGHT && pass; i++) {
        int next = (i * 7 + me * 11) % IN_FLIGHT;
        if (me % 2 == 1)
            for (int look = 0; look < 5 && i + 1 < IN_FLIGHT; look++)
                (void)comm_test(requests[((i + 1) * 7 + me * 11) % IN_FLIGHT]);
        pass = comm_wait(requests[next], 0.0) == ERR_OK;
    }
    for (int i = 0; i < IN_FLIGHT && pass; i++) {
        for (size_t r = 0; r < RANKS_MAX && i % 4 == 0; r++)
            pass = pass && values[i][r] == reduced(i, size, r, COMM_SUM);
        for (int r = 0; r < size && i % 4 == 1; r++)
            pass = pass && values[i][r] == given(i, r, (size_t)r);
        if (i % 4 == 2)
            pass = pass && values[i][i % size] ==
                               given(i, i % size, (size_t)(i % size));
    }
    everywhere(comm, pass, "many kinds at once, on two communicators");
}

/* A root that nobody holds up is many operations ahead of the others, and numbers of
 * collectives come round again. */
static void test_ahead(struct comm *comm)
{
    bool pass = true;
    for (int i = 0; i < TAGS + 100 && pass; i++) {
        int64_t value = comm_rank(comm) == 0 ? i : -1;
        pass = comm_broadcast(comm, &value, sizeof value, 0) == ERR_OK &&
               value == i;
    }
    everywhere(comm, pass, "more broadcasts in a row than there are tags");
}

int main(int argc, char **argv)
{
    struct comm *comm, *copy = NULL;
    if (comm_create(getenv("OMPI_COMM_WORLD_SIZE") != NULL ? "mpi" : "auto",
                    &argc, &argv, 60.0, &comm) != ERR_OK) {
        tap_ok(false, "create: %s", err_text());
        return tap_done();
    }
    if (comm_rank(comm) > 0)
        tap_silence();
    if (comm_duplicate(comm, &copy) != ERR_OK)
        tap_ok(false, "duplicate: %s", err_text());
    test_reduce(comm);
    test_broadcast(comm);
    test_gather(comm);
    test_barrier(comm);
    test_agree(comm);
    for (int turn = 0; turn < 5; turn++)
        test_overlap(comm, copy);
    if (comm_size(comm) <= 4)
        test_ahead(copy);
    comm_destroy(copy);
    comm_destroy(comm);
    return tap_done();
}
