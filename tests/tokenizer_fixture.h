/* Small tokenizer.json files: a token per byte, whose number is the byte, some
 * merges from 256 on, and added tokens behind them. */
#pragma once

#include "src/base/rng.h"
#include "src/text/tokenizer/bpe.h"
#include "src/text/tokenizer/tokenizer.h"
#include "src/text/unicode.h"
#include "tests/data_fixture.h"

#define FIXTURE_BYTE_LEVEL                                                     \
    "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, "                  \
    "\"trim_offsets\": true, \"use_regex\": "

enum { GPT2, PREFIX, LLAMA3, GPT4O, DIGITS, REGEX, NONE };

static const char *const fixture_pretokenizers[] = {
    [GPT2] = FIXTURE_BYTE_LEVEL "true}",
    [PREFIX] = "{\"type\": \"ByteLevel\", \"trim_offsets\": true}",
    [LLAMA3] =
        "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", "
        "\"pattern\": {\"Regex\": \"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n"
        "\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}| ?[^\\\\s\\\\p{L}\\\\p{N}]+"
        "[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"}, "
        "\"behavior\": \"Isolated\", \"invert\": false}, " FIXTURE_BYTE_LEVEL
        "false}]}",
    [GPT4O] =
        "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", "
        "\"pattern\": {\"Regex\": \"[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{Lu}"
        "\\\\p{Lt}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]*[\\\\p{Ll}\\\\p{Lm}\\\\p{Lo}"
        "\\\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\\\\r\\\\n\\\\p{L}"
        "\\\\p{N}]?[\\\\p{Lu}\\\\p{Lt}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]+[\\\\p{Ll}"
        "\\\\p{Lm}\\\\p{Lo}\\\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
        "\\\\p{N}{1,3}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n/]*|"
        "\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"}, "
        "\"behavior\": \"Isolated\", \"invert\": false}, " FIXTURE_BYTE_LEVEL
        "false}]}",
    [DIGITS] = "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": "
               "\"Digits\", \"individual_digits\": true}, " FIXTURE_BYTE_LEVEL
               "true}]}",
    [REGEX] = "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": "
              "\"Split\", \"pattern\": {\"Regex\": \"[a-z]+\\\\s?\"}, "
              "\"behavior\": \"MergedWithPrevious\", \"invert\": "
              "false}, " FIXTURE_BYTE_LEVEL "false}]}",
    [NONE] = FIXTURE_BYTE_LEVEL "false}",
};

/* In the characters of byte-level files: U+0120 is a blank, U+010A a line
 * end. A merge whose text is there already is another way to the same token. */
static const char *const fixture_merges[] = {
    "t h",
    "th e",
    "\xC4\xA0 t",
    "\xC4\xA0t he",
    "i n",
    "in g",
    "e r",
    "\xC4\xA0 \xC4\xA0",
    "\xC4\x8A \xC4\x8A",
    "l l",
    "h e",
    "he ll",
    "hell o",
    "a a",
    "aa aa",
    "1 2",
    "12 3",
    "y z",
    "x yz",
    "x y",
    "xy z",
    "\xC3\xA6 \xC4\xB9", /* the bytes E6 97 */
    "\xC3\x83 \xC2\xA9", /* the bytes C3 A9 */
    "' s",
    "\xC4\xA0 w",
};

#define FIXTURE_END 280 /* "<|end|>" */

static const char fixture_added[] =
    "[{\"id\": 280, \"content\": \"<|end|>\", \"single_word\": false, "
    "\"lstrip\": false, \"rstrip\": false, \"normalized\": false, "
    "\"special\": true}, "
    "{\"id\": 281, \"content\": \"<l>\", \"lstrip\": true, "
    "\"normalized\": false}, "
    "{\"id\": 282, \"content\": \"<r>\", \"rstrip\": true, "
    "\"normalized\": false}, "
    "{\"id\": 283, \"content\": \"cat\", \"single_word\": true, "
    "\"normalized\": false}, "
    "{\"id\": 284, \"content\": \"e\\u0301!\", \"normalized\": true}]";

static const char fixture_template[] =
    "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": "
    "{\"id\": \"<|end|>\", \"type_id\": 0}}, {\"Sequence\": {\"id\": \"A\", "
    "\"type_id\": 0}}], \"pair\": [], \"special_tokens\": {\"<|end|>\": "
    "{\"id\": \"<|end|>\", \"ids\": [280], \"tokens\": [\"<|end|>\"]}}}";

/* A byte's character as JSON has it. */
static inline void fixture_byte(const struct byte_alphabet *alphabet, int byte,
                                char out[8])
{
    size_t point = 0;
    while (alphabet->byte[point] != byte)
        point++;
    out[0] = '\\'; /* before what JSON wants it */
    bool escaped = point == '"' || point == '\\';
    size_t length = unicode_put((uint32_t)point, (uint8_t *)out + escaped);
    out[length + escaped] = '\0';
}

static inline void fixture_vocabulary(FILE *file)
{
    struct byte_alphabet alphabet;
    char seen[32][16] = { "" };
    int next = 256;
    byte_alphabet_fill(&alphabet);
    fputs("\"vocab\": {", file);
    for (int b = 0; b < 256; b++) {
        char text[8];
        fixture_byte(&alphabet, b, text);
        fprintf(file, "%s\"%s\": %d", b > 0 ? ", " : "", text, b);
    }
    for (size_t m = 0; m < sizeof fixture_merges / sizeof *fixture_merges;
         m++) {
        const char *merge = fixture_merges[m], *blank = strchr(merge, ' ');
        char text[16];
        snprintf(text, sizeof text, "%.*s%s", (int)(blank - merge), merge,
                 blank + 1);
        bool known = false;
        for (int s = 0; s < next - 256; s++)
            known = known || strcmp(seen[s], text) == 0;
        if (known)
            continue;
        strcpy(seen[next - 256], text);
        fprintf(file, ", \"%s\": %d", text, next++);
    }
    fputs("}, \"merges\": [", file);
    for (size_t m = 0; m < sizeof fixture_merges / sizeof *fixture_merges; m++)
        fprintf(file, "%s\"%s\"", m > 0 ? ", " : "", fixture_merges[m]);
    fputs("]", file);
}

/* What a file is made of; NULL: as usual. */
struct fixture_file {
    int pretokenizer;       /* GPT2 ... */
    const char *pretoken;   /* instead of it */
    const char *normalizer; /* "null" */
    const char *added;      /* the array */
    const char *top;        /* keys of the whole: ", \"k\": 1" */
    const char *model;      /* ... and of the model */
    const char *vocabulary; /* "\"vocab\": {..}, \"merges\": [..]" */
    const char *post;       /* the template */
    const char *decoder;    /* ByteLevel */
};

static inline const char *fixture_or(const char *text, const char *otherwise)
{
    return text != NULL ? text : otherwise;
}

/* Write it to the path. */
static inline void fixture_tokenizer(const char *path,
                                     const struct fixture_file *of)
{
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        perror(path);
        exit(1);
    }
    fprintf(file,
            "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null, "
            "\"added_tokens\": %s, \"normalizer\": %s, \"pre_tokenizer\": %s, "
            "\"post_processor\": %s, \"decoder\": %s%s, \"model\": {\"type\": "
            "\"BPE\", \"dropout\": null%s, ",
            fixture_or(of->added, fixture_added),
            fixture_or(of->normalizer, "null"),
            fixture_or(of->pretoken, fixture_pretokenizers[of->pretokenizer]),
            fixture_or(of->post, fixture_template),
            fixture_or(of->decoder, FIXTURE_BYTE_LEVEL "true}"),
            fixture_or(of->top, ""), fixture_or(of->model, ""));
    if (of->vocabulary != NULL)
        fputs(of->vocabulary, file);
    else
        fixture_vocabulary(file);
    fputs("}}", file);
    fclose(file);
}

/* A tokenizer with an encoder. */
struct fixture_both {
    struct tokenizer *tokenizer;
    struct tokenizer_encoder *encoder;
};

static inline struct fixture_both fixture_both_open(const char *path)
{
    struct fixture_both both = { 0 };
    fixture_need(tokenizer_create(path, &both.tokenizer));
    fixture_need(tokenizer_encoder_create(both.tokenizer, &both.encoder));
    return both;
}

static inline void fixture_both_close(struct fixture_both *both)
{
    tokenizer_encoder_destroy(both->encoder);
    tokenizer_destroy(both->tokenizer);
}

/* The caller frees its tokens. */
static inline struct token_list fixture_encode(const struct fixture_both *both,
                                               const char *text, size_t bytes,
                                               unsigned flags)
{
    struct token_list list = { 0 };
    fixture_need(tokenizer_encode(both->encoder, (const uint8_t *)text, bytes,
                                  flags, &list));
    return list;
}

static inline bool fixture_same(const struct token_list *a,
                                const struct token_list *b)
{
    return a->count == b->count &&
           memcmp(a->token, b->token, a->count * sizeof *a->token) == 0;
}

/* A text's tokens are these, written with blanks between them. */
static inline void fixture_golden(const struct fixture_both *both,
                                  const char *text, unsigned flags,
                                  const char *tokens, size_t row)
{
    struct token_list list = fixture_encode(both, text, strlen(text), flags);
    char shown[512] = "";
    for (size_t i = 0, at = 0; i < list.count; i++)
        at += (size_t)snprintf(shown + at, sizeof shown - at, "%s%d",
                               i > 0 ? " " : "", list.token[i]);
    tap_is_str(shown, tokens, "row %zu", row);
    free(list.token);
}

/* A text of `count` of these parts, by random numbers from *at on. */
static inline size_t fixture_random(const char *const *parts, size_t kinds,
                                    uint64_t *at, char *text, size_t count)
{
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++) {
        const char *part = parts[rng_u64(1, 0, (*at)++) % kinds];
        memcpy(text + bytes, part, strlen(part));
        bytes += strlen(part);
    }
    return bytes;
}

/* Counts a text that is cut where its first `known` bytes let it be, and one
 * whose parts then have other tokens than the whole. */
static inline void fixture_cut(const struct fixture_both *both,
                               const char *text, size_t known, size_t bytes,
                               unsigned flags, int *cuts, int *bad)
{
    const uint8_t *data = (const uint8_t *)text;
    size_t cut = tokenizer_cut(both->tokenizer, data, known);
    if (cut == 0)
        return;
    struct token_list whole = fixture_encode(both, text, bytes, flags);
    struct token_list parts = fixture_encode(both, text, cut, flags);
    fixture_need(tokenizer_encode(both->encoder, data + cut, bytes - cut,
                                  flags | TOKENIZER_INSIDE, &parts));
    *cuts += 1;
    *bad += !fixture_same(&whole, &parts);
    free(whole.token);
    free(parts.token);
}

/* A text over and over, of at most so many bytes, to be freed. */
static inline char *fixture_repeat(const char *period, size_t most,
                                   size_t *bytes)
{
    size_t length = strlen(period), repeat = most / length;
    char *text = malloc(most);
    for (size_t i = 0; i < repeat; i++)
        memcpy(text + i * length, period, length);
    *bytes = repeat * length;
    return text;
}

/* The file is refused with this text, and its path is named. */
static inline void fixture_refused(const char *path,
                                   const struct fixture_file *of,
                                   const char *text)
{
    struct tokenizer *tokenizer = NULL;
    fixture_tokenizer(path, of);
    enum err rc = tokenizer_create(path, &tokenizer);
    tap_ok(rc == ERR_DATA && strstr(err_text(), text) != NULL &&
               strncmp(err_text(), path, strlen(path)) == 0,
           "refused: %s (%s)", text, rc == ERR_OK ? "it is not" : err_text());
    tokenizer_destroy(tokenizer);
}
