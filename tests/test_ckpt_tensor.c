/* Tensors as one array, whatever parts they are stored in, and the statistics
 * of their values. */
#include <malloc.h>

#include "checkpoint/files/ckpt_shard.h"
#include "checkpoint/tools/ckpt_tools.h"
#include "checkpoint/tools/ckpt_tensor.h"
#include "tests/ckpt_fixture.h"

/* --- boxes --- */

#define SHARDS 3
#define TENSORS 2
#define STEP 11

/* Two tensors, cut in columns, rows and the rest: the second one in extents of
 * several blocks. */
static const struct ckpt_tensor boxed_tensors[TENSORS] = {
    { .name = "small", .dims = 2, .shape = { 6, 10 }, .elements = 60 },
    { .name = "big",
      .dims = 3,
      .shape = { 1500, 50, 40 },
      .elements = 3000000 },
};

static const struct ckpt_part boxed_parts[SHARDS][TENSORS] = {
    { { .boxed = true, .origin = { 0, 0 }, .sides = { 6, 4 } },
      { .boxed = true, .origin = { 0, 0, 0 }, .sides = { 1500, 49, 39 } } },
    { { .boxed = true, .origin = { 0, 4 }, .sides = { 5, 6 } },
      { .boxed = true, .origin = { 0, 0, 39 }, .sides = { 1500, 50, 1 } } },
    { { .begin = 54, .end = 60 },
      { .boxed = true, .origin = { 0, 49, 0 }, .sides = { 1500, 1, 39 } } },
};

/* Element e of tensor t is the low bytes of fixture_value(STEP, t, e). */
static void put_value(char *to, int tensor, int64_t element)
{
    uint64_t value = fixture_value(STEP, tensor, element);
    memcpy(to, &value, sizeof(float));
}

static enum err write_boxes(const char *dir, int shard, struct ckpt_shard *out)
{
    static const char *const files[SHARDS] = { "shard-0.h5", "shard-1.h5",
                                               "shard-2.h5" };
    struct ckpt_hdf5_identity identity = {
        .step = STEP, .rank = shard, .ranks = SHARDS, .attempt = "1.1"
    };
    struct ckpt_item items[TENSORS];
    memset(items, 0, sizeof items);
    for (int t = 0; t < TENSORS; t++) {
        const struct ckpt_tensor *tensor = &boxed_tensors[t];
        const struct ckpt_part *part = &boxed_parts[shard][t];
        int64_t count = ckpt_part_elements(part, tensor->dims);
        struct ckpt_part_runs runs =
            ckpt_part_runs(part, tensor->dims, tensor->shape);
        strcpy(items[t].name, tensor->name);
        items[t].dims = 1;
        items[t].shape[0] = items[t].part.end = count;
        char *to = items[t].data = malloc((size_t)count * sizeof(float));
        for (int64_t r = 0; r < runs.count; r++) {
            int64_t begin = ckpt_part_run_begin(&runs, r);
            for (int64_t e = begin; e < begin + runs.elements; e++, to += 4)
                put_value(to, t, e);
        }
    }
    enum err rc = ckpt_shard_write(dir, files[shard], &identity, items, TENSORS,
                                   NULL, NULL, out);
    for (int p = 0; p < out->extent_count; p++)
        out->extents[p].part = boxed_parts[shard][out->extents[p].tensor];
    fixture_free(items, TENSORS);
    return rc;
}

static bool reads(struct ckpt_tensor_reader *reader, int tensor, int64_t begin,
                  int64_t end)
{
    bool same = true;
    char want[sizeof(float)];
    char *data = malloc((size_t)(end - begin) * sizeof(float) + 1);
    enum err rc = ckpt_tensor_read(reader, tensor, begin, end, data);
    for (int64_t e = begin; e < end && same && rc == ERR_OK; e++) {
        put_value(want, tensor, e);
        same = memcmp(want, data + (e - begin) * 4, sizeof want) == 0;
    }
    free(data);
    return same && rc == ERR_OK;
}

static void test_reads(const char *dir, const struct ckpt_manifest *manifest)
{
    static const struct {
        int tensor;
        int64_t begin, end;
    } table[] = {
        { 0, 0, 60 },
        { 0, 0, 0 },
        { 0, 60, 60 },
        { 0, 3, 5 },
        { 0, 53, 55 },
        { 0, 59, 60 },
        { 1, 0, 3000000 },
        { 1, 38, 41 },
        { 1, 1959, 1961 },
        { 1, 2999999, 3000000 },
        { 1, 1000000, 1100000 },
        { 1, 5, 6 },
    };
    struct ckpt_tensor_reader *reader = NULL;
    tap_ok(ckpt_tensor_create(dir, manifest, &reader) == ERR_OK, "a reader");
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        tap_ok(reads(reader, table[i].tensor, table[i].begin, table[i].end),
               "elements [%lld, %lld) of %s", (long long)table[i].begin,
               (long long)table[i].end, boxed_tensors[table[i].tensor].name);
    bool walked = true;
    for (int64_t at = 0, count; at < 3000000; at += count) {
        count = ckpt_tensor_window(&manifest->tensors[1], at);
        walked &= reads(reader, 1, at, at + count);
    }
    tap_ok(walked, "a walk in windows");
    ckpt_tensor_destroy(reader);
    ckpt_tensor_destroy(NULL);
}

static void test_damage(const char *dir, struct ckpt_manifest *manifest)
{
    struct ckpt_tensor_reader *reader = NULL;
    float value, values[8];
    const struct ckpt_shard *shard = &manifest->shards[0];
    const struct ckpt_extent *extent = &shard->extents[0];
    while (extent->tensor != 1)
        extent++;
    int64_t last = extent->bytes - 1;
    fixture_flip_in(dir, shard->file, extent->offset + last);
    ckpt_tensor_create(dir, manifest, &reader);
    tap_ok(reads(reader, 1, 0, 100), "blocks before the damage are read");
    tap_ok(ckpt_tensor_read(reader, 1, 2999957, 2999958, &value) ==
                   ERR_CHECKPOINT &&
               strstr(err_text(), "tensor big damaged") != NULL,
           "a damaged block is refused: %s", err_text());
    tap_ok(ckpt_tensor_read(reader, 1, 2999957, 2999958, &value) ==
               ERR_CHECKPOINT,
           "and again");
    tap_ok(reads(reader, 1, 2999999, 3000000), "its neighbour is read");
    ckpt_tensor_destroy(reader);
    fixture_flip_in(dir, shard->file, extent->offset + last);
    fixture_flip_in(dir, shard->file, 4);
    ckpt_tensor_create(dir, manifest, &reader);
    tap_ok(ckpt_tensor_read(reader, 1, 0, 1, &value) == ERR_CHECKPOINT,
           "a damaged frame is refused: %s", err_text());
    ckpt_tensor_destroy(reader);
    fixture_flip_in(dir, shard->file, 4);
    manifest->shard_count--;
    ckpt_tensor_create(dir, manifest, &reader);
    tap_ok(ckpt_tensor_read(reader, 0, 50, 58, values) == ERR_CHECKPOINT &&
               strstr(err_text(), "4 elements of [50, 58)") != NULL,
           "elements that nobody stores: %s", err_text());
    ckpt_tensor_destroy(reader);
    manifest->shard_count++;
}

static void test_boxes(const char *dir)
{
    struct ckpt_shard shards[SHARDS];
    struct ckpt_tensor tensors[TENSORS];
    memcpy(tensors, boxed_tensors, sizeof tensors);
    struct ckpt_manifest manifest = { .step = STEP,
                                      .ranks = SHARDS,
                                      .tensors = tensors,
                                      .tensor_count = TENSORS,
                                      .shards = shards,
                                      .shard_count = SHARDS };
    enum err rc = fsio_mkdirs(dir);
    for (int s = 0; s < SHARDS; s++)
        rc = rc == ERR_OK ? write_boxes(dir, s, &shards[s]) : rc;
    tap_ok(rc == ERR_OK, "shards of boxes");
    if (rc != ERR_OK)
        return;
    test_reads(dir, &manifest);
    test_damage(dir, &manifest);
    for (int s = 0; s < SHARDS; s++)
        ckpt_manifest_free_shard(&shards[s]);
}

/* Save these items and read them by tensor; false: a point has failed. */
static bool saved(struct comm *comm, const char *run,
                  const struct ckpt_item *items, int count,
                  struct ckpt_manifest **manifest,
                  struct ckpt_tensor_reader **reader)
{
    struct ckpt_options options = { .attempt = "1.1", .keep = 1 };
    char path[FSIO_PATH_MAX];
    fsio_path(path, "%s/checkpoints/step-000000001", run);
    enum err rc = ckpt_save(comm, run, 1, NULL, items, count, &options, NULL);
    if (rc == ERR_OK)
        rc = ckpt_manifest_read(path, NULL, NULL, manifest);
    if (rc == ERR_OK)
        rc = ckpt_tensor_create(path, *manifest, reader);
    return tap_ok(rc == ERR_OK, "a checkpoint of %d tensors", count);
}

/* --- statistics --- */

static const float special[] = { 1, -2, NAN, INFINITY, 0, -0.0f, 3, -INFINITY };
static const uint16_t half[] = { 0x3f80, 0xc020,
                                 0x3e20 }; /* 1, -2.5, 0.15625 */
static const double huge[] = { 3e200, 4e200 };
static const float none[] = { NAN, INFINITY };
static const int32_t same[] = { 7, 7, 7, 7 };

static const struct {
    const char *name;
    enum dtype dtype;
    const void *data;
    struct ckpt_stats want;
} stats_cases[] = {
    { "special", DTYPE_F32, special,
      TUPLE(8, 1, 2, 2, -2, 3, 0.4, 1.624807680927192, 3.7416573867739413) },
    { "half",
      DTYPE_BF16,
      half,
      { 3, 0, 0, 0, -2.5, 1, -0.44791666666666669, 1.4913669391609237,
        2.6971121709154033 } },
    { "huge", DTYPE_F64, huge,
      TUPLE(2, 0, 0, 0, 3e200, 4e200, 3.5e200, 5e199, 5e200) },
    { "none", DTYPE_F32, none, TUPLE(2, 1, 1, 0, NAN, NAN, NAN, NAN, NAN) },
    { "same", DTYPE_I32, same, TUPLE(4, 0, 0, 0, 7, 7, 7, 0, 14) },
    { "empty", DTYPE_F32, special, TUPLE(0, 0, 0, 0, NAN, NAN, NAN, NAN, NAN) },
};
#define STATS_CASES ((int)(sizeof stats_cases / sizeof stats_cases[0]))
#define COUNTING 3000001 /* several windows */

static bool close_to(double got, double want)
{
    return (isnan(got) && isnan(want)) || fabs(got - want) <= 1e-6 * fabs(want);
}

static bool same_stats(const struct ckpt_stats *got,
                       const struct ckpt_stats *want)
{
    return got->elements == want->elements && got->nan == want->nan &&
           got->inf == want->inf && got->zero == want->zero &&
           close_to(got->min, want->min) && close_to(got->max, want->max) &&
           close_to(got->mean, want->mean) && close_to(got->std, want->std) &&
           close_to(got->l2, want->l2);
}

static void is_stats(struct ckpt_tensor_reader *reader,
                     const struct ckpt_manifest *manifest, int tensor,
                     const struct ckpt_stats *want)
{
    struct ckpt_stats got;
    enum err rc = ckpt_stats_tensor(reader, manifest, tensor, &got);
    if (!tap_ok(rc == ERR_OK && same_stats(&got, want), "statistics of %s",
                manifest->tensors[tensor].name))
        tap_note("%s: %lld nan %lld inf %lld zero %lld min %.17g max %.17g "
                 "mean %.17g std %.17g l2 %.17g",
                 rc == ERR_OK ? "got" : err_text(), (long long)got.elements,
                 (long long)got.nan, (long long)got.inf, (long long)got.zero,
                 got.min, got.max, got.mean, got.std, got.l2);
}

static size_t bytes_in_use(void)
{
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

/* 0, 1, 2, ...: mean, deviation and norm are known. */
static struct ckpt_stats counting_stats(void)
{
    double n = COUNTING;
    return (struct ckpt_stats){ .elements = COUNTING,
                                .zero = 1,
                                .max = n - 1,
                                .mean = (n - 1) / 2,
                                .std = sqrt((n * n - 1) / 12),
                                .l2 = sqrt((n - 1) * n * (2 * n - 1) / 6) };
}

static void test_stats(struct comm *comm, const char *run)
{
    struct ckpt_item items[STATS_CASES + 1];
    struct ckpt_manifest *manifest = NULL;
    struct ckpt_tensor_reader *reader = NULL;
    int32_t *counting = malloc(COUNTING * sizeof *counting);
    memset(items, 0, sizeof items);
    for (int i = 0; i < COUNTING; i++)
        counting[i] = i;
    for (int i = 0; i <= STATS_CASES; i++) {
        bool last = i == STATS_CASES;
        strcpy(items[i].name, last ? "counting" : stats_cases[i].name);
        items[i].dtype = last ? DTYPE_I32 : stats_cases[i].dtype;
        items[i].dims = 1;
        items[i].shape[0] = items[i].part.end =
            last ? COUNTING : stats_cases[i].want.elements;
        items[i].data = last ? (void *)counting : (void *)stats_cases[i].data;
    }
    bool good = saved(comm, run, items, STATS_CASES + 1, &manifest, &reader);
    free(counting);
    if (!good)
        return;
    size_t before = bytes_in_use();
    for (int i = 0; i < STATS_CASES; i++)
        is_stats(reader, manifest, i, &stats_cases[i].want);
    struct ckpt_stats counted = counting_stats();
    is_stats(reader, manifest, STATS_CASES, &counted);
    size_t kept = bytes_in_use() - before;
    if (!tap_ok(kept < 5 * (size_t)CKPT_BLOCK_BYTES / 2,
                "two blocks are kept of tensors in intervals"))
        tap_note("%zu bytes", kept);
    ckpt_tensor_destroy(reader);
    ckpt_manifest_destroy(manifest);
}

/* --- detours --- */

#define MATRICES 3
#define ROWS 2000
#define COLS 600

/* What this process has asked the system for; -1: it doesn't say. */
static long long bytes_asked(void)
{
    long long bytes = -1;
    FILE *file = fopen("/proc/self/io", "r");
    if (file == NULL)
        return -1;
    if (fscanf(file, "rchar: %lld", &bytes) != 1)
        bytes = -1;
    fclose(file);
    return bytes;
}

/* A model's order: a vector, a matrix, a vector, ...; in the file the vectors
 * are together. */
static bool walk(struct ckpt_tensor_reader *reader,
                 const struct ckpt_manifest *manifest)
{
    float *window = malloc((size_t)CKPT_TENSOR_WINDOW_BYTES);
    bool good = window != NULL;
    for (int t = 0; t < manifest->tensor_count && good; t++) {
        const struct ckpt_tensor *tensor = &manifest->tensors[t];
        int number = tensor->name[0] - '0';
        for (int64_t at = 0, n; at < tensor->elements && good; at += n) {
            n = ckpt_tensor_window(tensor, at);
            good = ckpt_tensor_read(reader, t, at, at + n, window) == ERR_OK &&
                   window[0] == (float)(number + at) &&
                   window[n - 1] == (float)(number + at + n - 1);
        }
    }
    free(window);
    return good;
}

static void test_detours(struct comm *comm, const char *run)
{
    struct ckpt_item items[2 * MATRICES];
    struct ckpt_manifest *manifest = NULL;
    struct ckpt_tensor_reader *reader = NULL;
    float *data = malloc((ROWS * COLS + MATRICES * 2) * sizeof *data);
    memset(items, 0, sizeof items);
    for (int i = 0; i < ROWS * COLS + MATRICES * 2; i++)
        data[i] = (float)i;
    for (int i = 0; i < 2 * MATRICES; i++) {
        snprintf(items[i].name, sizeof items[i].name, "%d.%s", i,
                 i % 2 == 0 ? "vector" : "matrix");
        items[i].dtype = DTYPE_F32;
        items[i].dims = i % 2 + 1;
        items[i].shape[0] = i % 2 == 0 ? COLS : ROWS;
        items[i].shape[1] = i % 2 == 0 ? 0 : COLS;
        items[i].part.end = i % 2 == 0 ? COLS : ROWS * COLS;
        items[i].data = data + i;
    }
    bool good = saved(comm, run, items, 2 * MATRICES, &manifest, &reader);
    free(data);
    if (!good)
        return;
    long long before = bytes_asked();
    tap_ok(walk(reader, manifest), "a walk in the order of the model");
    long long asked = bytes_asked() - before;
    long long most = 5LL * MATRICES * ROWS * COLS * (long long)sizeof *data / 4;
    if (!tap_ok(before < 0 || asked < most, "it reads everything once"))
        tap_note("%lld bytes, not %lld", asked, most);
    ckpt_tensor_destroy(reader);
    ckpt_manifest_destroy(manifest);
}

int main(void)
{
    char folder[FSIO_PATH_MAX], path[FSIO_PATH_MAX];
    struct comm *comm = fixture_alone(folder);
    fsio_path(path, "%s/boxes", folder);
    test_boxes(path);
    fsio_path(path, "%s/stats", folder);
    test_stats(comm, path);
    fsio_path(path, "%s/detours", folder);
    test_detours(comm, path);
    comm_destroy(comm);
    return tap_done();
}
