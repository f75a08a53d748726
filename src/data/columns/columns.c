/* Reads a file of columns row by row, whatever its format: the columns that were
 * chosen go through the groups of rows together. A row of a list is as many values as
 * go on in it, so for records columns are read one value ahead. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/array.h"
#include "src/base/clean.h"
#include "src/base/fsio.h"
#include "src/base/jsontext.h"
#include "src/base/new.h"
#include "src/data/columns/columns.h"
#include "src/data/columns/columns_format.h"
#include "src/text/unicode.h"

/* Elements of a row's list: a few bytes may claim a billion of nothing. */
#define COLUMNS_LIST_MAX 65536
#define CHOSEN_MAX 256

static const struct columns_format *const formats[] = { COLUMNS_FORMATS };

struct columns_reader {
    const struct columns_leaf *leaf;
    struct columns_value next;
    bool more; /* there is a next one */
};

struct columns {
    const struct columns_format *format;
    struct columns_file *file;
    const struct columns_leaf **chosen;
    struct columns_reader *reader; /* [count] */
    size_t count, capacity;
    size_t group;      /* the next one */
    int64_t left, row; /* rows left in the one at hand, rows given */
    char place[FSIO_PATH_MAX + 32];
};

const struct columns_format *columns_by_name(const char *path)
{
    const char *end = strrchr(path, '.');
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++)
        for (size_t e = 0; e < 2 && formats[f]->ends[e] != NULL; e++)
            if (end != NULL && end > path && end[-1] != '/' &&
                strcmp(end, formats[f]->ends[e]) == 0)
                return formats[f];
    return NULL;
}

int64_t columns_row(const struct columns *columns)
{
    return columns->row - 1;
}

const char *columns_place(struct columns *columns)
{
    snprintf(columns->place, sizeof columns->place, "%s: row %lld",
             columns->file->path, (long long)columns_row(columns));
    return columns->place;
}

int64_t columns_position(const struct columns *columns)
{
    return columns->format->position(columns->file);
}

/* What is wrong is said of a column, in a group: "is damaged". */
static enum err columns_next(struct columns *columns,
                             struct columns_reader *reader)
{
    enum err rc =
        columns->format->next(columns->file, (size_t)(reader - columns->reader),
                              &reader->next, &reader->more);
    if (rc == ERR_OK || rc == ERR_MEMORY || rc == ERR_IO)
        return rc;
    return err_set(rc, "%s: %s %zu: column '%s' %s; %s", columns->file->path,
                   columns->format->group, columns->group - 1,
                   reader->leaf->path, err_text(),
                   rc == ERR_DATA ? "copy or make the file again"
                                  : columns->format->remedy);
}

static enum err columns_no_column(const struct columns_file *file,
                                  const char *name)
{
    char names[256] = "";
    for (size_t l = 0; l < file->leaves; l++)
        clean_join(names, sizeof names, ", ", "%.48s", file->leaf[l].path);
    return err_set(ERR_DATA, "%s: no column '%s' in this file, which has: %s",
                   file->path, name, names);
}

/* A text at the top or in a group; of records at the top or in one list's objects,
 * of which none is deeper than the others. */
static enum err columns_choose(struct columns *columns,
                               const struct columns_leaf *leaf, bool records)
{
    const char *path = columns->file->path;
    const struct columns_leaf *before = NULL;
    if (columns->count == CHOSEN_MAX)
        return err_set(ERR_UNSUPPORTED,
                       "%s: more than %d columns in its objects; name those "
                       "that are meant",
                       path, CHOSEN_MAX);
    for (size_t c = 0; c < columns->count; c++) {
        before = columns->chosen[c];
        if (strcmp(before->path, leaf->path) == 0)
            return err_set(ERR_DATA,
                           "%s: column '%s' is there twice; write it once",
                           path, leaf->path);
    }
    bool deeper = before != NULL && before->top == leaf->top &&
                  before->inside != leaf->inside &&
                  strncmp(before->path, leaf->path, leaf->top) == 0;
    /* a list is two names, itself and its element's, then the text's */
    if (records && (deeper || (leaf->inside > 2 && leaf->repeated == 1) ||
                    (leaf->repeated == 0 && leaf->last > 0)))
        return err_set(
            ERR_UNSUPPORTED,
            "%s: column '%s' is in a group; write it as a text, or a "
            "list of objects with texts",
            path, leaf->path);
    if (leaf->repeated > records)
        return err_set(
            ERR_UNSUPPORTED,
            "%s: column '%s' is in %s; write one with a text in each row%s",
            path, leaf->path, leaf->repeated == 1 ? "a list" : "lists of lists",
            records ? ", or a list of objects with texts" : "");
    if (leaf->wrong != NULL)
        return err_set(ERR_UNSUPPORTED,
                       "%s: column '%s' has %s, no text; write it as strings, "
                       "or leave it out",
                       path, leaf->path, leaf->wrong);
    TRY(array_room(&columns->chosen, &columns->capacity, columns->count + 1));
    columns->chosen[columns->count++] = leaf;
    return ERR_OK;
}

/* Readers of the columns that are chosen: of none its rows alone, so that somebody can
 * tell. */
static enum err columns_begin(struct columns *columns)
{
    TRY(columns->format->choose(columns->file, columns->chosen,
                                columns->count));
    TRY(new_zeroed(&columns->reader, columns->count + 1));
    for (size_t c = 0; c < columns->count; c++)
        columns->reader[c].leaf = columns->chosen[c];
    return ERR_OK;
}

/* By all of its path; what is in lists by its first name. */
static bool columns_named(const struct columns_leaf *leaf,
                          const char *const *names, size_t count, bool records)
{
    for (size_t n = 0; n < count; n++)
        if (names[n] != NULL &&
            (strcmp(names[n], leaf->path) == 0 ||
             ((records || leaf->repeated > 0) &&
              strlen(names[n]) == leaf->top &&
              strncmp(leaf->path, names[n], leaf->top) == 0)))
            return true;
    return false;
}

static enum err columns_create(const struct columns_format *format,
                               const char *path, const char *const *names,
                               size_t count, bool records, struct columns **out)
{
    enum err rc = ERR_OK;
    struct columns *columns = NULL;
    TRY(new_zeroed(&columns, 1));
    columns->format = format;
    TRY_OUT(format->open(path, &columns->file));
    for (size_t l = 0; l < columns->file->leaves; l++)
        if (columns_named(&columns->file->leaf[l], names, count, records))
            TRY_OUT(columns_choose(columns, &columns->file->leaf[l], records));
    if (columns->count == 0 && !records)
        TRY_OUT(columns_no_column(columns->file, names[0]));
    TRY_OUT(columns_begin(columns));
out:
    return new_or_none(rc, columns, out, columns_close);
}

enum err columns_open(const struct columns_format *format, const char *path,
                      const char *column, struct columns **out)
{
    return columns_create(format, path, &column, 1, false, out);
}

enum err columns_open_records(const struct columns_format *format,
                              const char *path, const char *const *names,
                              size_t count, struct columns **out)
{
    return columns_create(format, path, names, count, true, out);
}

void columns_close(struct columns *columns)
{
    if (columns == NULL)
        return;
    if (columns->file != NULL)
        columns->format->close(columns->file);
    free(columns->reader);
    free(columns->chosen);
    free(columns);
}

static enum err columns_damaged(const struct columns *columns, const char *what)
{
    return err_set(
        ERR_DATA, "%s: %s %zu: its columns %s; copy or make the file again",
        columns->file->path, columns->format->group, columns->group - 1, what);
}

/* The next row, for which a group is begun where that is needed; `ahead`: each
 * column is read one value ahead. *more false: there is none. */
static enum err columns_row_next(struct columns *columns, bool ahead,
                                 bool *more)
{
    while (columns->left == 0) {
        for (size_t c = 0; c < columns->count; c++) {
            if (!ahead)
                TRY(columns_next(columns, &columns->reader[c]));
            if (columns->reader[c].more)
                return columns_damaged(columns, "have more than its rows");
        }
        *more = columns->group < columns->file->groups;
        if (!*more)
            return ERR_OK;
        size_t group = columns->group++;
        columns->left = columns->file->rows[group];
        columns->format->begin(columns->file, group);
        for (size_t c = 0; ahead && c < columns->count; c++)
            TRY(columns_next(columns, &columns->reader[c]));
    }
    *more = true;
    columns->left--;
    columns->row++;
    return ERR_OK;
}

enum err columns_next_text(struct columns *columns, const uint8_t **text,
                           size_t *bytes, bool *more)
{
    struct columns_reader *reader = &columns->reader[0];
    assert(columns->count == 1);
    *text = NULL;
    *bytes = 0;
    TRY(columns_row_next(columns, false, more));
    if (!*more)
        return ERR_OK;
    TRY(columns_next(columns, reader));
    if (!reader->more)
        return columns_damaged(columns, "have less than its rows");
    *text = reader->next.text;
    *bytes = reader->next.bytes;
    return ERR_OK;
}

enum err columns_go(struct columns *columns, int64_t row)
{
    const uint8_t *text = NULL;
    size_t bytes = 0;
    bool more = true;
    assert(columns->row == 0);
    for (; columns->group < columns->file->groups &&
           columns->file->rows[columns->group] <= row - columns->row;
         columns->group++)
        columns->row += columns->file->rows[columns->group];
    while (more && columns->row < row)
        TRY(columns_next_text(columns, &text, &bytes, &more));
    return more ? ERR_OK
                : err_set(ERR_DATA,
                          "%s: ends before row %lld, the one to go on from",
                          columns->file->path, (long long)row);
}

/* The value at hand as JSON, and go on. */
static enum err record_value(struct columns *columns,
                             struct columns_reader *reader, json_t **out)
{
    const struct columns_value *value = &reader->next;
    const char *path = reader->leaf->path;
    if (!reader->more)
        return columns_damaged(columns, "have less than its rows");
    *out = json_null();
    if (value->text != NULL) {
        if (unicode_valid(value->text, value->bytes) != value->bytes ||
            memchr(value->text, 0, value->bytes) != NULL)
            return err_set(ERR_DATA,
                           "%s: column '%s' is no text in UTF-8, or has a NUL "
                           "in it",
                           columns_place(columns), path);
        *out = json_stringn((const char *)value->text, value->bytes);
        if (*out == NULL)
            return err_set(ERR_MEMORY, "%s: no memory for a text of %zu bytes",
                           columns_place(columns), value->bytes);
    }
    enum err rc = columns_next(columns, reader);
    if (rc != ERR_OK)
        json_decref(*out);
    return rc;
}

static bool record_goes_on(const struct columns_reader *reader)
{
    return reader->more && !reader->next.begins;
}

/* One element of the list that is in these columns: an object of its texts; or the
 * levels, `defined` in each of them, that say that there is none. */
static enum err record_element(struct columns *columns,
                               struct columns_reader *reader, size_t count,
                               int defined, json_t **list)
{
    enum err rc = ERR_OK;
    const int least = reader->leaf->list;
    json_t *object = json_object(), *value = NULL;
    for (size_t c = 0; c < count; c++) {
        int here = reader[c].next.defined;
        if (!reader[c].more ||
            (defined < least ? here != defined : here < least))
            TRY_OUT(columns_damaged(columns, "have lists of two lengths"));
        TRY_OUT(record_value(columns, &reader[c], &value));
        if (json_is_null(value))
            json_decref(value);
        else
            jsontext_set(&object, reader[c].leaf->path + reader[c].leaf->last,
                         value);
        if (record_goes_on(&reader[c]) != record_goes_on(reader))
            TRY_OUT(columns_damaged(columns, "have lists of two lengths"));
    }
    if (defined >= least)
        jsontext_append(list, json_incref(object));
out:
    json_decref(object);
    return rc;
}

/* The list in these columns; null where there is none. */
static enum err record_list(struct columns *columns,
                            struct columns_reader *reader, size_t count,
                            json_t **out)
{
    enum err rc = ERR_OK;
    const int defined = reader->next.defined;
    const struct columns_leaf *leaf = reader->leaf;
    *out = defined < leaf->list - 1 ? json_null() : json_array();
    do
        rc =
            json_array_size(*out) < COLUMNS_LIST_MAX
                ? record_element(columns, reader, count, defined, out)
                : err_set(ERR_UNSUPPORTED,
                          "%s: column '%s' has a list of more than %d; write "
                          "it in several rows",
                          columns_place(columns), leaf->path, COLUMNS_LIST_MAX);
    while (rc == ERR_OK && record_goes_on(reader));
    if (rc != ERR_OK)
        json_decref(*out);
    return rc;
}

/* All that the columns from *first on with one name at the top have. */
static enum err record_field(struct columns *columns, size_t *first,
                             json_t **record)
{
    struct columns_reader *reader = &columns->reader[*first];
    const struct columns_leaf *leaf = columns->chosen[*first];
    json_t *value = NULL;
    size_t count = 1;
    while (*first + count < columns->count &&
           columns->chosen[*first + count]->top == leaf->top &&
           strncmp(columns->chosen[*first + count]->path, leaf->path,
                   leaf->top) == 0)
        count++;
    *first += count;
    if (leaf->repeated > 0)
        TRY(record_list(columns, reader, count, &value));
    else
        TRY(record_value(columns, reader, &value));
    jsontext_set_part(record, leaf->path, leaf->top, value);
    return ERR_OK;
}

enum err columns_next_record(struct columns *columns, json_t **out)
{
    bool more = false;
    *out = NULL;
    TRY(columns_row_next(columns, true, &more));
    if (!more)
        return ERR_OK;
    json_t *record = json_object();
    for (size_t l = 0; columns->row == 1 && l < columns->file->leaves; l++)
        jsontext_set_part(&record, columns->file->leaf[l].path,
                          columns->file->leaf[l].top, json_null());
    for (size_t c = 0; c < columns->count;) {
        enum err rc = record_field(columns, &c, &record);
        if (rc != ERR_OK) {
            json_decref(record);
            return rc;
        }
    }
    *out = record;
    return record != NULL ? ERR_OK
                          : err_set(ERR_MEMORY, "%s: no memory for a record",
                                    columns_place(columns));
}
