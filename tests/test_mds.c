/* MDS shards: the bytes that the writer makes, and readers that survive any
 * bytes. The digests below are of files made by MDSWriter of the Streaming
 * library 0.13.0 from the same samples. */
#include "src/data/mds/mds.h"

#include <fcntl.h>

#include "src/base/digest.h"
#include "src/data/mds/mds_index.h"
#include "tests/data_fixture.h"

static const int64_t lengths[] = { 300, 1, 255, 256, 5, 40, 70000, 2 };
#define SAMPLES ((int64_t)(sizeof lengths / sizeof lengths[0]))

static enum err read_tokens(const struct mds_shard *shard, int64_t index,
                            struct buffer *buffer, struct values *out)
{
    struct mds_sample sample;
    enum err rc = mds_shard_read(shard, index, 0, buffer, &sample);
    *out = sample.value[MDS_TOKENS];
    return rc;
}

static void is_file_digest(const char *path, const char *want)
{
    char hex[65] = "";
    size_t bytes = 0;
    char *data = fixture_read(path, &bytes);
    fixture_need(digest_bytes(data, bytes, hex));
    tap_is_str(hex, want, "bytes of %s", strrchr(path, '/') + 1);
    free(data);
}

static void test_writer(const char *folder)
{
    static const char *const plain[] = {
        "decf5e736a1b0d257297b6a3adf9ec43e3db68a007ad5481bceb15f15223cd93",
        "4518d88bce38f7c1bbc830e8aa206cd3635440cb7e0275e6394b3ad8f7bbb37e",
        "96928f3813253be438f6fbc6e476de5689139bb8cb922c83903695e803d3e6e7",
        "036c7c253a0d04e29596ebbf7e0caf1d3ab7b904ed833b9e7b6c4b46d4d37e5b",
        "fff4ba5f49c7c8de338d6820ef4ac66f0437bc1c43ab570d3ba4a3d6519a035d",
        "28acec29b7f559b9c18cc6016223d7b6f2f8f847eb4658d9c74cdce84338d8ce",
    };
    fixture_dataset(folder, "plain", lengths, SAMPLES, 1400, false);
    for (int i = 0; i < 6; i++) {
        char name[64];
        snprintf(name, sizeof name, "plain/shard.%05d.mds", i);
        is_file_digest(fixture_path(folder, name), plain[i]);
    }
    is_file_digest(
        fixture_path(folder, "plain/index.json"),
        "d010c69cd8c3bab91906bfa3bc9bd1b158e0f59923ecb53eb29ea11bf08a54ec");
    /* Digests of the shards are in this index; the first shard is empty. */
    fixture_dataset(folder, "hashed", lengths, SAMPLES, 1400, true);
    is_file_digest(
        fixture_path(folder, "hashed/index.json"),
        "888b808260172543d25ba5edf9b6a3942f7e762796a57634fc09e4fb3ae596b5");
}

static void test_rotation(const char *folder)
{
    static const int64_t want[] = { 0, 1, 2, 2, 1, 1, 1 };
    struct mds_index *index = NULL;
    fixture_need(mds_index_read(fixture_path(folder, "hashed"), &index));
    tap_is_int(index->shards, 7, "shards by the rotation rule");
    tap_is_int(index->samples, SAMPLES, "samples");
    for (int64_t s = 0; s < index->shards && s < 7; s++)
        tap_is_int(mds_pack_shard(&index->pack, s).samples, want[s],
                   "samples of shard %d", (int)s);
    mds_index_destroy(index);
}

/* A writer that takes over after some shards makes the same index. */
static void test_again(const char *folder)
{
    struct mds_writer *first = NULL, *second = NULL;
    int32_t tokens[100] = { 7 };
    char *one = NULL, *two = NULL;
    size_t one_bytes = 0, two_bytes = 0;
    const char *path = fixture_path(folder, "again");
    fixture_need(fsio_mkdirs(path));
    fixture_need(mds_writer_create_tokens(path, 1400, true, &first));
    for (int i = 0; i < 8; i++)
        fixture_need(mds_writer_add(first, tokens, 100));
    fixture_need(mds_writer_finish(first));
    const char *index = fixture_path(folder, "again/index.json");
    one = fixture_read(index, &one_bytes);
    fixture_need(mds_writer_create_tokens(path, 1400, true, &second));
    for (int64_t s = 0; s < mds_writer_shards(first); s++)
        fixture_need(mds_writer_again(second, mds_writer_shard(first, s)));
    fixture_need(mds_writer_finish(second));
    two = fixture_read(index, &two_bytes);
    tap_ok(mds_writer_shards(second) > 2 && one_bytes == two_bytes &&
               memcmp(one, two, one_bytes) == 0,
           "a writer that goes on makes the same index");
    json_t *entry = mds_writer_shard(first, 1);
    mds_writer_destroy(second);
    fixture_need(mds_writer_create_tokens(path, 1400, true, &second));
    json_object_set_new(json_object_get(entry, "raw_data"), "bytes",
                        json_integer(3));
    tap_is_int(mds_writer_again(second, entry), ERR_DATA,
               "... not behind a file of another size: %s", err_text());
    mds_writer_destroy(second);
    mds_writer_destroy(first);
    free(one);
    free(two);
}

static bool same_tokens(const struct values *values, int64_t sample)
{
    for (int64_t t = 0; t < values->count; t++) {
        int32_t token;
        memcpy(&token, values->data + 4 * t, sizeof token);
        if (token != fixture_token(sample, t))
            return false;
    }
    return true;
}

static void test_reader(const char *folder)
{
    struct mds_index *index = NULL;
    struct buffer buffer = { 0 };
    int64_t sample = 0;
    fixture_need(mds_index_read(fixture_path(folder, "hashed"), &index));
    for (int64_t s = 0; s < index->shards; s++) {
        struct mds_shard *shard = NULL;
        char path[FSIO_PATH_MAX];
        struct cache_shard files;
        const struct mds_shard_info info = mds_pack_shard(&index->pack, s);
        mds_pack_files(&index->pack, s, &files);
        snprintf(path, sizeof path, "%s/hashed/%s", folder, files.raw.name);
        fixture_need(mds_shard_open(path, path, &info, false, 65536, &shard));
        tap_ok(mds_shard_verify(shard, &files.raw, NULL) == ERR_OK,
               "digest of shard %d", (int)s);
        for (int64_t i = 0; i < info.samples; i++, sample++) {
            struct values values;
            enum err rc = read_tokens(shard, i, &buffer, &values);
            tap_ok(rc == ERR_OK && values.count == lengths[sample] &&
                       same_tokens(&values, sample),
                   "sample of %d tokens", (int)lengths[sample]);
        }
        mds_shard_close(shard);
    }
    free(buffer.data);
    mds_index_destroy(index);
}

static void test_writer_failures(const char *folder)
{
    static const int64_t limits[] = { 0, -1, (int64_t)1 << 32, INT64_MAX };
    struct mds_writer *writer = NULL;
    int32_t token = 0;
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++)
        tap_is_int(mds_writer_create_tokens(folder, limits[i], false, &writer),
                   ERR_USAGE, "size limit %lld", (long long)limits[i]);
    fixture_need(mds_writer_create_tokens(folder, UINT32_MAX, false, &writer));
    tap_is_int(mds_writer_add(writer, &token, (int64_t)1 << 30), ERR_USAGE,
               "a sample that no shard can hold");
    mds_writer_destroy(writer);
    tap_ok(!fsio_exists(fixture_path(folder, "index.json")),
           "a writer that does not finish makes no index");
    fixture_need(mds_writer_create_tokens(fixture_path(folder, "missing"), 1000,
                                          false, &writer));
    fixture_need(mds_writer_add(writer, &token, 1));
    tap_ok(mds_writer_finish(writer) != ERR_OK, "no such folder");
    mds_writer_destroy(writer);
}

/* A shard of one sample, whose bytes are given, in the form of its column. */
static const struct form {
    const char *name;
    int columns;
    int64_t column_bytes[3];
    int tokens_column;
    bool typed, shaped;
    const char *sample;
    size_t bytes;
    int64_t count; /* -1: refused */
} forms[] = {
    { "u8 shape", 1, TUPLE(-1), 0, true, false,
      "\012\000\000\000\004\002\001\000\000\000\002\000\000\000", 14, 2 },
    { "u16 shape", 1, TUPLE(-1), 0, true, false,
      "\013\000\000\000\005\002\000\001\000\000\000\002\000\000\000", 15, 2 },
    { "u32 shape", 1, TUPLE(-1), 0, true, false,
      "\015\000\000\000\006\002\000\000\000\001\000\000\000\002\000\000\000",
      17, 2 },
    { "u64 shape", 1, TUPLE(-1), 0, true, false,
      "\021\000\000\000\007\002\000\000\000\000\000\000\000\001\000\000\000\002"
      "\000\000\000",
      21, 2 },
    { "dynamic type", 1, TUPLE(-1), 0, false, false,
      "\013\000\000\000\041\004\002\001\000\000\000\002\000\000\000", 15, 2 },
    { "dynamic type, shape in the index", 1, TUPLE(-1), 0, false, true,
      "\011\000\000\000\041\001\000\000\000\002\000\000\000", 13, 2 },
    { "shape in the index", 1, TUPLE(8), 0, true, true,
      "\001\000\000\000\002\000\000\000", 8, 2 },
    { "a fixed column before", 2, TUPLE(4, -1), 1, true, false,
      "\012\000\000\000\141\142\143\144\004\002\001\000\000\000\002\000\000"
      "\000",
      18, 2 },
    { "variable columns around", 3, TUPLE(-1, -1, -1), 1, true, false,
      "\001\000\000\000\012\000\000\000\002\000\000\000\141\004\002\001\000\000"
      "\000\002\000\000\000\172\172",
      25, 2 },
    { "no bytes", 1, TUPLE(-1), 0, true, false, "", 0, -1 },
    { "size word cut off", 1, TUPLE(-1), 0, true, false, "\001\000", 2, -1 },
    { "size too large", 1, TUPLE(-1), 0, true, false,
      "\013\000\000\000\004\002\001\000\000\000\002\000\000\000", 14, -1 },
    { "size too small", 1, TUPLE(-1), 0, true, false,
      "\011\000\000\000\004\002\001\000\000\000\002\000\000\000", 14, -1 },
    { "sizes that overflow 32 bits", 2, TUPLE(-1, -1), 0, true, false,
      "\377\377\377\377\013\000\000\000\004\002\001\000\000\000\002\000\000"
      "\000",
      18, -1 },
    { "fixed column larger than the sample", 2, TUPLE(400, -1), 1, true, false,
      "\012\000\000\000\141\142\143\144\004\002\001\000\000\000\002\000\000"
      "\000",
      18, -1 },
    { "no shape", 1, TUPLE(-1), 0, true, false, "\000\000\000\000", 4, -1 },
    { "two dimensions", 1, TUPLE(-1), 0, true, false,
      "\013\000\000\000\010\001\002\001\000\000\000\002\000\000\000", 15, 2 },
    { "no dimension", 1, TUPLE(-1), 0, true, false,
      "\011\000\000\000\000\001\000\000\000\002\000\000\000", 13, -1 },
    { "shape cut off", 1, TUPLE(-1), 0, true, false,
      "\003\000\000\000\007\002\000", 7, -1 },
    { "more in the shape than there is", 1, TUPLE(-1), 0, true, false,
      "\012\000\000\000\004\003\001\000\000\000\002\000\000\000", 14, -1 },
    { "less in the shape than there is", 1, TUPLE(-1), 0, true, false,
      "\012\000\000\000\004\001\001\000\000\000\002\000\000\000", 14, -1 },
    { "a shape that overflows", 1, TUPLE(-1), 0, true, false,
      "\021\000\000\000\007\002\000\000\000\000\000\000\200\001\000\000\000\002"
      "\000\000\000",
      21, -1 },
    { "an empty array", 1, TUPLE(-1), 0, true, false,
      "\002\000\000\000\004\000", 6, -1 },
    { "part of a value", 1, TUPLE(-1), 0, true, false,
      "\010\000\000\000\004\001\001\000\000\000\002\000", 12, -1 },
    { "dynamic type int64", 1, TUPLE(-1), 0, false, false,
      "\013\000\000\000\101\004\001\001\000\000\000\002\000\000\000", 15, 1 },
    { "dynamic type missing", 1, TUPLE(-1), 0, false, false, "\000\000\000\000",
      4, -1 },
    { "part of a value, shape in the index", 1, TUPLE(6), 0, true, true,
      "\001\000\000\000\002\000", 6, -1 },
};

static size_t form_shard(const struct form *form, uint8_t *file)
{
    uint32_t head[3] = { 1, 12, (uint32_t)(12 + form->bytes) };
    memcpy(file, head, sizeof head);
    memcpy(file + sizeof head, form->sample, form->bytes);
    return sizeof head + form->bytes;
}

static void test_forms(const char *folder)
{
    const char *path = fixture_path(folder, "form.mds");
    for (size_t f = 0; f < sizeof forms / sizeof forms[0]; f++) {
        const struct form *form = &forms[f];
        uint8_t file[128];
        size_t bytes = form_shard(form, file);
        struct mds_layout_column columns[3] = { 0 };
        struct mds_layout layout = { .columns = form->columns,
                                     .column = columns,
                                     .role = { form->tokens_column, -1, -1 } };
        struct mds_shard_info info = { .bytes = (int64_t)bytes,
                                       .samples = 1,
                                       .layout = &layout };
        for (int c = 0; c < form->columns; c++) {
            columns[c].bytes = form->column_bytes[c];
            layout.head_bytes += columns[c].bytes < 0 ? 4 : 0;
        }
        columns[form->tokens_column].encoding =
            (struct mds_encoding){ .kind = MDS_ARRAY,
                                   .type = form->typed ? 33 : 0,
                                   .count = form->shaped ? 2 : 0 };
        struct mds_shard *shard = NULL;
        struct buffer buffer = { 0 };
        struct values values = { 0 };
        fixture_write_file(path, file, bytes);
        fixture_need(mds_shard_open(path, path, &info, false, 65536, &shard));
        enum err rc = read_tokens(shard, 0, &buffer, &values);
        if (form->count < 0)
            tap_ok(rc == ERR_DATA && strstr(err_text(), path) != NULL,
                   "refused: %s", form->name);
        else
            tap_ok(rc == ERR_OK && values.count == form->count &&
                       memcmp(values.data, "\1\0\0\0\2\0\0\0", 8) == 0,
                   "read: %s", form->name);
        free(buffer.data);
        mds_shard_close(shard);
    }
}

/* Open a shard and read all that it says it has; true if it was refused. */
static bool read_shard(const char *path, const struct mds_shard_info *info)
{
    struct mds_shard *shard = NULL;
    bool refused =
        mds_shard_open(path, path, info, false, 65536, &shard) != ERR_OK;
    uint32_t sum = 0;
    for (int64_t i = 0; shard != NULL && i < info->samples; i++) {
        struct buffer buffer = { 0 };
        struct values values;
        if (read_tokens(shard, i, &buffer, &values) != ERR_OK)
            refused = true;
        else /* touch every byte, for the address sanitizer */
            for (int64_t b = 0; b < 4 * values.count; b++)
                sum += values.data[b];
        free(buffer.data);
    }
    mds_shard_close(shard);
    return refused || sum == UINT32_MAX;
}

static void test_truncation(const char *folder)
{
    static const int64_t few[] = { 3, 1, 5 };
    struct mds_index *index = NULL;
    size_t bytes = 0;
    fixture_dataset(folder, "cut", few, 3, 4096, false);
    fixture_need(mds_index_read(fixture_path(folder, "cut"), &index));
    const struct mds_shard_info first = mds_pack_shard(&index->pack, 0);
    struct mds_shard_info info = first;
    char *file =
        fixture_read(fixture_path(folder, "cut/shard.00000.mds"), &bytes);
    char path[FSIO_PATH_MAX];
    snprintf(path, sizeof path, "%s/cut.mds", folder);
    int refused = 0, refused_new_size = 0;
    for (size_t cut = 0; cut < bytes; cut++) {
        fixture_write_file(path, file, cut);
        refused += read_shard(path, &first);
        info.bytes = (int64_t)cut;
        refused_new_size += read_shard(path, &info);
    }
    tap_is_int(refused, (long long)bytes, "cut short at every byte");
    tap_is_int(refused_new_size, (long long)bytes,
               "... with an index that agrees");
    fixture_write_file(path, file, bytes);
    tap_ok(!read_shard(path, &first), "the whole file is fine");
    mds_index_destroy(index);
    free(file);
}

/* Every bit of count and offsets matters; payload bits may change a token. */
static void test_flips(const char *folder)
{
    struct mds_index *index = NULL;
    size_t bytes = 0;
    fixture_need(mds_index_read(fixture_path(folder, "cut"), &index));
    const struct mds_shard_info first = mds_pack_shard(&index->pack, 0);
    char *file =
        fixture_read(fixture_path(folder, "cut/shard.00000.mds"), &bytes);
    char path[FSIO_PATH_MAX];
    snprintf(path, sizeof path, "%s/flip.mds", folder);
    size_t head = 4 + 4 * 4;
    int refused = 0;
    fixture_write_file(path, file, bytes);
    int fd = open(path, O_WRONLY);
    for (size_t bit = 0; bit < 8 * bytes; bit++) {
        int64_t at = (int64_t)bit / 8;
        char flipped = (char)(file[at] ^ (1 << bit % 8));
        fixture_need(fsio_pwrite(fd, &flipped, 1, at, path));
        bool bad = read_shard(path, &first);
        refused += bit < 8 * head && bad;
        fixture_need(fsio_pwrite(fd, &file[at], 1, at, path));
    }
    /* without a look at any sample */
    static const uint8_t wrong[][4] = { { 255, 255, 255, 127 }, { 1 } };
    for (int w = 0; w < 2; w++) {
        struct mds_shard *shard = NULL;
        fixture_need(fsio_pwrite(fd, wrong[w], 4, 12, path));
        tap_ok(mds_shard_open(path, path, &first, false, 65536, &shard) ==
                       ERR_DATA &&
                   strstr(err_text(), "sample 1 is damaged") != NULL,
               "an offset in the middle that is wrong: %s", err_text());
        fixture_need(fsio_pwrite(fd, file + 12, 4, 12, path));
    }
    close(fd);
    /* The first offset may point into the JSON text: then the sample's sizes
     * do not add up. So every flip is seen. */
    tap_is_int(refused, (long long)(8 * head),
               "every flipped bit of count and offsets is refused");
    mds_index_destroy(index);
    free(file);
}

int main(void)
{
    const char *folder = tap_folder();
    test_writer(folder);
    test_rotation(folder);
    test_again(folder);
    test_reader(folder);
    test_writer_failures(folder);
    test_forms(folder);
    test_truncation(folder);
    test_flips(folder);
    return tap_done();
}
