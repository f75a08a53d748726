/* Data sets of several columns: the writer's bytes, marks of tokens as
 * dataset_read_marked() hands them on, and marks that do not fit. */

#include "src/data/set/dataset.h"
#include "src/data/mds/mds_encoding.h"
#include "tests/data_packed.h"

#define UINT8 8
#define INT32 33

static const struct mds_column marked[] = {
    { "tokens", "ndarray:int32" },
    { "loss_mask", "ndarray:uint8" },
    { "lengths", "ndarray:int32" },
};

/* One sample of 4 tokens and these marks, in a new set. */
static struct dataset *marked_set(const char *path, const char *compression,
                                  const uint8_t *mask, int64_t mask_count,
                                  const int32_t *lengths, int64_t documents)
{
    static const int32_t tokens[] = { 1, 2, 3, 4 };
    struct mds_writer_options options = { marked, 3, 1 << 20, packed_hashes };
    struct mds_writer *writer = NULL;
    struct buffer field[3] = { 0 };
    fixture_need(fsio_remove_tree(path));
    fixture_need(fsio_mkdirs(path));
    fixture_need(mds_writer_create(path, &options, &writer));
    fixture_need(mds_encode_ndarray(INT32, tokens, 4, &field[0]));
    fixture_need(mds_encode_ndarray(UINT8, mask, mask_count, &field[1]));
    fixture_need(mds_encode_ndarray(INT32, lengths, documents, &field[2]));
    struct mds_field fields[3];
    for (int f = 0; f < 3; f++)
        fields[f] = (struct mds_field){ field[f].data, field[f].bytes };
    fixture_need(mds_writer_add_fields(writer, fields));
    fixture_need(mds_writer_finish(writer));
    mds_writer_destroy(writer);
    for (int f = 0; f < 3; f++)
        free(field[f].data);
    if (compression != NULL)
        packed_shards(path, compression);
    const struct sidecar sidecar = fixture_sidecar(1, 4);
    fixture_need(sidecar_write(path, &sidecar));
    struct dataset *dataset = fixture_open(path);
    return dataset;
}

static void test_marks(const char *folder)
{
    static const uint8_t mask[] = { 0, 1, 1, 0 };
    static const int32_t lengths[] = { 3, 1 };
    struct dataset_marks marks;
    int32_t tokens[4];
    int64_t length = 0;
    struct dataset *dataset =
        marked_set(fixture_path(folder, "marked"), NULL, mask, 4, lengths, 2);
    fixture_need(dataset_read_marked(dataset, 0, tokens, 4, &length, &marks));
    tap_ok(length == 4 && tokens[3] == 4, "tokens");
    tap_ok(marks.loss_mask.count == 4 &&
               memcmp(marks.loss_mask.data, mask, 4) == 0,
           "loss mask");
    tap_ok(marks.lengths.count == 2 &&
               memcmp(marks.lengths.data, lengths, 8) == 0,
           "lengths");
    tap_ok(dataset_verify_shard(dataset, 0, NULL) == ERR_OK, "checksums");
    dataset_close(dataset);
}

/* Packed shards are read as the raw ones, and leave nothing behind. */
static void test_packed(const char *folder)
{
    static const char *const texts[] = { "zstd:3", "gz", "bz2", "snappy",
                                         "br:5" };
    static const uint8_t mask[] = { 0, 1, 1, 0 };
    static const int32_t lengths[] = { 4 };
    char zip[FSIO_PATH_MAX];
    const char *path = fixture_path(folder, "packed");
    const char *temporary = fixture_path(folder, "temporary");
    fixture_need(fsio_mkdirs(temporary));
    fixture_need(setenv("TMPDIR", temporary, 1) == 0 ? ERR_OK : ERR_IO);
    for (size_t t = 0; t < sizeof texts / sizeof texts[0]; t++) {
        struct dataset_marks marks;
        const struct codec *codec = NULL;
        int32_t tokens[4] = { 0 };
        int64_t length = 0;
        if (codec_find(texts[t], &codec) != ERR_OK) {
            tap_skip("%s: %s", texts[t], err_text());
            continue;
        }
        struct dataset *dataset =
            marked_set(path, texts[t], mask, 4, lengths, 1);
        fixture_need(
            dataset_read_marked(dataset, 0, tokens, 4, &length, &marks));
        tap_ok(length == 4 && tokens[0] == 1 && tokens[3] == 4 &&
                   marks.loss_mask.count == 4,
               "a set packed with %s", texts[t]);
        tap_ok(dataset_verify_shard(dataset, 0, NULL) == ERR_OK, "checksums");
        dataset_close(dataset);
        snprintf(zip, sizeof zip, "%s/shard.00000.mds.%s", path, codec->name);
        size_t bytes = 0;
        char *data = fixture_read(zip, &bytes);
        data[bytes / 2] = (char)(data[bytes / 2] ^ 1);
        fixture_write_file(zip, data, bytes);
        dataset = fixture_open(path);
        enum err rc = dataset_read(dataset, 0, tokens, 4, &length);
        tap_ok(rc == ERR_DATA &&
                   strstr(err_text(), strrchr(zip, '/')) != NULL &&
                   strstr(err_text(), "its sha1 should be") != NULL,
               "... with a changed bit: %s", err_text());
        dataset_close(dataset);
        fixture_write_file(zip, data, bytes - 1);
        rc = dataset_open(path, &dataset);
        tap_ok(rc == ERR_DATA && strstr(err_text(), zip) != NULL,
               "... cut short: %s", err_text());
        unlink(zip);
        rc = dataset_open(path, &dataset);
        tap_ok(rc == ERR_DATA && strstr(err_text(), zip) != NULL,
               "... missing: %s", err_text());
        free(data);
    }
    tap_ok(rmdir(temporary) == 0, "nothing stays behind");
}

static void test_no_marks(const char *folder)
{
    static const int64_t lengths[] = { 5 };
    struct dataset_marks marks;
    int32_t tokens[5];
    int64_t length = 0;
    fixture_dataset(folder, "bare", lengths, 1, 1000, false);
    struct dataset *dataset = fixture_open(fixture_path(folder, "bare"));
    fixture_need(dataset_read_marked(dataset, 0, tokens, 5, &length, &marks));
    tap_ok(marks.loss_mask.count == 0 && marks.lengths.count == 0,
           "a set without marks has none");
    dataset_close(dataset);
}

static void test_bad_marks(const char *folder)
{
    static const struct {
        const char *name;
        uint8_t mask[5];
        int64_t mask_count;
        int32_t lengths[2];
        int64_t documents;
        const char *text;
    } bad[] = {
        { "a short mask", { 1, 1, 1 }, 3, { 4 }, 1, "loss_mask" },
        { "a long mask", { 1, 1, 1, 1, 1 }, 5, { 4 }, 1, "loss_mask" },
        { "a mask of 2", { 1, 1, 2, 1 }, 4, { 4 }, 1, "loss_mask" },
        { "too few tokens", { 1, 1, 1, 1 }, 4, { 3 }, 1, "lengths" },
        { "too many tokens", { 1, 1, 1, 1 }, 4, { 3, 2 }, 2, "lengths" },
        { "an empty document", { 1, 1, 1, 1 }, 4, { 4, 0 }, 2, "lengths" },
        { "a negative document", { 1, 1, 1, 1 }, 4, { 5, -1 }, 2, "lengths" },
    };
    for (size_t b = 0; b < sizeof bad / sizeof bad[0]; b++) {
        int32_t tokens[4];
        int64_t length = 0;
        struct dataset *dataset =
            marked_set(fixture_path(folder, "bad"), NULL, bad[b].mask,
                       bad[b].mask_count, bad[b].lengths, bad[b].documents);
        enum err rc = dataset_read(dataset, 0, tokens, 4, &length);
        tap_ok(rc == ERR_DATA && strstr(err_text(), bad[b].text) != NULL &&
                   strstr(err_text(), "shard.00000.mds: sample 0") != NULL,
               "%s: %s", bad[b].name, err_text());
        dataset_close(dataset);
    }
}

/* What options and fields cannot be. */
static void test_refusals(const char *folder)
{
    static const struct mds_column twice[] = { { "a", "int" }, { "a", "str" } };
    static const struct mds_column pickle[] = { { "a", "pkl" } };
    static const struct mds_column fixed[] = { { "a", "int" } };
    static const struct mds_column latin[] = { { "\xe9t\xe9", "int" } };
    static const struct {
        const char *name;
        struct mds_writer_options options;
    } bad[] = {
        { "a column twice", { twice, 2, 100, NULL } },
        { "a pickle", { pickle, 1, 100, NULL } },
        { "a name that is no UTF-8", { latin, 1, 100, NULL } },
        { "a negative limit", { fixed, 1, -1, NULL } },
    };
    struct mds_writer *writer = NULL;
    for (size_t b = 0; b < sizeof bad / sizeof bad[0]; b++)
        tap_is_int(mds_writer_create(folder, &bad[b].options, &writer),
                   ERR_USAGE, "%s: %s", bad[b].name, err_text());
    struct mds_writer_options options = { fixed, 1, 100, NULL };
    struct mds_field field = { "1234", 4 };
    fixture_need(mds_writer_create(folder, &options, &writer));
    tap_is_int(mds_writer_add_fields(writer, &field), ERR_USAGE,
               "a field of another size: %s", err_text());
    mds_writer_destroy(writer);
}

int main(void)
{
    const char *folder = tap_folder();
    test_marks(folder);
    test_packed(folder);
    test_no_marks(folder);
    test_bad_marks(folder);
    test_refusals(folder);
    return tap_done();
}
