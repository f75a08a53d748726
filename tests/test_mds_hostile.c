/* Indexes and columns that nobody should believe: each is refused with a text
 * that says why, and what is only unusual is read. */

#include "src/data/set/dataset.h"
#include "src/data/mds/mds_table.h"
#include "src/data/mds/mds_encoding.h"
#include "src/data/mds/mds_writer.h"
#include "tests/data_fixture.h"

#define SHARD                                                                  \
    "{\"column_encodings\": [\"ndarray:int32\"], \"column_names\": "           \
    "[\"tokens\"], \"column_sizes\": [null], \"compression\": null, "          \
    "\"format\": \"mds\", \"hashes\": [], \"raw_data\": {\"basename\": "       \
    "\"s.mds\", \"bytes\": 100, \"hashes\": {}}, \"samples\": 2, "             \
    "\"size_limit\": 1000, \"version\": 2, \"zip_data\": null}"

static enum err parse(const char *text, size_t bytes, struct mds_index **out)
{
    static const char *folder;
    if (folder == NULL)
        folder = tap_folder();
    *out = NULL;
    fixture_write_file(fixture_path(folder, MDS_INDEX_NAME), text, bytes);
    enum err rc = mds_index_read(folder, out);
    unlink(fixture_path(folder, MDS_INDEX_NAME));
    return rc;
}

/* SHARD as the second of two, with `old` replaced. */
static enum err parse_changed(const char *old, const char *new,
                              struct mds_index **out)
{
    char text[4096];
    const char *at = strstr(SHARD, old);
    if (at == NULL) {
        tap_ok(false, "no %s in the shard", old);
        exit(1);
    }
    snprintf(text, sizeof text, "{\"shards\": [%s, %.*s%s%s], \"version\": 2}",
             SHARD, (int)(at - SHARD), SHARD, new, at + strlen(old));
    return parse(text, strlen(text), out);
}

static const struct change {
    const char *name, *old, *new;
    const char *text; /* in the message; NULL: it is fine */
} changes[] = {
    { "as it is", "\"s.mds\"", "\"s.mds\"", NULL },
    { "no size limit", "\"size_limit\": 1000", "\"size_limit\": null", NULL },
    { "a size limit in words", "\"size_limit\": 1000",
      "\"size_limit\": \"64mb\"", NULL },
    { "a file in a subfolder", "\"s.mds\"", "\"a/b/s.mds\"", NULL },
    { "keys of a later time", "\"version\": 2",
      "\"later\": [1], \"version\": 2", NULL },
    { "a shard without samples", "\"samples\": 2", "\"samples\": 0", NULL },
    { "an encoding of a later time", "ndarray:int32", "ndarray:bfloat16",
      NULL },
    { "a hash of a later time", "\"hashes\": {}", "\"hashes\": {\"x\": \"y\"}",
      NULL },
    { "an escape", "\"s.mds\"", "\"../s.mds\"", "'raw_data.basename'" },
    { "an escape further down", "\"s.mds\"", "\"a/b/../../../s\"",
      "'raw_data.basename'" },
    { "an escape at the end", "\"s.mds\"", "\"a/..\"", "'raw_data.basename'" },
    { "an absolute path", "\"s.mds\"", "\"/s.mds\"", "'raw_data.basename'" },
    { "no name", "\"s.mds\"", "\"\"", "'raw_data.basename'" },
    { "a doubled slash", "\"s.mds\"", "\"a//s.mds\"", "'raw_data.basename'" },
    { "a NUL in a name", "\"s.mds\"", "\"s\\u0000.mds\"", "not valid JSON" },
    { "half a surrogate", "\"s.mds\"", "\"\\ud800\"", "not valid JSON" },
    { "bytes below a head", "\"bytes\": 100", "\"bytes\": 7", "'bytes'" },
    { "bytes beyond 64 bits", "\"bytes\": 100",
      "\"bytes\": 99999999999999999999999", "not valid JSON" },
    { "samples that overflow", "\"samples\": 2",
      "\"samples\": 4611686018427387904", "'samples'" },
    { "negative samples", "\"samples\": 2", "\"samples\": -9", "'samples'" },
    { "samples that are real", "\"samples\": 2", "\"samples\": 2.5",
      "'samples'" },
    { "a key twice", "\"samples\": 2", "\"samples\": 2, \"samples\": 2",
      "not valid JSON" },
    { "version 1", "\"version\": 2", "\"version\": 1", "'version'" },
    { "JSON lines of Streaming", "\"mds\"", "\"jsonl\"", "'jsonl'" },
    { "tables of Streaming", "\"mds\"", "\"xsv\"", "MDSWriter" },
    { "a column of no size", "[null]", "[0]", "column's size" },
    { "a column of negative size", "[null]", "[-4]", "column's size" },
    { "a column that overflows", "[null]", "[4294967296]", "column's size" },
    { "zip_data without compression", "\"zip_data\": null",
      "\"zip_data\": {\"basename\": \"z\", \"bytes\": 1, \"hashes\": {}}",
      "'compression'" },
    { "zip_data without a name", "\"compression\": null, \"format\"",
      "\"compression\": \"gz\", \"zip_data\": {}, \"format\"",
      "not valid JSON" },
    { "hashes that are a list", "\"hashes\": {}", "\"hashes\": [1]",
      "'raw_data': 'hashes'" },
    { "a hash that is a number", "\"hashes\": {}", "\"hashes\": {\"sha1\": 1}",
      "'hashes.sha1' is not a text" },
    { "a hash of another length", "\"hashes\": {}",
      "\"hashes\": {\"sha1\": \"00\"}", "'hashes.sha1'" },
};

static void test_indexes(void)
{
    for (size_t c = 0; c < sizeof changes / sizeof changes[0]; c++) {
        struct mds_index *index = NULL;
        const struct change *change = &changes[c];
        enum err rc = parse_changed(change->old, change->new, &index);
        if (change->text == NULL)
            tap_ok(rc == ERR_OK && index->shards == 2, "%s: read",
                   change->name);
        else
            tap_ok(rc == ERR_DATA && strstr(err_text(), change->text) != NULL,
                   "%s: %s", change->name, err_text());
        if (change->text != NULL && strstr(change->text, "JSON") == NULL)
            tap_ok(strstr(err_text(), "index.json: shard 1") != NULL,
                   "... with its place");
        mds_index_destroy(index);
    }
}

/* What has the length of a book and ends at once. */
static void test_large_indexes(void)
{
    struct mds_index *index = NULL;
    size_t bytes = 1 << 20;
    char *text = malloc(bytes + 1);
    memset(text, '[', bytes);
    tap_is_int(parse(text, bytes, &index), ERR_DATA, "a million levels: %s",
               err_text());
    memset(text, '9', bytes);
    tap_is_int(parse(text, bytes, &index), ERR_DATA, "a million digits: %s",
               err_text());
    memset(text, 0, bytes);
    tap_is_int(parse(text, bytes, &index), ERR_DATA, "a million NULs: %s",
               err_text());
    size_t used = (size_t)snprintf(text, bytes, "{\"shards\": [");
    while (used < bytes - 40)
        used +=
            (size_t)snprintf(text + used, bytes - used, "{\"samples\": -1}, ");
    snprintf(text + used, bytes - used, "0], \"version\": 2}");
    tap_is_int(parse(text, strlen(text), &index), ERR_DATA,
               "shards of negative counts: %s", err_text());
    tap_is_int(parse("", 0, &index), ERR_DATA, "nothing: %s", err_text());
    free(text);
}

static void test_encodings(void)
{
    static const struct {
        const char *text;
        enum mds_kind kind;
        int64_t bytes;
    } cases[] = {
        { "int", MDS_SCALAR, 8 },
        { "uint8", MDS_SCALAR, 1 },
        { "float16", MDS_SCALAR, 2 },
        { "float64", MDS_SCALAR, 8 },
        { "bytes", MDS_BYTES, -1 },
        { "str", MDS_STR, -1 },
        { "str_decimal", MDS_NUMBER_TEXT, -1 },
        { "json", MDS_JSON, -1 },
        { "pil", MDS_IMAGE, -1 },
        { "list[png]", MDS_IMAGE, -1 },
        { "pkl", MDS_PICKLE, -1 },
        { "ndarray", MDS_ARRAY, -1 },
        { "ndarray:float16", MDS_ARRAY, -1 },
        { "ndarray:int16:3", MDS_ARRAY, 6 },
        { "ndarray:int64:3,4,5", MDS_ARRAY, 480 },
        { "ndarray:", MDS_UNKNOWN, -1 },
        { "ndarray:int32:", MDS_UNKNOWN, -1 },
        { "ndarray:int32:0", MDS_UNKNOWN, -1 },
        { "ndarray:int32:-1", MDS_UNKNOWN, -1 },
        { "ndarray:int32:2,", MDS_UNKNOWN, -1 },
        { "ndarray:int32:2,,3", MDS_UNKNOWN, -1 },
        { "ndarray:int32:65536,65536", MDS_UNKNOWN, -1 },
        { "ndarray:int32:99999999999999999999", MDS_UNKNOWN, -1 },
        { "ndarrays", MDS_UNKNOWN, -1 },
        { "ndarray:int32x", MDS_UNKNOWN, -1 },
        { "", MDS_UNKNOWN, -1 },
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        struct mds_encoding encoding;
        mds_encoding_parse(cases[c].text, &encoding);
        tap_ok(encoding.kind == cases[c].kind &&
                   mds_encoding_bytes(&encoding) == cases[c].bytes,
               "encoding '%s'", cases[c].text);
    }
}

/* A column as head --column shows it. */
static void test_columns(void)
{
    static const struct {
        const char *encoding, *data;
        size_t bytes;
        const char *want; /* NULL: refused */
    } cases[] = {
        { "int", "\xfe\xff\xff\xff\xff\xff\xff\xff", 8, "-2" },
        { "uint64", "\xff\xff\xff\xff\xff\xff\xff\xff", 8,
          "18446744073709551615" },
        { "float16", "\x00\x3c", 2, "1" },
        { "float16", "\x01\x00", 2, "5.9604645e-08" },
        { "float16", "\x00\xfc", 2, "-inf" },
        { "float32", "\xcd\xcc\xcc\x3d", 4, "0.1" },
        { "float64", "\x9a\x99\x99\x99\x99\x99\xb9\x3f", 8, "0.1" },
        { "ndarray:int8", "\x08\x02\x01\x05\x06", 5, "5 6" },
        { "ndarray", "\x22\x04\x01\x00\x00\x80\x3f", 7, "1" },
        { "str", "a\n\"\0", 4, "\"a\\n\\\"\\u0000\"" },
        { "str", "\xff", 1, NULL },
        { "json", "[1,\n2]", 6, "[1, 2]" },
        { "json", "\xc0\x80", 2, NULL },
        { "bytes", "\x00\xff", 2, "00ff" },
        { "png", "\x89P", 2, "8950" },
        { "str_int", "-12", 3, "-12" },
        { "str_int", "1.5", 3, NULL },
        { "str_int", "", 0, NULL },
        { "str_int", "-", 1, NULL },
        { "str_float", "1e-05", 5, "1e-05" },
        { "str_float", "nan", 3, "nan" },
        { "str_float", "1\0", 2, NULL },
        { "str_decimal", "1E+5", 4, "1E+5" },
        { "str_decimal", "one", 3, NULL },
        { "int", "1234", 4, NULL },
        { "ndarray:int32", "\x04\x02\x00\x00\x00\x00", 6, NULL },
        { "ndarray:int8", "\xff", 1, NULL },
        { "ndarray:int8",
          "\x0b\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"
          "\xff\xff\xff\xff",
          17, NULL },
        { "pkl", "x", 1, NULL },
        { "what", "x", 1, NULL },
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        char name[] = "a", text[64], *line = NULL;
        size_t length = 0;
        struct mds_value value;
        snprintf(text, sizeof text, "%s", cases[c].encoding);
        struct mds_layout_column column = { .name = name, .text = text };
        struct mds_span span = { (const uint8_t *)cases[c].data,
                                 cases[c].bytes };
        mds_encoding_parse(text, &column.encoding);
        enum err rc = mds_column_decode(&column, &span, &value);
        if (cases[c].want == NULL) {
            tap_ok(rc != ERR_OK, "%s: %s", text, err_text());
            continue;
        }
        FILE *file = open_memstream(&line, &length);
        if (rc == ERR_OK)
            rc = mds_column_print(&value, file);
        fclose(file);
        tap_ok(rc == ERR_OK && strcmp(line, cases[c].want) == 0, "%s: %s", text,
               line);
        free(line);
    }
}

/* 300 columns, one of them a pickle, shards in subfolders, no sidecar. */
static void test_table(const char *folder)
{
    enum { COLUMNS = 300 };
    static char names[COLUMNS][16];
    static struct mds_column columns[COLUMNS];
    static struct mds_field fields[COLUMNS];
    struct mds_writer *writer = NULL;
    struct mds_table *table = NULL;
    struct mds_value value;
    size_t bytes = 0;
    const char *path = fixture_path(folder, "table");
    const char *index = fixture_path(folder, "table/index.json");
    for (int c = 0; c < COLUMNS; c++) {
        snprintf(names[c], sizeof names[c], "c%03d", c);
        columns[c] = (struct mds_column){ names[c], c % 2 ? "str" : "uint8" };
        fields[c] = (struct mds_field){ names[c], c % 2 ? 4 : 1 };
    }
    struct mds_writer_options options = { columns, COLUMNS, 20000, NULL };
    fixture_need(fsio_mkdirs(path));
    fixture_need(mds_writer_create(path, &options, &writer));
    for (int s = 0; s < 20; s++)
        fixture_need(mds_writer_add_fields(writer, fields));
    fixture_need(mds_writer_finish(writer));
    tap_ok(mds_writer_shards(writer) > 1, "several shards");
    mds_writer_destroy(writer);
    char *text = fixture_read(index, &bytes);
    char *at = strstr(text, "\"str\""); /* of c001 */
    memcpy(at, "\"pkl\"", 5);
    fixture_write_file(index, text, bytes);
    fixture_need(mds_table_open(path, &table));
    tap_is_int(mds_table_check(table, "c001"), ERR_UNSUPPORTED, "%s",
               err_text());
    tap_is_int(mds_table_check(table, "tokens"), ERR_USAGE, "%s", err_text());
    fixture_need(mds_table_check(table, "c299"));
    fixture_need(mds_table_read(table, 19, "c299", &value));
    tap_ok(value.column.bytes == 4 && memcmp(value.column.data, "c299", 4) == 0,
           "a column of the last sample");
    mds_table_close(table);
    free(text);
}

/* Files of another shard, which only checksums tell. */
static void test_swapped(const char *folder)
{
    static const int64_t lengths[] = { 50, 50, 50, 50 };
    char one[FSIO_PATH_MAX], two[FSIO_PATH_MAX], other[FSIO_PATH_MAX];
    fixture_dataset(folder, "swapped", lengths, 4, 600, true);
    snprintf(one, sizeof one, "%s/swapped/shard.00000.mds", folder);
    snprintf(two, sizeof two, "%s/swapped/shard.00001.mds", folder);
    snprintf(other, sizeof other, "%s/swapped/other", folder);
    fixture_need(rename(one, other) == 0 && rename(two, one) == 0 &&
                         rename(other, two) == 0
                     ? ERR_OK
                     : ERR_IO);
    struct dataset *dataset = fixture_open(fixture_path(folder, "swapped"));
    tap_ok(dataset_verify_shard(dataset, 0, NULL) == ERR_DATA &&
               strstr(err_text(), one) != NULL,
           "reordered shards: %s", err_text());
    dataset_close(dataset);
}

int main(void)
{
    const char *folder = tap_folder();
    test_indexes();
    test_large_indexes();
    test_encodings();
    test_columns();
    test_table(folder);
    test_swapped(folder);
    return tap_done();
}
