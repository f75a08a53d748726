#include "checkpoint/ckpt_hdf5.h"

#include <assert.h>
#include <errno.h>
#include <hdf5.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INDEX_NAME "_index"
#define FORMAT_VERSION 1
/* Direct I/O and page-wise reads like big datasets on page borders. */
#define ALIGNMENT_BYTES 4096
#define DTYPE_NAME_BYTES 8

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "payload is written as it lies in memory");

/* Run an HDF5 call; negative is failure, translated by hdf5_failed(). */
#define HDF5_TRY(call)                                                         \
    do {                                                                       \
        if ((call) < 0) {                                                      \
            rc = hdf5_failed(path, #call);                                     \
            goto out;                                                          \
        }                                                                      \
    } while (0)

struct index_row {
    char name[CKPT_NAME_BYTES];
    char dtype[DTYPE_NAME_BYTES];
    int32_t dims;
    int64_t shape[CKPT_DIMS_MAX];
    int64_t begin, end;
};

/* Keeps the description of the innermost error, which is walked last. */
static herr_t keep_description(unsigned depth, const H5E_error2_t *error,
                               void *text)
{
    (void)depth;
    snprintf(text, 256, "%s", error->desc != NULL ? error->desc : "");
    return 0;
}

/* The library reports a failed system call as text only. */
static enum err hdf5_failed(const char *path, const char *call)
{
    char text[256] = "";
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, keep_description, text);
    const char *number = strstr(text, "errno = ");
    if (number != NULL) {
        errno = (int)strtol(number + strlen("errno = "), NULL, 10);
        return err_errno("%s: HDF5", path);
    }
    return err_set(ERR_INTERNAL, "%s: HDF5 %.*s: %s", path,
                   (int)strcspn(call, "("), call, text);
}

enum err ckpt_hdf5_check_name(const char *name)
{
    const char *part = name;
    for (const char *c = name;; c++) {
        if (*c == '/' || *c == '\0') {
            bool dot = c - part == 1 && *part == '.';
            if (c == part || dot)
                return err_set(ERR_INTERNAL,
                               "checkpoint: tensor name '%s' has an empty "
                               "component or a single dot",
                               name);
            part = c + 1;
        } else if (*c <= ' ' || *c > '~' || *c == '"' || *c == '\\') {
            return err_set(ERR_INTERNAL,
                           "checkpoint: tensor name '%s' has characters other "
                           "than printable ASCII",
                           name);
        }
        if (*c == '\0')
            break;
    }
    size_t length = strlen(INDEX_NAME);
    if (strncmp(name, INDEX_NAME, length) == 0 &&
        (name[length] == '\0' || name[length] == '/'))
        return err_set(ERR_INTERNAL, "checkpoint: the name '%s' is reserved",
                       INDEX_NAME);
    return ERR_OK;
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
    case DTYPE_BF16:
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

static enum err put_integer(hid_t file, const char *path, const char *name,
                            int64_t value)
{
    enum err rc = ERR_OK;
    hid_t space = H5I_INVALID_HID;
    hid_t attribute = H5I_INVALID_HID;
    HDF5_TRY(space = H5Screate(H5S_SCALAR));
    HDF5_TRY(attribute = H5Acreate2(file, name, H5T_STD_I64LE, space,
                                    H5P_DEFAULT, H5P_DEFAULT));
    HDF5_TRY(H5Awrite(attribute, H5T_NATIVE_INT64, &value));
out:
    if (attribute >= 0)
        H5Aclose(attribute);
    if (space >= 0)
        H5Sclose(space);
    return rc;
}

static enum err put_text(hid_t file, const char *path, const char *name,
                         const char *value)
{
    enum err rc = ERR_OK;
    hid_t space = H5I_INVALID_HID;
    hid_t attribute = H5I_INVALID_HID;
    hid_t type = H5Tcopy(H5T_C_S1);
    HDF5_TRY(type);
    HDF5_TRY(H5Tset_size(type, strlen(value) + 1));
    HDF5_TRY(space = H5Screate(H5S_SCALAR));
    HDF5_TRY(attribute =
                 H5Acreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT));
    HDF5_TRY(H5Awrite(attribute, type, value));
out:
    if (attribute >= 0)
        H5Aclose(attribute);
    if (space >= 0)
        H5Sclose(space);
    if (type >= 0)
        H5Tclose(type);
    return rc;
}

static enum err index_type(const char *path, hid_t *out)
{
    enum err rc = ERR_OK;
    const hsize_t shape[1] = { CKPT_DIMS_MAX };
    hid_t name = H5Tcopy(H5T_C_S1);
    hid_t dtype = H5Tcopy(H5T_C_S1);
    hid_t dims = H5Tarray_create2(H5T_STD_I64LE, 1, shape);
    hid_t row = H5Tcreate(H5T_COMPOUND, sizeof(struct index_row));
    HDF5_TRY(H5Tset_size(name, CKPT_NAME_BYTES));
    HDF5_TRY(H5Tset_size(dtype, DTYPE_NAME_BYTES));
    HDF5_TRY(H5Tinsert(row, "name", offsetof(struct index_row, name), name));
    HDF5_TRY(H5Tinsert(row, "dtype", offsetof(struct index_row, dtype), dtype));
    HDF5_TRY(H5Tinsert(row, "dims", offsetof(struct index_row, dims),
                       H5T_STD_I32LE));
    HDF5_TRY(H5Tinsert(row, "shape", offsetof(struct index_row, shape), dims));
    HDF5_TRY(H5Tinsert(row, "begin", offsetof(struct index_row, begin),
                       H5T_STD_I64LE));
    HDF5_TRY(
        H5Tinsert(row, "end", offsetof(struct index_row, end), H5T_STD_I64LE));
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

static enum err put_index(hid_t file, const char *path,
                          const struct ckpt_item *items,
                          const struct ckpt_piece *pieces, int count)
{
    enum err rc = ERR_OK;
    hid_t type = H5I_INVALID_HID;
    hid_t space = H5I_INVALID_HID;
    hid_t set = H5I_INVALID_HID;
    const hsize_t rows_count = (hsize_t)count;
    struct index_row *rows = calloc((size_t)count, sizeof *rows);
    if (rows == NULL)
        return err_set(ERR_MEMORY, "%s: out of memory for its index", path);
    for (int i = 0; i < count; i++) {
        const struct ckpt_item *item = &items[pieces[i].tensor];
        snprintf(rows[i].name, sizeof rows[i].name, "%s", item->name);
        snprintf(rows[i].dtype, sizeof rows[i].dtype, "%s",
                 dtype_name(item->dtype));
        rows[i].dims = item->dims;
        for (int d = 0; d < item->dims; d++)
            rows[i].shape[d] = item->shape[d];
        rows[i].begin = item->part.begin;
        rows[i].end = item->part.end;
    }
    TRY(index_type(path, &type));
    HDF5_TRY(space = H5Screate_simple(1, &rows_count, NULL));
    HDF5_TRY(set = H5Dcreate2(file, INDEX_NAME, type, space, H5P_DEFAULT,
                              H5P_DEFAULT, H5P_DEFAULT));
    HDF5_TRY(H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, rows));
    /* Only closing writes the rows, and only its result tells of a failure. */
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

/* One dataset, allocated but never written here: *offset is where its bytes
 * go. */
static enum err put_tensor(hid_t file, const char *path, hid_t links,
                           hid_t layout, const struct ckpt_item *item,
                           int64_t *offset)
{
    enum err rc = ERR_OK;
    hid_t space = H5I_INVALID_HID;
    hid_t set = H5I_INVALID_HID;
    const hsize_t elements = (hsize_t)(item->part.end - item->part.begin);
    hid_t type = file_type(item->dtype);
    HDF5_TRY(type);
    HDF5_TRY(space = H5Screate_simple(1, &elements, NULL));
    HDF5_TRY(set = H5Dcreate2(file, item->name, type, space, links, layout,
                              H5P_DEFAULT));
    haddr_t address = H5Dget_offset(set);
    if (address == HADDR_UNDEF) {
        rc = hdf5_failed(path, "H5Dget_offset");
        goto out;
    }
    *offset = (int64_t)address;
out:
    if (rc != ERR_OK)
        err_prefix(rc, "tensor %s", item->name);
    if (set >= 0)
        H5Dclose(set);
    if (space >= 0)
        H5Sclose(space);
    if (type >= 0)
        H5Tclose(type);
    return rc;
}

static enum err put_tensors(hid_t file, const char *path,
                            const struct ckpt_item *items, int item_count,
                            struct ckpt_piece *pieces, int *piece_count)
{
    enum err rc = ERR_OK;
    hid_t layout = H5I_INVALID_HID;
    hid_t links = H5I_INVALID_HID;
    *piece_count = 0;
    HDF5_TRY(layout = H5Pcreate(H5P_DATASET_CREATE));
    HDF5_TRY(H5Pset_layout(layout, H5D_CONTIGUOUS));
    HDF5_TRY(H5Pset_alloc_time(layout, H5D_ALLOC_TIME_EARLY));
    HDF5_TRY(H5Pset_fill_time(layout, H5D_FILL_TIME_NEVER));
    HDF5_TRY(H5Pset_obj_track_times(layout, false));
    HDF5_TRY(links = H5Pcreate(H5P_LINK_CREATE));
    HDF5_TRY(H5Pset_create_intermediate_group(links, 1));
    for (int i = 0; i < item_count; i++) {
        const struct ckpt_item *item = &items[i];
        if (item->part.begin == item->part.end)
            continue;
        struct ckpt_piece *piece = &pieces[(*piece_count)++];
        *piece = (struct ckpt_piece){ .tensor = i, .part = item->part };
        piece->bytes = ckpt_part_elements(&item->part, item->dims) *
                       (int64_t)dtype_bytes(item->dtype);
        TRY(put_tensor(file, path, links, layout, item, &piece->offset));
    }
out:
    if (links >= 0)
        H5Pclose(links);
    if (layout >= 0)
        H5Pclose(layout);
    return rc;
}

static enum err file_create(const char *path, hid_t *out)
{
    enum err rc = ERR_OK;
    hid_t access = H5I_INVALID_HID;
    /* A file whose close failed, say on a full disk, stays in the library's
     * list, and its clean-up at exit would crash on it. */
    (void)H5dont_atexit();
    HDF5_TRY(H5Eset_auto2(H5E_DEFAULT, NULL, NULL));
    HDF5_TRY(access = H5Pcreate(H5P_FILE_ACCESS));
    /* Only the latest format has checksums on its metadata. */
    HDF5_TRY(
        H5Pset_libver_bounds(access, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST));
    HDF5_TRY(H5Pset_alignment(access, ALIGNMENT_BYTES, ALIGNMENT_BYTES));
    /* flock(2) fails on several parallel file systems. */
    HDF5_TRY(H5Pset_file_locking(access, false, true));
    HDF5_TRY(*out = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access));
out:
    if (access >= 0)
        H5Pclose(access);
    return rc;
}

static int offset_order(const void *a, const void *b)
{
    const struct ckpt_piece *x = a;
    const struct ckpt_piece *y = b;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

enum err ckpt_hdf5_create(const char *path,
                          const struct ckpt_hdf5_identity *identity,
                          const struct ckpt_item *items, int item_count,
                          struct ckpt_piece *pieces, int *piece_count)
{
    enum err rc = ERR_OK;
    hid_t file = H5I_INVALID_HID;
    TRY(file_create(path, &file));
    TRY(put_integer(file, path, "format_version", FORMAT_VERSION));
    TRY(put_integer(file, path, "step", identity->step));
    TRY(put_integer(file, path, "rank", identity->rank));
    TRY(put_integer(file, path, "ranks", identity->ranks));
    TRY(put_text(file, path, "attempt", identity->attempt));
    TRY(put_tensors(file, path, items, item_count, pieces, piece_count));
    assert(*piece_count > 0);
    TRY(put_index(file, path, items, pieces, *piece_count));
    qsort(pieces, (size_t)*piece_count, sizeof *pieces, offset_order);
    hid_t closing = file;
    file = H5I_INVALID_HID;
    HDF5_TRY(H5Fclose(closing));
out:
    if (file >= 0)
        H5Fclose(file);
    return rc;
}
