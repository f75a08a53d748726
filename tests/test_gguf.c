/* GGUF files: what is written is read, and what nobody should believe is
 * refused with a text that says why. */
#include <sys/stat.h>

#include "src/base/clock.h"
#include "src/base/output.h"
#include "src/formats/gguf/gguf_writer.h"
#include "tests/gguf_fixture.h"

static const char *path;

static enum err open_bytes(const void *data, size_t bytes, struct gguf **out)
{
    fixture_write_file(path, data, bytes);
    *out = NULL;
    return gguf_open(path, out);
}

static const struct change {
    const char *name;
    enum gguf_mark mark;
    int bytes;
    uint64_t value;
    const char *text; /* in the message; NULL: it is fine */
} changes[] = {
    { "as it is", MARK_VERSION, 4, 3, NULL },
    { "version 2", MARK_VERSION, 4, 2, NULL },
    { "no magic", MARK_MAGIC, 1, 'g', "no GGUF file" },
    { "version 1", MARK_VERSION, 4, 1, "version 1 can't" },
    { "version 4", MARK_VERSION, 4, 4, "version 4 can't" },
    { "version 0", MARK_VERSION, 4, 0, "version 0 can't" },
    { "high bytes first", MARK_VERSION, 4, 3u << 24, "high bytes first" },
    { "2^64-1 tensors", MARK_TENSORS, 8, UINT64_MAX, "tensors in a file" },
    { "2^64-1 keys", MARK_KEYS, 8, UINT64_MAX, "keys in a file" },
    { "a million keys", MARK_KEYS, 8, 1000000, "keys in a file" },
    { "a key more than there are", MARK_KEYS, 8, 5, "test.gguf" },
    { "a key without name", MARK_KEY_BYTES, 8, 0, "1 to 65535" },
    { "a key of 2^63 bytes", MARK_KEY_BYTES, 8, (uint64_t)1 << 63,
      "1 to 65535" },
    { "a key longer than the file", MARK_KEY_BYTES, 8, 65535, "truncated" },
    { "a NUL in a key", MARK_KEY, 1, 0, "NUL" },
    { "kind 13", MARK_KIND, 4, 13, "no kind 13" },
    { "alignment 0", MARK_ALIGNMENT, 4, 0, "power of two" },
    { "alignment 24", MARK_ALIGNMENT, 4, 24, "power of two" },
    { "alignment 2^31", MARK_ALIGNMENT, 4, (uint64_t)1 << 31, "truncated" },
    { "alignment 8", MARK_ALIGNMENT, 4, 8, NULL },
    { "alignment as a float", MARK_KIND, 4, GGUF_F32, "power of two" },
    { "a key twice", MARK_SECOND_KEY, 1, 'b', "'b' is there twice" },
    { "a string of 2^64-1 bytes", MARK_STRING_BYTES, 8, UINT64_MAX,
      "truncated" },
    { "a string to the file's end", MARK_STRING_BYTES, 8, 1000, "truncated" },
    { "items of no kind", MARK_ITEM_KIND, 4, 99, "no kind 99" },
    { "2^61 items", MARK_ITEMS, 8, (uint64_t)1 << 61, "does not fit" },
    { "2^61 inner items", MARK_INNER_ITEMS, 8, (uint64_t)1 << 61,
      "does not fit" },
    { "more inner items than there are", MARK_INNER_ITEMS, 8, 400,
      "does not fit" },
    { "a bool that is 2", MARK_BOOL, 1, 2, "not 0 or 1" },
    { "a tensor's name of 2^32 bytes", MARK_NAME_BYTES, 8, (uint64_t)1 << 32,
      "1 to 65535" },
    { "5 dimensions", MARK_DIMS, 4, 5, "5 dimensions" },
    { "2^32-1 dimensions", MARK_DIMS, 4, UINT32_MAX, "dimensions" },
    { "a dimension of 0", MARK_DIM1, 8, 0, "dimension 1 of 0" },
    { "a dimension of 2^63", MARK_DIM1, 8, (uint64_t)1 << 63, "dimension 1" },
    { "dimensions that overflow", MARK_DIM1, 8, (uint64_t)1 << 59,
      "dimension 1" },
    { "more rows than there are", MARK_DIM1, 8, 9, "truncated" },
    { "rows that reach into the next tensor", MARK_DIM1, 8, 3, "overlap" },
    { "rows that are no blocks", MARK_DIM0, 8, 33, "no blocks of 32" },
    { "Q2_K", MARK_TYPE, 4, 10, "(Q2_K)" },
    { "type 4", MARK_TYPE, 4, 4, "(?)" },
    { "type 2^32-1", MARK_TYPE, 4, UINT32_MAX, "(?)" },
    { "rows shorter than a large block", MARK_TYPE, 4, 12, "no blocks of 256" },
    { "an offset of 2^64-32", MARK_OFFSET, 8, UINT64_MAX - 31, "truncated" },
    { "an offset behind the end", MARK_OFFSET, 8, 1024, "truncated" },
    { "an offset between", MARK_SECOND_OFFSET, 8, 100, "multiple of 32" },
    { "tensors that overlap", MARK_SECOND_OFFSET, 8, 64, "overlap" },
    { "tensors at one place", MARK_SECOND_OFFSET, 8, 0, "overlap" },
    { "a tensor twice", MARK_SECOND_NAME, 1, 'x', "'x' is there twice" },
    { "a tensor as F16", MARK_SECOND_TYPE, 4, 1, NULL },
};

static void test_changes(void)
{
    for (size_t c = 0; c < sizeof changes / sizeof *changes; c++) {
        const struct change *change = &changes[c];
        struct gguf_file file = { 0 };
        struct gguf *gguf = NULL;
        gguf_file_make(&file);
        memcpy(file.bytes.data + file.mark[change->mark], &change->value,
               (size_t)change->bytes);
        enum err rc = open_bytes(file.bytes.data, file.bytes.bytes, &gguf);
        bool good = change->text == NULL
                        ? rc == ERR_OK
                        : (rc == ERR_DATA || rc == ERR_UNSUPPORTED) &&
                              gguf == NULL &&
                              strstr(err_text(), change->text) != NULL;
        tap_ok(good, "%s%s%s", change->name, rc != ERR_OK ? ": " : "",
               rc != ERR_OK ? err_text() : "");
        gguf_close(gguf);
        buffer_free(&file.bytes);
    }
}

/* All that a file has; each byte is looked at. */
static uint64_t look(const struct gguf *gguf)
{
    uint64_t sum = 0;
    uint8_t scratch[512];
    float numbers[GGUF_BLOCKS_NUMBERS_MAX];
    for (size_t k = 0; k < gguf->keys; k++) {
        struct gguf_value value = gguf->key[k].value, item, inner;
        sum += strlen(gguf->key[k].name);
        while (value.kind == GGUF_ARRAY && gguf_value_next(&value, &item))
            while (item.kind == GGUF_ARRAY && gguf_value_next(&item, &inner))
                sum += inner.data[0];
        for (uint64_t i = 0; value.kind == GGUF_STRING && i < value.count; i++)
            sum += value.data[i];
    }
    for (size_t t = 0; t < gguf->tensors; t++) {
        const struct gguf_tensor *tensor = &gguf->tensor[t];
        for (uint64_t b = 0; b < tensor->blocks && b < 1000; b++)
            sum += gguf_read_floats(gguf, tensor, b, 1, scratch, numbers) !=
                   ERR_OK;
    }
    return sum;
}

static void test_truncated(void)
{
    struct gguf_file file = { 0 };
    int wrong = 0;
    gguf_file_make(&file);
    for (size_t bytes = 0; bytes < file.bytes.bytes; bytes++) {
        struct gguf *gguf = NULL;
        enum err rc = open_bytes(file.bytes.data, bytes, &gguf);
        wrong += rc != ERR_DATA || gguf != NULL;
        gguf_close(gguf);
    }
    tap_is_int(wrong, 0, "each shorter file is refused");
    buffer_free(&file.bytes);
}

static void test_changed_bytes(void)
{
    struct gguf_file file = { 0 };
    int opened = 0;
    uint64_t sum = 0, draw = 7;
    gguf_file_make(&file);
    for (int round = 0; round < 4000; round++) {
        struct gguf *gguf = NULL;
        uint8_t old[4];
        size_t at[4];
        for (int i = 0; i < 4; i++) {
            draw = draw * 6364136223846793005u + 1442695040888963407u;
            at[i] = (draw >> 33) % file.bytes.bytes;
            old[i] = file.bytes.data[at[i]];
            file.bytes.data[at[i]] = (uint8_t)(draw >> 24);
            if (i > round % 4)
                file.bytes.data[at[i]] = old[i];
        }
        if (open_bytes(file.bytes.data, file.bytes.bytes, &gguf) == ERR_OK) {
            opened++;
            sum += look(gguf);
        }
        gguf_close(gguf);
        for (int i = 3; i >= 0; i--)
            file.bytes.data[at[i]] = old[i];
    }
    tap_ok(opened > 100 && opened < 4000 && sum > 0,
           "of 4000 files with changed bytes %d are read", opened);
    buffer_free(&file.bytes);
}

static void test_nested(void)
{
    for (int depth = GGUF_NESTED_MAX; depth <= GGUF_NESTED_MAX + 1; depth++) {
        struct gguf_file file = { 0 };
        struct gguf *gguf = NULL;
        gguf_put(&file, "GGUF\3\0\0\0", 8);
        gguf_put_u64(&file, 0);
        gguf_put_u64(&file, 1);
        gguf_put_text(&file, "deep");
        gguf_put_u32(&file, GGUF_ARRAY);
        for (int d = 1; d < depth; d++) {
            gguf_put_u32(&file, GGUF_ARRAY);
            gguf_put_u64(&file, 1);
        }
        gguf_put_u32(&file, GGUF_U8);
        gguf_put_u64(&file, 1);
        gguf_put(&file, "\7", 1);
        enum err rc = open_bytes(file.bytes.data, file.bytes.bytes, &gguf);
        if (depth <= GGUF_NESTED_MAX)
            tap_ok(rc == ERR_OK && look(gguf) == 4, "arrays %d deep are read",
                   depth);
        else
            tap_ok(rc == ERR_DATA && strstr(err_text(), "nested") != NULL,
                   "arrays %d deep are not", depth);
        gguf_close(gguf);
        buffer_free(&file.bytes);
    }
}

/* Many tensors; `stride` is between them. */
static void test_many(uint64_t count, uint64_t stride)
{
    struct gguf_file file = { 0 };
    struct gguf *gguf = NULL;
    gguf_put(&file, "GGUF\3\0\0\0", 8);
    gguf_put_u64(&file, count);
    gguf_put_u64(&file, 0);
    for (uint64_t t = 0; t < count; t++) {
        char name[16];
        snprintf(name, sizeof name, "t%d", (int)(t * 7919 % count));
        gguf_put_text(&file, name);
        gguf_put_u32(&file, 1);
        gguf_put_u64(&file, 4);
        gguf_put_u32(&file, GGUF_BLOCKS_F32);
        gguf_put_u64(&file, (count - 1 - t) * stride);
    }
    fixture_write_file(path, file.bytes.data, file.bytes.bytes);
    if (truncate(path, (off_t)(file.bytes.bytes + count * 32 + 32)) != 0)
        exit(1);
    double begun = clock_now();
    enum err rc = gguf_open(path, &gguf);
    double seconds = clock_now() - begun;
    if (stride > 0)
        tap_ok(rc == ERR_OK && gguf->tensors == count &&
                   gguf_find_tensor(gguf, "t123456") != NULL &&
                   gguf_find_tensor(gguf, "t1000000") == NULL && seconds < 10,
               "%d tensors (%.1f s)", (int)count, seconds);
    else
        tap_ok(rc == ERR_DATA && strstr(err_text(), "overlap") && seconds < 10,
               "... that all overlap (%.1f s)", seconds);
    gguf_close(gguf);
    buffer_free(&file.bytes);
}

static void test_values(void)
{
    struct gguf_file file = { 0 };
    struct gguf *gguf = NULL;
    struct gguf_value array, item, inner;
    const char *text = NULL;
    size_t bytes = 0;
    uint64_t count = 0;
    double real = 0;
    bool flag = false;
    char sum[32] = "";
    gguf_file_make(&file);
    fixture_need(open_bytes(file.bytes.data, file.bytes.bytes, &gguf));
    tap_ok(gguf_get_string(gguf, "s", &text, &bytes) == ERR_OK && bytes == 4 &&
               memcmp(text, "text", 4) == 0,
           "a string");
    tap_ok(gguf_get_bool(gguf, "b", &flag) == ERR_OK && flag, "a bool");
    tap_ok(gguf_get_count(gguf, GGUF_ALIGNMENT_KEY, &count) == ERR_OK &&
               count == 32,
           "a whole number");
    tap_ok(gguf_get_real(gguf, GGUF_ALIGNMENT_KEY, &real) == ERR_OK &&
               real == 32,
           "... as a real one");
    fixture_need(gguf_get_array(gguf, "a", GGUF_ARRAY, &array));
    while (gguf_value_next(&array, &item)) {
        strcat(sum, "(");
        while (gguf_value_next(&item, &inner))
            snprintf(sum + strlen(sum), 8, "%d ", inner.data[0]);
        strcat(sum, ")");
    }
    tap_is_str(sum, "(1 2 )(3 )", "arrays in an array");
    tap_ok(gguf_get_count(gguf, "s", &count) == ERR_DATA &&
               strstr(err_text(), "'s' is string") != NULL,
           "%s", err_text());
    tap_ok(gguf_get_bool(gguf, "none", &flag) == ERR_DATA &&
               strstr(err_text(), "no key 'none'") != NULL,
           "%s", err_text());
    tap_ok(gguf_get_array(gguf, "a", GGUF_U8, &array) == ERR_DATA, "%s",
           err_text());
    gguf_close(gguf);
    buffer_free(&file.bytes);
}

static void write_all(struct gguf_writer *writer)
{
    static const float numbers[] = { 1, -2, 3, 0.5f, 9 };
    static const int32_t items[] = { 5, -6, 7 };
    static const uint64_t dims[] = { 5, 1 }, small[] = { 1 };
    int8_t minus = -3;
    double real = 0.125;
    fixture_need(gguf_writer_number(writer, "minus", GGUF_I8, &minus));
    fixture_need(gguf_writer_number(writer, "real", GGUF_F64, &real));
    fixture_need(gguf_writer_string(writer, "text", "", 0));
    fixture_need(gguf_writer_numbers(writer, "items", GGUF_I32, items, 3));
    fixture_need(gguf_writer_strings(writer, "texts", 2));
    fixture_need(gguf_writer_item(writer, "a", 1));
    fixture_need(gguf_writer_item(writer, "b\0c", 3));
    fixture_need(gguf_writer_tensor(writer, "one", GGUF_BLOCKS_F32, dims, 2));
    fixture_need(gguf_writer_tensor(writer, "two", GGUF_BLOCKS_F32, small, 1));
    tap_ok(gguf_writer_tensor(writer, "three", GGUF_BLOCKS_Q8_0, dims, 1) ==
               ERR_USAGE,
           "%s", err_text());
    /* a piece that ends in the middle, and one that is of both */
    fixture_need(gguf_writer_data(writer, numbers, 6));
    fixture_need(gguf_writer_data(writer, (const char *)numbers + 6, 14));
    fixture_need(gguf_writer_data(writer, numbers, 4));
}

static void test_writer(void)
{
    struct gguf_writer *writer = NULL;
    struct gguf *gguf = NULL;
    struct gguf_value array, item;
    float numbers[5] = { 0 };
    char scratch[20];
    int64_t whole = 0;
    unlink(path);
    fixture_need(gguf_writer_create(path, &writer));
    write_all(writer);
    tap_ok(!fsio_exists(path), "nothing is there before the end");
    fixture_need(gguf_writer_finish(writer));
    gguf_writer_destroy(writer);
    fixture_need(gguf_open(path, &gguf));
    const struct gguf_tensor *one = gguf_find_tensor(gguf, "one");
    const struct gguf_tensor *two = gguf_find_tensor(gguf, "two");
    tap_ok(one != NULL && one->offset % 32 == 0 && two != NULL &&
               two->offset == one->offset + 32,
           "the alignment is kept");
    fixture_need(gguf_read_floats(gguf, one, 0, 5, scratch, numbers));
    tap_ok(numbers[1] == -2 && numbers[4] == 9, "numbers are read back");
    fixture_need(gguf_read_floats(gguf, one, 3, 2, scratch, numbers));
    tap_ok(numbers[0] == 0.5f && numbers[1] == 9, "... from block 3 on");
    tap_ok(gguf_value_whole(gguf_find(gguf, "minus"), &whole) && whole == -3,
           "a negative number");
    fixture_need(gguf_get_array(gguf, "texts", GGUF_STRING, &array));
    tap_ok(gguf_value_next(&array, &item) && item.count == 1 &&
               gguf_value_next(&array, &item) && item.count == 3 &&
               memcmp(item.data, "b\0c", 3) == 0 &&
               !gguf_value_next(&array, &item),
           "strings, with a NUL in one");
    fixture_need(gguf_get_array(gguf, "items", GGUF_I32, &array));
    for (int i = 0; i < 2; i++)
        gguf_value_next(&array, &item);
    tap_ok(gguf_value_whole(&item, &whole) && whole == -6, "numbers in a row");
    gguf_close(gguf);
    unlink(path);
    fixture_need(gguf_writer_create(path, &writer));
    write_all(writer);
    gguf_writer_destroy(writer);
    tap_ok(!fsio_exists(path), "nothing stays of what is given up");
}

/* What others have put at the names that the writer uses is neither written
 * through nor replaced. */
static void test_planted(const char *folder)
{
    struct gguf_writer *writer = NULL;
    struct gguf *gguf = NULL;
    char part[FSIO_PATH_MAX], next[FSIO_PATH_MAX], *text = NULL;
    size_t bytes = 0;
    const char *victim = fixture_path(folder, "victim");
    fixture_write_file(victim, "mine", 4);
    fixture_need(output_temporary(path, part));
    tap_ok(symlink(victim, part) == 0, "a link where the file would begin");
    fixture_need(gguf_writer_create(path, &writer));
    write_all(writer);
    fixture_need(gguf_writer_finish(writer));
    gguf_writer_destroy(writer);
    fixture_need(fsio_read_file(victim, 16, &text, &bytes));
    tap_is_str(text, "mine", "... is not followed");
    tap_ok(gguf_open(path, &gguf) == ERR_OK, "... and the file is whole");
    gguf_close(gguf);
    free(text);
    fixture_need(gguf_writer_create(path, &writer));
    write_all(writer);
    fixture_write_file(path, "theirs", 6);
    tap_ok(gguf_writer_finish(writer) == ERR_USAGE &&
               strstr(err_text(), "another process") != NULL,
           "a file that has appeared: %s", err_text());
    gguf_writer_destroy(writer);
    fixture_need(fsio_read_file(path, 16, &text, &bytes));
    tap_is_str(text, "theirs", "... stays");
    free(text);
    unlink(part);
    fixture_need(output_temporary(path, next));
    tap_is_str(next, part, "... and nothing else does");
    unlink(path);
}

static void test_rows(void)
{
    int wrong = 0;
    for (uint64_t row = 0; row < 3 * 8; row++)
        wrong += gguf_row_to_pairs(gguf_row_to_halves(row, 8), 8) != row ||
                 gguf_row_to_halves(gguf_row_to_pairs(row, 8), 8) != row;
    tap_is_int(wrong, 0, "orders of rows are each other's inverse");
    tap_ok(gguf_row_to_halves(0, 8) == 0 && gguf_row_to_halves(1, 8) == 4 &&
               gguf_row_to_halves(2, 8) == 1 && gguf_row_to_halves(15, 8) == 15,
           "rows 0, 1, 2 of a head are 0, 4, 1 of halves");
}

/* What can't be a file of this kind at all. */
static void test_no_file(const char *folder)
{
    struct gguf *gguf = NULL;
    tap_ok(gguf_open(fixture_path(folder, "none"), &gguf) == ERR_DATA &&
               strstr(err_text(), "no such file") != NULL,
           "%s", err_text());
    tap_ok(gguf_open(folder, &gguf) == ERR_DATA &&
               strstr(err_text(), "not a file") != NULL,
           "%s", err_text());
    const char *pipe = fixture_path(folder, "pipe");
    tap_ok(mkfifo(pipe, 0600) == 0 && gguf_open(pipe, &gguf) == ERR_DATA,
           "a pipe is not waited for");
}

int main(void)
{
    char file[FSIO_PATH_MAX];
    const char *folder = tap_folder();
    fixture_need(fsio_path(file, "%s/test.gguf", folder));
    path = file;
    test_no_file(folder);
    test_changes();
    test_truncated();
    test_changed_bytes();
    test_nested();
    test_values();
    test_writer();
    test_planted(folder);
    test_rows();
    test_many(1000000, 32);
    test_many(100000, 0);
    return tap_done();
}
