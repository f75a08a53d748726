/* Configurations of other trainers: whatever is in a file, it is refused or read as
 * pairs, each with a key that is found and a line. What is made of them belongs to the
 * settings, with which programs without OpenMP, as these, can't be linked. */
#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "src/convert/foreign.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static int fd = -1; /* one for all: making one is most of the time */
    struct foreign_file file = { 0 };
    char path[64];
    if (fd < 0)
        fd = memfd_create("configuration", 0);
    assert(fd >= 0 && ftruncate(fd, 0) == 0);
    assert(pwrite(fd, data, bytes, 0) == (ssize_t)bytes);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (foreign_read(path, &file) == ERR_OK)
        for (size_t i = 0; i < file.count; i++)
            assert(file.pairs[i].line > 0 && file.pairs[i].key[0] != '\0' &&
                   foreign_find(&file, file.pairs[i].key) != NULL);
    foreign_free(&file);
    return 0;
}
