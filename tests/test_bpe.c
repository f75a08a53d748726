/* Words under random vocabularies, whose merges come in any order, against the
 * rule itself: of all pairs that merge the one of the lowest rank, the leftmost
 * of several, until none is left. */

#include "src/base/rng.h"
#include "src/text/tokenizer/bpe.h"
#include "tests/tap.h"

#define LETTERS 3
#define TOKENS 60

static uint64_t at;

static uint64_t below(uint64_t bound)
{
    return rng_u64(7, 0, at++) % bound;
}

/* Merges by rank; a pair that comes again has the later rank. */
struct merges {
    struct merge {
        int32_t left, right, both;
    } of[4 * TOKENS];
    int count;
};

/* Letters, then texts that two earlier tokens give; some merges twice. */
static struct bpe *random_bpe(struct merges *merges)
{
    static uint8_t text[TOKENS][64];
    size_t bytes[TOKENS];
    struct bpe *bpe = NULL;
    struct bpe_options options = { .bytes = true, .unk = -1 };
    int32_t token = LETTERS;
    if (bpe_create(&options, TOKENS, 4 * TOKENS, TOKENS, &bpe) != ERR_OK)
        abort();
    merges->count = 0;
    for (int32_t i = 0; i < LETTERS; i++) {
        text[i][0] = (uint8_t)('a' + i);
        bytes[i] = 1;
        if (bpe_add(bpe, i, text[i], 1, true) != ERR_OK)
            abort();
    }
    while (token < TOKENS) {
        int32_t left = (int32_t)below((uint64_t)token);
        int32_t right = (int32_t)below((uint64_t)token);
        if (bytes[left] + bytes[right] > 12)
            continue;
        memcpy(text[token], text[left], bytes[left]);
        memcpy(text[token] + bytes[left], text[right], bytes[right]);
        bytes[token] = bytes[left] + bytes[right];
        int32_t both = bpe_find(bpe, text[token], bytes[token]);
        if (both < 0) {
            both = token++;
            if (bpe_add(bpe, both, text[both], bytes[both], true) != ERR_OK)
                abort();
        }
        if (merges->count == 4 * TOKENS)
            break;
        merges->of[merges->count++] = (struct merge){ left, right, both };
    }
    for (int i = merges->count - 1; i > 0; i--) {
        int j = (int)below((uint64_t)i + 1);
        struct merge keep = merges->of[i];
        merges->of[i] = merges->of[j];
        merges->of[j] = keep;
    }
    for (int i = 0; i < merges->count; i++)
        bpe_merge(bpe, merges->of[i].left, merges->of[i].right,
                  merges->of[i].both);
    bpe_seal(bpe);
    return bpe;
}

static int rank_of(const struct merges *merges, int32_t left, int32_t right)
{
    for (int i = merges->count - 1; i >= 0; i--)
        if (merges->of[i].left == left && merges->of[i].right == right)
            return i;
    return merges->count;
}

/* The rule, in quadratic time. */
static size_t by_the_rule(const struct merges *merges, const uint8_t *word,
                          size_t bytes, int32_t *token)
{
    size_t count = bytes;
    for (size_t i = 0; i < bytes; i++)
        token[i] = word[i] - 'a';
    for (;;) {
        int best = merges->count;
        size_t where = 0;
        for (size_t i = 0; i + 1 < count; i++) {
            int rank = rank_of(merges, token[i], token[i + 1]);
            if (rank < best) {
                best = rank;
                where = i;
            }
        }
        if (best == merges->count)
            return count;
        token[where] = merges->of[best].both;
        memmove(token + where + 1, token + where + 2,
                (count - where - 2) * sizeof *token);
        count--;
    }
}

int main(void)
{
    int bad = 0, words = 0;
    for (int round = 0; round < 150; round++) {
        struct merges merges;
        struct bpe *bpe = random_bpe(&merges);
        struct bpe_word *work = NULL;
        struct token_list list = { 0 };
        if (bpe_word_create(bpe, &work) != ERR_OK)
            return 1;
        for (int w = 0; w < 40; w++) {
            uint8_t word[200];
            int32_t want[200];
            size_t bytes = 1 + below(w % 4 == 0 ? sizeof word : 60);
            uint64_t letters = 1 + below(LETTERS);
            for (size_t i = 0; i < bytes; i++)
                word[i] = (uint8_t)('a' + below(letters));
            list.count = 0;
            if (bpe_word_encode(work, word, bytes, &list) != ERR_OK)
                return 1;
            size_t count = by_the_rule(&merges, word, bytes, want);
            bad += count != list.count ||
                   memcmp(want, list.token, count * sizeof *want) != 0;
            words++;
        }
        free(list.token);
        bpe_word_destroy(work);
        bpe_destroy(bpe);
    }
    tap_is_int(bad, 0, "%d words by the rule", words);
    return tap_done();
}
