/* Unpacks a file into a new one of a size that is known. */
#include <assert.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "src/base/fsio.h"
#include "src/base/new.h"
#include "src/data/codec/codec.h"
#include "src/data/codec/checksum.h"
#include "src/base/regular.h"

#define CODEC_UNPACK_BYTES ((size_t)1 << 20)

struct codec_unpack_to {
    int fd;
    const char *path;
    struct file_sums *sums; /* NULL: none */
};

static enum err codec_unpack_put(const struct codec_unpack_to *to,
                                 const uint8_t *data, size_t bytes, int64_t at)
{
    if (to->sums != NULL)
        TRY(file_sums_update(to->sums, data, bytes));
    return fsio_pwrite(to->fd, data, bytes, at, to->path);
}

static enum err codec_unpack_size(const char *from, int64_t bytes, bool more)
{
    return err_set(ERR_DATA,
                   "%s: unpacks to %s than the %lld bytes that the index says; "
                   "copy the data set again",
                   from, more ? "more" : "less", (long long)bytes);
}

/* Until the piece is full or the text ends. */
static enum err codec_unpack_fill(struct codec_reader *reader, uint8_t *piece,
                                  size_t *filled)
{
    size_t got = 1;
    *filled = 0;
    while (got > 0 && *filled < CODEC_UNPACK_BYTES) {
        TRY(codec_reader_read(reader, piece + *filled,
                              CODEC_UNPACK_BYTES - *filled, &got));
        *filled += got;
    }
    return ERR_OK;
}

/* In pieces that stay in the processor's cache until they are summed and
 * written. Pages of one buffer for all would cost more than its copies. */
static enum err codec_unpack_stream(const struct codec *codec, const char *from,
                                    int fd, const struct codec_unpack_to *to,
                                    int64_t bytes)
{
    enum err rc = ERR_OK;
    struct codec_reader *reader = NULL;
    int64_t done = 0;
    size_t filled = CODEC_UNPACK_BYTES;
    uint8_t *piece = NULL;
    TRY(new_room(&piece, CODEC_UNPACK_BYTES));
    TRY_OUT(codec_reader_open(codec, from, fd, NULL, 0, &reader));
    while (filled == CODEC_UNPACK_BYTES) {
        TRY_OUT(codec_unpack_fill(reader, piece, &filled));
        if ((int64_t)filled > bytes - done)
            TRY_OUT(codec_unpack_size(from, bytes, true));
        TRY_OUT(codec_unpack_put(to, piece, filled, done));
        done += (int64_t)filled;
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
                                   const struct codec_unpack_to *to,
                                   int64_t bytes)
{
    enum err rc = ERR_OK;
    char *packed = NULL;
    size_t packed_bytes = 0;
    size_t most = (size_t)bytes + (size_t)bytes / 4 + 64;
    uint8_t *data = NULL;
    TRY(new_room(&data, (size_t)bytes + 1));
    TRY_OUT(regular_read(from, most, &packed, &packed_bytes));
    rc = codec->ops->unpack((const uint8_t *)packed, packed_bytes, data,
                            (size_t)bytes);
    TRY_OUT(err_prefix(rc, "%s", from));
    TRY_OUT(codec_unpack_put(to, data, (size_t)bytes, 0));
out:
    free(packed);
    free(data);
    return rc;
}

enum err codec_unpack_bytes(const struct codec_ops *ops, const char *name,
                            const uint8_t *data, size_t bytes, uint8_t *out,
                            size_t out_bytes)
{
    enum err rc = ERR_OK;
    void *state = NULL;
    bool moved = true;
    struct codec_flow flow = { data, bytes, out, out_bytes, false };
    if (ops->unpack != NULL)
        return ops->unpack(data, bytes, out, out_bytes);
    if (ops->open == NULL)
        return err_set(ERR_UNSUPPORTED,
                       "is packed with %s, which is not in this build", name);
    TRY(ops->open(&state));
    while (rc == ERR_OK && moved && !(flow.complete && flow.in_bytes == 0)) {
        size_t in = flow.in_bytes, room = flow.out_bytes;
        rc = ops->step(state, &flow);
        moved = flow.in_bytes < in || flow.out_bytes < room;
    }
    ops->close(state);
    if (rc == ERR_OK && (!flow.complete || flow.out_bytes > 0))
        rc = err_set(ERR_DATA, "is no %s data of %zu bytes", name, out_bytes);
    return rc;
}

enum err codec_unpack_file(const char *text, const char *from, const char *to,
                           int64_t bytes, struct file_sums *sums)
{
    assert(text != NULL && from != NULL && to != NULL && bytes >= 0);
    const struct codec *codec = NULL;
    int in = -1;
    int64_t packed = 0;
    enum err rc = codec_find(text, &codec);
    TRY(err_prefix(rc, "%s", from));
    TRY(regular_open(from, &in, &packed)); /* a pipe would keep us waiting */
    /* never over a file that is there: somebody may be reading it */
    int fd = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) {
        rc = err_errno("%s: create", to);
        close(in);
        return rc;
    }
    struct codec_unpack_to out = { fd, to, sums };
    rc = codec->ops->open == NULL
             ? codec_unpack_whole(codec, from, &out, bytes)
             : codec_unpack_stream(codec, from, in, &out, bytes);
    close(in);
    if (close(fd) != 0 && rc == ERR_OK)
        rc = err_errno("%s: close", to);
    if (rc != ERR_OK)
        unlink(to);
    return rc;
}
