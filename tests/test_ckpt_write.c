/* Checkpoints of intervals and boxes, in folders and on other file systems;
 * written by hand, shard by shard, so that one process can be any number of
 * ranks. */
#include "checkpoint/ckpt.h"
#include "checkpoint/files/ckpt_read.h"
#include "checkpoint/files/ckpt_shard.h"
#include "checkpoint/files/ckpt_view.h"
#include "src/base/log.h"
#include "tests/ckpt_fixture.h"

#define RANKS_MAX 8
#define TENSORS 4
#define PAGE 4096

/* --- checkpoints made by hand --- */

static const struct ckpt_item tensors[TENSORS] = {
    { .name = "grid", .dims = 2, .shape = { 12, 10 } },
    { .name = "cube", .dtype = DTYPE_BF16, .dims = 3, .shape = { 4, 6, 5 } },
    { .name = "line", .dtype = DTYPE_F64, .dims = 1, .shape = { 37 } },
    { .name = "large", .dims = 2, .shape = { 3000, 1000 } },
};

/* The element of the flattened tensor that is number `at` of the part. */
static int64_t element_of(const struct ckpt_item *item,
                          const struct ckpt_part *part, int64_t at)
{
    struct ckpt_part_runs runs = ckpt_part_runs(part, item->dims, item->shape);
    return ckpt_part_run_begin(&runs, at / runs.elements) + at % runs.elements;
}

static void fill(struct ckpt_item *item, int tensor)
{
    size_t size = dtype_bytes(item->dtype);
    int64_t elements = ckpt_part_elements(&item->part, item->dims);
    item->data =
        aligned_alloc(PAGE, ((size_t)elements * size + PAGE) / PAGE * PAGE);
    for (int64_t e = 0; e < elements; e++) {
        uint64_t value =
            fixture_value(1, tensor, element_of(item, &item->part, e));
        memcpy((char *)item->data + (size_t)e * size, &value, size);
    }
}

/* The part of rank `rank` of `ranks`: interval, rows, columns or blocks. */
static void cut(struct ckpt_item *item, const char *how, int rank, int ranks)
{
    int64_t elements = fixture_elements(item);
    struct ckpt_part *part = &item->part;
    int d = strcmp(how, "columns") == 0 ? item->dims - 1 : 0;
    *part = (struct ckpt_part){ .begin = elements * rank / ranks,
                                .end = elements * (rank + 1) / ranks };
    if (strcmp(how, "flat") == 0 || (strcmp(how, "mixed") == 0 && rank < 2))
        return;
    *part = (struct ckpt_part){ .boxed = true };
    memcpy(part->sides, item->shape, sizeof part->sides);
    if (strcmp(how, "mixed") == 0) {
        /* the first half flat, the second in boxes, by columns of its rows */
        part->origin[0] = item->shape[0] / 2;
        part->sides[0] = item->shape[0] / 2;
        d = item->dims - 1;
        rank -= 2;
        ranks -= 2;
    }
    int64_t begin = part->sides[d] * rank / ranks;
    part->sides[d] = part->sides[d] * (rank + 1) / ranks - begin;
    part->origin[d] += begin;
}

/* "mixed" flat parts are halves of the first half. */
static void items_make(struct ckpt_item items[TENSORS], const char *how,
                       int rank, int ranks)
{
    memcpy(items, tensors, sizeof tensors);
    for (int t = 0; t < TENSORS; t++) {
        bool mixed = strcmp(how, "mixed") == 0;
        cut(&items[t], items[t].dims == 1 ? "flat" : how, rank, ranks);
        if (mixed && items[t].dims > 1 && rank < 2) {
            int64_t half = fixture_elements(&items[t]) / 2;
            items[t].part.begin = half * rank / 2;
            items[t].part.end = half * (rank + 1) / 2;
        }
        fill(&items[t], t);
    }
}

static void items_free(struct ckpt_item items[TENSORS])
{
    for (int t = 0; t < TENSORS; t++)
        free(items[t].data);
}

static enum err write_one(const char *dir, const char *how, int rank, int ranks,
                          int folder_files, struct ckpt_shard *shard)
{
    char name[CKPT_FILE_BYTES];
    struct ckpt_item items[TENSORS];
    struct ckpt_hdf5_identity identity = { 1, rank, ranks, "1.1" };
    items_make(items, how, rank, ranks);
    ckpt_shard_name(rank, ranks, folder_files, name);
    enum err rc = ckpt_shard_write(dir, name, &identity, items, TENSORS, NULL,
                                   NULL, shard);
    items_free(items);
    return rc;
}

/* All shards, the view and the manifest, as rank 0 of a save does. */
static enum err write_all(const char *dir, const char *how, int ranks,
                          int folder_files)
{
    enum err rc = ERR_OK;
    struct ckpt_shard shards[RANKS_MAX] = { 0 };
    json_t *state = json_object();
    struct ckpt_manifest_head head = { .step = 1,
                                       .ranks = ranks,
                                       .attempt = "1.1",
                                       .state = state,
                                       .items = tensors,
                                       .item_count = TENSORS };
    TRY_OUT(fsio_mkdirs(dir));
    for (int r = 0; r < ranks; r++)
        TRY_OUT(write_one(dir, how, r, ranks, folder_files, &shards[r]));
    TRY_OUT(ckpt_view_seal(dir, &head, shards, ranks));
out:
    json_decref(state);
    for (int r = 0; r < ranks; r++)
        ckpt_manifest_free_shard(&shards[r]);
    return rc;
}

/* --- reading back --- */

struct expected {
    const struct ckpt_item *item;
    const struct ckpt_extent *extent;
    int64_t next; /* element of the extent */
    bool good;
};

static enum err compare(void *arg, const void *data, size_t bytes)
{
    struct expected *e = arg;
    size_t size = dtype_bytes(e->item->dtype);
    for (size_t i = 0; i < bytes / size; i++, e->next++) {
        uint64_t value =
            fixture_value(1, e->extent->tensor,
                          element_of(e->item, &e->extent->part, e->next));
        e->good &= memcmp((const char *)data + i * size, &value, size) == 0;
    }
    return ERR_OK;
}

/* Elements [begin, end) of an extent, counted from its first. */
static bool reads(struct ckpt_read *reader, int shard,
                  const struct ckpt_extent *extent, int64_t begin, int64_t end)
{
    struct expected e = { &tensors[extent->tensor], extent, begin, true };
    return ckpt_read_extent(reader, shard, extent, begin, end, compare, &e) ==
               ERR_OK &&
           e.good && e.next == end;
}

/* Every extent whole, in order and backwards, and some ranges of it. */
static void check_contents(const char *dir, const char *what)
{
    struct ckpt_manifest *m = NULL;
    struct ckpt_read *reader = NULL;
    int wrong = 0, boxes = 0;
    enum err rc = ckpt_manifest_read(dir, NULL, NULL, &m);
    if (rc == ERR_OK)
        rc = ckpt_read_create(dir, m, &reader);
    if (rc != ERR_OK) {
        is_ok(rc, what);
        return;
    }
    for (int s = 0; s < m->shard_count; s++)
        for (int i = 0; i < 2 * m->shards[s].extent_count; i++) {
            int count = m->shards[s].extent_count;
            const struct ckpt_extent *extent =
                &m->shards[s].extents[i < count ? i : 2 * count - 1 - i];
            int64_t n = ckpt_part_elements(&extent->part, extent->dims);
            wrong += !reads(reader, s, extent, 0, n);
            wrong += !reads(reader, s, extent, n / 3, n / 2);
            wrong += !reads(reader, s, extent, n - 1, n);
            wrong += !reads(reader, s, extent, 0, 1);
            boxes += extent->part.boxed;
        }
    tap_is_int(wrong, 0, "%s: every element is where it belongs (%d boxes)",
               what, boxes / 2);
    is_ok(fixture_verify(dir), "and every byte verifies");
    ckpt_read_destroy(reader);
    ckpt_manifest_destroy(m);
}

static void test_round_trips(const char *folder)
{
    static const struct {
        const char *how;
        int ranks;
    } cases[] = { { "flat", 1 },    { "flat", 3 },    { "rows", 3 },
                  { "columns", 2 }, { "columns", 5 }, { "mixed", 6 } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char dir[FSIO_PATH_MAX], what[64];
        snprintf(what, sizeof what, "%s of %d ranks", cases[i].how,
                 cases[i].ranks);
        fsio_path(dir, "%s/trip%zu", folder, i);
        is_ok(write_all(dir, cases[i].how, cases[i].ranks, 1024), what);
        check_contents(dir, what);
    }
}

static void test_fan_out(const char *folder)
{
    char dir[FSIO_PATH_MAX], path[FSIO_PATH_MAX], name[CKPT_FILE_BYTES];
    fsio_path(dir, "%s/fan", folder);
    is_ok(write_all(dir, "flat", 5, 2), "five shards, two to a folder");
    fsio_path(path, "%s/shards/002/shard-00004-of-00005.h5", dir);
    tap_ok(fsio_exists(path), "the fifth lies in the third folder");
    check_contents(dir, "folders");
    ckpt_shard_name(1024, 1025, CKPT_SHARD_FOLDER_FILES, name);
    tap_is_str(name, "shards/001/shard-01024-of-01025.h5", "1025 shards");
    ckpt_shard_name(1023, 1024, CKPT_SHARD_FOLDER_FILES, name);
    tap_is_str(name, "shard-01023-of-01024.h5", "1024 shards");
}

/* Memory file systems take direct transfers or not, depending on the kernel. */
static void test_memory_file_system(void)
{
    char dir[] = "/dev/shm/tessera-ckpt.XXXXXX";
    if (mkdtemp(dir) == NULL) {
        tap_skip("no /dev/shm");
        return;
    }
    is_ok(write_all(dir, "columns", 3, 1024), "on a file system in memory");
    check_contents(dir, "in memory");
    fsio_remove_tree(dir);
}

/* --- what else a checkpoint of boxes must be proof against --- */

static const struct {
    const char *find, *put;
} edits[] = {
    { "[0,[0,0],[12,5],", "[0,[0,0],[12,6]," }, /* twice */
    { "[0,[0,0],[12,5],", "[0,[0,0],[12,4]," }, /* a hole */
    { "[0,[0,0],[12,5],", "[0,[0,1],[12,5]," }, /* both */
    { "[0,[0,5],[12,5],", "[0,[0,6],[12,5]," }, /* outside */
    { "[0,[0,5],[12,5],", "[0,[0,-1],[12,5]," },
    { "[0,[0,0],[12,5],", "[0,[0,0,0],[12,5]," },
    { "[0,[0,0],[12,5],", "[0,[0,0],[12]," },
    { "[0,[0,0],[12,5],", "[0,[0,0],5," },
    { "[0,[0,0],[12,5],", "[0,[0,0],[12,10]," }, /* an interval in disguise */
    { "[0,[0,0],[12,5],", "[0,[0,0],[1,5]," },
    { "[0,[0,0],[12,5],", "[0,[0,0],[12,5],0," },
    { "\"checkpoint.h5\"", "\"../kpoint.h5\"" },
    { "\"view\": {", "\"view\": [" },
};

static void test_edits(const char *folder)
{
    char dir[FSIO_PATH_MAX], path[FSIO_PATH_MAX];
    char *text = NULL;
    size_t bytes = 0;
    struct ckpt_manifest *manifest = NULL;
    fsio_path(dir, "%s/edits", folder);
    fsio_path(path, "%s/%s", dir, CKPT_MANIFEST_FILE);
    is_ok(write_all(dir, "columns", 2, 1024), "two ranks, columns");
    is_ok(fsio_read_file(path, 1 << 20, &text, &bytes), "its manifest");
    for (size_t i = 0; i < sizeof edits / sizeof edits[0]; i++) {
        size_t length;
        char *edited =
            fixture_edit(text, bytes, edits[i].find, edits[i].put, &length);
        if (edited == NULL) {
            tap_ok(false, "'%s' is in the manifest", edits[i].find);
            continue;
        }
        tap_is_int(ckpt_manifest_parse(edited, length, "m", &manifest),
                   ERR_CHECKPOINT, "%s -> %s", edits[i].find, edits[i].put);
        tap_note("%s", err_text());
        free(edited);
    }
    free(text);
}

int main(void)
{
    const char *folder = tap_folder();
    log_init("test", 0, LOG_ERROR);
    test_round_trips(folder);
    test_fan_out(folder);
    test_memory_file_system();
    test_edits(folder);
    return tap_done();
}
