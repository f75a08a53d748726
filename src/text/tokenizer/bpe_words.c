/* Words by their bytes, which lie one behind the other.
 *
 * Learning merges from a text does not need the text: what happens to a word
 * happens to it wherever it stands. So it is enough to know each word once with
 * how often it occurs, and a thousand million words of text have a few million
 * of them, in which each merge is done once instead of in every place. */
#include "src/text/tokenizer/bpe_words.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/array.h"
#include "src/base/map.h"
#include "src/base/new.h"
#include "src/text/tokenizer/tokenizer_impl.h"

struct bpe_words_entry {
    size_t first; /* of its bytes */
    uint32_t hash, bytes;
    int64_t count;
};

struct bpe_words {
    const struct tokenizer *tokenizer;
    struct pretoken_work *work;
    struct buffer repaired;
    struct buffer text; /* of all words */
    struct bpe_words_entry *entry;
    size_t count, capacity;
    struct map numbers; /* of entries */
    int64_t left_out;
};

enum err bpe_words_create(const struct tokenizer *tokenizer,
                          struct bpe_words **out)
{
    assert(tokenizer->pretoken != NULL);
    struct bpe_words *words = NULL;
    TRY(new_zeroed(&words, 1));
    words->tokenizer = tokenizer;
    enum err rc = pretoken_work_create(&words->work);
    return new_or_none(rc, words, out, bpe_words_destroy);
}

void bpe_words_destroy(struct bpe_words *words)
{
    if (words == NULL)
        return;
    pretoken_work_destroy(words->work);
    buffer_free(&words->repaired);
    buffer_free(&words->text);
    free(words->entry);
    map_free(&words->numbers);
    free(words);
}

static enum err bpe_words_put(struct bpe_words *words, uint32_t hash,
                              const uint8_t *text, size_t bytes, int64_t count)
{
    for (size_t at = 0, i; map_next(&words->numbers, hash, &at, &i);) {
        struct bpe_words_entry *entry = &words->entry[i];
        if (entry->bytes == bytes &&
            memcmp(words->text.data + entry->first, text, bytes) == 0) {
            entry->count += count;
            return ERR_OK;
        }
    }
    size_t first = words->text.bytes;
    TRY(buffer_add(&words->text, text, bytes));
    TRY(array_room(&words->entry, &words->capacity, words->count + 1));
    TRY(map_add(&words->numbers, hash, words->count));
    words->entry[words->count++] =
        (struct bpe_words_entry){ first, hash, (uint32_t)bytes, count };
    return ERR_OK;
}

static enum err bpe_words_one(void *arg, const uint8_t *text, size_t bytes)
{
    struct bpe_words *words = arg;
    if (bytes > BPE_WORDS_BYTES_MAX) {
        words->left_out++;
        return ERR_OK;
    }
    return bpe_words_put(words, map_hash_bytes(text, bytes), text, bytes, 1);
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
