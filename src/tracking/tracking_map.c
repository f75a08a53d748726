/* Names in an open-addressing hash table of their numbers. */
#include "src/tracking/tracking_record.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/new.h"

#define FIRST_SLOTS 64 /* a power of two */

struct tracking_map {
    atomic_int owners;
    char **names; /* [room] */
    int count, room;
    int32_t *slots; /* [slot_count] number + 1; 0: free */
    size_t slot_count;
};

/* FNV-1a. Names come from the program and its settings, nobody chooses them to
 * collide. */
static uint64_t map_hash(const char *name)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (; *name != '\0'; name++)
        h = (h ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
    return h ^ h >> 32;
}

enum err tracking_map_create(struct tracking_map **out)
{
    struct tracking_map *map = NULL;
    TRY(new_zeroed(&map, 1));
    atomic_init(&map->owners, 1);
    map->room = FIRST_SLOTS / 2;
    map->slot_count = FIRST_SLOTS;
    map->names = calloc((size_t)map->room, sizeof map->names[0]);
    map->slots = calloc(map->slot_count, sizeof map->slots[0]);
    if (map->names == NULL || map->slots == NULL) {
        tracking_map_destroy(map);
        return err_set(ERR_MEMORY, "out of memory");
    }
    *out = map;
    return ERR_OK;
}

struct tracking_map *tracking_map_hold(struct tracking_map *map)
{
    atomic_fetch_add(&map->owners, 1);
    return map;
}

void tracking_map_destroy(struct tracking_map *map)
{
    if (map == NULL || atomic_fetch_sub(&map->owners, 1) > 1)
        return;
    for (int i = 0; i < map->count; i++)
        free(map->names[i]);
    free(map->names);
    free(map->slots);
    free(map);
}

int tracking_map_count(const struct tracking_map *map)
{
    return map->count;
}

const char *tracking_map_name(const struct tracking_map *map, int number)
{
    assert(number >= 0 && number < map->count);
    return map->names[number];
}

/* Where the name is, or would be. */
static int32_t *map_find(const struct tracking_map *map, const char *name)
{
    assert((map->slot_count & (map->slot_count - 1)) == 0);
    size_t at = map_hash(name) & (map->slot_count - 1);
    while (map->slots[at] != 0 &&
           strcmp(map->names[map->slots[at] - 1], name) != 0)
        at = (at + 1) & (map->slot_count - 1);
    return &map->slots[at];
}

int tracking_map_find(const struct tracking_map *map, const char *name)
{
    return *map_find(map, name) - 1;
}

/* Twice the room: the slots are never more than half full. */
static enum err map_grow(struct tracking_map *map)
{
    assert(map->count == map->room);
    size_t room = (size_t)map->room * 2;
    char **names = realloc(map->names, room * sizeof names[0]);
    if (names == NULL)
        return err_set(ERR_MEMORY, "out of memory");
    map->names = names;
    int32_t *slots = NULL;
    TRY(new_zeroed(&slots, room * 2));
    free(map->slots);
    map->slots = slots;
    map->slot_count = room * 2;
    map->room = (int)room;
    for (int i = 0; i < map->count; i++)
        *map_find(map, map->names[i]) = i + 1;
    return ERR_OK;
}

enum err tracking_map_add(struct tracking_map *map, const char *name,
                          int *number)
{
    *number = tracking_map_find(map, name);
    if (*number >= 0)
        return ERR_OK;
    if (map->count == TRACKING_MAP_MAX)
        return err_set(ERR_DATA, "more than %d names", TRACKING_MAP_MAX);
    if (map->count == map->room)
        TRY(map_grow(map));
    char *copy = NULL;
    TRY(new_text(&copy, name));
    *number = map->count;
    map->names[map->count++] = copy;
    *map_find(map, copy) = map->count;
    return ERR_OK;
}
