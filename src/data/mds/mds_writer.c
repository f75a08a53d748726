/* Writes shards and their index as Streaming does. The folder appears by
 * publish.c; text becomes tokens in tokenize.c.
 *
 * A shard's table of offsets stands before its samples and is as long as there
 * are of them, so a shard is built in memory, and written when the next sample
 * would make it longer than allowed. Two buffers make a file: the head (count,
 * offsets, JSON text), which is made last, and the samples as they came.
 *
 * The order in which things reach the disk is what makes an interrupted set
 * good for something: each shard is synced before the next begins, and the
 * index, which makes a folder a set, comes last. */
#include "src/data/mds/mds_writer.h"

#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/fsio.h"
#include "src/base/array.h"
#include "src/base/new.h"
#include "src/data/mds/mds_encoding.h"
#include "src/base/regular.h"
#include "src/data/set/values.h"

struct mds_writer {
    char folder[FSIO_PATH_MAX];
    struct mds_manifest *manifest;
    int64_t shard_bytes; /* the next shard's, by the rotation rule */
    struct buffer data;  /* its samples */
    size_t *ends;        /* where each ends in data */
    size_t samples, samples_capacity;
    struct buffer encoded; /* of mds_writer_add() */
    json_t *entry;         /* that mds_writer_shard() lends */
};

const char *const mds_writer_sha256[] = { "sha256", NULL };

static void mds_writer_reset(struct mds_writer *writer)
{
    writer->data.bytes = 0;
    writer->samples = 0;
    writer->shard_bytes = 8 + (int64_t)writer->manifest->config.bytes;
}

enum err mds_writer_create(const char *folder,
                           const struct mds_writer_options *options,
                           struct mds_writer **out)
{
    assert(folder != NULL && options != NULL && out != NULL);
    enum err rc = ERR_OK;
    if (options->size_limit < 1 || options->size_limit > UINT32_MAX)
        return err_set(ERR_USAGE,
                       "a shard of %lld bytes is not possible; offsets are "
                       "32-bit, so choose 1 to 4294967295",
                       (long long)options->size_limit);
    struct mds_writer *writer = NULL;
    TRY(new_zeroed(&writer, 1));
    TRY_OUT(fsio_path(writer->folder, "%s", folder));
    TRY_OUT(mds_manifest_create(options, &writer->manifest));
    mds_writer_reset(writer);
out:
    return new_or_none(rc, writer, out, mds_writer_destroy);
}

enum err mds_writer_create_tokens(const char *folder, int64_t size_limit,
                                  bool sha256, struct mds_writer **out)
{
    static const struct mds_column tokens = { "tokens", "ndarray:int32" };
    struct mds_writer_options options = {
        .columns = &tokens,
        .count = 1,
        .size_limit = size_limit,
        .hashes = sha256 ? mds_writer_sha256 : NULL,
    };
    return mds_writer_create(folder, &options, out);
}

void mds_writer_destroy(struct mds_writer *writer)
{
    if (writer == NULL)
        return;
    mds_manifest_destroy(writer->manifest);
    json_decref(writer->entry);
    buffer_free(&writer->encoded);
    buffer_free(&writer->data);
    free(writer->ends);
    free(writer);
}

static enum err mds_writer_save(const struct mds_writer *writer,
                                const struct mds_manifest_file *file)
{
    enum err rc = ERR_OK;
    char path[FSIO_PATH_MAX];
    TRY(fsio_path(path, "%s/%s", writer->folder, file->name));
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return err_errno("%s: create", path);
    rc = fsio_pwrite(fd, file->part[0], file->bytes[0], 0, path);
    if (rc == ERR_OK)
        rc = fsio_pwrite(fd, file->part[1], file->bytes[1],
                         (int64_t)file->bytes[0], path);
    if (rc == ERR_OK && fsync(fd) != 0)
        rc = err_errno("%s: fsync", path);
    if (close(fd) != 0 && rc == ERR_OK)
        rc = err_errno("%s: close", path);
    return rc;
}

/* Offset table and configuration, as they stand before the samples. */
static void mds_writer_head(const struct mds_writer *writer, size_t bytes,
                            uint8_t *head)
{
    uint32_t word = (uint32_t)writer->samples;
    memcpy(head, &word, 4);
    for (size_t i = 0; i <= writer->samples; i++) {
        word = (uint32_t)(bytes + (i == 0 ? 0 : writer->ends[i - 1]));
        memcpy(head + 4 + 4 * i, &word, 4);
    }
    size_t config = writer->manifest->config.bytes;
    memcpy(head + bytes - config, writer->manifest->config.data, config);
}

static enum err mds_writer_flush(struct mds_writer *writer)
{
    enum err rc = ERR_OK;
    char name[64];
    snprintf(name, sizeof name, "shard.%05lld.mds",
             (long long)writer->manifest->shards);
    size_t bytes = 8 + 4 * writer->samples + writer->manifest->config.bytes;
    assert(writer->shard_bytes == (int64_t)(bytes + writer->data.bytes));
    assert(writer->shard_bytes <= UINT32_MAX); /* its offsets have 32 bits */
    uint8_t *head = NULL;
    TRY(new_room(&head, bytes));
    mds_writer_head(writer, bytes, head);
    struct mds_manifest_file raw = { name,
                                     { head, writer->data.data },
                                     { bytes, writer->data.bytes } };
    TRY_OUT(mds_writer_save(writer, &raw));
    TRY_OUT(mds_manifest_add(writer->manifest, (int64_t)writer->samples, &raw));
    mds_writer_reset(writer);
out:
    free(head);
    return rc;
}

/* Bytes of a sample with its size words, of fields that fit their columns. */
static enum err mds_writer_measure(const struct mds_writer *writer,
                                   const struct mds_field *fields,
                                   int64_t *bytes)
{
    const struct mds_manifest *manifest = writer->manifest;
    int64_t most = (int64_t)UINT32_MAX - 12 - (int64_t)manifest->config.bytes;
    *bytes = 0;
    for (int c = 0; c < manifest->columns; c++) {
        const struct mds_manifest_column *column = &manifest->column[c];
        const struct mds_field *field = &fields[column->given];
        if (column->bytes >= 0 && field->bytes != (size_t)column->bytes)
            return err_set(ERR_USAGE,
                           "column '%.60s' (%.60s) takes %lld bytes, not %zu",
                           column->name, column->encoding,
                           (long long)column->bytes, field->bytes);
        *bytes += column->bytes < 0 ? 4 : 0;
        if (field->bytes > UINT32_MAX || *bytes + (int64_t)field->bytes > most)
            return err_set(ERR_USAGE,
                           "a sample with %zu bytes in column '%.60s' is too "
                           "long for a shard; at most %lld are possible",
                           field->bytes, column->name, (long long)most);
        *bytes += (int64_t)field->bytes;
    }
    return ERR_OK;
}

enum err mds_writer_add_fields(struct mds_writer *writer,
                               const struct mds_field *fields)
{
    const struct mds_manifest *manifest = writer->manifest;
    int64_t bytes = 0;
    TRY(mds_writer_measure(writer, fields, &bytes));
    /* Streaming's rule to the byte, for its sets are to be ours: a sample that
     * is larger than the limit leaves an empty shard before it */
    if (manifest->size_limit < writer->shard_bytes + bytes + 4)
        TRY(mds_writer_flush(writer));
    TRY(buffer_reserve(&writer->data, (size_t)bytes));
    TRY(array_room(&writer->ends, &writer->samples_capacity,
                   writer->samples + 1));
    /* size words first, then the columns, both in the order of their names */
    for (int c = 0; c < manifest->columns; c++) {
        uint32_t size = (uint32_t)fields[manifest->column[c].given].bytes;
        if (manifest->column[c].bytes < 0)
            TRY(buffer_add(&writer->data, &size, sizeof size));
    }
    for (int c = 0; c < manifest->columns; c++) {
        const struct mds_field *field = &fields[manifest->column[c].given];
        TRY(buffer_add(&writer->data, field->data, field->bytes));
    }
    assert(writer->samples < writer->samples_capacity);
    writer->ends[writer->samples++] = writer->data.bytes;
    writer->shard_bytes += bytes + 4;
    return ERR_OK;
}

enum err mds_writer_add(struct mds_writer *writer, const int32_t *tokens,
                        int64_t count)
{
    assert(count > 0 && tokens != NULL && writer->manifest->columns == 1);
    if (count > (UINT32_MAX - 4096) / 4)
        return err_set(ERR_USAGE,
                       "a sample of %lld tokens is too long for a "
                       "shard; at most 2^30 - 1025 are possible",
                       (long long)count);
    writer->encoded.bytes = 0;
    TRY(mds_encode_ndarray(values_code("int32"), tokens, count,
                           &writer->encoded));
    struct mds_field field = { writer->encoded.data, writer->encoded.bytes };
    return mds_writer_add_fields(writer, &field);
}

enum err mds_writer_finish(struct mds_writer *writer)
{
    if (writer->samples > 0)
        TRY(mds_writer_flush(writer));
    return mds_manifest_write(writer->manifest, writer->folder);
}

enum err mds_writer_shard_bytes(struct mds_writer *writer, int64_t count,
                                int64_t *bytes)
{
    if (count <= 0 || count > (UINT32_MAX - 4096) / 4)
        return err_set(ERR_USAGE,
                       "a sample of %lld tokens does not fit a shard",
                       (long long)count);
    /* the shape, mds_encoding.c; beside it the sample's offset and size word */
    int64_t shape = count < 1 << 8 ? 2 : count < 1 << 16 ? 3 : 5;
    *bytes =
        8 + (int64_t)writer->manifest->config.bytes + 4 + 4 + shape + 4 * count;
    return ERR_OK;
}

int64_t mds_writer_shards(const struct mds_writer *writer)
{
    return writer->manifest->shards;
}

json_t *mds_writer_shard(struct mds_writer *writer, int64_t shard)
{
    const char *text = NULL;
    size_t bytes = 0;
    mds_manifest_entry(writer->manifest, shard, &text, &bytes);
    json_decref(writer->entry);
    writer->entry = json_loadb(text, bytes, 0, NULL);
    return writer->entry;
}

enum err mds_writer_again(struct mds_writer *writer, const json_t *shard)
{
    char path[FSIO_PATH_MAX];
    int64_t found = 0;
    const json_t *file = json_object_get(shard, "raw_data");
    const char *name = json_string_value(json_object_get(file, "basename"));
    json_int_t bytes = json_integer_value(json_object_get(file, "bytes"));
    assert(writer->samples == 0);
    TRY(fsio_path(path, "%s/%s", writer->folder, name != NULL ? name : ""));
    TRY(regular_size(path, &found));
    if (found != bytes)
        return err_set(ERR_DATA, "%s: has %lld bytes, not %lld", path,
                       (long long)found, (long long)bytes);
    char *text = json_dumps(shard, JSON_SORT_KEYS | JSON_ENSURE_ASCII);
    if (text == NULL)
        return err_set(ERR_MEMORY, "%s: no memory for the index", path);
    enum err rc = mds_manifest_again(writer->manifest, text);
    free(text);
    return rc;
}
