/* Unpacks a file as a stream, whatever it is packed with.
 *
 * Three ends are told apart: that of the file (`ended`: read() gave nothing),
 * that of the packed data (`complete`: whatever began has ended), and that of
 * the text, which is where both are. The file's end without the other is data
 * that were cut short. A codec takes all that it is given into its own state,
 * so a step that neither takes nor gives while the file has more is damage, and
 * the loop cannot hang on it. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/new.h"
#include "src/data/codec/codec.h"

#define CODEC_READER_BYTES ((size_t)256 << 10)

struct codec_reader {
    const char *path;
    int fd;
    const struct codec *codec;
    void *state; /* the codec's */
    bool ended;  /* the file */
    bool complete;
    int64_t position;
    const uint8_t *in;
    size_t in_bytes;
    uint8_t buffer[CODEC_READER_BYTES];
};

/* More input behind what there is. */
static enum err codec_reader_fill(struct codec_reader *reader)
{
    assert(reader->in_bytes < CODEC_READER_BYTES);
    if (reader->in_bytes > 0)
        memmove(reader->buffer, reader->in, reader->in_bytes);
    reader->in = reader->buffer;
    ssize_t got;
    do
        got = read(reader->fd, reader->buffer + reader->in_bytes,
                   CODEC_READER_BYTES - reader->in_bytes);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return err_errno("%s: read", reader->path);
    reader->ended = got == 0;
    reader->in_bytes += (size_t)got;
    reader->position += got;
    return ERR_OK;
}

enum err codec_reader_open(const struct codec *codec, const char *path, int fd,
                           const uint8_t *head, size_t bytes,
                           struct codec_reader **out)
{
    assert(path != NULL && fd >= 0 && bytes < CODEC_READER_BYTES);
    struct codec_reader *reader = NULL;
    enum err rc = codec_check(codec);
    if (rc == ERR_OK && codec->ops->open == NULL)
        rc = err_set(ERR_UNSUPPORTED,
                     "'%s' has no form for texts, only for shards; pack it "
                     "with zstd, gz, bz2 or br",
                     codec->name);
    TRY(err_prefix(rc, "%s", path));
    TRY(new_zeroed(&reader, 1));
    rc = codec->ops->open(&reader->state);
    if (rc != ERR_OK) {
        free(reader);
        return err_prefix(rc, "%s", path);
    }
    reader->path = path;
    reader->fd = fd;
    reader->codec = codec;
    reader->in = reader->buffer;
    reader->in_bytes = bytes;
    reader->position = (int64_t)bytes;
    if (bytes > 0)
        memcpy(reader->buffer, head, bytes);
    *out = reader;
    return ERR_OK;
}

void codec_reader_close(struct codec_reader *reader)
{
    if (reader == NULL)
        return;
    reader->codec->ops->close(reader->state);
    free(reader);
}

/* One step; *moved: something was taken or came out. */
static enum err codec_reader_step(struct codec_reader *reader, uint8_t *data,
                                  size_t bytes, size_t *got, bool *moved)
{
    struct codec_flow flow = { reader->in, reader->in_bytes, data, bytes,
                               reader->complete };
    TRY(err_prefix(reader->codec->ops->step(reader->state, &flow), "%s",
                   reader->path));
    *got = bytes - flow.out_bytes;
    *moved = *got > 0 || flow.in_bytes < reader->in_bytes;
    reader->in = flow.in;
    reader->in_bytes = flow.in_bytes;
    reader->complete = flow.complete;
    return ERR_OK;
}

enum err codec_reader_read(struct codec_reader *reader, uint8_t *data,
                           size_t bytes, size_t *got)
{
    assert(reader != NULL && data != NULL && bytes > 0 && got != NULL);
    bool moved = true;
    *got = 0;
    while (*got == 0) {
        if (reader->in_bytes == 0 && !reader->ended)
            TRY(codec_reader_fill(reader));
        TRY(codec_reader_step(reader, data, bytes, got, &moved));
        if (moved)
            continue;
        if (!reader->ended)
            return err_set(ERR_DATA, "%s: is no valid %s data", reader->path,
                           reader->codec->name);
        if (!reader->complete)
            return err_set(ERR_DATA,
                           "%s: its %s data is cut short; copy or make it "
                           "again",
                           reader->path, reader->codec->name);
        break;
    }
    return ERR_OK;
}

int64_t codec_reader_position(const struct codec_reader *reader)
{
    return reader->position - (int64_t)reader->in_bytes;
}
