/* Who owns what: every slot and element has exactly one owner, balanced. */

#include "src/parallel/owner.h"
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

#define TENSORS_MAX 24
#define RANKS_MAX 40

static uint64_t state = 1;

static int64_t below(int64_t bound)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((state >> 33) % (uint64_t)bound);
}

/* Tensors of a few elements up to some chunks, in blocks that begin at chunks;
 * gaps as alignment makes them. */
static void random_layout(struct params *params)
{
    int64_t at = 0;
    params->count = 1 + (int)below(TENSORS_MAX);
    for (int p = 0; p < params->count; p++) {
        struct param *param = &params->list[p];
        bool matrix = below(3) > 0;
        param->dims = matrix ? 2 : 1;
        param->numel = 1 + below(matrix && below(2) > 0 ? 5 * KERNEL_CHUNK
                                                        : KERNEL_CHUNK / 2);
        if (below(3) == 0)
            at = (at + KERNEL_CHUNK - 1) / KERNEL_CHUNK * KERNEL_CHUNK;
        param->offset = (at + 15) / 16 * 16;
        at = param->offset + param->numel;
    }
    params->elements = (at + KERNEL_CHUNK - 1) / KERNEL_CHUNK * KERNEL_CHUNK;
}

static bool cuts_tensor(const struct params *params, int64_t at)
{
    for (int p = 0; p < params->count; p++) {
        const struct param *param = &params->list[p];
        if (at > param->offset && at < param->offset + param->numel)
            return true;
    }
    return false;
}

/* The shortest longest interval, from all places where a cut may be:
 * best[i] is that of the first i chunks, one rank more in each round. */
static int64_t best_longest(const struct params *params, int ranks)
{
    int chunks = (int)(params->elements / KERNEL_CHUNK);
    int64_t best[TENSORS_MAX * 7];
    for (int i = 0; i <= chunks; i++)
        best[i] = i;
    for (int r = 1; r < ranks; r++)
        for (int i = chunks; i >= 0; i--)
            for (int from = 0; from <= i; from++) {
                int64_t longest = i - from;
                if (cuts_tensor(params, (int64_t)from * KERNEL_CHUNK))
                    continue;
                longest = best[from] > longest ? best[from] : longest;
                best[i] = longest < best[i] ? longest : best[i];
            }
    return best[chunks] * KERNEL_CHUNK;
}

/* Every element is one rank's, as intervals follow each other from 0 on to the
 * end, and so is every tensor. */
static bool whole_is_good(const struct params *params, int ranks)
{
    int64_t cut[RANKS_MAX + 1], longest = 0;
    struct owner *owner = NULL;
    shard_cut_whole(params, ranks, cut);
    bool good = cut[0] == 0 && cut[ranks] == params->elements;
    for (int r = 0; r < ranks; r++) {
        int64_t count = cut[r + 1] - cut[r];
        good = good && count >= 0 && cut[r] % KERNEL_CHUNK == 0 &&
               !cuts_tensor(params, cut[r]);
        longest = count > longest ? count : longest;
    }
    good = good && longest == best_longest(params, ranks);
    good = good && owner_create(params, OWNER_CUT_WHOLE, OWNER_LARGEST, ranks,
                                1, 1, &owner) == ERR_OK;
    good = good && owner->own == longest &&
           owner_begin(owner, 0, owner->rank) == cut[owner->rank];
    owner_destroy(owner);
    return good;
}

static void test_whole(void)
{
    struct param list[TENSORS_MAX] = { 0 };
    struct params params = { .list = list };
    int wrong = 0;
    for (int i = 0; i < 300; i++) {
        random_layout(&params);
        for (int k = 0; k < 3; k++)
            wrong += !whole_is_good(&params, 1 + (int)below(RANKS_MAX));
    }
    tap_is_int(wrong, 0, "whole tensors: complete, balanced as well as can be");
}

/* Each partition of each block is one rank's, and the rank of a place is the one
 * that has it; `layers` blocks of a size among others are even to a chunk. */
static void test_blocks(int ranks, int degree, int layers, int64_t chunks)
{
    enum { BLOCKS_MAX = 100 };
    struct param_block blocks[BLOCKS_MAX] = { 0 };
    struct params params = { .blocks = blocks, .block_count = layers + 2 };
    int64_t least = INT64_MAX, most = 0, largest = 0, total = 0;
    int wrong = 0;
    for (int b = 0; b < params.block_count; b++) {
        int64_t size = b == 0 ? 7 * chunks + 5 : b <= layers ? chunks : 1;
        blocks[b].offset = params.elements;
        blocks[b].elements = size * KERNEL_CHUNK;
        params.elements += blocks[b].elements;
    }
    for (int r = ranks - 1; r >= OWNER_LARGEST; r--) {
        struct owner *owner = NULL;
        int64_t own = 0;
        if (owner_create(&params, OWNER_CUT_BLOCKS, r, ranks, degree, 1,
                         &owner) != ERR_OK)
            tap_ok(false, "%s", err_text());
        for (int b = 0; r >= 0 && b < params.block_count; b++) {
            const struct owner_block *block = &owner->blocks[b];
            int place = owner_place(owner, b, r);
            wrong += owner_rank_at(owner, b, place) != r ||
                     block->begin != owner_begin(owner, b, place) ||
                     block->begin < block->shard_begin ||
                     block->end > block->shard_end;
            own += b > 0 && b <= layers ? block->end - block->begin : 0;
        }
        total += r >= 0 ? owner->own : 0;
        wrong += r == OWNER_LARGEST && owner->own != largest;
        largest = owner->own > largest ? owner->own : largest;
        least = r >= 0 && own < least ? own : least;
        most = own > most ? own : most;
        owner_destroy(owner);
    }
    tap_ok(wrong == 0 && total == params.elements,
           "%d ranks in groups of %d: every partition is one rank's", ranks,
           degree);
    if (degree == 1 || degree == ranks)
        tap_ok(most - least <= KERNEL_CHUNK, "%d blocks are even to a chunk",
               layers);
}

int main(void)
{
    static const struct {
        int ranks, degree, layers;
        int64_t chunks;
    } blocks[] = { { 1, 1, 3, 5 },      { 4, 4, 3, 2 },
                   { 4, 1, 4, 3 },      { 12, 3, 90, 17 },
                   { 64, 8, 80, 100 },  { 100, 100, 80, 317 },
                   { 100, 1, 80, 317 }, { 96, 48, 33, 5 },
                   { 9, 9, 98, 1 } };
    for (unsigned i = 0; i < sizeof blocks / sizeof blocks[0]; i++)
        test_blocks(blocks[i].ranks, blocks[i].degree, blocks[i].layers,
                    blocks[i].chunks);
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
    test_whole();
    return tap_done();
}
