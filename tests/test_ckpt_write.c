/* The bytes of a checkpoint: pieces that are boxes, where datasets lie, how
 * long files are, many shards, direct transfers; written by hand, shard by
 * shard, so that one process can be any number of ranks. */
#include <fcntl.h>

#include "checkpoint/ckpt.h"
#include "checkpoint/ckpt_cover.h"
#include "checkpoint/ckpt_io.h"
#include "checkpoint/ckpt_read.h"
#include "checkpoint/ckpt_shard.h"
#include "checkpoint/ckpt_view.h"
#include "src/base/log.h"
#include "src/model/params.h"
#include "tests/ckpt_fixture.h"

#define RANKS_MAX 8
#define TENSORS 4
#define PAGE 4096

static void is_ok(enum err rc, const char *what)
{
    if (!tap_ok(rc == ERR_OK, "%s", what))
        tap_note("%s: %s", err_name(rc), err_text());
}

/* --- checkpoints made by hand ----------------------------------------------
 */

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
    int64_t run;
    (void)ckpt_part_runs(part, item->dims, item->shape, &run);
    return ckpt_part_run_begin(part, item->dims, item->shape, at / run) +
           at % run;
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
    memcpy(part->extent, item->shape, sizeof part->extent);
    if (strcmp(how, "mixed") == 0) {
        /* the first half flat, the second in boxes, by columns of its rows */
        part->origin[0] = item->shape[0] / 2;
        part->extent[0] = item->shape[0] / 2;
        d = item->dims - 1;
        rank -= 2;
        ranks -= 2;
    }
    int64_t begin = part->extent[d] * rank / ranks;
    part->extent[d] = part->extent[d] * (rank + 1) / ranks - begin;
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
                          int folder_files, char **record)
{
    enum err rc = ERR_OK;
    char name[CKPT_FILE_BYTES];
    struct ckpt_item items[TENSORS];
    struct ckpt_shard shard = { 0 };
    struct ckpt_hdf5_identity identity = { 1, rank, ranks, "1.1" };
    items_make(items, how, rank, ranks);
    ckpt_shard_name(rank, ranks, folder_files, name);
    TRY(ckpt_shard_write(dir, name, &identity, items, TENSORS, &shard));
    TRY(ckpt_manifest_shard_text(&shard, record));
out:
    ckpt_manifest_free_shard(&shard);
    items_free(items);
    return rc;
}

/* All shards, the view and the manifest, as rank 0 of a save does. */
static enum err write_all(const char *dir, const char *how, int ranks,
                          int folder_files)
{
    enum err rc = ERR_OK;
    char path[FSIO_PATH_MAX];
    char *records[RANKS_MAX] = { NULL };
    char *text = NULL;
    size_t bytes;
    struct ckpt_manifest *manifest = NULL;
    json_t *state = json_object();
    struct ckpt_manifest_head head = { .step = 1,
                                       .ranks = ranks,
                                       .attempt = "1.1",
                                       .state = state,
                                       .items = tensors,
                                       .item_count = TENSORS };
    TRY(fsio_mkdirs(dir));
    TRY(fsio_path(path, "%s/%s", dir, CKPT_MANIFEST_FILE));
    for (int r = 0; r < ranks; r++)
        TRY(write_one(dir, how, r, ranks, folder_files, &records[r]));
    TRY(ckpt_manifest_format(&head, records, ranks, &text, &bytes));
    TRY(ckpt_manifest_parse(text, bytes, dir, &manifest));
    TRY(ckpt_view_write(dir, manifest, &head.view));
    free(text);
    TRY(ckpt_manifest_format(&head, records, ranks, &text, &bytes));
    TRY(fsio_write_atomic(path, text, bytes));
out:
    ckpt_manifest_destroy(manifest);
    json_decref(state);
    free(text);
    for (int r = 0; r < ranks; r++)
        free(records[r]);
    return rc;
}

/* --- reading back ----------------------------------------------------------
 */

struct expected {
    const struct ckpt_item *item;
    const struct ckpt_piece *piece;
    int64_t next; /* element of the piece */
    bool good;
};

static enum err compare(void *arg, const void *data, size_t bytes)
{
    struct expected *e = arg;
    size_t size = dtype_bytes(e->item->dtype);
    for (size_t i = 0; i < bytes / size; i++, e->next++) {
        uint64_t value = fixture_value(
            1, e->piece->tensor, element_of(e->item, &e->piece->part, e->next));
        e->good &= memcmp((const char *)data + i * size, &value, size) == 0;
    }
    return ERR_OK;
}

/* Elements [begin, end) of a piece, counted from its first. */
static bool reads(struct ckpt_read *reader, int shard,
                  const struct ckpt_piece *piece, int64_t begin, int64_t end)
{
    struct expected e = { &tensors[piece->tensor], piece, begin, true };
    int64_t base = piece->part.boxed ? 0 : piece->part.begin;
    return ckpt_read_piece(reader, shard, piece, base + begin, base + end,
                           compare, &e) == ERR_OK &&
           e.good && e.next == end;
}

/* Every piece whole, in order and backwards, and some ranges of it. */
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
        for (int i = 0; i < 2 * m->shards[s].piece_count; i++) {
            int count = m->shards[s].piece_count;
            const struct ckpt_piece *piece =
                &m->shards[s].pieces[i < count ? i : 2 * count - 1 - i];
            int64_t n = ckpt_part_elements(&piece->part, piece->dims);
            wrong += !reads(reader, s, piece, 0, n);
            wrong += !reads(reader, s, piece, n / 3, n / 2);
            wrong += !reads(reader, s, piece, n - 1, n);
            wrong += !reads(reader, s, piece, 0, 1);
            boxes += piece->part.boxed;
        }
    tap_is_int(wrong, 0, "%s: every element is where it belongs (%d boxes)",
               what, boxes / 2);
    is_ok(ckpt_verify(dir), "and every byte verifies");
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

/* --- transfers -------------------------------------------------------------
 */

/* A transfer that O_DIRECT does not allow is made all the same. */
static void test_direct_refused(const char *folder)
{
    char path[FSIO_PATH_MAX];
    char *buffer = ckpt_io_buffer(2 * PAGE);
    struct ckpt_io *io = NULL;
    size_t got;
    fsio_path(path, "%s/io", folder);
    is_ok(fsio_write_atomic(path, "", 0), "an empty file");
    is_ok(ckpt_io_open(path, true, true, &io), "opened for writing");
    tap_note("direct: %d", ckpt_io_is_direct(io));
    memset(buffer, 'x', 2 * PAGE);
    is_ok(ckpt_io_start(io, buffer + 1, 100, 7), "an unaligned write");
    is_ok(ckpt_io_wait(io, &got), "is made");
    tap_is_int((long long)got, 100, "of all bytes");
    tap_ok(!ckpt_io_is_direct(io), "through the page cache");
    is_ok(ckpt_io_wait(io, &got), "waiting again is nothing");
    ckpt_io_close(io);
    is_ok(ckpt_io_open(path, false, true, &io), "opened for reading");
    is_ok(ckpt_io_start(io, buffer, 2 * PAGE, 0), "a read beyond the end");
    is_ok(ckpt_io_wait(io, &got), "is short");
    tap_ok(got == 107 && buffer[6] == '\0' && buffer[7] == 'x',
           "and has what was written");
    ckpt_io_close(io);
    fsio_path(path, "%s/none", folder);
    tap_is_int(ckpt_io_open(path, false, true, &io), ERR_CHECKPOINT,
               "a missing file is damage");
    tap_ok(io == NULL, "and gives nothing");
    is_ok(ckpt_io_open("/dev/full", true, false, &io), "a full device");
    is_ok(ckpt_io_start(io, buffer, PAGE, 0), "a write to it");
    tap_is_int(ckpt_io_wait(io, NULL), ERR_SPACE, "fails when waited for");
    tap_ok(strstr(err_text(), "/dev/full") != NULL, "with the thread's text");
    ckpt_io_close(io);
    free(buffer);
}

/* --- sizes -----------------------------------------------------------------
 */

/* mpt-125m's weights and moments, cut flat; nothing is written but metadata. */
static int model_items(struct ckpt_item **out, const struct params *params,
                       int rank, int ranks)
{
    static const char *const copies[] = { "", "optimizer/exp_avg/",
                                          "optimizer/exp_avg_sq/" };
    int count = 0;
    int64_t begin = params->elements * rank / ranks;
    int64_t end = params->elements * (rank + 1) / ranks;
    *out = calloc((size_t)params->count * 3, sizeof **out);
    for (int c = 0; c < 3; c++)
        for (int i = 0; i < params->count; i++) {
            const struct param *p = &params->list[i];
            struct ckpt_item *item = &(*out)[count++];
            int64_t from = begin > p->offset ? begin - p->offset : 0;
            int64_t to =
                end < p->offset + p->numel ? end - p->offset : p->numel;
            item->dims = p->dims;
            memcpy(item->shape, p->shape, sizeof p->shape);
            snprintf(item->name, sizeof item->name, "%s%s", copies[c], p->name);
            if (from < to) {
                item->part.begin = from;
                item->part.end = to;
            }
        }
    return count;
}

static void check_layout(const char *path, const struct ckpt_shard *shard,
                         const char *what)
{
    struct stat status = { 0 };
    int64_t payload = 0, end = 0;
    int loose = 0, striped = 0, wrong = 0;
    if (stat(path, &status) != 0)
        tap_note("no %s", path);
    for (int i = 0; i < shard->piece_count; i++) {
        const struct ckpt_piece *piece = &shard->pieces[i];
        payload += piece->bytes;
        wrong += piece->offset < end;
        end = piece->offset + piece->bytes;
        loose += piece->bytes >= (256 << 10) && piece->offset % PAGE != 0;
        striped += piece->bytes >= (8 << 20) && piece->offset % (1 << 20) == 0;
        wrong += piece->bytes < (256 << 10) && piece->offset % 2 != 0;
    }
    tap_is_int(wrong, 0, "%s: pieces by ascending offset", what);
    tap_is_int(loose, 0, "%s: large datasets begin at page borders", what);
    tap_ok(striped > 0, "%s: %d of the largest at multiples of 1 MiB", what,
           striped);
    if (!tap_ok(end <= status.st_size &&
                    (double)status.st_size <= 1.02 * (double)payload,
                "%s: no more than 1.02 times the payload", what))
        tap_note("%lld of %lld bytes", (long long)status.st_size,
                 (long long)payload);
}

static void test_bound(const char *folder)
{
    char path[FSIO_PATH_MAX], what[64];
    struct model_config config;
    struct params *params = NULL;
    fsio_path(path, "%s/bound.h5", folder);
    enum err rc = model_config_preset("mpt-125m", &config);
    if (rc == ERR_OK)
        rc = params_create(&config, &params);
    is_ok(rc, "mpt-125m");
    for (int ranks = 1; ranks <= 4 && rc == ERR_OK; ranks++)
        for (int rank = 0; rank < ranks; rank++) {
            struct ckpt_item *items;
            struct ckpt_shard shard = { 0 };
            struct ckpt_hdf5_identity identity = { 1, rank, ranks, "1.1" };
            int64_t crcs;
            int count = model_items(&items, params, rank, ranks);
            snprintf(what, sizeof what, "rank %d of %d", rank, ranks);
            rc = ckpt_hdf5_create(path, &identity, items, count, &shard, &crcs);
            is_ok(rc, what);
            check_layout(path, &shard, what);
            ckpt_manifest_free_shard(&shard);
            free(items);
        }
    params_destroy(params);
}

/* Small tensors only: 1 KiB each and 16 KiB are the limit. */
static void test_small_bound(const char *folder)
{
    enum { COUNT = 700 };
    char path[FSIO_PATH_MAX];
    struct stat status = { 0 };
    struct ckpt_hdf5_identity identity = { 1, 0, 1, "1.1" };
    struct ckpt_item *items = calloc(COUNT, sizeof *items);
    fsio_path(path, "%s/small.h5", folder);
    for (int count = 1; count <= COUNT; count *= 9) {
        struct ckpt_shard shard = { 0 };
        int64_t crcs, payload = 0;
        for (int i = 0; i < count; i++) {
            items[i] = (struct ckpt_item){ .dims = 1, .shape = { 3 + i } };
            items[i].part.end = 3 + i;
            snprintf(items[i].name, sizeof items[i].name,
                     "transformer.blocks.%d.attention.out_proj.bias", i);
            payload += (3 + i) * 4;
        }
        is_ok(ckpt_hdf5_create(path, &identity, items, count, &shard, &crcs),
              "small tensors");
        bool found = stat(path, &status) == 0;
        if (!tap_ok(found && status.st_size <= payload + 16384 + count * 1024,
                    "%d small tensors are packed", count))
            tap_note("%lld bytes more", (long long)(status.st_size - payload));
        ckpt_manifest_free_shard(&shard);
    }
    free(items);
}

/* --- covering --------------------------------------------------------------
 */

/* [4, 6, 5]: three intervals whose boxes are known. */
static void test_boxes_of_intervals(void)
{
    static const int64_t shape[] = { 4, 6, 5 };
    int wrong = 0, most = 0;
    for (int64_t begin = 0; begin <= 120; begin++)
        for (int64_t end = begin; end <= 120; end++) {
            struct ckpt_part part = { .begin = begin, .end = end };
            struct ckpt_part boxes[CKPT_COVER_BOXES_MAX];
            int64_t at = begin;
            int count = ckpt_cover_boxes(&part, 3, shape, boxes);
            for (int i = 0; i < count; i++) {
                ckpt_part_normalise(&boxes[i], 3, shape);
                wrong += boxes[i].boxed || boxes[i].begin != at;
                at = boxes[i].end;
            }
            wrong += at != end;
            most = count > most ? count : most;
        }
    tap_is_int(wrong, 0, "an interval's boxes follow each other");
    tap_is_int(most, 5, "and are at most 2 dims - 1");
}

/* A grid of rows x columns boxes on [rows * 2, columns * 3], of which box
 * `moved` is shifted by one column. */
static enum err grid_covers(int rows, int columns, int moved)
{
    enum err rc = ERR_OK;
    struct ckpt_tensor tensor = { .name = "t", .dims = 2 };
    size_t count = (size_t)(rows * columns);
    struct ckpt_piece *pieces = calloc(count, sizeof *pieces);
    tensor.shape[0] = rows * 2;
    tensor.shape[1] = columns * 3;
    tensor.elements = tensor.shape[0] * tensor.shape[1];
    struct ckpt_shard shard = { .pieces = pieces, .piece_count = (int)count };
    struct ckpt_manifest manifest = { .tensors = &tensor,
                                      .tensor_count = 1,
                                      .shards = &shard,
                                      .shard_count = 1 };
    for (int i = 0; i < rows * columns; i++) {
        struct ckpt_part *part = &pieces[i].part;
        *part = (struct ckpt_part){ .boxed = true };
        part->origin[0] = i / columns * 2;
        part->origin[1] = i % columns * 3 + (i == moved ? 1 : 0);
        part->extent[0] = 2;
        part->extent[1] = 3;
    }
    rc = ckpt_cover_check(&manifest);
    free(pieces);
    return rc;
}

static void test_cover(void)
{
    is_ok(grid_covers(1, 4000, -1), "4000 columns cover");
    is_ok(grid_covers(60, 60, -1), "a grid covers");
    tap_is_int(grid_covers(60, 60, 1234), ERR_CHECKPOINT,
               "a grid with an overlap and a hole does not");
    tap_ok(strstr(err_text(), "twice") != NULL, "and the text says why");
    /* a pinwheel: no plane parts it */
    static const int64_t wheel[5][4] = { { 0, 0, 1, 2 },
                                         { 0, 2, 2, 1 },
                                         { 2, 1, 1, 2 },
                                         { 1, 0, 2, 1 },
                                         { 1, 1, 1, 1 } };
    struct ckpt_tensor tensor = {
        .name = "t", .dims = 2, .shape = { 3, 3 }, .elements = 9
    };
    struct ckpt_piece pieces[5] = { 0 };
    struct ckpt_shard shard = { .pieces = pieces, .piece_count = 5 };
    struct ckpt_manifest manifest = { .tensors = &tensor,
                                      .tensor_count = 1,
                                      .shards = &shard,
                                      .shard_count = 1 };
    for (int i = 0; i < 5; i++) {
        pieces[i].part.boxed = true;
        memcpy(pieces[i].part.origin, wheel[i], 2 * sizeof(int64_t));
        memcpy(pieces[i].part.extent, wheel[i] + 2, 2 * sizeof(int64_t));
    }
    is_ok(ckpt_cover_check(&manifest), "a pinwheel covers");
    shard.piece_count = 4;
    tap_is_int(ckpt_cover_check(&manifest), ERR_CHECKPOINT,
               "not without its middle");
    tap_ok(strstr(err_text(), "1 of 9 elements") != NULL, "one is missing");
    shard.piece_count = 5;
    pieces[4].part.origin[0] = 0;
    tap_is_int(ckpt_cover_check(&manifest), ERR_CHECKPOINT,
               "nor with its middle elsewhere");
    struct ckpt_part half = { .begin = 0, .end = 4 };
    pieces[0].part = half; /* elements 0 to 3; 2 is the second box's */
    tap_is_int(ckpt_cover_check(&manifest), ERR_CHECKPOINT,
               "nor with an interval across");
}

/* --- what else a checkpoint of boxes must be proof against -------------------
 */

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

/* A program `lfs` is asked once; without it nothing happens. */
static void test_stripe_hint(const char *folder)
{
    char path[FSIO_PATH_MAX], script[2 * FSIO_PATH_MAX], asked[FSIO_PATH_MAX];
    char *text = NULL;
    size_t bytes;
    char *old = strdup(getenv("PATH"));
    fsio_path(path, "%s/bin/lfs", folder);
    fsio_path(asked, "%s/asked", folder);
    snprintf(script, sizeof script, "#!/bin/sh\necho \"$*\" >'%s'\n", asked);
    fsio_path(path, "%s/bin", folder);
    fsio_mkdirs(path);
    setenv("PATH", path, 1);
    ckpt_shard_stripe_hint("/some/folder");
    tap_ok(!fsio_exists(asked), "no lfs: nothing is asked");
    fsio_path(path, "%s/bin/lfs", folder);
    fsio_write_atomic(path, script, strlen(script));
    chmod(path, 0755);
    ckpt_shard_stripe_hint("/some/folder");
    setenv("PATH", old, 1);
    free(old);
    is_ok(fsio_read_file(asked, 1000, &text, &bytes), "lfs is asked");
    tap_is_str(text != NULL ? text : "", "setstripe -c 1 /some/folder\n",
               "for one server per file");
    free(text);
}

int main(void)
{
    char folder[FSIO_PATH_MAX];
    log_init("test", 0, LOG_ERROR);
    if (fixture_folder(folder) == NULL) {
        tap_ok(false, "a temporary folder");
        return tap_done();
    }
    test_round_trips(folder);
    test_fan_out(folder);
    test_memory_file_system();
    test_direct_refused(folder);
    test_bound(folder);
    test_small_bound(folder);
    test_boxes_of_intervals();
    test_cover();
    test_edits(folder);
    test_stripe_hint(folder);
    fsio_remove_tree(folder);
    return tap_done();
}
