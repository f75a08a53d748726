/* Our side of parquet.py and arrow.py: reads what it is asked for by lines of standard input,
 *
 *   text COLUMN FILE       the SHA-256 of all texts with their lengths
 *   records NAME,NAME FILE all records as JSON
 *   rate COLUMN FILE       seconds and bytes of reading
 *
 * and answers each with a line, "error ..." where it is refused. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "src/base/array.h"
#include "src/base/digest.h"
#include "src/data/columns/columns.h"

static enum err read_texts(const char *column, const char *file, bool rate)
{
    enum err rc = ERR_OK;
    struct columns *columns = NULL;
    struct buffer all = { 0 };
    const uint8_t *text = NULL;
    char head[32], hex[65] = "";
    size_t bytes = 0, sum = 0;
    bool more = true;
    clock_t begin = clock();
    TRY_OUT(columns_open(columns_by_name(file), file, column, &columns));
    for (;;) {
        TRY_OUT(columns_next_text(columns, &text, &bytes, &more));
        if (!more)
            break;
        sum += bytes;
        if (rate)
            continue;
        int length = text != NULL ? snprintf(head, sizeof head, "T%zu:", bytes)
                                  : snprintf(head, sizeof head, "N");
        TRY_OUT(buffer_add(&all, head, (size_t)length));
        TRY_OUT(buffer_add(&all, text, bytes));
    }
    TRY_OUT(digest_bytes(all.data, all.bytes, hex));
    if (rate)
        printf("%g %zu\n", (double)(clock() - begin) / CLOCKS_PER_SEC, sum);
    else
        printf("%lld %s\n", (long long)columns_row(columns) + 1, hex);
out:
    columns_close(columns);
    buffer_free(&all);
    return rc;
}

static enum err read_records(char *names, const char *file)
{
    enum err rc = ERR_OK;
    const char *name[8] = { NULL };
    size_t count = 0;
    struct columns *columns = NULL;
    json_t *all = json_array(), *record = NULL;
    for (char *at = strtok(names, ","); at != NULL; at = strtok(NULL, ","))
        name[count++] = at;
    TRY_OUT(columns_open_records(columns_by_name(file), file, name, count,
                                 &columns));
    for (;;) {
        TRY_OUT(columns_next_record(columns, &record));
        if (record == NULL)
            break;
        json_array_append_new(all, record);
    }
    char *text = json_dumps(all, JSON_COMPACT);
    assert(text != NULL);
    puts(text);
    free(text);
out:
    json_decref(all);
    columns_close(columns);
    return rc;
}

int main(void)
{
    char line[4096], what[16], which[512], file[2048];
    while (fgets(line, sizeof line, stdin) != NULL) {
        int found = sscanf(line, "%15s %511s %2047[^\n]", what, which, file);
        assert(found == 3);
        enum err rc = strcmp(what, "records") == 0
                          ? read_records(which, file)
                          : read_texts(which, file, strcmp(what, "rate") == 0);
        if (rc != ERR_OK)
            printf("error %s\n", err_text());
        fflush(stdout);
    }
    return 0;
}
