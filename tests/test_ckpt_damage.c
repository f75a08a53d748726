/* Whatever is damaged in a checkpoint is noticed, set aside, and never loaded;
 * the one before it is. */
#include <fcntl.h>

#include "checkpoint/ckpt.h"
#include "checkpoint/files/ckpt_index.h"
#include "checkpoint/files/ckpt_manifest.h"
#include "src/base/log.h"
#include "tests/ckpt_fixture.h"

#define SHARD "shard-00000-of-00001.h5"

/* --- ways to damage the newest of steps 1 and 2 --- */

/* Flip one bit of a file, `from_end` bytes before its end. */
static void flip(const char *path, off_t from_end)
{
    char byte;
    int fd = open(path, O_RDWR);
    off_t at = lseek(fd, 0, SEEK_END) - from_end;
    if (pread(fd, &byte, 1, at) == 1) {
        byte = (char)(byte ^ 4);
        if (pwrite(fd, &byte, 1, at) != 1)
            tap_note("can't write %s", path);
    }
    close(fd);
}

static void shard_path(const char *run, int64_t step, char path[FSIO_PATH_MAX])
{
    char dir[FSIO_PATH_MAX];
    ckpt_index_path(dir, run, step);
    fsio_path(path, "%s/%s", dir, SHARD);
}

static void manifest_path(const char *run, char path[FSIO_PATH_MAX])
{
    char dir[FSIO_PATH_MAX];
    ckpt_index_path(dir, run, 2);
    fsio_path(path, "%s/%s", dir, CKPT_MANIFEST_FILE);
}

static void copy_file(const char *from, const char *to)
{
    char *data = NULL;
    size_t bytes;
    if (fsio_read_file(from, 1 << 20, &data, &bytes) == ERR_OK)
        fsio_write_atomic(to, data, bytes);
    free(data);
}

static void resize_shard(const char *run, off_t change)
{
    char path[FSIO_PATH_MAX];
    struct stat status;
    shard_path(run, 2, path);
    if (stat(path, &status) == 0 && truncate(path, status.st_size + change))
        tap_note("can't truncate %s", path);
}

static void damage_missing_shard(const char *run)
{
    char path[FSIO_PATH_MAX];
    shard_path(run, 2, path);
    unlink(path);
}

static void damage_short_shard(const char *run)
{
    resize_shard(run, -1);
}

static void damage_long_shard(const char *run)
{
    resize_shard(run, 1);
}

static void damage_shard_byte(const char *run)
{
    char path[FSIO_PATH_MAX];
    shard_path(run, 2, path);
    flip(path, 1000);
}

static void damage_first_byte(const char *run)
{
    char path[FSIO_PATH_MAX];
    struct stat status;
    shard_path(run, 2, path);
    if (stat(path, &status) == 0)
        flip(path, status.st_size);
}

static void damage_swapped_shard(const char *run)
{
    char old[FSIO_PATH_MAX], path[FSIO_PATH_MAX];
    shard_path(run, 1, old);
    shard_path(run, 2, path);
    copy_file(old, path);
}

static void view_path(const char *run, char path[FSIO_PATH_MAX])
{
    char dir[FSIO_PATH_MAX];
    ckpt_index_path(dir, run, 2);
    fsio_path(path, "%s/%s", dir, CKPT_VIEW_FILE);
}

static void damage_missing_view(const char *run)
{
    char path[FSIO_PATH_MAX];
    view_path(run, path);
    unlink(path);
}

static void damage_short_view(const char *run)
{
    char path[FSIO_PATH_MAX];
    view_path(run, path);
    if (truncate(path, 100) != 0)
        tap_note("can't truncate %s", path);
}

static void damage_manifest_byte(const char *run)
{
    char path[FSIO_PATH_MAX];
    manifest_path(run, path);
    flip(path, 300);
}

static void damage_missing_manifest(const char *run)
{
    char path[FSIO_PATH_MAX];
    manifest_path(run, path);
    unlink(path);
}

static void damage_empty_manifest(const char *run)
{
    char path[FSIO_PATH_MAX];
    manifest_path(run, path);
    if (truncate(path, 0) != 0)
        tap_note("can't truncate %s", path);
}

/* The whole folder of step 1 under the name of step 2. */
static void damage_renamed_folder(const char *run)
{
    char from[FSIO_PATH_MAX], to[FSIO_PATH_MAX];
    shard_path(run, 1, from);
    shard_path(run, 2, to);
    copy_file(from, to);
    ckpt_index_path(from, run, 1);
    fsio_path(to, "%s/%s", from, CKPT_MANIFEST_FILE);
    manifest_path(run, from);
    copy_file(to, from);
}

static void damage_file_for_folder(const char *run)
{
    char path[FSIO_PATH_MAX];
    ckpt_index_path(path, run, 2);
    fsio_remove_tree(path);
    fsio_write_atomic(path, "x", 1);
}

static const struct {
    const char *what;
    void (*damage)(const char *run);
} damages[] = {
    { "a missing shard", damage_missing_shard },
    { "a truncated shard", damage_short_shard },
    { "a shard with a byte more", damage_long_shard },
    { "a flipped bit near the shard's end", damage_shard_byte },
    { "a flipped bit in the shard's first byte", damage_first_byte },
    { "the shard of another step", damage_swapped_shard },
    { "a flipped bit in the manifest", damage_manifest_byte },
    { "a missing manifest", damage_missing_manifest },
    { "an empty manifest", damage_empty_manifest },
    { "another step under this name", damage_renamed_folder },
    { "a file in place of the folder", damage_file_for_folder },
};

static void test_fall_back(struct comm *comm, const char *folder)
{
    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
        char run[FSIO_PATH_MAX], path[FSIO_PATH_MAX];
        int64_t step = -2, values = -2;
        fsio_path(run, "%s/damage%zu", folder, i);
        enum err rc = fixture_save(comm, run, 1, 1, 0);
        if (rc == ERR_OK)
            rc = fixture_save(comm, run, 2, 2, 0);
        damages[i].damage(run);
        ckpt_index_path(path, run, 2);
        tap_ok(rc == ERR_OK && fixture_verify(path) == ERR_CHECKPOINT,
               "%s does not verify", damages[i].what);
        rc = fixture_load(comm, run, &step, &values);
        tap_ok(rc == ERR_OK && step == 1 && values == 1,
               "%s: the step before is loaded", damages[i].what);
        tap_is_int(fixture_count(run, ".bad-step-000000002.0"), 1,
                   "it is set aside");
        rc = fixture_save(comm, run, 2, 3, 0);
        tap_ok(rc == ERR_OK &&
                   fixture_load(comm, run, &step, &values) == ERR_OK &&
                   step == 2 && values == 3,
               "and can be written again");
    }
}

/* checkpoint.h5 is for other programs: what is wrong with it is said, and costs
 * no step. */
static void test_lost_view(struct comm *comm, const char *folder)
{
    static void (*const losses[])(const char *) = { damage_missing_view,
                                                    damage_short_view };
    for (size_t i = 0; i < sizeof losses / sizeof losses[0]; i++) {
        char run[FSIO_PATH_MAX], path[FSIO_PATH_MAX];
        int64_t step = -2, values = -2;
        fsio_path(run, "%s/view%zu", folder, i);
        enum err rc = fixture_save(comm, run, 2, 2, 0);
        losses[i](run);
        ckpt_index_path(path, run, 2);
        tap_ok(rc == ERR_OK && fixture_verify(path) == ERR_CHECKPOINT &&
                   strstr(err_text(), CKPT_VIEW_FILE) != NULL,
               "a %s view does not verify", i == 0 ? "missing" : "truncated");
        tap_ok(fixture_load(comm, run, &step, &values) == ERR_OK && step == 2 &&
                   values == 2,
               "and its step is loaded");
    }
}

/* A damaged step-N that nobody loaded yet is quarantined by its replacement. */
static void test_replace_damaged(struct comm *comm, const char *run)
{
    int64_t step = -2, values = -2;
    fixture_save(comm, run, 2, 2, 1);
    damage_short_shard(run);
    tap_ok(fixture_save(comm, run, 2, 3, 1) == ERR_OK &&
               fixture_load(comm, run, &step, &values) == ERR_OK && values == 3,
           "a damaged checkpoint is replaced by a save");
    tap_is_int(fixture_count(run, ".bad-step-000000002.0"), 1,
               "and set aside, not deleted");
}

static void test_no_fresh_start(struct comm *comm, const char *run)
{
    int64_t step = -2, values = -2;
    fixture_save(comm, run, 2, 2, 0);
    damage_shard_byte(run);
    for (int i = 0; i < 2; i++) {
        tap_is_int(fixture_load(comm, run, &step, &values), ERR_CHECKPOINT,
                   "nothing good left is an error, time %d", i + 1);
        tap_is_int(step, -1, "no step is given");
    }
    tap_ok(strstr(err_text(), ".bad-step") != NULL, "the text says where");
}

/* --- every byte --- */

/* Flip one bit of every byte in turn; count the flips that verify misses. */
static void test_every_byte(const char *dir, const char *file)
{
    char path[FSIO_PATH_MAX];
    char *data = NULL;
    size_t bytes = 0, missed = 0;
    fsio_path(path, "%s/%s", dir, file);
    int fd = open(path, O_RDWR);
    if (fd < 0 || fsio_read_file(path, 1 << 20, &data, &bytes) != ERR_OK) {
        tap_ok(false, "%s can be read", path);
        return;
    }
    for (size_t i = 0; i < bytes; i++) {
        char changed = (char)(data[i] ^ (1 << (i % 8)));
        bool wrote = pwrite(fd, &changed, 1, (off_t)i) == 1;
        bool noticed = fixture_verify(dir) != ERR_OK;
        wrote &= pwrite(fd, &data[i], 1, (off_t)i) == 1;
        if (!noticed || !wrote) {
            missed++;
            tap_note("byte %zu of %s", i, file);
        }
    }
    tap_is_int((long long)missed, 0, "a flip of any of %zu bytes of %s is seen",
               bytes, file);
    close(fd);
    free(data);
}

static void test_exhaustive(struct comm *comm, const char *run)
{
    float values[3] = { 1, 2, 3 };
    char dir[FSIO_PATH_MAX];
    struct ckpt_item items[2] = { { .name = "g/w",
                                    .dims = 1,
                                    .shape = { 3 },
                                    .part.end = 3,
                                    .data = values },
                                  { .name = "b",
                                    .dims = 1,
                                    .shape = { 2 },
                                    .part.end = 2,
                                    .data = values } };
    struct ckpt_options options = { .attempt = "1.1", .keep = 1 };
    enum err rc = ckpt_save(comm, run, 1, NULL, items, 2, &options, NULL);
    ckpt_index_path(dir, run, 1);
    tap_ok(rc == ERR_OK && fixture_verify(dir) == ERR_OK, "a tiny checkpoint");
    test_every_byte(dir, SHARD);
    test_every_byte(dir, CKPT_VIEW_FILE);
    test_every_byte(dir, CKPT_MANIFEST_FILE);
    tap_ok(fixture_verify(dir) == ERR_OK, "it is good again");
}

/* --- manifests with a good CRC and wrong contents --- */

static const struct {
    const char *find, *put;
    enum err want;
} edits[] = {
    { "\"step\": 1", "\"step\": 1", ERR_OK },
    { "tessera-checkpoint", "tessera-somethings", ERR_CHECKPOINT },
    { "\"version\": 1", "\"version\": 2", ERR_UNSUPPORTED },
    { "\"step\": 1", "\"step\": -1", ERR_CHECKPOINT },
    { "\"ranks\": 1", "\"ranks\": 0", ERR_CHECKPOINT },
    { "\"state\": {", "\"estat\": {", ERR_CHECKPOINT },
    { "\"file\":\"shard", "\"file\":\"../sh", ERR_CHECKPOINT },
    { "\"file\":\"shard", "\"file\":\"s/ard", ERR_CHECKPOINT },
    { "\"dtype\":\"bf16\"", "\"dtype\":\"f16\"", ERR_CHECKPOINT },
    { "\"shape\":[50,8]", "\"shape\":[50,-8]", ERR_CHECKPOINT },
    { "\"shape\":[50,8]", "\"shape\":[51,8]", ERR_CHECKPOINT },
    { "\"shape\":[50,8]", "\"shape\":[50,7]", ERR_CHECKPOINT },
    { "\"shape\":[50,8]", "\"shape\":[4611686018427387904,4]", ERR_CHECKPOINT },
    { "\"shape\":[50,8]", "\"shape\":[1,1,1,50,8]", ERR_CHECKPOINT },
    { "[[0,0,400,", "[[9,0,400,", ERR_CHECKPOINT },
    { "[[0,0,400,", "[[1,0,400,", ERR_CHECKPOINT },
    { "[[0,0,400,", "[[0,1,400,", ERR_CHECKPOINT },
    { "[[0,0,400,", "[[0,400,400,", ERR_CHECKPOINT },
    { "[[0,0,400,", "[[0,0,400,9", ERR_CHECKPOINT },
    { "\"block_crc32c\":[", "\"block_crc32c\":[1,", ERR_CHECKPOINT },
    { "\"block_crc32c\":[", "\"block_crc32c\":[-", ERR_CHECKPOINT },
    { "\"file\":\"shard-", "\"file\":\"shards/0/shard-", ERR_CHECKPOINT },
    { "\"file\":\"shard-", "\"file\":\"shards/000/x-", ERR_CHECKPOINT },
    { "\"file\":\"shard-", "\"file\":\"shards/../shard-", ERR_CHECKPOINT },
    { "\"file\":\"shard-", "\"file\":\"shards/000/shard-", ERR_OK },
    { "\"view\": {", "\"view\": null, \"old\": {", ERR_OK },
    { "\"view\": {", "\"old\": {", ERR_CHECKPOINT },
    { "\"file\":\"checkpoint", "\"file\":\"chekpoint", ERR_CHECKPOINT },
    { "\"shards\": [", "\"shards\": {", ERR_CHECKPOINT },
    { "\"tensors\": [", "\"step\": 5, \"tensors\": [", ERR_CHECKPOINT },
};

static void test_edits(struct comm *comm, const char *run)
{
    char dir[FSIO_PATH_MAX];
    char *text = NULL;
    size_t bytes;
    struct ckpt_manifest *manifest = NULL;
    fixture_save(comm, run, 1, 1, 0);
    ckpt_index_path(dir, run, 1);
    if (ckpt_manifest_read(dir, &text, &bytes, &manifest) != ERR_OK) {
        tap_ok(false, "manifest: %s", err_text());
        return;
    }
    ckpt_manifest_destroy(manifest);
    for (size_t i = 0; i < sizeof edits / sizeof edits[0]; i++) {
        size_t length;
        char *edited =
            fixture_edit(text, bytes, edits[i].find, edits[i].put, &length);
        if (edited == NULL) {
            tap_ok(false, "'%s' is in the manifest", edits[i].find);
            continue;
        }
        enum err rc = ckpt_manifest_parse(edited, length, "m", &manifest);
        if (!tap_is_int(rc, edits[i].want, "%s -> %s", edits[i].find,
                        edits[i].put) &&
            rc != ERR_OK)
            tap_note("%s", err_text());
        ckpt_manifest_destroy(manifest);
        free(edited);
    }
    free(text);
}

int main(void)
{
    char folder[FSIO_PATH_MAX], run[4][FSIO_PATH_MAX];
    struct comm *comm = fixture_alone(folder);
    for (int i = 0; i < 4; i++)
        if (fsio_path(run[i], "%s/run%d", folder, i) != ERR_OK)
            return 1;
    test_lost_view(comm, folder);
    test_fall_back(comm, folder);
    test_replace_damaged(comm, run[0]);
    test_no_fresh_start(comm, run[1]);
    test_exhaustive(comm, run[2]);
    test_edits(comm, run[3]);
    comm_destroy(comm);
    return tap_done();
}
