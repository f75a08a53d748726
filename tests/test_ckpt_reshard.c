/* Copies with another number of shards, and checks that name all damage. */

#include "checkpoint/files/ckpt_index.h"
#include "checkpoint/tools/ckpt_tools.h"
#include "tests/ckpt_fixture.h"

#define STEP 9

/* So many shards, of which the largest has at most one element more than the
 * smallest, of the same step and state. */
static bool is_copy(const char *dir, const char *from_dir, int shards)
{
    struct ckpt_manifest *m = NULL, *from = NULL;
    int64_t least = INT64_MAX, most = 0;
    bool good = ckpt_manifest_read(dir, NULL, NULL, &m) == ERR_OK &&
                ckpt_manifest_read(from_dir, NULL, NULL, &from) == ERR_OK &&
                m->step == from->step && json_equal(m->state, from->state) &&
                m->shard_count == shards;
    for (int s = 0; good && s < m->shard_count; s++) {
        int64_t bytes = 0;
        for (int p = 0; p < m->shards[s].extent_count; p++)
            bytes += m->shards[s].extents[p].bytes;
        least = bytes < least ? bytes : least;
        most = bytes > most ? bytes : most;
    }
    ckpt_manifest_destroy(m);
    ckpt_manifest_destroy(from);
    return good && most - least <= 16;
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
        tap_ok(is_copy(to, dir, chain[i].shards),
               "%d shards of one size, the step and the state",
               chain[i].shards);
        tap_is_int(bytes, 2 * 1600 + 14 + 120 + 8 + 37, "its bytes");
        tap_ok(ckpt_digest(to, got) == ERR_OK, "it can be read");
        tap_is_str(got, want, "the digest is the same");
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
    fixture_flip_in(dir, "shard-00000-of-00001.h5", 4200);
    tap_is_int(ckpt_reshard(dir, to, 2, &bytes), ERR_CHECKPOINT,
               "a damaged one: %s", err_text());
    tap_is_int(entries(out), 0, "nothing is left of any");
    fixture_flip_in(dir, "shard-00000-of-00001.h5", 4200);
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
    TRY_OUT(ckpt_read_all(reader, 0, note, found));
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
    fixture_flip_in(dir, file, 5000000);
    fixture_flip_in(dir, file, 15000000);
    tap_ok(check(dir, &found) == ERR_OK, "damage is no error");
    tap_is_int(found.count, 2, "both damaged blocks are found");
    tap_ok(strstr(found.text[0], "tensor big damaged in bytes [") != NULL,
           "and named: %s", found.text[0]);
    fixture_flip_in(dir, file, 1);
    tap_ok(check(dir, &found) == ERR_OK && found.count == 1 &&
               strstr(found.text[0], "outside its payload") != NULL,
           "a bad frame hides the rest: %s", found.text[0]);
    fsio_path(path, "%s/%s", dir, file);
    unlink(path);
    tap_ok(check(dir, &found) == ERR_OK && found.count == 1 &&
               strstr(found.text[0], "missing") != NULL,
           "a missing shard: %s", found.text[0]);
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
    fsio_path(run, "%s/checked", folder);
    test_checks(comm, run);
    comm_destroy(comm);
    return tap_done();
}
