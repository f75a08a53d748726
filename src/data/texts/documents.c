/* Opens one input after the other, as text or as JSON lines, or as a data set
 * of texts.
 *
 * Whatever it is, the reader gets spans: bytes of one document, which may come
 * in several, with marks where it begins and ends. Every span has a place from
 * which it can be read again: an offset for a text; for records the line and
 * how much of its text was taken, as a position within a record's JSON would
 * mean nothing after unescaping. From these places an interrupted tokenizing
 * goes on. A file is compared with what it was when it was found, before and
 * after it is read: a set that was made of two states of a file could not be
 * made again. */
#include "src/data/texts/documents.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "src/base/new.h"
#include "src/data/columns/columns.h"
#include "src/data/texts/jsonl.h"
#include "src/data/mds/mds_table.h"
#include "src/text/binary_kind.h"

struct documents {
    const struct inputs *inputs;
    struct documents_options options;
    struct text_place place; /* to open the file at, then of the span */
    struct text *text;       /* what is open; one of these */
    struct jsonl *lines;
    struct mds_table *table;
    struct columns *columns;
    int64_t sample;            /* the table's next */
    struct binary_count count; /* of its texts */
    size_t skip;               /* of the next record's text */
    bool held;                 /* the document at hand */
    int64_t before;            /* bytes of the files before this one */
};

enum err documents_create(const struct inputs *inputs,
                          const struct documents_options *options,
                          struct documents **out)
{
    TRY(text_check_separator(options->separator));
    struct documents *documents = NULL;
    TRY(new_zeroed(&documents, 1));
    documents->inputs = inputs;
    documents->options = *options;
    *out = documents;
    return ERR_OK;
}

static void documents_close(struct documents *documents)
{
    text_close(documents->text);
    jsonl_close(documents->lines);
    mds_table_close(documents->table);
    columns_close(documents->columns);
    documents->columns = NULL;
    documents->table = NULL;
    documents->text = NULL;
    documents->lines = NULL;
}

void documents_destroy(struct documents *documents)
{
    if (documents == NULL)
        return;
    documents_close(documents);
    free(documents);
}

static const struct inputs_file *documents_file(const struct documents *from,
                                                int64_t file)
{
    return &from->inputs->file[file];
}

enum err documents_go(struct documents *documents,
                      const struct text_place *place)
{
    assert(documents->text == NULL && documents->lines == NULL);
    assert(place->file >= 0 &&
           place->file <= (int64_t)documents->inputs->count);
    documents->place = *place;
    documents->held = place->held;
    /* progress counts the files that an earlier process has read, too */
    for (int64_t f = 0; f < place->file; f++)
        if (!documents_file(documents, f)->set)
            documents->before += documents_file(documents, f)->bytes;
    return ERR_OK;
}

static bool documents_is_text(const struct documents *documents, int64_t file)
{
    return inputs_is_text(documents_file(documents, file));
}

static bool documents_is_open(const struct documents *documents)
{
    return documents->text != NULL || documents->lines != NULL ||
           documents->table != NULL || documents->columns != NULL;
}

/* Open the file of the place, and go there. */
static enum err documents_open(struct documents *documents)
{
    const struct text_place *place = &documents->place;
    const struct documents_options *options = &documents->options;
    const struct inputs_file *file = documents_file(documents, place->file);
    TRY(inputs_check(file));
    documents->skip = (size_t)place->skip;
    documents->count = (struct binary_count)BINARY_COUNT_NONE;
    if (file->columns != NULL) {
        TRY(columns_open(file->columns, file->path, options->field,
                         &documents->columns));
        return columns_go(documents->columns, place->offset);
    }
    if (file->set) {
        documents->sample = place->offset;
        TRY(mds_table_open(file->path, &documents->table));
        return mds_table_check(documents->table, options->field);
    }
    if (file->json) {
        struct jsonl_mark mark = { place->offset, place->line };
        TRY(jsonl_open(file->path, &options->source, &documents->lines));
        return mark.line > 0 ? jsonl_go(documents->lines, mark) : ERR_OK;
    }
    TRY(text_open(file->path, options->separator, options->binary,
                  &options->source, &documents->text));
    return text_go(documents->text, *place);
}

/* The text of a record, from where it is gone on with. */
static void documents_give(struct documents *documents, const uint8_t *text,
                           size_t bytes, struct text_span *span)
{
    size_t skip = documents->skip;
    assert(skip <= bytes);
    documents->place.skip = (int64_t)skip;
    documents->skip = 0;
    *span = (struct text_span){ .text = text + skip,
                                .bytes = bytes - skip,
                                .begins = skip == 0,
                                .ends = true,
                                .place = documents->place };
}

/* The next record with a text; *more false: there is none in this file. */
static enum err documents_record(struct documents *documents,
                                 struct text_span *span, bool *more)
{
    struct text_place *place = &documents->place;
    const char *text = NULL;
    size_t bytes = 0, skip = documents->skip;
    /* records without a text are no documents, but for one that is gone on in
     */
    for (;; place->empty++) {
        TRY(jsonl_next_text(documents->lines, documents->options.field, &text,
                            &bytes));
        if (text == NULL || bytes > 0 || skip > 0)
            break;
    }
    if (skip > bytes)
        return err_set(ERR_DATA, "%s: shorter than it was",
                       jsonl_place(documents->lines));
    *more = text != NULL;
    if (text == NULL)
        return ERR_OK;
    struct jsonl_mark mark = jsonl_mark(documents->lines);
    place->offset = mark.offset;
    place->line = mark.line;
    documents_give(documents, (const uint8_t *)text, bytes, span);
    return ERR_OK;
}

/* A column of bytes may hold anything. */
static enum err documents_judge(struct documents *documents, const char *set,
                                const uint8_t *text, size_t bytes)
{
    if (documents->options.binary ||
        binary_count_add(&documents->count, text, bytes))
        return ERR_OK;
    enum err rc = binary_count_refuse(&documents->count, set);
    return err_set(rc, "column '%s' of %s; --binary reads it as it is",
                   documents->options.field, err_text());
}

/* The text of the next row or sample. */
static enum err documents_cell(struct documents *documents,
                               const uint8_t **text, size_t *bytes, bool *more)
{
    struct mds_value value;
    const char *field = documents->options.field;
    struct text_place *place = &documents->place;
    if (documents->columns != NULL) {
        TRY(columns_next_text(documents->columns, text, bytes, more));
        place->offset = columns_row(documents->columns);
        return ERR_OK;
    }
    *more = documents->sample < mds_table_index(documents->table)->samples;
    if (!*more)
        return ERR_OK;
    place->offset = documents->sample++;
    TRY(mds_table_read(documents->table, place->offset, field, &value));
    if (value.kind != MDS_STR && value.kind != MDS_BYTES)
        return err_set(
            ERR_USAGE,
            "%s: column '%s' is no text, which is a column of str or "
            "bytes",
            documents_file(documents, place->file)->path, field);
    *text = value.column.data;
    *bytes = value.column.bytes;
    return ERR_OK;
}

/* The next row or sample with a text. */
static enum err documents_sample(struct documents *documents,
                                 struct text_span *span, bool *more)
{
    const struct source_options *watch = &documents->options.source;
    const uint8_t *text = NULL;
    char name[512];
    size_t bytes = 0, skip = documents->skip;
    const char *path = documents_file(documents, documents->place.file)->path;
    for (;; documents->place.empty++) {
        TRY(documents_cell(documents, &text, &bytes, more));
        if (!*more)
            return documents_judge(documents, path, NULL, 0);
        if (skip > bytes) {
            documents_name(documents, &documents->place, name, sizeof name);
            return err_set(ERR_DATA, "%s: shorter than it was", name);
        }
        if (bytes > 0)
            break;
        if (watch->idle != NULL && documents->place.offset % 65536 == 0)
            TRY(watch->idle(watch->context));
    }
    TRY(documents_judge(documents, path, text, bytes));
    documents_give(documents, text, bytes, span);
    if (documents->table != NULL)
        documents->before += (int64_t)span->bytes;
    return ERR_OK;
}

static enum err documents_text(struct documents *documents,
                               struct text_span *span, bool *more)
{
    TRY(text_next(documents->text, span, more));
    span->place.empty = documents->place.empty;
    documents->place = span->place;
    return ERR_OK;
}

bool documents_are_held(const void *text, size_t bytes, uint64_t seed,
                        double share)
{
    return (double)(XXH64(text, bytes, seed) >> 11) * 0x1p-53 < share;
}

/* Whether its document is held out: the same wherever it is gone on with. */
static void documents_hold(struct documents *documents, struct text_span *span)
{
    const struct documents_options *options = &documents->options;
    const struct text_place *place = &span->place;
    const char *path = documents_file(documents, place->file)->path;
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    if (!documents_is_text(documents, place->file))
        documents->held = documents_are_held(span->text - place->skip,
                                             span->bytes + (size_t)place->skip,
                                             options->seed, options->holdout);
    else if (span->begins)
        documents->held = documents_are_held(
            name, strlen(name), options->seed ^ XXH64(&place->offset, 8, 0),
            options->holdout);
    span->place.held = documents->place.held = documents->held;
}

enum err documents_next(struct documents *documents, struct text_span *span,
                        bool *more)
{
    *more = false;
    while (documents->place.file < (int64_t)documents->inputs->count) {
        if (!documents_is_open(documents))
            TRY(documents_open(documents));
        TRY(documents->lines != NULL ? documents_record(documents, span, more)
            : documents->text != NULL
                ? documents_text(documents, span, more)
                : documents_sample(documents, span, more));
        if (*more && documents->options.holdout > 0)
            documents_hold(documents, span);
        if (*more)
            return ERR_OK;
        int64_t file = documents->place.file;
        TRY(inputs_check(documents_file(documents, file)));
        documents_close(documents);
        if (!documents_file(documents, file)->set)
            documents->before += documents_file(documents, file)->bytes;
        /* the next file from its beginning */
        documents->place =
            (struct text_place){ .file = file + 1,
                                 .empty = documents->place.empty };
    }
    return ERR_OK;
}

int64_t documents_empty(const struct documents *documents)
{
    return documents->place.empty;
}

int64_t documents_done(const struct documents *documents)
{
    return documents->before +
           (documents->text != NULL      ? text_position(documents->text)
            : documents->lines != NULL   ? jsonl_position(documents->lines)
            : documents->columns != NULL ? columns_position(documents->columns)
                                         : 0);
}

struct text_place documents_at(const struct documents *documents,
                               const struct text_span *span, size_t at)
{
    struct text_place place = span->place;
    assert(at <= span->bytes);
    if (!documents_is_text(documents, place.file)) {
        place.skip += (int64_t)at;
    } else if (at > 0) {
        place.offset += (int64_t)at;
        place.inside = true;
        place.midline = span->text[at - 1] != '\n';
    }
    return place;
}

struct text_place documents_back(const struct documents *documents,
                                 struct text_place place, size_t bytes,
                                 uint8_t last)
{
    /* what is not text counts bytes of one record's text, where a part lies */
    if (bytes == 0)
        return place;
    if (!documents_is_text(documents, place.file)) {
        place.skip -= (int64_t)bytes;
        assert(place.skip >= 0);
    } else {
        place.offset -= (int64_t)bytes;
        place.inside = true;
        place.midline = last != '\n';
        assert(place.offset >= 0);
    }
    return place;
}

void documents_name(const struct documents *documents,
                    const struct text_place *place, char *text, size_t bytes)
{
    const struct inputs_file *file = documents_file(documents, place->file);
    const char *path = strcmp(file->path, "-") == 0 ? "stdin" : file->path;
    if (file->set)
        snprintf(text, bytes, "%s: sample %lld", path,
                 (long long)place->offset);
    else if (file->columns != NULL)
        snprintf(text, bytes, "%s: row %lld", path, (long long)place->offset);
    else if (file->json)
        snprintf(text, bytes, "%s:%lld", path, (long long)place->line);
    else
        snprintf(text, bytes, "%s", path);
}
