/* Parquet files, as columns.h reads them.
 *
 * Texts are BYTE_ARRAY of any size, in the encodings PLAIN, dictionary,
 * DELTA_LENGTH_BYTE_ARRAY and DELTA_BYTE_ARRAY, in pages of both versions, packed with
 * snappy, gzip, brotli, zstd, lz4_raw or not. Memory: for each column that is read a
 * page, packed and not, of at most PARQUET_PAGE_BYTES_MAX, a dictionary, and the
 * footer's row groups. */
#include <stdlib.h>

#include "src/base/new.h"
#include "src/data/parquet/parquet_impl.h"

struct parquet {
    struct parquet_meta meta;
    struct parquet_column *column; /* [count] */
    size_t count;
};

static void parquet_close(struct columns_file *file)
{
    struct parquet *parquet = (struct parquet *)file;
    for (size_t c = 0; c < parquet->count; c++)
        parquet_column_release(&parquet->column[c]);
    free(parquet->column);
    free(parquet->meta.chunk);
    buffer_free(&parquet->meta.footer);
    columns_leaf_close(file);
}

static enum err parquet_open(const char *path, struct columns_file **out)
{
    struct parquet *parquet = NULL;
    TRY(new_zeroed(&parquet, 1));
    enum err rc = parquet_meta_open(path, &parquet->meta);
    return new_or_none(rc, &parquet->meta.file, out, parquet_close);
}

static enum err parquet_choose(struct columns_file *file,
                               const struct columns_leaf *const *chosen,
                               size_t count)
{
    struct parquet *parquet = (struct parquet *)file;
    TRY(parquet_meta_choose(&parquet->meta, chosen, count));
    TRY(new_zeroed(&parquet->column, count + 1));
    parquet->count = count;
    for (size_t c = 0; c < count; c++) {
        parquet->column[c].meta = &parquet->meta;
        parquet->column[c].leaf = chosen[c];
    }
    return ERR_OK;
}

static void parquet_begin(struct columns_file *file, size_t group)
{
    struct parquet *parquet = (struct parquet *)file;
    for (size_t c = 0; c < parquet->count; c++) {
        struct parquet_column *column = &parquet->column[c];
        column->chunk = parquet->meta.chunk[group * parquet->count + c];
        column->values = 0;
        column->entries = 0;
    }
}

static enum err parquet_next(struct columns_file *file, size_t column,
                             struct columns_value *out, bool *more)
{
    return parquet_column_next(&((struct parquet *)file)->column[column], out,
                               more);
}

static int64_t parquet_position(const struct columns_file *file)
{
    const struct parquet *parquet = (const struct parquet *)file;
    return parquet->count > 0 ? parquet->column[0].chunk.begin : 0;
}

const struct columns_format parquet_format = {
    COLUMNS_FORMAT("Parquet", "row group", ".parquet"),
    .remedy = "write the file again, with pyarrow's defaults",
    .open = parquet_open,
    .choose = parquet_choose,
    .close = parquet_close,
    .begin = parquet_begin,
    .next = parquet_next,
    .position = parquet_position
};
