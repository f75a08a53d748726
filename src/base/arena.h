/* Planned memory: everything a program needs is laid out once, by running the
 * same layout code twice: first over an arena without memory, which only
 * counts, then over one that has it. Nothing is allocated in the training step.
 *
 *     struct arena plan = { 0 };
 *     layout(&plan, ...);                  // plan.used is the need
 *     TRY(arena_create(plan.used, &arena));
 *     layout(&arena, ...);
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"

/* What a plan counts at most: "that much or more", which nothing fits. */
#define ARENA_BYTES_MAX ((size_t)INT64_MAX)

/* The sum of two plans, ARENA_BYTES_MAX where it would be more. */
static inline size_t arena_sum(size_t a, size_t b)
{
    size_t sum = 0;
    return __builtin_add_overflow(a, b, &sum) || sum > ARENA_BYTES_MAX
               ? ARENA_BYTES_MAX
               : sum;
}

struct arena {
    char *base;      /* NULL: only count */
    size_t used;     /* bytes */
    size_t capacity; /* bytes */
};

/* Pages are mapped, zeroed and touched now, in huge pages where the kernel
 * gives them. ERR_MEMORY says how much was asked for; more than what is
 * available now is refused before it is touched. */
enum err arena_create(size_t bytes, struct arena *out);
/* The same in the pages of a memory file of at least so many bytes (memfd),
 * which other processes can map. */
enum err arena_create_shared(size_t bytes, int fd, struct arena *out);
/* Map a memory file, to be read and written, where its huge pages, if it has
 * any, count as such; to be unmapped by munmap(). NULL: errno says why. */
void *arena_map_file(size_t bytes, int fd);
/* A zeroed struct arena is fine. */
void arena_destroy(struct arena *arena);

/* The next `bytes`, 64-byte aligned; NULL when counting, which ends at
 * ARENA_BYTES_MAX. Taking more than the capacity is a programmer error. */
void *arena_take(struct arena *arena, size_t bytes);
