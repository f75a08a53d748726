/* A hash table of words; their bytes lie one behind the other. */
#include "src/text/tokenizer/bpe_words.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "src/base/array.h"
#include "src/base/new.h"
#include "src/text/tokenizer/tokenizer_impl.h"

struct bpe_words_entry {
    uint64_t hash;
    size_t first; /* of its bytes */
    uint32_t bytes;
    int64_t count;
};

struct bpe_words {
    const struct tokenizer *tokenizer;
    struct pretoken_work *work;
    struct buffer repaired;
    struct buffer text; /* of all words */
    struct bpe_words_entry *entry;
    size_t count, capacity;
    uint32_t *slot; /* entry + 1; 0: free */
    size_t slots;   /* a power of two */
    int64_t left_out;
};

#define BPE_WORDS_SLOTS ((size_t)1 << 12)

enum err bpe_words_create(const struct tokenizer *tokenizer,
                          struct bpe_words **out)
{
    assert(tokenizer->pretoken != NULL);
    enum err rc = ERR_OK;
    struct bpe_words *words = NULL;
    TRY(new_zeroed(&words, 1));
    words->tokenizer = tokenizer;
    words->slots = BPE_WORDS_SLOTS;
    TRY_OUT(new_zeroed(&words->slot, words->slots));
    TRY_OUT(pretoken_work_create(&words->work));
    *out = words;
    words = NULL;
out:
    bpe_words_destroy(words);
    return rc;
}

void bpe_words_destroy(struct bpe_words *words)
{
    if (words == NULL)
        return;
    pretoken_work_destroy(words->work);
    buffer_free(&words->repaired);
    buffer_free(&words->text);
    free(words->entry);
    free(words->slot);
    free(words);
}

static enum err bpe_words_grow(struct bpe_words *words)
{
    if (words->count == words->capacity) {
        size_t capacity = 2 * words->capacity + BPE_WORDS_SLOTS / 2;
        struct bpe_words_entry *entry =
            realloc(words->entry, capacity * sizeof *entry);
        if (entry == NULL || capacity >= UINT32_MAX)
            return err_set(ERR_MEMORY, "no memory for %zu words", capacity);
        words->entry = entry;
        words->capacity = capacity;
    }
    if (2 * words->count < words->slots)
        return ERR_OK;
    size_t slots = 2 * words->slots;
    uint32_t *slot = NULL;
    TRY(new_zeroed(&slot, slots));
    for (size_t e = 0; e < words->count; e++) {
        size_t s = words->entry[e].hash & (slots - 1);
        while (slot[s] != 0)
            s = (s + 1) & (slots - 1);
        slot[s] = (uint32_t)e + 1;
    }
    free(words->slot);
    words->slot = slot;
    words->slots = slots;
    return ERR_OK;
}

static enum err bpe_words_put(struct bpe_words *words, uint64_t hash,
                              const uint8_t *text, size_t bytes, int64_t count)
{
    size_t s = hash & (words->slots - 1);
    for (; words->slot[s] != 0; s = (s + 1) & (words->slots - 1)) {
        struct bpe_words_entry *entry = &words->entry[words->slot[s] - 1];
        if (entry->hash == hash && entry->bytes == bytes &&
            memcmp(words->text.data + entry->first, text, bytes) == 0) {
            entry->count += count;
            return ERR_OK;
        }
    }
    size_t first = words->text.bytes;
    TRY(buffer_add(&words->text, text, bytes));
    TRY(bpe_words_grow(words));
    s = hash & (words->slots - 1);
    while (words->slot[s] != 0)
        s = (s + 1) & (words->slots - 1);
    words->entry[words->count] =
        (struct bpe_words_entry){ hash, first, (uint32_t)bytes, count };
    words->slot[s] = (uint32_t)++words->count;
    return ERR_OK;
}

static enum err bpe_words_one(void *arg, const uint8_t *text, size_t bytes)
{
    struct bpe_words *words = arg;
    if (bytes > BPE_WORDS_BYTES_MAX) {
        words->left_out++;
        return ERR_OK;
    }
    return bpe_words_put(words, XXH3_64bits(text, bytes), text, bytes, 1);
}

enum err bpe_words_add(struct bpe_words *words, const uint8_t *text,
                       size_t bytes)
{
    const struct tokenizer *tokenizer = words->tokenizer;
    if (unicode_valid(text, bytes) < bytes) {
        words->repaired.bytes = 0;
        TRY(unicode_repair(text, bytes, &words->repaired));
        text = words->repaired.data;
        bytes = words->repaired.bytes;
    }
    return pretoken_run(tokenizer->pretoken, tokenizer->unicode, words->work,
                        PRETOKEN_FIRST, text, bytes, bpe_words_one, words);
}

enum err bpe_words_merge(struct bpe_words *words, const struct bpe_words *other)
{
    for (size_t e = 0; e < other->count; e++) {
        const struct bpe_words_entry *entry = &other->entry[e];
        TRY(bpe_words_put(words, entry->hash, other->text.data + entry->first,
                          entry->bytes, entry->count));
    }
    words->left_out += other->left_out;
    return ERR_OK;
}

size_t bpe_words_count(const struct bpe_words *words)
{
    return words->count;
}

struct bpe_word bpe_words_at(const struct bpe_words *words, size_t i)
{
    assert(i < words->count);
    const struct bpe_words_entry *entry = &words->entry[i];
    return (struct bpe_word){ words->text.data + entry->first, entry->bytes,
                              entry->count };
}

int64_t bpe_words_left_out(const struct bpe_words *words)
{
    return words->left_out;
}
