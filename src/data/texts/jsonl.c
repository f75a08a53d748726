/* Reads JSON lines: lines out of a growing buffer, records by jansson.
 *
 * The buffer holds [begin, end) of what was read; a line is lent out of it and
 * valid until the next call. It doubles for a longer line and moves what is
 * left to its front first, so that memory is the longest line's and copies stay
 * linear. `searched` remembers how far no line end was found: without it a line
 * of 256 MiB would be searched anew for each piece that arrives. */
#include "src/data/texts/jsonl.h"

#include <assert.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/clean.h"
#include "src/base/fsio.h"
#include "src/base/new.h"
#include "src/base/jsontext.h"

#define JSONL_FIRST_BYTES ((size_t)1 << 18)
/* A buffer that a rare line has made larger than this is given back. */
#define JSONL_KEPT_BYTES ((size_t)16 << 20)

struct jsonl {
    struct source *source;
    char *buffer;
    size_t begin, end, capacity; /* what is read and not yet taken */
    size_t searched;             /* of it no line end is in these bytes */
    bool ended;                  /* the source has no more */
    int64_t offset;              /* of buffer[begin] in the file */
    int64_t lines;               /* taken */
    struct jsonl_mark mark;      /* of the last record */
    bool cut;                    /* it has no line end */
    json_t *record;              /* whose text is lent */
    char place[FSIO_PATH_MAX + 32];
};

enum err jsonl_open(const char *path, const struct source_options *watch,
                    struct jsonl **out)
{
    assert(path != NULL && out != NULL);
    enum err rc = ERR_OK;
    struct jsonl *reader = NULL;
    TRY(new_zeroed(&reader, 1));
    TRY_OUT(source_open(path, SOURCE_RECORDS, watch, &reader->source));
    snprintf(reader->place, sizeof reader->place, "%s",
             source_name(reader->source));
out:
    return new_or_none(rc, reader, out, jsonl_close);
}

void jsonl_close(struct jsonl *reader)
{
    if (reader == NULL)
        return;
    source_close(reader->source);
    free(reader->buffer);
    json_decref(reader->record);
    free(reader);
}

const char *jsonl_place(const struct jsonl *reader)
{
    return reader->place;
}

int64_t jsonl_position(const struct jsonl *reader)
{
    return source_position(reader->source);
}

struct jsonl_mark jsonl_mark(const struct jsonl *reader)
{
    return reader->mark;
}

enum err jsonl_go(struct jsonl *reader, struct jsonl_mark mark)
{
    assert(reader->buffer == NULL && mark.offset >= 0 && mark.line >= 1);
    reader->offset = mark.offset;
    reader->lines = mark.line - 1;
    return source_skip(reader->source, mark.offset);
}

/* Room for more at the end of the buffer: what is taken goes first, then it
 * grows, to a line of the greatest length and its end. */
static enum err jsonl_room(struct jsonl *reader)
{
    size_t used = reader->end - reader->begin;
    if (reader->end < reader->capacity)
        return ERR_OK;
    if (reader->begin > 0) {
        memmove(reader->buffer, reader->buffer + reader->begin, used);
        reader->begin = 0;
        reader->end = used;
    }
    if (used > JSONL_LINE_BYTES_MAX)
        return err_set(ERR_DATA,
                       "%s:%lld: a line of more than %zu MiB; is "
                       "this a file of JSON lines?",
                       source_name(reader->source),
                       (long long)reader->lines + 1,
                       JSONL_LINE_BYTES_MAX >> 20);
    if (reader->end <= reader->capacity / 2 && reader->capacity > 0)
        return ERR_OK;
    size_t capacity =
        reader->capacity == 0 ? JSONL_FIRST_BYTES : 2 * reader->capacity;
    if (capacity > JSONL_LINE_BYTES_MAX + 1)
        capacity = JSONL_LINE_BYTES_MAX + 1;
    if (capacity == reader->capacity)
        return ERR_OK;
    char *buffer = realloc(reader->buffer, capacity);
    if (buffer == NULL)
        return err_set(ERR_MEMORY, "%s: no memory for a line of %zu bytes",
                       source_name(reader->source), capacity);
    reader->buffer = buffer;
    reader->capacity = capacity;
    return ERR_OK;
}

static enum err jsonl_fill(struct jsonl *reader)
{
    size_t got = 0;
    TRY(jsonl_room(reader));
    assert(reader->end < reader->capacity);
    TRY(source_read(reader->source, (uint8_t *)reader->buffer + reader->end,
                    reader->capacity - reader->end, &got));
    reader->end += got;
    reader->ended = got == 0;
    return ERR_OK;
}

/* The next line, without its end; lent from the buffer. *line NULL: none. */
static enum err jsonl_line(struct jsonl *reader, const char **line,
                           size_t *bytes)
{
    const char *found = NULL;
    while (found == NULL) {
        size_t used = reader->end - reader->begin;
        if (used > reader->searched)
            found = memchr(reader->buffer + reader->begin + reader->searched,
                           '\n', used - reader->searched);
        reader->searched = used;
        if (found != NULL || reader->ended)
            break;
        TRY(jsonl_fill(reader));
    }
    size_t used = reader->end - reader->begin;
    *line = used > 0 ? reader->buffer + reader->begin : NULL;
    *bytes = found != NULL ? (size_t)(found - *line) : used;
    size_t taken = *bytes + (found != NULL ? 1 : 0);
    reader->mark = (struct jsonl_mark){ reader->offset, reader->lines + 1 };
    reader->cut = found == NULL;
    reader->begin += taken;
    reader->searched = 0;
    reader->offset += (int64_t)taken;
    reader->lines += used > 0;
    return ERR_OK;
}

/* The next line with something on it. */
static enum err jsonl_record(struct jsonl *reader, const char **line,
                             size_t *bytes)
{
    do {
        /* one long line in a file should not cost its memory to the end */
        if (reader->capacity > JSONL_KEPT_BYTES &&
            reader->begin == reader->end) {
            free(reader->buffer);
            reader->buffer = NULL;
            reader->capacity = reader->begin = reader->end = 0;
        }
        TRY(jsonl_line(reader, line, bytes));
        if (*line == NULL)
            return ERR_OK;
        /* a byte-order mark, as Windows' programs write */
        if (reader->mark.offset == 0 && *bytes >= 3 &&
            memcmp(*line, "\xef\xbb\xbf", 3) == 0) {
            *line += 3;
            *bytes -= 3;
        }
        while (*bytes > 0 && strchr(" \t\r", **line) != NULL && **line != 0) {
            ++*line;
            --*bytes;
        }
    } while (*bytes == 0);
    snprintf(reader->place, sizeof reader->place, "%s:%lld",
             source_name(reader->source), (long long)reader->mark.line);
    return ERR_OK;
}

static enum err jsonl_parse(const struct jsonl *reader, const char *line,
                            size_t bytes, json_t **record)
{
    json_error_t problem;
    json_t *root = jsontext_load(line, bytes, JSON_REJECT_DUPLICATES, &problem);
    if (root == NULL && jsontext_wrong(&problem) == ERR_MEMORY)
        return err_set(ERR_MEMORY, "%s: no memory for a line of %zu bytes",
                       reader->place, bytes);
    if (root == NULL)
        return err_set(ERR_DATA, "%s: not valid %s: %s%s", reader->place,
                       json_error_code(&problem) == json_error_invalid_utf8
                           ? "UTF-8 (is it Latin-1? iconv -f LATIN1 -t UTF-8)"
                           : "JSON",
                       problem.text,
                       reader->cut ? "; the file ends in this line" : "");
    if (!json_is_object(root)) {
        json_decref(root);
        return err_set(ERR_DATA,
                       "%s: a line of JSON lines has to be an object, "
                       "{\"text\": ...}",
                       reader->place);
    }
    *record = root;
    return ERR_OK;
}

enum err jsonl_next(struct jsonl *reader, json_t **record)
{
    assert(reader != NULL && record != NULL);
    const char *line = NULL;
    size_t bytes = 0;
    *record = NULL;
    TRY(jsonl_record(reader, &line, &bytes));
    return line != NULL ? jsonl_parse(reader, line, bytes, record) : ERR_OK;
}

void jsonl_fields(const json_t *record, char *out, size_t bytes)
{
    const char *key;
    json_t *value;
    out[0] = '\0';
    json_object_foreach((json_t *)record, key, value)
        clean_join(out, bytes, ", ", "%.32s", key);
    if (out[0] == '\0')
        snprintf(out, bytes, "none");
}

static enum err jsonl_no_text(const struct jsonl *reader, const char *field,
                              const json_t *record)
{
    char fields[256];
    if (json_object_get(record, field) != NULL)
        return err_set(ERR_DATA, "%s: the field '%s' is no string",
                       reader->place, field);
    jsonl_fields(record, fields, sizeof fields);
    return err_set(ERR_DATA, "%s: no field '%s' in this record, which has: %s",
                   reader->place, field, fields);
}

enum err jsonl_next_text(struct jsonl *reader, const char *field,
                         const char **text, size_t *bytes)
{
    assert(field != NULL && text != NULL && bytes != NULL);
    *text = NULL;
    *bytes = 0;
    json_decref(reader->record);
    TRY(jsonl_next(reader, &reader->record));
    if (reader->record == NULL)
        return ERR_OK;
    const json_t *value = json_object_get(reader->record, field);
    if (!json_is_string(value))
        return jsonl_no_text(reader, field, reader->record);
    *text = json_string_value(value);
    *bytes = json_string_length(value);
    return ERR_OK;
}
