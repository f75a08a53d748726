/* Lines are added whole, also after half a line and on a full disk. */
#include "src/base/lines.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "tests/tap.h"

static char folder[] = "/tmp/test_lines.XXXXXX";

static void test_append(const char *before, const char *want)
{
    char path[FSIO_PATH_MAX];
    char *text = NULL;
    size_t bytes;
    int fd = -1;
    enum err rc = ERR_OK;
    TRY_OUT(lines_open(folder, "x.jsonl", path, &fd));
    if (ftruncate(fd, 0) != 0 ||
        write(fd, before, strlen(before)) != (ssize_t)strlen(before))
        TRY_OUT(err_errno("%s: prepare", path));
    TRY_OUT(lines_append(fd, path, "{\"a\": 1}"));
    TRY_OUT(lines_append(fd, path, "{}"));
    TRY_OUT(fsio_read_file(path, 1 << 20, &text, &bytes));
    tap_is_str(text, want, "after %zu bytes", strlen(before));
out:
    tap_ok(rc == ERR_OK, "open and append: %s", err_text());
    free(text);
    if (fd >= 0)
        close(fd);
}

static void test_failures(void)
{
    char path[FSIO_PATH_MAX];
    int fd = 7;
    tap_ok(lines_open("/proc/nowhere", "x", path, &fd) != ERR_OK && fd == -1,
           "no such folder: %s", err_text());
    fd = open("/dev/full", O_RDWR | O_CLOEXEC);
    tap_is_int(lines_append(fd, "/dev/full", "{}"), ERR_FULL,
               "a full disk takes no line");
    tap_ok(strstr(err_text(), "/dev/full") != NULL, "and is named: %s",
           err_text());
    close(fd);
    fd = open(folder, O_RDONLY | O_CLOEXEC | O_DIRECTORY);
    tap_ok(lines_append(fd, folder, "{}") != ERR_OK, "not a file: %s",
           err_text());
    close(fd);
}

/* What may stand under the name where others can write. */
static void test_planted(void)
{
    char path[FSIO_PATH_MAX], target[FSIO_PATH_MAX], linked[FSIO_PATH_MAX];
    char *text = NULL;
    size_t bytes;
    int fd = 7;
    snprintf(path, sizeof path, "%s/planted.jsonl", folder);
    snprintf(target, sizeof target, "%s/target", folder);
    snprintf(linked, sizeof linked, "%s/run", folder);
    tap_ok(symlink(target, path) == 0 &&
               lines_open(folder, "planted.jsonl", path, &fd) == ERR_SPACE &&
               fd == -1 && strstr(err_text(), "is a link") != NULL,
           "a link to nothing: %s", err_text());
    tap_ok(access(target, F_OK) != 0, "makes no file");
    tap_ok(fsio_write_atomic(target, "precious\n", 9) == ERR_OK &&
               lines_open(folder, "planted.jsonl", path, &fd) == ERR_SPACE &&
               fd == -1,
           "a link to a file: %s", err_text());
    tap_ok(fsio_read_file(target, 100, &text, &bytes) == ERR_OK && bytes == 9,
           "which stays");
    free(text);
    unlink(path);
    tap_ok(mkfifo(path, 0600) == 0 &&
               lines_open(folder, "planted.jsonl", path, &fd) == ERR_SPACE &&
               fd == -1 && strstr(err_text(), "no regular file") != NULL,
           "a pipe, without waiting: %s", err_text());
    tap_ok(lines_open("/dev", "null", path, &fd) == ERR_SPACE && fd == -1,
           "a device: %s", err_text());
    tap_ok(symlink(folder, linked) == 0 &&
               lines_open(linked, "x.jsonl", path, &fd) == ERR_OK &&
               lines_append(fd, path, "{}") == ERR_OK,
           "a link to the folder is followed");
    close(fd);
}

/* Fills what is left of the file system. */
static void fill(const char *path)
{
    static const char zeros[4096];
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    while (write(fd, zeros, sizeof zeros) > 0)
        ;
    close(fd);
}

/* COUNT lines with numbers from 0 on and nothing else. */
static bool counted(const char *path, int count)
{
    char *text = NULL, *at, *end;
    size_t bytes;
    int next = 0;
    if (fsio_read_file(path, 1 << 26, &text, &bytes) != ERR_OK)
        return false;
    for (at = text; strtol(at, &end, 10) == next && end != at && *end == ' ';
         at = strchr(end, '\n') + 1)
        next++;
    bool whole = next == count && (size_t)(at - text) == bytes;
    free(text);
    return whole;
}

static enum err number(int fd, const char *path, int i)
{
    char line[256];
    snprintf(line, sizeof line, "%d %0*d", i, 100 + i % 97, 0);
    return lines_append(fd, path, line);
}

/* A file system that is full for a while, as root has it. */
static void test_full(void)
{
    enum { BEFORE = 100, WITHIN = 300, BEHIND = 400 };
    char small[FSIO_PATH_MAX], ballast[FSIO_PATH_MAX], path[FSIO_PATH_MAX];
    int fd = -1, i = 0, refused = 0;
    char *kept;
    snprintf(small, sizeof small, "%s/small", folder);
    snprintf(ballast, sizeof ballast, "%s/small/ballast", folder);
    mkdir(small, 0777);
    if (mount("tmpfs", small, "tmpfs", 0, "size=1m") != 0) {
        tap_skip("full: can't mount a small tmpfs");
        return;
    }
    tap_ok(lines_open(small, "x.jsonl", path, &fd) == ERR_OK, "open");
    while (i < BEFORE && number(fd, path, i) == ERR_OK)
        i++;
    tap_ok(counted(path, BEFORE), "lines");
    fill(ballast);
    while (number(fd, path, i) == ERR_OK)
        i++;
    tap_ok(counted(path, i), "half a line on a full disk is cut off again: %s",
           err_text());
    lines_keep();
    for (; i < WITHIN; i++)
        refused += number(fd, path, i) != ERR_OK;
    tap_is_int(refused, 0, "then lines are kept");
    kept = lines_kept(path);
    tap_ok(kept != NULL && strstr(kept, "299 0") != NULL &&
               lines_settle() == ERR_FULL,
           "as long as it is full: %s", err_text());
    free(kept);
    unlink(ballast);
    tap_ok(lines_settle() == ERR_OK && counted(path, WITHIN) &&
               lines_kept(path) == NULL,
           "all of them are there as soon as there is room");
    for (; i < BEHIND; i++)
        refused += number(fd, path, i) != ERR_OK;
    tap_ok(refused == 0 && counted(path, BEHIND), "and those that follow");
    fill(ballast);
    for (; i < 200000; i++)
        refused += number(fd, path, i) != ERR_OK;
    kept = lines_kept(path);
    tap_ok(refused == 0 && kept != NULL && strlen(kept) <= LINES_KEPT_MAX,
           "not more of them than fit into memory");
    free(kept);
    close(fd);
    umount2(small, MNT_DETACH);
}

int main(void)
{
    if (mkdtemp(folder) == NULL)
        return 1;
    test_append("", "{\"a\": 1}\n{}\n");
    test_append("whole\n", "whole\n{\"a\": 1}\n{}\n");
    test_append("torn", "torn\n{\"a\": 1}\n{}\n");
    test_failures();
    test_planted();
    test_full();
    (void)fsio_remove_tree(folder);
    return tap_done();
}
