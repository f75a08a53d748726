/* Lines are added whole, also after half a line and on a full disk. */
#include "src/base/lines.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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
    tap_is_int(lines_append(fd, "/dev/full", "{}"), ERR_SPACE,
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

int main(void)
{
    if (mkdtemp(folder) == NULL)
        return 1;
    test_append("", "{\"a\": 1}\n{}\n");
    test_append("whole\n", "whole\n{\"a\": 1}\n{}\n");
    test_append("torn", "torn\n{\"a\": 1}\n{}\n");
    test_failures();
    test_planted();
    (void)fsio_remove_tree(folder);
    return tap_done();
}
