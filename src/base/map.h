/* Numbers of elements by their keys: an index beside an array.
 *
 * The elements, with their keys, are the caller's, in whatever form: a map has
 * of each nothing but its number and 32 bits of its key's hash, eight bytes a
 * slot. So it needs to know no key and calls nothing back: a search gives the
 * numbers of those that have the hash, of which hardly any is another's, and
 * the caller compares:
 *
 *     uint32_t hash = map_hash_bytes(text, bytes);
 *     for (size_t at = 0, i; map_next(&map, hash, &at, &i);)
 *         if (words[i].bytes == bytes && memcmp(...) == 0)
 *             return i;
 *     TRY(map_add(&map, hash, count));
 *
 * Open addressing with steps of one: at most half of the slots are taken, so a
 * search looks at one or two that lie side by side, and ends. Nothing is ever
 * taken out. In which order numbers lie in it nobody can see, so results cannot
 * depend on it. Zeros are an empty one; many may search at a time. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"

struct map_slot {
    uint32_t hash;
    uint32_t number; /* + 1; 0: free */
};

struct map {
    struct map_slot *slots;
    size_t slot_count; /* a power of two; 0: none yet */
    size_t count;      /* of those taken */
};

void map_free(struct map *map);
/* Slots for so many, so that none of their additions fails. */
enum err map_room(struct map *map, size_t count);
/* `number` is below 2^32 - 1 and has not this key yet, nor has another. */
enum err map_add(struct map *map, uint32_t hash, size_t number);

/* XXH3's of the bytes. Who can choose keys can make them collide. */
uint32_t map_hash_bytes(const void *data, size_t bytes);
/* A whole number's: all of its bits count (Knuth's multiplicative hashing, with
 * 2^64 over the golden ratio). */
static inline uint32_t map_hash_number(uint64_t number)
{
    number *= UINT64_C(0x9E3779B97F4A7C15);
    return (uint32_t)(number ^ number >> 32);
}

/* The next number that has this hash; *at is 0 before the first. */
static inline bool map_next(const struct map *map, uint32_t hash, size_t *at,
                            size_t *number)
{
    while (map->slot_count > 0) {
        const struct map_slot *slot =
            &map->slots[(hash + *at) & (map->slot_count - 1)];
        if (slot->number == 0)
            return false;
        ++*at;
        *number = slot->number - 1;
        if (slot->hash == hash)
            return true;
    }
    return false;
}
