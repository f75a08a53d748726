/* safetensors: conversions of 16 bits for every pattern, files written and read
 * back whole and in pieces, one file and several, and files that lie. */
#include "src/formats/safetensors/safetensors.h"

#include "src/base/fsio.h"
#include "src/base/rng.h"
#include "src/formats/safetensors/half.h"
#include "src/formats/safetensors/safetensors_writer.h"
#include "tests/tap.h"

static const char *folder; /* for what is written, made anew */

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float value_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* --- 16 bits --- */

/* By definition, in double. */
static double f16_value(uint16_t bits)
{
    int exponent = bits >> 10 & 31;
    int fraction = bits & 1023;
    double size = exponent == 0 ? ldexp(fraction, -24)
                                : ldexp(1024 + fraction, exponent - 25);
    return bits & 0x8000 ? -size : size;
}

/* The midpoint of two neighbours goes to the even one, what is beside it to the
 * nearer. */
static bool f16_rounds(uint16_t low)
{
    float middle =
        (float)((f16_value(low) + f16_value((uint16_t)(low + 1))) / 2);
    uint16_t even = (uint16_t)(low + (low & 1));
    return half_to_f16(middle) == even &&
           half_to_f16(nextafterf(middle, 0.0f)) == low &&
           half_to_f16(nextafterf(middle, 1e30f)) == low + 1 &&
           half_to_f16(-middle) == (even | 0x8000);
}

static void test_f16(void)
{
    int wrong = 0;
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        float value = half_from_f16((uint16_t)bits);
        bool special = (bits >> 10 & 31) == 31;
        if (!special && (double)value != f16_value((uint16_t)bits))
            wrong++;
        if (special && (bits & 1023) != 0 && !isnan(value))
            wrong++;
        /* a signalling NaN becomes quiet */
        uint32_t want = special && (bits & 1023) != 0 ? bits | 0x200 : bits;
        if (half_to_f16(value) != want)
            wrong++;
    }
    tap_is_int(wrong, 0, "all fp16 patterns become their values and return");
    wrong = 0;
    for (uint16_t low = 0; low < 0x7bff; low++)
        wrong += !f16_rounds(low);
    tap_is_int(wrong, 0, "fp16 rounds to nearest, ties to even");
    tap_is_int(half_to_f16(65519.996f), 0x7bff, "65519.996 is 65504");
    tap_is_int(half_to_f16(65520.0f), 0x7c00, "65520 is infinite");
    tap_is_int(half_to_f16(0x1p-25f), 0, "2^-25 is 0");
    tap_is_int(half_to_f16(value_of(0x33000001)), 1, "a bit more is not");
}

static void test_bf16(void)
{
    int wrong = 0;
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        bool nan = (bits & 0x7fff) > 0x7f80;
        float value = half_from_bf16((uint16_t)bits);
        if (half_to_bf16(value) != (nan ? bits | 0x40 : bits))
            wrong++;
        if (nan || (bits & 0x7f80) == 0x7f80)
            continue;
        uint32_t even = bits + (bits & 1);
        if (half_to_bf16(value_of(bits << 16 | 0x8000)) != even ||
            half_to_bf16(value_of(bits << 16 | 0x7fff)) != bits ||
            half_to_bf16(value_of(bits << 16 | 0x8001)) != bits + 1)
            wrong++;
    }
    tap_is_int(wrong, 0, "bf16 returns and rounds to nearest, ties to even");
    tap_ok(bits_of(half_from_bf16(0x3f80)) == 0x3f800000, "bf16 1 is 1");
}

/* --- what is written is read --- */

#define TENSORS 6

static const struct safetensors_tensor list[TENSORS] = {
    { .name = "z.first",
      .dtype = SAFETENSORS_F32,
      .dims = 2,
      .shape = { 300, 70 } },
    { .name = "b \"quoted\" \xc3\xa4",
      .dtype = SAFETENSORS_BF16,
      .dims = 1,
      .shape = { 70001 } },
    { .name = "scalar", .dtype = SAFETENSORS_F16 },
    { .name = "empty", .dtype = SAFETENSORS_F32, .dims = 2, .shape = { 0, 5 } },
    { .name = "half",
      .dtype = SAFETENSORS_F16,
      .dims = 3,
      .shape = { 3, 5, 7 } },
    { .name = "last", .dtype = SAFETENSORS_F32, .dims = 1, .shape = { 9 } },
};

/* A value that bf16 and fp16 hold, too. */
static float element(int tensor, int64_t i)
{
    return (float)((i * 31 + tensor * 7) % 255 - 127) / 16.0f;
}

static int64_t numel(const struct safetensors_tensor *tensor)
{
    int64_t n = 1;
    for (int i = 0; i < tensor->dims; i++)
        n *= tensor->shape[i];
    return n;
}

static enum err write_all(int64_t bytes_max)
{
    struct safetensors_writer *writer = NULL;
    TRY(fsio_remove_tree(folder));
    TRY(fsio_mkdirs(folder));
    enum err rc =
        safetensors_writer_create(folder, list, TENSORS, bytes_max, &writer);
    for (int t = 0; t < TENSORS && rc == ERR_OK; t++) {
        for (int64_t i = 0; i < numel(&list[t]) && rc == ERR_OK;) {
            float values[777];
            int64_t left = numel(&list[t]) - i;
            int64_t n = left < 777 ? left : 777;
            for (int64_t j = 0; j < n; j++)
                values[j] = element(t, i + j);
            rc = safetensors_writer_append_f32(writer, values, n);
            i += n;
        }
    }
    if (rc == ERR_OK)
        rc = safetensors_writer_finish(writer);
    safetensors_writer_destroy(writer);
    return rc;
}

static int wrong_elements(const struct safetensors *set, int t)
{
    const struct safetensors_tensor *found =
        safetensors_find(set, list[t].name);
    if (found == NULL || found->dims != list[t].dims ||
        found->dtype != list[t].dtype || found->numel != numel(&list[t]))
        return 1;
    int wrong = 0;
    float *values = malloc((size_t)found->numel * sizeof *values + 1);
    int64_t first = found->numel / 3;
    if (safetensors_read_f32(set, found, first, found->numel - first, values) !=
        ERR_OK)
        wrong++;
    for (int64_t i = first; i < found->numel && wrong == 0; i++)
        wrong += values[i - first] != element(t, i);
    free(values);
    return wrong;
}

static void test_both_ways(int64_t bytes_max, int files)
{
    struct safetensors *set = NULL;
    char path[FSIO_PATH_MAX];
    enum err rc = write_all(bytes_max);
    tap_ok(rc == ERR_OK, "written, at most %lld bytes a file: %s",
           (long long)bytes_max, rc == ERR_OK ? "" : err_text());
    rc = safetensors_open(folder, &set);
    tap_ok(rc == ERR_OK, "opened: %s", rc == ERR_OK ? "" : err_text());
    if (rc != ERR_OK)
        return;
    tap_is_int(set->count, TENSORS, "all tensors are there");
    for (int t = 0; t < TENSORS; t++)
        tap_is_int(wrong_elements(set, t), 0, "%s is what it was",
                   list[t].name);
    tap_ok(safetensors_find(set, "none") == NULL, "what is not is not found");
    safetensors_close(set);
    (void)fsio_path(path, "%s/model-%05d-of-%05d.safetensors", folder, files,
                    files);
    tap_ok(fsio_exists(path) == (files > 1), "%d files", files);
    if (files == 1)
        return;
    unlink(path);
    tap_ok(safetensors_open(folder, &set) == ERR_DATA, "a missing file: %s",
           err_text());
}

static void test_writer_refuses(void)
{
    struct safetensors_writer *writer = NULL;
    static const struct safetensors_tensor half = {
        .name = "half", .dtype = SAFETENSORS_F16, .dims = 1, .shape = { 2 }
    };
    float values[2] = { 1.0f, 70000.0f };
    tap_ok(write_all(1 << 30) == ERR_OK, "a model");
    tap_ok(safetensors_writer_create(folder, &half, 1, 1 << 30, &writer) ==
               ERR_SPACE,
           "is not overwritten: %s", err_text());
    fsio_remove_tree(folder);
    fsio_mkdirs(folder);
    tap_ok(safetensors_writer_create(folder, &half, 1, 1 << 30, &writer) ==
               ERR_OK,
           "fp16");
    tap_ok(safetensors_writer_append_f32(writer, values, 2) == ERR_NUMERIC,
           "what does not fit is refused: %s", err_text());
    safetensors_writer_destroy(writer);
    tap_ok(rmdir(folder) == 0, "and nothing stays behind");
}

/* --- files that lie --- */

#define ONE(shape, offsets)                                                    \
    "{\"a\":{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":" offsets  \
    "}}"
#define TWO(first, second)                                                     \
    "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":" first "},"     \
    "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":" second "}}"

static const struct {
    const char *header;
    int64_t data;
    const char *text; /* of the error; NULL: none */
} cases[] = {
    { ONE("[2]", "[0,8]"), 8, NULL },
    { ONE("[2]", "[0,8]") "   ", 8, NULL },
    { "{\"__metadata__\":{\"a\":\"b\"}," TWO("[8,16]", "[0,8]"), 0, "key" },
    { TWO("[8,16]", "[0,8]"), 16, NULL },
    { TWO("[0,8]", "[4,12]"), 12, "overlap" },
    { TWO("[0,8]", "[0,8]"), 8, "overlap" },
    { TWO("[0,8]", "[12,20]"), 20, "belong to none" },
    { ONE("[2]", "[0,8]"), 9, "at its end" },
    { ONE("[2]", "[0,8]"), 7, "is it whole" },
    { ONE("[2]", "[8,0]"), 8, "data_offsets" },
    { ONE("[2]", "[-8,0]"), 8, "data_offsets" },
    { ONE("[2]", "[0,8,9]"), 8, "two whole numbers" },
    { ONE("[2]", "[0,8.0]"), 8, "two whole numbers" },
    { ONE("[3]", "[0,8]"), 8, "shape have 12" },
    { ONE("[-2]", "[0,8]"), 8, "no size" },
    { ONE("[4294967296,4294967296]", "[0,0]"), 0, "elements than can be" },
    { ONE("[4611686018427387904]", "[0,0]"), 0, "bytes than can be" },
    { ONE("[4611686018427387904,4,0]", "[0,0]"), 0, NULL },
    { ONE("[99999999999999999999]", "[0,8]"), 8, "no JSON" },
    { ONE("[1,1,1,1,1,1,1,1,2]", "[0,8]"), 8, "sides" },
    { ONE("2", "[0,8]"), 8, "no array" },
    { ONE("[2],\"x\":1", "[0,8]"), 8, "unknown key" },
    { ONE("[2],\"shape\":[2]", "[0,8]"), 8, "duplicate" },
    { "{\"a\":{\"dtype\":\"Q9\",\"shape\":[],\"data_offsets\":[0,4]}}", 4,
      "'Q9' is not known" },
    { "{\"a\":{\"shape\":[],\"data_offsets\":[0,4]}}", 4, "dtype" },
    { "{\"a\":5}", 0, "no object" },
    { "{}", 0, "no tensors" },
    { "[]", 0, "no {" },
    { "", 0, "no {" },
    { "{\"a\":{\"dtype\":\"F32\"", 0, "does not end" },
    { "{\"a", 0, "does not end" },
    { "{\"a\\", 0, "does not end" },
    { "{\"a\":{]}", 0, "no JSON" },
    { "{\"__metadata__\":{\"a\":3}}", 0, "no string" },
    { "{\"__metadata__\":{},\"__metadata__\":{}}", 0, "twice" },
    { ONE("[2]", "[0,8]") "x", 8, "follows" },
};

static void put(const char *path, const char *header, size_t bytes,
                uint64_t length, int64_t data)
{
    FILE *file = fopen(path, "wb");
    for (int i = 0; i < 8; i++)
        fputc((int)(length >> (8 * i) & 0xff), file);
    fwrite(header, 1, bytes, file);
    for (int64_t i = 0; i < data; i++)
        fputc(0, file);
    fclose(file);
}

/* want: of the error; NULL: it opens. */
static void opens(const char *path, const char *what, const char *want)
{
    struct safetensors *set = NULL;
    enum err rc = safetensors_open(path, &set);
    tap_ok(want == NULL ? rc == ERR_OK
                        : rc != ERR_OK && strstr(err_text(), want) != NULL,
           "%s: %s", what, rc == ERR_OK ? "" : err_text());
    safetensors_close(rc == ERR_OK ? set : NULL);
}

static void test_lies(const char *path)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *header = cases[i].header;
        put(path, header, strlen(header), strlen(header), cases[i].data);
        opens(path, header, cases[i].text);
    }
    static const uint64_t lengths[] = {
        3, 100, 100000001, 1ull << 40, UINT64_MAX, UINT64_MAX - 7
    };
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        put(path, "{}", 2, lengths[i], 0);
        opens(path, "a length", "safetensors file");
    }
    tap_ok(truncate(path, 7) == 0, "a length that is cut");
    opens(path, "7 bytes", "begins with 8 bytes of length");
    static const char twice[] =
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
        "\"\\u0061\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}";
    put(path, twice, sizeof twice - 1, sizeof twice - 1, 2);
    opens(path, "a name twice", "is there twice");
}

/* Whatever byte changes, opening ends and what it accepts can be read. */
static void test_mutations(const char *path)
{
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\"},\"aa\":{\"dtype\":\"F16\","
        "\"shape\":[2,3],\"data_offsets\":[0,12]},\"b\":{\"dtype\":\"I64\","
        "\"shape\":[1],\"data_offsets\":[12,20]}}";
    static const char bytes[] = "{}[]\",:\\0129-eE. \x80\xff\n";
    int accepted = 0;
    for (uint64_t round = 0; round < 3000; round++) {
        char text[sizeof header];
        memcpy(text, header, sizeof header);
        for (uint64_t k = 0; k <= round % 3; k++) {
            uint32_t random = (uint32_t)(rng_u64(17, round, k) >> 32);
            text[random % (sizeof header - 1)] =
                bytes[random / 1000 % (sizeof bytes - 1)];
        }
        put(path, text, sizeof header - 1, sizeof header - 1, 20);
        struct safetensors *set = NULL;
        if (safetensors_open(path, &set) != ERR_OK)
            continue;
        accepted++;
        for (int i = 0; i < set->count; i++) {
            char data[20];
            const struct safetensors_tensor *t = &set->list[i];
            if (t->bytes > 20 || safetensors_read(set, t, 0, t->numel, data))
                accepted += 1000000;
        }
        safetensors_close(set);
    }
    tap_ok(accepted < 3000, "of 3000 changed headers %d are accepted",
           accepted);
}

static void test_many(const char *path)
{
    char *text = NULL;
    size_t bytes = 0;
    struct safetensors *set = NULL;
    FILE *file = open_memstream(&text, &bytes);
    for (int i = 0; i < 1000000; i++)
        fprintf(file,
                "%c\"%d\":{\"dtype\":\"U8\",\"shape\":[1],"
                "\"data_offsets\":[%d,%d]}",
                i == 0 ? '{' : ',', i, i, i + 1);
    fputc('}', file);
    fclose(file);
    put(path, text, bytes, bytes, 1000000);
    enum err rc = safetensors_open(path, &set);
    tap_ok(rc == ERR_OK && set->count == 1000000, "a million tensors: %s",
           rc == ERR_OK ? "" : err_text());
    safetensors_close(rc == ERR_OK ? set : NULL);
    free(text);
}

/* --- an index that lies --- */

static void test_index(void)
{
    static const struct {
        const char *index;
        const char *text;
    } indices[] = {
        { "{\"weight_map\":{\"a\":\"x.safetensors\"}}", NULL },
        { "{\"metadata\":{},\"weight_map\":{}}", "empty" },
        { "{\"metadata\":{}}", "no weight_map" },
        { "{\"weight_map\":{\"a\":\"../x.safetensors\"}}", "folder" },
        { "{\"weight_map\":{\"a\":3}}", "folder" },
        { "{\"weight_map\":{\"a\":\"y.safetensors\"}}", "missing" },
        { "{\"weight_map\":{\"b\":\"x.safetensors\"}}", "is not in" },
        { "{\"weight_map\":{\"a\":\"x.safetensors\",\"a\":\"x.safetensors\"}}",
          "twice" },
        { "{\"weight_map\":{},\"weight_map\":{}}", "twice" },
        { "{\"weight_map\":{},\"other\":{}}", "unknown key" },
        { "{\"weight_map\":{\"a\":\"x.safetensors\"}", "does not end" },
    };
    char path[FSIO_PATH_MAX];
    char index[FSIO_PATH_MAX];
    fsio_remove_tree(folder);
    fsio_mkdirs(folder);
    (void)fsio_path(path, "%s/x.safetensors", folder);
    (void)fsio_path(index, "%s/%s", folder, SAFETENSORS_INDEX);
    put(path, ONE("[2]", "[0,8]"), strlen(ONE("[2]", "[0,8]")),
        strlen(ONE("[2]", "[0,8]")), 8);
    for (size_t i = 0; i < sizeof indices / sizeof indices[0]; i++) {
        fsio_write_hint(index, indices[i].index, strlen(indices[i].index));
        opens(folder, indices[i].index, indices[i].text);
    }
    (void)fsio_path(path, "%s/%s", folder, SAFETENSORS_FILE);
    put(path, "{}", 2, 2, 0);
    opens(folder, "both", "which is the model? Remove one");
}

int main(void)
{
    char path[FSIO_PATH_MAX], model[FSIO_PATH_MAX];
    const char *root = tap_folder();
    (void)fsio_path(model, "%s/model", root);
    (void)fsio_path(path, "%s/file", root);
    folder = model;
    test_f16();
    test_bf16();
    test_both_ways(INT64_C(1) << 40, 1);
    test_both_ways(150000, 2);
    test_both_ways(1, 5);
    test_writer_refuses();
    test_lies(path);
    test_mutations(path);
    test_many(path);
    test_index();
    return tap_done();
}
