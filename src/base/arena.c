#include "src/base/arena.h"

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define ARENA_ALIGN 64

/* Memory that can be had without swapping, by the kernel's own estimate;
 * SIZE_MAX: not known. */
static size_t memory_available(void)
{
    char line[128];
    unsigned long long kib = 0;
    bool found = false;
    FILE *file = fopen("/proc/meminfo", "re");
    if (file == NULL)
        return SIZE_MAX;
    while (!found && fgets(line, sizeof line, file) != NULL)
        found = sscanf(line, "MemAvailable: %llu kB", &kib) == 1;
    fclose(file);
    return found ? (size_t)kib << 10 : SIZE_MAX;
}

/* fd < 0: private memory. */
static enum err map_touched(size_t bytes, int fd, struct arena *out)
{
    int flags =
        fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED;
    *out = (struct arena){ 0 };
    if (bytes == 0)
        return ERR_OK;
    /* Touching what is not there would end in a kill without a word. */
    size_t available = memory_available();
    if (bytes > available)
        return err_set(ERR_MEMORY,
                       "%zu MiB of memory are needed at once, %zu MiB are "
                       "available: use a smaller model, train.microbatch or "
                       "data.seq_len",
                       bytes >> 20, available >> 20);
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (base == MAP_FAILED)
        return err_set(ERR_MEMORY,
                       "cannot map %zu MiB of memory: use a smaller model, "
                       "train.microbatch or data.seq_len",
                       bytes >> 20);
    madvise(base, bytes, MADV_HUGEPAGE); /* a hint: may be refused */
    memset(base, 0, bytes);
    *out = (struct arena){ .base = base, .capacity = bytes };
    return ERR_OK;
}

enum err arena_create(size_t bytes, struct arena *out)
{
    return map_touched(bytes, -1, out);
}

enum err arena_create_shared(size_t bytes, int fd, struct arena *out)
{
    assert(fd >= 0);
    return map_touched(bytes, fd, out);
}

void arena_destroy(struct arena *arena)
{
    if (arena->base != NULL)
        munmap(arena->base, arena->capacity);
    *arena = (struct arena){ 0 };
}

void *arena_take(struct arena *arena, size_t bytes)
{
    size_t size = (bytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
    size_t at = arena->used;
    arena->used += size;
    if (arena->base == NULL)
        return NULL;
    assert(arena->used <= arena->capacity);
    return arena->base + at;
}
