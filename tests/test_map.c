/* Maps against what is put into them: whole numbers, bytes, hashes that all
 * collide. */
#include "src/base/map.h"

#include "src/base/rng.h"
#include "tests/tap.h"

#define COUNT 100000

static uint64_t keys[COUNT];

/* The number of the key; COUNT: the map does not have it. */
static size_t find(const struct map *map, uint32_t hash, uint64_t key)
{
    for (size_t at = 0, i; map_next(map, hash, &at, &i);)
        if (keys[i] == key)
            return i;
    return COUNT;
}

static void check_numbers(void)
{
    struct map map = { 0 };
    size_t wrong = 0, early = 0;
    tap_ok(find(&map, 0, 0) == COUNT, "zeros have nothing");
    for (size_t i = 0; i < COUNT; i++) {
        keys[i] = i % 2 == 0 ? i : rng_u64(1, 2, i);
        early += find(&map, map_hash_number(keys[i]), keys[i]) != COUNT;
        wrong += map_add(&map, map_hash_number(keys[i]), i) != ERR_OK;
    }
    for (size_t i = 0; i < COUNT; i++)
        wrong += find(&map, map_hash_number(keys[i]), keys[i]) != i;
    tap_ok(map.count == COUNT && early == 0 && wrong == 0,
           "each key has its number, and has none before");
    tap_ok(find(&map, map_hash_number(COUNT + 1), COUNT + 1) == COUNT,
           "another key has none");
    map_free(&map);
    tap_ok(map.slots == NULL && map.count == 0, "zeros again");
}

static void check_collisions(void)
{
    struct map map = { 0 };
    size_t wrong = 0, at = 0, i, seen = 0;
    wrong += map_room(&map, 200) != ERR_OK;
    const struct map_slot *slots = map.slots;
    for (size_t k = 0; k < 200; k++) {
        keys[k] = k;
        wrong += map_add(&map, UINT32_MAX, k) != ERR_OK;
    }
    for (size_t k = 0; k < 200; k++)
        wrong += find(&map, UINT32_MAX, k) != k;
    tap_ok(wrong == 0, "keys of one hash, from the last slot on");
    while (map_next(&map, UINT32_MAX, &at, &i))
        seen++;
    tap_is_int((long long)seen, 200, "a search gives all of them");
    tap_ok(map.slots == slots, "and what there was room for moved nothing");
    map_free(&map);
}

static void check_bytes(void)
{
    tap_ok(map_hash_bytes("abc", 3) == map_hash_bytes("abcd", 3) &&
               map_hash_bytes("abc", 3) != map_hash_bytes("abd", 3),
           "a hash is of the bytes");
    tap_ok(map_hash_number(1) != map_hash_number(UINT64_C(1) << 32),
           "and all bits of a number count");
    struct map map = { 0 };
    tap_ok(map_room(&map, SIZE_MAX / 2) == ERR_MEMORY && map.slots == NULL,
           "what cannot be is refused");
}

int main(void)
{
    check_numbers();
    check_collisions();
    check_bytes();
    return tap_done();
}
