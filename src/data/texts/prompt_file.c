/* Reads files of prompts, lines or records. A prompt is handed on as it is
 * found, so that a file of any length takes no memory here; what is wrong with
 * one is told with its number. */
#include "src/data/texts/inputs.h"

#include <assert.h>
#include <string.h>
#include <unistd.h>

#include "src/base/array.h"
#include "src/base/globs.h"
#include "src/base/regular.h"
#include "src/data/texts/jsonl.h"
#include "src/data/texts/source.h"

struct prompt_file {
    const char *path;
    size_t count;
    enum err (*take)(void *arg, const char *text, size_t bytes);
    void *arg;
};

static enum err file_take(struct prompt_file *file, const char *text,
                          size_t bytes)
{
    file->count++;
    return err_prefix(file->take(file->arg, text, bytes), "%s: prompt %zu",
                      file->path, file->count);
}

/* What was read of a line, to which more is added. */
static enum err file_line(struct prompt_file *file, struct buffer *line)
{
    size_t bytes = line->bytes;
    /* Windows' line ends */
    bytes -= bytes > 0 && line->data[bytes - 1] == '\r';
    line->bytes = 0;
    return file_take(file, (const char *)line->data, bytes);
}

static enum err file_lines(struct prompt_file *file)
{
    enum err rc = ERR_OK;
    struct source *source = NULL;
    struct buffer line = { 0 };
    uint8_t read[4096];
    size_t got = 0;
    TRY(source_open(file->path, SOURCE_PROMPTS, NULL, &source));
    do {
        TRY_OUT(source_read(source, read, sizeof read, &got));
        for (size_t at = 0, bytes; at < got; at += bytes) {
            const uint8_t *end = memchr(read + at, '\n', got - at);
            bytes = end != NULL ? (size_t)(end - read) - at : got - at;
            TRY_OUT(buffer_add(&line, read + at, bytes));
            bytes += end != NULL;
            if (end != NULL)
                TRY_OUT(file_line(file, &line));
        }
    } while (got > 0);
    if (line.bytes > 0)
        TRY_OUT(file_line(file, &line));
out:
    buffer_free(&line);
    source_close(source);
    return rc;
}

static enum err file_records(struct prompt_file *file)
{
    enum err rc = ERR_OK;
    struct jsonl *reader = NULL;
    const char *text;
    size_t bytes;
    TRY(jsonl_open(file->path, NULL, &reader));
    do {
        TRY_OUT(jsonl_next_text(reader, "prompt", &text, &bytes));
        if (text != NULL)
            TRY_OUT(file_take(file, text, bytes));
    } while (text != NULL);
out:
    jsonl_close(reader);
    return rc;
}

enum err prompt_file_check(const char *path)
{
    TRY(regular_readable(path));
    return access(path, R_OK) == 0 ? ERR_OK : err_errno("%s: open", path);
}

enum err prompt_file_read(const char *path,
                          enum err (*take)(void *arg, const char *text,
                                           size_t bytes),
                          void *arg)
{
    assert(path != NULL && take != NULL);
    struct prompt_file file = { .path = path, .take = take, .arg = arg };
    TRY(prompt_file_check(path));
    TRY(globs_match("?*.jsonl", path) ? file_records(&file)
                                      : file_lines(&file));
    return file.count > 0
               ? ERR_OK
               : err_set(ERR_USAGE, "%s: there is no prompt in it", path);
}
