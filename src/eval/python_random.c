/* CPython's random numbers, and the order of its sets.
 *
 * The Mersenne Twister has a state of 624 words x[0..623]. When they are used up
 * all are made anew, each from itself, its neighbour and the one 397 further on:
 *
 *   y = top bit of x[i], the other 31 of x[i + 1]
 *   x[i] = x[i + 397] ^ y >> 1 ^ (0x9908b0df if y is odd)
 *
 * and what is drawn is a word whose bits were mixed once more (tempering). Python
 * starts it by the reference's init_by_array(), also of a small number: the seed
 * in words of 32 bits, the lowest first, is the array.
 *
 * What is made of the words is CPython's Lib/random.py. A number below n is
 * getrandbits() of as many bits as n has, drawn again while it is not below n;
 * no remainder, so all are equally likely. sample() has two ways with different
 * results, of which it takes the one that needs less memory by its reckoning. */
#include "src/eval/python_random.h"

#include <assert.h>
#include <stdlib.h>

#include "src/base/new.h"

#define WORDS PYTHON_RANDOM_WORDS
#define MIDDLE 397

/* MT19937's start from one number, which the start from several begins with. */
static void start_from(struct python_random *random, uint32_t seed)
{
    uint32_t *word = random->word;
    word[0] = seed;
    for (uint32_t i = 1; i < WORDS; i++)
        word[i] = UINT32_C(1812433253) * (word[i - 1] ^ word[i - 1] >> 30) + i;
}

void python_random_seed(struct python_random *random, uint64_t seed)
{
    const uint32_t key[2] = { (uint32_t)seed, (uint32_t)(seed >> 32) };
    int keys = key[1] != 0 ? 2 : 1;
    uint32_t *word = random->word;
    int i = 1, j = 0;
    start_from(random, 19650218);
    for (int k = WORDS; k > 0; k--) {
        uint32_t last = word[i - 1] ^ word[i - 1] >> 30;
        word[i] = (word[i] ^ last * UINT32_C(1664525)) + key[j] + (uint32_t)j;
        j = j + 1 < keys ? j + 1 : 0;
        if (++i == WORDS) {
            word[0] = word[WORDS - 1];
            i = 1;
        }
    }
    for (int k = WORDS - 1; k > 0; k--) {
        uint32_t last = word[i - 1] ^ word[i - 1] >> 30;
        word[i] = (word[i] ^ last * UINT32_C(1566083941)) - (uint32_t)i;
        if (++i == WORDS) {
            word[0] = word[WORDS - 1];
            i = 1;
        }
    }
    word[0] = UINT32_C(0x80000000);
    random->next = WORDS;
}

/* In place: word i + 397 is an old one up to the 227th and a new one behind it,
 * as the recurrence wants. */
static void refill(struct python_random *random)
{
    uint32_t *word = random->word;
    for (int i = 0; i < WORDS; i++) {
        uint32_t y = (word[i] & UINT32_C(0x80000000)) |
                     (word[(i + 1) % WORDS] & UINT32_C(0x7fffffff));
        word[i] = word[(i + MIDDLE) % WORDS] ^ y >> 1 ^
                  ((y & 1) != 0 ? UINT32_C(0x9908b0df) : 0);
    }
    random->next = 0;
}

uint32_t python_random_bits(struct python_random *random, int bits)
{
    assert(bits >= 1 && bits <= 32);
    if (random->next == WORDS)
        refill(random);
    uint32_t y = random->word[random->next++];
    y ^= y >> 11;
    y ^= y << 7 & UINT32_C(0x9d2c5680);
    y ^= y << 15 & UINT32_C(0xefc60000);
    y ^= y >> 18;
    return y >> (32 - bits);
}

int64_t python_random_choice(struct python_random *random, int64_t n)
{
    assert(n > 0 && n <= UINT32_MAX);
    int bits = 64 - __builtin_clzll((uint64_t)n);
    int64_t drawn;
    do
        drawn = python_random_bits(random, bits);
    while (drawn >= n);
    return drawn;
}

/* Up to so many elements sample() draws from a list of all: 21, "the size of a
 * small set minus the size of an empty list", and for more than 5 of them a
 * set's table, 4 ** ceil(log(3 k, 4)). */
static int64_t pool_max(int64_t k)
{
    int64_t table = 1;
    if (k <= 5)
        return 21;
    while (table < 3 * k)
        table *= 4;
    return 21 + table;
}

/* All are listed; what is drawn is replaced by the last. */
static enum err sample_of_pool(struct python_random *random, int64_t n,
                               int64_t k, int64_t *out)
{
    int64_t *pool = NULL;
    TRY(new_room(&pool, (size_t)(n + 1)));
    for (int64_t i = 0; i < n; i++)
        pool[i] = i;
    for (int64_t i = 0; i < k; i++) {
        int64_t drawn = python_random_choice(random, n - i);
        out[i] = pool[drawn];
        pool[drawn] = pool[n - i - 1];
    }
    free(pool);
    return ERR_OK;
}

enum err python_random_sample(struct python_random *random, int64_t n,
                              int64_t k, int64_t *out)
{
    enum err rc = ERR_OK;
    struct python_set seen = { 0 };
    assert(k >= 0 && k <= n && n <= UINT32_MAX);
    if (n <= pool_max(k))
        return sample_of_pool(random, n, k, out);
    for (int64_t i = 0; i < k && rc == ERR_OK; i++) {
        do
            out[i] = python_random_choice(random, n);
        while (python_set_has(&seen, out[i]));
        rc = python_set_add(&seen, out[i]);
    }
    python_set_free(&seen);
    return rc;
}

/* --- sets ---------------------------------------------------------------- */

/* As in Objects/setobject.c. A set is a table of 2^n slots. A number goes to the
 * slot of its lowest bits or, if that is taken, to one of the 9 behind it, then
 * on to a place that its higher bits choose, more of them each time. The order of
 * iteration is that of the slots: it depends on the table's size, so on when it
 * has grown (at 3/5, to four times what is in it, or twice of many), and on what
 * was removed, whose slot is not empty but stays taken until the next growth. */

#define SET_SLOTS_MIN 8
#define SET_NEIGHBOURS 9 /* slots that are looked at one after the other */
#define SET_EMPTY (-1)
#define SET_REMOVED (-2)

/* The slot that has the number, or the empty one where it would go. Removed
 * numbers keep their slots. A number is its own hash. */
static size_t set_find(const int64_t *slot, size_t mask, int64_t number)
{
    size_t perturb = (size_t)number, i = (size_t)number & mask;
    for (;;) {
        size_t neighbours = i + SET_NEIGHBOURS <= mask ? SET_NEIGHBOURS : 0;
        for (size_t at = i; at <= i + neighbours; at++)
            if (slot[at] == number || slot[at] == SET_EMPTY)
                return at;
        perturb >>= 5;
        i = (i * 5 + 1 + perturb) & mask;
    }
}

/* A table of more than `least` slots, into which the old one's numbers go in
 * their order; those that were removed are forgotten. */
static enum err set_resize(struct python_set *set, size_t least)
{
    size_t slots = SET_SLOTS_MIN;
    while (slots <= least)
        slots *= 2;
    int64_t *slot = NULL;
    assert(set->used < slots);
    TRY(new_room(&slot, slots));
    for (size_t i = 0; i < slots; i++)
        slot[i] = SET_EMPTY;
    for (size_t i = 0; set->slot != NULL && i <= set->mask; i++)
        if (set->slot[i] >= 0)
            slot[set_find(slot, slots - 1, set->slot[i])] = set->slot[i];
    free(set->slot);
    set->slot = slot;
    set->mask = slots - 1;
    set->fill = set->used;
    return ERR_OK;
}

enum err python_set_add(struct python_set *set, int64_t number)
{
    assert(number >= 0);
    if (set->slot == NULL)
        TRY(set_resize(set, 0));
    size_t at = set_find(set->slot, set->mask, number);
    if (set->slot[at] == number)
        return ERR_OK;
    set->slot[at] = number;
    set->fill++;
    set->used++;
    if (set->fill * 5 < set->mask * 3)
        return ERR_OK;
    return set_resize(set, set->used * (set->used > 50000 ? 2 : 4));
}

void python_set_remove(struct python_set *set, int64_t number)
{
    assert(number >= 0);
    if (set->slot == NULL)
        return;
    size_t at = set_find(set->slot, set->mask, number);
    if (set->slot[at] != number)
        return;
    set->slot[at] = SET_REMOVED;
    set->used--;
}

bool python_set_has(const struct python_set *set, int64_t number)
{
    assert(number >= 0 && set->used <= set->fill);
    return set->slot != NULL &&
           set->slot[set_find(set->slot, set->mask, number)] == number;
}

void python_set_list(const struct python_set *set, int64_t *out)
{
    size_t count = 0;
    for (size_t i = 0; set->slot != NULL && i <= set->mask; i++)
        if (set->slot[i] >= 0)
            out[count++] = set->slot[i];
    assert(count == set->used);
}

void python_set_free(struct python_set *set)
{
    free(set->slot);
    *set = (struct python_set){ 0 };
}
