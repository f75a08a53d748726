/* Tokenizes a text and what is as far from one as can be. */
#include "src/cmd/bench_data_text.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/base/fsio.h"
#include "src/base/rng.h"
#include "src/text/tokenizer/tokenizer.h"

#define TEXT_BYTES ((size_t)8 << 20)
#define TEXT_BYTES_MAX ((size_t)64 << 20)
#define HARD_BYTES ((size_t)1 << 20)
#define ROUNDS 5
#define WORDS 20000
#define WORD_BYTES 16

struct input {
    const char *name;
    uint8_t *text;
    size_t bytes;
    double best_s; /* of a round */
};

/* A pronounceable word, always the same for a number. */
static size_t make_word(uint64_t number, char word[WORD_BYTES])
{
    static const char first[] = "bcdfghjklmnprstvw", second[] = "aeiou";
    size_t bytes = 0, syllables = 1 + rng_u64(1, number, 0) % 3;
    for (size_t s = 0; s < syllables; s++) {
        uint64_t draw = rng_u64(1, number, 1 + s);
        word[bytes++] = first[draw % (sizeof first - 1)];
        word[bytes++] = second[draw / 32 % (sizeof second - 1)];
        if (draw / 1024 % 2 == 0)
            word[bytes++] = first[draw / 4096 % (sizeof first - 1)];
    }
    return bytes;
}

/* Sentences of words that are the rarer the higher their number, as in a
 * language, with some numbers among them. */
static size_t make_text(char *text, size_t room)
{
    size_t at = 0, length = 0;
    for (uint64_t i = 0; at + 2 * WORD_BYTES < room; i++) {
        uint64_t draw = rng_u64(2, 0, i);
        uint64_t range = (uint64_t)1 << (draw % 15);
        uint64_t number = (draw >> 20) % (range < WORDS ? range : WORDS);
        char *word = text + at;
        if (draw % 61 == 0)
            at += (size_t)sprintf(word, "%u", (unsigned)(draw >> 40) % 3000);
        else
            at += make_word(number, word);
        if (length == 0 && word[0] >= 'a')
            word[0] = (char)(word[0] - 'a' + 'A');
        length = length < 6 + draw % 9 ? length + 1 : 0;
        if (length == 0)
            text[at++] = '.';
        else if (draw % 13 == 0)
            text[at++] = ',';
        text[at++] = length == 0 && draw % 5 == 0 ? '\n' : ' ';
    }
    return at;
}

static enum err read_text(struct input *input)
{
    const char *path = getenv("TESSERA_BENCH_TEXT");
    char *text = NULL;
    input->name = "text";
    if (path != NULL && path[0] != '\0') {
        TRY(fsio_read_file(path, TEXT_BYTES_MAX, &text, &input->bytes));
        input->text = (uint8_t *)text;
        return input->bytes > 0 ? ERR_OK
                                : err_set(ERR_DATA, "%s: is empty", path);
    }
    text = malloc(TEXT_BYTES);
    if (text == NULL)
        return err_set(ERR_MEMORY, "no memory for a text");
    input->text = (uint8_t *)text;
    input->bytes = make_text(text, TEXT_BYTES);
    return ERR_OK;
}

/* The unit over and over; NULL: bytes at random. */
static enum err repeat(struct input *input, const char *name, const char *unit)
{
    size_t bytes = unit != NULL ? strlen(unit) : 0;
    input->name = name;
    input->bytes = HARD_BYTES;
    input->text = malloc(HARD_BYTES);
    if (input->text == NULL)
        return err_set(ERR_MEMORY, "no memory for a text");
    for (size_t i = 0; i < HARD_BYTES; i++)
        input->text[i] =
            unit != NULL ? (uint8_t)unit[i % bytes] : (uint8_t)rng_u64(3, 0, i);
    return ERR_OK;
}

static enum err measure(struct tokenizer_encoder *encoder, struct input *input,
                        struct token_list *tokens)
{
    tokens->count = 0;
    double begin = clock_now();
    TRY(tokenizer_encode(encoder, input->text, input->bytes, 0, tokens));
    double seconds = clock_now() - begin;
    if (input->best_s == 0 || seconds < input->best_s)
        input->best_s = seconds;
    return ERR_OK;
}

static void report(const struct input *input, size_t inputs, size_t tokens,
                   const struct tokenizer *tokenizer, json_t *result)
{
    double text = input[0].best_s / (double)input[0].bytes;
    size_t worst = 1;
    for (size_t i = 1; i < inputs; i++)
        if (input[i].best_s > input[worst].best_s)
            worst = i;
    json_object_set_new(result, "tokenizer",
                        json_string(tokenizer_name(tokenizer)));
    json_object_set_new(result, "tokenize_mb_per_s", json_real(1e-6 / text));
    json_object_set_new(result, "tokenize_bytes_per_token",
                        json_real((double)input[0].bytes / (double)tokens));
    json_object_set_new(
        result, "tokenize_hard_ratio",
        json_real(input[worst].best_s / (double)input[worst].bytes / text));
    json_object_set_new(result, "tokenize_hard_input",
                        json_string(input[worst].name));
}

enum err bench_data_text(json_t *result)
{
    static const char *const hard[][2] = {
        { "one letter", "a" },
        { "blanks", " " },
        { "line ends", "\n" },
        { "digits", "0123456789" },
        { "two letters", "ab" },
        { "letters without blanks", "thequickbrownfoxjumpsoverthelazydog" },
        { "combining marks", "e\xcc\x81" },
        { "apostrophes", "'" },
        { "random bytes", NULL },
    };
    enum err rc = ERR_OK;
    size_t inputs = 1 + sizeof hard / sizeof hard[0], count = 0;
    struct input input[1 + sizeof hard / sizeof hard[0]] = { { .name = "" } };
    const char *name = getenv("TESSERA_BENCH_TOKENIZER");
    struct tokenizer *tokenizer = NULL;
    struct tokenizer_encoder *encoder = NULL;
    struct token_list tokens = { .count = 0 };
    bool given = name != NULL && name[0] != '\0';
    TRY_OUT(tokenizer_create(given ? name : TOKENIZER_DEFAULT, &tokenizer));
    TRY_OUT(tokenizer_encoder_create(tokenizer, &encoder));
    TRY_OUT(read_text(&input[0]));
    for (size_t i = 1; i < inputs; i++)
        TRY_OUT(repeat(&input[i], hard[i - 1][0], hard[i - 1][1]));
    for (int round = 0; round < ROUNDS; round++)
        for (size_t i = 0; i < inputs; i++) {
            TRY_OUT(measure(encoder, &input[i], &tokens));
            count = i == 0 ? tokens.count : count;
        }
    report(input, inputs, count, tokenizer, result);
out:
    for (size_t i = 0; i < inputs; i++)
        free(input[i].text);
    free(tokens.token);
    tokenizer_encoder_destroy(encoder);
    tokenizer_destroy(tokenizer);
    return rc;
}
