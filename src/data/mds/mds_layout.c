/* Reads the columns of a shard out of its part of index.json.
 *
 * Three of them have a role in training, which is found by name once, so that
 * reading a sample compares no names. A column of such a name with another
 * encoding is refused rather than passed over: it would train something else
 * without a word. All others may be anything. */
#include "src/data/mds/mds_layout.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/clean.h"
#include "src/base/new.h"

/* A shard's offsets are 32-bit. */
#define MDS_LAYOUT_BYTES_MAX ((json_int_t)UINT32_MAX)

static const char *const mds_layout_keys[] = { "column_names",
                                               "column_encodings",
                                               "column_sizes" };

static const struct {
    const char *name, *encoding; /* NULL: mds_encoding_check_tokens() */
} mds_layout_roles[MDS_ROLES] = {
    [MDS_TOKENS] = { "tokens", NULL },                  /* of any width */
    [MDS_LOSS_MASK] = { "loss_mask", "ndarray:uint8" }, /* 1: bears loss */
    [MDS_LENGTHS] = { "lengths", "ndarray:int32" },     /* of its documents */
};

static enum err mds_layout_size(const json_t *size, int64_t *bytes)
{
    *bytes = MDS_ENCODING_VARIABLE;
    if (json_is_null(size))
        return ERR_OK;
    if (!json_is_integer(size))
        return err_set(ERR_DATA, "a column's size is neither null nor a whole "
                                 "number");
    json_int_t value = json_integer_value(size);
    if (value < 1 || value > MDS_LAYOUT_BYTES_MAX)
        return err_set(ERR_DATA, "a column's size is %lld bytes",
                       (long long)value);
    *bytes = (int64_t)value;
    return ERR_OK;
}

static enum err mds_layout_column(const json_t *name, const json_t *encoding,
                                  const json_t *size, struct mds_layout *layout)
{
    struct mds_layout_column *column = &layout->column[layout->columns];
    if (!json_is_string(name) || !json_is_string(encoding))
        return err_set(ERR_DATA, "a column's name or encoding is no string");
    TRY(mds_layout_size(size, &column->bytes));
    layout->columns++;
    TRY(new_text(&column->name, json_string_value(name)));
    TRY(new_text(&column->text, json_string_value(encoding)));
    mds_encoding_parse(column->text, &column->encoding);
    layout->head_bytes += column->bytes < 0 ? 4 : 0;
    for (int r = 0; r < MDS_ROLES; r++) {
        if (strcmp(column->name, mds_layout_roles[r].name) != 0)
            continue;
        if (layout->role[r] >= 0)
            return err_set(ERR_DATA, "there are two columns '%s'",
                           mds_layout_roles[r].name);
        layout->role[r] = layout->columns - 1;
    }
    return ERR_OK;
}

enum err mds_layout_read(const json_t *shard, struct mds_layout **out)
{
    assert(out != NULL);
    enum err rc = ERR_OK;
    const json_t *names = json_object_get(shard, mds_layout_keys[0]);
    const json_t *encodings = json_object_get(shard, mds_layout_keys[1]);
    const json_t *sizes = json_object_get(shard, mds_layout_keys[2]);
    size_t columns = json_array_size(names);
    if (columns == 0 || json_array_size(encodings) != columns ||
        json_array_size(sizes) != columns)
        return err_set(ERR_DATA, "'column_names', 'column_encodings' and "
                                 "'column_sizes' are not lists of one length");
    if (columns > MDS_LAYOUT_COLUMNS_MAX)
        return err_set(ERR_DATA, "%zu columns; at most %d are supported",
                       columns, MDS_LAYOUT_COLUMNS_MAX);
    struct mds_layout *layout = NULL;
    TRY(new_zeroed(&layout, 1));
    for (int r = 0; r < MDS_ROLES; r++)
        layout->role[r] = -1;
    TRY_OUT(new_zeroed(&layout->column, columns));
    for (size_t c = 0; c < columns; c++)
        TRY_OUT(mds_layout_column(json_array_get(names, c),
                                  json_array_get(encodings, c),
                                  json_array_get(sizes, c), layout));
out:
    return new_or_none(rc, layout, out, mds_layout_destroy);
}

void mds_layout_destroy(struct mds_layout *layout)
{
    if (layout == NULL)
        return;
    for (int c = 0; c < layout->columns; c++) {
        free(layout->column[c].name);
        free(layout->column[c].text);
    }
    free(layout->column);
    free(layout);
}

bool mds_layout_same(const json_t *a, const json_t *b)
{
    for (size_t k = 0; k < sizeof mds_layout_keys / sizeof *mds_layout_keys;
         k++)
        if (json_equal(json_object_get(a, mds_layout_keys[k]),
                       json_object_get(b, mds_layout_keys[k])) == 0)
            return false;
    return true;
}

int mds_layout_find(const struct mds_layout *layout, const char *name)
{
    for (int c = 0; c < layout->columns; c++)
        if (strcmp(layout->column[c].name, name) == 0)
            return c;
    return -1;
}

void mds_layout_list(const struct mds_layout *layout, char *text, size_t bytes)
{
    text[0] = '\0';
    for (int c = 0; c < layout->columns; c++)
        clean_join(text, bytes, ", ", "%.40s (%.30s)", layout->column[c].name,
                   layout->column[c].text);
}

/* What there is in place of tokens, and what helps. */
static enum err mds_layout_no_tokens(const struct mds_layout *layout)
{
    static const struct {
        const char *column, *advice;
    } known[] = {
        { "input_ids", "; write input_ids as tokens, and leave out labels, "
                       "which are the next tokens here" },
        { "text", "; make tokens of its text with tessera-data tokenize" },
        { "prompt", "; tessera does not read sets for fine-tuning" },
        { "messages", "; tessera does not read sets for fine-tuning" },
    };
    char columns[200] = "";
    const char *advice = "";
    mds_layout_list(layout, columns, sizeof columns);
    for (size_t k = 0; k < sizeof known / sizeof known[0]; k++)
        if (mds_layout_find(layout, known[k].column) >= 0)
            advice = known[k].advice;
    return err_set(ERR_DATA, "there is no column 'tokens', only %s%s", columns,
                   advice);
}

enum err mds_layout_check(const struct mds_layout *layout)
{
    for (int r = 0; r < MDS_ROLES; r++) {
        int c = layout->role[r];
        const char *encoding = mds_layout_roles[r].encoding;
        if (c < 0 && r == MDS_TOKENS)
            return mds_layout_no_tokens(layout);
        if (c < 0)
            continue;
        const struct mds_layout_column *column = &layout->column[c];
        if (encoding == NULL)
            TRY(mds_encoding_check_tokens(&column->encoding, column->text));
        else if (strcmp(column->text, encoding) != 0)
            return err_set(ERR_DATA,
                           "column '%s' is '%.60s'; what trains with it is "
                           "'%s', so give a column with another meaning "
                           "another name",
                           column->name, column->text, encoding);
    }
    return ERR_OK;
}
