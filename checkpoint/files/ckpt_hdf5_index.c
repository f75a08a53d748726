/* Writes the dataset _index of a shard, which tells readers of the HDF5 file
 * what each extent is. Our own loads take this from the manifest. */
#include "checkpoint/files/ckpt_hdf5_private.h"

#include <stdio.h>
#include <stdlib.h>

#include "src/base/new.h"

#define DTYPE_NAME_BYTES 8

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
    if (row >= 0)
        H5Tclose(row);
    if (dims >= 0)
        H5Tclose(dims);
    if (dtype >= 0)
        H5Tclose(dtype);
    if (name >= 0)
        H5Tclose(name);
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

enum err ckpt_hdf5_index_put(hid_t file, const char *path,
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
    if (set >= 0)
        H5Dclose(set);
    if (space >= 0)
        H5Sclose(space);
    if (type >= 0)
        H5Tclose(type);
    free(rows);
    return rc;
}
