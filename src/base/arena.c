/* Memory that is laid out by a plan and taken once. There is no free of a part:
 * an arena lives and dies as a whole.
 *
 * All of it is touched at once: Linux promises memory that it has not, and ends
 * a process when the promise falls due, which would be in the middle of
 * training. Pages of 2 MiB are asked for, since weights are read from end to
 * end in each step, and a processor looks up a page before it reads from it. */
#include "src/base/arena.h"

#include <assert.h>
#include <string.h>
#include <sys/mman.h>

#include "src/base/memory.h"

#define ARENA_ALIGN 64
#define HUGE_BYTES ((size_t)2 << 20)
#define PAGE_BYTES ((size_t)4096)
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1; older ones refuse it */
#endif

/* A huge page of the file must begin at such a place in memory: more addresses
 * are taken than needed, and the rest given back. */
void *arena_map_file(size_t bytes, int fd)
{
    size_t pages = (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    char *room = mmap(NULL, pages + HUGE_BYTES, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED)
        return NULL;
    size_t before = HUGE_BYTES - (uintptr_t)room % HUGE_BYTES;
    char *base = room + before;
    void *map = mmap(base, bytes, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_FIXED, fd, 0);
    if (map == MAP_FAILED) {
        munmap(room, pages + HUGE_BYTES);
        return NULL;
    }
    munmap(room, before);
    if (before < HUGE_BYTES)
        munmap(base + pages, HUGE_BYTES - before);
    return map;
}

/* Files get huge pages only on request, of parts that have a page already. A
 * refusal is no error. */
static void collapse(char *base, size_t bytes)
{
    for (size_t at = 0; at + HUGE_BYTES <= bytes; at += HUGE_BYTES) {
        base[at] = 0;
        if (madvise(base + at, HUGE_BYTES, MADV_COLLAPSE) != 0)
            return;
    }
}

/* fd < 0: private memory. */
static void *map_memory(size_t bytes, int fd)
{
    if (fd >= 0)
        return arena_map_file(bytes, fd);
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return base == MAP_FAILED ? NULL : base;
}

static enum err map_touched(size_t bytes, int fd, struct arena *out)
{
    *out = (struct arena){ 0 };
    if (bytes == 0)
        return ERR_OK;
    /* Touching what is not there would end in a kill without a word. */
    size_t available = memory_available("");
    if (bytes > available)
        return err_set(ERR_MEMORY,
                       "%zu MiB of memory are needed at once, %zu MiB are "
                       "available to this job on this node: use a smaller "
                       "model, train.microbatch or data.seq_len",
                       bytes >> 20, available >> 20);
    void *base = map_memory(bytes, fd);
    if (base == NULL) {
        size_t space = memory_address_space();
        if (space < bytes + HUGE_BYTES)
            return err_set(ERR_MEMORY,
                           "cannot map %zu MiB of memory, ulimit -v or -d "
                           "leaves %zu MiB: raise it, or use a smaller model, "
                           "train.microbatch or data.seq_len",
                           bytes >> 20, space >> 20);
        return err_set(ERR_MEMORY,
                       "cannot map %zu MiB of memory: use a smaller model, "
                       "train.microbatch or data.seq_len",
                       bytes >> 20);
    }
    madvise(base, bytes, MADV_HUGEPAGE); /* a hint: may be refused */
    if (fd >= 0)
        collapse(base, bytes);
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
    size_t size = arena_sum(bytes, ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
    size_t at = arena->used;
    arena->used = arena_sum(at, size);
    if (arena->base == NULL)
        return NULL;
    assert(arena->used <= arena->capacity);
    return arena->base + at;
}
