/* Arrow: files and streams of a writer of the test's own (arrow_writer.h), by type,
 * layout and packing, whole, cut short at every byte and with every bit changed; the
 * beginning in the middle; and what is refused, lies, or claims more than there is.
 * tests/interop/arrow.sh compares with pyarrow. test_arrow FOLDER writes the seeds of
 * the fuzzer. */
#include "tests/arrow_writer.h"
#include "tests/columns_test.h"

#define LONG "a longer text, a longer text, a longer text"

static const struct {
    const char *name, *column;
    int type, place_bits, codec;
    bool group, file;
} texts[] = {
    { "stream", "text", TYPE_UTF8, 0, WRITE_PLAIN, false, false },
    { "file", "text", TYPE_UTF8, 0, WRITE_PLAIN, false, true },
    { "bytes-zstd", "text", TYPE_BINARY, 0, WRITE_ZSTD, false, false },
    { "large-lz4", "text", TYPE_LARGE_UTF8, 0, WRITE_LZ4, false, true },
    { "dictionary", "text", TYPE_UTF8, 8, WRITE_PLAIN, false, false },
    { "dictionary-zstd", "text", TYPE_LARGE_UTF8, 32, WRITE_ZSTD, false, true },
    { "dictionary-unsigned", "text", TYPE_UTF8, -16, WRITE_ZSTD, false, false },
    { "group", "a.text", TYPE_UTF8, 0, WRITE_PLAIN, true, false },
    { "group-dictionary", "a.text", TYPE_BINARY, 64, WRITE_LZ4, true, false },
};
#define TEXTS (sizeof texts / sizeof *texts)

static const struct {
    const char *name;
    int type, codec;
    bool file;
} talks[] = {
    { "talk", TYPE_LIST, WRITE_PLAIN, false },
    { "talk-large", TYPE_LARGE_LIST, WRITE_PLAIN, true },
    { "talk-lz4", TYPE_LIST, WRITE_LZ4, false },
};
#define TALKS (sizeof talks / sizeof *talks)

/* Offsets of 4 bytes or 8. */
static void add_offsets(struct write_batch *batch, int type, size_t count,
                        const int64_t *at)
{
    size_t each = type == TYPE_LARGE_UTF8 || type == TYPE_LARGE_LIST ? 8 : 4;
    uint8_t data[64];
    for (size_t i = 0; i < count; i++)
        memcpy(data + each * i, &at[i], each);
    write_part(batch, data, count * each);
}

static void add_texts(struct write_batch *batch, int type, bool second)
{
    static const int64_t at[2][5] = { { 0, 0, 3, 10, 10 },
                                      { 0, 3, 3 + sizeof LONG - 1 } };
    write_array(batch, second ? 2 : 4, !second);
    write_part(batch, "\7", !second);
    add_offsets(batch, type, second ? 3 : 5, at[second]);
    write_part(batch, second ? "one" LONG : "onetwo two",
               (size_t)at[second][2 + 2 * !second]);
}

/* COLUMNS_TEXTS beside numbers, in two batches; of a dictionary the second has its
 * own. */
static void make_texts(size_t t, struct buffer *out)
{
    static const int64_t number[4];
    const int type = texts[t].type, bits = abs(texts[t].place_bits);
    const struct write_field text = { "text", type, texts[t].place_bits, NULL,
                                      0 };
    struct write_field fields[2] = { { "n", TYPE_INT, 0, NULL, 0 }, text };
    struct write_batch batch = { .codec = texts[t].codec };
    if (texts[t].group)
        fields[1] = (struct write_field){ "a", TYPE_STRUCT, 0, &text, 1 };
    write_schema(out, texts[t].file, fields, 2, 0);
    for (int half = 0; half < 2; half++) {
        const int64_t rows = half == 0 ? 4 : 2;
        if (bits > 0) {
            add_texts(&batch, type, half > 0);
            write_batch(out, &batch, true, rows, -1);
        }
        write_array(&batch, rows, 0);
        write_part(&batch, "", 0);
        write_part(&batch, number, 8 * (size_t)rows);
        if (texts[t].group) {
            write_array(&batch, rows, 0);
            write_part(&batch, "", 0);
        }
        if (bits == 0) {
            add_texts(&batch, type, half > 0);
        } else {
            uint8_t place[32] = { 0 };
            for (int i = 0; i < rows; i++)
                place[i * bits / 8] = (uint8_t)i;
            write_array(&batch, rows, 0);
            write_part(&batch, "", 0);
            write_part(&batch, place, (size_t)(rows * bits / 8));
        }
        write_batch(out, &batch, false, rows, -1);
    }
    write_end(out, texts[t].file);
}

/* COLUMNS_TALK, of a list that ends there. */
static void make_talk(size_t t, int64_t end, struct buffer *out)
{
    static const struct write_field inner[] = {
        { "role", TYPE_UTF8, 0, NULL, 0 }, { "content", TYPE_UTF8, 0, NULL, 0 }
    };
    static const struct write_field item = { "item", TYPE_STRUCT, 0, inner, 2 };
    const struct write_field list = { "messages", talks[t].type, 0, &item, 1 };
    const int64_t at[] = { 0, 2, 2, 2, end };
    static const int64_t role[] = { 0, 4, 13, 17 }, content[] = { 0, 2, 4, 4 };
    struct write_batch batch = { .codec = talks[t].codec };
    write_schema(out, talks[t].file, &list, 1, 0);
    write_array(&batch, 4, 1);
    write_part(&batch, "\x0b", 1);
    add_offsets(&batch, talks[t].type, 5, at);
    write_array(&batch, 3, 0);
    write_part(&batch, "", 0);
    write_array(&batch, 3, 0);
    write_part(&batch, "", 0);
    add_offsets(&batch, TYPE_UTF8, 4, role);
    write_part(&batch, "userassistantuser", 17);
    write_array(&batch, 3, 1);
    write_part(&batch, "\3", 1);
    add_offsets(&batch, TYPE_UTF8, 4, content);
    write_part(&batch, "HiHo", 4);
    write_batch(out, &batch, false, 4, -1);
    write_end(out, talks[t].file);
}

/* A column with one array, of "ab" behind these offsets, and what reading it says. */
static const struct {
    const char *says;
    int type, place_bits, endian, codec;
    int64_t rows, nulls;
    const char *offsets;
    size_t bytes;
} refusals[] = {
    { "of a big-endian machine", TYPE_UTF8, 0, 1, -1, 0, 0, "", 0 },
    { "has a type that is unknown", 77, 0, 0, -1, 0, 0, "", 0 },
    { "'text' has whole numbers, no", TYPE_INT, 0, 0, -1, 0, 0, "", 0 },
    { "'text' has truths, no text", TYPE_BOOL, 0, 0, -1, 0, 0, "", 0 },
    { "'text' has a union, no text", TYPE_UNION, 0, 0, -1, 0, 0, "", 0 },
    { "'text' has views of texts", TYPE_VIEW, 0, 0, -1, 0, 0, "", 0 },
    { "a dictionary of other", TYPE_INT, 8, 0, -1, 0, 0, "", 0 },
    { "0: column 'text' has the place 0 in a dictionary of 0", TYPE_UTF8, 8, 0,
      -1, 1, 0, "", 1 },
    { "'text' is damaged", TYPE_UTF8, 0, 0, -1, 1, 0, "\2\0\0\0\1\0\0", 8 },
    { "'text' is damaged", TYPE_UTF8, 0, 0, -1, 1, 0, "\0\0\0\0\3\0\0", 8 },
    { "'text' is damaged", TYPE_UTF8, 0, 0, -1, 1, 0, "\0\0\0", 4 },
    { "'text' is damaged", TYPE_UTF8, 0, 0, -1, INT64_MAX, 0, "", 0 },
    { "'text' is damaged", TYPE_UTF8, 0, 0, -1, 1L << 40, 0, "", 0 },
    { "'text' is damaged", TYPE_UTF8, 0, 0, -1, 1, 1, "\0\0\0\0\0\0\0", 8 },
    { "'text' is damaged", TYPE_UTF8, 0, 0, 9, 1, 0, "\0\0\0\0\2\0\0", 8 },
};

static void test_refusals(const char *folder)
{
    const char *path = fixture_path(folder, "refused.arrow");
    struct buffer out = { 0 };
    char got[1024];
    for (size_t r = 0; r < sizeof refusals / sizeof *refusals; r++) {
        const struct write_field field = { "text", refusals[r].type,
                                           refusals[r].place_bits, NULL, 0 };
        write_schema(&out, false, &field, 1, refusals[r].endian);
        struct write_batch batch = { .codec = refusals[r].codec };
        write_array(&batch, refusals[r].rows, refusals[r].nulls);
        write_part(&batch, "", 0);
        write_part(&batch, refusals[r].offsets, refusals[r].bytes);
        if (refusals[r].place_bits == 0)
            write_part(&batch, "ab", 2);
        write_batch(&out, &batch, false, refusals[r].rows,
                    refusals[r].type == TYPE_VIEW ? 1 : -1);
        write_end(&out, false);
        fixture_write_file(path, out.data, out.bytes);
        enum err rc = columns_test_texts(&arrow_format, path, "text", 0, got);
        tap_ok(columns_test_refused(rc, path) &&
                   strstr(err_text(), refusals[r].says) != NULL,
               "%s: %s", refusals[r].says, rc == ERR_OK ? got : err_text());
    }
    buffer_free(&out);
}

/* Places in a dictionary of 300 texts, the last of which is "last", by the width and
 * the sign (below 0: none) of their type, and what reading says. */
static const struct {
    int bits;
    int64_t place;
    const char *says;
} places[] = {
    { 8, -1,
      "record batch 0: column 'text' has the place -1 in a dictionary of 300" },
    { 8, 200, "the place -56 in" },
    { -8, 200, "|" },
    { 16, 299, "last|" },
    { 16, -1, "the place -1 in" },
    { -16, 0xffff, "the place 65535 in" },
    { 32, -1, "the place -1 in" },
    { -32, -1, "the place 4294967295 in" },
    { -32, 299, "last|" },
    { 64, -1, "the place -1 in" },
    { -64, 299, "last|" },
    { 24, 0, "has a damaged schema" },
};

static void make_place(size_t p, struct buffer *out)
{
    struct write_batch batch = { .codec = WRITE_PLAIN };
    const struct write_field field = { "text", TYPE_UTF8, places[p].bits, NULL,
                                       0 };
    int32_t at[301] = { [300] = 4 };
    write_schema(out, false, &field, 1, 0);
    write_array(&batch, 300, 0);
    write_part(&batch, "", 0);
    write_part(&batch, at, sizeof at);
    write_part(&batch, "last", 4);
    write_batch(out, &batch, true, 300, -1);
    write_array(&batch, 1, 0);
    write_part(&batch, "", 0);
    write_part(&batch, &places[p].place, (size_t)abs(places[p].bits) / 8);
    write_batch(out, &batch, false, 1, -1);
    write_end(out, false);
}

static void test_places(const char *folder)
{
    const char *path = fixture_path(folder, "places.arrow");
    struct buffer out = { 0 };
    char got[1024];
    for (size_t p = 0; p < sizeof places / sizeof *places; p++) {
        make_place(p, &out);
        fixture_write_file(path, out.data, out.bytes);
        enum err rc = columns_test_texts(&arrow_format, path, "text", 0, got);
        tap_ok(strstr(rc == ERR_OK ? got : err_text(), places[p].says) != NULL,
               "%d bits: %s", places[p].bits, rc == ERR_OK ? got : err_text());
    }
    buffer_free(&out);
}

/* A few bytes that say that they are many, and lists beyond their elements. */
static void test_claims(const char *folder)
{
    static const int64_t lengths[] = { 1L << 40, 1L << 28, -2, 7 };
    static const int64_t ends[] = { 4, INT32_MAX };
    const char *path = fixture_path(folder, "claims.arrow");
    struct buffer out = { 0 };
    char got[1024];
    for (size_t i = 0; i < 4; i++) {
        make_talk(2, 3, &out);
        uint8_t *frame = memmem(out.data, out.bytes, "\4\"M\30", 4);
        memcpy(frame - 8, &lengths[i], 8);
        fixture_write_file(path, out.data, out.bytes);
        enum err rc = columns_test_talks(&arrow_format, path, got);
        tap_ok(columns_test_refused(rc, path), "of %lld bytes: %s",
               (long long)lengths[i], err_text());
    }
    for (size_t i = 0; i < 2; i++) {
        make_talk(0, ends[i], &out);
        fixture_write_file(path, out.data, out.bytes);
        tap_ok(columns_test_talks(&arrow_format, path, got) == ERR_DATA,
               "a list up to %lld of 3: %s", (long long)ends[i], err_text());
    }
    buffer_free(&out);
}

static void test_go(const char *folder)
{
    const char *path = fixture_path(folder, "go.arrow"), *rest = COLUMNS_TEXTS;
    struct buffer out = { 0 };
    char got[1024];
    make_texts(4, &out);
    fixture_write_file(path, out.data, out.bytes);
    for (int row = 0; row < 6; row++) {
        fixture_need(columns_test_texts(&arrow_format, path, "text", row, got));
        tap_is_str(got, rest, "from row %d on", row);
        rest = strchr(rest, '|') + 1;
    }
    buffer_free(&out);
}

int main(int argc, char **argv)
{
    const char *folder = argc > 1 ? argv[1] : tap_folder();
    const char *broken = fixture_path(folder, "broken.arrow");
    struct buffer out = { 0 };
    for (size_t t = 0; t < TEXTS + TALKS; t++) {
        bool talk = t >= TEXTS;
        const char *name = talk ? talks[t - TEXTS].name : texts[t].name;
        if (talk)
            make_talk(t - TEXTS, 3, &out);
        else
            make_texts(t, &out);
        if (argc > 1)
            fixture_write_file(fixture_path(folder, name), out.data, out.bytes);
        else
            columns_test_file(&arrow_format, name, (const char *)out.data,
                              out.bytes, talk ? NULL : texts[t].column,
                              talk ? COLUMNS_TALK : COLUMNS_TEXTS, broken);
    }
    if (argc > 1) {
        make_place(0, &out);
        fixture_write_file(fixture_path(folder, "place"), out.data, out.bytes);
    }
    buffer_free(&out);
    if (argc > 1)
        return 0;
    test_refusals(folder);
    test_places(folder);
    test_claims(folder);
    test_go(folder);
    return tap_done();
}
