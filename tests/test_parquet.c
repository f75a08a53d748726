/* Parquet: small files that pyarrow has written (tests/fuzz/corpus/parquet), whole,
 * cut short at every byte and with every byte changed; the beginning in the middle;
 * and our decoders of snappy and lz4 on what has no end. tests/interop/parquet.sh
 * compares with pyarrow. */
#include "src/data/codec/codec.h"
#include "tests/columns_test.h"

#define CORPUS "tests/fuzz/corpus/parquet"

static const struct {
    const char *file, *want, *column;
} files[] = {
    { "plain", COLUMNS_TEXTS, "text" },
    { "dictionary", COLUMNS_TEXTS, "text" },
    { "length", COLUMNS_TEXTS, "text" },
    { "delta", COLUMNS_TEXTS, "text" },
    { "zstd", COLUMNS_TEXTS, "text" },
    { "delta-plain", COLUMNS_TEXTS, "text" },
    { "brotli", COLUMNS_TEXTS, "text" },
    { "talk", COLUMNS_TALK, NULL },
    { "talk-snappy", COLUMNS_TALK, NULL },
};
#define FILES (sizeof files / sizeof *files)

static enum err read_texts(const char *path, int64_t from, char *got)
{
    return columns_test_texts(&parquet_format, path, "text", from, got);
}

static void test_file(size_t f, const char *folder)
{
    char path[FSIO_PATH_MAX];
    size_t bytes = 0;
    fixture_need(fsio_path(path, CORPUS "/%s", files[f].file));
    char *data = fixture_read(path, &bytes);
    columns_test_file(&parquet_format, files[f].file, data, bytes,
                      files[f].column, files[f].want,
                      fixture_path(folder, "broken.parquet"));
    free(data);
}

static void test_go(void)
{
    char got[1024];
    const char *rest = COLUMNS_TEXTS;
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

#define FRAME(flags) "\4\"M\30" flags "@H"

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
    { &codec_lz4_frame_ops, FRAME("\100") "\0\0\0\0", 11, "" },
    { &codec_lz4_frame_ops, FRAME("\100") "\3\0\0\200abc\0\0\0\0", 18, "abc" },
    /* the second block copies out of the first; sums of all, of blocks, a size */
    { &codec_lz4_frame_ops,
      FRAME("\134") "12345678\3\0\0\200abcSUMS\3\0\0\0\3\3\0SUMS\0\0\0\0....",
      45, "abcabcabca" },
    { &codec_lz4_frame_ops, FRAME("\100") "\3\0\0\200abc", 14, NULL },
    { &codec_lz4_frame_ops, FRAME("\100") "\4\0\0\200abc", 14, NULL },
    { &codec_lz4_frame_ops, FRAME("\100") "\377\377\377\377abc", 14, NULL },
    { &codec_lz4_frame_ops, FRAME("\101") "\0\0\0\0", 11, NULL },
    { &codec_lz4_frame_ops, "\4\"M\30\100@", 6, NULL },
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
