/* Slots by hash, and their doubling. What lies in a table has its hash with it, so a
 * larger table is filled without asking the caller for keys. */
#include "src/base/map.h"

#include <assert.h>
#include <stdlib.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "src/base/new.h"

#define FIRST_SLOTS 64
/* A slot is found by 32 bits of hash, so more than 2^32 would stay free. */
#define COUNT_MAX ((size_t)UINT32_MAX / 2)

void map_free(struct map *map)
{
    free(map->slots);
    *map = (struct map){ 0 };
}

uint32_t map_hash_bytes(const void *data, size_t bytes)
{
    return (uint32_t)XXH3_64bits(data, bytes);
}

static void put(struct map *map, struct map_slot slot)
{
    size_t at = slot.hash & (map->slot_count - 1);
    while (map->slots[at].number != 0)
        at = (at + 1) & (map->slot_count - 1);
    map->slots[at] = slot;
}

enum err map_room(struct map *map, size_t count)
{
    struct map larger = { .slot_count = FIRST_SLOTS, .count = map->count };
    if (2 * count <= map->slot_count)
        return ERR_OK;
    if (count > COUNT_MAX)
        return err_set(ERR_MEMORY, "a map of %zu elements, at most %zu", count,
                       COUNT_MAX);
    while (larger.slot_count < 2 * count)
        larger.slot_count *= 2;
    TRY(new_zeroed(&larger.slots, larger.slot_count));
    assert((larger.slot_count & (larger.slot_count - 1)) == 0);
    for (size_t i = 0; i < map->slot_count; i++)
        if (map->slots[i].number != 0)
            put(&larger, map->slots[i]);
    free(map->slots);
    *map = larger;
    return ERR_OK;
}

enum err map_add(struct map *map, uint32_t hash, size_t number)
{
    assert(number < UINT32_MAX);
    TRY(map_room(map, map->count + 1));
    put(map, (struct map_slot){ hash, (uint32_t)number + 1 });
    map->count++;
    assert(2 * map->count <= map->slot_count);
    return ERR_OK;
}
