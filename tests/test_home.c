/* Copies of what lies in an object store, and what is made for one, where several
 * processes or services are at it, or one was killed. */
#include <glob.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "src/base/log.h"
#include "src/mirror/home.h"
#include "src/mirror/home_out.h"
#include "src/mirror/mirror.h"
#include "tests/data_fixture.h"
#include "tests/http_server.h"

#define OUT "s3://bucket/made/set"

static const char *folder;
static struct http_server server, other;
static int races; /* so often what a folder was made in goes just before */

int mkdirat(int fd, const char *name, mode_t mode)
{
    if (races > 0 && strspn(name, "0123456789abcdef") == 16) {
        char path[64], root[FSIO_PATH_MAX];
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        ssize_t bytes = readlink(path, root, sizeof root - 1);
        root[bytes > 0 ? bytes : 0] = '\0';
        races -= rmdir(root) == 0;
    }
    return (int)syscall(SYS_mkdirat, fd, name, mode);
}

static void ask(const struct http_server *of)
{
    char url[64];
    snprintf(url, sizeof url, "http://127.0.0.1:%d", of->port);
    setenv("AWS_ENDPOINT_URL_S3", url, 1);
}

static void put_text(const char *key, const char *text)
{
    fixture_write_file(fixture_path(folder, key), text, strlen(text));
}

static bool has(const char *path, const char *name, const char *text)
{
    char file[FSIO_PATH_MAX + 64], *data = NULL;
    size_t bytes = 0;
    snprintf(file, sizeof file, "%s/%s", path, name);
    if (fsio_read_file(file, 1000, &data, &bytes) != ERR_OK)
        return false;
    bool same = strcmp(data, text) == 0;
    free(data);
    return same;
}

/* Another process that has its copy, and stays. */
static pid_t another(const char *address)
{
    char path[FSIO_PATH_MAX], exact[FSIO_PATH_MAX];
    int status = 0;
    pid_t pid = fork();
    if (pid == 0)
        _exit(home_open(address, HOME_FILES, path, exact) != ERR_OK ||
              raise(SIGSTOP) != 0);
    if (waitpid(pid, &status, WUNTRACED) != pid || !WIFSTOPPED(status))
        tap_ok(false, "another process has its copy");
    return pid;
}

static void test_copies(void)
{
    char path[FSIO_PATH_MAX], exact[FSIO_PATH_MAX];
    put_text("bucket/a/one.txt", "first");
    put_text("bucket/a/two.txt", "first");
    put_text("other/bucket/a/one.txt", "other");
    pid_t pid = another("s3://bucket/a");
    ask(&other);
    tap_ok(home_open("s3://bucket/a", HOME_FILES, path, exact) == ERR_OK &&
               has(path, "one.txt", "other") && !has(path, "two.txt", "first"),
           "a copy is of one service");
    home_end();
    ask(&server);
    put_text("bucket/a/one.txt", "second one");
    unlink(fixture_path(folder, "bucket/a/two.txt"));
    enum err rc = home_open("s3://bucket/a", HOME_FILES, path, exact);
    tap_ok(rc == ERR_DATA && strstr(err_text(), "older copy") != NULL,
           "an older copy that another process uses is not taken: %s",
           err_text());
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    tap_ok(home_open("s3://bucket/a", HOME_FILES, path, exact) == ERR_OK &&
               has(path, "one.txt", "second one") &&
               !has(path, "two.txt", "first"),
           "nothing is read that a killed process has left of an older one");
    home_end();
}

/* Which is best needs what tells it, and no file in place of a shard. */
static void test_best(void)
{
    static const char *const steps[] = {
        "step-000000003-01234567-aaaaaaaaaaaa",
        "step-000000006-01234567-bbbbbbbbbbbb",
        "step-000000009-01234567-cccccccccccc"
    };
    static const char *const files[] = { "EVAL", "MANIFEST.json", "shard-00000",
                                         "shard-00001" };
    char path[FSIO_PATH_MAX], exact[FSIO_PATH_MAX], name[200];
    int found = 0;
    for (int s = 0; s < 3; s++)
        for (int f = s == 2 ? 2 : 0; f < 4; f++) { /* the last is half there */
            snprintf(name, sizeof name, "bucket/run/%s", steps[s]);
            fixture_need(fsio_mkdirs(fixture_path(folder, name)));
            snprintf(name, sizeof name, "bucket/run/%s/%s", steps[s], files[f]);
            put_text(name, files[f]);
        }
    tap_ok(home_open("s3://bucket/run", HOME_BEST, path, exact) == ERR_OK,
           "a run is looked at: %s", err_text());
    for (int s = 0; s < 3; s++)
        for (int f = 0; f < 4; f++) {
            snprintf(name, sizeof name, "checkpoints/%.14s/%s", steps[s],
                     files[f]);
            found += has(path, name, files[f]) << (4 * s + f);
        }
    tap_is_int(found, 0x33, "and has manifests and losses of whole ones alone");
    home_end();
}

/* Commits of a run as its attempt makes them, among those of many others. */
static void test_retention(void)
{
    char name[200];
    int asked = 0, stay = 0;
    struct store *store = NULL;
    struct mirror_known known = { 0 };
    for (int i = 0; i < 60;
         i++) { /* twenty pages; two of them are of the run */
        snprintf(name, sizeof name, "bucket/kept/step-%09d-%08d-aaaaaaaaaaaa",
                 i, i < 2 ? 12345678 : i);
        fixture_need(fsio_mkdirs(fixture_path(folder, name)));
        snprintf(name + strlen(name), 20, "/MANIFEST.json");
        put_text(name, "{}");
    }
    put_text("bucket/kept/step-000000001-12345678-aaaaaaaaaaaa/PINNED", "");
    fixture_need(store_open("s3://bucket/kept",
                            &(struct store_options){ .deadline_s = 10 },
                            &store));
    for (int i = 100; i < 106; i++) {
        struct mirror_step step = { .step = i, .text = "{}", .text_bytes = 2 };
        snprintf(step.folder, sizeof step.folder,
                 "step-%09d-12345678-aaaaaaaaaaaa", i);
        fixture_need(mirror_known_add(&known, &step, MIRROR_PART));
        snprintf(name, sizeof name, "%s/shard-00000", step.folder);
        fixture_need(store_put(store, name, "shard", 5));
        if (i == 102) /* given up */
            continue;
        fixture_need(mirror_commit(store, &step));
        fixture_need(mirror_known_add(&known, &step, MIRROR_WHOLE));
        asked = server.requests;
        fixture_need(
            mirror_retain(store, &step, 3, 0, true, folder, false, &known));
        asked = server.requests - asked;
    }
    for (int i = 0; i < 110; i++) {
        snprintf(name, sizeof name,
                 "bucket/kept/step-%09d-12345678-aaaaaaaaaaaa/", i);
        stay += has(fixture_path(folder, name), "MANIFEST.json", "{}") ||
                        has(fixture_path(folder, name), "shard-00000", "shard")
                    ? i
                    : 0;
    }
    tap_is_int(stay, 1 + 103 + 104 + 105,
               "the newest three and a pinned one stay, and no half one");
    tap_ok(asked < 10, "they are listed once: %d requests for a commit", asked);
    mirror_known_free(&known);
    store_close(store);
}

static enum err make(const char *out, const char *also)
{
    const char *path;
    char file[FSIO_PATH_MAX], parent[FSIO_PATH_MAX];
    const char *const files[] = { "train/index.json", "eval/index.json", also };
    TRY(home_out_begin(out, "index.json", NULL, &path));
    for (int i = 0; i < 3; i++) {
        fixture_need(fsio_path(file, "%s/%s", path, files[i]));
        fixture_need(fsio_parent(file, parent));
        fixture_need(fsio_mkdirs(parent));
        fixture_write_file(file, "made", 4);
    }
    return home_out_end(ERR_OK);
}

/* A process that makes it, and stays as it is. */
static pid_t maker(const char *out)
{
    int status = 0;
    const char *path;
    pid_t pid = fork();
    if (pid == 0)
        _exit(home_out_begin(out, "index.json", NULL, &path) != ERR_OK ||
              fsio_mkdirs(path) != ERR_OK || raise(SIGSTOP) != 0);
    if (waitpid(pid, &status, WUNTRACED) != pid || !WIFSTOPPED(status))
        tap_ok(false, "another process makes it");
    return pid;
}

/* How many are made here, with locks of this age (0: as they are). */
static int made_here(int seconds)
{
    glob_t found;
    char pattern[FSIO_PATH_MAX];
    const struct timespec then = { .tv_sec = time(NULL) - seconds };
    snprintf(pattern, sizeof pattern, "%s/tessera-out-*/*/#lock",
             fixture_path(folder, "tmp"));
    int count = glob(pattern, 0, NULL, &found) == 0 ? (int)found.gl_pathc : 0;
    for (int i = 0; seconds > 0 && i < count; i++)
        utimensat(AT_FDCWD, found.gl_pathv[i],
                  (struct timespec[]){ then, then }, 0);
    globfree(&found);
    return count;
}

static void test_abandoned(void)
{
    pid_t killed = maker("s3://bucket/made/killed"),
          lives = maker("s3://bucket/made/lives");
    kill(killed, SIGKILL);
    waitpid(killed, NULL, 0);
    tap_ok(make("s3://bucket/made/next1", "data") == ERR_OK &&
               made_here(0) == 2,
           "what was just left may still be wanted");
    (void)made_here(4000);
    tap_ok(make("s3://bucket/made/next2", "data") == ERR_OK &&
               made_here(0) == 1,
           "what a killed call has left goes after an hour");
    tap_ok(make("s3://bucket/made/lives", "data") == ERR_BUSY,
           "what is being made stays, however old: %s", err_text());
    kill(lives, SIGKILL);
    waitpid(lives, NULL, 0);
    (void)made_here(4000);
    http_server_rules(&server, "PUT status 403 -");
    tap_ok(make("s3://bucket/made/denied", "data") == ERR_DATA &&
               made_here(0) == 1,
           "of a call that could not send: %s", err_text());
    http_server_rules(&server, "");
    tap_ok(make("s3://bucket/made/next3", "data") == ERR_OK &&
               made_here(0) == 1,
           "what it has made stays");
    (void)made_here(4000);
    tap_ok(make("s3://bucket/made/next4", "data") == ERR_OK &&
               made_here(0) == 0,
           "for its time");
}

static void test_out(void)
{
    static const char *const bad[] = {
        "s3://bucket/x/..", "s3://bucket/x/.", "s3://bucket/..",
        "s3://bucket/x#1",  "s3://bucket/x?y", "s3://id:PASSW@bucket/x",
        "s3://bucket",      "s3://bucket/",
    };
    bool good = true;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        good = good && make(bad[i], "data") == ERR_USAGE &&
               strstr(err_text(), "PASSW") == NULL;
    tap_ok(good, "what no folder's address is, is refused: %s", err_text());
    races = 3;
    tap_ok(make(OUT "1", "data") == ERR_OK && races == 0 &&
               has(folder, "bucket/made/set1/data", "made") &&
               access(fixture_path(folder, "tmp"), F_OK) == 0,
           "others that end do not take the folder away");
    tap_ok(make("s3://bucket/lock", "lock") == ERR_OK &&
               has(folder, "bucket/lock/lock", "made"),
           "a set has any name");
    http_server_rules(&server, "eval/index.json status 403 -");
    tap_ok(make(OUT, "data") == ERR_DATA &&
               has(folder, "bucket/made/set/train/index.json", "made"),
           "cut off between the last files: %s", err_text());
    http_server_rules(&server, "");
    tap_ok(make(OUT, "data") == ERR_OK &&
               has(folder, "bucket/made/set/eval/index.json", "made") &&
               !has(folder, "bucket/made/set/unfinished", ""),
           "the next call ends it");
    tap_ok(make(OUT, "data") == ERR_USAGE,
           "and the one after replaces nothing");
    tap_ok(rmdir(fixture_path(folder, "tmp")) == 0, "nothing stays here");
}

int main(void)
{
    static const char *const folders[] = { "bucket/a", "other/bucket/a",
                                           "tmp" };
    folder = tap_folder();
    for (int i = 0; i < 3; i++)
        fixture_need(fsio_mkdirs(fixture_path(folder, folders[i])));
    setenv("TMPDIR", fixture_path(folder, "tmp"), 1);
    setenv("AWS_ACCESS_KEY_ID", "id", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
    http_server_start(&server, folder);
    http_server_start(&other, fixture_path(folder, "other"));
    log_init("test", -1, LOG_ERROR);
    ask(&server);
    test_copies();
    test_best();
    test_retention();
    test_abandoned();
    test_out();
    http_server_stop(&server);
    http_server_stop(&other);
    return tap_done();
}
