/* A hash table of pairs, and a heap of those that wait. A pair's count changes
 * while it waits: it is compared again when it comes up, and sinks if it is
 * less by then.
 *
 * Pairs also keep the words in which they have become more, so that a merge
 * goes to those words and no others. A word stays in the list of a pair that it
 * has lost meanwhile: to go there in vain is cheaper than to take it out. */
#include "src/text/tokenizer/bpe_pairs.h"

#include <assert.h>
#include <stdlib.h>

#include "src/base/array.h"
#include "src/base/map.h"
#include "src/base/new.h"

struct bpe_pairs_entry {
    int32_t a, b;
    int64_t count;
    /* words in which it became more since the last settling */
    uint32_t *word;
    uint32_t words, capacity;
};

/* What waits to be merged. */
struct bpe_pairs_waiting {
    int64_t count; /* when it was put here */
    uint32_t entry;
    uint32_t words;
    uint32_t *word;
};

struct bpe_pairs {
    struct bpe_pairs_entry *entry;
    size_t count, capacity;
    struct map numbers; /* of entries, by both tokens */
    uint32_t *touched;
    size_t touched_count, touched_capacity;
    struct bpe_pairs_waiting *heap;
    size_t waiting, heap_capacity;
};

enum err bpe_pairs_create(struct bpe_pairs **out)
{
    assert(out != NULL);
    return new_zeroed(out, 1);
}

void bpe_pairs_destroy(struct bpe_pairs *pairs)
{
    if (pairs == NULL)
        return;
    for (size_t e = 0; e < pairs->count; e++)
        free(pairs->entry[e].word);
    for (size_t h = 0; h < pairs->waiting; h++)
        free(pairs->heap[h].word);
    free(pairs->entry);
    map_free(&pairs->numbers);
    free(pairs->touched);
    free(pairs->heap);
    free(pairs);
}

static enum err bpe_pairs_entry(struct bpe_pairs *pairs, int32_t a, int32_t b,
                                size_t *out)
{
    uint32_t hash = map_hash_number((uint64_t)(uint32_t)a << 32 | (uint32_t)b);
    for (size_t at = 0; map_next(&pairs->numbers, hash, &at, out);)
        if (pairs->entry[*out].a == a && pairs->entry[*out].b == b)
            return ERR_OK;
    TRY(array_room(&pairs->entry, &pairs->capacity, pairs->count + 1));
    TRY(map_add(&pairs->numbers, hash, pairs->count));
    *out = pairs->count;
    pairs->entry[pairs->count++] = (struct bpe_pairs_entry){ .a = a, .b = b };
    return ERR_OK;
}

enum err bpe_pairs_add(struct bpe_pairs *pairs, int32_t a, int32_t b,
                       int64_t times, uint32_t word)
{
    size_t e = 0;
    TRY(bpe_pairs_entry(pairs, a, b, &e));
    struct bpe_pairs_entry *entry = &pairs->entry[e];
    entry->count += times;
    if (times < 0 ||
        (entry->words > 0 && entry->word[entry->words - 1] == word))
        return ERR_OK;
    if (entry->words == 0) {
        TRY(array_room(&pairs->touched, &pairs->touched_capacity,
                       pairs->touched_count + 1));
        pairs->touched[pairs->touched_count++] = (uint32_t)e;
    }
    if (entry->words == entry->capacity) {
        uint32_t capacity = entry->capacity == 0 ? 2 : 2 * entry->capacity;
        uint32_t *list = realloc(entry->word, capacity * sizeof *list);
        if (list == NULL)
            return err_set(ERR_MEMORY, "no memory for %u words", capacity);
        entry->word = list;
        entry->capacity = capacity;
    }
    entry->word[entry->words++] = word;
    return ERR_OK;
}

/* Whether x is popped before y. */
static bool bpe_pairs_before(const struct bpe_pairs *pairs,
                             const struct bpe_pairs_waiting *x,
                             const struct bpe_pairs_waiting *y)
{
    const struct bpe_pairs_entry *a = &pairs->entry[x->entry];
    const struct bpe_pairs_entry *b = &pairs->entry[y->entry];
    if (x->count != y->count)
        return x->count > y->count;
    return a->a != b->a ? a->a < b->a : a->b < b->b;
}

static void bpe_pairs_sink(struct bpe_pairs *pairs, size_t at)
{
    struct bpe_pairs_waiting *heap = pairs->heap, moved = heap[at];
    for (;;) {
        size_t child = 2 * at + 1;
        if (child + 1 < pairs->waiting &&
            bpe_pairs_before(pairs, &heap[child + 1], &heap[child]))
            child++;
        if (child >= pairs->waiting ||
            !bpe_pairs_before(pairs, &heap[child], &moved))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moved;
}

/* A pair becomes more only by a merge that makes it, so it gets in the heap
 * once for each such merge with the words of that one. */
enum err bpe_pairs_settle(struct bpe_pairs *pairs)
{
    struct bpe_pairs_waiting waiting;
    for (size_t t = 0; t < pairs->touched_count; t++) {
        struct bpe_pairs_entry *entry = &pairs->entry[pairs->touched[t]];
        TRY(array_room(&pairs->heap, &pairs->heap_capacity,
                       pairs->waiting + 1));
        waiting = (struct bpe_pairs_waiting){ entry->count, pairs->touched[t],
                                              entry->words, entry->word };
        entry->word = NULL;
        entry->words = entry->capacity = 0;
        if (waiting.count <= 0) {
            free(waiting.word);
            continue;
        }
        size_t at = pairs->waiting++;
        for (; at > 0 &&
               bpe_pairs_before(pairs, &waiting, &pairs->heap[(at - 1) / 2]);
             at = (at - 1) / 2)
            pairs->heap[at] = pairs->heap[(at - 1) / 2];
        pairs->heap[at] = waiting;
    }
    pairs->touched_count = 0;
    return ERR_OK;
}

bool bpe_pairs_pop(struct bpe_pairs *pairs, struct bpe_pairs_top *out)
{
    assert(out != NULL);
    while (pairs->waiting > 0) {
        struct bpe_pairs_waiting *top = &pairs->heap[0];
        const struct bpe_pairs_entry *entry = &pairs->entry[top->entry];
        if (top->count != entry->count) {
            top->count = entry->count;
            bpe_pairs_sink(pairs, 0);
            continue;
        }
        *out = (struct bpe_pairs_top){ entry->a, entry->b, top->count,
                                       top->word, top->words };
        *top = pairs->heap[--pairs->waiting];
        if (pairs->waiting > 0)
            bpe_pairs_sink(pairs, 0);
        return true;
    }
    return false;
}
