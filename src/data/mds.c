#include "src/data/mds.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/digest.h"
#include "src/base/fsio.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "MDS is little-endian and is read without conversion");

/* NumPy's int32 in a column of dynamic type. */
#define MDS_TYPE_INT32 33

struct mds_shard {
    char path[FSIO_PATH_MAX];
    const struct mds_shard_info *info;
    const uint8_t *map;
    size_t bytes;
};

static uint32_t mds_u32(const uint8_t *data)
{
    uint32_t value;
    memcpy(&value, data, sizeof value);
    return value;
}

static uint32_t mds_offset(const struct mds_shard *shard, int64_t index)
{
    return mds_u32(shard->map + 4 + 4 * index);
}

static enum err mds_map(struct mds_shard *shard)
{
    enum err rc = ERR_OK;
    struct stat status;
    int fd = open(shard->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return err_set(ERR_DATA, "%s: no such file, but the index names it",
                       shard->path);
    if (fd < 0)
        return err_errno("%s: open", shard->path);
    if (fstat(fd, &status) != 0) {
        rc = err_errno("%s: stat", shard->path);
        goto out;
    }
    if (!S_ISREG(status.st_mode) || status.st_size != shard->info->bytes) {
        rc = err_set(ERR_DATA,
                     "%s: has %lld bytes, but the index says %lld; copy the "
                     "data set again",
                     shard->path, (long long)status.st_size,
                     (long long)shard->info->bytes);
        goto out;
    }
    void *map =
        mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (map == MAP_FAILED) {
        rc = err_errno("%s: mmap", shard->path);
        goto out;
    }
    shard->map = map;
    shard->bytes = (size_t)status.st_size;
out:
    close(fd);
    return rc;
}

static enum err mds_check_offsets(const struct mds_shard *shard)
{
    int64_t samples = shard->info->samples;
    if (shard->bytes < 8 || mds_u32(shard->map) != samples)
        return err_set(ERR_DATA,
                       "%s: holds %u samples, but the index says %lld",
                       shard->path, shard->bytes < 4 ? 0 : mds_u32(shard->map),
                       (long long)samples);
    uint64_t before = 4 + 4 * ((uint64_t)samples + 1);
    if (before > shard->bytes)
        return err_set(ERR_DATA, "%s: too short for its offset table",
                       shard->path);
    for (int64_t i = 0; i <= samples; i++) {
        uint32_t offset = mds_offset(shard, i);
        if (offset < before || offset > shard->bytes)
            return err_set(ERR_DATA,
                           "%s: offset %lld is %u, outside [%llu, %zu]; the "
                           "file is damaged",
                           shard->path, (long long)i, offset,
                           (unsigned long long)before, shard->bytes);
        before = offset;
    }
    if (before != shard->bytes)
        return err_set(ERR_DATA,
                       "%s: samples end at byte %llu of %zu; the file is "
                       "damaged",
                       shard->path, (unsigned long long)before, shard->bytes);
    return ERR_OK;
}

enum err mds_shard_open(const char *path, const struct mds_shard_info *info,
                        struct mds_shard **out)
{
    assert(path != NULL && info != NULL && out != NULL);
    enum err rc = ERR_OK;
    struct mds_shard *shard = calloc(1, sizeof *shard);
    if (shard == NULL)
        return err_set(ERR_MEMORY, "%s: out of memory", path);
    shard->info = info;
    TRY(fsio_path(shard->path, "%s", path));
    TRY(mds_map(shard));
    TRY(mds_check_offsets(shard));
    *out = shard;
    shard = NULL;
out:
    mds_shard_close(shard);
    return rc;
}

void mds_shard_close(struct mds_shard *shard)
{
    if (shard == NULL)
        return;
    if (shard->map != NULL)
        munmap((void *)(uintptr_t)shard->map, shard->bytes);
    free(shard);
}

void mds_shard_sample(const struct mds_shard *shard, int64_t index,
                      const uint8_t **data, size_t *bytes)
{
    assert(index >= 0 && index < shard->info->samples);
    uint32_t begin = mds_offset(shard, index);
    *data = shard->map + begin;
    *bytes = mds_offset(shard, index + 1) - begin;
}

/* Where the column `tokens` lies in a sample; NULL: the sizes do not add up. */
static const char *mds_find_column(const struct mds_shard_info *info,
                                   const uint8_t **data, size_t *bytes)
{
    uint64_t head = 0;
    for (int c = 0; c < info->columns; c++)
        head += info->column_bytes[c] < 0 ? 4 : 0;
    if (head > *bytes)
        return "it is too short for its column sizes";
    uint64_t end = head, begin = 0, size = 0;
    const uint8_t *next = *data;
    for (int c = 0; c < info->columns; c++) {
        int64_t fixed = info->column_bytes[c];
        uint64_t column = fixed < 0 ? mds_u32(next) : (uint64_t)fixed;
        next += fixed < 0 ? 4 : 0;
        if (c == info->tokens_column) {
            begin = end;
            size = column;
        }
        end += column; /* at most 16 terms below 2^32 */
    }
    if (end != *bytes)
        return "its column sizes do not add up to its size";
    *data += begin;
    *bytes = (size_t)size;
    return NULL;
}

/* Strip type and shape; the text says what is wrong, NULL: nothing. */
static const char *mds_decode_array(const struct mds_shard_info *info,
                                    const uint8_t *data, size_t bytes,
                                    const uint8_t **values, int64_t *count)
{
    if (!info->tokens_typed) {
        if (bytes < 1 || data[0] != MDS_TYPE_INT32)
            return "its tokens are not int32";
        data++;
        bytes--;
    }
    uint64_t dimension = bytes / 4;
    if (!info->tokens_shaped) {
        if (bytes < 1 || data[0] >> 2 != 1)
            return "its tokens are not a one-dimensional array";
        size_t width = (size_t)1 << (data[0] & 3);
        if (bytes < 1 + width)
            return "its shape is cut off";
        dimension = 0;
        memcpy(&dimension, data + 1, width);
        data += 1 + width;
        bytes -= 1 + width;
    }
    if (bytes % 4 != 0 || dimension != bytes / 4 || dimension == 0)
        return "its shape does not agree with its size";
    *values = data;
    *count = (int64_t)dimension;
    return NULL;
}

enum err mds_shard_tokens(const struct mds_shard *shard, int64_t index,
                          const uint8_t **values, int64_t *count)
{
    const uint8_t *data = NULL;
    size_t bytes = 0;
    mds_shard_sample(shard, index, &data, &bytes);
    const char *problem = mds_find_column(shard->info, &data, &bytes);
    if (problem == NULL)
        problem = mds_decode_array(shard->info, data, bytes, values, count);
    if (problem == NULL)
        return ERR_OK;
    return err_set(ERR_DATA, "%s: sample %lld is damaged: %s", shard->path,
                   (long long)index, problem);
}

enum err mds_shard_verify(const struct mds_shard *shard)
{
    enum err rc = ERR_OK;
    char hex[65];
    if (shard->info->sha256[0] == '\0')
        return ERR_OK;
    TRY(digest_bytes(shard->map, shard->bytes, hex));
    if (strcmp(hex, shard->info->sha256) != 0)
        return err_set(ERR_DATA,
                       "%s: its SHA-256 is not the one in the index; the file "
                       "is damaged or was replaced",
                       shard->path);
out:
    return rc;
}

const char *mds_shard_path(const struct mds_shard *shard)
{
    return shard->path;
}
