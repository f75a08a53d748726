/* JSON lines: the reader only gives what jansson gives. */
#include <jansson.h>

#include "src/data/texts/jsonl.h"
#include "tests/fuzz/fuzz.h"

static void check_line(const char *line, size_t bytes, const char *text,
                       size_t text_bytes)
{
    json_t *root = json_loadb(line, bytes, JSON_REJECT_DUPLICATES, NULL);
    const json_t *value = json_object_get(root, "text");
    assert(json_is_string(value) && json_string_length(value) == text_bytes &&
           memcmp(json_string_value(value), text, text_bytes) == 0);
    json_decref(root);
}

static void try_reader(const uint8_t *data, size_t bytes)
{
    struct jsonl *reader = NULL;
    const char *text = "";
    size_t text_bytes = 0;
    if (jsonl_open(fuzz_file(data, bytes), NULL, &reader) == ERR_OK)
        while (text != NULL &&
               jsonl_next_text(reader, "text", &text, &text_bytes) == ERR_OK)
            if (text != NULL) {
                struct jsonl_mark mark = jsonl_mark(reader);
                assert(mark.offset >= 0 && mark.offset < (int64_t)bytes);
                const char *line = (const char *)data + mark.offset;
                size_t rest = bytes - (size_t)mark.offset;
                const char *end = memchr(line, '\n', rest);
                check_line(line, end != NULL ? (size_t)(end - line) : rest,
                           text, text_bytes);
            }
    jsonl_close(reader);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    try_reader(data, bytes);
    return 0;
}
