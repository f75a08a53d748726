/* Makes the texts of an MDS data set.
 *
 * They are to be the bytes that Python writes, because an index identifies a
 * set. Keys are sorted. What all entries of an index share is made once:
 * `head`, up to raw_data, and `tail`, behind samples; the two joined are the
 * text that every shard file has in it. The index grows by an entry a shard, in
 * memory; where each begins is kept, so that the journal of an unfinished set
 * can have single entries and a later process can put them back. */
#include "src/data/mds/mds_manifest.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/fsio.h"
#include "src/base/new.h"
#include "src/data/codec/checksum.h"
#include "src/data/mds/mds_encoding.h"
#include "src/data/mds/mds_index.h"
#include "src/data/mds/mds_text.h"

static int mds_manifest_by_name(const void *a, const void *b)
{
    const struct mds_manifest_column *left = a, *right = b;
    return strcmp(left->name, right->name);
}

static enum err mds_manifest_columns(struct mds_manifest *manifest,
                                     const struct mds_writer_options *options)
{
    struct mds_encoding encoding;
    TRY(new_zeroed(&manifest->column, (size_t)options->count));
    for (int c = 0; c < options->count; c++) {
        struct mds_manifest_column *column = &manifest->column[c];
        const struct mds_column *given = &options->columns[c];
        manifest->columns++;
        TRY(new_text(&column->name, given->name));
        TRY(new_text(&column->encoding, given->encoding));
        mds_encoding_parse(given->encoding, &encoding);
        if (encoding.kind == MDS_UNKNOWN || encoding.kind == MDS_PICKLE)
            return err_set(ERR_USAGE,
                           "column '%.60s': '%.60s' is no encoding that is "
                           "written here",
                           given->name, given->encoding);
        column->bytes = mds_encoding_bytes(&encoding);
        column->given = c;
    }
    /* Streaming orders columns by name, in the index and in samples */
    qsort(manifest->column, (size_t)manifest->columns, sizeof *manifest->column,
          mds_manifest_by_name);
    for (int c = 1; c < manifest->columns; c++)
        if (strcmp(manifest->column[c - 1].name, manifest->column[c].name) == 0)
            return err_set(ERR_USAGE, "there are two columns '%.60s'",
                           manifest->column[c].name);
    return ERR_OK;
}

/* The lists of columns, up to the hashes' names. */
static enum err mds_manifest_head(struct mds_manifest *manifest)
{
    struct buffer *head = &manifest->head;
    static const char *const lists[] = { "{\"column_encodings\": [",
                                         "], \"column_names\": [",
                                         "], \"column_sizes\": [" };
    for (int l = 0; l < 3; l++) {
        TRY(mds_text_add(head, "%s", lists[l]));
        for (int c = 0; c < manifest->columns; c++) {
            const struct mds_manifest_column *column = &manifest->column[c];
            TRY(mds_text_add(head, c > 0 ? ", " : ""));
            if (l < 2)
                TRY(mds_text_string(head,
                                    l == 0 ? column->encoding : column->name));
            else if (column->bytes < 0)
                TRY(mds_text_add(head, "null"));
            else
                TRY(mds_text_add(head, "%lld", (long long)column->bytes));
        }
    }
    TRY(mds_text_add(
        head, "], \"compression\": null, \"format\": \"mds\", \"hashes\": ["));
    for (int h = 0; manifest->hashes[h] != NULL; h++)
        TRY(mds_text_add(head, "%s\"%s\"", h > 0 ? ", " : "",
                         manifest->hashes[h]));
    return mds_text_add(head, "], ");
}

static enum err mds_manifest_texts(struct mds_manifest *manifest)
{
    struct buffer *tail = &manifest->tail;
    TRY(mds_manifest_head(manifest));
    TRY(mds_text_add(tail, "\"size_limit\": %lld, \"version\": 2",
                     (long long)manifest->size_limit));
    TRY(mds_text_add(&manifest->config, "%s%s}", (char *)manifest->head.data,
                     (char *)tail->data));
    return mds_text_add(&manifest->index, "{\"shards\": [");
}

enum err mds_manifest_create(const struct mds_writer_options *options,
                             struct mds_manifest **out)
{
    assert(options->columns != NULL && options->count > 0);
    static const char *const none[] = { NULL };
    enum err rc = ERR_OK;
    struct mds_manifest *manifest = NULL;
    TRY(new_zeroed(&manifest, 1));
    manifest->size_limit = options->size_limit;
    manifest->hashes = options->hashes != NULL ? options->hashes : none;
    TRY_OUT(mds_manifest_columns(manifest, options));
    TRY_OUT(mds_manifest_texts(manifest));
out:
    return new_or_none(rc, manifest, out, mds_manifest_destroy);
}

void mds_manifest_destroy(struct mds_manifest *manifest)
{
    if (manifest == NULL)
        return;
    for (int c = 0; c < manifest->columns; c++) {
        free(manifest->column[c].name);
        free(manifest->column[c].encoding);
    }
    free(manifest->column);
    free(manifest->config.data);
    free(manifest->head.data);
    free(manifest->tail.data);
    free(manifest->index.data);
    free(manifest->begins.data);
    free(manifest);
}

/* "NAME": "DIGEST" */
static enum err mds_manifest_hash(struct buffer *text, const char *name,
                                  const struct mds_manifest_file *file)
{
    enum err rc = ERR_OK;
    char hex[CHECKSUM_TEXT_BYTES];
    struct checksum *sum = NULL;
    TRY_OUT(checksum_create(name, &sum));
    for (int p = 0; p < 2; p++)
        TRY_OUT(checksum_update(sum, file->part[p], file->bytes[p]));
    TRY_OUT(checksum_finish(sum, hex));
    TRY_OUT(mds_text_add(text, "\"%s\": \"%s\"", name, hex));
out:
    checksum_destroy(sum);
    return rc;
}

static enum err mds_manifest_file(struct mds_manifest *manifest,
                                  const struct mds_manifest_file *file)
{
    struct buffer *text = &manifest->index;
    TRY(mds_text_add(text,
                     "{\"basename\": \"%s\", \"bytes\": %zu, \"hashes\": {",
                     file->name, file->bytes[0] + file->bytes[1]));
    for (int h = 0; manifest->hashes[h] != NULL; h++) {
        TRY(mds_text_add(text, h > 0 ? ", " : ""));
        TRY(mds_manifest_hash(text, manifest->hashes[h], file));
    }
    return mds_text_add(text, "}}");
}

/* The place of the next entry, behind the others. */
static enum err mds_manifest_begin(struct mds_manifest *manifest)
{
    struct buffer *text = &manifest->index;
    TRY(mds_text_add(text, manifest->shards > 0 ? ", " : ""));
    return buffer_add(&manifest->begins, &text->bytes, sizeof text->bytes);
}

enum err mds_manifest_add(struct mds_manifest *manifest, int64_t samples,
                          const struct mds_manifest_file *file)
{
    struct buffer *text = &manifest->index;
    TRY(mds_manifest_begin(manifest));
    TRY(mds_text_add(text, "%s\"raw_data\": ", (char *)manifest->head.data));
    TRY(mds_manifest_file(manifest, file));
    TRY(mds_text_add(text, ", \"samples\": %lld, %s, \"zip_data\": null}",
                     (long long)samples, (char *)manifest->tail.data));
    manifest->shards++;
    manifest->end = manifest->index.bytes;
    return ERR_OK;
}

void mds_manifest_entry(const struct mds_manifest *manifest, int64_t shard,
                        const char **text, size_t *bytes)
{
    size_t begin = 0, end = manifest->end;
    assert(shard >= 0 && shard < manifest->shards);
    memcpy(&begin, manifest->begins.data + (size_t)shard * sizeof begin,
           sizeof begin);
    if (shard + 1 < manifest->shards) {
        memcpy(&end, manifest->begins.data + (size_t)(shard + 1) * sizeof end,
               sizeof end);
        /* where the next one begins, less what stands between them */
        end -= strlen(", ");
    }
    *text = (const char *)manifest->index.data + begin;
    *bytes = end - begin;
}

enum err mds_manifest_again(struct mds_manifest *manifest, const char *entry)
{
    TRY(mds_manifest_begin(manifest));
    TRY(mds_text_add(&manifest->index, "%s", entry));
    manifest->shards++;
    manifest->end = manifest->index.bytes;
    return ERR_OK;
}

enum err mds_manifest_write(struct mds_manifest *manifest, const char *folder)
{
    assert(manifest != NULL && folder != NULL);
    char path[FSIO_PATH_MAX];
    struct buffer *text = &manifest->index;
    TRY(fsio_path(path, "%s/%s", folder, MDS_INDEX_NAME));
    TRY(mds_text_add(text, "], \"version\": 2}"));
    return fsio_write_atomic(path, text->data, text->bytes);
}
