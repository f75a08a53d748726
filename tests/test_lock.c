/* Owners are real child processes; "another host" is a record with a name that
 * no host has, whose heart a child of the test lets beat, and squeue and
 * scontrol are scripts of the test. */
#include "src/job/lock.h"

#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "src/base/clock.h"
#include "src/base/fsio.h"
#include "src/base/log.h"
#include "src/job/lock_beat.h"
#include "tests/tap.h"

#define RACE_ROUNDS 60
#define RACERS 4
#define BEAT_S 0.02

static const char *folder;
static char lock_path[FSIO_PATH_MAX];

static void write_lock(const char *text)
{
    FILE *file = fopen(lock_path, "w");
    if (file == NULL || fputs(text, file) == EOF || fclose(file) != 0)
        tap_ok(false, "write %s", lock_path);
}

/* The lock of process 1 of a host that there is not. */
static void write_elsewhere(const char *cluster, int job, int attempt)
{
    char record[512];
    snprintf(record, sizeof record,
             "{\"cluster\": \"%s\", \"host\": \"no.such-host\", \"pid\": 1, "
             "\"pid_namespace\": \"x\", \"start_time\": 2, \"boot_id\": \"x\", "
             "\"job\": %d, \"attempt\": %d, \"beat_s\": %g}",
             cluster, job, attempt, BEAT_S);
    write_lock(record);
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
        bool won = lock_acquire(folder, BEAT_S, &lock) == ERR_OK;
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

/* A child that beats as a live owner elsewhere does. */
static pid_t start_heart(void)
{
    char path[FSIO_PATH_MAX];
    snprintf(path, sizeof path, "%.900s/.lock.beat", folder);
    pid_t pid = fork();
    for (long count = 0; pid == 0; count++) {
        lock_beat_once(path, count);
        clock_sleep(BEAT_S);
    }
    return pid;
}

static void expect(enum err want, const char *name)
{
    struct lock *lock = NULL;
    enum err rc = lock_acquire(folder, BEAT_S, &lock);
    tap_is_int(rc, want, "%s", name);
    if (rc != ERR_OK && want != ERR_OK)
        tap_note("%s", err_text());
    lock_release(lock);
}

static void test_plain(void)
{
    struct lock *lock = NULL;
    struct lock *second = NULL;
    tap_is_int(lock_acquire(folder, BEAT_S, &lock), ERR_OK, "first owner");
    json_t *object = read_lock();
    tap_is_int(json_integer_value(json_object_get(object, "pid")), getpid(),
               "the record names the process");
    json_decref(object);
    tap_is_int(lock_acquire(folder, BEAT_S, &second), ERR_BUSY, "not twice");
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
    kill_owner(pid, true);
    expect(ERR_OK, "the host was booted since");
}

/* Within so many beats: few where none is to come. */
static bool beat_moves(int beats)
{
    char *before = NULL, *after = NULL;
    size_t bytes;
    char path[FSIO_PATH_MAX];
    snprintf(path, sizeof path, "%.900s/.lock.beat", folder);
    bool read = fsio_read_file(path, 64, &before, &bytes) == ERR_OK;
    bool moves = false;
    for (int i = 0; i < beats && read && !moves; i++) {
        clock_sleep(BEAT_S);
        read = fsio_read_file(path, 64, &after, &bytes) == ERR_OK;
        moves = read && strcmp(before, after) != 0;
        free(after);
        after = NULL;
    }
    free(before);
    return moves;
}

/* Records of owners that the kernel shows nothing of, though they may live. */
static void test_owners_hidden(void)
{
    static const struct {
        const char *name, *key, *value;
        bool beats;
    } cases[] = {
        { "another boot, or host of this name, whose heart beats", "boot_id",
          "00000000-0000-0000-0000-000000000000", true },
        { "another container of this host", "pid_namespace", "pid:[1]", true },
        { "the same, without a heartbeat", "pid_namespace", "pid:[1]", false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        kill_owner(start_owner(), true);
        change_lock(cases[i].key, json_string(cases[i].value));
        pid_t heart = cases[i].beats ? start_heart() : -1;
        expect(ERR_BUSY, cases[i].name);
        tap_ok(strstr(err_text(), "heartbeat") != NULL,
               "%s: the error tells of the heartbeat", cases[i].name);
        if (heart > 0)
            kill_owner(heart, true);
        unlink(lock_path);
    }
}

static void test_heartbeat(void)
{
    struct lock *lock = NULL;
    tap_is_int(lock_acquire(folder, BEAT_S, &lock), ERR_OK, "owner");
    tap_ok(beat_moves(3000), "the heart beats while the lock is held");
    tap_ok(!lock_lost(lock), "not lost");
    tap_is_int(lock_check(lock), ERR_OK, "the lock is ours");
    change_lock("attempt", json_integer(77));
    for (int i = 0; i < 3000 && !lock_lost(lock); i++)
        clock_sleep(BEAT_S);
    tap_ok(lock_lost(lock), "the heartbeat has found it out");
    tap_ok(!beat_moves(4), "no beat for another owner's lock");
    tap_is_int(lock_check(lock), ERR_BUSY, "who was taken over from hears it");
    lock_release(lock);
    tap_ok(fsio_exists(lock_path), "another owner's lock is not removed");
    unlink(lock_path);
    tap_is_int(lock_acquire(folder, BEAT_S, &lock), ERR_OK, "owner");
    unlink(lock_path);
    tap_is_int(lock_check(lock), ERR_BUSY, "a lock that was removed is lost");
    lock_release(lock);
    tap_ok(!beat_moves(4), "no beat after the release");
}

static void fake(const char *command, const char *body)
{
    char path[FSIO_PATH_MAX];
    snprintf(path, sizeof path, "%.900s/bin/%s", folder, command);
    FILE *file = fopen(path, "w");
    if (file == NULL)
        return;
    fprintf(file, "#!/bin/sh\n%s\n", body);
    fclose(file);
    chmod(path, 0755);
}

#define ABSENT "echo Invalid job id specified >&2; exit 1"
#define AWAY "echo timeout >&2; exit 1"

/* Two signs are needed: each alone is not enough. */
static void test_owners_elsewhere(void)
{
    static const struct {
        const char *name;
        const char *squeue;
        const char *own_cluster, *own_job, *own_restart, *own_step;
        const char *cluster; /* of the owner, like the rest */
        int job, attempt;
        bool beats;
        enum err want;
    } cases[] = {
        /* the job cannot run and the heart has stopped */
        { "job ended", "echo 12 COMPLETED", "a", "13", "", "", "a", 12, 0,
          false, ERR_OK },
        { "job requeued", "echo 12 PENDING", "a", "13", "", "", "a", 12, 0,
          false, ERR_OK },
        { "our job, forgotten", ABSENT, "a", "13", "", "", "a", 12, 0, false,
          ERR_OK },
        { "own job, earlier step", "echo 12 RUNNING", "a", "12", "0", "3", "a",
          12, 2, false, ERR_OK },
        { "own job, earlier restart", "echo 12 RUNNING", "a", "12", "1", "0",
          "a", 12, 9, false, ERR_OK },
        { "asked from a login node", "echo 12 COMPLETED", "", "", "", "", "a",
          12, 0, false, ERR_OK },
        /* only the first sign */
        { "job ended, heart beats", "echo 12 COMPLETED", "a", "13", "", "", "a",
          12, 0, true, ERR_BUSY },
        { "job absent, heart beats", ABSENT, "a", "13", "", "", "a", 12, 0,
          true, ERR_BUSY },
        { "own job, earlier step, heart beats", "echo 12 RUNNING", "a", "12",
          "0", "3", "a", 12, 2, true, ERR_BUSY },
        /* only the second */
        { "job runs", "echo 12 RUNNING", "a", "13", "", "", "a", 12, 0, false,
          ERR_BUSY },
        { "job suspended", "echo 12 SUSPENDED", "a", "13", "", "", "a", 12, 0,
          false, ERR_BUSY },
        { "job's processes end", "echo 12 COMPLETING", "a", "13", "", "", "a",
          12, 0, false, ERR_BUSY },
        { "controller away: later", AWAY, "a", "13", "", "", "a", 12, 0, false,
          ERR_IO },
        { "another cluster, where we know no such job", ABSENT, "a", "13", "",
          "", "b", 12, 0, false, ERR_BUSY },
        { "another cluster, an ended job has the number", "echo 12 COMPLETED",
          "a", "13", "", "", "b", 12, 0, false, ERR_BUSY },
        { "another cluster, our own number", "echo 12 RUNNING", "a", "12", "1",
          "0", "b", 12, 0, false, ERR_BUSY },
        { "no job", "exit 0", "a", "13", "", "", "", 0, 0, false, ERR_BUSY },
        { "own job, same step", "echo 12 RUNNING", "a", "12", "0", "3", "a", 12,
          3, false, ERR_BUSY },
        { "own job, later step", "echo 12 RUNNING", "a", "12", "0", "3", "a",
          12, 4, false, ERR_BUSY },
    };
    fake("scontrol", "printf 'Configuration\\nClusterName = a\\n'");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_elsewhere(cases[i].cluster, cases[i].job, cases[i].attempt);
        fake("squeue", cases[i].squeue);
        setenv("SLURM_CLUSTER_NAME", cases[i].own_cluster, 1);
        setenv("SLURM_JOB_ID", cases[i].own_job, 1);
        setenv("SLURM_RESTART_COUNT", cases[i].own_restart, 1);
        setenv("SLURM_STEP_ID", cases[i].own_step, 1);
        pid_t heart = cases[i].beats ? start_heart() : -1;
        expect(cases[i].want, cases[i].name);
        if (cases[i].want != ERR_OK)
            tap_ok(fsio_exists(lock_path), "%s: the lock stays", cases[i].name);
        if (heart > 0)
            kill_owner(heart, true);
        unlink(lock_path);
    }
    setenv("SLURM_CLUSTER_NAME", "", 1);
    setenv("SLURM_JOB_ID", "", 1);
}

/* What Slurm does not show may be another user's job that lives. */
static void test_owner_of_another_user(void)
{
    if (geteuid() != 0) {
        tap_skip("only root can give a file to another user");
        return;
    }
    write_elsewhere("a", 12, 0);
    if (chown(lock_path, 60011, 60011) != 0)
        return;
    fake("squeue", ABSENT);
    setenv("SLURM_CLUSTER_NAME", "a", 1);
    setenv("SLURM_JOB_ID", "13", 1);
    expect(ERR_BUSY, "a job of another user that Slurm does not show");
    setenv("SLURM_CLUSTER_NAME", "", 1);
    setenv("SLURM_JOB_ID", "", 1);
    unlink(lock_path);
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
    tap_ok(lock_acquire(missing, BEAT_S, &lock) != ERR_OK && lock == NULL,
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
        enum err rc = lock_acquire(folder, BEAT_S, &lock);
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

static mode_t mode_of(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 ? status.st_mode & 0777 : 0;
}

/* Holds whatever lock a descriptor can have that was opened for reading; a file
 * that it must not read keeps nothing from it. */
static pid_t start_reader(const char *path)
{
    int ready[2];
    char one;
    struct flock all = { .l_type = F_RDLCK, .l_whence = SEEK_SET };
    if (pipe(ready) != 0)
        return -1;
    pid_t pid = fork();
    if (pid == 0) {
        if (geteuid() == 0 && setuid(65534) != 0)
            _exit(1);
        int fd = open(path, O_RDONLY);
        if (fd >= 0)
            (void)(flock(fd, LOCK_EX) + fcntl(fd, F_OFD_SETLK, &all));
        close(ready[1]);
        for (;;)
            pause();
    }
    close(ready[1]);
    if (read(ready[0], &one, 1) > 0)
        tap_note("a reader that writes");
    close(ready[0]);
    return pid;
}

/* Another user can read the run directory: neither the lock of today nor that
 * of older versions is his to hold. */
static void test_readers(void)
{
    static const char *const names[] = { ".lock.gate", ".lock.guard" };
    mode_t old_mask = umask(0);
    char path[2 * FSIO_PATH_MAX];
    snprintf(path, sizeof path, "%.900s/.lock.gate", folder);
    unlink(path);
    chmod(folder, 0755);
    expect(ERR_OK, "a new run");
    tap_is_int(mode_of(path), 0600, "the gate is the owner's alone");
    for (size_t i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%.900s/%s", folder, names[i]);
        FILE *file = fopen(path, "a");
        if (file == NULL || fclose(file) != 0)
            tap_ok(false, "make %s", path);
        if (i == 1)
            chmod(path, 0644);
        pid_t reader = start_reader(path);
        expect(ERR_OK, names[i]);
        kill_owner(reader, true);
    }
    snprintf(path, sizeof path, "%.900s/.lock.gate", folder);
    unlink(path);
    chmod(folder, 0770);
    expect(ERR_OK, "a run of a group");
    tap_is_int(mode_of(path), 0660, "the gate is the group's");
    chmod(folder, 0700);
    umask(old_mask);
}

int main(void)
{
    char path[2 * FSIO_PATH_MAX];
    log_init("test", -1, LOG_ERROR);
    folder = tap_folder();
    snprintf(lock_path, sizeof lock_path, "%.900s/.lock", folder);
    snprintf(path, sizeof path, "%.900s/bin", folder);
    mkdir(path, 0755);
    snprintf(path, sizeof path, "%.900s/bin:/usr/bin:/bin", folder);
    setenv("PATH", path, 1);
    unsetenv("SLURM_JOB_ID");
    test_plain();
    test_owners_here();
    test_owners_hidden();
    test_heartbeat();
    test_owners_elsewhere();
    test_owner_of_another_user();
    test_damaged();
    test_readers();
    test_races();
    return tap_done();
}
