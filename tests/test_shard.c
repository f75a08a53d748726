/* Who owns what: every slot and element has exactly one owner, balanced. */
#include <stdint.h>

#include "kernels/kernels.h"
#include "src/parallel/shard.h"
#include "tests/tap.h"

static void test_slots(int ranks, int slots)
{
    bool good = shard_slot_begin(0, ranks, slots) == 0 &&
                shard_slot_begin(ranks, ranks, slots) == slots;
    for (int r = 0; r < ranks; r++) {
        int count = shard_slot_begin(r + 1, ranks, slots) -
                    shard_slot_begin(r, ranks, slots);
        good = good && count >= slots / ranks &&
               count <= (slots + ranks - 1) / ranks;
    }
    tap_ok(good, "%d slots on %d ranks: balanced and complete", slots, ranks);
}

static void test_elements(int ranks, int64_t chunks)
{
    int64_t elements = chunks * KERNEL_CHUNK;
    bool good = shard_begin(elements, 0, ranks) == 0 &&
                shard_begin(elements, ranks, ranks) == elements;
    for (int r = 0; r < ranks; r++) {
        int64_t begin = shard_begin(elements, r, ranks);
        int64_t count = shard_begin(elements, r + 1, ranks) - begin;
        good = good && begin % KERNEL_CHUNK == 0 &&
               count >= chunks / ranks * KERNEL_CHUNK &&
               count <= (chunks + ranks - 1) / ranks * KERNEL_CHUNK &&
               count <= elements - shard_begin(elements, ranks - 1, ranks);
    }
    tap_ok(good, "%lld chunks on %d ranks: whole chunks, balanced, complete",
           (long long)chunks, ranks);
}

int main(void)
{
    static const struct {
        int ranks, slots;
    } slots[] = { { 1, 1 }, { 3, 3 },   { 2, 3 },       { 4, 9 },
                  { 7, 8 }, { 64, 65 }, { 4096, 65536 } };
    static const struct {
        int ranks;
        int64_t chunks;
    } elements[] = { { 1, 1 },  { 4, 1 },      { 3, 7 },
                     { 8, 64 }, { 1000, 999 }, { 4096, 8000000000 } };
    for (unsigned i = 0; i < sizeof slots / sizeof slots[0]; i++)
        test_slots(slots[i].ranks, slots[i].slots);
    for (unsigned i = 0; i < sizeof elements / sizeof elements[0]; i++)
        test_elements(elements[i].ranks, elements[i].chunks);
    tap_is_int(shard_slot_begin(1, 2, 3), 1, "rank 1 of 2 begins at slot 1");
    tap_is_int(shard_begin(7 * KERNEL_CHUNK, 1, 3), 2 * KERNEL_CHUNK,
               "rank 1 of 3 begins at the third of 7 chunks");
    return tap_done();
}
