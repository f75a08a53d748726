/* Reads a page: its head, its bytes, the sum of these, and what is in them.
 *
 * In the first version of data pages levels are packed with the values, each
 * behind its length; in the second one they lie before them, their lengths are in
 * the head, and the values alone are packed. */
#include "src/data/parquet/parquet_impl.h"

#include <string.h>
#include <zlib.h>

#include "src/base/fsio.h"
#include "src/data/codec/codec.h"

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

enum err parquet_page_unknown(int64_t encoding)
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
            thrift_numbers(thrift, kind, 8);
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
        TRY(fsio_pread(column->meta->fd, column->head.data, part, chunk->begin,
                       column->meta->path));
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
    if (codec < 0 || codec >= PAGE_CODECS || page_codecs[codec].ops == NULL)
        return err_set(
            ERR_UNSUPPORTED, "is packed with %s (%lld), which is not read here",
            codec >= 0 && codec < PAGE_CODECS ? page_codecs[codec].name
                                              : "what is unknown",
            (long long)codec);
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
    TRY(fsio_pread(column->meta->fd, packed->data, bytes, chunk->begin,
                   column->meta->path));
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
    *out = (struct parquet_runs){ .width = 0 };
    if (bytes < 0 && most == 0)
        return ERR_OK;
    size_t rest = (size_t)(data->end - data->at);
    if (bytes < 0 && rest >= 4) {
        bytes = data->at[0] | data->at[1] << 8 | data->at[2] << 16 |
                (int64_t)data->at[3] << 24;
        data->at += 4;
        rest -= 4;
    }
    if (bytes < 0 || (size_t)bytes > rest)
        return err_set(ERR_DATA, "has a page with levels beyond its end");
    out->bytes = (struct thrift){ data->at, data->at + bytes, false, 0 };
    data->at += bytes;
    while (most >> out->width > 0)
        out->width++;
    return ERR_OK;
}

enum err parquet_page_read(struct parquet_column *column,
                           struct parquet_page *out)
{
    struct page_head head = { .type = 0 };
    const struct parquet_leaf *leaf = column->leaf;
    TRY(page_head(column, &head));
    bool second = head.type == PAGE_DATA_V2;
    *out =
        (struct parquet_page){ head.type == PAGE_DICTIONARY ? PARQUET_DICTIONARY
                               : head.type == PAGE_DATA || second
                                   ? PARQUET_DATA
                                   : PARQUET_OTHER,
                               head.values, head.encoding };
    if (out->kind == PARQUET_OTHER) {
        column->chunk.begin += head.packed_bytes;
        return head.type == PAGE_INDEX
                   ? ERR_OK
                   : err_set(ERR_UNSUPPORTED, "has a page of an unknown kind");
    }
    TRY(page_bytes(column, &head));
    if (out->kind == PARQUET_DICTIONARY)
        return ERR_OK;
    if ((leaf->repeated > 0 && head.repeated_as != PARQUET_RLE) ||
        (leaf->defined > 0 && head.defined_as != PARQUET_RLE))
        return parquet_page_unknown(head.repeated_as != PARQUET_RLE
                                        ? head.repeated_as
                                        : head.defined_as);
    column->data =
        (struct thrift){ column->page.data,
                         column->page.data + column->page.bytes, false, 0 };
    TRY(page_levels(&column->data, leaf->repeated, head.repeated_bytes,
                    &column->repeated));
    return page_levels(&column->data, leaf->defined, head.defined_bytes,
                       &column->defined);
}
