/* Appends the events of a run's attempts to ledger.jsonl. Summaries of it are
 * ledger_history.c.
 *
 * Lines are only ever added; readers skip what does not parse, so a torn line
 * costs itself and nothing else. */
#include "src/job/ledger.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/lines.h"
#include "src/base/regular.h"

#define LEDGER_NAME "ledger.jsonl"

/* 13 significant digits are milliseconds in a time of this century. */
#define LEDGER_DUMP_FLAGS JSON_REAL_PRECISION(13)

static enum err ledger_line(const char *event, int attempt, json_t *fields,
                            char **line)
{
    double time_s = round(clock_wall() * 1000) / 1000;
    json_t *object = json_pack("{s:s, s:f, s:i}", "event", event, "time",
                               time_s, "attempt", attempt);
    if (object != NULL &&
        (fields == NULL || json_object_update_missing(object, fields) == 0))
        *line = json_dumps(object, LEDGER_DUMP_FLAGS);
    json_decref(object);
    return *line != NULL
               ? ERR_OK
               : err_set(ERR_INTERNAL, "ledger: event '%s' is not valid JSON",
                         event);
}

enum err ledger_append(const char *run_dir, const char *event, int attempt,
                       json_t *fields)
{
    enum err rc = ERR_OK;
    char path[FSIO_PATH_MAX];
    char *line = NULL;
    int fd = -1;
    assert(run_dir != NULL && event != NULL);
    assert(fields == NULL || json_is_object(fields));
    TRY_OUT(ledger_line(event, attempt, fields, &line));
    TRY_OUT(lines_open(run_dir, LEDGER_NAME, path, &fd));
    TRY_OUT(lines_append_durable(fd, path, line));
out:
    if (fd >= 0)
        close(fd);
    free(line);
    json_decref(fields);
    return rc;
}

/* The line's event, if it is of this name; else NULL. */
static json_t *ledger_event(const char *line, size_t bytes, const char *name)
{
    json_t *object = json_loadb(line, bytes, JSON_REJECT_DUPLICATES, NULL);
    const char *event = json_string_value(json_object_get(object, "event"));
    if (event != NULL && strcmp(event, name) == 0)
        return object;
    json_decref(object);
    return NULL;
}

/* Closes the file, which may be NULL. */
static enum err add_events(FILE *file, const char *path, const char *name,
                           json_t *events)
{
    enum err rc = ERR_OK;
    char *line = NULL;
    size_t capacity = 0;
    while (rc == ERR_OK && file != NULL) {
        ssize_t bytes = getline(&line, &capacity, file);
        if (bytes < 0)
            break;
        json_t *event = ledger_event(line, (size_t)bytes, name);
        if (event != NULL && json_array_append_new(events, event) != 0)
            rc = err_set(ERR_MEMORY, "%s: out of memory", path);
    }
    if (rc == ERR_OK && file != NULL && ferror(file))
        rc = err_errno("%s: read", path);
    free(line);
    if (file != NULL)
        fclose(file);
    return rc;
}

enum err ledger_events(const char *run_dir, const char *name, json_t **out)
{
    enum err rc = ERR_OK;
    char path[FSIO_PATH_MAX];
    char *kept = NULL;
    FILE *file = NULL;
    json_t *events = json_array();
    assert(run_dir != NULL && name != NULL);
    TRY_OUT(fsio_path(path, "%s/%s", run_dir, LEDGER_NAME));
    TRY_OUT(regular_stream(path, &file));
    TRY_OUT(add_events(file, path, name, events));
    kept = lines_kept(path);
    if (kept != NULL)
        TRY_OUT(
            add_events(fmemopen(kept, strlen(kept), "r"), path, name, events));
    *out = events;
    events = NULL;
out:
    free(kept);
    json_decref(events);
    return rc;
}

enum err ledger_next_attempt(const char *run_dir, int *attempt)
{
    json_t *starts = NULL;
    TRY(ledger_events(run_dir, "start", &starts));
    *attempt = (int)json_array_size(starts) + 1;
    json_decref(starts);
    return ERR_OK;
}
