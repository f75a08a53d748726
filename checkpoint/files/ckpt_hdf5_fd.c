/* A driver of the HDF5 library for files without a name: a shard's frame is made
 * in a file of memory, in which tensors are holes. The library's own drivers take
 * names and follow links to them, or hold holes in memory. */
#include "checkpoint/files/ckpt_hdf5_fd.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#if __has_include(<H5FDdevelop.h>)
#include <H5FDdevelop.h>
#endif

#include "src/base/fsio.h"
#include "src/base/new.h"

struct opened {
    H5FD_t shared; /* the library's */
    struct ckpt_hdf5_fd *file;
    haddr_t end; /* of what it has allocated */
};

static struct opened *of(const H5FD_t *shared)
{
    return (struct opened *)(uintptr_t)shared;
}

static void note(struct ckpt_hdf5_fd *file, enum err rc)
{
    if (file->failed.code == ERR_OK)
        err_keep(&file->failed, rc);
}

static void cut(struct ckpt_hdf5_fd *file, haddr_t bytes)
{
    if (ftruncate(file->fd, (off_t)bytes) != 0)
        note(file, err_errno("%s: truncate", file->path));
}

static H5FD_t *open_file(const char *name, unsigned flags, hid_t access,
                         haddr_t end_max)
{
    struct opened *opened = NULL;
    struct ckpt_hdf5_fd *const *file = H5Pget_driver_info(access);
    (void)name;
    (void)end_max;
    if (file == NULL)
        return NULL;
    note(*file, new_zeroed(&opened, 1));
    if (opened == NULL)
        return NULL;
    opened->file = *file;
    if ((flags & H5F_ACC_TRUNC) != 0)
        cut(opened->file, 0);
    return &opened->shared;
}

static herr_t close_file(H5FD_t *shared)
{
    free(of(shared));
    return 0;
}

/* As of a plain file: metadata together, and through the library's buffer. */
static herr_t query(const H5FD_t *shared, unsigned long *flags)
{
    (void)shared;
    *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA |
             H5FD_FEAT_DATA_SIEVE | H5FD_FEAT_AGGREGATE_SMALLDATA;
    return 0;
}

static haddr_t get_end(const H5FD_t *shared, H5FD_mem_t type)
{
    (void)type;
    return of(shared)->end;
}

static herr_t set_end(H5FD_t *shared, H5FD_mem_t type, haddr_t end)
{
    (void)type;
    of(shared)->end = end;
    return 0;
}

static haddr_t get_size(const H5FD_t *shared, H5FD_mem_t type)
{
    struct stat status = { 0 };
    struct ckpt_hdf5_fd *file = of(shared)->file;
    (void)type;
    if (fstat(file->fd, &status) != 0)
        note(file, err_errno("%s: stat", file->path));
    return (haddr_t)status.st_size;
}

static herr_t read_bytes(H5FD_t *shared, H5FD_mem_t type, hid_t transfer,
                         haddr_t at, size_t bytes, void *data)
{
    struct ckpt_hdf5_fd *file = of(shared)->file;
    (void)type;
    (void)transfer;
    note(file, fsio_pread(file->fd, data, bytes, (int64_t)at, file->path));
    return file->failed.code == ERR_OK ? 0 : -1;
}

static herr_t write_bytes(H5FD_t *shared, H5FD_mem_t type, hid_t transfer,
                          haddr_t at, size_t bytes, const void *data)
{
    struct ckpt_hdf5_fd *file = of(shared)->file;
    (void)type;
    (void)transfer;
    note(file, fsio_pwrite(file->fd, data, bytes, (int64_t)at, file->path));
    return 0;
}

static herr_t set_size(H5FD_t *shared, hid_t transfer, hbool_t closing)
{
    (void)transfer;
    (void)closing;
    cut(of(shared)->file, of(shared)->end);
    return 0;
}

static const H5FD_class_t driver = {
#ifdef H5FD_CLASS_VERSION
    .version = H5FD_CLASS_VERSION,
    .value = (H5FD_class_value_t)1023,
#endif
    .name = "descriptor",
    .maxaddr = INT64_MAX,
    .fc_degree = H5F_CLOSE_WEAK,
    .fapl_size = sizeof(struct ckpt_hdf5_fd *),
    .open = open_file,
    .close = close_file,
    .query = query,
    .get_eoa = get_end,
    .set_eoa = set_end,
    .get_eof = get_size,
    .read = read_bytes,
    .write = write_bytes,
    .truncate = set_size,
    .fl_map = H5FD_FLMAP_DICHOTOMY,
};

hid_t ckpt_hdf5_fd_driver(hid_t access, struct ckpt_hdf5_fd *file)
{
    hid_t id = H5FDregister(&driver);
    if (id >= 0 && H5Pset_driver(access, id, &file) < 0) {
        H5FDunregister(id);
        id = H5I_INVALID_HID;
    }
    return id;
}
