/* Whatever is damaged in a checkpoint is noticed, set aside, and never loaded;
 * the one before it is. */
#include <fcntl.h>

#include "checkpoint/ckpt.h"
#include "checkpoint/files/ckpt_index.h"
#include "checkpoint/files/ckpt_manifest.h"
#include "checkpoint/tools/ckpt_tools.h"
#include "tests/ckpt_fixture.h"

#define SHARD "shard-00000-of-00001.h5"

/* --- ways to damage the newest of steps 1 and 2 --- */

static void file_path(const char *run, int64_t step, const char *file,
                      char path[FSIO_PATH_MAX])
{
    char dir[FSIO_PATH_MAX];
    ckpt_index_path(dir, run, step);
    fsio_path(path, "%s/%s", dir, file);
}

/* The file of step 1 under the name of step 2. */
static void take_old(const char *run, const char *file)
{
    char from[FSIO_PATH_MAX], to[FSIO_PATH_MAX];
    char *data = NULL;
    size_t bytes;
    file_path(run, 1, file, from);
    file_path(run, 2, file, to);
    if (fsio_read_file(from, 1 << 20, &data, &bytes) == ERR_OK)
        fsio_write_atomic(to, data, bytes);
    free(data);
}

enum harm { GONE, CUT, LONGER, EMPTY, FLIP, OLD, RENAMED, NO_FOLDER };

static const struct damage {
    const char *what;
    enum harm harm;
    const char *file;
    int64_t at; /* of FLIP, from the end if below 0 */
} damages[] = {
    { "a missing shard", GONE, SHARD, 0 },
    { "a truncated shard", CUT, SHARD, 0 },
    { "a shard with a byte more", LONGER, SHARD, 0 },
    { "a flipped bit near the shard's end", FLIP, SHARD, -1000 },
    { "a flipped bit in the shard's first byte", FLIP, SHARD, 0 },
    { "the shard of another step", OLD, SHARD, 0 },
    { "a flipped bit in the manifest", FLIP, CKPT_MANIFEST_FILE, -300 },
    { "a missing manifest", GONE, CKPT_MANIFEST_FILE, 0 },
    { "an empty manifest", EMPTY, CKPT_MANIFEST_FILE, 0 },
    { "another step under this name", RENAMED, "", 0 },
    { "a file in place of the folder", NO_FOLDER, "", 0 },
};
static const struct damage short_shard = { "", CUT, SHARD, 0 };
static const struct damage shard_byte = { "", FLIP, SHARD, -1000 };
static const struct damage losses[] = { { "missing", GONE, CKPT_VIEW_FILE, 0 },
                                        { "truncated", CUT, CKPT_VIEW_FILE,
                                          0 } };

static void harm(const char *run, const struct damage *damage)
{
    char path[FSIO_PATH_MAX];
    struct stat status = { 0 };
    file_path(run, 2, damage->file, path);
    stat(path, &status);
    switch (damage->harm) {
    case GONE:
        unlink(path);
        break;
    case CUT:
    case LONGER:
    case EMPTY:
        if (truncate(path, damage->harm == EMPTY ? 0
                           : damage->harm == CUT ? status.st_size - 1
                                                 : status.st_size + 1) != 0)
            tap_note("can't truncate %s", path);
        break;
    case FLIP:
        fixture_flip(path, damage->at);
        break;
    case RENAMED:
        take_old(run, SHARD);
        take_old(run, CKPT_MANIFEST_FILE);
        break;
    case OLD:
        take_old(run, damage->file);
        break;
    case NO_FOLDER:
        ckpt_index_path(path, run, 2);
        fsio_remove_tree(path);
        fsio_write_atomic(path, "x", 1);
        break;
    }
}

static void test_fall_back(struct comm *comm, const char *folder)
{
    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
        char run[FSIO_PATH_MAX], path[FSIO_PATH_MAX];
        int64_t step = -2, values = -2;
        fsio_path(run, "%s/damage%zu", folder, i);
        enum err rc = fixture_save(comm, run, 1, 1, 0);
        if (rc == ERR_OK)
            rc = fixture_save(comm, run, 2, 2, 0);
        harm(run, &damages[i]);
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
    for (size_t i = 0; i < sizeof losses / sizeof losses[0]; i++) {
        char run[FSIO_PATH_MAX], path[FSIO_PATH_MAX];
        int64_t step = -2, values = -2;
        fsio_path(run, "%s/view%zu", folder, i);
        enum err rc = fixture_save(comm, run, 2, 2, 0);
        harm(run, &losses[i]);
        ckpt_index_path(path, run, 2);
        tap_ok(rc == ERR_OK && fixture_verify(path) == ERR_CHECKPOINT &&
                   strstr(err_text(), CKPT_VIEW_FILE) != NULL,
               "a %s view does not verify", losses[i].what);
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
    harm(run, &short_shard);
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
    harm(run, &shard_byte);
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
    { "\"version\": 2", "\"version\": 3", ERR_UNSUPPORTED },
    { "\"version\": 2", "\"version\": 0", ERR_CHECKPOINT },
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
    { "\"crc32c_offset\":", "\"crc32c_offset\":9", ERR_CHECKPOINT },
    { "\"crc32c_offset\":", "\"crc32c_offset\":-", ERR_CHECKPOINT },
    { "\"crc32c_offset\":", "\"block_crc32c\":[1],\"x\":", ERR_CHECKPOINT },
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

/* --- where block CRCs stand --- */

/* Gives the manifest of step 2 the CRCs themselves, as version 1 had them; or an
 * offset that is another by `add`. */
static bool edit_crcs(const char *run, bool old, int64_t add)
{
    char dir[FSIO_PATH_MAX], path[FSIO_PATH_MAX], find[64], put[1024];
    char list[512] = "", *text = NULL, *edited = NULL, *again = NULL;
    uint32_t sums[32];
    size_t bytes = 0;
    struct ckpt_manifest *manifest = NULL;
    ckpt_index_path(dir, run, 2);
    file_path(run, 2, SHARD, path);
    if (ckpt_manifest_read(dir, &text, &bytes, &manifest) != ERR_OK)
        return false;
    const struct ckpt_shard *shard = &manifest->shards[0];
    int fd = open(path, O_RDONLY);
    ssize_t length = (ssize_t)(4 * shard->block_count);
    bool good = length <= (ssize_t)sizeof sums && shard->blocks == NULL &&
                pread(fd, sums, (size_t)length, shard->crc_offset) == length;
    close(fd);
    for (int64_t i = 0; good && i < shard->block_count; i++)
        sprintf(list + strlen(list), "%s%" PRIu32, i == 0 ? "" : ",", sums[i]);
    snprintf(find, sizeof find, "\"crc32c_offset\":%" PRId64,
             shard->crc_offset);
    if (old)
        snprintf(put, sizeof put, "\"block_crc32c\":[%s]", list);
    else
        snprintf(put, sizeof put, "\"crc32c_offset\":%" PRId64,
                 shard->crc_offset + add);
    edited = fixture_edit(text, bytes, find, put, &bytes);
    if (edited != NULL)
        again = fixture_edit(edited, bytes, "\"version\": 2",
                             old ? "\"version\": 1" : "\"version\": 2", &bytes);
    file_path(run, 2, CKPT_MANIFEST_FILE, path);
    good = good && again != NULL &&
           fsio_write_atomic(path, again, bytes) == ERR_OK;
    ckpt_manifest_destroy(manifest);
    free(text);
    free(edited);
    free(again);
    return good;
}

/* What earlier versions wrote is read, checked, and written anew. */
static void test_old(struct comm *comm, const char *run)
{
    char dir[FSIO_PATH_MAX], copy[FSIO_PATH_MAX];
    int64_t step = -2, values = -2, bytes;
    is_ok(fixture_save(comm, run, 2, 2, 0), "saved");
    tap_ok(edit_crcs(run, true, 0), "with its CRCs in the manifest");
    ckpt_index_path(dir, run, 2);
    fsio_path(copy, "%s/copy", run);
    is_ok(fixture_verify(dir), "an old manifest verifies");
    tap_ok(fixture_load(comm, run, &step, &values) == ERR_OK && step == 2 &&
               values == 2,
           "and is loaded");
    tap_ok(ckpt_reshard(dir, copy, 2, &bytes) == ERR_OK &&
               fixture_verify(copy) == ERR_OK,
           "and has a copy");
    test_every_byte(dir, SHARD);
}

/* CRCs that the manifest says are elsewhere. */
static void test_elsewhere(struct comm *comm, const char *run)
{
    char dir[FSIO_PATH_MAX];
    int64_t step = -2, values = -2;
    fixture_save(comm, run, 1, 1, 0);
    fixture_save(comm, run, 2, 2, 0);
    ckpt_index_path(dir, run, 2);
    tap_ok(edit_crcs(run, false, -4), "an offset that is wrong by a CRC");
    tap_ok(fixture_verify(dir) == ERR_CHECKPOINT &&
               strstr(err_text(), SHARD ": tensor ") != NULL,
           "is named by file and tensor: %s", err_text());
    tap_ok(fixture_load(comm, run, &step, &values) == ERR_OK && step == 1 &&
               values == 1,
           "and the step before is loaded");
}

int main(void)
{
    char folder[FSIO_PATH_MAX], run[6][FSIO_PATH_MAX];
    struct comm *comm = fixture_alone(folder);
    for (int i = 0; i < 6; i++)
        if (fsio_path(run[i], "%s/run%d", folder, i) != ERR_OK)
            return 1;
    test_lost_view(comm, folder);
    test_fall_back(comm, folder);
    test_replace_damaged(comm, run[0]);
    test_no_fresh_start(comm, run[1]);
    test_exhaustive(comm, run[2]);
    test_edits(comm, run[3]);
    test_old(comm, run[4]);
    test_elsewhere(comm, run[5]);
    comm_destroy(comm);
    return tap_done();
}
