/* What fuzzers share: where their bytes lie for what reads files by name, and what they
 * take of the C library. */
#pragma once

#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "src/base/fsio.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* The bytes as a file, until the next call. One serves all: making one is most of an
 * input's time. */
static inline const char *fuzz_file(const void *data, size_t bytes)
{
    static char path[64];
    static int fd = -1;
    if (fd < 0)
        fd = memfd_create("fuzz", MFD_CLOEXEC);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (fd < 0 || ftruncate(fd, 0) != 0 ||
        fsio_pwrite(fd, data, bytes, 0, path) != ERR_OK)
        abort();
    return path;
}

static char fuzz_folder[64];

static inline void fuzz_folder_remove(void)
{
    (void)fsio_remove_tree(fuzz_folder);
}

/* Makes it, for all inputs. False: it was there. */
static inline bool fuzz_folder_make(void)
{
    const char *base = getenv("TMPDIR");
    if (fuzz_folder[0] != '\0')
        return false;
    snprintf(fuzz_folder, sizeof fuzz_folder, "%.40s/fuzz.XXXXXX",
             base != NULL ? base : "/dev/shm");
    if (mkdtemp(fuzz_folder) == NULL || atexit(fuzz_folder_remove) != 0)
        abort();
    return true;
}
