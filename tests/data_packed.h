/* Bytes and data sets packed as other programs do it, which are read here and
 * never written. */
#pragma once

#include <jansson.h>
#include <zlib.h>
#include <zstd.h>
#if __has_include(<bzlib.h>)
#include <bzlib.h>
#endif
#if __has_include(<snappy-c.h>)
#include <snappy-c.h>
#endif
#if __has_include(<brotli/encode.h>)
#include <brotli/encode.h>
#endif

#include "src/data/codec/checksum.h"
#include "src/data/codec/codec.h"
#include "src/data/mds/mds_index.h"
#include "tests/data_fixture.h"

static const char *const packed_hashes[] = { "sha1", "xxh64", NULL };

static inline size_t packed_gz(uint8_t *out, size_t room, const void *data,
                               size_t bytes, int level)
{
    z_stream stream = { .next_in = (z_const Bytef *)data,
                        .avail_in = (uInt)bytes,
                        .next_out = out,
                        .avail_out = (uInt)room };
    if (deflateInit2(&stream, level, Z_DEFLATED, 15 + 16, 8,
                     Z_DEFAULT_STRATEGY) != Z_OK)
        return 0;
    int rc = deflate(&stream, Z_FINISH);
    deflateEnd(&stream);
    return rc == Z_STREAM_END ? stream.total_out : 0;
}

/* By "gz", "zstd:3", ..., which the build has; for the caller to free. */
static inline uint8_t *packed_bytes(const char *text, const void *data,
                                    size_t bytes, size_t *size)
{
    const char *colon = strchr(text, ':');
    int level = colon != NULL ? atoi(colon + 1) : 9;
    size_t room = bytes + bytes / 2 + 1024;
    uint8_t *out = malloc(room);
    *size = 0;
    if (strncmp(text, "zstd", 4) == 0)
        *size = ZSTD_compress(out, room, data, bytes, level);
    else if (strncmp(text, "gz", 2) == 0)
        *size = packed_gz(out, room, data, bytes, level);
#ifdef BZ_OK
    unsigned count = (unsigned)room;
    if (strncmp(text, "bz2", 3) == 0 &&
        BZ2_bzBuffToBuffCompress((char *)out, &count, (char *)data,
                                 (unsigned)bytes, level, 0, 0) == BZ_OK)
        *size = count;
#endif
#ifdef BROTLI_DEFAULT_WINDOW
    if (strncmp(text, "br", 2) == 0 &&
        BrotliEncoderCompress(level, BROTLI_DEFAULT_WINDOW, BROTLI_DEFAULT_MODE,
                              bytes, data, &room, out) == BROTLI_TRUE)
        *size = room;
#endif
#if __has_include(<snappy-c.h>)
    if (strcmp(text, "snappy") == 0 &&
        snappy_compress(data, bytes, (char *)out, &room) == SNAPPY_OK)
        *size = room;
#endif
    fixture_need(*size > 0 || bytes == 0 ? ERR_OK
                                         : err_set(ERR_INTERNAL, "%s", text));
    return out;
}

/* The entry of a shard's packed file, which takes the raw one's place. */
static inline json_t *packed_file(const char *path, const char *text,
                                  const json_t *raw)
{
    char file[FSIO_PATH_MAX], name[96], hex[CHECKSUM_TEXT_BYTES], *data = NULL;
    size_t bytes = 0, size = 0;
    const char *from = json_string_value(json_object_get(raw, "basename"));
    json_t *hashes = json_object(), *value = NULL;
    const char *key = NULL;
    fixture_need(fsio_path(file, "%s/%s", path, from));
    fixture_need(fsio_read_file(file, 1 << 28, &data, &bytes));
    unlink(file);
    uint8_t *packed = packed_bytes(text, data, bytes, &size);
    snprintf(name, sizeof name, "%s.%.*s", from, (int)strcspn(text, ":"), text);
    fixture_need(fsio_path(file, "%s/%s", path, name));
    fixture_write_file(file, packed, size);
    json_object_foreach(json_object_get(raw, "hashes"), key, value)
    {
        struct checksum *sum = NULL;
        fixture_need(checksum_create(key, &sum));
        fixture_need(checksum_update(sum, packed, size));
        fixture_need(checksum_finish(sum, hex));
        json_object_set_new(hashes, key, json_string(hex));
        checksum_destroy(sum);
    }
    free(packed);
    free(data);
    return json_pack("{s:s, s:I, s:o}", "basename", name, "bytes",
                     (json_int_t)size, "hashes", hashes);
}

/* Pack the shards of a set. */
static inline void packed_shards(const char *path, const char *text)
{
    char index[FSIO_PATH_MAX];
    fixture_need(fsio_path(index, "%s/" MDS_INDEX_NAME, path));
    json_t *root = json_load_file(index, 0, NULL), *shard = NULL;
    size_t s = 0;
    json_array_foreach(json_object_get(root, "shards"), s, shard)
    {
        json_object_set_new(
            shard, "zip_data",
            packed_file(path, text, json_object_get(shard, "raw_data")));
        json_object_set_new(shard, "compression", json_string(text));
    }
    fixture_need(json_dump_file(root, index, JSON_SORT_KEYS) == 0 ? ERR_OK
                                                                  : ERR_IO);
    json_decref(root);
}

/* Samples of one length in shards with hashes; packed unless that is NULL. */
static inline void packed_set(const char *path, int64_t samples, int64_t length,
                              int64_t size_limit, const char *text)
{
    int64_t lengths[64];
    for (int64_t s = 0; s < samples; s++)
        lengths[s] = length;
    fixture_set(path, lengths, samples, size_limit, packed_hashes);
    if (text != NULL)
        packed_shards(path, text);
}
