/* Makes the frame of a shard with the HDF5 library: datasets that have their
 * places in the file but not yet their values. ckpt_shard.c writes the values,
 * ckpt_read.c reads them, both without the library.
 *
 * The library gives no crash consistency, is not thread-safe, and its checksums
 * cost more than twice the time (checkpoint/DESIGN.md). But a dataset that is
 * contiguous, allocated early and never filled is nothing but room, and H5Dget_offset
 * tells where; so the library is asked for the room, closes its file, and the rest is
 * plain writes, which h5py cannot tell from its own. */
#include "checkpoint/files/ckpt_hdf5.h"

#include <assert.h>
#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/files/ckpt_hdf5_fd.h"
#include "src/base/new.h"

#define FORMAT_VERSION 1
#define DTYPE_NAME_BYTES 8
/* From this size on, datasets lie at page borders. */
#define PAGED_BYTES ((int64_t)256 << 10)
#define PAGE_BYTES 4096
/* From this size on they lie where stripes of file systems begin, if a shard
 * has STRIPED_TOTAL_BYTES of those that lose no more than 1 in
 * STRIPED_WASTE. */
#define STRIPED_BYTES ((int64_t)8 << 20)
#define STRIPE_BYTES ((int64_t)1 << 20)
#define STRIPED_TOTAL_BYTES ((int64_t)128 << 20)
#define STRIPED_WASTE 128
/* Metadata is reserved in stretches of so much per dataset, within limits, so
 * that it does not lie scattered between the small datasets. */
#define META_BYTES 320
#define META_BYTES_MIN 2048
#define META_BYTES_MAX 65536

/* Run an HDF5 call; negative is failure. Wants `rc`, `path` and `out:`, which
 * closes each handle. */
#define HDF5_TRY(call)                                                         \
    do {                                                                       \
        if ((call) < 0) {                                                      \
            rc = hdf5_failed(path, #call);                                     \
            goto out;                                                          \
        }                                                                      \
    } while (0)

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "payload is written as it lies in memory");

/* Keeps the description of the innermost error, which is walked last. */
static herr_t keep_description(unsigned depth, const H5E_error2_t *error,
                               void *text)
{
    (void)depth;
    snprintf(text, 256, "%s", error->desc != NULL ? error->desc : "");
    return 0;
}

/* The library's own error as ours; those of the system are its driver's. */
static enum err hdf5_failed(const char *path, const char *call)
{
    char text[256] = "";
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, keep_description, text);
    return err_set(ERR_INTERNAL, "%s: HDF5 %.*s: %s", path,
                   (int)strcspn(call, "("), call, text);
}

/* A handle is a number above 0, whatever it stands for. */
static void close_handle(hid_t handle)
{
    if (handle > 0)
        H5Idec_ref(handle);
}

/* The stored type; the caller closes it. bfloat16 is not predefined, but HDF5
 * describes and converts any floating-point layout. */
static hid_t file_type(enum dtype dtype)
{
    switch (dtype) {
    case DTYPE_F32:
        return H5Tcopy(H5T_IEEE_F32LE);
    case DTYPE_I32:
        return H5Tcopy(H5T_STD_I32LE);
    case DTYPE_F64:
        return H5Tcopy(H5T_IEEE_F64LE);
    case DTYPE_U8:
        return H5Tcopy(H5T_STD_U8LE);
    case DTYPE_BF16:
    case DTYPES:
        break;
    }
    hid_t type = H5Tcopy(H5T_IEEE_F32LE);
    if (H5Tset_fields(type, 15, 7, 8, 0, 7) < 0 || H5Tset_size(type, 2) < 0 ||
        H5Tset_ebias(type, 127) < 0) {
        H5Tclose(type);
        return H5I_INVALID_HID;
    }
    return type;
}

static enum err put_attribute(hid_t file, const char *path, const char *name,
                              hid_t type, const void *value)
{
    enum err rc = ERR_OK;
    hid_t space = H5I_INVALID_HID;
    hid_t attribute = H5I_INVALID_HID;
    HDF5_TRY(space = H5Screate(H5S_SCALAR));
    HDF5_TRY(attribute =
                 H5Acreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT));
    HDF5_TRY(H5Awrite(attribute, type, value));
out:
    close_handle(attribute);
    close_handle(space);
    return rc;
}

/* How every dataset of payload is created. */
struct recipe {
    hid_t layout, links;
    hid_t types[DTYPES];
    int *made; /* [tensors]: datasets of each so far */
};

static enum err recipe_open(const char *path, struct recipe *recipe)
{
    enum err rc = ERR_OK;
    HDF5_TRY(recipe->layout = H5Pcreate(H5P_DATASET_CREATE));
    HDF5_TRY(H5Pset_layout(recipe->layout, H5D_CONTIGUOUS));
    HDF5_TRY(H5Pset_alloc_time(recipe->layout, H5D_ALLOC_TIME_EARLY));
    HDF5_TRY(H5Pset_fill_time(recipe->layout, H5D_FILL_TIME_NEVER));
    HDF5_TRY(H5Pset_obj_track_times(recipe->layout, false));
    HDF5_TRY(recipe->links = H5Pcreate(H5P_LINK_CREATE));
    HDF5_TRY(H5Pset_create_intermediate_group(recipe->links, 1));
    for (int i = 0; i < DTYPES; i++)
        HDF5_TRY(recipe->types[i] = file_type((enum dtype)i));
out:
    return rc;
}

/* One dataset, allocated but never written here: *offset is where its bytes
 * go. */
static enum err put_dataset(hid_t file, const char *path,
                            const struct recipe *recipe, const char *name,
                            hid_t type, int dims, const int64_t *shape,
                            int64_t *offset)
{
    enum err rc = ERR_OK;
    hid_t space = H5I_INVALID_HID;
    hid_t set = H5I_INVALID_HID;
    hsize_t sizes[CKPT_DIMS_MAX];
    for (int d = 0; d < dims; d++)
        sizes[d] = (hsize_t)shape[d];
    HDF5_TRY(space = H5Screate_simple(dims, sizes, NULL));
    HDF5_TRY(set = H5Dcreate2(file, name, type, space, recipe->links,
                              recipe->layout, H5P_DEFAULT));
    haddr_t address = H5Dget_offset(set);
    if (address == HADDR_UNDEF)
        TRY_OUT(hdf5_failed(path, "H5Dget_offset"));
    *offset = (int64_t)address;
out:
    err_prefix(rc, "tensor %s", name);
    close_handle(set);
    close_handle(space);
    return rc;
}

/* The shape of the dataset that holds this part; returns its dimensions. */
static int shape_of(const struct ckpt_part *part, int dims,
                    const int64_t *shape, int64_t out[CKPT_DIMS_MAX])
{
    int64_t row = 1;
    if (part->boxed) {
        memcpy(out, part->sides, (size_t)dims * sizeof out[0]);
        return dims;
    }
    for (int d = 1; d < dims; d++)
        row *= shape[d];
    out[0] = part->end - part->begin;
    if (dims < 2 || part->begin % row != 0 || part->end % row != 0)
        return 1;
    memcpy(out, shape, (size_t)dims * sizeof out[0]);
    out[0] = (part->end - part->begin) / row;
    return dims;
}

static enum err put_extents(hid_t file, const char *path, struct recipe *recipe,
                            const struct ckpt_item *items,
                            struct ckpt_extent *extents, int count)
{
    for (int i = 0; i < count; i++) {
        int tensor = extents[i].tensor;
        const struct ckpt_item *item = &items[tensor];
        char name[CKPT_DATASET_BYTES];
        int64_t shape[CKPT_DIMS_MAX];
        int dims = shape_of(&extents[i].part, item->dims, item->shape, shape);
        ckpt_manifest_dataset(item->name, recipe->made[tensor]++, name);
        TRY(put_dataset(file, path, recipe, name, recipe->types[item->dtype],
                        dims, shape, &extents[i].offset));
    }
    return ERR_OK;
}

static enum err put_identity(hid_t file, const char *path,
                             const struct ckpt_hdf5_identity *identity)
{
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = { { "format_version", FORMAT_VERSION },
                    { "step", identity->step },
                    { "rank", identity->rank },
                    { "ranks", identity->ranks },
                    { "block_bytes", CKPT_BLOCK_BYTES } };
    enum err rc = ERR_OK;
    hid_t text = H5Tcopy(H5T_C_S1);
    HDF5_TRY(H5Tset_size(text, strlen(identity->attempt) + 1));
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        TRY_OUT(put_attribute(file, path, numbers[i].name, H5T_STD_I64LE,
                              &numbers[i].value));
    TRY_OUT(put_attribute(file, path, "attempt", text, identity->attempt));
out:
    close_handle(text);
    return rc;
}

/* --- the index --- */

struct index_row {
    char name[CKPT_NAME_BYTES];
    char dtype[DTYPE_NAME_BYTES];
    int32_t dims;
    int32_t boxed;
    int64_t shape[CKPT_DIMS_MAX];
    int64_t begin, end;
    int64_t origin[CKPT_DIMS_MAX], sides[CKPT_DIMS_MAX];
    int64_t first_block, blocks;
};

static enum err index_type(const char *path, hid_t *out)
{
    enum err rc = ERR_OK;
    const hsize_t shape[1] = { CKPT_DIMS_MAX };
    hid_t name = H5Tcopy(H5T_C_S1);
    hid_t dtype = H5Tcopy(H5T_C_S1);
    hid_t dims = H5Tarray_create2(H5T_STD_I64LE, 1, shape);
    hid_t row = H5Tcreate(H5T_COMPOUND, sizeof(struct index_row));
    const struct {
        const char *name;
        size_t offset;
        hid_t type;
    } columns[] = {
        { "name", offsetof(struct index_row, name), name },
        { "dtype", offsetof(struct index_row, dtype), dtype },
        { "dims", offsetof(struct index_row, dims), H5T_STD_I32LE },
        { "boxed", offsetof(struct index_row, boxed), H5T_STD_I32LE },
        { "shape", offsetof(struct index_row, shape), dims },
        { "begin", offsetof(struct index_row, begin), H5T_STD_I64LE },
        { "end", offsetof(struct index_row, end), H5T_STD_I64LE },
        { "origin", offsetof(struct index_row, origin), dims },
        { "extent", offsetof(struct index_row, sides), dims },
        { "first_block", offsetof(struct index_row, first_block),
          H5T_STD_I64LE },
        { "blocks", offsetof(struct index_row, blocks), H5T_STD_I64LE },
    };
    HDF5_TRY(H5Tset_size(name, CKPT_NAME_BYTES));
    HDF5_TRY(H5Tset_size(dtype, DTYPE_NAME_BYTES));
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++)
        HDF5_TRY(H5Tinsert(row, columns[i].name, columns[i].offset,
                           columns[i].type));
    *out = row;
    row = H5I_INVALID_HID;
out:
    close_handle(row);
    close_handle(dims);
    close_handle(dtype);
    close_handle(name);
    return rc;
}

static void fill_row(struct index_row *row, const struct ckpt_item *item,
                     const struct ckpt_extent *extent)
{
    snprintf(row->name, sizeof row->name, "%s", item->name);
    snprintf(row->dtype, sizeof row->dtype, "%s", dtype_name(item->dtype));
    row->dims = item->dims;
    row->boxed = extent->part.boxed;
    row->begin = extent->part.begin;
    row->end = extent->part.end;
    row->first_block = extent->block;
    row->blocks = ckpt_manifest_block_count(extent->bytes);
    for (int d = 0; d < item->dims; d++) {
        row->shape[d] = item->shape[d];
        row->origin[d] = extent->part.boxed ? extent->part.origin[d] : 0;
        row->sides[d] = extent->part.boxed ? extent->part.sides[d] : 0;
    }
}

/* The dataset _index, which tells readers of the HDF5 file what each extent is.
 * Our own loads take this from the manifest. */
static enum err put_index(hid_t file, const char *path,
                          const struct ckpt_item *items,
                          const struct ckpt_shard *shard)
{
    enum err rc = ERR_OK;
    hid_t type = H5I_INVALID_HID;
    hid_t space = H5I_INVALID_HID;
    hid_t set = H5I_INVALID_HID;
    const hsize_t count = (hsize_t)shard->extent_count;
    struct index_row *rows = NULL;
    TRY(new_zeroed(&rows, (size_t)count));
    for (hsize_t i = 0; i < count; i++)
        fill_row(&rows[i], &items[shard->extents[i].tensor],
                 &shard->extents[i]);
    TRY_OUT(index_type(path, &type));
    HDF5_TRY(space = H5Screate_simple(1, &count, NULL));
    HDF5_TRY(set = H5Dcreate2(file, CKPT_HDF5_INDEX_NAME, type, space,
                              H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    HDF5_TRY(H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, rows));
    /* The rows are written when the set is closed, not before. */
    hid_t closing = set;
    set = H5I_INVALID_HID;
    HDF5_TRY(H5Dclose(closing));
out:
    close_handle(set);
    close_handle(space);
    close_handle(type);
    free(rows);
    return rc;
}

/* --- the file --- */

/* Datasets of `paged` bytes and more will lie at multiples of `border`. */
static enum err file_open(struct ckpt_hdf5_fd *made, bool creating,
                          int datasets, int64_t paged, int64_t border,
                          hid_t *out)
{
    enum err rc = ERR_OK;
    const char *path = made->path;
    hid_t driver = H5I_INVALID_HID;
    hid_t creation = H5I_INVALID_HID;
    hid_t access = H5I_INVALID_HID;
    int64_t meta = META_BYTES_MIN + (int64_t)datasets * META_BYTES;
    if (meta > META_BYTES_MAX)
        meta = META_BYTES_MAX;
    /* A file whose close failed on a full disk stays open inside the library,
     * which would crash on it when the process exits. */
    (void)H5dont_atexit();
    HDF5_TRY(H5Eset_auto2(H5E_DEFAULT, NULL, NULL));
    HDF5_TRY(access = H5Pcreate(H5P_FILE_ACCESS));
    /* Only the latest format has checksums on its metadata. */
    HDF5_TRY(
        H5Pset_libver_bounds(access, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST));
    HDF5_TRY(H5Pset_alignment(access, (hsize_t)paged, (hsize_t)border));
    HDF5_TRY(H5Pset_meta_block_size(access, (hsize_t)meta));
    HDF5_TRY(driver = ckpt_hdf5_fd_driver(access, made));
    /* No lists of free space and no stretches for small data: what is
     * allocated later lies further back. */
    HDF5_TRY(H5Pset_small_data_block_size(access, 0));
    HDF5_TRY(creation = H5Pcreate(H5P_FILE_CREATE));
    HDF5_TRY(H5Pset_file_space_strategy(creation, H5F_FSPACE_STRATEGY_AGGR,
                                        false, 1));
    if (creating)
        HDF5_TRY(*out = H5Fcreate(CKPT_HDF5_FD_NAME, H5F_ACC_TRUNC, creation,
                                  access));
    else
        HDF5_TRY(*out = H5Fopen(CKPT_HDF5_FD_NAME, H5F_ACC_RDWR, access));
out:
    close_handle(creation);
    close_handle(access);
    close_handle(driver);
    return rc;
}

enum extent_kind { EXTENT_SMALL, EXTENT_PAGED, EXTENT_STRIPED, EXTENT_KINDS };

static enum extent_kind kind_of(int64_t bytes)
{
    int64_t over = bytes % STRIPE_BYTES;
    int64_t waste = over == 0 ? 0 : STRIPE_BYTES - over;
    if (bytes >= STRIPED_BYTES && waste <= bytes / STRIPED_WASTE)
        return EXTENT_STRIPED;
    return bytes >= PAGED_BYTES ? EXTENT_PAGED : EXTENT_SMALL;
}

/* Choose the order of the extents; places[i] is where number i of `merged` goes.
 * *striped is how many of them, at the end, are to lie at multiples of
 * STRIPE_BYTES. */
static void plan_extents(const struct ckpt_extent *merged,
                         struct ckpt_shard *shard, int *places, int *striped)
{
    int64_t bytes[EXTENT_KINDS] = { 0 };
    int count[EXTENT_KINDS] = { 0 };
    int next[EXTENT_KINDS] = { 0 };
    for (int i = 0; i < shard->extent_count; i++) {
        bytes[kind_of(merged[i].bytes)] += merged[i].bytes;
        count[kind_of(merged[i].bytes)]++;
    }
    *striped = bytes[EXTENT_STRIPED] >= STRIPED_TOTAL_BYTES
                   ? count[EXTENT_STRIPED]
                   : 0;
    next[EXTENT_PAGED] = count[EXTENT_SMALL];
    next[EXTENT_STRIPED] = next[EXTENT_PAGED] + count[EXTENT_PAGED];
    for (int i = 0; i < shard->extent_count; i++) {
        places[i] = next[kind_of(merged[i].bytes)]++;
        shard->extents[places[i]] = merged[i];
    }
    for (int i = 0; i < shard->extent_count; i++) {
        shard->extents[i].block = shard->block_count;
        shard->block_count +=
            ckpt_manifest_block_count(shard->extents[i].bytes);
    }
}

/* A segment begins an extent, or follows in it. */
static void place_segments(struct ckpt_segment *const *sorted, int count,
                           const struct ckpt_shard *shard, const int *places)
{
    for (int i = 0, e = -1; i < count; i++) {
        e += sorted[i]->at == 0;
        sorted[i]->offset = shard->extents[places[e]].offset + sorted[i]->at;
    }
}

/* The file of this shard, whose last `striped` extents lie at stripes. */
static enum err make_file(struct ckpt_hdf5_fd *made,
                          const struct ckpt_hdf5_identity *identity,
                          const struct ckpt_item *items,
                          struct ckpt_shard *shard, int striped,
                          struct recipe *recipe)
{
    enum err rc = ERR_OK;
    hid_t file = H5I_INVALID_HID, closing;
    const char *path = made->path;
    int paged = shard->extent_count - striped;
    TRY_OUT(file_open(made, true, paged, PAGED_BYTES, PAGE_BYTES, &file));
    TRY_OUT(recipe_open(path, recipe));
    TRY_OUT(put_identity(file, path, identity));
    TRY_OUT(put_extents(file, path, recipe, items, shard->extents, paged));
    if (striped > 0) {
        /* the alignment is a property of an open file */
        closing = file;
        file = H5I_INVALID_HID;
        HDF5_TRY(H5Fclose(closing));
        TRY_OUT(file_open(made, false, striped, STRIPED_BYTES, STRIPE_BYTES,
                          &file));
        TRY_OUT(put_extents(file, path, recipe, items, shard->extents + paged,
                            striped));
    }
    TRY_OUT(put_index(file, path, items, shard));
    TRY_OUT(put_dataset(file, path, recipe, CKPT_HDF5_CRC_NAME, H5T_STD_U32LE,
                        1, &shard->block_count, &shard->crc_offset));
    closing = file;
    file = H5I_INVALID_HID;
    HDF5_TRY(H5Fclose(closing));
out:
    if (file >= 0)
        H5Fclose(file);
    return rc;
}

enum err ckpt_hdf5_create(int fd, const char *path,
                          const struct ckpt_hdf5_identity *identity,
                          const struct ckpt_item *items,
                          struct ckpt_segment *const *sorted, int count,
                          struct ckpt_shard *shard)
{
    enum err rc = ERR_OK;
    struct recipe recipe = { 0 };
    struct ckpt_hdf5_fd made = { .fd = fd, .path = path };
    struct ckpt_extent *merged = NULL;
    int *places = NULL, striped = 0;
    assert(count > 0);
    size_t tensors = (size_t)sorted[count - 1]->item + 1;
    TRY_OUT(ckpt_segments_merge(sorted, count, items, &merged,
                                &shard->extent_count));
    TRY_OUT(new_zeroed(&shard->extents, (size_t)shard->extent_count));
    TRY_OUT(new_room(&places, (size_t)shard->extent_count));
    TRY_OUT(new_zeroed(&recipe.made, tensors));
    plan_extents(merged, shard, places, &striped);
    TRY_OUT(make_file(&made, identity, items, shard, striped, &recipe));
    place_segments(sorted, count, shard, places);
out:
    if (made.failed.code != ERR_OK)
        rc = err_again(&made.failed);
    free(merged);
    free(places);
    free(recipe.made);
    for (int i = 0; i < DTYPES; i++)
        close_handle(recipe.types[i]);
    close_handle(recipe.links);
    close_handle(recipe.layout);
    return rc;
}
