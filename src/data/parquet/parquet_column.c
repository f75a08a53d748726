/* Gives the values of a column, page by page.
 *
 * A page has the levels of its values and then the values that are there, in one
 * of five encodings; what they are packed with is undone for the page as a whole
 * (parquet_page.c). Lengths are compared with what is left of the page before a
 * byte is touched, so that none of them is believed. */
#include "src/data/parquet/parquet_impl.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Values of a page of one of the delta encodings. */
#define COLUMN_DELTAS_MAX ((size_t)1 << 26)

void parquet_column_begin(struct parquet_column *column, size_t group,
                          const struct parquet_chunk *chunk)
{
    column->group = group;
    column->chunk = *chunk;
    column->values = 0;
    column->entries = 0;
}

void parquet_column_release(struct parquet_column *column)
{
    buffer_free(&column->head);
    buffer_free(&column->packed);
    buffer_free(&column->page);
    buffer_free(&column->dictionary);
    buffer_free(&column->last);
    free(column->entry);
    free(column->lengths.length);
    free(column->prefixes.length);
    *column = (struct parquet_column){ .meta = column->meta };
}

static enum err column_damaged(void)
{
    return err_set(ERR_DATA, "is damaged");
}

/* `bytes` of the page. */
static enum err column_take(struct thrift *data, size_t bytes,
                            const uint8_t **text)
{
    if (bytes > (size_t)(data->end - data->at))
        return column_damaged();
    *text = data->at;
    data->at += bytes;
    return ERR_OK;
}

/* A text behind its length. */
static enum err column_plain(struct thrift *data, struct parquet_text *out)
{
    const uint8_t *head = NULL;
    TRY(column_take(data, 4, &head));
    out->bytes = (size_t)head[0] | (size_t)head[1] << 8 |
                 (size_t)head[2] << 16 | (size_t)head[3] << 24;
    return column_take(data, out->bytes, &out->data);
}

/* The page at hand is a dictionary. */
static enum err column_dictionary(struct parquet_column *column,
                                  const struct parquet_page *page)
{
    if (page->encoding != PARQUET_PLAIN &&
        page->encoding != PARQUET_PLAIN_DICTIONARY)
        return parquet_page_unknown(page->encoding);
    /* each entry has four bytes at least, so none is claimed that is not there */
    if (page->values < 0 || page->values > (int64_t)column->page.bytes / 4)
        return column_damaged();
    struct buffer kept = column->dictionary;
    column->dictionary = column->page;
    column->page = kept;
    struct thrift data = { column->dictionary.data,
                           column->dictionary.data + column->dictionary.bytes,
                           false, 0 };
    TRY(array_room(&column->entry, &column->entries_capacity,
                   page->values + 1));
    column->entries = 0;
    while (column->entries < (size_t)page->values) {
        TRY(column_plain(&data, &column->entry[column->entries]));
        column->entries++;
    }
    return ERR_OK;
}

/* The values of the page, behind its levels. */
static enum err column_values(struct parquet_column *column)
{
    struct thrift *data = &column->data;
    const uint8_t *width = NULL;
    size_t most = (size_t)column->values;
    column->at = column->lengths.count = column->last.bytes = 0;
    switch (column->encoding) {
    case PARQUET_PLAIN:
        return ERR_OK;
    case PARQUET_PLAIN_DICTIONARY:
    case PARQUET_RLE_DICTIONARY:
        column->places = (struct parquet_runs){ .bytes = *data };
        if (data->at == data->end) /* no value is there */
            return ERR_OK;
        TRY(column_take(&column->places.bytes, 1, &width));
        column->places.width = *width;
        return *width <= 32 ? ERR_OK : column_damaged();
    case PARQUET_DELTA_LENGTH:
    case PARQUET_DELTA:
        if (data->at == data->end)
            return ERR_OK;
        if (most > COLUMN_DELTAS_MAX)
            return err_set(ERR_UNSUPPORTED, "has a page of too many values");
        if (column->encoding == PARQUET_DELTA)
            TRY(parquet_runs_lengths(data, most, &column->prefixes));
        TRY(parquet_runs_lengths(data, most, &column->lengths));
        return column->encoding == PARQUET_DELTA &&
                       column->prefixes.count != column->lengths.count
                   ? column_damaged()
                   : ERR_OK;
    default:
        return parquet_page_unknown(column->encoding);
    }
}

/* The next value that is there. */
static enum err column_text(struct parquet_column *column,
                            struct parquet_text *out)
{
    if (column->encoding == PARQUET_PLAIN)
        return column_plain(&column->data, out);
    if (column->encoding != PARQUET_DELTA_LENGTH &&
        column->encoding != PARQUET_DELTA) {
        uint32_t place = parquet_runs_next(&column->places);
        if (column->places.bytes.bad || place >= column->entries)
            return column_damaged();
        *out = column->entry[place];
        return ERR_OK;
    }
    if (column->at == column->lengths.count)
        return column_damaged();
    size_t at = column->at++;
    out->bytes = column->lengths.length[at];
    TRY(column_take(&column->data, out->bytes, &out->data));
    if (column->encoding == PARQUET_DELTA_LENGTH)
        return ERR_OK;
    struct buffer *last = &column->last;
    if (column->prefixes.length[at] > last->bytes)
        return column_damaged();
    last->bytes = column->prefixes.length[at];
    TRY(buffer_add(last, out->data, out->bytes));
    *out = (struct parquet_text){ last->data, last->bytes };
    return ERR_OK;
}

/* The next page with values. */
static enum err column_page(struct parquet_column *column)
{
    struct parquet_page page;
    TRY(parquet_page_read(column, &page));
    if (page.kind == PARQUET_DICTIONARY)
        return column_dictionary(column, &page);
    if (page.kind != PARQUET_DATA)
        return ERR_OK;
    if (page.values < 0 || page.values > column->chunk.values)
        return column_damaged();
    column->values = page.values;
    column->chunk.values -= page.values;
    column->encoding = page.encoding;
    return column_values(column);
}

static enum err column_value(struct parquet_column *column,
                             struct parquet_value *out)
{
    const struct parquet_leaf *leaf = column->leaf;
    struct parquet_text text = { NULL, 0 };
    uint32_t repeated = 0, defined = 0;
    if (leaf->repeated > 0)
        repeated = parquet_runs_next(&column->repeated);
    if (leaf->defined > 0)
        defined = parquet_runs_next(&column->defined);
    if (column->repeated.bytes.bad || column->defined.bytes.bad ||
        repeated > (uint32_t)leaf->repeated ||
        defined > (uint32_t)leaf->defined)
        return column_damaged();
    column->values--;
    if (defined == (uint32_t)leaf->defined) {
        TRY(column_text(column, &text));
        if (text.bytes == 0)
            text.data = (const uint8_t *)"";
    }
    *out = (struct parquet_value){ repeated == 0, (int)defined, text.data,
                                   text.bytes };
    return ERR_OK;
}

enum err parquet_column_next(struct parquet_column *column,
                             struct parquet_value *out, bool *more)
{
    enum err rc = ERR_OK;
    while (rc == ERR_OK && column->values == 0 && column->chunk.values > 0)
        rc = column_page(column);
    *more = rc == ERR_OK && column->values > 0;
    if (*more)
        rc = column_value(column, out);
    if (rc == ERR_OK || rc == ERR_MEMORY || rc == ERR_IO)
        return rc;
    err_set(rc, "%s: row group %zu: column '%s' %s; %s", column->meta->path,
            column->group, column->leaf->path, err_text(),
            rc == ERR_DATA ? "copy or make the file again"
                           : "write the file again, with pyarrow's defaults");
    return rc;
}
