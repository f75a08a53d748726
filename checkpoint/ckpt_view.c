/* The file is made in memory and written when it is closed: its metadata is
 * thousands of small writes. */
#include "checkpoint/ckpt_view.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint/ckpt_cover.h"
#include "checkpoint/ckpt_hdf5_private.h"
#include "src/base/crc32c.h"
#include "src/base/fsio.h"

#define FORMAT_VERSION 1
#define GROW_BYTES ((size_t)64 << 10)
/* Of metadata, reserved at once. */
#define META_BYTES 512 /* per tensor */
#define META_BYTES_MIN 2048
#define META_BYTES_MAX 65536
#define READ_BYTES ((size_t)1 << 20)

/* A piece and the shard that holds it. */
struct placed {
    const struct ckpt_piece *piece;
    const char *file;
};

static int placed_order(const void *a, const void *b)
{
    const struct ckpt_piece *x = ((const struct placed *)a)->piece;
    const struct ckpt_piece *y = ((const struct placed *)b)->piece;
    return (x->tensor > y->tensor) - (x->tensor < y->tensor);
}

static enum err sort_pieces(const struct ckpt_manifest *m, struct placed **out)
{
    size_t count = 0;
    for (int s = 0; s < m->shard_count; s++)
        count += (size_t)m->shards[s].piece_count;
    *out = malloc((count + 1) * sizeof **out);
    if (*out == NULL)
        return err_set(ERR_MEMORY, "%s: out of memory", CKPT_VIEW_FILE);
    count = 0;
    for (int s = 0; s < m->shard_count; s++)
        for (int p = 0; p < m->shards[s].piece_count; p++)
            (*out)[count++] =
                (struct placed){ &m->shards[s].pieces[p], m->shards[s].file };
    qsort(*out, count, sizeof **out, placed_order);
    (*out)[count].piece = NULL;
    return ERR_OK;
}

/* A tensor being described: `space` is its own, of dims and shape. */
struct target {
    const char *name;
    int dims;
    int64_t shape[CKPT_DIMS_MAX];
    hid_t space;
    hid_t layout;
};

static enum err select_box(const char *path, hid_t space, int dims,
                           const int64_t *origin, const int64_t *extent)
{
    enum err rc = ERR_OK;
    hsize_t start[CKPT_DIMS_MAX], block[CKPT_DIMS_MAX], one[CKPT_DIMS_MAX];
    for (int d = 0; d < dims; d++) {
        start[d] = (hsize_t)origin[d];
        block[d] = (hsize_t)extent[d];
        one[d] = 1;
    }
    HDF5_TRY(
        H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, one, block));
out:
    return rc;
}

static enum err map_piece(const char *path, const struct target *target,
                          const struct placed *placed)
{
    enum err rc = ERR_OK;
    const struct ckpt_part *part = &placed->piece->part;
    struct ckpt_part boxes[CKPT_COVER_BOXES_MAX];
    int64_t shape[CKPT_DIMS_MAX];
    hsize_t sizes[CKPT_DIMS_MAX];
    hid_t source = H5I_INVALID_HID;
    int64_t done = 0;
    int dims = ckpt_hdf5_shape(part, target->dims, target->shape, shape);
    int count = ckpt_cover_boxes(part, target->dims, target->shape, boxes);
    for (int d = 0; d < dims; d++)
        sizes[d] = (hsize_t)shape[d];
    HDF5_TRY(source = H5Screate_simple(dims, sizes, NULL));
    for (int i = 0; i < count; i++) {
        int64_t elements = ckpt_part_elements(&boxes[i], target->dims);
        TRY(select_box(path, target->space, target->dims, boxes[i].origin,
                       boxes[i].extent));
        if (count > 1) /* the source is 1-D then */
            TRY(select_box(path, source, 1, &done, &elements));
        HDF5_TRY(H5Pset_virtual(target->layout, target->space, placed->file,
                                target->name, source));
        done += elements;
    }
out:
    if (source >= 0)
        H5Sclose(source);
    return rc;
}

/* The dataset of one tensor, from its pieces; *next is moved behind them. */
static enum err put_tensor(hid_t file, const char *path, hid_t links,
                           const struct ckpt_manifest *m, int number,
                           const struct placed **next)
{
    enum err rc = ERR_OK;
    const struct ckpt_tensor *tensor = &m->tensors[number];
    struct target target = { .name = tensor->name,
                             .dims = tensor->dims > 0 ? tensor->dims : 1,
                             .shape = { 1 },
                             .space = H5I_INVALID_HID,
                             .layout = H5I_INVALID_HID };
    hsize_t sizes[CKPT_DIMS_MAX];
    hid_t set = H5I_INVALID_HID;
    hid_t type = ckpt_hdf5_type(tensor->dtype);
    HDF5_TRY(type);
    if (tensor->dims > 0)
        memcpy(target.shape, tensor->shape, sizeof target.shape);
    for (int d = 0; d < target.dims; d++)
        sizes[d] = (hsize_t)target.shape[d];
    HDF5_TRY(target.space = H5Screate_simple(target.dims, sizes, NULL));
    HDF5_TRY(target.layout = H5Pcreate(H5P_DATASET_CREATE));
    HDF5_TRY(H5Pset_obj_track_times(target.layout, false));
    for (; (*next)->piece != NULL && (*next)->piece->tensor == number;
         (*next)++)
        TRY(map_piece(path, &target, *next));
    HDF5_TRY(H5Sselect_all(target.space));
    HDF5_TRY(set = H5Dcreate2(file, tensor->name, type, target.space, links,
                              target.layout, H5P_DEFAULT));
out:
    if (rc != ERR_OK)
        err_prefix(rc, "tensor %s", tensor->name);
    if (set >= 0)
        H5Dclose(set);
    if (target.layout >= 0)
        H5Pclose(target.layout);
    if (target.space >= 0)
        H5Sclose(target.space);
    if (type >= 0)
        H5Tclose(type);
    return rc;
}

static enum err put_tensors(hid_t file, const char *path,
                            const struct ckpt_manifest *m)
{
    enum err rc = ERR_OK;
    struct placed *pieces = NULL;
    hid_t links = H5I_INVALID_HID;
    TRY(sort_pieces(m, &pieces));
    HDF5_TRY(links = H5Pcreate(H5P_LINK_CREATE));
    HDF5_TRY(H5Pset_create_intermediate_group(links, 1));
    const struct placed *next = pieces;
    for (int t = 0; t < m->tensor_count; t++)
        TRY(put_tensor(file, path, links, m, t, &next));
out:
    if (links >= 0)
        H5Pclose(links);
    free(pieces);
    return rc;
}

static enum err create_in_memory(const char *path, int tensors, hid_t *out)
{
    enum err rc = ERR_OK;
    hid_t access = H5I_INVALID_HID;
    int64_t meta = META_BYTES_MIN + (int64_t)tensors * META_BYTES;
    if (meta > META_BYTES_MAX)
        meta = META_BYTES_MAX;
    HDF5_TRY(H5Eset_auto2(H5E_DEFAULT, NULL, NULL));
    HDF5_TRY(access = H5Pcreate(H5P_FILE_ACCESS));
    HDF5_TRY(
        H5Pset_libver_bounds(access, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST));
    HDF5_TRY(H5Pset_fapl_core(access, GROW_BYTES, true));
    HDF5_TRY(H5Pset_file_locking(access, false, true));
    HDF5_TRY(H5Pset_meta_block_size(access, (hsize_t)meta));
    HDF5_TRY(*out = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access));
out:
    if (access >= 0)
        H5Pclose(access);
    return rc;
}

/* Size and CRC of the open file, read to its end. */
static enum err file_crc(int fd, const char *path, struct ckpt_view *view)
{
    enum err rc = ERR_OK;
    char *buffer = malloc(READ_BYTES);
    if (buffer == NULL)
        return err_set(ERR_MEMORY, "%s: out of memory", path);
    *view = (struct ckpt_view){ 0 };
    for (;;) {
        ssize_t n = read(fd, buffer, READ_BYTES);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            rc = err_errno("%s: read", path);
        if (n <= 0)
            break;
        view->crc = crc32c(view->crc, buffer, (size_t)n);
        view->bytes += n;
    }
    free(buffer);
    return rc;
}

/* What HDF5 has written becomes durable, and gets its final name. */
static enum err publish(const char *part, const char *path,
                        struct ckpt_view *view)
{
    enum err rc = ERR_OK;
    int fd = open(part, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        rc = err_errno("%s: open", part);
        goto out;
    }
    TRY(file_crc(fd, part, view));
    if (fsync(fd) != 0) {
        rc = err_errno("%s: fsync", part);
        goto out;
    }
    if (rename(part, path) != 0) {
        rc = err_errno("%s: rename", part);
        goto out;
    }
out:
    if (fd >= 0)
        close(fd);
    return rc;
}

static enum err make_view(const char *path,
                          const struct ckpt_manifest *manifest)
{
    enum err rc = ERR_OK;
    hid_t file = H5I_INVALID_HID;
    TRY(create_in_memory(path, manifest->tensor_count, &file));
    TRY(ckpt_hdf5_put_integer(file, path, "format_version", FORMAT_VERSION));
    TRY(put_tensors(file, path, manifest));
    hid_t closing = file;
    file = H5I_INVALID_HID;
    HDF5_TRY(H5Fclose(closing));
out:
    if (file >= 0)
        H5Fclose(file);
    return rc;
}

enum err ckpt_view_write(const char *checkpoint_dir,
                         const struct ckpt_manifest *manifest,
                         struct ckpt_view_cache *cache, struct ckpt_view *view)
{
    enum err rc = ERR_OK;
    char final[FSIO_PATH_MAX], path[FSIO_PATH_MAX];
    char *image = NULL;
    size_t bytes;
    TRY(fsio_path(final, "%s/%s", checkpoint_dir, CKPT_VIEW_FILE));
    TRY(fsio_path(path, "%s.part", final));
    if (cache != NULL && cache->image != NULL) {
        *view = cache->view;
        TRY(fsio_write_atomic(final, cache->image, (size_t)view->bytes));
        goto out;
    }
    TRY(make_view(path, manifest));
    TRY(publish(path, final, view));
    if (cache != NULL) {
        TRY(fsio_read_file(final, (size_t)view->bytes, &image, &bytes));
        if (bytes != (size_t)view->bytes ||
            crc32c(0, image, bytes) != view->crc) {
            rc = err_set(ERR_IO, "%s: other bytes were read than written",
                         final);
            goto out;
        }
        *cache = (struct ckpt_view_cache){ image, *view };
        image = NULL;
    }
out:
    free(image);
    return rc;
}

enum err ckpt_view_check(const char *checkpoint_dir,
                         const struct ckpt_manifest *manifest)
{
    enum err rc = ERR_OK;
    char path[FSIO_PATH_MAX];
    int fd = -1;
    struct ckpt_view found;
    if (manifest->view.bytes == 0)
        goto out;
    TRY(fsio_path(path, "%s/%s", checkpoint_dir, CKPT_VIEW_FILE));
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        rc = errno == ENOENT
                 ? err_set(ERR_CHECKPOINT, "%s: file is missing", path)
                 : err_errno("%s: open", path);
        goto out;
    }
    TRY(file_crc(fd, path, &found));
    if (found.bytes != manifest->view.bytes || found.crc != manifest->view.crc)
        rc = err_set(ERR_CHECKPOINT,
                     "%s: damaged (%" PRId64 " bytes, CRC32C %08" PRIx32
                     ", must be %" PRId64 ", %08" PRIx32 ")",
                     path, found.bytes, found.crc, manifest->view.bytes,
                     manifest->view.crc);
out:
    if (fd >= 0)
        close(fd);
    return rc;
}
