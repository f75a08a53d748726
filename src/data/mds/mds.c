/* Reads samples out of one MDS shard, and checks its size and checksums. Which
 * shards there are is read in mds_index.c, values are decoded in
 * mds_encoding.c.
 *
 * A shard, little-endian:
 *
 *   u32 samples
 *   u32 offset[samples + 1]   of each sample from the file's start; the last is
 *                             the file's length
 *   a JSON text               of the columns; the index has it, too: not read
 *   the samples, back to back, each of them
 *     u32 size                of each column that has no fixed one
 *     the columns' bytes      in the same order, by name (mds_encoding.h)
 *
 * A sample is found by two reads at most, of its pair of offsets and of its
 * bytes. Nothing of it is believed: offsets have to lie behind the table and
 * grow, and the sizes have to add up to the sample, before a byte is taken.
 * Each message says what was wrong and what to do, since "damaged" alone would
 * send people to the wrong disk. */
#include "src/data/mds/mds.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/digest.h"
#include "src/base/fsio.h"
#include "src/base/new.h"
#include "src/data/codec/checksum.h"
#include "src/base/regular.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "MDS is little-endian and is read without conversion");

/* Bytes that checksums take at once. */
#define MDS_SUM_BYTES ((size_t)1 << 20)

struct mds_shard {
    char *path;
    struct mds_shard_info info;
    int fd;
    uint8_t *offsets; /* the table; NULL: not kept */
};

static uint32_t mds_u32(const uint8_t *data)
{
    uint32_t value;
    memcpy(&value, data, sizeof value);
    return value;
}

/* ERR_DATA when the file became shorter meanwhile. */
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
                   (long long)shard->info.bytes);
}

enum err mds_check_size(const char *path, int64_t wanted)
{
    assert(path != NULL);
    int64_t bytes = 0;
    enum err rc = regular_size(path, &bytes);
    if (rc == ERR_DATA && !fsio_exists(path))
        return err_set(ERR_DATA,
                       "%s: no such file, but the index names it; copy the "
                       "data set again",
                       path);
    if (rc == ERR_OK && bytes != wanted)
        return err_set(ERR_DATA,
                       "%s: has %lld bytes, but the index says %lld; copy the "
                       "data set again",
                       path, (long long)bytes, (long long)wanted);
    return rc;
}

/* Where the last sample ends is where the file ends. */
static enum err mds_check_head(const struct mds_shard *shard)
{
    uint8_t word[4];
    int64_t samples = shard->info.samples;
    TRY(mds_pread(shard, word, sizeof word, 0));
    if (mds_u32(word) != samples)
        return err_set(ERR_DATA,
                       "%s: holds %u samples, but the index says %lld",
                       shard->path, mds_u32(word), (long long)samples);
    if (4 + 4 * (samples + 1) > shard->info.bytes)
        return err_set(ERR_DATA, "%s: too short for its offset table",
                       shard->path);
    TRY(mds_pread(shard, word, sizeof word, 4 + 4 * samples));
    if (mds_u32(word) != shard->info.bytes)
        return err_set(ERR_DATA,
                       "%s: samples end at byte %u of %lld; the file is "
                       "damaged",
                       shard->path, mds_u32(word),
                       (long long)shard->info.bytes);
    return ERR_OK;
}

/* Each sample lies between the table and the file's end. */
static enum err mds_check_offsets(const struct mds_shard *shard, int64_t index,
                                  int64_t begin, int64_t end)
{
    int64_t first = 4 + 4 * (shard->info.samples + 1);
    if (begin >= first && end >= begin && end <= shard->info.bytes)
        return ERR_OK;
    return err_set(ERR_DATA,
                   "%s: sample %lld is damaged: its offsets are %lld and "
                   "%lld, outside [%lld, %lld]",
                   shard->path, (long long)index, (long long)begin,
                   (long long)end, (long long)first,
                   (long long)shard->info.bytes);
}

/* Those of all samples are looked at at once, for a shard may have no
 * checksum. */
static enum err mds_keep_offsets(struct mds_shard *shard, size_t table_max)
{
    size_t bytes = 4 * ((size_t)shard->info.samples + 1);
    if (bytes > table_max)
        return ERR_OK;
    TRY(new_room(&shard->offsets, bytes));
    TRY(mds_pread(shard, shard->offsets, bytes, 4));
    for (int64_t s = 0; s < shard->info.samples; s++)
        TRY(mds_check_offsets(shard, s, mds_u32(shard->offsets + 4 * s),
                              mds_u32(shard->offsets + 4 * (s + 1))));
    return ERR_OK;
}

enum err mds_shard_open(const char *path, const char *shown,
                        const struct mds_shard_info *info, bool known,
                        size_t table_max, struct mds_shard **out)
{
    assert(path != NULL && shown != NULL && info != NULL && out != NULL);
    enum err rc = ERR_OK;
    int64_t bytes = 0;
    /* before it is opened, which says best what is wrong with a path */
    TRY(mds_check_size(path, info->bytes));
    struct mds_shard *shard = NULL;
    TRY(new_zeroed(&shard, 1));
    shard->info = *info;
    shard->fd = -1;
    TRY_OUT(new_text(&shard->path, shown));
    TRY_OUT(regular_open(path, &shard->fd, &bytes));
    if (!known)
        TRY_OUT(mds_check_head(shard));
    TRY_OUT(mds_keep_offsets(shard, table_max));
out:
    return new_or_none(rc, shard, out, mds_shard_close);
}

void mds_shard_close(struct mds_shard *shard)
{
    if (shard == NULL)
        return;
    fsio_close(shard->fd);
    free(shard->offsets);
    free(shard->path);
    free(shard);
}

static enum err mds_read_sample(const struct mds_shard *shard, int64_t index,
                                struct buffer *buffer)
{
    uint8_t pair[8];
    if (shard->offsets != NULL)
        memcpy(pair, shard->offsets + 4 * index, sizeof pair);
    else
        TRY(mds_pread(shard, pair, sizeof pair, 4 + 4 * index));
    int64_t begin = mds_u32(pair), end = mds_u32(pair + 4);
    TRY(mds_check_offsets(shard, index, begin, end));
    size_t bytes = (size_t)(end - begin);
    buffer->bytes = 0;
    TRY(buffer_reserve(buffer, bytes + 1)); /* one to point to */
    buffer->bytes = bytes;
    return mds_pread(shard, buffer->data, buffer->bytes, begin);
}

/* Where the columns lie in a sample. */
static enum err mds_divide(const struct mds_layout *layout,
                           const struct buffer *sample,
                           struct mds_span *columns)
{
    if ((uint64_t)layout->head_bytes > sample->bytes)
        return err_set(ERR_DATA,
                       "is damaged: it is too short for its column sizes");
    /* two walks at once: `next` over the size words, `end` over the columns */
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
                           struct buffer *buffer, struct mds_span *columns)
{
    assert(index >= 0 && index < shard->info.samples);
    TRY(mds_read_sample(shard, index, buffer));
    return err_prefix(mds_divide(shard->info.layout, buffer, columns),
                      "%s: sample %lld", shard->path, (long long)index);
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
    /* bytes have no type of their own: the sidecar's, or int64 */
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
                        int token_type, struct buffer *buffer,
                        struct mds_sample *out)
{
    struct mds_span columns[MDS_LAYOUT_COLUMNS_MAX];
    *out = (struct mds_sample){ 0 };
    TRY(mds_shard_columns(shard, index, buffer, columns));
    for (enum mds_role r = 0; r < MDS_ROLES; r++) {
        TRY(err_prefix(mds_decode_role(shard->info.layout, r, token_type,
                                       columns, &out->value[r]),
                       "%s: sample %lld", shard->path, (long long)index));
    }
    return ERR_OK;
}

/* These checksums, or the digest, in one pass; *whole: the watch did not end
 * it. */
static enum err mds_sum(const struct mds_shard *shard, struct file_sums *sums,
                        struct digest *digest,
                        const struct dataset_watch *watch, bool *whole)
{
    enum err rc = ERR_OK;
    int64_t size = shard->info.bytes;
    *whole = true;
    uint8_t *part = NULL;
    TRY(new_room(&part, MDS_SUM_BYTES));
    for (int64_t at = 0; at < size; at += (int64_t)MDS_SUM_BYTES) {
        int64_t left = size - at;
        size_t bytes =
            left < (int64_t)MDS_SUM_BYTES ? (size_t)left : MDS_SUM_BYTES;
        /* a MiB at a time is some milliseconds: so soon a signal is heard */
        if (watch != NULL && !watch->go_on(watch->self)) {
            *whole = false;
            break;
        }
        TRY_OUT(mds_pread(shard, part, bytes, at));
        TRY_OUT(digest != NULL ? digest_update(digest, part, bytes)
                               : file_sums_update(sums, part, bytes));
    }
out:
    free(part);
    return rc;
}

enum err mds_shard_verify(const struct mds_shard *shard,
                          const struct file_entry *file,
                          const struct dataset_watch *watch)
{
    enum err rc = ERR_OK;
    bool whole = false;
    struct file_sums *sums = NULL;
    TRY(file_sums_create(file->hash, file->hashes, &sums));
    if (!file_sums_is_empty(sums))
        TRY_OUT(mds_sum(shard, sums, NULL, watch, &whole));
    if (whole)
        rc = file_sums_compare(sums);
    if (rc == ERR_DATA)
        rc = err_set(ERR_DATA,
                     "%s: %s; the file is damaged or was replaced: copy the "
                     "data set again",
                     shard->path, err_text());
out:
    file_sums_destroy(sums);
    return rc;
}

enum err mds_shard_sha256(const struct mds_shard *shard, char hex[65])
{
    assert(shard != NULL && hex != NULL);
    enum err rc = ERR_OK;
    struct digest *digest = NULL;
    bool whole = false;
    TRY(digest_create(&digest));
    TRY_OUT(mds_sum(shard, NULL, digest, NULL, &whole));
    rc = digest_finish(digest, hex);
out:
    digest_destroy(digest);
    return rc;
}

const char *mds_shard_path(const struct mds_shard *shard)
{
    return shard->path;
}
