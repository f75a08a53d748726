/* Communication of one rank without MPI. */
#include <signal.h>
#include <sys/wait.h>

#include "src/base/clock.h"
#include "src/comm/comm_impl.h"
#include "tests/tap.h"

static void test_identity(struct comm *comm)
{
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    tap_is_int(comm_rank(comm), 0, "rank 0");
    tap_is_int(comm_size(comm), 1, "of 1");
    tap_is_int(comm_local_rank(comm), 0, "local rank 0");
    tap_is_int(comm_local_size(comm), 1, "of 1 on the node");
    tap_ok(strncmp(comm_host(comm, 0), host, 63) == 0, "knows its host");
}

static void test_collectives(struct comm *comm)
{
    size_t bytes = sizeof(int64_t);
    size_t offset = 0;
    int64_t value = 7;
    int64_t got = 0;
    struct comm_request *request;
    tap_is_int(comm_barrier(comm), ERR_OK, "barrier");
    tap_is_int(comm_broadcast(comm, &value, bytes, 0), ERR_OK, "broadcast");
    tap_is_int(comm_all_gather(comm, &value, &bytes, &offset), ERR_OK,
               "all-gather");
    tap_is_int(comm_all_reduce_i64(comm, &value, 1, COMM_SUM), ERR_OK,
               "all-reduce");
    tap_is_int(value, 7, "which all keep the value");

    tap_ok(comm_start_all_to_all(comm, &value, &bytes, &offset, &got, &bytes,
                                 &offset, &request) == ERR_OK &&
               comm_wait(request, 0.0) == ERR_OK && got == 7,
           "all-to-all copies");
    tap_is_int(comm_agree(comm, ERR_OK), ERR_OK, "agrees on success");
    tap_is_int(comm_agree(comm, err_set(ERR_DATA, "my text")), ERR_DATA,
               "agrees on a failure");
    tap_is_str(err_text(), "my text", "and keeps its text");
}

static void test_unknown(void)
{
    struct comm *comm;
    tap_is_int(comm_create("carrier-pigeon", NULL, NULL, 1.0, &comm), ERR_USAGE,
               "an unknown kind is refused");
    tap_ok(strstr(err_text(), "carrier-pigeon") != NULL && comm == NULL,
           "by its name: %s", err_text());
}

static void test_pool(struct comm *comm)
{
    struct comm_request *requests[2048];
    int count = 0;
    while (count < 2048 &&
           comm_request_take(comm, false, "test", &requests[count]) == ERR_OK)
        count++;
    tap_ok(count >= 64 && count < 2048, "%d operations fit", count);
    tap_ok(strstr(err_text(), "in flight") != NULL, "one more is refused: %s",
           err_text());
    for (int i = 0; i < count; i++)
        comm_request_release(requests[i]);
    tap_is_int(comm_barrier(comm), ERR_OK,
               "collectives have room of their own");
}

static void test_abort(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        struct comm *comm;
        if (comm_create("self", NULL, NULL, 1.0, &comm) != ERR_OK)
            _Exit(1);
        comm_abort(comm, 93);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    tap_ok(WIFEXITED(status) && WEXITSTATUS(status) == 93,
           "abort leaves with exactly its code");
}

/* A process that was stopped (suspended job, debugger) must not take its own
 * absence for a peer's. */
static void test_stopped(void)
{
    double stopped_s = 2.0;
    double timeout_s = 1.5;
    pid_t pid = fork();
    if (pid == 0) {
        struct comm_patience patience = { .timeout_s = timeout_s };
        double begin = clock_now();
        while (comm_patience_left(&patience))
            ;
        _Exit(clock_now() - begin > timeout_s + 0.9 * stopped_s ? 0 : 1);
    }
    int status = 0;
    clock_sleep(0.2);
    kill(pid, SIGSTOP);
    if (waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status)) {
        clock_sleep(stopped_s);
        kill(pid, SIGCONT);
        waitpid(pid, &status, 0);
        tap_ok(WIFEXITED(status) && WEXITSTATUS(status) == 0,
               "time in which it was stopped does not count (status %#x)",
               (unsigned)status);
    } else {
        tap_skip("the machine is too slow to stop a process in time");
    }
}

/* What "auto" makes of an environment; only cases without MPI, which can be
 * started once only. */
static void test_auto(void)
{
    static const struct {
        const char *what, *name, *value;
    } cases[] = {
        { "nothing", NULL, NULL },
        { "a batch script", "SLURM_JOB_ID", "17" },
        { "a step of one task", "SLURM_STEP_NUM_TASKS", "1" },
        { "mpirun -np 1", "OMPI_COMM_WORLD_SIZE", "1" },
    };
    static const char *const names[] = { "OMPI_COMM_WORLD_SIZE",
                                         "PMI_SIZE",
                                         "PMI_RANK",
                                         "PMIX_RANK",
                                         "SLURM_PROCID",
                                         "SLURM_STEP_ID",
                                         "SLURM_JOB_ID",
                                         "SLURM_STEP_NUM_TASKS" };
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct comm *comm = NULL;
        for (unsigned n = 0; n < sizeof names / sizeof names[0]; n++)
            unsetenv(names[n]);
        if (cases[i].name != NULL) {
            setenv("SLURM_PROCID", "0", 1);
            setenv("PMIX_RANK", "0", strcmp(cases[i].name, "SLURM_JOB_ID"));
            if (strcmp(cases[i].name, "SLURM_JOB_ID") == 0)
                unsetenv("PMIX_RANK");
            setenv(cases[i].name, cases[i].value, 1);
        }
        enum err rc = comm_create("auto", NULL, NULL, 1.0, &comm);
        tap_ok(rc == ERR_OK && comm->transport->start == NULL,
               "auto after %s is self", cases[i].what);
        comm_destroy(comm);
    }
}

int main(void)
{
    struct comm *comm;
    if (comm_create("self", NULL, NULL, 5.0, &comm) != ERR_OK) {
        tap_ok(false, "create: %s", err_text());
        return tap_done();
    }
    test_identity(comm);
    test_collectives(comm);
    test_pool(comm);
    comm_destroy(comm);
    comm_destroy(NULL);
    test_unknown();
    test_abort();
    test_stopped();
    test_auto();
    return tap_done();
}
