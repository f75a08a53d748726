/* Maps whole files into memory, for shards and parity that travel between
 * nodes. Saves and loads of the run directory do not map files: they use
 * ckpt_io.c. */
#include "checkpoint/local/ckpt_map.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "src/base/fsio.h"

/* Makes the file's folder: very many shards are in folders of their own. */
static enum err make_parent(const char *path)
{
    char parent[FSIO_PATH_MAX];
    TRY(fsio_path(parent, "%s", path));
    *strrchr(parent, '/') = '\0';
    return fsio_mkdirs(parent);
}

/* Writing to a mapping that the file system can't back would be SIGBUS, so its
 * space is reserved first. */
enum err ckpt_map_file(const char *path, int64_t bytes, bool make,
                       struct ckpt_map *out)
{
    enum err rc = ERR_OK;
    int failed = 0;
    int fd = -1;
    assert(bytes > 0);
    *out = (struct ckpt_map){ 0 };
    if (make)
        TRY_OUT(make_parent(path));
    fd = make ? open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666)
              : open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        rc = err_errno("%s: open", path);
        goto out;
    }
    if (make)
        failed = posix_fallocate(fd, 0, (off_t)bytes);
    if (failed != 0) {
        errno = failed;
        rc = err_errno("%s: reserve %lld bytes", path, (long long)bytes);
        goto out;
    }
    void *data =
        mmap(NULL, (size_t)bytes, make ? PROT_READ | PROT_WRITE : PROT_READ,
             MAP_SHARED, fd, 0);
    if (data == MAP_FAILED) {
        rc = err_errno("%s: map", path);
        goto out;
    }
    *out = (struct ckpt_map){ .data = data, .bytes = (size_t)bytes };
out:
    if (fd >= 0)
        close(fd);
    return rc;
}

void ckpt_map_release(struct ckpt_map *map)
{
    if (map->data != NULL)
        munmap(map->data, map->bytes);
    *map = (struct ckpt_map){ 0 };
}
