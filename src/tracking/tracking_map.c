/* Names by number, and their numbers by a map. It has several owners, since
 * records in the queues of sinks point to its names when the run that made it
 * has ended. */
#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/array.h"
#include "src/base/map.h"
#include "src/base/new.h"
#include "src/tracking/tracking_record.h"

struct tracking_map {
    atomic_int owners; /* the last of them destroys it */
    char **names;      /* [room] */
    int count, room;
    struct map numbers;
};

enum err tracking_map_create(struct tracking_map **out)
{
    struct tracking_map *map = NULL;
    TRY(new_zeroed(&map, 1));
    atomic_init(&map->owners, 1);
    *out = map;
    return ERR_OK;
}

struct tracking_map *tracking_map_hold(struct tracking_map *map)
{
    int before = atomic_fetch_add(&map->owners, 1);
    assert(before > 0); /* who holds it may hand it on */
    (void)before;
    return map;
}

void tracking_map_destroy(struct tracking_map *map)
{
    if (map == NULL || atomic_fetch_sub(&map->owners, 1) > 1)
        return;
    for (int i = 0; i < map->count; i++)
        free(map->names[i]);
    free(map->names);
    map_free(&map->numbers);
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

int tracking_map_find(const struct tracking_map *map, const char *name)
{
    uint32_t hash = map_hash_bytes(name, strlen(name));
    for (size_t at = 0, i; map_next(&map->numbers, hash, &at, &i);)
        if (strcmp(map->names[i], name) == 0)
            return (int)i;
    return -1;
}

enum err tracking_map_add(struct tracking_map *map, const char *name,
                          int *number)
{
    *number = tracking_map_find(map, name);
    if (*number >= 0)
        return ERR_OK;
    if (map->count == TRACKING_MAP_MAX)
        return err_set(ERR_DATA, "more than %d names", TRACKING_MAP_MAX);
    char *copy = NULL;
    TRY(array_room(&map->names, &map->room, map->count + 1));
    TRY(map_room(&map->numbers, (size_t)map->count + 1));
    TRY(new_text(&copy, name));
    *number = map->count;
    map->names[map->count++] = copy;
    assert((size_t)*number == map->numbers.count);
    return map_add(&map->numbers, map_hash_bytes(name, strlen(name)),
                   (size_t)*number);
}
