/* Reads text files and divides them into documents, a piece at a time. What
 * becomes of the text is the caller's business. */
#include "src/data/text.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEXT_SEPARATOR_BYTES_MAX 4096
#define TEXT_IDLE_MS 500

struct text {
    const struct text_sink *sink;
    const char *separator; /* NULL: none */
    size_t separator_bytes;
    /* How much of the separator the current line has matched so far; these
     * bytes are held back. Meaningless while `other`: the line is not one. */
    size_t matched;
    bool other;
    bool any; /* the document has bytes */
};

static enum err text_piece(struct text *text, const void *data, size_t bytes)
{
    if (bytes == 0)
        return ERR_OK;
    text->any = true;
    return text->sink->piece(text->sink->context, data, bytes);
}

static enum err text_end(struct text *text)
{
    bool any = text->any;
    text->any = false;
    return any ? text->sink->end(text->sink->context) : ERR_OK;
}

/* One byte of a line that may be a separator; *taken tells if it was used. */
static enum err text_match(struct text *text, uint8_t byte, bool *taken)
{
    bool complete = text->matched == text->separator_bytes;
    *taken = true;
    if (complete && byte == '\n') {
        text->matched = 0;
        TRY(text_end(text));
    } else if (!complete && byte == (uint8_t)text->separator[text->matched]) {
        text->matched++;
    } else {
        *taken = false;
        text->other = true;
        TRY(text_piece(text, text->separator, text->matched));
    }
    return ERR_OK;
}

static enum err text_split(struct text *text, const uint8_t *data, size_t bytes)
{
    const uint8_t *end = data + bytes;
    if (text->separator == NULL)
        return text_piece(text, data, bytes);
    while (data < end) {
        if (!text->other) {
            bool taken = false;
            TRY(text_match(text, *data, &taken));
            data += taken ? 1 : 0;
            continue;
        }
        const uint8_t *line = memchr(data, '\n', (size_t)(end - data));
        const uint8_t *next = line != NULL ? line + 1 : end;
        TRY(text_piece(text, data, (size_t)(next - data)));
        text->other = line == NULL;
        text->matched = 0;
        data = next;
    }
    return ERR_OK;
}

/* The end of the file ends the last line and the last document. */
static enum err text_finish(struct text *text)
{
    if (text->separator != NULL && !text->other &&
        text->matched < text->separator_bytes)
        TRY(text_piece(text, text->separator, text->matched));
    return text_end(text);
}

/* Training on compressed bytes by mistake would not fail otherwise. */
static enum err text_check_format(const char *path, const uint8_t *data,
                                  size_t bytes)
{
    static const struct {
        const char *magic;
        size_t bytes;
        const char *tool;
    } formats[] = {
        { "\x1f\x8b\x08", 3, "gzip -dc" },
        { "\x28\xb5\x2f\xfd", 4, "zstd -dc" },
        { "\xfd\x37zXZ", 5, "xz -dc" },
        { "BZh", 3, "bzip2 -dc" },
    };
    for (size_t f = 0; f < sizeof formats / sizeof formats[0]; f++)
        if (bytes >= 4 && bytes >= formats[f].bytes &&
            memcmp(data, formats[f].magic, formats[f].bytes) == 0)
            return err_set(ERR_DATA,
                           "%s is compressed; give its text on stdin: %s "
                           "%s | tessera-data tokenize ... -",
                           path, formats[f].tool,
                           strcmp(path, "-") == 0 ? "FILE" : path);
    return ERR_OK;
}

/* Wait for input, so that a stop is noticed while a pipe gives none. */
static enum err text_wait(int fd, const struct text_sink *sink)
{
    struct pollfd wanted = { .fd = fd, .events = POLLIN };
    while (sink->idle != NULL && poll(&wanted, 1, TEXT_IDLE_MS) <= 0)
        TRY(sink->idle(sink->context));
    return ERR_OK;
}

static enum err text_fill(int fd, const char *path,
                          const struct text_sink *sink, uint8_t *buffer,
                          size_t *bytes)
{
    *bytes = 0;
    while (*bytes < TEXT_PIECE_BYTES_MAX) {
        TRY(text_wait(fd, sink));
        ssize_t got = read(fd, buffer + *bytes, TEXT_PIECE_BYTES_MAX - *bytes);
        if (got < 0 && errno == EISDIR)
            return err_set(ERR_DATA, "%s is a folder; name text files", path);
        if (got < 0 && errno != EINTR)
            return err_errno("%s: read", path);
        if (got == 0)
            break;
        *bytes += got > 0 ? (size_t)got : 0;
    }
    return ERR_OK;
}

static enum err text_open(const char *path, int *fd)
{
    *fd = strcmp(path, "-") == 0 ? dup(STDIN_FILENO)
                                 : open(path, O_RDONLY | O_CLOEXEC);
    if (*fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return err_set(ERR_DATA, "%s: no such file", path);
    return *fd < 0 ? err_errno("%s: open", path) : ERR_OK;
}

enum err text_read(const char *path, const char *separator,
                   const struct text_sink *sink)
{
    assert(path != NULL && sink != NULL);
    enum err rc = ERR_OK;
    int fd = -1;
    size_t bytes = 0;
    uint8_t *buffer = NULL;
    struct text text = { .sink = sink, .separator = separator };
    if (separator != NULL) {
        text.separator_bytes = strlen(separator);
        if (text.separator_bytes > TEXT_SEPARATOR_BYTES_MAX ||
            strchr(separator, '\n') != NULL)
            return err_set(ERR_USAGE,
                           "a separator is one line of at most %d "
                           "bytes",
                           TEXT_SEPARATOR_BYTES_MAX);
    }
    TRY_OUT(text_open(path, &fd));
    buffer = malloc(TEXT_PIECE_BYTES_MAX);
    if (buffer == NULL) {
        rc = err_set(ERR_MEMORY, "%s: no memory for a buffer", path);
        goto out;
    }
    TRY_OUT(text_fill(fd, path, sink, buffer, &bytes));
    TRY_OUT(text_check_format(path, buffer, bytes));
    while (bytes > 0) {
        TRY_OUT(text_split(&text, buffer, bytes));
        TRY_OUT(text_fill(fd, path, sink, buffer, &bytes));
    }
    TRY_OUT(text_finish(&text));
out:
    free(buffer);
    if (fd >= 0)
        close(fd);
    return rc;
}

int64_t text_total_bytes(char *const *paths, int count)
{
    int64_t total = 0;
    struct stat status;
    for (int i = 0; i < count; i++) {
        if (strcmp(paths[i], "-") == 0 || stat(paths[i], &status) != 0 ||
            !S_ISREG(status.st_mode))
            return -1;
        total += status.st_size;
    }
    return total;
}
