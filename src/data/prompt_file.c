/* Reads files of prompts, lines or records. */
#include "src/data/prompt_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/data/jsonl.h"
#include "src/data/regular.h"

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
    enum err rc = file->take(file->arg, text, bytes);
    return rc == ERR_OK
               ? rc
               : err_prefix(rc, "%s: prompt %zu", file->path, file->count);
}

static enum err file_lines(struct prompt_file *file)
{
    enum err rc = ERR_OK;
    char *line = NULL;
    size_t capacity = 0;
    ssize_t length;
    FILE *lines = fopen(file->path, "re");
    if (lines == NULL)
        return err_errno("%s: open", file->path);
    while (rc == ERR_OK && (length = getline(&line, &capacity, lines)) >= 0) {
        size_t bytes = (size_t)length;
        bytes -= bytes > 0 && line[bytes - 1] == '\n';
        bytes -= bytes > 0 && line[bytes - 1] == '\r';
        rc = file_take(file, line, bytes);
    }
    if (rc == ERR_OK && ferror(lines) != 0)
        rc = err_errno("%s: read", file->path);
    free(line);
    fclose(lines);
    return rc;
}

static enum err file_records(struct prompt_file *file)
{
    enum err rc = ERR_OK;
    struct jsonl *reader = NULL;
    const char *text;
    size_t bytes;
    TRY(jsonl_open(file->path, &reader));
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
    struct prompt_file file = { .path = path, .take = take, .arg = arg };
    size_t length = strlen(path);
    TRY(prompt_file_check(path));
    TRY(length > 6 && strcmp(path + length - 6, ".jsonl") == 0
            ? file_records(&file)
            : file_lines(&file));
    return file.count > 0
               ? ERR_OK
               : err_set(ERR_USAGE, "%s: there is no prompt in it", path);
}
