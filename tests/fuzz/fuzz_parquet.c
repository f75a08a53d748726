/* Parquet: whatever is in a file, its texts and records are read or refused, twice
 * alike, and a row is the same when reading begins with it. */
#include <assert.h>
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "src/data/parquet/parquet.h"

#define ROWS_MAX 2000 /* a few bytes may be a billion rows of nothing */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static size_t sum_texts(const char *path, int64_t from, int64_t *rows)
{
    struct parquet *parquet = NULL;
    const uint8_t *text = NULL;
    size_t bytes = 0, sum = 0;
    bool more = true;
    if (parquet_open(path, "text", &parquet) == ERR_OK &&
        (from == 0 || parquet_go(parquet, from) == ERR_OK))
        while (more && parquet_row(parquet) < ROWS_MAX &&
               parquet_next_text(parquet, &text, &bytes, &more) == ERR_OK)
            for (size_t b = 0; more && b < bytes; b++)
                sum = sum * 31 + text[b];
    if (parquet != NULL)
        *rows = parquet_row(parquet) + 1;
    parquet_close(parquet);
    return sum;
}

static void read_records(const char *path)
{
    static const char *const names[] = { "text", "messages" };
    struct parquet *parquet = NULL;
    json_t *record = NULL;
    if (parquet_open_records(path, names, 2, &parquet) == ERR_OK)
        while (parquet_row(parquet) < ROWS_MAX &&
               parquet_next_record(parquet, &record) == ERR_OK &&
               record != NULL)
            json_decref(record);
    parquet_close(parquet);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static int file = -1; /* one for all: making one is most of the time */
    char path[64];
    int64_t rows = 0, again = 0;
    if (file < 0)
        file = memfd_create("table", 0);
    assert(file >= 0 && ftruncate(file, 0) == 0);
    assert(pwrite(file, data, bytes, 0) == (ssize_t)bytes);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    size_t sum = sum_texts(path, 0, &rows);
    assert(sum_texts(path, 0, &again) == sum && again == rows);
    if (rows > 1)
        sum_texts(path, rows / 2, &again);
    read_records(path);
    return 0;
}
