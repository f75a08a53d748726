/* Gives the values of a column, page by page.
 *
 * A page has the levels of its values and then the values that are there, in one
 * of five encodings; what they are packed with is undone for the page as a whole.
 * In the first version of data pages levels are packed with the values, each behind
 * its length; in the second one they lie before them, their lengths are in the
 * head, and the values alone are packed. Lengths are compared with what is left of
 * the page before a byte is touched, so that none of them is believed. */
#include "src/data/parquet/parquet_impl.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "src/base/fsio.h"
#include "src/data/codec/codec.h"

/* Encodings, by the format's numbers. */
enum {
    PARQUET_PLAIN = 0,
    PARQUET_PLAIN_DICTIONARY = 2,
    PARQUET_RLE = 3,
    PARQUET_DELTA_LENGTH = 6,
    PARQUET_DELTA = 7, /* DELTA_BYTE_ARRAY */
    PARQUET_RLE_DICTIONARY = 8,
};

/* Values of a page of one of the delta encodings. */
#define COLUMN_DELTAS_MAX ((size_t)1 << 26)

/* A head is some 50 bytes, or, with what it tells of its values, many more. */
#define PAGE_HEAD_BYTES ((size_t)1 << 12)
#define PAGE_HEAD_BYTES_MAX ((size_t)1 << 24)

static const struct {
    const char *name;
    const struct codec_ops *ops; /* NULL: it is not packed, or not read here */
} page_codecs[] = {
    { "none", NULL },
    { "snappy", &codec_snappy_ops },
    { "gzip", &codec_gz_ops },
    { "LZO", NULL },
    { "brotli", &codec_br_ops },
    { "Hadoop's LZ4", NULL },
    { "zstd", &codec_zstd_ops },
    { "lz4_raw", &codec_lz4_ops },
};
#define PAGE_CODECS ((int64_t)(sizeof page_codecs / sizeof *page_codecs))

struct page_head {
    int64_t type, bytes, packed_bytes, sum;
    int64_t values, encoding, defined_as, repeated_as;
    int64_t defined_bytes, repeated_bytes; /* -1: each behind its length */
    bool packed;
};

#define PAGE_NO_SUM INT64_MAX

enum { PAGE_DATA, PAGE_INDEX, PAGE_DICTIONARY, PAGE_DATA_V2 };

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
static enum err column_plain(struct thrift *data, struct thrift_text *out)
{
    const uint8_t *head = NULL;
    TRY(column_take(data, 4, &head));
    out->bytes = (size_t)head[0] | (size_t)head[1] << 8 |
                 (size_t)head[2] << 16 | (size_t)head[3] << 24;
    return column_take(data, out->bytes, &out->data);
}

static enum err page_unknown(int64_t encoding)
{
    static const char *const names[] = { [4] = "BIT_PACKED",
                                         [5] = "DELTA_BINARY_PACKED",
                                         [9] = "BYTE_STREAM_SPLIT" };
    const char *name = encoding >= 0 && encoding <= 9 ? names[encoding] : NULL;
    return err_set(ERR_UNSUPPORTED,
                   "has a page in the encoding %s (%lld), which texts are not "
                   "read in here",
                   name != NULL ? name : "unknown", (long long)encoding);
}

/* A page has the head of its kind in a field: 5 is data, 7 a dictionary, 8 data of
 * the second version. */
static void page_read_head(struct thrift *thrift, struct page_head *head)
{
    struct thrift_field field = { 0, 0 };
    int64_t all[5] = { [4] = PAGE_NO_SUM }, kind[8] = { [1] = -1, [7] = 1 };
    bool second = false;
    while (thrift_next(thrift, &field))
        if (field.id < 5) {
            all[field.id] = thrift_int(thrift, &field);
        } else if (field.type == THRIFT_STRUCT &&
                   (field.id == 5 || field.id == 7 || field.id == 8)) {
            second = field.id == 8;
            thrift_struct(thrift, kind, 8, NULL);
        } else {
            thrift_skip(thrift, &field);
        }
    *head = (struct page_head){
        .type = all[1],
        .bytes = all[2],
        .packed_bytes = all[3],
        .sum = all[4],
        .values = kind[1],
        .encoding = second ? kind[4] : kind[2],
        .defined_as = second ? PARQUET_RLE : kind[3],
        .repeated_as = second ? PARQUET_RLE : kind[4],
        .defined_bytes = second ? kind[5] : -1,
        .repeated_bytes = second ? kind[6] : -1,
        .packed = !second || kind[7] != 0,
    };
}

/* The head of the next page: read with more behind it, until it is whole. */
static enum err page_head(struct parquet_column *column, struct page_head *head)
{
    struct parquet_chunk *chunk = &column->chunk;
    for (size_t bytes = PAGE_HEAD_BYTES;; bytes *= 16) {
        int64_t rest = chunk->end - chunk->begin;
        size_t part = rest < (int64_t)bytes ? (size_t)rest : bytes;
        if (part == 0)
            return err_set(ERR_DATA, "has less values than it says");
        column->head.bytes = 0;
        TRY(buffer_reserve(&column->head, part));
        TRY(fsio_pread(column->meta->file.fd, column->head.data, part,
                       chunk->begin, column->meta->file.path));
        struct thrift thrift = { column->head.data, column->head.data + part,
                                 false, 0 };
        page_read_head(&thrift, head);
        chunk->begin += thrift.bad ? 0 : thrift.at - column->head.data;
        if (!thrift.bad)
            break;
        if (part < bytes || bytes >= PAGE_HEAD_BYTES_MAX)
            return err_set(ERR_DATA, "has a page whose head is damaged");
    }
    if (head->packed_bytes < 0 ||
        head->packed_bytes > chunk->end - chunk->begin || head->bytes < 0)
        return err_set(ERR_DATA, "has a page that does not lie in it");
    return head->bytes <= PARQUET_PAGE_BYTES_MAX &&
                   head->packed_bytes <= PARQUET_PAGE_BYTES_MAX
               ? ERR_OK
               : err_set(ERR_UNSUPPORTED,
                         "has a page of %lld bytes, more than the %lld that "
                         "are read here",
                         (long long)head->bytes,
                         (long long)PARQUET_PAGE_BYTES_MAX);
}

/* Unpack what is in column->packed behind its first `plain` bytes, which are not
 * packed, into column->page, which they begin. */
static enum err page_unpack(struct parquet_column *column, size_t plain,
                            size_t bytes)
{
    int64_t codec = column->chunk.codec;
    struct buffer *packed = &column->packed, *page = &column->page;
    if (codec < 0 || codec >= PAGE_CODECS)
        return err_set(ERR_UNSUPPORTED, "is packed with what is unknown (%lld)",
                       (long long)codec);
    if (page_codecs[codec].ops == NULL)
        return err_set(ERR_UNSUPPORTED,
                       "is packed with %s, which is not read here",
                       page_codecs[codec].name);
    page->bytes = 0;
    TRY(buffer_reserve(page, bytes + 1));
    if (plain > 0)
        memcpy(page->data, packed->data, plain);
    page->bytes = bytes;
    return codec_unpack_bytes(page_codecs[codec].ops, page_codecs[codec].name,
                              packed->data + plain, packed->bytes - plain,
                              page->data + plain, bytes - plain);
}

/* The page's bytes, in column->page. */
static enum err page_bytes(struct parquet_column *column,
                           const struct page_head *head)
{
    struct buffer *packed = &column->packed;
    struct parquet_chunk *chunk = &column->chunk;
    size_t bytes = (size_t)head->packed_bytes, plain = 0;
    packed->bytes = 0;
    TRY(buffer_reserve(packed, bytes + 1));
    TRY(fsio_pread(column->meta->file.fd, packed->data, bytes, chunk->begin,
                   column->meta->file.path));
    packed->bytes = bytes;
    chunk->begin += head->packed_bytes;
    if (head->sum != PAGE_NO_SUM &&
        (uint32_t)crc32(0, packed->data, (unsigned)bytes) !=
            (uint32_t)head->sum)
        return err_set(ERR_DATA, "has a page that is not what its sum says");
    if (head->type == PAGE_DATA_V2) {
        if (head->defined_bytes < 0 || head->repeated_bytes < 0 ||
            head->defined_bytes > head->packed_bytes ||
            head->repeated_bytes > head->packed_bytes - head->defined_bytes ||
            head->repeated_bytes + head->defined_bytes > head->bytes)
            return err_set(ERR_DATA, "has a page with levels beyond its end");
        plain = (size_t)(head->defined_bytes + head->repeated_bytes);
    }
    /* values that there are none of need not be packed */
    if (column->chunk.codec != 0 && head->packed && bytes > plain)
        return page_unpack(column, plain, (size_t)head->bytes);
    if (head->bytes != head->packed_bytes && bytes > plain)
        return err_set(ERR_DATA, "has a page of two lengths");
    struct buffer kept = column->page; /* what was read is the page */
    column->page = *packed;
    *packed = kept;
    return ERR_OK;
}

/* Levels up to `most`, of `bytes` of what follows; -1: behind their length. */
static enum err page_levels(struct thrift *data, int most, int64_t bytes,
                            struct parquet_runs *out)
{
    struct thrift_text levels = { NULL, (size_t)bytes };
    *out = (struct parquet_runs){ .width = 0 };
    if (bytes < 0 && most == 0)
        return ERR_OK;
    TRY(bytes < 0 ? column_plain(data, &levels)
                  : column_take(data, levels.bytes, &levels.data));
    out->bytes.at = levels.data;
    out->bytes.end = levels.data + levels.bytes;
    while (most >> out->width > 0)
        out->width++;
    return ERR_OK;
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

/* The page at hand is a dictionary. */
static enum err column_dictionary(struct parquet_column *column,
                                  const struct page_head *page)
{
    if (page->encoding != PARQUET_PLAIN &&
        page->encoding != PARQUET_PLAIN_DICTIONARY)
        return page_unknown(page->encoding);
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
        return page_unknown(column->encoding);
    }
}

/* The next value that is there. */
static enum err column_text(struct parquet_column *column,
                            struct thrift_text *out)
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
    *out = (struct thrift_text){ last->data, last->bytes };
    return ERR_OK;
}

/* The next page: a dictionary, or values behind their levels. */
static enum err column_page(struct parquet_column *column)
{
    const struct columns_leaf *leaf = column->leaf;
    struct thrift *data = &column->data;
    struct page_head head = { .type = 0 };
    TRY(page_head(column, &head));
    if (head.type == PAGE_INDEX) {
        column->chunk.begin += head.packed_bytes;
        return ERR_OK;
    }
    if (head.type < 0 || head.type > PAGE_DATA_V2)
        return err_set(ERR_UNSUPPORTED, "has a page of an unknown kind");
    TRY(page_bytes(column, &head));
    if (head.type == PAGE_DICTIONARY)
        return column_dictionary(column, &head);
    if (leaf->repeated > 0 && head.repeated_as != PARQUET_RLE)
        return page_unknown(head.repeated_as);
    if (leaf->defined > 0 && head.defined_as != PARQUET_RLE)
        return page_unknown(head.defined_as);
    *data = (struct thrift){ .at = column->page.data,
                             .end = column->page.data + column->page.bytes };
    TRY(page_levels(data, leaf->repeated, head.repeated_bytes,
                    &column->repeated));
    TRY(page_levels(data, leaf->defined, head.defined_bytes, &column->defined));
    if (head.values < 0 || head.values > column->chunk.values)
        return column_damaged();
    column->values = head.values;
    column->chunk.values -= head.values;
    column->encoding = head.encoding;
    return column_values(column);
}

static enum err column_value(struct parquet_column *column,
                             struct columns_value *out)
{
    const struct columns_leaf *leaf = column->leaf;
    struct thrift_text text = { NULL, 0 };
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
    *out = (struct columns_value){ repeated == 0, (int)defined, text.data,
                                   text.bytes };
    return ERR_OK;
}

enum err parquet_column_next(struct parquet_column *column,
                             struct columns_value *out, bool *more)
{
    enum err rc = ERR_OK;
    while (rc == ERR_OK && column->values == 0 && column->chunk.values > 0)
        rc = column_page(column);
    *more = rc == ERR_OK && column->values > 0;
    if (*more)
        rc = column_value(column, out);
    return rc;
}
