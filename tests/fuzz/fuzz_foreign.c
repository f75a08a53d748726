/* Configurations of other trainers: whatever is in a file, it is read or refused with
 * a line, and what is made of it is the same each time. */
#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "src/convert/foreign.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char *const names[] = { NULL, "llm-foundry", "torchtitan",
                                         "hf" };
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
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *first = NULL, *again = NULL;
        enum err rc = foreign_convert(path, names[i], 8, &first);
        assert(foreign_convert(path, names[i], 8, &again) == rc);
        assert(rc != ERR_OK || strcmp(first, again) == 0);
        free(first);
        free(again);
    }
    return 0;
}
