/* Folders of one's own among strangers' names. Needs root, who can be two users
 * and make a folder like /tmp. */
#include "src/base/own.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "tests/tap.h"

#define PROCESSES 16
#define ROUNDS 20
#define REMOVALS 3000
#define STRANGER 60099

static const char *base; /* a folder like /tmp */

static const char *in_base(const char *name)
{
    static char path[4][2 * FSIO_PATH_MAX];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%.900s/%s", base, name);
    return path[turn];
}

static enum err touch(const char *folder, const char *name)
{
    char path[FSIO_PATH_MAX];
    TRY(fsio_path(path, "%s/%s", folder, name));
    return fsio_write_hint(path, "x", 1);
}

static mode_t mode_of(const char *path)
{
    struct stat status;
    return lstat(path, &status) == 0 ? status.st_mode & 07777 : 0;
}

static void test_plain(void)
{
    struct own first, again, inner;
    tap_is_int(own_open(in_base("job/7/run"), &first), ERR_OK, "a new path");
    tap_is_int(first.strangers, 0, "nobody was there");
    tap_ok(strncmp(first.path, in_base("job."), strlen(in_base("job."))) == 0 &&
               strcmp(first.path + strlen(first.path) - 6, "/7/run") == 0,
           "below a folder of everybody's it has a name of its own: %s",
           first.path);
    tap_is_int(mode_of(first.path), 0700, "and is closed");
    tap_is_int(own_open(in_base("job/7/run"), &again), ERR_OK, "once more");
    tap_ok(strcmp(first.path, again.path) == 0, "it is found again");
    own_close(&again);
    tap_ok(touch(first.at, "file") == ERR_OK, "a file by the descriptor");
    rename(first.path, in_base("moved"));
    tap_ok(touch(first.at, "other") == ERR_OK &&
               fsio_exists(in_base("moved/other")),
           "the way stays when the name goes");
    (void)touch(in_base("none"), "file");
    err_set(ERR_IO, "%s/x: and %s1/y", first.at, first.at);
    char want[3 * FSIO_PATH_MAX];
    snprintf(want, sizeof want, "%s/x: and %s1/y", first.path, first.at);
    tap_ok(strcmp(err_text(), want) == 0, "texts say the path: %s", err_text());
    tap_is_int(own_open_in(&first, "inner", &inner), ERR_OK, "one in it");
    tap_ok(fsio_exists(in_base("moved/inner")), "by the descriptor");
    own_close(&inner);
    rmdir(in_base("moved/inner"));
    tap_is_int(own_remove(AT_FDCWD, ".", in_base("moved")), ERR_OK, "removed");
    tap_ok(!fsio_exists(in_base("moved")), "it is gone");
    tap_is_int(own_open_in(&first, "inner", &inner), ERR_OK, "in what is gone");
    tap_is_int(inner.fd, -1, "there is nothing");
    own_close(&first);
}

/* What is ours may have the name itself. */
static void test_ours(void)
{
    struct own own;
    mkdir(in_base("mine"), 0755);
    tap_is_int(own_open(in_base("mine/deep"), &own), ERR_OK,
               "a folder of ours");
    tap_ok(strcmp(own.path, in_base("mine/deep")) == 0, "as it is called");
    own_close(&own);
    tap_ok(symlink(in_base("mine"), in_base("mine/link")) == 0, "a link");
    tap_is_int(own_open(in_base("mine/link/x"), &own), ERR_SPACE,
               "links are not followed there");
    tap_ok(strstr(err_text(), "is a link") != NULL, "%s", err_text());
    chmod(in_base("mine/deep"), 0777);
    tap_is_int(own_open(in_base("mine/deep"), &own), ERR_SPACE,
               "nor is what others may write to");
}

/* Processes that start at once agree on one. */
static void test_together(void)
{
    int wrong = 0;
    for (int round = 0; round < ROUNDS; round++) {
        char stem[32], path[PROCESSES][FSIO_PATH_MAX];
        int go[2], answer[2];
        snprintf(stem, sizeof stem, "race%d", round);
        if (pipe(go) != 0 || pipe(answer) != 0)
            return;
        for (int p = 0; p < PROCESSES; p++) {
            if (fork() > 0)
                continue;
            char text[FSIO_PATH_MAX] = "";
            struct own own;
            close(go[1]);
            if (read(go[0], text, 1) == 0 &&
                own_open(in_base(stem), &own) == ERR_OK)
                memcpy(text, own.path, sizeof text);
            _exit(write(answer[1], text, sizeof text) != sizeof text);
        }
        close(go[0]);
        close(go[1]);
        for (int p = 0; p < PROCESSES; p++) {
            if (read(answer[0], path[p], sizeof path[p]) != sizeof path[p])
                wrong++;
            else
                wrong += path[p][0] == '\0' || strcmp(path[p], path[0]) != 0;
        }
        while (wait(NULL) > 0)
            ;
        close(answer[0]);
        close(answer[1]);
    }
    tap_is_int(wrong, 0, "%d processes take the same folder, %d times",
               PROCESSES, ROUNDS);
}

/* Another run of the job ends over and over, and takes the job's folder with it. */
static void test_removed(void)
{
    int wrong = 0;
    struct own own;
    pid_t pid = fork();
    while (pid == 0) {
        char above[FSIO_PATH_MAX + 8];
        if (own_open(in_base("shared/ends"), &own) != ERR_OK)
            continue;
        rmdir(own.path);
        snprintf(above, sizeof above, "%.*s",
                 (int)(strlen(own.path) - strlen("/ends")), own.path);
        rmdir(above);
        own_close(&own);
    }
    for (int i = 0; i < REMOVALS; i++) {
        bool opened = own_open(in_base("shared/begins"), &own) == ERR_OK;
        wrong += !opened;
        if (!opened)
            continue;
        rmdir(own.path);
        own_close(&own);
    }
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    tap_is_int(wrong, 0, "what goes on the way is made anew, %d times",
               REMOVALS);
}

static void lay(int kind, const char *name)
{
    char inside[2 * FSIO_PATH_MAX];
    snprintf(inside, sizeof inside, "%.900s/link", name);
    int fd = -1;
    switch (kind) {
    case 0:
        mkdir(name, 0777);
        break;
    case 1:
        mkdir(name, 0700);
        break;
    case 2:
        (void)!symlink(in_base("mine"), name);
        break;
    case 3:
        mkdir(name, 0777);
        (void)!symlink(in_base("mine"), inside);
        break;
    case 4:
        mkfifo(name, 0666);
        break;
    default:
        fd = open(name, O_CREAT | O_WRONLY, 0666);
    }
    if (fd >= 0)
        close(fd);
}

static void test_strangers(void)
{
    struct own own;
    char stem[32], like[64];
    for (int kind = 0; kind < 6; kind++) {
        snprintf(stem, sizeof stem, "squat%d", kind);
        snprintf(like, sizeof like, "%s.0.0123456789abcdef", stem);
        pid_t pid = fork();
        if (pid == 0) {
            umask(0);
            if (setuid(STRANGER) != 0)
                _exit(1);
            lay(kind, in_base(stem));
            lay(kind, in_base(like));
            _exit(0);
        }
        waitpid(pid, NULL, 0);
        enum err rc = own_open(in_base(stem), &own);
        tap_is_int(rc, ERR_OK, "kind %d", kind);
        if (rc != ERR_OK)
            continue;
        tap_is_int(own.strangers, 2, "both names are told");
        tap_ok(mode_of(own.path) == 01700 &&
                   strcmp(own.path, in_base(stem)) != 0 &&
                   strcmp(own.path, in_base(like)) != 0,
               "another one is taken");
        own_close(&own);
        tap_is_int(own_remove(AT_FDCWD, ".", in_base(like)), ERR_OK, "and");
        struct stat status;
        tap_ok(lstat(in_base(like), &status) == 0, "what is theirs stays");
    }
}

int main(void)
{
    base = tap_folder();
    /* the administrator's, as /tmp is; without root as good as somebody's */
    chmod(base, 01777);
    if (geteuid() == 0) {
        test_plain();
        test_ours();
        test_together();
        test_removed();
        test_strangers();
    } else {
        tap_ok(true, "# SKIP needs root");
    }
    return tap_done();
}
