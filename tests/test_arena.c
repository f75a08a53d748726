/* Memory of a file: where it is mapped, what is in it, and in which pages. */
#include <inttypes.h>
#include <sys/mman.h>

#include "src/base/arena.h"
#include "tests/tap.h"

#define MIB ((size_t)1 << 20)
#define HUGE_BYTES (2 * MIB)
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

static int memory_file(size_t bytes)
{
    int fd = memfd_create("tessera-test", MFD_CLOEXEC);
    return fd >= 0 && ftruncate(fd, (off_t)bytes) == 0 ? fd : -1;
}

static bool is_zero(const char *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (data[i] != 0)
            return false;
    return true;
}

/* KiB of the mapping that begins at `base` in huge pages; -1: not listed. */
static long huge_kib(const void *base)
{
    char line[512], want[32];
    long kib = -1;
    bool here = false;
    FILE *file = fopen("/proc/self/smaps", "re");
    snprintf(want, sizeof want, "%" PRIxPTR "-", (uintptr_t)base);
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (strchr(line, '-') != NULL && strstr(line, " rw-s ") != NULL)
            here = strncmp(line, want, strlen(want)) == 0;
        if (here && sscanf(line, "ShmemPmdMapped: %ld kB", &kib) == 1)
            break;
    }
    if (file != NULL)
        fclose(file);
    return kib;
}

static bool kernel_collapses(void)
{
    int fd = memory_file(HUGE_BYTES);
    char *base = fd >= 0 ? arena_map_file(HUGE_BYTES, fd) : NULL;
    bool able = false;
    if (base != NULL) {
        base[0] = 1;
        able = madvise(base, HUGE_BYTES, MADV_COLLAPSE) == 0;
        munmap(base, HUGE_BYTES);
    }
    close(fd);
    return able;
}

static void test_shared(size_t bytes, bool huge)
{
    struct arena arena;
    int fd = memory_file(bytes);
    enum err rc = arena_create_shared(bytes, fd, &arena);
    tap_ok(rc == ERR_OK, "%zu bytes: created", bytes);
    char *other = arena_map_file(bytes, fd);
    if (rc != ERR_OK || other == NULL) {
        tap_ok(false, "%zu bytes: %s", bytes, err_text());
        return;
    }
    tap_ok((uintptr_t)arena.base % HUGE_BYTES == 0 &&
               (uintptr_t)other % HUGE_BYTES == 0 && other != arena.base,
           "%zu bytes: two places for huge pages", bytes);
    tap_ok(is_zero(arena.base, bytes) && is_zero(other, bytes),
           "%zu bytes: zeros", bytes);
    arena.base[bytes - 1] = 3;
    bool seen = other[bytes - 1] == 3;
    other[0] = 5;
    tap_ok(seen && arena.base[0] == 5,
           "%zu bytes: what one writes the other sees", bytes);
    if (huge)
        tap_is_int(huge_kib(arena.base),
                   (long long)(bytes / HUGE_BYTES * HUGE_BYTES >> 10),
                   "%zu bytes: KiB in huge pages", bytes);
    munmap(other, bytes);
    arena_destroy(&arena);
    close(fd);
}

static void test_failures(void)
{
    struct arena arena;
    tap_ok(arena_map_file(MIB, -1) == NULL, "no file, no memory");
    tap_ok(arena_create((size_t)1 << 60, &arena) == ERR_MEMORY,
           "more than there is: %s", err_text());
}

int main(void)
{
    static const size_t sizes[] = { 1, 4096, 2 * MIB, 5 * MIB + 100 };
    bool huge = kernel_collapses();
    if (!huge)
        tap_skip("this kernel gives memory files no huge pages on request");
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        test_shared(sizes[i], huge);
    test_failures();
    return tap_done();
}
