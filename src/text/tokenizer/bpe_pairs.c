/* A hash table of pairs, and a heap of those that wait. A pair's count changes
 * while it waits: it is compared again when it comes up, and sinks if it is
 * less by then. */
#include "src/text/tokenizer/bpe_pairs.h"

#include <assert.h>
#include <stdlib.h>

#include "src/base/new.h"

#define BPE_PAIRS_SLOTS ((size_t)1 << 16)

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
    uint32_t *slot; /* entry + 1; 0: free */
    size_t slots;   /* a power of two */
    uint32_t *touched;
    size_t touched_count, touched_capacity;
    struct bpe_pairs_waiting *heap;
    size_t waiting, heap_capacity;
};

enum err bpe_pairs_create(struct bpe_pairs **out)
{
    assert(out != NULL);
    struct bpe_pairs *pairs = NULL;
    TRY(new_zeroed(&pairs, 1));
    pairs->slots = BPE_PAIRS_SLOTS;
    enum err rc = new_zeroed(&pairs->slot, pairs->slots);
    if (rc == ERR_OK)
        *out = pairs;
    else
        free(pairs);
    return rc;
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
    free(pairs->slot);
    free(pairs->touched);
    free(pairs->heap);
    free(pairs);
}

static size_t bpe_pairs_hash(int32_t a, int32_t b)
{
    uint64_t key = (uint64_t)(uint32_t)a << 32 | (uint32_t)b;
    key *= 0x9E3779B97F4A7C15u;
    return (size_t)(key ^ key >> 32);
}

/* Room for one more element behind `count` of them. */
static enum err bpe_pairs_room(void *list, size_t count, size_t *capacity,
                               size_t bytes)
{
    void **data = list;
    if (count < *capacity)
        return ERR_OK;
    size_t larger = 2 * *capacity + 1024;
    void *grown = realloc(*data, larger * bytes);
    if (grown == NULL || larger >= UINT32_MAX)
        return err_set(ERR_MEMORY, "no memory for %zu pairs", larger);
    *data = grown;
    *capacity = larger;
    return ERR_OK;
}

static enum err bpe_pairs_more_slots(struct bpe_pairs *pairs)
{
    size_t slots = 2 * pairs->slots;
    uint32_t *slot = NULL;
    TRY(new_zeroed(&slot, slots));
    for (size_t e = 0; e < pairs->count; e++) {
        size_t s =
            bpe_pairs_hash(pairs->entry[e].a, pairs->entry[e].b) & (slots - 1);
        while (slot[s] != 0)
            s = (s + 1) & (slots - 1);
        slot[s] = (uint32_t)e + 1;
    }
    free(pairs->slot);
    pairs->slot = slot;
    pairs->slots = slots;
    return ERR_OK;
}

static enum err bpe_pairs_entry(struct bpe_pairs *pairs, int32_t a, int32_t b,
                                size_t *out)
{
    size_t s = bpe_pairs_hash(a, b) & (pairs->slots - 1);
    for (; pairs->slot[s] != 0; s = (s + 1) & (pairs->slots - 1)) {
        const struct bpe_pairs_entry *entry = &pairs->entry[pairs->slot[s] - 1];
        if (entry->a == a && entry->b == b) {
            *out = pairs->slot[s] - 1;
            return ERR_OK;
        }
    }
    TRY(bpe_pairs_room(&pairs->entry, pairs->count, &pairs->capacity,
                       sizeof *pairs->entry));
    *out = pairs->count;
    pairs->entry[pairs->count++] = (struct bpe_pairs_entry){ .a = a, .b = b };
    pairs->slot[s] = (uint32_t)pairs->count;
    return 2 * pairs->count > pairs->slots ? bpe_pairs_more_slots(pairs)
                                           : ERR_OK;
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
        TRY(bpe_pairs_room(&pairs->touched, pairs->touched_count,
                           &pairs->touched_capacity, sizeof *pairs->touched));
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

enum err bpe_pairs_settle(struct bpe_pairs *pairs)
{
    struct bpe_pairs_waiting waiting;
    for (size_t t = 0; t < pairs->touched_count; t++) {
        struct bpe_pairs_entry *entry = &pairs->entry[pairs->touched[t]];
        TRY(bpe_pairs_room(&pairs->heap, pairs->waiting, &pairs->heap_capacity,
                           sizeof *pairs->heap));
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
