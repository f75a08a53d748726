/* JSON lines: what is a record and what is an error, lines at the edges of
 * buffers and limits, and the fast scanner against jansson on random lines. */
#include "src/data/texts/jsonl.h"

#include "tests/data_fixture.h"

static const struct {
    const char *file;
    const char *want; /* texts, each followed by '|' */
} good[] = {
    { "", "" },
    { "\n \t\r\n\n", "" },
    { "{\"text\": \"a\"}", "a|" },
    { "{\"text\": \"a\"}\n", "a|" },
    { "{\"text\": \"a\"}\r\n\r\n{\"x\":1,\"text\":\"\"}\r\n", "a||" },
    { "\xef\xbb\xbf{\"text\": \"a\"}\n", "a|" },
    { " { \"m\" : { \"text\" : 1 , \"l\" : [ ] } , \"text\" : \"b\" } \n",
      "b|" },
    { "{\"text\": \"\\\"\\\\\\/\\b\\f\\n\\r\\t\"}", "\"\\/\b\f\n\r\t|" },
    { "{\"text\": \"\\u00e4\\u20ac\\ud83d\\ude00 \xe2\x82\xac\"}",
      "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80 \xe2\x82\xac|" },
    { "{\"t\\u0065xt\": \"by its escaped name\"}", "by its escaped name|" },
    { "{\"text\":\"c\",\"n\":[1,-2.5e3,12345678901234567,true,false,null]}",
      "c|" },
};

static void test_good(const char *folder)
{
    const char *path = fixture_path(folder, "good");
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        struct jsonl *reader = NULL;
        char got[256] = "";
        const char *text = NULL;
        size_t bytes = 0;
        fixture_write_file(path, good[i].file, strlen(good[i].file));
        fixture_need(jsonl_open(path, NULL, &reader));
        do {
            fixture_need(jsonl_next_text(reader, "text", &text, &bytes));
            if (text != NULL)
                sprintf(got + strlen(got), "%.*s|", (int)bytes, text);
        } while (text != NULL);
        tap_is_str(got, good[i].want, "records, case %d", (int)i);
        jsonl_close(reader);
    }
}

static const struct {
    const char *file;
    size_t bytes; /* 0: its length */
    const char *want;
} bad[] = {
    { "{\"text\": \"a\"}\n{\"text\": \"b", 0, ":2: not valid JSON" },
    { "{\"text\": \"b", 0, "the file ends in this line" },
    { "\n\n[1]\n", 0, ":3: a line of JSON lines has to be an object" },
    { "\"text\"\n", 0, ":1:" },
    { "{\"text\": 1}\n", 0, "'text' is no string" },
    { "{\"test\": \"\"}\n", 0, "no field 'text'" },
    { "{\"m\": {\"text\": \"\"}}\n", 0, "no field 'text'" },
    { "{\"text\": \"a\", \"text\": \"b\"}\n", 0, "duplicate" },
    { "{\"text\": \"a\", \"m\": {\"a\": 1, \"a\": 2}}\n", 0, "duplicate" },
    { "{\"text\": \"a\", \"t\\u0065xt\": \"b\"}\n", 0, "duplicate" },
    { "{\"text\": \"\xff\"}\n", 0, "UTF-8" },
    { "{\"text\": \"\xc0\x80\"}\n", 0, "UTF-8" },
    { "{\"text\": \"\xed\xa0\x80\"}\n", 0, "UTF-8" },
    { "{\"text\": \"a\", \"m\": \"\xf8\"}\n", 0, "UTF-8" },
    { "{\"text\": \"a\0b\"}\n", 15, ":1:" },
    { "{\"text\": \"\\u0000\"}\n", 0, ":1:" },
    { "{\"text\": \"\\ud800\"}\n", 0, ":1:" },
    { "{\"text\": \"\\ud800\\u0041\"}\n", 0, ":1:" },
    { "{\"text\": \"\\udc00\"}\n", 0, ":1:" },
    { "{\"text\": \"\\x\"}\n", 0, ":1:" },
    { "{\"text\": \"a\tb\"}\n", 0, "control" },
    { "{\"text\": \"a\"} {}\n", 0, ":1:" },
    { "{\"text\": \"a\",}\n", 0, ":1:" },
    { "{\"text\": \"a\", \"n\": 01}\n", 0, ":1:" },
    { "{\"text\": \"a\", \"n\": 1e999}\n", 0, "overflow" },
    { "{\"text\": \"a\", \"n\": 99999999999999999999}\n", 0, "big" },
    { "{'text': 'a'}\n", 0, ":1:" },
    { "plain text\n", 0, ":1: not valid JSON" },
};

static void test_bad(const char *folder)
{
    const char *path = fixture_path(folder, "bad");
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct jsonl *reader = NULL;
        enum err rc = ERR_OK;
        const char *text = "";
        size_t bytes = bad[i].bytes;
        fixture_write_file(path, bad[i].file,
                           bytes > 0 ? bytes : strlen(bad[i].file));
        fixture_need(jsonl_open(path, NULL, &reader));
        while (rc == ERR_OK && text != NULL)
            rc = jsonl_next_text(reader, "text", &text, &bytes);
        tap_ok(rc == ERR_DATA && strstr(err_text(), bad[i].want) != NULL &&
                   strstr(err_text(), path) == err_text(),
               "%s: %s", err_name(rc), rc != ERR_OK ? err_text() : "");
        jsonl_close(reader);
    }
}

static void test_trees(const char *folder)
{
    const char *path = fixture_path(folder, "trees");
    const char *lines = "{\"a\": [1, {\"b\": \"c\"}]}\n\n{\"d\": null}";
    struct jsonl *reader = NULL;
    json_t *record = NULL;
    char place[FSIO_PATH_MAX + 16];
    fixture_write_file(path, lines, strlen(lines));
    fixture_need(jsonl_open(path, NULL, &reader));
    fixture_need(jsonl_next(reader, &record));
    tap_ok(json_array_size(json_object_get(record, "a")) == 2, "a tree");
    json_decref(record);
    fixture_need(jsonl_next(reader, &record));
    tap_ok(json_is_null(json_object_get(record, "d")), "another one");
    json_decref(record);
    snprintf(place, sizeof place, "%s:3", path);
    tap_is_str(jsonl_place(reader), place, "its place");
    struct jsonl_mark mark = jsonl_mark(reader);
    fixture_need(jsonl_next(reader, &record));
    tap_ok(record == NULL, "the end");
    jsonl_close(reader);
    fixture_need(jsonl_open(path, NULL, &reader));
    fixture_need(jsonl_go(reader, mark));
    fixture_need(jsonl_next(reader, &record));
    tap_ok(json_object_get(record, "d") != NULL, "again from its mark");
    tap_is_str(jsonl_place(reader), place, "the same place");
    json_decref(record);
    jsonl_close(reader);
    fixture_need(jsonl_open(path, NULL, &reader));
    mark.offset = 1000;
    tap_is_int(jsonl_go(reader, mark), ERR_DATA, "a mark behind the end");
    jsonl_close(reader);
}

/* A line of `bytes`, a text of 'x' with an escape at its end. */
static void write_long(const char *path, size_t bytes)
{
    char *line = malloc(bytes + 16);
    memset(line, 'x', bytes);
    memcpy(line, "{\"text\":\"", 9);
    memcpy(line + bytes - 4, "\\n\"}", 4);
    memcpy(line + bytes, "\n{\"text\":\"y\"}", 13);
    fixture_write_file(path, line, bytes + 13);
    free(line);
}

static void test_long(const char *folder)
{
    const char *path = fixture_path(folder, "long");
    size_t sizes[] = { 262143, 262144, 262145, (size_t)100 << 20 };
    struct jsonl *reader = NULL;
    const char *text = NULL;
    size_t bytes = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        write_long(path, sizes[i]);
        fixture_need(jsonl_open(path, NULL, &reader));
        fixture_need(jsonl_next_text(reader, "text", &text, &bytes));
        bool good_text = bytes == sizes[i] - 12 && text[0] == 'x' &&
                         text[bytes - 2] == 'x' && text[bytes - 1] == '\n';
        fixture_need(jsonl_next_text(reader, "text", &text, &bytes));
        tap_ok(good_text && bytes == 1 && *text == 'y',
               "a line of %zu bytes, and one behind it", sizes[i]);
        jsonl_close(reader);
    }
    write_long(path, 100);
    if (truncate(path, (off_t)JSONL_LINE_BYTES_MAX + 4096) != 0)
        tap_note("truncate");
    fixture_need(jsonl_open(path, NULL, &reader));
    fixture_need(jsonl_next_text(reader, "text", &text, &bytes));
    tap_ok(jsonl_next_text(reader, "text", &text, &bytes) == ERR_DATA &&
               strstr(err_text(), ":2: a line of more than 256 MiB") != NULL,
           "a line that is too long: %s", err_text());
    jsonl_close(reader);
    unlink(path);
    /* nested so deep that a tree could not be built of it */
    char *deep = malloc(200000);
    memset(deep, '[', 200000);
    memcpy(deep, "{\"text\":", 8);
    fixture_write_file(path, deep, 200000);
    free(deep);
    fixture_need(jsonl_open(path, NULL, &reader));
    tap_ok(jsonl_next_text(reader, "text", &text, &bytes) == ERR_DATA &&
               strstr(err_text(), "depth") != NULL,
           "deep nesting: %s", err_text());
    jsonl_close(reader);
}

int main(void)
{
    const char *folder = tap_folder();
    test_good(folder);
    test_bad(folder);
    test_trees(folder);
    test_long(folder);
    return tap_done();
}
