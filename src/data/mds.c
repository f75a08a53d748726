/* Reads samples out of one MDS shard, and checks its size and checksums. Which
 * shards there are is read in mds_index.c, values are decoded in
 * mds_encoding.c. */
#include "src/data/mds.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/fsio.h"
#include "src/data/checksum.h"
#include "src/data/regular.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "MDS is little-endian and is read without conversion");

/* Bytes that checksums take at once. */
#define MDS_PIECE_BYTES ((size_t)1 << 20)

struct mds_shard {
    char *path;
    const struct mds_shard_info *info;
    int fd;
};

static uint32_t mds_u32(const uint8_t *data)
{
    uint32_t value;
    memcpy(&value, data, sizeof value);
    return value;
}

/* `rc` of looking at the file: what an index that names it means. */
static enum err mds_missing(enum err rc, const char *path,
                            const struct mds_shard_info *info)
{
    if (rc != ERR_DATA || fsio_exists(path))
        return rc;
    if (info->compression == NULL)
        return err_set(ERR_DATA,
                       "%s: no such file, but the index names it; copy the "
                       "data set again",
                       path);
    return err_set(ERR_DATA,
                   "%s: no such file: the shard is compressed (%.20s), and the "
                   "index does not name its compressed file; copy the data set "
                   "again",
                   path, info->compression);
}

static enum err mds_check_size(const char *path, int64_t bytes,
                               const struct mds_shard_info *info)
{
    if (bytes == info->bytes)
        return ERR_OK;
    return err_set(ERR_DATA,
                   "%s: has %lld bytes, but the index says %lld; copy the "
                   "data set again",
                   path, (long long)bytes, (long long)info->bytes);
}

enum err mds_shard_check(const char *path, const struct mds_shard_info *info)
{
    int64_t bytes = 0;
    TRY(mds_missing(regular_size(path, &bytes), path, info));
    return mds_check_size(path, bytes, info);
}

static enum err mds_pread(const struct mds_shard *shard, void *data,
                          size_t bytes, int64_t offset)
{
    enum err rc = fsio_pread(shard->fd, data, bytes, offset, shard->path);
    if (rc != ERR_DATA)
        return rc;
    return err_set(ERR_DATA,
                   "%s: was cut short while it was in use: it ends before "
                   "byte %lld, and the index says %lld; copy the data set "
                   "again, then start again",
                   shard->path, (long long)offset + (long long)bytes,
                   (long long)shard->info->bytes);
}

/* Where the last sample ends is where the file ends. */
static enum err mds_check_head(const struct mds_shard *shard)
{
    uint8_t word[4];
    int64_t samples = shard->info->samples;
    TRY(mds_pread(shard, word, sizeof word, 0));
    if (mds_u32(word) != samples)
        return err_set(ERR_DATA,
                       "%s: holds %u samples, but the index says %lld",
                       shard->path, mds_u32(word), (long long)samples);
    if (4 + 4 * (samples + 1) > shard->info->bytes)
        return err_set(ERR_DATA, "%s: too short for its offset table",
                       shard->path);
    TRY(mds_pread(shard, word, sizeof word, 4 + 4 * samples));
    if (mds_u32(word) != shard->info->bytes)
        return err_set(ERR_DATA,
                       "%s: samples end at byte %u of %lld; the file is "
                       "damaged",
                       shard->path, mds_u32(word),
                       (long long)shard->info->bytes);
    return ERR_OK;
}

enum err mds_shard_open(const char *path, const struct mds_shard_info *info,
                        bool known, struct mds_shard **out)
{
    assert(path != NULL && info != NULL && out != NULL);
    enum err rc = ERR_OK;
    int64_t bytes = 0;
    struct mds_shard *shard = calloc(1, sizeof *shard);
    if (shard == NULL)
        return err_set(ERR_MEMORY, "%s: out of memory", path);
    shard->info = info;
    shard->fd = -1;
    shard->path = strdup(path);
    if (shard->path == NULL) {
        rc = err_set(ERR_MEMORY, "%s: out of memory", path);
        goto out;
    }
    TRY_OUT(mds_missing(regular_open(path, &shard->fd, &bytes), path, info));
    TRY_OUT(mds_check_size(path, bytes, info));
    if (!known)
        TRY_OUT(mds_check_head(shard));
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
    if (shard->fd >= 0)
        close(shard->fd);
    free(shard->path);
    free(shard);
}

static enum err mds_read_sample(const struct mds_shard *shard, int64_t index,
                                struct mds_buffer *buffer)
{
    uint8_t pair[8];
    int64_t first = 4 + 4 * (shard->info->samples + 1);
    TRY(mds_pread(shard, pair, sizeof pair, 4 + 4 * index));
    int64_t begin = mds_u32(pair), end = mds_u32(pair + 4);
    if (begin < first || end < begin || end > shard->info->bytes)
        return err_set(ERR_DATA,
                       "%s: sample %lld is damaged: its offsets are %lld and "
                       "%lld, outside [%lld, %lld]",
                       shard->path, (long long)index, (long long)begin,
                       (long long)end, (long long)first,
                       (long long)shard->info->bytes);
    buffer->bytes = (size_t)(end - begin);
    TRY(mds_buffer_room(buffer, buffer->bytes));
    return mds_pread(shard, buffer->data, buffer->bytes, begin);
}

/* Where the columns lie in a sample. */
static enum err mds_divide(const struct mds_layout *layout,
                           const struct mds_buffer *sample,
                           struct mds_span *columns)
{
    if ((uint64_t)layout->head_bytes > sample->bytes)
        return err_set(ERR_DATA,
                       "is damaged: it is too short for its column sizes");
    uint64_t end = (uint64_t)layout->head_bytes;
    const uint8_t *next = sample->data;
    for (int c = 0; c < layout->columns; c++) {
        int64_t fixed = layout->column[c].bytes;
        uint64_t size = fixed < 0 ? mds_u32(next) : (uint64_t)fixed;
        next += fixed < 0 ? 4 : 0;
        if (size > sample->bytes - end)
            return err_set(ERR_DATA, "is damaged: its columns are larger than "
                                     "the sample");
        columns[c] = (struct mds_span){ sample->data + end, (size_t)size };
        end += size;
    }
    if (end != sample->bytes)
        return err_set(ERR_DATA, "is damaged: its columns are smaller than "
                                 "the sample");
    return ERR_OK;
}

enum err mds_shard_columns(const struct mds_shard *shard, int64_t index,
                           struct mds_buffer *buffer, struct mds_span *columns)
{
    assert(index >= 0 && index < shard->info->samples);
    TRY(mds_read_sample(shard, index, buffer));
    enum err rc = mds_divide(shard->info->layout, buffer, columns);
    if (rc != ERR_OK)
        err_prefix(rc, "%s: sample %lld", shard->path, (long long)index);
    return rc;
}

static enum err mds_decode_role(const struct mds_layout *layout,
                                enum mds_role role, int token_type,
                                const struct mds_span *columns,
                                struct values *out)
{
    int c = layout->role[role];
    if (c < 0)
        return ERR_OK;
    struct mds_encoding encoding = layout->column[c].encoding;
    if (encoding.kind == MDS_BYTES && token_type != 0)
        encoding.type = token_type;
    enum err rc =
        mds_encoding_decode(&encoding, columns[c].data, columns[c].bytes, out);
    if (rc != ERR_OK && role != MDS_TOKENS)
        return err_prefix(rc, "column '%s'", layout->column[c].name);
    if (rc == ERR_OK && !values_type(out->type)->whole)
        return err_set(ERR_DATA,
                       "its tokens are %s; they have to be whole numbers",
                       values_type(out->type)->name);
    return rc;
}

enum err mds_shard_read(const struct mds_shard *shard, int64_t index,
                        int token_type, struct mds_buffer *buffer,
                        struct mds_sample *out)
{
    struct mds_span columns[MDS_LAYOUT_COLUMNS_MAX];
    *out = (struct mds_sample){ 0 };
    TRY(mds_shard_columns(shard, index, buffer, columns));
    for (enum mds_role r = 0; r < MDS_ROLES; r++) {
        enum err rc = mds_decode_role(shard->info->layout, r, token_type,
                                      columns, &out->value[r]);
        if (rc != ERR_OK)
            return err_prefix(rc, "%s: sample %lld", shard->path,
                              (long long)index);
    }
    return ERR_OK;
}

/* The checksums of these names, of a whole file in one pass; *whole: the watch
 * did not end it. */
static enum err mds_sum(const struct mds_shard *shard, int count,
                        struct checksum *const *sums,
                        const struct dataset_watch *watch, bool *whole)
{
    enum err rc = ERR_OK;
    *whole = true;
    uint8_t *piece = malloc(MDS_PIECE_BYTES);
    if (piece == NULL)
        return err_set(ERR_MEMORY, "%s: out of memory", shard->path);
    for (int64_t at = 0; at < shard->info->bytes;) {
        int64_t left = shard->info->bytes - at;
        if (watch != NULL && !watch->go_on(watch->self)) {
            *whole = false;
            break;
        }
        size_t bytes =
            left < (int64_t)MDS_PIECE_BYTES ? (size_t)left : MDS_PIECE_BYTES;
        TRY_OUT(mds_pread(shard, piece, bytes, at));
        for (int c = 0; c < count; c++)
            if (sums[c] != NULL)
                TRY_OUT(checksum_update(sums[c], piece, bytes));
        at += (int64_t)bytes;
    }
out:
    free(piece);
    return rc;
}

static enum err mds_compare(const struct mds_shard *shard,
                            const struct mds_hash *hash, struct checksum *sum)
{
    char hex[CHECKSUM_TEXT_BYTES];
    TRY(checksum_finish(sum, hex));
    if (strcmp(hex, hash->hex) != 0)
        return err_set(ERR_DATA,
                       "%s: its %s should be %s and is %s; the file is damaged "
                       "or was replaced: copy the data set again",
                       shard->path, hash->name, hash->hex, hex);
    return ERR_OK;
}

enum err mds_shard_verify(const struct mds_shard *shard,
                          const struct dataset_watch *watch)
{
    enum err rc = ERR_OK;
    bool whole = false;
    int count = shard->info->hashes;
    const struct mds_hash *hash = shard->info->hash;
    if (count == 0)
        return ERR_OK;
    struct checksum **sums = calloc((size_t)count, sizeof(*sums));
    if (sums == NULL)
        return err_set(ERR_MEMORY, "%s: out of memory", shard->path);
    for (int h = 0; h < count; h++)
        if (checksum_digits(hash[h].name) > 0)
            TRY_OUT(checksum_create(hash[h].name, &sums[h]));
    TRY_OUT(mds_sum(shard, count, sums, watch, &whole));
    for (int h = 0; h < count && whole; h++)
        if (sums[h] != NULL)
            TRY_OUT(mds_compare(shard, &hash[h], sums[h]));
out:
    for (int h = 0; h < count; h++)
        checksum_destroy(sums[h]);
    free(sums);
    return rc;
}

enum err mds_shard_sha256(const struct mds_shard *shard, char hex[65])
{
    enum err rc = ERR_OK;
    char text[CHECKSUM_TEXT_BYTES];
    struct checksum *sum = NULL;
    bool whole = false;
    TRY_OUT(checksum_create("sha256", &sum));
    TRY_OUT(mds_sum(shard, 1, &sum, NULL, &whole));
    TRY_OUT(checksum_finish(sum, text));
    memcpy(hex, text, 65);
out:
    checksum_destroy(sum);
    return rc;
}

const char *mds_shard_path(const struct mds_shard *shard)
{
    return shard->path;
}
