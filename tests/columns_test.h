/* What the tests of the formats of columns share: all texts of the column "text", or
 * records' "messages", as one line; a file that is cut short and changed. */
#pragma once

#include <fcntl.h>

#include "src/data/columns/columns.h"
#include "src/data/columns/columns_format.h"
#include "tests/data_fixture.h"

#define COLUMNS_TEXTS                                                          \
    "|one|two two|-|one|a longer text, a longer text, a longer text|"
#define COLUMNS_TALK                                                           \
    "[{\"content\":\"Hi\",\"role\":\"user\"},{\"content\":\"Ho\",\"role\":"    \
    "\"assistant\"}]|[]|null|[{\"role\":\"user\"}]|"

/* All from a row on into `got`, "-" for none. */
static enum err columns_test_texts(const struct columns_format *format,
                                   const char *path, const char *column,
                                   int64_t from, char got[1024])
{
    enum err rc = ERR_OK;
    struct columns *columns = NULL;
    const uint8_t *text = NULL;
    size_t bytes = 0;
    bool more = true;
    got[0] = '\0';
    TRY_OUT(columns_open(format, path, column, &columns));
    TRY_OUT(columns_go(columns, from));
    for (;;) {
        TRY_OUT(columns_next_text(columns, &text, &bytes, &more));
        if (!more)
            break;
        if (strlen(got) + bytes < 1000)
            sprintf(got + strlen(got), "%.*s|", text != NULL ? (int)bytes : 1,
                    text != NULL ? (const char *)text : "-");
    }
out:
    columns_close(columns);
    return rc;
}

static enum err columns_test_talks(const struct columns_format *format,
                                   const char *path, char got[1024])
{
    static const char *const names[] = { "messages" };
    enum err rc = ERR_OK;
    struct columns *columns = NULL;
    json_t *record = NULL;
    got[0] = '\0';
    TRY_OUT(columns_open_records(format, path, names, 1, &columns));
    for (;;) {
        TRY_OUT(columns_next_record(columns, &record));
        if (record == NULL)
            break;
        char *text =
            json_dumps(json_object_get(record, "messages"),
                       JSON_ENCODE_ANY | JSON_COMPACT | JSON_SORT_KEYS);
        if (text != NULL && strlen(got) + strlen(text) < 1000)
            sprintf(got + strlen(got), "%s|", text);
        free(text);
        json_decref(record);
    }
out:
    columns_close(columns);
    return rc;
}

/* column NULL: records. */
static enum err columns_test_read(const struct columns_format *format,
                                  const char *path, const char *column,
                                  char got[1024])
{
    return column == NULL ? columns_test_talks(format, path, got)
                          : columns_test_texts(format, path, column, 0, got);
}

/* A refusal names the file and says what to do. */
static bool columns_test_refused(enum err rc, const char *path)
{
    return (rc == ERR_DATA || rc == ERR_UNSUPPORTED) &&
           strstr(err_text(), path) != NULL &&
           (strstr(err_text(), "again") != NULL ||
            strstr(err_text(), "write") != NULL ||
            strstr(err_text(), "which has:") != NULL ||
            strstr(err_text(), "UTF-8") != NULL);
}

/* A file whole, cut at every byte, and with every bit changed; `broken`: a path for
 * these. */
static void columns_test_file(const struct columns_format *format,
                              const char *name, const char *data, size_t bytes,
                              const char *column, const char *want,
                              const char *broken)
{
    char got[1024];
    size_t bad = 0, refused = 0;
    fixture_write_file(broken, data, bytes);
    fixture_need(columns_test_read(format, broken, column, got));
    tap_is_str(got, want, "%s", name);
    for (size_t cut = bytes; cut-- > 0;) {
        bad += truncate(broken, (off_t)cut) != 0;
        enum err rc = columns_test_read(format, broken, column, got);
        if (!columns_test_refused(rc, broken) && bad++ == 0)
            tap_note("%zu bytes: %s", cut, rc == ERR_OK ? got : err_text());
    }
    tap_is_int((long long)bad, 0, "%s cut short is refused by name", name);
    fixture_write_file(broken, data, bytes);
    int fd = open(broken, O_WRONLY);
    for (size_t at = 0; at < bytes; at++) {
        for (int bit = 0; bit < 8; bit++) {
            char changed = (char)(data[at] ^ 1 << bit);
            bad += pwrite(fd, &changed, 1, (off_t)at) != 1;
            enum err rc = columns_test_read(format, broken, column, got);
            if (rc != ERR_OK && !columns_test_refused(rc, broken) && bad++ == 0)
                tap_note("byte %zu, bit %d: %s", at, bit, err_text());
            refused += rc != ERR_OK;
        }
        bad += pwrite(fd, &data[at], 1, (off_t)at) != 1;
    }
    close(fd);
    tap_ok(bad == 0 && refused > bytes / 2,
           "%s with a bit changed is read or refused by name: %zu of %zu", name,
           refused, 8 * bytes);
}
