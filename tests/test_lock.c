/* Owners are real child processes; "another host" is a record with a name that
 * no host has, and squeue is a script of the test. */
#include "src/job/lock.h"

#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/fsio.h"
#include "src/base/log.h"
#include "tests/tap.h"

#define RACE_ROUNDS 60
#define RACERS 4

static char folder[FSIO_PATH_MAX];
static char lock_path[FSIO_PATH_MAX];

static void write_lock(const char *text)
{
    FILE *file = fopen(lock_path, "w");
    if (file == NULL || fputs(text, file) == EOF || fclose(file) != 0)
        tap_ok(false, "write %s", lock_path);
}

static json_t *read_lock(void)
{
    return json_load_file(lock_path, 0, NULL);
}

static void change_lock(const char *key, json_t *value)
{
    json_t *object = read_lock();
    json_object_set_new(object, key, value);
    json_dump_file(object, lock_path, 0);
    json_decref(object);
}

/* A child that takes the lock and waits to be killed; -1 when it could not. */
static pid_t start_owner(void)
{
    int ready[2];
    char answer = 'n';
    if (pipe(ready) != 0)
        return -1;
    pid_t pid = fork();
    if (pid == 0) {
        struct lock *lock;
        bool won = lock_acquire(folder, &lock) == ERR_OK;
        if (write(ready[1], won ? "y" : "n", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    close(ready[1]);
    if (read(ready[0], &answer, 1) != 1)
        answer = 'n';
    close(ready[0]);
    return answer == 'y' ? pid : -1;
}

static void kill_owner(pid_t pid, bool reap)
{
    siginfo_t info;
    kill(pid, SIGKILL);
    waitid(P_PID, (id_t)pid, &info, WEXITED | (reap ? 0 : WNOWAIT));
}

static void expect(enum err want, const char *name)
{
    struct lock *lock = NULL;
    enum err rc = lock_acquire(folder, &lock);
    tap_is_int(rc, want, "%s", name);
    if (rc != ERR_OK && want != ERR_OK)
        tap_note("%s", err_text());
    lock_release(lock);
}

static void test_plain(void)
{
    struct lock *lock = NULL;
    struct lock *second = NULL;
    tap_is_int(lock_acquire(folder, &lock), ERR_OK, "first owner");
    json_t *object = read_lock();
    tap_is_int(json_integer_value(json_object_get(object, "pid")), getpid(),
               "the record names the process");
    json_decref(object);
    tap_is_int(lock_acquire(folder, &second), ERR_BUSY, "not twice");
    tap_ok(second == NULL, "no lock is returned with an error");
    pid_t pid = fork();
    if (pid == 0) { /* a fork is not the owner */
        lock_release(lock);
        _exit(0);
    }
    waitpid(pid, NULL, 0);
    tap_ok(fsio_exists(lock_path), "a fork cannot release");
    lock_release(lock);
    tap_ok(!fsio_exists(lock_path), "released");
    lock_release(NULL);
    expect(ERR_OK, "free again");
}

static void test_owners_here(void)
{
    pid_t pid = start_owner();
    if (!tap_ok(pid > 0, "another process owns the run"))
        return;
    expect(ERR_BUSY, "a live owner keeps it");
    char number[32];
    snprintf(number, sizeof number, "process %lld", (long long)pid);
    tap_ok(strstr(err_text(), number) != NULL, "the error names the process");
    kill_owner(pid, false);
    expect(ERR_OK, "a killed owner that nobody has waited for");
    kill_owner(pid, true);

    pid = start_owner();
    kill_owner(pid, true);
    expect(ERR_OK, "a killed owner");

    pid = start_owner();
    change_lock("start_time", json_integer(1));
    expect(ERR_OK, "the number belongs to another process now");
    kill_owner(pid, true);

    pid = start_owner();
    change_lock("boot_id", json_string("00000000-0000-0000-0000-000000000000"));
    expect(ERR_OK, "the host was booted since");
    kill_owner(pid, true);
}

static void test_release_of_a_lost_lock(void)
{
    struct lock *lock = NULL;
    lock_acquire(folder, &lock);
    change_lock("attempt", json_integer(77));
    lock_release(lock);
    tap_ok(fsio_exists(lock_path), "another owner's lock is not removed");
    unlink(lock_path);
}

static void fake_squeue(const char *body)
{
    char path[FSIO_PATH_MAX];
    snprintf(path, sizeof path, "%.900s/bin/squeue", folder);
    FILE *file = fopen(path, "w");
    if (file == NULL)
        return;
    fprintf(file, "#!/bin/sh\n%s\n", body);
    fclose(file);
    chmod(path, 0755);
}

static void test_owners_elsewhere(void)
{
    static const struct {
        const char *name;
        const char *squeue;
        const char *own_job, *own_restart, *own_step;
        int job, attempt; /* of the owner */
        enum err want;
    } cases[] = {
        { "other host, job runs", "echo RUNNING", "", "", "", 12, 0, ERR_BUSY },
        { "other host, job ended", "exit 0", "", "", "", 12, 0, ERR_OK },
        { "other host, job forgotten",
          "echo Invalid job id specified >&2; exit 1", "", "", "", 12, 0,
          ERR_OK },
        { "other host, controller away", "echo timeout >&2; exit 1", "", "", "",
          12, 0, ERR_BUSY },
        { "other host, no job", "exit 0", "", "", "", 0, 0, ERR_BUSY },
        { "own job, earlier step", "echo RUNNING", "12", "0", "3", 12, 2,
          ERR_OK },
        { "own job, earlier restart", "echo RUNNING", "12", "1", "0", 12, 9,
          ERR_OK },
        { "own job, same step", "exit 0", "12", "0", "3", 12, 3, ERR_BUSY },
        { "own job, later step", "exit 0", "12", "0", "3", 12, 4, ERR_BUSY },
        { "other job runs, we are in one", "echo RUNNING", "13", "5", "5", 12,
          0, ERR_BUSY },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char record[512];
        snprintf(record, sizeof record,
                 "{\"host\": \"no.such-host\", \"pid\": 1, \"start_time\": 2, "
                 "\"boot_id\": \"x\", \"job\": %d, \"attempt\": %d}",
                 cases[i].job, cases[i].attempt);
        write_lock(record);
        fake_squeue(cases[i].squeue);
        setenv("SLURM_JOB_ID", cases[i].own_job, 1);
        setenv("SLURM_RESTART_COUNT", cases[i].own_restart, 1);
        setenv("SLURM_STEP_ID", cases[i].own_step, 1);
        expect(cases[i].want, cases[i].name);
        if (cases[i].want == ERR_BUSY)
            tap_ok(fsio_exists(lock_path), "%s: the lock stays", cases[i].name);
        unlink(lock_path);
    }
    setenv("SLURM_JOB_ID", "", 1);
}

static void test_damaged(void)
{
    static const struct {
        const char *name;
        const char *text;
    } cases[] = {
        { "empty", "" },
        { "half a record", "{\"host\": \"n1\", \"pi" },
        { "rubbish", "\x01\x02\xff lock" },
        { "a list", "[1, 2]" },
        { "a field is missing", "{\"host\": \"n1\", \"pid\": 3}" },
        { "a wrong type",
          "{\"host\": \"n1\", \"pid\": \"3\", \"start_time\": 1, "
          "\"boot_id\": \"x\", \"job\": 0, \"attempt\": 0}" },
        { "an impossible number",
          "{\"host\": \"n1\", \"pid\": -1, \"start_time\": 1, "
          "\"boot_id\": \"x\", \"job\": 0, \"attempt\": 0}" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_lock(cases[i].text);
        expect(ERR_BUSY, cases[i].name);
        tap_ok(strstr(err_text(), lock_path) != NULL &&
                   strstr(err_text(), "remove") != NULL,
               "%s: the error says what to do", cases[i].name);
    }
    char big[9000];
    memset(big, ' ', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    write_lock(big);
    expect(ERR_BUSY, "a large file");
    unlink(lock_path);

    char missing[FSIO_PATH_MAX];
    struct lock *lock = NULL;
    snprintf(missing, sizeof missing, "%.900s/missing", folder);
    tap_ok(lock_acquire(missing, &lock) != ERR_OK && lock == NULL,
           "no such run directory");
}

/* All racers start together; winners hold until everybody has tried. */
static int race(void)
{
    int go[2], tell[2], end[2];
    int winners = 0;
    pid_t pids[RACERS];
    if (pipe(go) != 0 || pipe(tell) != 0 || pipe(end) != 0)
        return -1;
    for (int i = 0; i < RACERS; i++) {
        pids[i] = fork();
        if (pids[i] != 0)
            continue;
        char byte;
        struct lock *lock = NULL;
        close(go[1]);
        close(end[1]);
        close(tell[0]);
        if (read(go[0], &byte, 1) != 0)
            _exit(1);
        enum err rc = lock_acquire(folder, &lock);
        byte = rc == ERR_OK ? 'y' : rc == ERR_BUSY ? 'n' : 'e';
        if (write(tell[1], &byte, 1) != 1)
            _exit(1);
        close(
            tell[1]); /* a racer that dies must not leave the parent waiting */
        if (read(end[0], &byte, 1) != 0)
            _exit(1);
        _exit(0); /* without a release: the next round takes over */
    }
    close(tell[1]);
    close(go[0]);
    close(go[1]);
    for (int i = 0; i < RACERS; i++) {
        char byte = 'e';
        if (read(tell[0], &byte, 1) != 1 || byte == 'e')
            winners += 100;
        winners += byte == 'y';
    }
    close(tell[0]);
    close(end[0]);
    close(end[1]);
    for (int i = 0; i < RACERS; i++)
        waitpid(pids[i], NULL, 0);
    return winners;
}

static void test_races(void)
{
    int wrong = 0;
    for (int round = 0; round < RACE_ROUNDS; round++) {
        if (round % 3 == 0)
            unlink(lock_path); /* else the dead winner's lock is there */
        int winners = race();
        if (winners != 1) {
            tap_note("round %d: %d winners", round, winners);
            wrong++;
        }
    }
    tap_is_int(wrong, 0, "exactly one of %d wins, %d rounds", RACERS,
               RACE_ROUNDS);
    expect(ERR_OK, "after the races");
}

int main(void)
{
    char path[2 * FSIO_PATH_MAX];
    const char *base = getenv("TMPDIR");
    log_init("test", -1, LOG_ERROR);
    snprintf(folder, sizeof folder, "%.800s/test_lock.XXXXXX",
             base != NULL ? base : "/tmp");
    if (mkdtemp(folder) == NULL)
        return 1;
    snprintf(lock_path, sizeof lock_path, "%.900s/.lock", folder);
    snprintf(path, sizeof path, "%.900s/bin", folder);
    mkdir(path, 0755);
    snprintf(path, sizeof path, "%.900s/bin:/usr/bin:/bin", folder);
    setenv("PATH", path, 1);
    unsetenv("SLURM_JOB_ID");
    test_plain();
    test_owners_here();
    test_release_of_a_lost_lock();
    test_owners_elsewhere();
    test_damaged();
    test_races();
    fsio_remove_tree(folder);
    return tap_done();
}
