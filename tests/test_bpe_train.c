/* Learning a BPE: merges against a plain reading of their rule on random words,
 * words counted by several counters, and what cannot be learned. */
#include "src/text/tokenizer/bpe_train.h"

#include <jansson.h>

#include "src/base/rng.h"
#include "src/data/prepare/train_tokenizer.h"
#include "tests/data_fixture.h"

static const char *const special[] = { "<|endoftext|>", "<|pad|>" };

/* A tokenizer that has the words of a pattern. */
static struct tokenizer *words_of(const char *folder,
                                  enum bpe_train_pattern pattern)
{
    const struct bpe_train_options options = { .pattern = pattern,
                                               .vocab_size = 300 };
    struct bpe_train *train = NULL;
    struct tokenizer *tokenizer = NULL;
    const char *path = fixture_path(folder, "words.json");
    char *text = NULL;
    fixture_need(bpe_train_create(&options, &train));
    fixture_need(bpe_train_json(train, &text));
    fixture_write_file(path, text, strlen(text));
    fixture_need(tokenizer_create(path, &tokenizer));
    free(text);
    bpe_train_destroy(train);
    return tokenizer;
}

/* The same words in any order and number of counters. */
static void test_words(const char *folder)
{
    static const char text[] = "a b a  b 12 don't\n\nab \xff\xc3\xa9";
    struct tokenizer *tokenizer = words_of(folder, BPE_TRAIN_DIGITS);
    struct bpe_words *one = NULL, *two = NULL;
    static const struct {
        const char *text;
        int64_t count;
    } want[] = {
        { "a", 2 },  { " b", 4 }, { " a", 2 },   { " ", 4 },
        { "1", 2 },  { "2", 2 },  { " don", 2 }, { "'t", 2 },
        { "\n", 4 }, { "ab", 2 }, { " ab", 0 },
    };
    fixture_need(bpe_words_create(tokenizer, &one));
    fixture_need(bpe_words_create(tokenizer, &two));
    fixture_need(bpe_words_add(one, (const uint8_t *)text, sizeof text - 1));
    fixture_need(bpe_words_add(two, (const uint8_t *)text, sizeof text - 1));
    fixture_need(bpe_words_merge(one, two));
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        int64_t found = 0;
        for (size_t w = 0; w < bpe_words_count(one); w++) {
            struct bpe_word word = bpe_words_at(one, w);
            if (word.bytes == strlen(want[i].text) &&
                memcmp(word.text, want[i].text, word.bytes) == 0)
                found = word.count;
        }
        tap_is_int(found, want[i].count, "times of '%s'", want[i].text);
    }
    static uint8_t letters[1 << 20];
    memset(letters, 'x', sizeof letters);
    fixture_need(bpe_words_add(one, letters, sizeof letters));
    tap_is_int(bpe_words_left_out(one), 1, "a word of a megabyte is left out");
    bpe_words_destroy(one);
    bpe_words_destroy(two);
    tokenizer_destroy(tokenizer);
}

#define LENGTH 4000
#define TOKENS 400

/* Every pair is counted anew for each merge. */
static int learn_plainly(int *token, const bool *begins, int count,
                         int64_t least, int merges[][2], int most)
{
    static int64_t times[TOKENS][TOKENS];
    int done = 0;
    for (; done < most; done++) {
        int64_t best = 0;
        memset(times, 0, sizeof times);
        for (int i = 0, j; i < count; i = j) {
            for (j = i + 1; j < count && token[j] < 0; j++)
                continue;
            if (j < count && !begins[j])
                times[token[i]][token[j]]++;
        }
        for (int a = 0; a < TOKENS; a++)
            for (int b = 0; b < TOKENS; b++)
                if (times[a][b] > best) {
                    best = times[a][b];
                    merges[done][0] = a;
                    merges[done][1] = b;
                }
        if (best < 1 || best < least)
            break;
        for (int i = 0, j; i < count; i = j) {
            for (j = i + 1; j < count && token[j] < 0; j++)
                continue;
            if (j < count && !begins[j] && token[i] == merges[done][0] &&
                token[j] == merges[done][1]) {
                token[i] = 258 + done;
                token[j] = -1;
            }
        }
    }
    return done;
}

/* The tokens of a merge as ids. */
static void merge_ids(const json_t *vocab, const char *merge, int ids[2])
{
    const char *blank = strchr(merge, ' ');
    ids[0] = (int)json_integer_value(
        json_object_getn(vocab, merge, (size_t)(blank - merge)));
    ids[1] = (int)json_integer_value(json_object_get(vocab, blank + 1));
}

static void test_merges(const char *folder)
{
    struct tokenizer *tokenizer = words_of(folder, BPE_TRAIN_GPT2);
    for (uint64_t seed = 0; seed < 30; seed++) {
        static uint8_t text[LENGTH];
        static int token[LENGTH], merges[TOKENS][2];
        static bool begins[LENGTH];
        unsigned letters = 1 + (unsigned)(seed % 7), bad = 0;
        const struct bpe_train_options options = {
            .vocab_size = 258 + (seed % 3 == 0 ? 5 : 140),
            .min_frequency = (int64_t)(seed % 4),
            .special = special,
            .special_count = 2,
        };
        struct bpe_words *words = NULL;
        struct bpe_train *train = NULL;
        char *file = NULL;
        for (int i = 0; i < LENGTH; i++) {
            uint64_t random = rng_u64(seed, 2, (uint64_t)i);
            bool blank = i > 0 && text[i - 1] != ' ' && random % 11 == 0 &&
                         i + 1 < LENGTH;
            text[i] = (uint8_t)(blank ? ' ' : 'a' + random / 16 % letters);
        }
        fixture_need(bpe_words_create(tokenizer, &words));
        fixture_need(bpe_words_add(words, text, LENGTH));
        fixture_need(bpe_train_create(&options, &train));
        fixture_need(bpe_train_run(train, words, NULL));
        fixture_need(bpe_train_json(train, &file));
        json_t *root = json_loads(file, 0, NULL);
        const json_t *model = json_object_get(root, "model");
        const json_t *vocab = json_object_get(model, "vocab");
        const json_t *learned = json_object_get(model, "merges");
        /* a blank is written as U+0120, behind the letters */
        for (int i = 0; i < LENGTH; i++) {
            char letter[2] = { (char)text[i], '\0' };
            begins[i] = text[i] == ' ';
            token[i] = (int)json_integer_value(
                json_object_get(vocab, text[i] == ' ' ? "\xc4\xa0" : letter));
        }
        int count = learn_plainly(token, begins, LENGTH, options.min_frequency,
                                  merges, (int)options.vocab_size - 258);
        for (int m = 0; m < count; m++) {
            int ids[2];
            merge_ids(vocab,
                      json_string_value(json_array_get(learned, (size_t)m)),
                      ids);
            bad += ids[0] != merges[m][0] || ids[1] != merges[m][1];
        }
        tap_ok(bad == 0 && (size_t)count == json_array_size(learned) &&
                   bpe_train_tokens(train) == 258 + count,
               "%d merges of %u letters, as by the rule", count, letters);
        json_decref(root);
        free(file);
        bpe_train_destroy(train);
        bpe_words_destroy(words);
    }
    tokenizer_destroy(tokenizer);
}

static void test_refused(void)
{
    static const char *const twice[] = { "<a>", "<b>", "<a>" };
    static const char *const bad[] = { "\xff", "", "h" };
    struct bpe_train *train = NULL;
    struct bpe_train_options options = { .vocab_size = 257,
                                         .special = special,
                                         .special_count = 2 };
    tap_ok(bpe_train_create(&options, &train) == ERR_USAGE &&
               strstr(err_text(), "[258") != NULL,
           "no room for bytes: %s", err_text());
    options.vocab_size = INT64_MAX;
    tap_is_int(bpe_train_create(&options, &train), ERR_USAGE, "too many");
    options = (struct bpe_train_options){ .vocab_size = 300,
                                          .special = twice,
                                          .special_count = 3 };
    tap_ok(bpe_train_create(&options, &train) == ERR_USAGE &&
               strstr(err_text(), "given twice") != NULL,
           "%s", err_text());
    for (size_t b = 0; b < 3; b++) {
        options.special = bad + b;
        options.special_count = 1;
        tap_is_int(bpe_train_create(&options, &train), ERR_USAGE,
                   "a special token that can't be");
    }
}

/* From files to a tokenizer that encodes, with any number of threads. */
static void test_files(const char *folder)
{
    char in[FSIO_PATH_MAX], out[FSIO_PATH_MAX];
    char *files[] = { in };
    struct train_tokenizer_result result;
    struct tokenizer *tokenizer = NULL;
    char first[65] = "";
    FILE *file;
    snprintf(in, sizeof in, "%s/text", folder);
    file = fopen(in, "w");
    for (int i = 0; file != NULL && i < 200000; i++)
        fprintf(file, "line %d of %d\n", i % 777, i);
    if (file == NULL || fclose(file) != 0)
        exit(1);
    for (int threads = 1; threads <= 3; threads++) {
        const struct tokenize_options texts = { .out = out,
                                                .threads = threads };
        const struct train_tokenizer_options options = {
            .train = { .vocab_size = 500,
                       .min_frequency = 2,
                       .special = special,
                       .special_count = 2 },
            .texts = &texts,
        };
        snprintf(out, sizeof out, "%s/learned%d", folder, threads);
        fixture_need(train_tokenizer(&options, files, 1, &result));
        fixture_need(tokenizer_create(out, &tokenizer));
        tap_ok(tokenizer_vocab_size(tokenizer) == result.tokens &&
                   result.tokens > 300 && tokenizer_eos(tokenizer) == 0 &&
                   tokenizer_find(tokenizer, "<|pad|>") == 1,
               "%d threads learn %d tokens", threads, (int)result.tokens);
        if (threads == 1)
            snprintf(first, sizeof first, "%s", tokenizer_sha256(tokenizer));
        else
            tap_is_str(tokenizer_sha256(tokenizer), first, "... the same");
        tokenizer_destroy(tokenizer);
        tap_is_int(train_tokenizer(&options, files, 1, &result), ERR_USAGE,
                   "what is there is not replaced");
    }
    static const char *const word = "line";
    struct train_tokenizer_options like = {
        .train = { .vocab_size = 500, .special = &word, .special_count = 1 },
        .texts = &(struct tokenize_options){ .out = out, .threads = 1 },
    };
    snprintf(out, sizeof out, "%s/like", folder);
    tap_ok(train_tokenizer(&like, files, 1, &result) == ERR_USAGE &&
               strstr(err_text(), "also a word") != NULL,
           "a special token that is a word: %s", err_text());
    struct train_tokenizer_options options = {
        .train = { .vocab_size = 500, .special = special, .special_count = 2 },
        .texts = &(struct tokenize_options){ .out = out },
    };
    snprintf(in, sizeof in, "%s/empty", folder);
    snprintf(out, sizeof out, "%s/none", folder);
    fixture_write_file(in, "", 0);
    tap_ok(train_tokenizer(&options, files, 1, &result) == ERR_DATA &&
               access(out, F_OK) != 0,
           "no text: %s", err_text());
}

int main(void)
{
    const char *folder = tap_folder();
    test_words(folder);
    test_merges(folder);
    test_refused();
    test_files(folder);
    return tap_done();
}
