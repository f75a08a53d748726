/* Writes shards and their index as Streaming does. The folder appears by
 * publish.c; text becomes tokens in tokenize.c. */
#include "src/data/mds_writer.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/digest.h"
#include "src/base/fsio.h"
#include "src/data/mds_index.h"

#define MDS_WRITER_JSON (JSON_SORT_KEYS | JSON_ENSURE_ASCII)
/* Size word, then at most a shape byte and a 32-bit dimension. */
#define MDS_WRITER_HEAD_BYTES 9

struct mds_writer {
    char folder[FSIO_PATH_MAX];
    int64_t size_limit;
    bool sha256;
    char *config;
    size_t config_bytes;
    json_t *shards;
    int64_t shard_bytes; /* the next shard's, by the rotation rule */
    uint8_t *data;       /* its samples */
    size_t used, capacity;
    size_t *ends; /* where each ends in data */
    size_t samples, samples_capacity;
};

static json_t *mds_writer_config(const struct mds_writer *writer)
{
    return json_pack("{s:i, s:s, s:n, s:o, s:I, s:[s], s:[s], s:[n]}",
                     "version", 2, "format", "mds", "compression", "hashes",
                     writer->sha256 ? json_pack("[s]", "sha256") : json_array(),
                     "size_limit", (json_int_t)writer->size_limit,
                     "column_names", "tokens", "column_encodings",
                     "ndarray:int32", "column_sizes");
}

static void mds_writer_reset(struct mds_writer *writer)
{
    writer->used = 0;
    writer->samples = 0;
    writer->shard_bytes = 8 + (int64_t)writer->config_bytes;
}

enum err mds_writer_create(const char *folder, int64_t size_limit, bool sha256,
                           struct mds_writer **out)
{
    assert(folder != NULL && out != NULL);
    enum err rc = ERR_OK;
    if (size_limit <= 0 || size_limit > UINT32_MAX)
        return err_set(ERR_USAGE,
                       "a shard of %lld bytes is not possible; offsets are "
                       "32-bit, so choose 1 to 4294967295",
                       (long long)size_limit);
    json_t *config = NULL;
    struct mds_writer *writer = calloc(1, sizeof *writer);
    if (writer == NULL)
        return err_set(ERR_MEMORY, "%s: out of memory", folder);
    writer->size_limit = size_limit;
    writer->sha256 = sha256;
    TRY_OUT(fsio_path(writer->folder, "%s", folder));
    writer->shards = json_array();
    config = mds_writer_config(writer);
    writer->config = json_dumps(config, MDS_WRITER_JSON);
    if (writer->shards == NULL || writer->config == NULL) {
        rc = err_set(ERR_MEMORY, "%s: out of memory", folder);
        goto out;
    }
    writer->config_bytes = strlen(writer->config);
    mds_writer_reset(writer);
    *out = writer;
    writer = NULL;
out:
    json_decref(config);
    mds_writer_destroy(writer);
    return rc;
}

void mds_writer_destroy(struct mds_writer *writer)
{
    if (writer == NULL)
        return;
    json_decref(writer->shards);
    free(writer->config);
    free(writer->data);
    free(writer->ends);
    free(writer);
}

static enum err mds_writer_save(const struct mds_writer *writer,
                                const char *name, const uint8_t *head,
                                size_t head_bytes)
{
    enum err rc = ERR_OK;
    char path[FSIO_PATH_MAX];
    TRY(fsio_path(path, "%s/%s", writer->folder, name));
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return err_errno("%s: create", path);
    rc = fsio_pwrite(fd, head, head_bytes, 0, path);
    if (rc == ERR_OK)
        rc = fsio_pwrite(fd, writer->data, writer->used, (int64_t)head_bytes,
                         path);
    if (rc == ERR_OK && fsync(fd) != 0)
        rc = err_errno("%s: fsync", path);
    if (close(fd) != 0 && rc == ERR_OK)
        rc = err_errno("%s: close", path);
    return rc;
}

static enum err mds_writer_hashes(const struct mds_writer *writer,
                                  const uint8_t *head, size_t head_bytes,
                                  json_t **out)
{
    enum err rc = ERR_OK;
    char hex[65];
    struct digest *digest = NULL;
    if (writer->sha256) {
        TRY_OUT(digest_create(&digest));
        TRY_OUT(digest_update(digest, head, head_bytes));
        TRY_OUT(digest_update(digest, writer->data, writer->used));
        TRY_OUT(digest_finish(digest, hex));
    }
    *out = writer->sha256 ? json_pack("{s:s}", "sha256", hex) : json_object();
out:
    digest_destroy(digest);
    return rc;
}

/* Offset table and configuration, as they stand before the samples. */
static uint8_t *mds_writer_head(const struct mds_writer *writer, size_t bytes)
{
    uint8_t *head = malloc(bytes);
    if (head == NULL)
        return NULL;
    uint32_t word = (uint32_t)writer->samples;
    memcpy(head, &word, 4);
    for (size_t i = 0; i <= writer->samples; i++) {
        word = (uint32_t)(bytes + (i == 0 ? 0 : writer->ends[i - 1]));
        memcpy(head + 4 + 4 * i, &word, 4);
    }
    memcpy(head + bytes - writer->config_bytes, writer->config,
           writer->config_bytes);
    return head;
}

static enum err mds_writer_flush(struct mds_writer *writer)
{
    enum err rc = ERR_OK;
    char name[64];
    json_t *hashes = NULL;
    snprintf(name, sizeof name, "shard.%05zu.mds",
             json_array_size(writer->shards));
    size_t bytes = 8 + 4 * writer->samples + writer->config_bytes;
    assert(writer->shard_bytes == (int64_t)(bytes + writer->used));
    assert(bytes + writer->used <= UINT32_MAX); /* its offsets have 32 bits */
    uint8_t *head = mds_writer_head(writer, bytes);
    if (head == NULL)
        return err_set(ERR_MEMORY, "%s: no memory for %zu offsets", name,
                       writer->samples);
    TRY_OUT(mds_writer_hashes(writer, head, bytes, &hashes));
    TRY_OUT(mds_writer_save(writer, name, head, bytes));
    json_t *shard = mds_writer_config(writer);
    json_t *rest = json_pack(
        "{s:I, s:{s:s, s:I, s:O}, s:n}", "samples", (json_int_t)writer->samples,
        "raw_data", "basename", name, "bytes",
        (json_int_t)(bytes + writer->used), "hashes", hashes, "zip_data");
    int failed = json_object_update(shard, rest);
    json_decref(rest);
    if (failed != 0 || json_array_append_new(writer->shards, shard) != 0) {
        rc = err_set(ERR_MEMORY, "%s: no memory for the index", name);
        if (failed != 0)
            json_decref(shard);
        goto out;
    }
    mds_writer_reset(writer);
out:
    json_decref(hashes);
    free(head);
    return rc;
}

static enum err mds_writer_reserve(struct mds_writer *writer, size_t bytes)
{
    if (writer->used + bytes > writer->capacity) {
        size_t capacity = writer->used + bytes;
        capacity += capacity / 2;
        uint8_t *data = realloc(writer->data, capacity);
        if (data == NULL)
            return err_set(ERR_MEMORY, "no memory for a shard of %zu bytes",
                           capacity);
        writer->data = data;
        writer->capacity = capacity;
    }
    if (writer->samples == writer->samples_capacity) {
        size_t capacity = writer->samples + writer->samples / 2 + 64;
        size_t *ends = realloc(writer->ends, capacity * sizeof *ends);
        if (ends == NULL)
            return err_set(ERR_MEMORY, "no memory for a shard of %zu samples",
                           capacity);
        writer->ends = ends;
        writer->samples_capacity = capacity;
    }
    return ERR_OK;
}

/* Size word and shape of a sample; returns its bytes. */
static size_t mds_writer_sample_head(int64_t count,
                                     uint8_t head[MDS_WRITER_HEAD_BYTES])
{
    unsigned k = count < 1 << 8 ? 0 : count < 1 << 16 ? 1 : 2;
    size_t width = (size_t)1 << k;
    uint32_t size = (uint32_t)(1 + width + 4 * (size_t)count);
    memcpy(head, &size, 4);
    head[4] = (uint8_t)(1 << 2 | k);
    memcpy(head + 5, &count, width);
    return 5 + width;
}

enum err mds_writer_add(struct mds_writer *writer, const int32_t *tokens,
                        int64_t count)
{
    assert(count > 0 && tokens != NULL);
    uint8_t head[MDS_WRITER_HEAD_BYTES];
    if (count > (UINT32_MAX - 4096) / 4)
        return err_set(ERR_USAGE,
                       "a sample of %lld tokens is too long for a "
                       "shard; at most 2^30 - 1025 are possible",
                       (long long)count);
    size_t head_bytes = mds_writer_sample_head(count, head);
    size_t bytes = head_bytes + 4 * (size_t)count;
    if (writer->size_limit < writer->shard_bytes + (int64_t)bytes + 4)
        TRY(mds_writer_flush(writer));
    TRY(mds_writer_reserve(writer, bytes));
    assert(writer->used + bytes <= writer->capacity);
    assert(writer->samples < writer->samples_capacity);
    memcpy(writer->data + writer->used, head, head_bytes);
    memcpy(writer->data + writer->used + head_bytes, tokens, 4 * (size_t)count);
    writer->used += bytes;
    writer->ends[writer->samples++] = writer->used;
    writer->shard_bytes += (int64_t)bytes + 4;
    return ERR_OK;
}

enum err mds_writer_finish(struct mds_writer *writer)
{
    enum err rc = ERR_OK;
    char path[FSIO_PATH_MAX];
    char *text = NULL;
    json_t *index = NULL;
    if (writer->samples > 0)
        TRY_OUT(mds_writer_flush(writer));
    TRY_OUT(fsio_path(path, "%s/%s", writer->folder, MDS_INDEX_NAME));
    index = json_pack("{s:i, s:O}", "version", 2, "shards", writer->shards);
    text = json_dumps(index, MDS_WRITER_JSON);
    if (text == NULL) {
        rc = err_set(ERR_MEMORY, "%s: out of memory", path);
        goto out;
    }
    TRY_OUT(fsio_write_atomic(path, text, strlen(text)));
out:
    free(text);
    json_decref(index);
    return rc;
}

enum err mds_writer_shard_bytes(struct mds_writer *writer, int64_t count,
                                int64_t *bytes)
{
    uint8_t head[MDS_WRITER_HEAD_BYTES];
    if (count <= 0 || count > (UINT32_MAX - 4096) / 4)
        return err_set(ERR_USAGE,
                       "a sample of %lld tokens does not fit a "
                       "shard",
                       (long long)count);
    *bytes = 8 + (int64_t)writer->config_bytes + 4 + 4 * count +
             (int64_t)mds_writer_sample_head(count, head);
    return ERR_OK;
}
