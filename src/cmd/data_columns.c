/* Prints columns of MDS data sets. */
#include "src/cmd/data_columns.h"

#include <inttypes.h>
#include <stdio.h>

#include "src/base/clean.h"
#include "src/data/mds/mds_table.h"
#include "src/job/stop.h"

/* Columns that change on the way are listed where they change. */
enum err data_columns_list(const char *folder)
{
    struct mds_table *table = NULL;
    const struct mds_layout *last = NULL;
    TRY(mds_table_open(folder, &table));
    const struct mds_index *index = mds_table_index(table);
    for (int64_t s = 0; s < index->shards; s++) {
        const struct mds_layout *layout = index->shard[s].layout;
        if (layout == last)
            continue;
        if (index->layouts > 1)
            clean_printf("from %s on:\n", index->shard[s].raw.name);
        for (int c = 0; c < layout->columns; c++) {
            const struct mds_layout_column *column = &layout->column[c];
            clean_printf("%s\t%s\t", column->name, column->text);
            if (column->bytes < 0)
                printf("any size\n");
            else
                printf("%" PRId64 " bytes\n", column->bytes);
        }
        last = layout;
    }
    mds_table_close(table);
    return ERR_OK;
}

enum err data_columns_cat(const struct data_options *options)
{
    enum err rc = ERR_OK;
    struct mds_table *table = NULL;
    struct mds_value value;
    if (options->column == NULL)
        return err_set(ERR_USAGE, "--raw needs --column NAME");
    TRY_OUT(mds_table_open(options->operands[0], &table));
    TRY_OUT(mds_table_check(table, options->column));
    int64_t samples = mds_table_index(table)->samples;
    int64_t end = options->from > samples - options->count
                      ? samples
                      : options->from + options->count;
    for (int64_t i = options->from; i < end && stop_requested() == 0; i++) {
        TRY_OUT(mds_table_read(table, i, options->column, &value));
        if (options->raw) {
            fwrite(value.column.data, 1, value.column.bytes, stdout);
            continue;
        }
        TRY_OUT(mds_column_print(&value, stdout));
        putchar('\n');
    }
out:
    mds_table_close(table);
    return rc;
}
