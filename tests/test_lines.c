/* Lines are added whole, also after half a line and on a full disk. */
#include "src/base/lines.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
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
    tap_is_int(lines_open("/dev", "full", path, &fd), ERR_OK, "a full disk");
    tap_is_int(lines_append(fd, path, "{}"), ERR_SPACE, "takes no line");
    tap_ok(strstr(err_text(), "/dev/full") != NULL, "and is named: %s",
           err_text());
    close(fd);
    fd = open(folder, O_RDONLY | O_CLOEXEC | O_DIRECTORY);
    tap_ok(lines_append(fd, folder, "{}") != ERR_OK, "not a file: %s",
           err_text());
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
    (void)fsio_remove_tree(folder);
    return tap_done();
}
