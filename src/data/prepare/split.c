/* Copies the columns of samples into new sets, byte by byte, whatever they are:
 * nothing is decoded, so no encoding has to be known. Parts are cut where equal
 * shares of the samples end, so their sizes differ by one at most. An
 * evaluation part is the last samples, not drawn ones: neighbours are of one
 * document, and would be on both sides. */
#include "src/data/prepare/finished_sets.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/fsio.h"
#include "src/base/new.h"
#include "src/data/set/dataset.h"
#include "src/data/mds/mds_index.h"
#include "src/data/mds/mds_table.h"
#include "src/data/mds/mds_writer.h"
#include "src/data/prepare/progress.h"
#include "src/data/prepare/publish.h"
#include "src/base/regular.h"
#include "src/data/prepare/scan.h"

#define SPLIT_POLL_SAMPLES 256

struct split {
    const struct split_options *options;
    const char *set;
    struct dataset *dataset;
    struct sidecar sidecar;
    struct mds_table *table;
    struct tokenizer *tokenizer; /* NULL: not here */
    struct publish publish;
    struct progress progress;
    int columns;
    struct mds_field *field; /* [columns] */
    struct mds_column *column;
};

static enum err split_poll(struct split *split)
{
    if (split->options->show)
        progress_update(&split->progress, split->progress.done);
    if (split->options->stop != NULL && split->options->stop() != 0)
        return err_set(ERR_IO, "interrupted; nothing was made");
    return ERR_OK;
}

static enum err split_sample(struct split *split, int64_t sample,
                             struct mds_writer *writer)
{
    const struct mds_span *columns = NULL;
    TRY(mds_table_spans(split->table, sample, &columns));
    for (int c = 0; c < split->columns; c++)
        split->field[c] =
            (struct mds_field){ columns[c].data, columns[c].bytes };
    return mds_writer_add_fields(writer, split->field);
}

/* Tokens are counted by reading: only the sidecar of the whole has a sum. */
static enum err split_count(struct split *split, int64_t sample,
                            struct sidecar *sidecar)
{
    int64_t length = 0;
    TRY(dataset_read(split->dataset, sample, NULL, 0, &length));
    sidecar->samples++;
    sidecar->tokens += length;
    if (length > sidecar->longest)
        sidecar->longest = length;
    return ERR_OK;
}

/* The samples first .. first+count-1 as OUT/name. */
static enum err split_part(struct split *split, const char *name, int64_t first,
                           int64_t count)
{
    assert(count > 0 && first + count <= dataset_samples(split->dataset));
    enum err rc = ERR_OK;
    char folder[FSIO_PATH_MAX];
    struct mds_writer *writer = NULL;
    struct sidecar sidecar = split->sidecar;
    const struct mds_writer_options options = {
        .columns = split->column,
        .count = split->columns,
        .size_limit = split->options->shard_bytes,
        .hashes = mds_writer_sha256,
    };
    /* what the whole's says holds for a part but for its numbers */
    sidecar.samples = sidecar.tokens = sidecar.longest = 0;
    sidecar.shards_sha256 = NULL;
    sidecar.shards_hashed = 0;
    TRY_OUT(fsio_path(folder, "%s/%s", split->publish.building, name));
    TRY_OUT(fsio_mkdirs(folder));
    TRY_OUT(mds_writer_create(folder, &options, &writer));
    for (int64_t i = 0; i < count; i++) {
        if (i % SPLIT_POLL_SAMPLES == 0)
            TRY_OUT(split_poll(split));
        TRY_OUT(split_count(split, first + i, &sidecar));
        TRY_OUT(split_sample(split, first + i, writer));
        split->progress.done++;
    }
    if (split->tokenizer != NULL)
        TRY_OUT(tokenizer_copy_write(folder, split->tokenizer));
    TRY_OUT(sidecar_write(folder, &sidecar));
    TRY_OUT(mds_writer_finish(writer));
    rc = fsio_fsync_dir(folder);
out:
    mds_writer_destroy(writer);
    return rc;
}

static enum err split_parts(struct split *split)
{
    int64_t samples = dataset_samples(split->dataset);
    int64_t parts = split->options->parts;
    if (parts > 0 && parts > samples)
        return err_set(ERR_USAGE, "%s has %lld samples, too few for %lld parts",
                       split->set, (long long)samples, (long long)parts);
    progress_begin(&split->progress, "copying", "samples", samples);
    for (int64_t p = 0; p < parts; p++) {
        char name[32];
        /* samples * p / parts, without the product, which could overflow */
        int64_t first = samples / parts * p + samples % parts * p / parts;
        int64_t end =
            samples / parts * (p + 1) + samples % parts * (p + 1) / parts;
        snprintf(name, sizeof name, "part.%05lld", (long long)p);
        TRY(split_part(split, name, first, end - first));
    }
    if (parts == 0) {
        double wanted = (double)samples * split->options->fraction;
        int64_t eval = (int64_t)floor(wanted + 0.5);
        eval = eval < 1 ? 1 : eval > samples - 1 ? samples - 1 : eval;
        if (samples < 2)
            return err_set(ERR_USAGE,
                           "%s has one sample, which can't be divided",
                           split->set);
        TRY(split_part(split, "train", 0, samples - eval));
        TRY(split_part(split, "eval", samples - eval, eval));
    }
    progress_end(&split->progress);
    return ERR_OK;
}

static enum err split_open(struct split *split)
{
    TRY(dataset_open(split->set, &split->dataset));
    if (strcmp(dataset_index(split->dataset), MDS_INDEX_NAME) != 0)
        return err_set(ERR_UNSUPPORTED, "%s is no MDS data set", split->set);
    TRY(sidecar_read(split->set, &split->sidecar));
    TRY(mds_table_open(split->set, &split->table));
    TRY(scan_tokenizer(split->dataset, &split->tokenizer));
    const struct mds_index *index = mds_table_index(split->table);
    if (index->layouts > 1)
        return err_set(ERR_UNSUPPORTED,
                       "%s: its shards have different columns, which one set "
                       "can't have when it is split",
                       split->set);
    const struct mds_layout *layout = index->layout[0];
    size_t columns = (size_t)layout->columns;
    split->columns = layout->columns;
    TRY(new_zeroed(&split->field, columns));
    TRY(new_zeroed(&split->column, columns));
    for (size_t c = 0; c < columns; c++)
        split->column[c] = (struct mds_column){ layout->column[c].name,
                                                layout->column[c].text };
    return ERR_OK;
}

enum err split_set(const char *set, const struct split_options *options)
{
    assert(set != NULL && options->out != NULL);
    enum err rc = ERR_OK;
    struct split split = { .options = options, .set = set };
    if (options->parts > SPLIT_PARTS_MAX)
        TRY_OUT(err_set(ERR_USAGE, "--parts has to be in [1, %d], not %lld",
                        SPLIT_PARTS_MAX, (long long)options->parts));
    TRY_OUT(regular_local(options->out));
    TRY_OUT(split_open(&split));
    TRY_OUT(publish_begin(&split.publish, options->out, false));
    TRY_OUT(split_parts(&split));
    TRY_OUT(publish_commit(&split.publish));
out:
    publish_end(&split.publish);
    free(split.field);
    free(split.column);
    tokenizer_destroy(split.tokenizer);
    mds_table_close(split.table);
    sidecar_release(&split.sidecar);
    dataset_close(split.dataset);
    return rc;
}
