/* Opens and reads files and stdin, unpacked where they are packed.
 *
 * The first bytes decide: what a file is packed with, and whether it is text at
 * all. They are read into `head` and given out again before the rest, as a pipe
 * cannot be rewound. A text is judged to its end while it is read
 * (binary_count), since a file may begin well; JSON lines have a parser for
 * that. Waiting is done in poll() with a limit, so that a user who stops a
 * program that reads a silent pipe is heard. */
#include "src/data/texts/source.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <iconv.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/fsio.h"
#include "src/base/new.h"
#include "src/data/codec/codec.h"
#include "src/text/binary_kind.h"

#define SOURCE_IDLE_MS 500
#define SOURCE_SKIP_BYTES ((size_t)1 << 16)

struct source {
    char path[FSIO_PATH_MAX];
    enum source_wanted wanted;
    int fd;
    struct codec_reader *unpacking; /* NULL: a file as it is */
    uint8_t head[BINARY_KIND_HEAD_BYTES];
    size_t head_bytes, head_used;
    struct binary_count count; /* of SOURCE_TEXT */
    int64_t position;
    struct source_options options;
    struct source_text *text; /* of another encoding; NULL: as it is */
};

/* A text of another encoding: what is read of it, and what that is in UTF-8. */
struct source_text {
    iconv_t from;
    int64_t taken; /* of what was read */
    size_t bytes;  /* not taken */
    size_t begin, end;
    char read[SOURCE_SKIP_BYTES], text[SOURCE_SKIP_BYTES];
};

static bool source_is_stdin(const struct source *source)
{
    return strcmp(source->path, "-") == 0;
}

/* Wait for input, so that a stop is noticed while a pipe gives none. */
static enum err source_wait(const struct source *source)
{
    struct pollfd wanted = { .fd = source->fd, .events = POLLIN };
    const struct source_options *options = &source->options;
    while (options->idle != NULL && poll(&wanted, 1, SOURCE_IDLE_MS) <= 0)
        TRY(options->idle(options->context));
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
                           source_name(source));
    } while (n < 0 && errno == EINTR);
    if (n < 0)
        return err_errno("%s: read", source_name(source));
    *got = (size_t)n;
    return ERR_OK;
}

static enum err source_unpack(struct source *source, uint8_t *data,
                              size_t bytes, size_t *got)
{
    if (source->unpacking == NULL)
        return source_fill(source, data, bytes, got);
    TRY(source_wait(source));
    return codec_reader_read(source->unpacking, data, bytes, got);
}

/* More text, of what is read; none at the end. */
static enum err source_convert(struct source *source)
{
    struct source_text *text = source->text;
    bool ended = false;
    text->begin = text->end = 0;
    do {
        char *in = text->read, *out = text->text;
        size_t got = 0, room = sizeof text->text;
        if (text->bytes < sizeof text->read) {
            TRY(source_unpack(source, (uint8_t *)text->read + text->bytes,
                              sizeof text->read - text->bytes, &got));
            ended = got == 0;
        }
        text->bytes += got;
        size_t rest = text->bytes;
        size_t done = iconv(text->from, &in, &rest, &out, &room);
        if (done != (size_t)-1 &&
            ended) /* a letter that waits for its accent */
            done = iconv(text->from, NULL, NULL, &out, &room);
        bool wrong =
            done == (size_t)-1 && errno != E2BIG && (errno != EINVAL || ended);
        text->taken += in - text->read;
        text->end = sizeof text->text - room;
        if (wrong && text->end == 0)
            return err_set(ERR_DATA, "%s: its byte %lld is not in %s",
                           source_name(source), (long long)text->taken,
                           source->options.encoding);
        memmove(text->read, in, rest);
        text->bytes = rest;
    } while (text->end == 0 && !ended);
    return ERR_OK;
}

static enum err source_next(struct source *source, uint8_t *data, size_t bytes,
                            size_t *got)
{
    struct source_text *text = source->text;
    if (text == NULL)
        return source_unpack(source, data, bytes, got);
    if (text->begin == text->end)
        TRY(source_convert(source));
    *got = text->end - text->begin < bytes ? text->end - text->begin : bytes;
    memcpy(data, text->text + text->begin, *got);
    text->begin += *got;
    return ERR_OK;
}

static enum err source_encoding(struct source *source)
{
    iconv_t from = iconv_open("UTF-8", source->options.encoding);
    if (from == (iconv_t)-1)
        return errno != EINVAL
                   ? err_errno("the encoding '%s'", source->options.encoding)
                   : err_set(ERR_USAGE,
                             "the encoding '%s' is not known; iconv -l lists "
                             "them",
                             source->options.encoding);
    enum err rc = new_room(&source->text, 1);
    if (rc != ERR_OK) {
        iconv_close(from);
        return rc;
    }
    source->text->from = from;
    source->text->taken = 0;
    source->text->bytes = source->text->begin = source->text->end = 0;
    return ERR_OK;
}

/* The beginning, of which there is none yet. */
static enum err source_look(struct source *source)
{
    size_t got = 0;
    source->head_bytes = 0;
    do {
        TRY(source_next(source, source->head + source->head_bytes,
                        sizeof source->head - source->head_bytes, &got));
        source->head_bytes += got;
    } while (got > 0 && source->head_bytes < sizeof source->head);
    return ERR_OK;
}

/* What comes next, of which 0 bytes are the end. */
static bool source_is_text(struct source *source, const uint8_t *data,
                           size_t bytes)
{
    return source->wanted >= SOURCE_RECORDS ||
           binary_count_add(&source->count, data, bytes);
}

static enum err source_refuse(const struct source *source)
{
    static const char *const names[] = { [SOURCE_TEXT] = "text",
                                         [SOURCE_PROMPTS] = "prompts",
                                         [SOURCE_RECORDS] = "JSON lines" };
    const char *name = source_name(source);
    enum err rc = binary_kind_check(name, names[source->wanted], source->head,
                                    source->head_bytes);
    if (rc == ERR_OK)
        rc = binary_count_refuse(&source->count, name);
    return source->wanted == SOURCE_TEXT
               ? err_set(rc,
                         "%s; --binary reads it as it is, --encoding NAME from "
                         "another encoding",
                         err_text())
               : rc;
}

/* The beginning tells most of it, and all of it where it is the whole. */
static bool source_begins_well(struct source *source)
{
    if (source->wanted == SOURCE_ANY)
        return true;
    if (binary_kind_find(source->head, source->head_bytes) != NULL)
        return false;
    bool whole = source->head_bytes < sizeof source->head;
    return (source->head_bytes == 0 ||
            source_is_text(source, source->head, source->head_bytes)) &&
           (!whole || source_is_text(source, NULL, 0));
}

static enum err source_begin(struct source *source)
{
    const char *path = source->path;
    source->fd = source_is_stdin(source) ? dup(STDIN_FILENO)
                                         : open(path, O_RDONLY | O_CLOEXEC);
    if (source->fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return err_set(ERR_DATA, "%s: no such file", path);
    if (source->fd < 0)
        return err_errno("%s: open", source_name(source));
    TRY(source_look(source));
    /* a name first, since brotli's bytes have no mark */
    const struct codec *codec = codec_by_extension(path);
    if (codec == NULL)
        codec = codec_by_magic(source->head, source->head_bytes);
    if (codec != NULL)
        TRY(codec_reader_open(codec, source_name(source), source->fd,
                              source->head, source->head_bytes,
                              &source->unpacking));
    if (source->options.encoding != NULL)
        TRY(source_encoding(source));
    if (codec == NULL && source->text != NULL) { /* it was looked at */
        memcpy(source->text->read, source->head, source->head_bytes);
        source->text->bytes = source->head_bytes;
    }
    return codec != NULL || source->text != NULL ? source_look(source) : ERR_OK;
}

/* Begun, whatever is in it. */
static enum err source_create(const char *path, enum source_wanted wanted,
                              const struct source_options *options,
                              struct source **out)
{
    enum err rc = ERR_OK;
    struct source *source = NULL;
    TRY(new_zeroed(&source, 1));
    source->fd = -1;
    source->wanted = wanted;
    source->count = (struct binary_count)BINARY_COUNT_NONE;
    if (options != NULL)
        source->options = *options;
    TRY_OUT(fsio_path(source->path, "%s", path));
    TRY_OUT(source_begin(source));
out:
    return new_or_none(rc, source, out, source_close);
}

enum err source_open(const char *path, enum source_wanted wanted,
                     const struct source_options *options, struct source **out)
{
    assert(path != NULL && out != NULL);
    struct source *source = NULL;
    TRY(source_create(path, wanted, options, &source));
    if (source_begins_well(source)) {
        *out = source;
        return ERR_OK;
    }
    enum err rc = source_refuse(source);
    source_close(source);
    return rc;
}

enum err source_kind(const char *path, enum source_wanted wanted,
                     const char *encoding, const char **why)
{
    const struct source_options options = { .encoding = encoding };
    struct source *source = NULL;
    *why = NULL;
    if (wanted == SOURCE_ANY)
        return ERR_OK;
    TRY(source_create(path, wanted, &options, &source));
    const struct binary_kind *kind =
        binary_kind_find(source->head, source->head_bytes);
    if (kind != NULL)
        *why = kind->name;
    else if (!source_begins_well(source))
        *why = source->count.nul >= 0 ? "with NUL bytes" : "not UTF-8";
    source_close(source);
    return ERR_OK;
}

void source_close(struct source *source)
{
    if (source == NULL)
        return;
    codec_reader_close(source->unpacking);
    if (source->text != NULL)
        iconv_close(source->text->from);
    free(source->text);
    fsio_close(source->fd);
    free(source);
}

enum err source_read(struct source *source, uint8_t *data, size_t bytes,
                     size_t *got)
{
    assert(bytes > 0);
    size_t head = source->head_bytes - source->head_used;
    if (head == 0) {
        TRY(source_next(source, data, bytes, got));
        if (!source_is_text(source, data, *got))
            return source_refuse(source);
    } else {
        *got = head < bytes ? head : bytes;
        memcpy(data, source->head + source->head_used, *got);
        source->head_used += *got;
    }
    source->position += (int64_t)*got;
    return ERR_OK;
}

/* In a regular file as it is there is no need to read what is left out. */
static enum err source_seek(struct source *source, int64_t *bytes)
{
    struct stat status;
    int64_t to = source->position + *bytes;
    if (source->unpacking != NULL || source->text != NULL ||
        source_is_stdin(source) || fstat(source->fd, &status) != 0 ||
        !S_ISREG(status.st_mode) || to > status.st_size ||
        to < (int64_t)source->head_bytes)
        return ERR_OK;
    if (lseek(source->fd, to, SEEK_SET) < 0)
        return err_errno("%s: seek", source->path);
    /* the beginning was looked at and is not given out; what is jumped over is
     * not judged */
    source->head_used = source->head_bytes;
    binary_count_skip(&source->count, to - source->count.bytes);
    source->position = to;
    *bytes = 0;
    return ERR_OK;
}

enum err source_skip(struct source *source, int64_t bytes)
{
    assert(source != NULL);
    uint8_t data[SOURCE_SKIP_BYTES];
    TRY(source_seek(source, &bytes));
    while (bytes > 0) {
        size_t got = 0;
        size_t part =
            bytes < (int64_t)sizeof data ? (size_t)bytes : sizeof data;
        TRY(source_read(source, data, part, &got));
        if (got == 0)
            return err_set(ERR_DATA,
                           "%s: ends %lld bytes before the place to go on from",
                           source->path, (long long)bytes);
        bytes -= (int64_t)got;
    }
    return ERR_OK;
}

int64_t source_position(const struct source *source)
{
    return source->unpacking != NULL ? codec_reader_position(source->unpacking)
                                     : source->position;
}

const char *source_name(const struct source *source)
{
    return source_is_stdin(source) ? "stdin" : source->path;
}
