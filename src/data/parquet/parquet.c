/* Reads a Parquet file row by row: each column that was chosen has a reader of its
 * own, and all of them go through the row groups together. A row of a list is as
 * many values as go on in it, so for records columns are read one value ahead. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/clean.h"
#include "src/base/fsio.h"
#include "src/base/jsontext.h"
#include "src/base/new.h"
#include "src/data/parquet/parquet_impl.h"
#include "src/text/unicode.h"

/* Elements of a row's list: a few bytes may claim a billion of nothing. */
#define PARQUET_LIST_MAX 65536

struct parquet_reader {
    struct parquet_column column;
    struct parquet_value next;
    bool more; /* there is a next one */
};

struct parquet {
    struct parquet_meta meta;
    const struct parquet_leaf **chosen;
    struct parquet_reader *reader; /* [count] */
    size_t count, capacity;
    size_t group;      /* the next one */
    int64_t left, row; /* rows left in the one at hand, rows given */
    char place[FSIO_PATH_MAX + 32];
};

int64_t parquet_row(const struct parquet *parquet)
{
    return parquet->row - 1;
}

const char *parquet_place(struct parquet *parquet)
{
    snprintf(parquet->place, sizeof parquet->place, "%s: row %lld",
             parquet->meta.path, (long long)parquet_row(parquet));
    return parquet->place;
}

int64_t parquet_position(const struct parquet *parquet)
{
    return parquet->reader[0].column.chunk.begin;
}

static enum err parquet_no_column(const struct parquet_meta *meta,
                                  const char *name)
{
    char names[256] = "";
    for (size_t l = 0; l < meta->leaves; l++)
        clean_join(names, sizeof names, ", ", "%.48s", meta->leaf[l].path);
    return err_set(ERR_DATA, "%s: no column '%s' in this file, which has: %s",
                   meta->path, name, names);
}

/* A text at the top or in a group; of records at the top or in one list's objects,
 * of which none is deeper than the others. */
static enum err parquet_choose(struct parquet *parquet,
                               const struct parquet_leaf *leaf, bool records)
{
    const char *path = parquet->meta.path;
    const struct parquet_leaf *before = NULL;
    for (size_t c = 0; c < parquet->count; c++) {
        before = parquet->chosen[c];
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
    TRY(array_room(&parquet->chosen, &parquet->capacity, parquet->count + 1));
    parquet->chosen[parquet->count++] = leaf;
    return ERR_OK;
}

/* Readers of the columns that are chosen. */
static enum err parquet_begin(struct parquet *parquet)
{
    size_t count = parquet->count;
    if (count == 0) { /* its rows alone, so that somebody can tell */
        TRY(array_room(&parquet->chosen, &parquet->capacity, 1));
        parquet->chosen[count++] = parquet->meta.leaf;
    }
    TRY(parquet_meta_choose(&parquet->meta, parquet->chosen, count));
    TRY(new_zeroed(&parquet->reader, count));
    for (size_t c = 0; c < count; c++) {
        parquet->reader[c].column.meta = &parquet->meta;
        parquet->reader[c].column.leaf = parquet->chosen[c];
    }
    return ERR_OK;
}

/* By all of its path; what is in lists by its first name. */
static bool parquet_named(const struct parquet_leaf *leaf,
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

static enum err parquet_create(const char *path, const char *const *names,
                               size_t count, bool records, struct parquet **out)
{
    enum err rc = ERR_OK;
    struct parquet *parquet = NULL;
    TRY(new_zeroed(&parquet, 1));
    TRY_OUT(parquet_meta_open(path, &parquet->meta));
    for (size_t l = 0; l < parquet->meta.leaves; l++)
        if (parquet_named(&parquet->meta.leaf[l], names, count, records))
            TRY_OUT(parquet_choose(parquet, &parquet->meta.leaf[l], records));
    if (parquet->count == 0 && !records)
        TRY_OUT(parquet_no_column(&parquet->meta, names[0]));
    TRY_OUT(parquet_begin(parquet));
out:
    return new_or_none(rc, parquet, out, parquet_close);
}

enum err parquet_open(const char *path, const char *column,
                      struct parquet **out)
{
    return parquet_create(path, &column, 1, false, out);
}

enum err parquet_open_records(const char *path, const char *const *names,
                              size_t count, struct parquet **out)
{
    return parquet_create(path, names, count, true, out);
}

void parquet_close(struct parquet *parquet)
{
    if (parquet == NULL)
        return;
    for (size_t c = 0; parquet->reader != NULL && c < parquet->count; c++)
        parquet_column_release(&parquet->reader[c].column);
    free(parquet->reader);
    free(parquet->chosen);
    parquet_meta_close(&parquet->meta);
    free(parquet);
}

static enum err parquet_damaged(const struct parquet *parquet, const char *what)
{
    return err_set(ERR_DATA,
                   "%s: row group %zu: its columns %s; copy or make the file "
                   "again",
                   parquet->meta.path, parquet->group - 1, what);
}

/* The next row, for which a row group is begun where that is needed; `ahead`: each
 * column is read one value ahead. *more false: there is none. */
static enum err parquet_row_next(struct parquet *parquet, bool ahead,
                                 bool *more)
{
    const struct parquet_meta *meta = &parquet->meta;
    while (parquet->left == 0) {
        for (size_t c = 0; c < parquet->count; c++) {
            const struct parquet_reader *reader = &parquet->reader[c];
            if (reader->more || reader->column.values > 0 ||
                reader->column.chunk.values > 0)
                return parquet_damaged(parquet, "have more than its rows");
        }
        *more = parquet->group < meta->groups;
        if (!*more)
            return ERR_OK;
        size_t group = parquet->group++;
        parquet->left = meta->rows[group];
        for (size_t c = 0; c < parquet->count; c++) {
            struct parquet_reader *reader = &parquet->reader[c];
            reader->column.group = group;
            reader->column.chunk = meta->chunk[group * parquet->count + c];
            reader->column.values = 0;
            reader->column.entries = 0;
            if (ahead)
                TRY(parquet_column_next(&reader->column, &reader->next,
                                        &reader->more));
        }
    }
    *more = true;
    parquet->left--;
    parquet->row++;
    return ERR_OK;
}

enum err parquet_next_text(struct parquet *parquet, const uint8_t **text,
                           size_t *bytes, bool *more)
{
    struct parquet_value *next = &parquet->reader[0].next;
    bool there = false;
    assert(parquet->count == 1);
    *text = NULL;
    *bytes = 0;
    TRY(parquet_row_next(parquet, false, more));
    if (!*more)
        return ERR_OK;
    TRY(parquet_column_next(&parquet->reader[0].column, next, &there));
    if (!there)
        return parquet_damaged(parquet, "have less than its rows");
    *text = next->text;
    *bytes = next->bytes;
    return ERR_OK;
}

enum err parquet_go(struct parquet *parquet, int64_t row)
{
    const uint8_t *text = NULL;
    size_t bytes = 0;
    bool more = true;
    assert(parquet->row == 0);
    for (; parquet->group < parquet->meta.groups &&
           parquet->meta.rows[parquet->group] <= row - parquet->row;
         parquet->group++)
        parquet->row += parquet->meta.rows[parquet->group];
    while (more && parquet->row < row)
        TRY(parquet_next_text(parquet, &text, &bytes, &more));
    return more ? ERR_OK
                : err_set(ERR_DATA,
                          "%s: ends before row %lld, the one to go on from",
                          parquet->meta.path, (long long)row);
}

/* The value at hand as JSON, and go on. */
static enum err record_value(struct parquet *parquet,
                             struct parquet_reader *reader, json_t **out)
{
    const struct parquet_value *value = &reader->next;
    const char *path = reader->column.leaf->path;
    if (!reader->more)
        return parquet_damaged(parquet, "have less than its rows");
    *out = json_null();
    if (value->text != NULL) {
        if (unicode_valid(value->text, value->bytes) != value->bytes ||
            memchr(value->text, 0, value->bytes) != NULL)
            return err_set(ERR_DATA,
                           "%s: column '%s' is no text in UTF-8, or has a NUL "
                           "in it",
                           parquet_place(parquet), path);
        *out = json_stringn((const char *)value->text, value->bytes);
        if (*out == NULL)
            return err_set(ERR_MEMORY, "%s: no memory for a text of %zu bytes",
                           parquet_place(parquet), value->bytes);
    }
    enum err rc =
        parquet_column_next(&reader->column, &reader->next, &reader->more);
    if (rc != ERR_OK)
        json_decref(*out);
    return rc;
}

static bool record_goes_on(const struct parquet_reader *reader)
{
    return reader->more && !reader->next.begins;
}

/* One element of the list that is in these columns: an object of its texts; or the
 * levels, `defined` in each of them, that say that there is none. */
static enum err record_element(struct parquet *parquet,
                               struct parquet_reader *reader, size_t count,
                               int defined, json_t **list)
{
    enum err rc = ERR_OK;
    const int least = reader->column.leaf->list;
    json_t *object = json_object(), *value = NULL;
    for (size_t c = 0; c < count; c++) {
        int here = reader[c].next.defined;
        if (!reader[c].more ||
            (defined < least ? here != defined : here < least))
            TRY_OUT(parquet_damaged(parquet, "have lists of two lengths"));
        TRY_OUT(record_value(parquet, &reader[c], &value));
        if (json_is_null(value))
            json_decref(value);
        else
            jsontext_set(&object,
                         reader[c].column.leaf->path +
                             reader[c].column.leaf->last,
                         value);
        if (record_goes_on(&reader[c]) != record_goes_on(reader))
            TRY_OUT(parquet_damaged(parquet, "have lists of two lengths"));
    }
    if (defined >= least)
        jsontext_append(list, json_incref(object));
out:
    json_decref(object);
    return rc;
}

/* The list in these columns; null where there is none. */
static enum err record_list(struct parquet *parquet,
                            struct parquet_reader *reader, size_t count,
                            json_t **out)
{
    enum err rc = ERR_OK;
    const int defined = reader->next.defined;
    const struct parquet_leaf *leaf = reader->column.leaf;
    *out = defined < leaf->list - 1 ? json_null() : json_array();
    do
        rc =
            json_array_size(*out) < PARQUET_LIST_MAX
                ? record_element(parquet, reader, count, defined, out)
                : err_set(ERR_UNSUPPORTED,
                          "%s: column '%s' has a list of more than %d; write "
                          "it in several rows",
                          parquet_place(parquet), leaf->path, PARQUET_LIST_MAX);
    while (rc == ERR_OK && record_goes_on(reader));
    if (rc != ERR_OK)
        json_decref(*out);
    return rc;
}

/* All that the columns from *first on with one name at the top have. */
static enum err record_field(struct parquet *parquet, size_t *first,
                             json_t **record)
{
    struct parquet_reader *reader = &parquet->reader[*first];
    const struct parquet_leaf *leaf = parquet->chosen[*first];
    json_t *value = NULL;
    size_t count = 1;
    while (*first + count < parquet->count &&
           parquet->chosen[*first + count]->top == leaf->top &&
           strncmp(parquet->chosen[*first + count]->path, leaf->path,
                   leaf->top) == 0)
        count++;
    *first += count;
    if (leaf->repeated > 0)
        TRY(record_list(parquet, reader, count, &value));
    else
        TRY(record_value(parquet, reader, &value));
    jsontext_set_part(record, leaf->path, leaf->top, value);
    return ERR_OK;
}

enum err parquet_next_record(struct parquet *parquet, json_t **out)
{
    bool more = false;
    *out = NULL;
    TRY(parquet_row_next(parquet, true, &more));
    if (!more)
        return ERR_OK;
    json_t *record = json_object();
    for (size_t l = 0; parquet->row == 1 && l < parquet->meta.leaves; l++)
        jsontext_set_part(&record, parquet->meta.leaf[l].path,
                          parquet->meta.leaf[l].top, json_null());
    for (size_t c = 0; c < parquet->count;) {
        enum err rc = record_field(parquet, &c, &record);
        if (rc != ERR_OK) {
            json_decref(record);
            return rc;
        }
    }
    *out = record;
    return record != NULL ? ERR_OK
                          : err_set(ERR_MEMORY, "%s: no memory for a record",
                                    parquet_place(parquet));
}
