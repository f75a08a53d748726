/* Where datasets lie and how long shards are, direct transfers, and whether
 * extents cover a tensor. */
#include "checkpoint/ckpt.h"
#include "checkpoint/files/ckpt_manifest.h"
#include "checkpoint/files/ckpt_io.h"
#include "checkpoint/files/ckpt_shard.h"
#include "src/base/log.h"
#include "src/model/params.h"
#include "tests/ckpt_fixture.h"

#define PAGE 4096

/* --- transfers --- */

/* A transfer that O_DIRECT does not allow is made all the same. */
static void test_direct_refused(const char *folder)
{
    char path[FSIO_PATH_MAX];
    char *buffer = NULL;
    is_ok(ckpt_io_buffer(&buffer, 2 * PAGE), "memory");
    struct ckpt_io *io = NULL;
    size_t got;
    fsio_path(path, "%s/io", folder);
    is_ok(fsio_write_atomic(path, "", 0), "an empty file");
    is_ok(ckpt_io_open(path, true, true, &io), "opened for writing");
    memset(buffer, 'x', 2 * PAGE);
    is_ok(ckpt_io_start(io, buffer + 1, 100, 7), "an unaligned write");
    is_ok(ckpt_io_wait(io, &got), "is made");
    tap_is_int((long long)got, 100, "of all bytes");
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
    tap_is_int(ckpt_io_wait(io, NULL), ERR_FULL, "fails when waited for");
    tap_ok(strstr(err_text(), "/dev/full") != NULL, "with the thread's text");
    ckpt_io_close(io);
    free(buffer);
}

/* --- sizes --- */

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
    for (int i = 0; i < shard->extent_count; i++) {
        const struct ckpt_extent *extent = &shard->extents[i];
        payload += extent->bytes;
        wrong += extent->offset < end;
        end = extent->offset + extent->bytes;
        loose += extent->bytes >= (256 << 10) && extent->offset % PAGE != 0;
        striped +=
            extent->bytes >= (8 << 20) && extent->offset % (1 << 20) == 0;
        wrong += extent->bytes < (256 << 10) && extent->offset % 2 != 0;
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

static enum err create(const char *path,
                       const struct ckpt_hdf5_identity *identity,
                       const struct ckpt_item *items, int item_count,
                       struct ckpt_shard *shard)
{
    struct ckpt_segment *segments = NULL, **sorted = NULL;
    int count = 0, fd = open(path, O_RDWR | O_CREAT, 0666);
    enum err rc = ckpt_segments_create(items, item_count, identity->rank,
                                       &segments, &count);
    if (rc == ERR_OK)
        rc = ckpt_segments_sort(segments, count, &sorted);
    if (rc == ERR_OK)
        rc = ckpt_hdf5_create(fd, path, identity, items, sorted, count, shard);
    close(fd);
    free(sorted);
    free(segments);
    return rc;
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
            int count = model_items(&items, params, rank, ranks);
            snprintf(what, sizeof what, "rank %d of %d", rank, ranks);
            rc = create(path, &identity, items, count, &shard);
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
        int64_t payload = 0;
        for (int i = 0; i < count; i++) {
            items[i] = (struct ckpt_item){ .dims = 1, .shape = { 3 + i } };
            items[i].part.end = 3 + i;
            snprintf(items[i].name, sizeof items[i].name,
                     "transformer.blocks.%d.attention.out_proj.bias", i);
            payload += (3 + i) * 4;
        }
        is_ok(create(path, &identity, items, count, &shard), "small tensors");
        bool found = stat(path, &status) == 0;
        if (!tap_ok(found && status.st_size <= payload + 16384 + count * 1024,
                    "%d small tensors are packed", count))
            tap_note("%lld bytes more", (long long)(status.st_size - payload));
        ckpt_manifest_free_shard(&shard);
    }
    free(items);
}

/* --- covering --- */

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
    struct ckpt_extent *extents = calloc(count, sizeof *extents);
    tensor.shape[0] = rows * 2;
    tensor.shape[1] = columns * 3;
    tensor.elements = tensor.shape[0] * tensor.shape[1];
    struct ckpt_shard shard = { .extents = extents,
                                .extent_count = (int)count };
    struct ckpt_manifest manifest = { .tensors = &tensor,
                                      .tensor_count = 1,
                                      .shards = &shard,
                                      .shard_count = 1 };
    for (int i = 0; i < rows * columns; i++) {
        struct ckpt_part *part = &extents[i].part;
        *part = (struct ckpt_part){ .boxed = true };
        part->origin[0] = i / columns * 2;
        part->origin[1] = i % columns * 3 + (i == moved ? 1 : 0);
        part->sides[0] = 2;
        part->sides[1] = 3;
    }
    rc = ckpt_cover_check(&manifest);
    free(extents);
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
    struct ckpt_extent extents[5] = { 0 };
    struct ckpt_shard shard = { .extents = extents, .extent_count = 5 };
    struct ckpt_manifest manifest = { .tensors = &tensor,
                                      .tensor_count = 1,
                                      .shards = &shard,
                                      .shard_count = 1 };
    for (int i = 0; i < 5; i++) {
        extents[i].part.boxed = true;
        memcpy(extents[i].part.origin, wheel[i], 2 * sizeof(int64_t));
        memcpy(extents[i].part.sides, wheel[i] + 2, 2 * sizeof(int64_t));
    }
    is_ok(ckpt_cover_check(&manifest), "a pinwheel covers");
    shard.extent_count = 4;
    tap_is_int(ckpt_cover_check(&manifest), ERR_CHECKPOINT,
               "not without its middle");
    tap_ok(strstr(err_text(), "1 of 9 elements") != NULL, "one is missing");
    shard.extent_count = 5;
    extents[4].part.origin[0] = 0;
    tap_is_int(ckpt_cover_check(&manifest), ERR_CHECKPOINT,
               "nor with its middle elsewhere");
    struct ckpt_part half = { .begin = 0, .end = 4 };
    extents[0].part = half; /* elements 0 to 3; 2 is the second box's */
    tap_is_int(ckpt_cover_check(&manifest), ERR_CHECKPOINT,
               "nor with an interval across");
}

/* A program `lfs` is asked; where there is none it is not looked for again. */
static void test_stripe_hint(const char *folder)
{
    char path[FSIO_PATH_MAX], script[2 * FSIO_PATH_MAX], asked[FSIO_PATH_MAX];
    char away[FSIO_PATH_MAX];
    char *text = NULL, want[2 * FSIO_PATH_MAX];
    size_t bytes;
    char *old = strdup(getenv("PATH"));
    fsio_path(path, "%s/bin/lfs", folder);
    fsio_path(asked, "%s/asked", folder);
    fsio_path(away, "%s/away", folder);
    snprintf(script, sizeof script, "#!/bin/sh\necho \"$*\" >'%s'\n", asked);
    fsio_path(path, "%s/bin", folder);
    fsio_mkdirs(path);
    setenv("PATH", path, 1);
    fsio_path(path, "%s/bin/lfs", folder);
    fsio_write_atomic(path, script, strlen(script));
    chmod(path, 0755);
    is_ok(ckpt_shard_folder(folder, "test", 0, 1), "there is room");
    is_ok(fsio_read_file(asked, 1000, &text, &bytes), "lfs is asked");
    snprintf(want, sizeof want, "setstripe -c 1 %s\n", folder);
    tap_is_str(text != NULL ? text : "", want, "for one server per file");
    rename(path, away);
    unlink(asked);
    is_ok(ckpt_shard_folder(folder, "test", 0, 1), "there is room");
    rename(away, path);
    is_ok(ckpt_shard_folder(folder, "test", 0, 1), "there is room");
    tap_ok(!fsio_exists(asked), "where there was none it is not looked for");
    setenv("PATH", old, 1);
    free(old);
    free(text);
}

int main(void)
{
    const char *folder = tap_folder();
    log_init("test", 0, LOG_ERROR);
    test_direct_refused(folder);
    test_bound(folder);
    test_small_bound(folder);
    test_boxes_of_intervals();
    test_cover();
    test_stripe_hint(folder);
    return tap_done();
}
