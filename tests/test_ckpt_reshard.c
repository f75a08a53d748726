/* Copies with another number of shards, checks that name all damage, pins. */

#include <fcntl.h>

#include "checkpoint/files/ckpt_index.h"
#include "checkpoint/tools/ckpt_tools.h"
#include "src/base/log.h"
#include "tests/ckpt_fixture.h"

#define STEP 9

static int shards_of(const char *dir)
{
    struct ckpt_manifest *manifest = NULL;
    int count = -1;
    if (ckpt_manifest_read(dir, NULL, NULL, &manifest) == ERR_OK)
        count = manifest->shard_count;
    ckpt_manifest_destroy(manifest);
    return count;
}

/* The largest shard has at most one element more than the smallest. */
static bool is_balanced(const char *dir)
{
    struct ckpt_manifest *manifest = NULL;
    int64_t least = INT64_MAX, most = 0;
    if (ckpt_manifest_read(dir, NULL, NULL, &manifest) != ERR_OK)
        return false;
    for (int s = 0; s < manifest->shard_count; s++) {
        int64_t bytes = 0;
        for (int p = 0; p < manifest->shards[s].extent_count; p++)
            bytes += manifest->shards[s].extents[p].bytes;
        least = bytes < least ? bytes : least;
        most = bytes > most ? bytes : most;
    }
    ckpt_manifest_destroy(manifest);
    return most - least <= 16;
}

static bool same_state(const char *dir_a, const char *dir_b)
{
    struct ckpt_manifest *a = NULL, *b = NULL;
    bool same = ckpt_manifest_read(dir_a, NULL, NULL, &a) == ERR_OK &&
                ckpt_manifest_read(dir_b, NULL, NULL, &b) == ERR_OK &&
                a->step == b->step && json_equal(a->state, b->state);
    ckpt_manifest_destroy(a);
    ckpt_manifest_destroy(b);
    return same;
}

/* Each from the one before; the last has more ranks than elements. */
static void test_copies(const char *dir, const char *folder)
{
    static const struct {
        int ranks, shards;
    } chain[] = { { 1, 1 },   { 4, 4 },      { 3, 3 }, { 2, 2 },
                  { 50, 50 }, { 3000, 870 }, { 1, 1 } };
    char from[FSIO_PATH_MAX], to[FSIO_PATH_MAX];
    char want[65] = "", got[65] = "?";
    int64_t bytes = 0;
    enum err rc = ckpt_digest(dir, want);
    fsio_path(from, "%s", dir);
    for (size_t i = 0; i < sizeof chain / sizeof chain[0]; i++) {
        fsio_path(to, "%s/copy%zu/", folder, i);
        rc = ckpt_reshard(from, to, chain[i].ranks, &bytes);
        if (!tap_ok(rc == ERR_OK, "a copy for %d ranks", chain[i].ranks))
            tap_note("%s", err_text());
        tap_is_int(shards_of(to), chain[i].shards, "its shards");
        tap_is_int(bytes, 2 * 1600 + 14 + 120 + 8 + 37, "its bytes");
        tap_ok(ckpt_digest(to, got) == ERR_OK, "it can be read");
        tap_is_str(got, want, "the digest is the same");
        tap_ok(same_state(dir, to), "step and state are the same");
        tap_ok(is_balanced(to), "the shards are of one size");
        fsio_path(from, "%s", to);
    }
    fsio_path(to, "%s/step-000000009", folder);
    tap_ok(ckpt_reshard(dir, to, 2, &bytes) == ERR_OK,
           "its own name in another folder is fine");
}

static int entries(const char *dir)
{
    int count = 0;
    DIR *folder = opendir(dir);
    if (folder == NULL)
        return -1;
    while (readdir(folder) != NULL)
        count++;
    closedir(folder);
    return count - 2;
}

static void damage(const char *dir, const char *file, int64_t offset)
{
    char path[FSIO_PATH_MAX];
    char byte = 0;
    fsio_path(path, "%s/%s", dir, file);
    int fd = open(path, O_RDWR);
    if (pread(fd, &byte, 1, offset) != 1)
        tap_note("can't read %s", path);
    byte = (char)~byte;
    if (pwrite(fd, &byte, 1, offset) != 1)
        tap_note("can't damage %s", path);
    close(fd);
}

static void test_refusals(const char *dir, const char *folder)
{
    char out[FSIO_PATH_MAX], to[FSIO_PATH_MAX];
    int64_t bytes;
    fsio_path(out, "%s/out", folder);
    fsio_mkdirs(out);
    tap_is_int(ckpt_reshard(dir, out, 2, &bytes), ERR_USAGE,
               "a folder that exists is refused: %s", err_text());
    fsio_path(to, "%s/step-000000008", out);
    tap_is_int(ckpt_reshard(dir, to, 2, &bytes), ERR_USAGE,
               "the name of another step is refused: %s", err_text());
    fsio_path(to, "%s/MANIFEST.json/x", dir);
    tap_is_int(ckpt_reshard(dir, to, 2, &bytes), ERR_SPACE,
               "a file is no folder: %s", err_text());
    fsio_path(to, "%s/x", out);
    tap_is_int(ckpt_reshard(out, to, 2, &bytes), ERR_CHECKPOINT,
               "no checkpoint: %s", err_text());
    damage(dir, "shard-00000-of-00001.h5", 4200);
    tap_is_int(ckpt_reshard(dir, to, 2, &bytes), ERR_CHECKPOINT,
               "a damaged one: %s", err_text());
    tap_is_int(entries(out), 0, "nothing is left of any");
    damage(dir, "shard-00000-of-00001.h5", 4200);
}

/* --- checks --- */

#define BIG_ELEMENTS (5 * 1024 * 1024)

struct found {
    int count;
    char text[4][512];
};

static enum err note(void *arg, const char *text)
{
    struct found *found = arg;
    if (found->count < 4)
        snprintf(found->text[found->count], 512, "%s", text);
    found->count++;
    return ERR_OK;
}

static enum err check(const char *dir, struct found *found)
{
    enum err rc = ERR_OK;
    struct ckpt_manifest *manifest = NULL;
    struct ckpt_read *reader = NULL;
    found->count = 0;
    TRY_OUT(ckpt_manifest_read(dir, NULL, NULL, &manifest));
    TRY_OUT(ckpt_read_create(dir, manifest, &reader));
    TRY_OUT(ckpt_check_shard(reader, manifest, 0, note, found));
out:
    ckpt_read_destroy(reader);
    ckpt_manifest_destroy(manifest);
    return rc;
}

static void test_checks(struct comm *comm, const char *run)
{
    static const char file[] = "shard-00000-of-00001.h5";
    struct ckpt_item item = { .name = "big",
                              .dims = 1,
                              .shape = { BIG_ELEMENTS } };
    struct ckpt_options options = { .attempt = "1.1", .keep = 1 };
    struct found found;
    char dir[FSIO_PATH_MAX], path[FSIO_PATH_MAX];
    fixture_make(&item, 1, 0, 1);
    enum err rc = ckpt_save(comm, run, 1, NULL, &item, 1, &options, NULL);
    fixture_free(&item, 1);
    ckpt_index_path(dir, run, 1);
    tap_ok(rc == ERR_OK && check(dir, &found) == ERR_OK && found.count == 0,
           "a good shard has no damage");
    damage(dir, file, 5000000);
    damage(dir, file, 15000000);
    tap_ok(check(dir, &found) == ERR_OK, "damage is no error");
    tap_is_int(found.count, 2, "both damaged blocks are found");
    tap_ok(strstr(found.text[0], "tensor big damaged in bytes [") != NULL,
           "and named: %s", found.text[0]);
    damage(dir, file, 1);
    tap_ok(check(dir, &found) == ERR_OK && found.count == 1 &&
               strstr(found.text[0], "outside its payload") != NULL,
           "a bad frame hides the rest: %s", found.text[0]);
    fsio_path(path, "%s/%s", dir, file);
    unlink(path);
    tap_ok(check(dir, &found) == ERR_OK && found.count == 1 &&
               strstr(found.text[0], "missing") != NULL,
           "a missing shard: %s", found.text[0]);
}

static void test_pins(const char *dir)
{
    char path[FSIO_PATH_MAX];
    char *text = NULL;
    size_t bytes = 0;
    tap_ok(!ckpt_index_pinned(dir), "not pinned");
    tap_ok(ckpt_index_unpin(dir) == ERR_OK, "unpinning it is fine");
    tap_ok(ckpt_index_pin(dir, "one") == ERR_OK && ckpt_index_pinned(dir),
           "pinned");
    tap_ok(ckpt_index_pin(dir, "two") == ERR_OK, "pinned again");
    fsio_path(path, "%s/PINNED", dir);
    tap_ok(fsio_read_file(path, 64, &text, &bytes) == ERR_OK, "its reason");
    tap_is_str(text != NULL ? text : "", "two", "is the last");
    free(text);
    tap_ok(fixture_verify(dir) == ERR_OK, "a pin is no damage");
    tap_ok(ckpt_index_unpin(dir) == ERR_OK && !ckpt_index_pinned(dir),
           "unpinned");
    tap_is_int(ckpt_index_pin("/nonexistent", ""), ERR_CHECKPOINT,
               "no checkpoint: %s", err_text());
    tap_ok(!ckpt_index_pinned("/nonexistent"), "nor pinned");
}

int main(void)
{
    char folder[FSIO_PATH_MAX], run[FSIO_PATH_MAX], dir[FSIO_PATH_MAX];
    struct comm *comm = fixture_alone(folder);
    fsio_path(run, "%s/run", folder);
    tap_ok(fixture_save(comm, run, STEP, STEP, 0) == ERR_OK, "a checkpoint");
    ckpt_index_path(dir, run, STEP);
    test_copies(dir, folder);
    test_refusals(dir, folder);
    test_pins(dir);
    fsio_path(run, "%s/checked", folder);
    test_checks(comm, run);
    comm_destroy(comm);
    return tap_done();
}
