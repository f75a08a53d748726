/* Unpacks a file into a new one of a size that is known. */
#include <assert.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "src/base/fsio.h"
#include "src/data/codec.h"
#include "src/data/regular.h"

#define CODEC_UNPACK_BYTES ((size_t)1 << 20)
/* Larger files are unpacked piece by piece where that is possible. */
#define CODEC_UNPACK_WHOLE_MAX ((int64_t)512 << 20)

static enum err codec_unpack_size(const char *from, int64_t bytes, bool more)
{
    return err_set(ERR_DATA,
                   "%s: unpacks to %s than the %lld bytes that the index says; "
                   "copy the data set again",
                   from, more ? "more" : "less", (long long)bytes);
}

static enum err codec_unpack_stream(const struct codec *codec, const char *from,
                                    int fd, const char *to, int64_t bytes)
{
    enum err rc = ERR_OK;
    struct codec_reader *reader = NULL;
    int64_t done = 0;
    size_t got = 1;
    uint8_t *piece = malloc(CODEC_UNPACK_BYTES);
    if (piece == NULL)
        return err_set(ERR_MEMORY, "%s: no memory to unpack it", from);
    TRY_OUT(codec_reader_open(from, codec->name, &reader));
    while (got > 0) {
        TRY_OUT(codec_reader_read(reader, piece, CODEC_UNPACK_BYTES, &got));
        if ((int64_t)got > bytes - done) {
            rc = codec_unpack_size(from, bytes, true);
            goto out;
        }
        TRY_OUT(fsio_pwrite(fd, piece, got, done, to));
        done += (int64_t)got;
    }
    if (done < bytes)
        rc = codec_unpack_size(from, bytes, false);
out:
    codec_reader_close(reader);
    free(piece);
    return rc;
}

/* In one piece. The file is never read beyond what packing to that
 * size can take, so that neither end is larger than the index says. */
static enum err codec_unpack_whole(const struct codec *codec, const char *from,
                                   int fd, const char *to, int64_t bytes)
{
    enum err rc = ERR_OK;
    char *packed = NULL;
    size_t packed_bytes = 0;
    size_t most = (size_t)bytes + (size_t)bytes / 4 + 64;
    uint8_t *data = malloc((size_t)bytes + 1);
    if (data == NULL)
        return err_set(ERR_MEMORY, "%s: no memory for %lld bytes", from,
                       (long long)bytes);
    TRY_OUT(regular_read(from, most, &packed, &packed_bytes));
    rc = codec->ops->unpack((const uint8_t *)packed, packed_bytes, data,
                            (size_t)bytes);
    if (rc != ERR_OK) {
        err_prefix(rc, "%s", from);
        goto out;
    }
    TRY_OUT(fsio_pwrite(fd, data, (size_t)bytes, 0, to));
out:
    free(packed);
    free(data);
    return rc;
}

enum err codec_unpack_file(const char *text, const char *from, const char *to,
                           int64_t bytes)
{
    assert(text != NULL && from != NULL && to != NULL && bytes >= 0);
    const struct codec *codec = NULL;
    int64_t packed = 0;
    enum err rc = codec_find(text, &codec, NULL);
    if (rc != ERR_OK)
        return err_prefix(rc, "%s", from);
    TRY(regular_size(from, &packed)); /* a pipe would keep us waiting */
    int fd = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return err_errno("%s: create", to);
    bool whole = codec->ops->open == NULL || (codec->ops->unpack != NULL &&
                                              bytes <= CODEC_UNPACK_WHOLE_MAX);
    rc = whole ? codec_unpack_whole(codec, from, fd, to, bytes)
               : codec_unpack_stream(codec, from, fd, to, bytes);
    if (close(fd) != 0 && rc == ERR_OK)
        rc = err_errno("%s: close", to);
    if (rc != ERR_OK)
        unlink(to);
    return rc;
}
