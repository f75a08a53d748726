/* Reads any columns of MDS data sets. It has shards and a cache as a data set
 * for training has, but no sidecar, no vocabulary and no identity: nothing is
 * learned of what is read here. */
#include "src/data/mds/mds_table.h"

#include <assert.h>
#include <stdlib.h>

#include "src/base/new.h"
#include "src/data/mds/mds_shards.h"
#include "src/base/regular.h"

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
