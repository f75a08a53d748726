/* Parquet: small files that pyarrow has written (tests/fuzz/corpus/parquet), whole,
 * cut short at every byte and with every byte changed; the beginning in the middle;
 * and our decoders of snappy and lz4 on what has no end. tests/interop/parquet.sh
 * compares with pyarrow. */
#include "src/data/parquet/parquet.h"

#include <fcntl.h>

#include "src/data/codec/codec.h"
#include "tests/data_fixture.h"

#define CORPUS "tests/fuzz/corpus/parquet"
#define TEXTS "|one|two two|-|one|a longer text, a longer text, a longer text|"
#define TALK                                                                   \
    "[{\"content\":\"Hi\",\"role\":\"user\"},{\"content\":\"Ho\",\"role\":"    \
    "\"assistant\"}]|[]|null|[{\"role\":\"user\"}]|"

static const struct {
    const char *file, *want; /* texts, "-" for none, or records' messages */
    bool records;
} files[] = {
    { "plain", TEXTS, false },     { "dictionary", TEXTS, false },
    { "length", TEXTS, false },    { "delta", TEXTS, false },
    { "zstd", TEXTS, false },      { "delta-plain", TEXTS, false },
    { "brotli", TEXTS, false },    { "talk", TALK, true },
    { "talk-snappy", TALK, true },
};
#define FILES (sizeof files / sizeof *files)

/* All from a row on into `got`. */
static enum err read_texts(const char *path, int64_t from, char *got)
{
    enum err rc = ERR_OK;
    struct parquet *parquet = NULL;
    const uint8_t *text = NULL;
    size_t bytes = 0;
    bool more = true;
    got[0] = '\0';
    TRY_OUT(parquet_open(path, "text", &parquet));
    TRY_OUT(parquet_go(parquet, from));
    for (;;) {
        TRY_OUT(parquet_next_text(parquet, &text, &bytes, &more));
        if (!more)
            break;
        if (strlen(got) + bytes < 1000)
            sprintf(got + strlen(got), "%.*s|", text != NULL ? (int)bytes : 1,
                    text != NULL ? (const char *)text : "-");
    }
out:
    parquet_close(parquet);
    return rc;
}

static enum err read_talks(const char *path, char *got)
{
    static const char *const names[] = { "messages" };
    enum err rc = ERR_OK;
    struct parquet *parquet = NULL;
    json_t *record = NULL;
    got[0] = '\0';
    TRY_OUT(parquet_open_records(path, names, 1, &parquet));
    for (;;) {
        TRY_OUT(parquet_next_record(parquet, &record));
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
    parquet_close(parquet);
    return rc;
}

static enum err read_file(size_t f, const char *path, char *got)
{
    return files[f].records ? read_talks(path, got) : read_texts(path, 0, got);
}

/* A refusal names the file and says what to do. */
static bool refused_well(enum err rc, const char *path)
{
    return (rc == ERR_DATA || rc == ERR_UNSUPPORTED) &&
           strstr(err_text(), path) != NULL &&
           (strstr(err_text(), "again") != NULL ||
            strstr(err_text(), "write") != NULL ||
            strstr(err_text(), "which has:") != NULL ||
            strstr(err_text(), "UTF-8") != NULL);
}

static void test_file(size_t f, const char *folder)
{
    char path[FSIO_PATH_MAX], got[1024];
    size_t bytes = 0, bad = 0, refused = 0;
    const char *broken = fixture_path(folder, "broken.parquet");
    fixture_need(fsio_path(path, CORPUS "/%s", files[f].file));
    char *data = fixture_read(path, &bytes);
    fixture_need(read_file(f, path, got));
    tap_is_str(got, files[f].want, "%s", files[f].file);
    fixture_write_file(broken, data, bytes);
    for (size_t cut = bytes; cut-- > 0;) {
        bad += truncate(broken, (off_t)cut) != 0;
        bad += !refused_well(read_file(f, broken, got), broken);
    }
    tap_is_int((long long)bad, 0, "%s cut short is refused by name",
               files[f].file);
    fixture_write_file(broken, data, bytes);
    int fd = open(broken, O_WRONLY);
    for (size_t at = 0; at < bytes; at++) {
        for (int bit = 0; bit < 8; bit++) {
            char changed = (char)(data[at] ^ 1 << bit);
            bad += pwrite(fd, &changed, 1, (off_t)at) != 1;
            enum err rc = read_file(f, broken, got);
            if (rc != ERR_OK && !refused_well(rc, broken) && bad++ == 0)
                tap_note("byte %zu, bit %d: %s", at, bit, err_text());
            refused += rc != ERR_OK;
        }
        bad += pwrite(fd, &data[at], 1, (off_t)at) != 1;
    }
    close(fd);
    tap_ok(bad == 0 && refused > bytes,
           "%s with a bit changed is read or refused by name: %zu of %zu",
           files[f].file, refused, 8 * bytes);
    free(data);
}

static void test_go(void)
{
    char got[1024];
    const char *rest = TEXTS;
    for (int row = 0; row < 6; row++) {
        fixture_need(read_texts(CORPUS "/plain", row, got));
        tap_is_str(got, rest, "from row %d on", row);
        rest = strchr(rest, '|') + 1;
    }
    tap_ok(read_texts(CORPUS "/plain", 7, got) == ERR_DATA &&
               strstr(err_text(), "row 7") != NULL,
           "behind the last row: %s", err_text());
}

/* A footer of a name and 20,000 columns in it, six bytes each. */
static void test_wide(const char *folder)
{
    const char *path = fixture_path(folder, "wide.parquet");
    static const char begin[] = "PAR1\51\374\241\234\1\110\1n\25\300\270\2\0";
    enum { COLUMNS = 20000, HEAD = sizeof begin - 1 };
    static char file[HEAD + 6 * COLUMNS + 8], got[1024];
    size_t bytes = HEAD, footer;
    memcpy(file, begin, HEAD);
    for (int c = 0; c < COLUMNS; c++, bytes += 6)
        memcpy(file + bytes, "\25\14\70\1a", 6);
    footer = bytes - 4;
    for (int i = 0; i < 4; i++)
        file[bytes++] = (char)(footer >> 8 * i);
    memcpy(file + bytes, "PAR1", 4);
    fixture_write_file(path, file, bytes + 4);
    tap_ok(read_texts(path, 0, got) == ERR_DATA &&
               strstr(err_text(), "more columns than are read") != NULL,
           "%s", err_text());
}

static void test_encrypted(const char *folder)
{
    const char *path = fixture_path(folder, "secret.parquet");
    char got[1024];
    fixture_write_file(path, "PARE....\4\0\0\0PARE", 16);
    tap_ok(read_texts(path, 0, got) == ERR_UNSUPPORTED &&
               strstr(err_text(), "encrypted") != NULL,
           "%s", err_text());
}

/* Blocks by hand, and what they unpack to; NULL: they are none. */
static const struct {
    const struct codec_ops *ops;
    const char *data;
    size_t bytes;
    const char *want;
} blocks[] = {
    { &codec_snappy_ops, "\0", 1, "" },
    { &codec_snappy_ops, "\3\10abc", 5, "abc" },
    { &codec_snappy_ops, "\12\10abc\15\3", 7, "abcabcabca" },
    { &codec_snappy_ops, "\12\10abc\32\3\0", 8, "abcabcabca" },
    { &codec_snappy_ops, "\10\0a\33\1\0\0\0", 8, "aaaaaaaa" },
    { &codec_snappy_ops, "\2\360\1ab", 5, "ab" },
    { &codec_snappy_ops, "\12\10abc\15\4", 7, NULL },
    { &codec_snappy_ops, "\12\10abc\15\0", 7, NULL },
    { &codec_snappy_ops, "\11\10abc\15\3", 7, NULL },
    { &codec_snappy_ops, "\3\374\377\377\377\377", 6, NULL },
    { &codec_snappy_ops, "\377\377\377\377\377\377", 6, NULL },
    { &codec_snappy_ops, "", 0, NULL },
    { &codec_lz4_ops, "\0", 1, "" },
    { &codec_lz4_ops, "\60abc", 4, "abc" },
    { &codec_lz4_ops, "\63abc\3\0\0", 7, "abcabcabca" },
    { &codec_lz4_ops, "\37a\1\0\1\0", 6, "aaaaaaaaaaaaaaaaaaaaa" },
    { &codec_lz4_ops, "\360\0abcdefghijklmno", 17, "abcdefghijklmno" },
    { &codec_lz4_ops, "\60ab", 3, NULL },
    { &codec_lz4_ops, "\63abc\4\0\0", 7, NULL },
    { &codec_lz4_ops, "\63abc\0\0\0", 7, NULL },
    { &codec_lz4_ops, "\63abc\3", 5, NULL },
    { &codec_lz4_ops, "\37a\1\0\377\377\377\377", 8, NULL },
};

static void test_blocks(void)
{
    for (size_t b = 0; b < sizeof blocks / sizeof *blocks; b++) {
        uint8_t out[64];
        size_t bytes = blocks[b].want != NULL ? strlen(blocks[b].want) : 10;
        enum err rc = codec_unpack_bytes(blocks[b].ops, "it",
                                         (const uint8_t *)blocks[b].data,
                                         blocks[b].bytes, out, bytes);
        tap_ok(blocks[b].want == NULL
                   ? rc == ERR_DATA
                   : rc == ERR_OK && memcmp(out, blocks[b].want, bytes) == 0,
               "block %zu: %s", b, rc == ERR_OK ? "unpacked" : err_text());
    }
}

int main(void)
{
    const char *folder = tap_folder();
    for (size_t f = 0; f < FILES; f++)
        test_file(f, folder);
    test_go();
    test_wide(folder);
    test_encrypted(folder);
    test_blocks();
    return tap_done();
}
