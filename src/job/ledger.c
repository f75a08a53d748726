/* Lines are only ever added; readers skip what does not parse, so a torn line
 * costs itself and nothing else. */
#include "src/job/ledger.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/fsio.h"

#define LEDGER_NAME "ledger.jsonl"

/* 13 significant digits are milliseconds in a time of this century. */
#define LEDGER_DUMP_FLAGS JSON_REAL_PRECISION(13)

/* "\nLINE\n": the first byte ends a torn line and is skipped otherwise. */
static enum err ledger_line(const char *event, int attempt, json_t *fields,
                            char **text, size_t *bytes)
{
    enum err rc = ERR_OK;
    char *line = NULL;
    double time_s = round(clock_wall() * 1000) / 1000;
    json_t *object = json_pack("{s:s, s:f, s:i}", "event", event, "time",
                               time_s, "attempt", attempt);
    if (object == NULL ||
        (fields != NULL && json_object_update_missing(object, fields) != 0) ||
        (line = json_dumps(object, LEDGER_DUMP_FLAGS)) == NULL) {
        rc = err_set(ERR_INTERNAL, "ledger: event '%s' is not valid JSON",
                     event);
        goto out;
    }
    size_t length = strlen(line);
    *text = malloc(length + 3);
    if (*text == NULL) {
        rc = err_set(ERR_MEMORY, "ledger: no memory for %zu bytes", length);
        goto out;
    }
    (*text)[0] = '\n';
    memcpy(*text + 1, line, length);
    (*text)[length + 1] = '\n';
    (*text)[length + 2] = '\0';
    *bytes = length + 2;
out:
    free(line);
    json_decref(object);
    return rc;
}

static enum err ledger_ends_torn(int fd, const char *path, bool *torn)
{
    char last = '\n';
    off_t end = lseek(fd, 0, SEEK_END);
    if (end < 0 || (end > 0 && pread(fd, &last, 1, end - 1) != 1))
        return err_errno("%s: read the last byte", path);
    *torn = last != '\n';
    return ERR_OK;
}

enum err ledger_append(const char *run_dir, const char *event, int attempt,
                       json_t *fields)
{
    enum err rc = ERR_OK;
    char path[FSIO_PATH_MAX];
    char *text = NULL;
    size_t bytes = 0;
    bool torn = false;
    int fd = -1;
    assert(run_dir != NULL && event != NULL);
    assert(fields == NULL || json_is_object(fields));
    TRY_OUT(ledger_line(event, attempt, fields, &text, &bytes));
    TRY_OUT(fsio_path(path, "%s/%s", run_dir, LEDGER_NAME));
    fd = open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) {
        rc = err_errno("%s: open", path);
        goto out;
    }
    TRY_OUT(ledger_ends_torn(fd, path, &torn));
    size_t skip = torn ? 0 : 1;
    ssize_t written;
    do
        written = write(fd, text + skip, bytes - skip);
    while (written < 0 && errno == EINTR);
    if (written < 0) {
        rc = err_errno("%s: append", path);
        goto out;
    }
    if ((size_t)written != bytes - skip) {
        rc = err_set(ERR_SPACE,
                     "%s: only %zd of %zu bytes written; free some space", path,
                     written, bytes - skip);
        goto out;
    }
    if (fsync(fd) != 0)
        rc = err_errno("%s: fsync", path);
out:
    if (fd >= 0)
        close(fd);
    free(text);
    json_decref(fields);
    return rc;
}

static bool ledger_is_start(const char *line, size_t bytes)
{
    json_t *object = json_loadb(line, bytes, JSON_REJECT_DUPLICATES, NULL);
    const char *event = json_string_value(json_object_get(object, "event"));
    bool is_start = event != NULL && strcmp(event, "start") == 0;
    json_decref(object);
    return is_start;
}

enum err ledger_next_attempt(const char *run_dir, int *attempt)
{
    enum err rc = ERR_OK;
    char path[FSIO_PATH_MAX];
    FILE *file = NULL;
    char *line = NULL;
    size_t capacity = 0;
    int starts = 0;
    assert(run_dir != NULL && attempt != NULL);
    TRY_OUT(fsio_path(path, "%s/%s", run_dir, LEDGER_NAME));
    file = fopen(path, "re");
    if (file == NULL && errno != ENOENT) {
        rc = err_errno("%s: open", path);
        goto out;
    }
    while (file != NULL) {
        ssize_t bytes = getline(&line, &capacity, file);
        if (bytes < 0)
            break;
        starts += ledger_is_start(line, (size_t)bytes);
    }
    if (file != NULL && ferror(file)) {
        rc = err_errno("%s: read", path);
        goto out;
    }
    *attempt = starts + 1;
out:
    free(line);
    if (file != NULL)
        fclose(file);
    return rc;
}
