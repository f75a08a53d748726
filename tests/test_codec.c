/* Every compression, as a file and as a stream, and files that are
 * cut short, damaged, packed twice or larger than they may be. */
#include "src/data/texts/source.h"
#include "tests/data_packed.h"

static const char *const texts[] = {
    "zstd", "zstd:1", "zstd:19", "gz",   "gz:0", "gz:1",   "gz:9",
    "bz2",  "bz2:1",  "br",      "br:0", "br:5", "snappy",
};
#define TEXTS (sizeof texts / sizeof texts[0])

/* Neither zeros alone nor noise. */
static uint8_t *test_data(size_t bytes)
{
    uint8_t *data = malloc(bytes + 1);
    uint32_t state = 1;
    for (size_t i = 0; i < bytes; i++) {
        state = state * 1664525u + 1013904223u;
        data[i] = i % 100 < 50 ? (uint8_t)(state >> 24) : 'a';
    }
    return data;
}

static bool available(const char *text)
{
    const struct codec *codec = NULL;
    if (codec_find(text, &codec) == ERR_OK)
        return true;
    tap_skip("%s: %s", text, err_text());
    return false;
}

/* Pack into a file. */
static size_t pack_file(const char *text, const uint8_t *data, size_t bytes,
                        const char *path)
{
    size_t size = 0;
    uint8_t *packed = packed_bytes(text, data, bytes, &size);
    fixture_write_file(path, packed, size);
    free(packed);
    return size;
}

static bool same_file(const char *path, const uint8_t *data, size_t bytes)
{
    char *got = NULL;
    size_t size = 0;
    if (fsio_read_file(path, 1 << 28, &got, &size) != ERR_OK)
        return false;
    bool same = size == bytes && memcmp(got, data, bytes) == 0;
    free(got);
    return same;
}

/* Unpack, and compare the checksums of what was written. */
static enum err unpack_summed(const char *text, const char *packed,
                              const char *to, const uint8_t *data, size_t bytes)
{
    enum err rc = ERR_OK;
    char names[2][8] = { "xxh64", "sha1" };
    struct file_sum hashes[2];
    struct file_sums *sums = NULL;
    for (int h = 0; h < 2; h++) {
        struct checksum *sum = NULL;
        fixture_need(checksum_create(names[h], &sum));
        fixture_need(checksum_update(sum, data, bytes));
        fixture_need(checksum_finish(sum, hashes[h].hex));
        checksum_destroy(sum);
        hashes[h].name = names[h];
    }
    fixture_need(file_sums_create(hashes, 2, &sums));
    TRY_OUT(codec_unpack_file(text, packed, to, (int64_t)bytes, sums));
    rc = file_sums_compare(sums);
out:
    file_sums_destroy(sums);
    return rc;
}

static void test_files(const char *folder)
{
    static const size_t sizes[] = { 0, 1, 1000, 300000 };
    const char *packed = fixture_path(folder, "packed");
    const char *to = fixture_path(folder, "to");
    for (size_t t = 0; t < TEXTS; t++) {
        if (!available(texts[t]))
            continue;
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
            uint8_t *data = test_data(sizes[s]);
            int64_t bytes = (int64_t)sizes[s];
            pack_file(texts[t], data, sizes[s], packed);
            enum err rc = unpack_summed(texts[t], packed, to, data, sizes[s]);
            tap_ok(rc == ERR_OK && same_file(to, data, sizes[s]),
                   "%s of %zu bytes and back%s%s", texts[t], sizes[s],
                   rc != ERR_OK ? ": " : "", rc != ERR_OK ? err_text() : "");
            unlink(to);
            rc = codec_unpack_file(texts[t], packed, to, bytes + 1, NULL);
            tap_ok(rc == ERR_DATA && strstr(err_text(), packed) != NULL &&
                       !fsio_exists(to),
                   "... less than there should be");
            rc = bytes == 0
                     ? ERR_DATA
                     : codec_unpack_file(texts[t], packed, to, bytes - 1, NULL);
            tap_ok(rc == ERR_DATA && !fsio_exists(to),
                   "... more than there should be");
            free(data);
        }
    }
}

/* *rc of the whole text, read in pieces that begin anywhere. */
static uint8_t *read_stream(const char *path, size_t *bytes, enum err *rc)
{
    struct source *source = NULL;
    uint8_t *data = malloc(1 << 24);
    size_t got = 1, piece = 1;
    *bytes = 0;
    *rc = source_open(path, SOURCE_ANY, NULL, &source);
    while (*rc == ERR_OK && got > 0 && *bytes < (1 << 23)) {
        *rc = source_read(source, data + *bytes, piece, &got);
        *bytes += *rc == ERR_OK ? got : 0;
        piece = piece * 7 % 100003 + 1;
    }
    source_close(source);
    return data;
}

static void test_streams(const char *folder)
{
    size_t bytes = 200000, got = 0;
    uint8_t *data = test_data(bytes);
    for (size_t t = 0; t < TEXTS; t++) {
        enum err rc = ERR_OK;
        if (!available(texts[t]))
            continue;
        bool whole = strcmp(texts[t], "snappy") == 0;
        bool marked = !whole && strncmp(texts[t], "br", 2) != 0;
        const char *packed = fixture_path(folder, marked  ? "stream"
                                                  : whole ? "stream.snappy"
                                                          : "stream.br");
        size_t size = pack_file(texts[t], data, bytes, packed);
        uint8_t *out = read_stream(packed, &got, &rc);
        if (whole)
            tap_is_int(rc, ERR_UNSUPPORTED, "%s is no stream", texts[t]);
        else
            tap_ok(rc == ERR_OK && got == bytes &&
                       memcmp(out, data, bytes) == 0,
                   "stream of %s", texts[t]);
        free(out);
        if (whole)
            continue;
        fixture_need(truncate(packed, (off_t)size - 1) == 0 ? ERR_OK : ERR_IO);
        free(read_stream(packed, &got, &rc));
        tap_ok(rc == ERR_DATA && strstr(err_text(), packed) != NULL,
               "... cut short: %s", err_text());
    }
    free(data);
}

/* Two packed texts in one file are one text. */
static void test_concatenation(const char *folder)
{
    static const char *const joined[] = { "zstd", "gz", "bz2" };
    size_t bytes = 300000, got = 0;
    uint8_t *data = test_data(bytes);
    const char *path = fixture_path(folder, "joined");
    for (size_t t = 0; t < sizeof joined / sizeof joined[0]; t++) {
        enum err rc = ERR_OK;
        size_t first = 0, second = 0;
        if (!available(joined[t]))
            continue;
        uint8_t *one = packed_bytes(joined[t], data, 100000, &first);
        uint8_t *two = packed_bytes(joined[t], data + 100000, 200000, &second);
        uint8_t *both = calloc(1, first + second + 512);
        memcpy(both, one, first);
        memcpy(both + first, two, second);
        fixture_write_file(path, both, first + second);
        uint8_t *out = read_stream(path, &got, &rc);
        tap_ok(rc == ERR_OK && got == bytes && memcmp(out, data, bytes) == 0,
               "two of %s are one text", joined[t]);
        free(out);
        fixture_write_file(path, both, first + second + 512);
        out = read_stream(path, &got, &rc);
        tap_is_int(rc, strcmp(joined[t], "gz") == 0 ? ERR_OK : ERR_DATA,
                   "... with zeros behind");
        free(out);
        both[first + second] = 'x';
        fixture_write_file(path, both, first + second + 1);
        free(read_stream(path, &got, &rc));
        tap_is_int(rc, ERR_DATA, "... with something else behind");
        free(one);
        free(two);
        free(both);
    }
    free(data);
}

/* Exactly a piece of what is written at once, a byte less and more. */
static void test_pieces(const char *folder)
{
    static const char *const quick[] = { "zstd", "gz:1", "snappy" };
    const char *packed = fixture_path(folder, "pieces");
    const char *to = fixture_path(folder, "pieced");
    uint8_t *data = test_data((2 << 20) + 1);
    for (size_t q = 0; q < sizeof quick / sizeof quick[0]; q++)
        for (size_t p = 1; p <= 2 && available(quick[q]); p++)
            for (size_t bytes = (p << 20) - 1; bytes <= (p << 20) + 1;
                 bytes++) {
                pack_file(quick[q], data, bytes, packed);
                enum err rc = unpack_summed(quick[q], packed, to, data, bytes);
                tap_ok(rc == ERR_OK && same_file(to, data, bytes),
                       "%s of %zu bytes in pieces%s%s", quick[q], bytes,
                       rc != ERR_OK ? ": " : "",
                       rc != ERR_OK ? err_text() : "");
                unlink(to);
                rc = codec_unpack_file(quick[q], packed, to, (int64_t)bytes - 1,
                                       NULL);
                tap_ok(rc == ERR_DATA && !fsio_exists(to),
                       "... more than there should be");
            }
    free(data);
}

/* Sixteen megabytes in a few kilobytes: what is written ends at the limit. */
static void test_bombs(const char *folder)
{
    size_t bytes = (size_t)16 << 20;
    uint8_t *zeros = calloc(1, bytes);
    const char *packed = fixture_path(folder, "bomb");
    const char *to = fixture_path(folder, "bombed");
    for (size_t t = 0; t < TEXTS; t++) {
        if (strcmp(texts[t], "zstd") != 0 && strcmp(texts[t], "gz") != 0 &&
            strcmp(texts[t], "snappy") != 0)
            continue;
        if (!available(texts[t]))
            continue;
        pack_file(texts[t], zeros, bytes, packed);
        tap_is_int(codec_unpack_file(texts[t], packed, to, 1000, NULL),
                   ERR_DATA, "bomb of %s: %s", texts[t], err_text());
    }
    free(zeros);
}

static void test_flips(const char *folder)
{
    size_t bytes = 400;
    uint8_t *data = test_data(bytes);
    const char *path = fixture_path(folder, "flip");
    const char *to = fixture_path(folder, "flipped");
    for (size_t t = 0; t < TEXTS; t++) {
        size_t size = 0;
        int seen = 0, exact = 0;
        if (strchr(texts[t], ':') != NULL || !available(texts[t]))
            continue;
        uint8_t *packed = packed_bytes(texts[t], data, bytes, &size);
        for (size_t b = 0; b < size; b++) {
            packed[b] ^= (uint8_t)(1 << b % 8);
            fixture_write_file(path, packed, size);
            enum err rc =
                codec_unpack_file(texts[t], path, to, (int64_t)bytes, NULL);
            seen += rc == ERR_DATA && !fsio_exists(to);
            exact += rc == ERR_OK;
            unlink(to);
            packed[b] ^= (uint8_t)(1 << b % 8);
        }
        tap_is_int(seen + exact, (long long)size,
                   "flipped bits of %s are refused or give the right size",
                   texts[t]);
        free(packed);
    }
    free(data);
}

static void test_names(const char *folder)
{
    static const char *const bad[] = {
        "",        "lzma",    "zst",      "zstd:", "zstd:0",
        "zstd:23", "zstd:3x", "zstd:03",  "gz:10", "gz:-1",
        "br:12",   "bz2:0",   "snappy:1", "none",  "zstd:99999999999999999999"
    };
    const struct codec *codec = NULL;
    size_t got = 0;
    enum err rc = ERR_OK;
    for (size_t b = 0; b < sizeof bad / sizeof bad[0]; b++)
        tap_ok(codec_find(bad[b], &codec) != ERR_OK, "'%s': %s", bad[b],
               err_text());
    fixture_need(codec_find("zstd:12", &codec));
    tap_is_str(codec->name, "zstd", "zstd:12");
    tap_is_str(codec_by_extension("a.b/text.zst")->name, "zstd", ".zst");
    tap_is_str(codec_by_extension("text.br")->name, "br", ".br");
    tap_ok(codec_by_extension("text") == NULL &&
               codec_by_extension("text.txt") == NULL,
           "no extension of a compression");
    const char *path = fixture_path(folder, "plain.gz");
    fixture_write_file(path, "BZh9 is a text", 14);
    free(read_stream(path, &got, &rc));
    tap_is_int(rc, ERR_DATA, "a plain text that is named .gz: %s", err_text());
    path = fixture_path(folder, "letters");
    fixture_write_file(path, "BZh9 is a text", 14);
    free(read_stream(path, &got, &rc));
    tap_ok(rc == ERR_OK && got == 14, "a text that begins as bz2 does");
    free(read_stream(fixture_path(folder, "missing"), &got, &rc));
    tap_is_int(rc, ERR_DATA, "%s", err_text());
    free(read_stream(folder, &got, &rc));
    tap_ok(rc != ERR_OK, "%s", err_text());
}

int main(void)
{
    const char *folder = tap_folder();
    test_files(folder);
    test_streams(folder);
    test_concatenation(folder);
    test_pieces(folder);
    test_bombs(folder);
    test_flips(folder);
    test_names(folder);
    return tap_done();
}
