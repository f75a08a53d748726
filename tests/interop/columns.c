/* Our side of streaming.sh: the data set of every encoding that mds.py's
 * `columns` makes, by the writer and the encoders of src/data.
 *
 *   columns DIR HASHES LIMIT
 *   columns rate DIR                         MB/s of reading every sample
 *   columns unpack FILE...                   MB/s of zstd and nothing else
 *
 * MB are those of the raw shards, s the processor's: what else runs on the
 * machine does not count.
 */
#include <assert.h>
#include <string.h>
#include <time.h>

#include "src/base/fsio.h"
#include "src/data/set/dataset.h"
#include "src/data/mds/mds_encoding.h"
#include "src/data/mds/mds_writer.h"
#include "src/data/set/values.h"
#include "src/data/texts/source.h"
#include "tests/interop/need.h"

#define SAMPLES 40
#define HASHES 8

/* Not sorted: the writer does that. */
static const struct mds_column columns[] = {
    { "tokens", "ndarray:int32" },
    { "a_bytes", "bytes" },
    { "b_str", "str" },
    { "c_int", "int" },
    { "d_uint8", "uint8" },
    { "d_int8", "int8" },
    { "d_uint16", "uint16" },
    { "d_int16", "int16" },
    { "d_uint32", "uint32" },
    { "d_int32", "int32" },
    { "d_uint64", "uint64" },
    { "d_int64", "int64" },
    { "e_float16", "float16" },
    { "e_float32", "float32" },
    { "e_float64", "float64" },
    { "f_int", "str_int" },
    { "f_float", "str_float" },
    { "f_decimal", "str_decimal" },
    { "g_json", "json" },
    { "h_pil", "pil" },
    { "h_jpeg", "jpeg" },
    { "h_png", "png" },
    { "i_list", "list[pil]" },
    { "i_array", "jpeg_array" },
    { "j_dynamic", "ndarray" },
    { "j_typed", "ndarray:uint16" },
    { "j_shaped", "ndarray:float64:2,3" },
    { "j_wide", "ndarray:int8" },
    { "na\xc3\xafve \"name\"\x7f", "int" },
};
#define COLUMNS ((int)(sizeof columns / sizeof columns[0]))

/* --- encodings that the product reads and never writes --- */

/* Dimensions have as few bytes as the largest needs. */
static enum err encode_shape(const int64_t *size, int dimensions,
                             struct buffer *out)
{
    int64_t largest = 0;
    for (int d = 0; d < dimensions; d++)
        largest = size[d] > largest ? size[d] : largest;
    unsigned k = largest < (int64_t)1 << 8    ? 0
                 : largest < (int64_t)1 << 16 ? 1
                 : largest < (int64_t)1 << 32 ? 2
                                              : 3;
    uint8_t word = (uint8_t)((unsigned)dimensions << 2 | k);
    TRY(buffer_add(out, &word, 1));
    for (int d = 0; d < dimensions; d++)
        TRY(buffer_add(out, &size[d], (size_t)1 << k));
    return ERR_OK;
}

/* Any 'ndarray': its type and shape, where the encoding does not have them. */
struct array {
    int type;
    int dimensions;
    const int64_t *size;
    const void *values; /* row by row */
};

static enum err encode_array(const char *encoding, const struct array *array,
                             struct buffer *out)
{
    struct mds_encoding form;
    const struct values_type *type = values_type(array->type);
    int64_t count = 1;
    assert(type != NULL && array->dimensions > 0);
    assert(array->dimensions <= MDS_ENCODING_DIMENSIONS_MAX);
    mds_encoding_parse(encoding, &form);
    for (int d = 0; d < array->dimensions; d++)
        count *= array->size[d];
    if (form.kind != MDS_ARRAY || (form.type != 0 && form.type != type->code) ||
        (form.count != 0 && form.count != count))
        return err_set(ERR_USAGE, "an array of %lld %s values is no '%.60s'",
                       (long long)count, type->name, encoding);
    uint8_t code = (uint8_t)type->code;
    if (form.type == 0)
        TRY(buffer_add(out, &code, 1));
    if (form.count == 0)
        TRY(encode_shape(array->size, array->dimensions, out));
    return buffer_add(out, array->values, (size_t)count * (size_t)type->width);
}

/* 'pil': an image of a mode of Pillow, and its pixels. */
static enum err encode_pil(uint32_t width, uint32_t height, const char *mode,
                           const void *pixels, size_t bytes, struct buffer *out)
{
    uint32_t head[3] = { width, height, (uint32_t)strlen(mode) };
    TRY(buffer_add(out, head, sizeof head));
    TRY(buffer_add(out, mode, strlen(mode)));
    return buffer_add(out, pixels, bytes);
}

/* 'list[pil]' and 'jpeg_array': images that were encoded before. */
static enum err encode_images(const char *encoding, const uint32_t *bytes,
                              uint32_t count, const void *data,
                              struct buffer *out)
{
    const uint32_t reserved = 0; /* lists begin with a word for later use */
    size_t sum = 0;
    if (strncmp(encoding, "list", 4) == 0)
        TRY(buffer_add(out, &reserved, sizeof reserved));
    TRY(buffer_add(out, &count, sizeof count));
    for (uint32_t i = 0; i < count; i++) {
        TRY(buffer_add(out, &bytes[i], sizeof bytes[i]));
        sum += bytes[i];
    }
    return buffer_add(out, data, sum);
}

static void put(struct buffer *out, const void *data, size_t bytes)
{
    need(buffer_add(out, data, bytes));
}

static void put_text(struct buffer *out, const char *format, int i)
{
    char text[200];
    int length = snprintf(text, sizeof text, format, i);
    put(out, text, (size_t)length);
}

/* The low bytes of a number. */
static void put_int(struct buffer *out, int64_t value, size_t bytes)
{
    put(out, &value, bytes);
}

static void put_array(struct buffer *out, const char *encoding, int i)
{
    int32_t wide[600];
    uint16_t typed[300];
    double shaped[6];
    int8_t small[70000];
    int64_t size[3] = { 1 + i % 3, 2, 5 };
    for (int k = 0; k < 600; k++)
        wide[k] = i * 1000 - k;
    for (int k = 0; k < 300; k++)
        typed[k] = (uint16_t)(i + k);
    for (int k = 0; k < 6; k++)
        shaped[k] = i + k / 8.0;
    for (int k = 0; k < 70000; k++)
        small[k] = (int8_t)(k % 100 - 50);
    struct array array = { values_code("int32"), 3, size, wide };
    if (strcmp(encoding, "ndarray:uint16") == 0) {
        size[0] = 300;
        array = (struct array){ values_code("uint16"), 1, size, typed };
    } else if (strcmp(encoding, "ndarray:float64:2,3") == 0) {
        size[0] = 2;
        size[1] = 3;
        array = (struct array){ values_type_named("float64")->code, 2, size,
                                shaped };
    } else if (strcmp(encoding, "ndarray:int8") == 0) {
        size[0] = i % 10 == 0 ? 70000 : 7;
        array = (struct array){ values_code("int8"), 1, size, small };
    }
    need(encode_array(encoding, &array, out));
}

static void put_image(struct buffer *out, const char *encoding, int i)
{
    uint8_t pixels[6];
    uint32_t bytes[3] = { 0, 0, 0 };
    struct buffer part = { 0 };
    for (int p = 0; p < 6; p++)
        pixels[p] = (uint8_t)(i + p);
    if (strcmp(encoding, "pil") == 0) {
        need(encode_pil(2, 3, "L", pixels, 6, out));
    } else if (strcmp(encoding, "list[pil]") == 0) {
        for (int k = 0; k < 2; k++) {
            size_t before = part.bytes;
            need(encode_pil(3, 2, "L", pixels, 6, &part));
            bytes[k] = (uint32_t)(part.bytes - before);
        }
        need(encode_images(encoding, bytes, 2, part.data, out));
    } else if (strcmp(encoding, "jpeg_array") == 0) {
        bytes[0] = 2;
        bytes[1] = 4;
        need(encode_images(encoding, bytes, 2, pixels, out));
    } else {
        put(out, pixels, 6);
    }
    free(part.data);
}

static void put_number(struct buffer *out, const char *encoding, int i)
{
    const struct values_type *type = values_type_named(encoding);
    float single = (float)i / 4 - 2;
    double real = i / 10.0;
    if (strcmp(encoding, "float16") == 0)
        put_int(out, 0x3c00 + i, 2); /* 1 and i units in the last place */
    else if (strcmp(encoding, "float32") == 0)
        put(out, &single, sizeof single);
    else if (strcmp(encoding, "float64") == 0)
        put(out, &real, sizeof real);
    else if (type != NULL && encoding[0] == 'u')
        put_int(out, 5 * i, (size_t)type->width);
    else
        put_int(out, 3 * i - 50, type != NULL ? (size_t)type->width : 8);
}

static void put_value(struct buffer *out, const struct mds_column *column,
                      int i)
{
    int32_t tokens[100];
    for (int k = 0; k < 100; k++)
        tokens[k] = (i * 31 + k * 7) % 257;
    switch (column->name[0]) {
    case 't':
        need(mds_encode_ndarray(values_code("int32"), tokens, 1 + i % 99, out));
        break;
    case 'a':
        put(out, tokens, (size_t)i % 5);
        break;
    case 'b':
        put_text(out, "na\xc3\xafve \xf0\x9f\x98\x80 \"text\"\n%d", i);
        break;
    case 'f':
        put_text(out,
                 column->encoding[4] == 'i' ? "-100000000000000000000000%d"
                                            : "%d.125",
                 i);
        break;
    case 'g':
        put_text(out, "{\"a\": [%d, null], \"b\": \"\\u00ef\"}", i);
        break;
    case 'h':
    case 'i':
        put_image(out, column->encoding, i);
        break;
    case 'j':
        put_array(out, column->encoding, i);
        break;
    default:
        put_number(out, column->encoding, i);
    }
}

static void print_rate(double bytes, clock_t begin)
{
    double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
    printf("%.1f\n", bytes / seconds / 1e6);
}

/* What no reader of these files can be faster than. */
static int unpack(char *const *paths)
{
    static uint8_t data[1 << 20];
    double bytes = 0.0;
    clock_t begin = clock();
    for (int p = 0; paths[p] != NULL; p++) {
        struct source *source = NULL;
        size_t got = 1;
        need(source_open(paths[p], SOURCE_ANY, NULL, &source));
        while (got > 0) {
            need(source_read(source, data, sizeof data, &got));
            bytes += (double)got;
        }
        source_close(source);
    }
    print_rate(bytes, begin);
    return 0;
}

/* What mds.py's `rate` measures, with the same steps. */
static int rate(const char *folder)
{
    int32_t tokens[4096];
    int64_t length = 0;
    struct dataset *dataset = NULL;
    clock_t begin = clock();
    need(dataset_open(folder, &dataset));
    for (int64_t s = 0; s < dataset_contents(dataset)->samples; s++)
        need(dataset_read(dataset, s, tokens, 4096, &length));
    print_rate((double)dataset_contents(dataset)->bytes, begin);
    dataset_close(dataset);
    return 0;
}

int main(int argc, char **argv)
{
    struct buffer buffer[COLUMNS];
    struct mds_field field[COLUMNS];
    struct mds_writer *writer = NULL;
    if (argc == 3 && strcmp(argv[1], "rate") == 0)
        return rate(argv[2]);
    if (argc > 2 && strcmp(argv[1], "unpack") == 0)
        return unpack(argv + 2);
    if (argc != 4)
        return 64;
    const char *hashes[HASHES + 1] = { NULL };
    char *name = strtok(argv[2], ",");
    for (int h = 0; h < HASHES && name != NULL; h++) {
        hashes[h] = name;
        name = strtok(NULL, ",");
    }
    struct mds_writer_options options = { columns, COLUMNS, atoll(argv[3]),
                                          hashes };
    memset(buffer, 0, sizeof buffer);
    need(fsio_mkdirs(argv[1]));
    need(mds_writer_create(argv[1], &options, &writer));
    for (int i = 0; i < SAMPLES; i++) {
        for (int c = 0; c < COLUMNS; c++) {
            buffer[c].bytes = 0;
            put_value(&buffer[c], &columns[c], i);
            field[c] = (struct mds_field){ buffer[c].data, buffer[c].bytes };
        }
        need(mds_writer_add_fields(writer, field));
    }
    need(mds_writer_finish(writer));
    mds_writer_destroy(writer);
    for (int c = 0; c < COLUMNS; c++)
        free(buffer[c].data);
    return 0;
}
