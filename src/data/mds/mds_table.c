/* Reads any columns of MDS data sets. It has shards and a cache as a data set
 * for training has, but no sidecar, no vocabulary and no identity: nothing is
 * learned of what is read here.
 *
 * Encodings are many, what is done with them is little: numbers are found and
 * left where they are, texts are checked for what Python could not convert, and the
 * rest is bytes. Floats are printed with the fewest digits that give them back. */
#include "src/data/mds/mds_table.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/new.h"
#include "src/base/regular.h"
#include "src/data/mds/mds_shards.h"
#include "src/text/unicode.h"

/* Digits of a number that is written as text; Python converts no more. */
#define MDS_COLUMN_DIGITS_MAX 4300

struct mds_table {
    struct mds_shards *shards;
    struct cache *cache; /* NULL: none is needed */
    struct buffer buffer;
    struct mds_span columns[MDS_LAYOUT_COLUMNS_MAX];
};

enum err mds_table_open(const char *folder, struct mds_table **out)
{
    assert(folder != NULL && out != NULL);
    struct dataset_access access = { NULL, &cache_defaults, NULL };
    enum err rc = ERR_OK;
    TRY(regular_local(folder));
    struct mds_table *table = NULL;
    TRY(new_zeroed(&table, 1));
    TRY_OUT(mds_shards_open(folder, NULL, &table->shards));
    rc = mds_shards_use_cache(table->shards, &access);
    table->cache = access.cache;
    TRY_OUT(rc);
out:
    return new_or_none(rc, table, out, mds_table_close);
}

void mds_table_close(struct mds_table *table)
{
    if (table == NULL)
        return;
    if (table->cache != NULL)
        cache_end(table->cache);
    mds_shards_close(table->shards);
    cache_close(table->cache);
    free(table->buffer.data);
    free(table);
}

const struct mds_index *mds_table_index(const struct mds_table *table)
{
    return mds_shards_index(table->shards);
}

enum err mds_table_check(const struct mds_table *table, const char *column)
{
    assert(table != NULL && column != NULL);
    char names[300];
    const struct mds_index *index = mds_shards_index(table->shards);
    for (int64_t l = 0; l < index->layouts; l++) {
        const struct mds_layout *layout = index->layout[l];
        int c = mds_layout_find(layout, column);
        if (c >= 0) {
            TRY(mds_column_check(&layout->column[c]));
            continue;
        }
        mds_layout_list(layout, names, sizeof names);
        return err_set(ERR_USAGE, "%s: there is no column '%.60s', only %s",
                       mds_shards_folder(table->shards), column, names);
    }
    return ERR_OK;
}

enum err mds_table_read(struct mds_table *table, int64_t index,
                        const char *column, struct mds_value *out)
{
    int64_t number = 0;
    struct mds_shard *shard = NULL;
    int64_t s =
        mds_pack_find(&mds_shards_index(table->shards)->pack, index, &number);
    const struct mds_layout *layout =
        mds_pack_shard(&mds_shards_index(table->shards)->pack, s).layout;
    int c = mds_layout_find(layout, column);
    assert(c >= 0);
    TRY(mds_shards_get(table->shards, s, &shard));
    TRY(mds_shard_columns(shard, number, &table->buffer, table->columns));
    return err_prefix(
        mds_column_decode(&layout->column[c], &table->columns[c], out),
        "%s: sample %lld: column '%.60s'", mds_shard_path(shard),
        (long long)number, column);
}

enum err mds_table_spans(struct mds_table *table, int64_t index,
                         const struct mds_span **columns)
{
    int64_t number = 0;
    struct mds_shard *shard = NULL;
    int64_t s =
        mds_pack_find(&mds_shards_index(table->shards)->pack, index, &number);
    TRY(mds_shards_get(table->shards, s, &shard));
    *columns = table->columns;
    return mds_shard_columns(shard, number, &table->buffer, table->columns);
}

/* --- one column --- */

enum err mds_column_check(const struct mds_layout_column *column)
{
    if (column->encoding.kind == MDS_PICKLE)
        return err_set(ERR_UNSUPPORTED,
                       "column '%.60s' is a pickle (pkl), which runs what "
                       "program its writer put into it and is never read; "
                       "write it as json or ndarray",
                       column->name);
    if (column->encoding.kind == MDS_UNKNOWN)
        return err_set(ERR_DATA,
                       "column '%.60s' is '%.60s', which is not known",
                       column->name, column->text);
    return ERR_OK;
}

/* A number as str_int has it; else as str_float or str_decimal. */
static bool mds_column_is_number(const struct mds_span *span, bool whole)
{
    char text[MDS_COLUMN_DIGITS_MAX + 1];
    char *end = NULL;
    if (span->bytes == 0 || span->bytes > MDS_COLUMN_DIGITS_MAX)
        return false;
    memcpy(text, span->data, span->bytes);
    text[span->bytes] = '\0';
    if (strlen(text) != span->bytes)
        return false;
    if (whole) {
        size_t sign = text[0] == '-';
        return text[sign] != '\0' &&
               strspn(text + sign, "0123456789") == span->bytes - sign;
    }
    if (strspn(text, "0123456789+-.eEinfatysNIF") != span->bytes)
        return false;
    /* what float() and Decimal() take; the latter knows a NaN that signals */
    (void)strtod(text, &end);
    return *end == '\0' || strcmp(text, "sNaN") == 0;
}

enum err mds_column_decode(const struct mds_layout_column *column,
                           const struct mds_span *span, struct mds_value *out)
{
    assert(column != NULL && span != NULL && out != NULL);
    *out = (struct mds_value){ .kind = column->encoding.kind, .column = *span };
    switch (column->encoding.kind) {
    case MDS_SCALAR:
    case MDS_ARRAY:
        return mds_encoding_decode(&column->encoding, span->data, span->bytes,
                                   &out->numbers);
    case MDS_STR:
    case MDS_JSON:
        if (unicode_valid(span->data, span->bytes) != span->bytes)
            return err_set(ERR_DATA, "is damaged: its text is no valid UTF-8");
        return ERR_OK;
    case MDS_NUMBER_TEXT:
        if (!mds_column_is_number(span, strcmp(column->text, "str_int") == 0))
            return err_set(ERR_DATA, "is damaged: its text is no number");
        return ERR_OK;
    case MDS_BYTES:
    case MDS_IMAGE:
        return ERR_OK;
    case MDS_PICKLE:
    case MDS_UNKNOWN:
        break;
    }
    return mds_column_check(column);
}

/* IEEE's 16 bits: 5 of exponent, 10 of fraction. */
static double mds_column_half(uint16_t bits)
{
    int exponent = bits >> 10 & 31;
    double fraction = bits & 1023;
    double value = exponent == 31  ? (fraction == 0.0 ? INFINITY : NAN)
                   : exponent == 0 ? ldexp(fraction, -24)
                                   : ldexp(fraction + 1024.0, exponent - 25);
    return (bits & 0x8000) != 0 ? -value : value;
}

static void mds_column_print_real(double value, bool single, FILE *file)
{
    char text[64];
    /* 17 digits give any double back, most need fewer */
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        bool same = single ? strtof(text, NULL) == (float)value
                           : strtod(text, NULL) == value;
        if (same || isnan(value))
            break;
    }
    fputs(text, file);
}

static void mds_column_print_number(const struct values *values, int64_t i,
                                    FILE *file)
{
    const struct values_type *type = values_type(values->type);
    const uint8_t *at = values->data + i * type->width;
    uint16_t half;
    float single;
    double real;
    if (type->whole && type->code == values_code("uint64")) {
        fprintf(file, "%llu", (unsigned long long)values_whole(values, i));
    } else if (type->whole) {
        fprintf(file, "%lld", (long long)values_whole(values, i));
    } else if (type->width == 2) {
        memcpy(&half, at, sizeof half);
        mds_column_print_real(mds_column_half(half), true, file);
    } else if (type->width == 4) {
        memcpy(&single, at, sizeof single);
        mds_column_print_real((double)single, true, file);
    } else {
        memcpy(&real, at, sizeof real);
        mds_column_print_real(real, false, file);
    }
}

static enum err mds_column_print_str(const struct mds_span *span, FILE *file)
{
    struct buffer text = { 0 };
    enum err rc = mds_text_add(
        &text, json_stringn((const char *)span->data, span->bytes));
    if (rc == ERR_OK)
        fwrite(text.data, 1, text.bytes, file);
    free(text.data);
    return rc;
}

enum err mds_column_print(const struct mds_value *value, FILE *file)
{
    assert(value != NULL && file != NULL);
    const struct mds_span *span = &value->column;
    switch (value->kind) {
    case MDS_SCALAR:
    case MDS_ARRAY:
        for (int64_t i = 0; i < value->numbers.count; i++) {
            if (i > 0)
                fputc(' ', file);
            mds_column_print_number(&value->numbers, i, file);
        }
        break;
    case MDS_STR:
        return mds_column_print_str(span, file);
    case MDS_JSON:
    case MDS_NUMBER_TEXT:
        for (size_t b = 0; b < span->bytes; b++)
            fputc(span->data[b] == '\n' || span->data[b] == '\r'
                      ? ' '
                      : span->data[b],
                  file);
        break;
    default:
        for (size_t b = 0; b < span->bytes; b++)
            fprintf(file, "%02x", span->data[b]);
        break;
    }
    return ERR_OK;
}
