/* Appends the events of a run's attempts to ledger.jsonl. Summaries of it are
 * ledger_history.c.
 *
 * Lines are only ever added; readers skip what does not parse, so a torn line
 * costs itself and nothing else. A power cut can leave half a line, and who
 * comes then does not know: he looks at the last byte and begins with a newline
 * where there is none (lines.h). Rank 0 and the launch script both write, each a
 * line in one write(2) at the file's end, so no lock is needed. */
#include "src/job/ledger.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/clean.h"
#include "src/base/clock.h"
#include "src/base/jsontext.h"
#include "src/base/lines.h"
#include "src/base/new.h"
#include "src/base/regular.h"
#include "src/job/ledger_rows.h"

#define LEDGER_NAME "ledger.jsonl"

/* 13 significant digits are milliseconds in a time of this century. */
#define LEDGER_DUMP_FLAGS JSON_REAL_PRECISION(13)

struct field {
    char name[24], type[8];
    bool optional, null; /* may be missing; may be null */
};

static bool cut_mark(char *word)
{
    char *mark = strchr(word, '?');
    if (mark != NULL)
        *mark = '\0';
    return mark != NULL;
}

/* The table is text, so that it can be read as it stands; its words are taken
 * apart here, a few hundred bytes an event, of which a run has few.
 *
 * The field at `*at` of a row's fields, which goes on behind it. */
static bool next_field(const char **at, struct field *out)
{
    int length = 0;
    if (sscanf(*at, " %23[^:]:%7s%n", out->name, out->type, &length) != 2)
        return false;
    *at += length;
    out->optional = cut_mark(out->name);
    out->null = cut_mark(out->type);
    return true;
}

static bool fits(const struct field *field, const json_t *value)
{
    if (value == NULL || json_is_null(value))
        return value == NULL ? field->optional : field->null;
    switch (field->type[0]) {
    case 'w':
        return json_is_integer(value);
    case 'n':
        return json_is_number(value);
    case 't':
        return json_is_string(value);
    case 'f':
        return json_is_boolean(value);
    case 'l':
        return json_is_array(value);
    default:
        assert(strcmp(field->type, "object") == 0);
        return json_is_object(value);
    }
}

/* NULL: no such event. */
static const char *fields_of(const char *event)
{
    for (size_t i = 0; i < sizeof ledger_rows / sizeof ledger_rows[0]; i++)
        if (strcmp(ledger_rows[i].event, event) == 0)
            return ledger_rows[i].fields;
    return NULL;
}

/* Programs are held to the table by an assertion, the command line by an error,
 * which is this one: ERR_USAGE unless the event is as its row has it. */
static enum err check(const char *event, const json_t *fields)
{
    struct field field;
    size_t found = 0;
    const char *at = fields_of(event);
    if (at == NULL)
        return err_set(ERR_USAGE, "ledger: there is no event '%s'", event);
    while (next_field(&at, &field)) {
        const json_t *value = json_object_get(fields, field.name);
        found += value != NULL;
        if (!fits(&field, value))
            return err_set(ERR_USAGE, "ledger: %s: %s must be a %s", event,
                           field.name, field.type);
    }
    return found == json_object_size(fields)
               ? ERR_OK
               : err_set(ERR_USAGE, "ledger: %s: a field is not of its row",
                         event);
}

/* Steals the fields. */
static enum err append(const char *run_dir, const char *event, int attempt,
                       json_t *fields, size_t flags)
{
    enum err rc = ERR_OK;
    char path[FSIO_PATH_MAX];
    char *line = NULL;
    int fd = -1;
    double time_s = round(clock_wall() * 1000) / 1000;
    json_t *object = json_pack("{s:s, s:f, s:i}", "event", event, "time",
                               time_s, "attempt", attempt);
    if (object != NULL &&
        (fields == NULL || json_object_update_missing(object, fields) == 0))
        line = json_dumps(object, LEDGER_DUMP_FLAGS | flags);
    if (line == NULL)
        TRY_OUT(err_set(ERR_MEMORY, "ledger: out of memory for '%s'", event));
    TRY_OUT(lines_open(run_dir, LEDGER_NAME, path, &fd));
    TRY_OUT(lines_append_durable(fd, path, line));
out:
    fsio_close(fd);
    free(line);
    json_decref(object);
    json_decref(fields);
    return rc;
}

enum err ledger_append(const char *run_dir, const char *event, int attempt,
                       json_t *fields)
{
    assert(run_dir != NULL && attempt >= 0);
    assert(fields == NULL || check(event, fields) == ERR_OK);
    return append(run_dir, event, attempt, fields, 0);
}

/* NULL: the text is none of that type. */
static json_t *value_of(const struct field *field, const char *text)
{
    char *end;
    if (field->null && strcmp(text, "null") == 0)
        return json_null();
    if (field->type[0] == 't')
        return jsontext_string(text);
    if (field->type[0] == 'f' && strcmp(text, "true") != 0)
        return strcmp(text, "false") == 0 ? json_false() : NULL;
    if (field->type[0] == 'f')
        return json_true();
    errno = 0;
    long long number = strtoll(text, &end, 10);
    return field->type[0] == 'w' && end != text && *end == '\0' && errno == 0
               ? json_integer(number)
               : NULL;
}

enum err ledger_append_words(const char *run_dir, const char *event,
                             int attempt, char *const *words, int count)
{
    enum err rc = ERR_OK;
    json_t *fields = json_object();
    struct field field;
    for (int i = 0; i < count; i++) {
        const char *at = fields_of(event);
        size_t length = strcspn(words[i], "=");
        clean_text(words[i], false);
        while (at != NULL && next_field(&at, &field))
            if (strlen(field.name) == length && words[i][length] == '=' &&
                strncmp(words[i], field.name, length) == 0)
                json_object_set_new(fields, field.name,
                                    value_of(&field, words[i] + length + 1));
    }
    rc = check(event, fields);
    if (rc == ERR_OK && json_object_size(fields) != (size_t)count)
        rc = err_set(ERR_USAGE, "ledger: %s: a field is not of its row", event);
    if (rc == ERR_OK)
        return append(run_dir, event, attempt, fields, JSON_COMPACT);
    json_decref(fields);
    return rc;
}

/* Every line that is a JSON object; closes the file, which may be NULL. */
static enum err each_object(FILE *file, const char *path, ledger_line_fn take,
                            void *arg)
{
    enum err rc = ERR_OK;
    char *text = NULL;
    size_t room = 0;
    for (ssize_t bytes; rc == ERR_OK && file != NULL &&
                        (bytes = getline(&text, &room, file)) > 0;) {
        json_t *line =
            json_loadb(text, (size_t)bytes, JSON_REJECT_DUPLICATES, NULL);
        if (json_is_object(line))
            rc = take(arg, line);
        json_decref(line);
    }
    if (rc == ERR_OK && file != NULL && ferror(file))
        rc = err_errno("%s: read", path);
    free(text);
    if (file != NULL)
        fclose(file);
    return rc;
}

enum err ledger_each_line(const char *run_dir, const char *name, long tail,
                          ledger_line_fn take, void *arg)
{
    char path[FSIO_PATH_MAX];
    FILE *file = NULL;
    TRY(fsio_path(path, "%s/%s", run_dir, name));
    TRY(regular_stream(path, &file));
    if (file == NULL)
        return err_set(ERR_DATA, "%s: no such file", path);
    /* A file shorter than the tail is read from its beginning. */
    if (tail > 0)
        (void)fseek(file, -tail, SEEK_END);
    return each_object(file, path, take, arg);
}

struct wanted {
    const char *name;
    json_t *events;
};

static enum err collect(void *arg, json_t *line)
{
    const struct wanted *wanted = arg;
    const char *event = json_string_value(json_object_get(line, "event"));
    return event == NULL || strcmp(event, wanted->name) != 0 ||
                   json_array_append(wanted->events, line) == 0
               ? ERR_OK
               : err_set(ERR_MEMORY, "ledger: out of memory");
}

enum err ledger_events(const char *run_dir, const char *name, json_t **out)
{
    enum err rc = ERR_OK;
    char path[FSIO_PATH_MAX];
    char *kept = NULL;
    FILE *file = NULL;
    struct wanted wanted = { name, json_array() };
    assert(fields_of(name) != NULL);
    TRY_OUT(fsio_path(path, "%s/%s", run_dir, LEDGER_NAME));
    TRY_OUT(regular_stream(path, &file));
    TRY_OUT(each_object(file, path, collect, &wanted));
    kept = lines_kept(path);
    if (kept != NULL)
        TRY_OUT(each_object(fmemopen(kept, strlen(kept), "r"), path, collect,
                            &wanted));
out:
    free(kept);
    return new_or_none(rc, wanted.events, out, json_decref);
}

enum err ledger_next_attempt(const char *run_dir, int *attempt)
{
    json_t *starts = NULL;
    TRY(ledger_events(run_dir, "start", &starts));
    *attempt = (int)json_array_size(starts) + 1;
    json_decref(starts);
    return ERR_OK;
}
