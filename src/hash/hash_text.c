/* The text that tessera-hash trains on, made by arithmetic alone: a file would have
 * to be there, and floats might differ. Words are drawn twice and the lower number
 * is taken, so that low ones are frequent as in real text and there is something
 * to learn; each word's letters are a function of its number. */
#include "src/hash/hash_style.h"

#include <assert.h>

#include "src/base/rng.h"

#define SEED 17
#define WORDS 40

enum stream { STREAM_LENGTH, STREAM_LETTER, STREAM_TEXT };

/* Where the text is being written, and how much of it was drawn. */
struct writer {
    int32_t *tokens;
    int64_t at, count;
    uint64_t drawn;
};

/* A whole number below `bound`. */
static int text_draw(struct writer *writer, int bound)
{
    uint64_t bits = rng_u64(SEED, STREAM_TEXT, writer->drawn++);
    return (int)(bits % (uint64_t)bound);
}

static void text_put(struct writer *writer, int32_t token)
{
    if (writer->at < writer->count)
        writer->tokens[writer->at++] = token;
}

/* Two to eight letters that belong to the word's number; half of them vowels.
 */
static void put_word(struct writer *writer, int word)
{
    static const char letters[] = "aeioubdfglmnprst";
    uint64_t number = (uint64_t)word;
    int length = 2 + (int)(rng_u64(SEED, STREAM_LENGTH, number) % 7);
    uint64_t bits = rng_u64(SEED, STREAM_LETTER, number);
    for (int i = 0; i < length; i++, bits >>= 4) {
        uint64_t letter = i % 2 == 1 ? bits % 5 : 5 + bits % 11;
        text_put(writer, letters[letter]);
    }
}

static void put_sentence(struct writer *writer)
{
    int words = 3 + text_draw(writer, 7);
    for (int i = 0; i < words; i++) {
        int one = text_draw(writer, WORDS);
        int other = text_draw(writer, WORDS);
        if (i > 0)
            text_put(writer, ' ');
        put_word(writer, one < other ? one : other);
    }
    text_put(writer, '.');
}

void hash_text_fill(int32_t *tokens, int64_t count)
{
    assert(count >= 0);
    struct writer writer = { .tokens = tokens, .count = count };
    while (writer.at < writer.count) {
        int sentences = 1 + text_draw(&writer, 4);
        for (int i = 0; i < sentences; i++) {
            if (i > 0)
                text_put(&writer, ' ');
            put_sentence(&writer);
        }
        text_put(&writer, HASH_TEXT_EOS);
    }
}
