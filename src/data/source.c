/* Opens and reads files and stdin, and says what they are where that is no
 * text. */
#include "src/data/source.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/fsio.h"

#define SOURCE_IDLE_MS 500
#define SOURCE_MAGIC_BYTES 4
#define SOURCE_SKIP_BYTES ((size_t)1 << 16)

struct source {
    char path[FSIO_PATH_MAX];
    int fd;
    bool seekable;
    struct source_watch watch;        /* idle NULL: unwatched */
    uint8_t head[SOURCE_MAGIC_BYTES]; /* read to look at */
    size_t head_bytes, head_used;
};

/* Training on compressed bytes by mistake would not fail otherwise. */
static enum err source_check(const struct source *source)
{
    static const struct {
        const char *magic;
        size_t bytes;
        const char *tool;
    } formats[] = {
        { "\x1f\x8b\x08", 3, "gzip -dc" },
        { "\x28\xb5\x2f\xfd", 4, "zstd -dc" },
        { "\xfd\x37zXZ", 4, "xz -dc" },
        { "BZh", 3, "bzip2 -dc" },
    };
    for (size_t f = 0; f < sizeof formats / sizeof formats[0]; f++)
        if (source->head_bytes == SOURCE_MAGIC_BYTES &&
            memcmp(source->head, formats[f].magic, formats[f].bytes) == 0)
            return err_set(ERR_DATA,
                           "%s is compressed; give its text on stdin: %s "
                           "%s | tessera-data tokenize ... -",
                           source->path, formats[f].tool,
                           strcmp(source->path, "-") == 0 ? "FILE"
                                                          : source->path);
    return ERR_OK;
}

/* Wait for input, so that a stop is noticed while a pipe gives none. */
static enum err source_wait(const struct source *source)
{
    struct pollfd wanted = { .fd = source->fd, .events = POLLIN };
    while (source->watch.idle != NULL && poll(&wanted, 1, SOURCE_IDLE_MS) <= 0)
        TRY(source->watch.idle(source->watch.context));
    return ERR_OK;
}

static enum err source_fill(struct source *source, uint8_t *data, size_t bytes,
                            size_t *got)
{
    ssize_t n = -1;
    do {
        TRY(source_wait(source));
        n = read(source->fd, data, bytes);
        if (n < 0 && errno == EISDIR)
            return err_set(ERR_DATA, "%s is a folder; name text files",
                           source->path);
    } while (n < 0 && errno == EINTR);
    if (n < 0)
        return err_errno("%s: read", source->path);
    *got = (size_t)n;
    return ERR_OK;
}

static enum err source_begin(struct source *source)
{
    struct stat status;
    size_t got = 0;
    const char *path = source->path;
    source->fd = strcmp(path, "-") == 0 ? dup(STDIN_FILENO)
                                        : open(path, O_RDONLY | O_CLOEXEC);
    if (source->fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return err_set(ERR_DATA, "%s: no such file", path);
    if (source->fd < 0 || fstat(source->fd, &status) != 0)
        return err_errno("%s: open", path);
    source->seekable = S_ISREG(status.st_mode);
    do {
        TRY(source_fill(source, source->head + source->head_bytes,
                        SOURCE_MAGIC_BYTES - source->head_bytes, &got));
        source->head_bytes += got;
    } while (got > 0 && source->head_bytes < SOURCE_MAGIC_BYTES);
    return source_check(source);
}

enum err source_open(const char *path, const struct source_watch *watch,
                     struct source **out)
{
    assert(path != NULL && out != NULL);
    enum err rc = ERR_OK;
    struct source *source = calloc(1, sizeof *source);
    if (source == NULL)
        return err_set(ERR_MEMORY, "%s: out of memory", path);
    source->fd = -1;
    if (watch != NULL)
        source->watch = *watch;
    TRY_OUT(fsio_path(source->path, "%s", path));
    TRY_OUT(source_begin(source));
    *out = source;
    source = NULL;
out:
    source_close(source);
    return rc;
}

void source_close(struct source *source)
{
    if (source == NULL)
        return;
    if (source->fd >= 0)
        close(source->fd);
    free(source);
}

enum err source_read(struct source *source, uint8_t *data, size_t bytes,
                     size_t *got)
{
    assert(bytes > 0);
    size_t head = source->head_bytes - source->head_used;
    if (head == 0)
        return source_fill(source, data, bytes, got);
    *got = head < bytes ? head : bytes;
    memcpy(data, source->head + source->head_used, *got);
    source->head_used += *got;
    return ERR_OK;
}

enum err source_skip(struct source *source, int64_t bytes)
{
    uint8_t data[SOURCE_SKIP_BYTES];
    struct stat status;
    while (bytes > 0) {
        size_t got = 0;
        size_t part =
            bytes < (int64_t)sizeof data ? (size_t)bytes : sizeof data;
        bool headless = source->head_used == source->head_bytes;
        off_t here =
            headless && source->seekable ? lseek(source->fd, 0, SEEK_CUR) : -1;
        if (here >= 0 && fstat(source->fd, &status) == 0 &&
            bytes <= status.st_size - here) {
            if (lseek(source->fd, bytes, SEEK_CUR) < 0)
                return err_errno("%s: seek", source->path);
            return ERR_OK;
        }
        TRY(source_read(source, data, part, &got));
        if (got == 0)
            return err_set(ERR_DATA,
                           "%s: ends %lld bytes before the place to go on from",
                           source->path, (long long)bytes);
        bytes -= (int64_t)got;
    }
    return ERR_OK;
}

const char *source_name(const struct source *source)
{
    return strcmp(source->path, "-") == 0 ? "stdin" : source->path;
}
