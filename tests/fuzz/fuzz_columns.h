/* Files of columns, of any format: whatever is in one, its texts and records are read
 * or refused, twice alike, and a row is the same when reading begins with it. */
#pragma once

#include <assert.h>
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "src/data/columns/columns.h"
#include "src/data/columns/columns_format.h"

#define ROWS_MAX 2000 /* a few bytes may be a billion rows of nothing */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static size_t sum_texts(const struct columns_format *format, const char *path,
                        int64_t from, int64_t *rows)
{
    struct columns *columns = NULL;
    const uint8_t *text = NULL;
    size_t bytes = 0, sum = 0;
    bool more = true;
    if (columns_open(format, path, "text", &columns) == ERR_OK &&
        (from == 0 || columns_go(columns, from) == ERR_OK))
        while (more && columns_row(columns) < ROWS_MAX &&
               columns_next_text(columns, &text, &bytes, &more) == ERR_OK)
            for (size_t b = 0; more && b < bytes; b++)
                sum = sum * 31 + text[b];
    if (columns != NULL)
        *rows = columns_row(columns) + 1;
    columns_close(columns);
    return sum;
}

static void read_records(const struct columns_format *format, const char *path)
{
    static const char *const names[] = { "text", "messages" };
    struct columns *columns = NULL;
    json_t *record = NULL;
    if (columns_open_records(format, path, names, 2, &columns) == ERR_OK)
        while (columns_row(columns) < ROWS_MAX &&
               columns_next_record(columns, &record) == ERR_OK &&
               record != NULL)
            json_decref(record);
    columns_close(columns);
}

static int fuzz_columns(const struct columns_format *format,
                        const uint8_t *data, size_t bytes)
{
    static int file = -1; /* one for all: making one is most of the time */
    char path[64];
    int64_t rows = 0, again = 0;
    if (file < 0)
        file = memfd_create("table", 0);
    assert(file >= 0 && ftruncate(file, 0) == 0);
    assert(pwrite(file, data, bytes, 0) == (ssize_t)bytes);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    size_t sum = sum_texts(format, path, 0, &rows);
    assert(sum_texts(format, path, 0, &again) == sum && again == rows);
    if (rows > 1)
        sum_texts(format, path, rows / 2, &again);
    read_records(format, path);
    return 0;
}
