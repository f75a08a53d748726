/* HDF5 files that lie where a descriptor says, whatever has a name. */
#pragma once

#include <hdf5.h>

#include "src/base/err.h"

/* A file, open to be written and read by the library and by others. */
struct ckpt_hdf5_fd {
    int fd;
    const char *path;       /* for texts */
    struct err_kept failed; /* the first call of the system that failed */
};

/* What the library opens by this access list is that file, under whatever
 * name; both stay the caller's. It goes on when a call fails, of which
 * `failed` tells: it does not let go of files that it can't close. A driver,
 * which is to be closed behind the list; negative: failure. */
hid_t ckpt_hdf5_fd_driver(hid_t access, struct ckpt_hdf5_fd *file);
/* A name that it takes, and looks at before it opens a file. */
#define CKPT_HDF5_FD_NAME "/"
