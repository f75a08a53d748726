/* tessera-data head, info --columns, merge, split: looks at data sets and makes
 * others of them. A data set's tokens can be looked at whatever its format; columns
 * are MDS' own, and are printed of sets that nothing here could train on. merge
 * links the shards of its sets where the file system lets it. */
#include "src/cmd/data_cmd.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

#include "src/base/clean.h"
#include "src/data/mds/mds_table.h"
#include "src/data/prepare/finished_sets.h"
#include "src/job/stop.h"

/* Columns that change on the way are listed where they change. */
enum err data_columns_list(const char *folder)
{
    struct mds_table *table = NULL;
    const struct mds_layout *last = NULL;
    TRY(mds_table_open(folder, &table));
    const struct mds_index *index = mds_table_index(table);
    for (int64_t s = 0; s < index->shards; s++) {
        struct cache_shard files;
        const struct mds_layout *layout =
            mds_pack_shard(&index->pack, s).layout;
        if (layout == last)
            continue;
        mds_pack_files(&index->pack, s, &files);
        if (index->layouts > 1)
            clean_printf("from %s on:\n", files.raw.name);
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

/* The column of samples [from, from + count), a line each; raw: its bytes with
 * nothing between them. */
static enum err data_columns_cat(const struct data_options *options)
{
    assert(options->operand_count == 1);
    enum err rc = ERR_OK;
    struct mds_table *table = NULL;
    struct mds_value value;
    if (options->column == NULL)
        return err_set(ERR_USAGE, "--raw needs --column NAME");
    TRY_OUT(mds_table_open(options->operands[0], &table));
    TRY_OUT(mds_table_check(table, options->column));
    int64_t samples = mds_table_index(table)->samples;
    assert(options->from >= 0 && options->count >= 0);
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

#define HEAD_SAMPLES 3 /* of text */

/* As text unless it is said otherwise: whoever looks at a data set wants to read. */
enum err data_head(struct data_options *options)
{
    assert(options->operand_count == 1);
    enum err rc = ERR_OK;
    struct dataset *dataset = NULL;
    const struct show_options show = {
        .first = options->from,
        .count = options->count < INT64_MAX || options->tokens ? options->count
                                                               : HEAD_SAMPLES,
        .stop = stop_requested,
        .tokens = options->tokens,
    };
    if (options->tokens && options->column != NULL)
        return err_set(ERR_USAGE, "--tokens and --column: give one of them");
    if (options->column != NULL || options->raw)
        return data_columns_cat(options);
    TRY_OUT(dataset_open(options->operands[0], &dataset));
    TRY_OUT(show_samples(dataset, &show, stdout));
out:
    dataset_close(dataset);
    return rc;
}

enum err data_merge(struct data_options *options)
{
    assert(options->operand_count > 0);
    struct merge_result result;
    const char *out = options->tokenize.out;
    TRY(merge_sets(out, options->operands, options->operand_count,
                   stop_requested, &result));
    assert(result.copied >= 0);
    clean_printf("%s: %" PRId64 " samples, %" PRId64 " tokens, %" PRId64
                 " shards",
                 options->said, result.samples, result.tokens, result.shards);
    if (result.copied > 0)
        printf("; %" PRId64 " files could not be linked and are copies",
               result.copied);
    putchar('\n');
    return ERR_OK;
}

enum err data_split(struct data_options *options)
{
    assert(options->operand_count == 1);
    const struct split_options split = {
        .out = options->tokenize.out,
        .parts = options->parts,
        .fraction = options->tokenize.eval_fraction,
        .shard_bytes = options->tokenize.shard_bytes,
        .show = true,
        .stop = stop_requested,
    };
    if (split.parts > 0 && split.fraction > 0)
        return err_set(ERR_USAGE,
                       "split takes one of --parts N and --fraction F");
    TRY(split_set(options->operands[0], &split));
    if (split.parts > 0)
        clean_printf("%s/part.00000 and so on: %lld data sets\n", options->said,
                     (long long)split.parts);
    else
        clean_printf("%s/train, %s/eval: 2 data sets\n", options->said,
                     options->said);
    return ERR_OK;
}
