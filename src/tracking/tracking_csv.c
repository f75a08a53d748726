/* Sink: RUN/metrics.csv, a row for each record: step, time, then the record's
 * numbers in the columns of their names; an empty cell where it has none.
 *
 * Columns are those of the first record. When a later one has names that are
 * new, as the first evaluation does, the file is written anew with these
 * columns behind the others, so that it always is one table. A run that goes
 * back cuts off the rows that come again. Names have no character that a cell
 * would have to be quoted for (tracking_record.h).
 *
 * The new table is a file of its own until it is whole, and then takes the
 * other's place: a reader sees one or the other. */
#include <assert.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/array.h"
#include "src/base/fsio.h"
#include "src/base/jsontext.h"
#include "src/base/new.h"
#include "src/base/regular.h"
#include "src/tracking/tracking_sink.h"

#define FIRST "step,time"
#define LINE_BYTES_MAX ((size_t)4 << 20) /* that is read */

struct csv {
    int fd;
    bool opened;
    char path[FSIO_PATH_MAX];
    struct tracking_map *columns; /* behind the first two */
    int written; /* columns that the file's first line has; -1: no line */
    struct cell {
        double value;
        bool there;
    } * row; /* [room] of one record */
    int room;
    struct buffer out;
};

static bool csv_wanted(const struct tracking_settings *settings)
{
    return settings->csv;
}

static enum err csv_open(void *self, const struct tracking_options *options)
{
    struct csv *csv = self;
    csv->fd = -1;
    csv->opened = true;
    csv->written = -1;
    TRY(fsio_path(csv->path, "%s/metrics.csv", options->run_dir));
    TRY(tracking_map_create(&csv->columns));
    return regular_open_at(AT_FDCWD, csv->path, O_RDWR | O_CREAT,
                           REGULAR_NO_LINK, csv->path, &csv->fd);
}

static void csv_close(void *self)
{
    struct csv *csv = self;
    if (csv->opened && csv->fd >= 0)
        close(csv->fd);
    tracking_map_destroy(csv->columns);
    free(csv->row);
    buffer_free(&csv->out);
}

/* --- what is there ---------------------------------------------------------- */

static enum err csv_read_columns(struct csv *csv, char *line)
{
    char clean[TRACKING_NAME_BYTES];
    int number;
    char *rest = line + strlen(FIRST);
    bool ours = strncmp(line, FIRST, strlen(FIRST)) == 0 &&
                (*rest == ',' || *rest == '\0');
    csv->written = 0;
    for (char *name; ours && (name = strtok_r(rest, ",", &rest)) != NULL;) {
        ours = tracking_name_clean(name, clean) &&
               tracking_map_find(csv->columns, name) < 0;
        if (ours)
            TRY(tracking_map_add(csv->columns, name, &number));
        csv->written++;
    }
    if (!ours)
        return err_set(ERR_SPACE,
                       "%s: its first line is none of ours: move it away",
                       csv->path);
    return ERR_OK;
}

/* A reader of its own, from the file's beginning: the copied descriptor shares its
 * place with the other, but all that is written is put at the end. */
static enum err csv_reader(const struct csv *csv, FILE **file)
{
    int copy = fcntl(csv->fd, F_DUPFD_CLOEXEC, 0);
    *file = copy >= 0 ? fdopen(copy, "r") : NULL;
    if (*file == NULL) {
        enum err rc = err_errno("%s: read", csv->path);
        fsio_close(copy);
        return rc;
    }
    rewind(*file);
    return ERR_OK;
}

/* The next line with its end, which a torn one lacks, and a NUL; 0 bytes: there
 * is none. `line` has room for LINE_BYTES_MAX + 1. */
static enum err csv_line(const struct csv *csv, FILE *file, char *line,
                         size_t *bytes)
{
    int c = 0;
    *bytes = 0;
    while (c != '\n' && (c = getc_unlocked(file)) != EOF) {
        if (*bytes == LINE_BYTES_MAX)
            return err_set(ERR_SPACE,
                           "%s: a line has more than %zu MiB, which is none "
                           "of ours: move the file away",
                           csv->path, LINE_BYTES_MAX >> 20);
        line[(*bytes)++] = (char)c;
    }
    line[*bytes] = '\0';
    return ERR_OK;
}

/* Rows of later steps, and a row that a crash has torn, are cut off. */
static enum err csv_begin(void *self, int64_t step)
{
    enum err rc = ERR_OK;
    struct csv *csv = self;
    FILE *file = NULL;
    char *line = NULL;
    size_t bytes;
    off_t keep = 0;
    TRY(new_room(&line, LINE_BYTES_MAX + 1));
    tracking_map_destroy(csv->columns);
    csv->columns = NULL;
    csv->written = -1;
    TRY_OUT(tracking_map_create(&csv->columns));
    TRY_OUT(csv_reader(csv, &file));
    for (;;) {
        char *end;
        TRY_OUT(csv_line(csv, file, line, &bytes));
        if (bytes == 0 || line[bytes - 1] != '\n')
            break;
        line[bytes - 1] = '\0';
        if (csv->written < 0)
            TRY_OUT(csv_read_columns(csv, line));
        else if (strtoll(line, &end, 10) > step || end == line || *end != ',')
            break;
        keep += (off_t)bytes;
    }
    if (ferror(file))
        rc = err_errno("%s: read", csv->path);
    else if (ftruncate(csv->fd, keep) != 0)
        rc = err_errno("%s: cut off rows that come again", csv->path);
out:
    if (file != NULL)
        fclose(file);
    free(line);
    return rc;
}

/* --- new columns ------------------------------------------------------------ */

static enum err csv_header(const struct csv *csv, FILE *file)
{
    fputs(FIRST, file);
    for (int i = 0; i < tracking_map_count(csv->columns); i++)
        fprintf(file, ",%s", tracking_map_name(csv->columns, i));
    fputc('\n', file);
    return ferror(file) ? err_errno("%s: write", csv->path) : ERR_OK;
}

/* The rows that are there, each with as many cells more. */
static enum err csv_rows(const struct csv *csv, FILE *file)
{
    enum err rc = ERR_OK;
    FILE *old = NULL;
    char *line = NULL;
    size_t bytes;
    TRY(new_room(&line, LINE_BYTES_MAX + 1));
    TRY_OUT(csv_reader(csv, &old));
    TRY_OUT(csv_line(csv, old, line, &bytes)); /* the old first line */
    while (bytes > 0) {
        TRY_OUT(csv_line(csv, old, line, &bytes));
        if (bytes == 0)
            break;
        line[strcspn(line, "\n")] = '\0';
        fputs(line, file);
        for (int i = csv->written; i < tracking_map_count(csv->columns); i++)
            fputc(',', file);
        fputc('\n', file);
    }
    if (ferror(old) || ferror(file))
        rc = err_errno("%s: write it with more columns", csv->path);
out:
    free(line);
    if (old != NULL)
        fclose(old);
    return rc;
}

/* The same table with the columns that are known now. */
/* Cells that are new are empty in all rows before. It costs a copy of the file,
 * but names come in a run's first steps, and a table with another first line in
 * its middle would be none. */
static enum err csv_widen(struct csv *csv)
{
    enum err rc = ERR_OK;
    char temporary[FSIO_PATH_MAX];
    int new = -1, fd = -1;
    TRY(fsio_create_temporary(csv->path, temporary, &new));
    FILE *file = fdopen(new, "w");
    if (file == NULL) {
        rc = err_errno("%s: write", temporary);
        close(new);
        goto out;
    }
    TRY_OUT(csv_header(csv, file));
    TRY_OUT(csv_rows(csv, file));
    TRY_OUT(regular_open_at(AT_FDCWD, temporary, O_RDWR, REGULAR_NO_LINK,
                            temporary, &fd));
    bool flushed = fclose(file) == 0;
    file = NULL;
    if (!flushed || rename(temporary, csv->path) != 0)
        TRY_OUT(err_errno("%s: write it with more columns", csv->path));
    close(csv->fd);
    csv->fd = fd;
    fd = -1;
    csv->written = tracking_map_count(csv->columns);
out:
    if (file != NULL)
        fclose(file);
    fsio_close(fd);
    if (rc != ERR_OK)
        unlink(temporary);
    return rc;
}

/* --- rows ------------------------------------------------------------------- */

static enum err csv_row(struct csv *csv, const struct tracking_record *record)
{
    char cell[64], number[JSONTEXT_NUMBER_BYTES];
    int columns = tracking_map_count(csv->columns);
    if (record->count == 0)
        return ERR_OK;
    memset(csv->row, 0, (size_t)columns * sizeof csv->row[0]);
    for (int i = 0; i < record->count; i++) {
        int column = tracking_map_find(csv->columns, record->scalars[i].name);
        assert(column >= 0 && column < csv->room); /* csv_write() adds them */
        csv->row[column] = (struct cell){ record->scalars[i].value, true };
    }
    int bytes = snprintf(cell, sizeof cell, "%" PRId64 ",%.3f", record->step,
                         record->time_s);
    TRY(buffer_add(&csv->out, cell, (size_t)bytes));
    for (int i = 0; i < columns; i++) {
        double value = csv->row[i].value;
        jsontext_number(value, number);
        if (!isfinite(value)) /* readers of CSV know nan and inf */
            snprintf(number, sizeof number, "%g", value);
        bytes =
            snprintf(cell, sizeof cell, ",%s", csv->row[i].there ? number : "");
        TRY(buffer_add(&csv->out, cell, (size_t)bytes));
    }
    return buffer_add(&csv->out, "\n", 1);
}

static enum err
csv_write(void *self, const struct tracking_record *const *records, int count)
{
    struct csv *csv = self;
    int number;
    csv->out.bytes = 0;
    for (int r = 0; r < count; r++)
        for (int i = 0; i < records[r]->count; i++)
            TRY(tracking_map_add(csv->columns, records[r]->scalars[i].name,
                                 &number));
    TRY(array_room(&csv->row, &csv->room, tracking_map_count(csv->columns)));
    if (csv->written < tracking_map_count(csv->columns))
        TRY(csv_widen(csv));
    for (int r = 0; r < count; r++)
        TRY(csv_row(csv, records[r]));
    return regular_append(csv->fd, csv->path, csv->out.data, csv->out.bytes);
}

const struct tracking_sink_ops tracking_csv_ops = {
    .name = "csv",
    .bytes = sizeof(struct csv),
    .wanted = csv_wanted,
    .open = csv_open,
    .begin = csv_begin,
    .write = csv_write,
    .close = csv_close,
};
