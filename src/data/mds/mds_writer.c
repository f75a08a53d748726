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
 * index, which makes a folder a set, comes last. It is kept as JSON, an entry a
 * shard that shares what all have, so that the journal of an unfinished set can have
 * single ones and a later process can put them back. */
#include "src/data/mds/mds_writer.h"

#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/fsio.h"
#include "src/base/array.h"
#include "src/base/jsontext.h"
#include "src/base/new.h"
#include "src/base/regular.h"
#include "src/data/codec/checksum.h"
#include "src/data/mds/mds_encoding.h"
#include "src/data/mds/mds_index.h"
#include "src/data/set/values.h"
#include "src/text/unicode.h"

/* As the index orders them: by name. */
struct mds_writer_column {
    const char *name, *encoding; /* of the index */
    int64_t bytes;               /* or MDS_ENCODING_VARIABLE */
    int given;                   /* which of options.columns it was */
};

struct mds_writer {
    char folder[FSIO_PATH_MAX];
    int columns;
    struct mds_writer_column *column;
    const char *const *hashes; /* the options' */
    int64_t size_limit;
    json_t *form;         /* what the entries of all shards have in the index */
    json_t *shards;       /* entries of those that are on disk */
    struct buffer config; /* the form's text, which a shard file has in it */
    int64_t shard_bytes;  /* the next shard's, by the rotation rule */
    struct buffer data;   /* its samples */
    size_t *ends;         /* where each ends in data */
    size_t samples, samples_capacity;
    struct buffer encoded; /* of mds_writer_add() */
};

/* Two parts of a file, one behind the other. */
struct mds_writer_file {
    const char *name;
    const void *part[2];
    size_t bytes[2];
};

const char *const mds_writer_sha256[] = { "sha256", NULL };

static void mds_writer_reset(struct mds_writer *writer)
{
    writer->data.bytes = 0;
    writer->samples = 0;
    writer->shard_bytes = 8 + (int64_t)writer->config.bytes;
}

static int mds_writer_by_name(const void *a, const void *b)
{
    const struct mds_writer_column *left = a, *right = b;
    return strcmp(left->name, right->name);
}

static enum err mds_writer_columns(struct mds_writer *writer,
                                   const struct mds_writer_options *options)
{
    struct mds_encoding encoding;
    writer->columns = options->count;
    TRY(new_zeroed(&writer->column, (size_t)options->count));
    for (int c = 0; c < options->count; c++) {
        const struct mds_column *given = &options->columns[c];
        size_t bytes = strlen(given->name);
        mds_encoding_parse(given->encoding, &encoding);
        if (encoding.kind == MDS_UNKNOWN || encoding.kind == MDS_PICKLE)
            return err_set(ERR_USAGE,
                           "column '%.60s': '%.60s' is no encoding that is "
                           "written here",
                           given->name, given->encoding);
        if (unicode_valid((const uint8_t *)given->name, bytes) != bytes)
            return err_set(ERR_USAGE, "'%.60s' is no valid UTF-8", given->name);
        writer->column[c] =
            (struct mds_writer_column){ given->name, given->encoding,
                                        mds_encoding_bytes(&encoding), c };
    }
    /* Streaming orders columns by name, in the index and in samples */
    qsort(writer->column, (size_t)writer->columns, sizeof *writer->column,
          mds_writer_by_name);
    for (int c = 1; c < writer->columns; c++)
        if (strcmp(writer->column[c - 1].name, writer->column[c].name) == 0)
            return err_set(ERR_USAGE, "there are two columns '%.60s'",
                           writer->column[c].name);
    return ERR_OK;
}

/* A column's texts are those of the form from here on. */
static enum err mds_writer_form(struct mds_writer *writer)
{
    json_t *encodings = json_array(), *names = json_array();
    json_t *sizes = json_array(), *hashes = json_array();
    for (int c = 0; c < writer->columns; c++) {
        struct mds_writer_column *column = &writer->column[c];
        json_t *encoding = json_string(column->encoding);
        json_t *name = json_string(column->name);
        column->encoding = json_string_value(encoding);
        column->name = json_string_value(name);
        jsontext_append(&encodings, encoding);
        jsontext_append(&names, name);
        jsontext_append(&sizes, column->bytes < 0
                                    ? json_null()
                                    : json_integer(column->bytes));
    }
    for (int h = 0; writer->hashes[h] != NULL; h++)
        jsontext_append(&hashes, json_string(writer->hashes[h]));
    writer->form = json_pack("{s:o, s:o, s:o, s:n, s:s, s:o, s:I, s:i}",
                             "column_encodings", encodings, "column_names",
                             names, "column_sizes", sizes, "compression",
                             "format", "mds", "hashes", hashes, "size_limit",
                             (json_int_t)writer->size_limit, "version", 2);
    writer->shards = json_array();
    return mds_text_add(&writer->config, json_incref(writer->form));
}

enum err mds_writer_create(const char *folder,
                           const struct mds_writer_options *options,
                           struct mds_writer **out)
{
    assert(folder != NULL && options->columns != NULL && options->count > 0);
    static const char *const none[] = { NULL };
    enum err rc = ERR_OK;
    if (options->size_limit < 1 || options->size_limit > UINT32_MAX)
        return err_set(ERR_USAGE,
                       "a shard of %lld bytes is not possible; offsets are "
                       "32-bit, so choose 1 to 4294967295",
                       (long long)options->size_limit);
    struct mds_writer *writer = NULL;
    TRY(new_zeroed(&writer, 1));
    writer->size_limit = options->size_limit;
    writer->hashes = options->hashes != NULL ? options->hashes : none;
    TRY_OUT(fsio_path(writer->folder, "%s", folder));
    TRY_OUT(mds_writer_columns(writer, options));
    TRY_OUT(mds_writer_form(writer));
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
    json_decref(writer->form);
    json_decref(writer->shards);
    buffer_free(&writer->config);
    buffer_free(&writer->encoded);
    buffer_free(&writer->data);
    free(writer->column);
    free(writer->ends);
    free(writer);
}

static enum err mds_writer_save(const struct mds_writer *writer,
                                const struct mds_writer_file *file)
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
    size_t config = writer->config.bytes;
    memcpy(head + bytes - config, writer->config.data, config);
}

static enum err mds_writer_hash(const char *name,
                                const struct mds_writer_file *file,
                                json_t **hashes)
{
    enum err rc = ERR_OK;
    char hex[CHECKSUM_TEXT_BYTES];
    struct checksum *sum = NULL;
    TRY_OUT(checksum_create(name, &sum));
    for (int p = 0; p < 2; p++)
        TRY_OUT(checksum_update(sum, file->part[p], file->bytes[p]));
    TRY_OUT(checksum_finish(sum, hex));
    jsontext_set(hashes, name, json_string(hex));
out:
    checksum_destroy(sum);
    return rc;
}

/* The shard's entry, behind those that there are. */
static enum err mds_writer_enter(struct mds_writer *writer,
                                 const struct mds_writer_file *file)
{
    enum err rc = ERR_OK;
    json_t *hashes = json_object(), *entry = jsontext_copy(writer->form);
    for (int h = 0; rc == ERR_OK && writer->hashes[h] != NULL; h++)
        rc = mds_writer_hash(writer->hashes[h], file, &hashes);
    jsontext_set(&entry, "raw_data",
                 json_pack("{s:s, s:I, s:o}", "basename", file->name, "bytes",
                           (json_int_t)(file->bytes[0] + file->bytes[1]),
                           "hashes", hashes));
    jsontext_set(&entry, "samples", json_integer((json_int_t)writer->samples));
    jsontext_set(&entry, "zip_data", json_null());
    if (rc == ERR_OK && json_array_append(writer->shards, entry) != 0)
        rc = err_set(ERR_MEMORY, "%s: no memory for the index", writer->folder);
    json_decref(entry);
    return rc;
}

static enum err mds_writer_flush(struct mds_writer *writer)
{
    enum err rc = ERR_OK;
    char name[64];
    snprintf(name, sizeof name, "shard.%05lld.mds",
             (long long)mds_writer_shards(writer));
    size_t bytes = 8 + 4 * writer->samples + writer->config.bytes;
    assert(writer->shard_bytes == (int64_t)(bytes + writer->data.bytes));
    assert(writer->shard_bytes <= UINT32_MAX); /* its offsets have 32 bits */
    uint8_t *head = NULL;
    TRY(new_room(&head, bytes));
    mds_writer_head(writer, bytes, head);
    struct mds_writer_file raw = { name,
                                   { head, writer->data.data },
                                   { bytes, writer->data.bytes } };
    TRY_OUT(mds_writer_save(writer, &raw));
    TRY_OUT(mds_writer_enter(writer, &raw));
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
    int64_t most = (int64_t)UINT32_MAX - 12 - (int64_t)writer->config.bytes;
    *bytes = 0;
    for (int c = 0; c < writer->columns; c++) {
        const struct mds_writer_column *column = &writer->column[c];
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
    int64_t bytes = 0;
    TRY(mds_writer_measure(writer, fields, &bytes));
    /* Streaming's rule to the byte, for its sets are to be ours: a sample that
     * is larger than the limit leaves an empty shard before it */
    if (writer->size_limit < writer->shard_bytes + bytes + 4)
        TRY(mds_writer_flush(writer));
    TRY(buffer_reserve(&writer->data, (size_t)bytes));
    TRY(array_room(&writer->ends, &writer->samples_capacity,
                   writer->samples + 1));
    /* size words first, then the columns, both in the order of their names */
    for (int c = 0; c < writer->columns; c++) {
        uint32_t size = (uint32_t)fields[writer->column[c].given].bytes;
        if (writer->column[c].bytes < 0)
            TRY(buffer_add(&writer->data, &size, sizeof size));
    }
    for (int c = 0; c < writer->columns; c++) {
        const struct mds_field *field = &fields[writer->column[c].given];
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
    assert(count > 0 && tokens != NULL && writer->columns == 1);
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
    enum err rc = ERR_OK;
    char path[FSIO_PATH_MAX];
    struct buffer text = { 0 };
    if (writer->samples > 0)
        TRY_OUT(mds_writer_flush(writer));
    TRY_OUT(fsio_path(path, "%s/" MDS_INDEX_NAME, writer->folder));
    TRY_OUT(mds_text_add(&text, json_pack("{s:O, s:i}", "shards",
                                          writer->shards, "version", 2)));
    TRY_OUT(fsio_write_atomic(path, text.data, text.bytes));
out:
    buffer_free(&text);
    return rc;
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
    *bytes = 8 + (int64_t)writer->config.bytes + 4 + 4 + shape + 4 * count;
    return ERR_OK;
}

int64_t mds_writer_shards(const struct mds_writer *writer)
{
    return (int64_t)json_array_size(writer->shards);
}

json_t *mds_writer_shard(const struct mds_writer *writer, int64_t shard)
{
    return json_array_get(writer->shards, (size_t)shard);
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
    return json_array_append(writer->shards, (json_t *)shard) == 0
               ? ERR_OK
               : err_set(ERR_MEMORY, "%s: no memory for the index", path);
}
