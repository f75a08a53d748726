/* Tokenizers of files: tokens as the Hugging Face library 0.23.3 gives them for
 * the same files, texts back, cuts, and what is refused. */

#include "tests/tokenizer_fixture.h"

static const char *folder;

static const char *write_file(const struct fixture_file *of)
{
    const char *path = fixture_path(folder, "tokenizer.json");
    fixture_tokenizer(path, of);
    return path;
}

static struct fixture_both open_file(const struct fixture_file *of)
{
    return fixture_both_open(write_file(of));
}

/* The texts of tokens in a row. */
static char *decoded(const struct tokenizer *tokenizer,
                     const struct token_list *list, size_t *bytes)
{
    char *text = NULL;
    FILE *stream = open_memstream(&text, bytes);
    for (size_t i = 0; i < list->count; i++) {
        const uint8_t *part = NULL;
        size_t length = 0;
        fixture_need(
            tokenizer_decode(tokenizer, list->token[i], &part, &length));
        fwrite(part, 1, length, stream);
    }
    fclose(stream);
    return text;
}

static void test_golden(void)
{
    static const struct {
        int pretokenizer;
        bool nfc;
        unsigned flags;
        const char *text, *tokens;
    } rows[] = {
        { GPT2, 0, 1, "the thing  they're  12 123\n\n\nhello",
          "257 32 256 261 32 32 257 121 39 114 101 32 32 271 32 272 264 10 "
          "268" },
        { GPT2, 0, 1, "a<|end|>b  <l>  c <r>  d cat cats",
          "97 280 98 281 32 32 99 32 282 100 32 283 32 99 97 116 115" },
        { GPT2, 0, 0, "a<|end|>b", "97 60 124 101 110 100 124 62 98" },
        { GPT2, 0, 3, "x", "280 120" },
        { GPT2, 0, 1, "aaaaaaa xyz 'S's", "270 269 97 32 274 32 39 83 278" },
        { LLAMA3, 0, 1, "the 1234567\n\n  hello'S\t\tw\n ",
          "257 32 272 52 53 54 55 264 32 32 268 39 83 9 9 119 10 32" },
        { LLAMA3, 0, 1,
          "\346\227\245\346\234\254. \303\251e\314\201 \305\277'\305\277x",
          "276 165 230 156 172 46 32 277 101 204 129 32 197 191 39 197 191 "
          "120" },
        { DIGITS, 0, 1, "x123 456 \331\243y",
          "120 49 50 51 32 52 53 54 32 217 163 121" },
        { REGEX, 0, 1, "the  ing,hello 12", "257 32 32 261 44 268 32 271" },
        { PREFIX, 0, 1, "the<|end|>the  the", "32 257 280 32 257 32 32 257" },
        { NONE, 0, 1, "  the the\n", "263 257 32 257 10" },
        { GPT2, 1, 1, "e\314\201e\314\201!\341\272\233\314\243 \352\260\200",
          "277 284 225 186 155 204 163 32 234 176 128" },
        { GPT2, 0, 1, "", "" },
        { LLAMA3, 0, 1, "  \n \n  a\015\n\015\nb",
          "263 10 32 10 32 32 97 13 10 13 10 98" },
        /* invalid: a replacement, EF BF BD, for each maximal part */
        { GPT2, 0, 1, "a\xF0\x9F\x98 \xFF\xE3\x81",
          "97 239 191 189 32 239 191 189 239 191 189" },
    };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        struct fixture_both both = open_file(&(struct fixture_file){
            .pretokenizer = rows[r].pretokenizer,
            .normalizer = rows[r].nfc ? "{\"type\": \"NFC\"}" : NULL });
        fixture_golden(&both, rows[r].text, rows[r].flags, rows[r].tokens, r);
        fixture_both_close(&both);
    }
}

/* Texts of what patterns care about. */
static const char *const texts[] = {
    "the",
    "ing",
    " ",
    "  ",
    "\n",
    "\t",
    "'s",
    "'S",
    "'",
    "12",
    "3",
    ".",
    "!?",
    "a",
    "X",
    "\303\251",
    "e\314\201",
    "\346\227\245",
    "<|end|>",
    "<l>",
    "<r>",
    "e\314\201!",
    "\342\200\203",
    "\r\n",
    "\360\237\230\200",
    "\xFF",
    "\xE3\x81",
    "<|e",
    "hello",
    "_",
    "/",
    "\314\201",
    ".\n",
    "\n/",
};
#define TEXTS (sizeof texts / sizeof *texts)

/* No single word, which looks at what is beside it. */
#define ADDED(strips)                                                          \
    "[{\"id\": 280, \"content\": \"<|end|>\", \"special\": true}, "            \
    "{\"id\": 281, \"content\": \"<l>\", \"lstrip\": " strips "}, "            \
    "{\"id\": 282, \"content\": \"<r>\", \"rstrip\": " strips                  \
    ", \"normalized\": false}, "                                               \
    "{\"id\": 283, \"content\": \"s t\", \"normalized\": false}, "             \
    "{\"id\": 284, \"content\": \"e\\u0301!\"}]"

/* The parts of a text that is cut have the tokens of the whole. */
static void test_cut(int pretokenizer, bool nfc, bool strips)
{
    struct fixture_both both = open_file(&(struct fixture_file){
        .pretokenizer = pretokenizer,
        .normalizer = nfc ? "{\"type\": \"NFC\"}" : NULL,
        .added = strips ? ADDED("true") : ADDED("false") });
    uint64_t at = 0;
    int bad = 0, cuts = 0;
    for (int round = 0; round < 3000; round++) {
        char text[512];
        size_t known =
            fixture_random(texts, TEXTS, &at, text, 1 + rng_u64(2, 0, at) % 20);
        size_t bytes = known + fixture_random(texts, TEXTS, &at, text + known,
                                              rng_u64(3, 0, at) % 8);
        fixture_cut(&both, text, known, bytes, TOKENIZER_SPECIAL, &cuts, &bad);
    }
    tap_is_int(bad, 0, "pre-tokenizer %d%s: %d texts cut in two", pretokenizer,
               nfc ? " with NFC" : "", cuts);
    tap_ok(pretokenizer == REGEX || pretokenizer == NONE ? cuts == 0
                                                         : cuts > 1000,
           "... where the pattern is known");
    fixture_both_close(&both);
}

/* Text, its tokens, the same text, however it is divided. */
static void test_back(int pretokenizer)
{
    struct fixture_both both = open_file(&(struct fixture_file){
        .pretokenizer = pretokenizer, .added = "[]", .post = "null" });
    uint64_t at = 0;
    int bad = 0;
    for (int round = 0; round < 500; round++) {
        char text[4096];
        size_t bytes = 0, back_bytes = 0;
        for (size_t i = 0; i < 200; i++) {
            uint32_t point = (uint32_t)(rng_u64(4, 0, at++) % 0x110000);
            if (point < 0xD800 || point > 0xDFFF)
                bytes += unicode_put(point, (uint8_t *)text + bytes);
        }
        struct token_list list = fixture_encode(&both, text, bytes, 0);
        char *back = decoded(both.tokenizer, &list, &back_bytes);
        bad += back_bytes != bytes || memcmp(back, text, bytes) != 0;
        free(back);
        free(list.token);
    }
    tap_is_int(bad, 0, "pre-tokenizer %d: texts of any characters, and back",
               pretokenizer);
    tap_is_int((long long)tokenizer_encoder_lost(both.encoder), 0,
               "... nothing is lost");
    fixture_both_close(&both);
}

/* A long word has the tokens of the rule: of all pairs the lowest rank, the
 * leftmost first. Runs of it are counted, so that time is linear. */
static void test_long_words(void)
{
    struct fixture_both both =
        open_file(&(struct fixture_file){ .pretokenizer = NONE });
    size_t bytes = 0, back_bytes = 0;
    char *text = fixture_repeat("a", 1000003, &bytes);
    struct token_list list = fixture_encode(&both, text, bytes, 0);
    tap_is_int((long long)list.count, 250002, "a megabyte of one letter");
    tap_is_int(list.token[250000], 269, "... ends with a pair");
    tap_is_int(list.token[250001], 97, "... and one that is left over");
    /* pairs whose rank is below that of what makes them, and pieces that several
     * merges give: a long word equals a short one at each of its places */
    free(text);
    free(list.token);
    static const char period[] = "xyzthexxyyzzing the hellaaaxyyz123121 ";
    text = fixture_repeat(period, 1000000, &bytes);
    list = fixture_encode(&both, text, bytes, 0);
    struct token_list once = fixture_encode(&both, period, strlen(period), 0);
    size_t repeat = bytes / strlen(period);
    bool same = list.count == repeat * once.count;
    for (size_t i = 0; same && i < list.count; i++)
        same = list.token[i] == once.token[i % once.count];
    tap_ok(same, "a long word of short ones has their tokens");
    char *back = decoded(both.tokenizer, &list, &back_bytes);
    tap_ok(back_bytes == bytes && memcmp(back, text, bytes) == 0,
           "... and their text");
    free(back);
    free(once.token);
    free(list.token);
    free(text);
    fixture_both_close(&both);
}

/* Marks in a row, the highest class first. */
static void test_marks(void)
{
    struct fixture_both both = open_file(&(struct fixture_file){
        .pretokenizer = NONE, .normalizer = "{\"type\": \"NFC\"}" });
    size_t marks = 200000, back_bytes = 0;
    char *text = malloc(1 + 4 * marks), *at = text;
    *at++ = 'x';
    for (size_t i = 0; i < marks; i++, at += 2)
        memcpy(at, i < marks / 2 ? "\314\201" : "\314\243", 2);
    struct token_list list =
        fixture_encode(&both, text, (size_t)(at - text), 0);
    char *back = decoded(both.tokenizer, &list, &back_bytes);
    tap_ok(back_bytes == (size_t)(at - text) &&
               memcmp(back, "x\314\243\314\243", 5) == 0 &&
               memcmp(back + back_bytes - 4, "\314\201\314\201", 4) == 0,
           "marks are put in order");
    free(back);
    free(list.token);
    free(text);
    fixture_both_close(&both);
}

#define SPLIT(pattern)                                                         \
    "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"" pattern                \
    "\"}, \"behavior\": \"Isolated\", \"invert\": false}"
#define SPLIT_BYTES(pattern)                                                   \
    "{\"type\": \"Sequence\", \"pretokenizers\": [" SPLIT(                     \
        pattern) ", " FIXTURE_BYTE_LEVEL "false}]}"

/* A pattern that takes exponential time, and one that needs much memory for a
 * long word, and gets it. */
static void test_patterns(void)
{
    struct fixture_both both = open_file(
        &(struct fixture_file){ .pretoken = SPLIT_BYTES("(?:a|a|b)+[cd]") });
    size_t bytes = 0;
    char *text = fixture_repeat("a", 100000, &bytes);
    struct token_list list = { 0 };
    tap_is_int(tokenizer_encode(both.encoder, (uint8_t *)text, 4000, 0, &list),
               ERR_DATA, "a pattern that takes for ever ends");
    tap_ok(strstr(err_text(), "takes too long") != NULL, "... and is named: %s",
           err_text());
    free(list.token);
    fixture_both_close(&both);
    both = open_file(&(struct fixture_file){
        .pretoken = SPLIT_BYTES("(?:[a-z]|[0-9])+x?") });
    list = fixture_encode(&both, text, bytes, 0);
    tap_is_int((long long)list.count, 25000, "a long word of a pattern, whole");
    free(text);
    free(list.token);
    fixture_both_close(&both);
}

static void test_properties(void)
{
    struct fixture_both both = open_file(&(struct fixture_file){ 0 });
    const struct tokenizer *tokenizer = both.tokenizer;
    size_t bytes = 0;
    const uint8_t *text = NULL;
    tap_is_int(tokenizer_vocab_size(tokenizer), 285, "vocabulary");
    tap_is_int(tokenizer_find(tokenizer, "<|end|>"), FIXTURE_END, "found");
    tap_is_int(tokenizer_find(tokenizer, " the"), 259, "a word is found");
    tap_is_int(tokenizer_find(tokenizer, "none"), -1, "... or not");
    tap_ok(tokenizer_is_special(tokenizer, 280), "a special token");
    tap_ok(!tokenizer_is_special(tokenizer, 281), "one that is not");
    tap_is_int(tokenizer_eos(tokenizer), -1, "no file names an end");
    tap_is_int(tokenizer_decode(tokenizer, 284, &text, &bytes), ERR_OK, "back");
    tap_ok(bytes == 4 && memcmp(text, "e\314\201!", 4) == 0,
           "an added token is its own text");
    tap_is_int(tokenizer_decode(tokenizer, 285, &text, &bytes), ERR_DATA,
               "a token above");
    tap_ok(tokenizer_file(tokenizer, &bytes) != NULL && bytes > 1000,
           "the file's bytes");
    fixture_both_close(&both);
    FILE *file = fopen(fixture_path(folder, "tokenizer_config.json"), "w");
    fputs("{\"eos_token\": {\"content\": \"<|end|>\"}, \"bos_token\": null, "
          "\"model_max_length\": 1000000000000000019884624838656}",
          file);
    fclose(file);
    struct tokenizer *named = NULL;
    fixture_need(tokenizer_create(folder, &named));
    tap_is_int(tokenizer_eos(named), 280, "the end that the folder names");
    tap_is_int(tokenizer_bos(named), -1, "it names no beginning");
    const char *slash = strrchr(folder, '/');
    tap_is_str(tokenizer_name(named), slash + 1, "a folder's name");
    tokenizer_destroy(named);
    file = fopen(fixture_path(folder, "tokenizer_config.json"), "w");
    fputs("{\"eos_token\": \"</s>\"}", file);
    fclose(file);
    tap_is_int(tokenizer_create(folder, &named), ERR_UNSUPPORTED,
               "an unknown end");
    tap_ok(strstr(err_text(), "the eos_token '</s>', which it lacks") != NULL,
           "... is named: %s", err_text());
    unlink(fixture_path(folder, "tokenizer_config.json"));
}

#define VOCAB_A "\"vocab\": {\"a\": 0, \"b\": 1}, \"merges\": []"
#define BEFORE(decoders)                                                       \
    "{\"type\": \"Sequence\", \"decoders\": [" decoders                        \
    ", {\"type\": \"ByteLevel\"}]}"
#define IDLE                                                                   \
    "{\"type\": \"Replace\", \"pattern\": {\"String\": \"#!#\"}, "             \
    "\"content\": \" \"}, "
#define FOUR_IDLE IDLE IDLE IDLE IDLE

static void test_refused(void)
{
    static const struct {
        struct fixture_file of;
        const char *text;
    } rows[] = {
        { { .top = ", \"extra\": 1" }, "the key 'extra' is not known" },
        { { .model = ", \"dropout\": 0.1" }, "duplicate object key" },
        { { .model = ", \"unk_token\": \"<unk>\"" },
          "model.unk_token: '<unk>'" },
        { { .model = ", \"cache\": 1" }, "model: the key 'cache'" },
        { { .model = ", \"end_of_word_suffix\": \"</w>\"" },
          "model.end_of_word_suffix" },
        { { .normalizer = "{\"type\": \"Lowercase\"}" },
          "normalizer: 'Lowercase' can't be done" },
        { { .normalizer = "{\"type\": \"Sequence\", \"normalizers\": "
                          "[{\"type\": \"NFC\"}, {\"type\": \"NFKC\"}]}" },
          "normalizer.normalizers[1]: 'NFKC'" },
        { { .pretoken = "null" }, "decoder: 'ByteLevel' can't be done" },
        { { .decoder = BEFORE("{\"type\": \"Replace\", \"pattern\": "
                              "{\"String\": \"th\"}, \"content\": \"x\"}") },
          "decoder.decoders[0]: before ByteLevel only what no token has" },
        { { .decoder = BEFORE("{\"type\": \"Strip\", \"content\": \" \", "
                              "\"start\": 1, \"stop\": 0}") },
          "decoder.decoders[0]: 'Strip' before Fuse" },
        { { .decoder = BEFORE(FOUR_IDLE FOUR_IDLE "{\"type\": \"Fuse\"}") },
          "decoder.decoders: more than 8 before ByteLevel" },
        { { .decoder = "{\"type\": \"Sequence\", \"decoders\": []}" },
          "decoder.decoders: ByteLevel is expected" },
        { { .decoder = "{\"type\": \"Sequence\", \"decoders\": [{\"type\": "
                       "\"Fuse\"}]}" },
          "decoder.decoders[0]: 'Fuse' can't be done" },
        { { .model = ", \"byte_fallback\": true",
            .vocabulary =
                "\"vocab\": {\"a\": 0, \"<0x41>\": 1}, \"merges\": []",
            .added = "[]" },
          "byte_fallback with ByteLevel can't be done" },
        { { .pretoken = "{\"type\": \"Metaspace\"}" },
          "pre_tokenizer.replacement: a string" },
        { { .pretoken = "{\"type\": \"ByteLevel\", \"use_regex\": 1}" },
          "pre_tokenizer.use_regex: true or false" },
        { { .pretoken = SPLIT("\\\\w+") }, "pattern: the pattern '\\w+' has" },
        { { .pretoken = SPLIT("\\\\p{Han}") }, "no general category" },
        { { .pretoken = SPLIT("\\\\p{N}{1,3}+") }, "a count with + or ?" },
        { { .pretoken = SPLIT("[a[b]]") }, "a set in a set" },
        { { .pretoken = SPLIT("(?<n>a)") }, "a group of this kind" },
        { { .pretoken = SPLIT("(?i:fi)") }, "letters of a ligature" },
        { { .pretoken = SPLIT("(") }, "missing" },
        { { .pretoken = SPLIT("") }, "the pattern is empty" },
        { { .post = "{\"type\": \"BertProcessing\"}" },
          "post_processor: 'BertProcessing'" },
        { { .post = "{\"type\": \"TemplateProcessing\", \"single\": "
                    "[{\"SpecialToken\": {\"id\": \"x\", \"type_id\": 0}}], "
                    "\"pair\": [], \"special_tokens\": {}}" },
          "special_tokens has no 'x'" },
        { { .vocabulary = "\"vocab\": {\"a\": 0, \"b\": 0}, \"merges\": []" },
          "model.vocab: 'b': token 0 is given twice" },
        { { .vocabulary = "\"vocab\": {\"a\": -1}, \"merges\": []" },
          "model.vocab: the token 'a' has no whole number" },
        { { .vocabulary = "\"vocab\": {\"a\": 2147483648}, \"merges\": []" },
          "model.vocab: the token 'a' has no whole number" },
        { { .vocabulary = "\"vocab\": {\"a\": 2147483646}, \"merges\": []" },
          "the highest of 1 tokens has the number 2147483646" },
        { { .vocabulary = "\"vocab\": {}, \"merges\": []" }, "it is empty" },
        { { .vocabulary = "\"vocab\": {\"a\": 0}, \"merges\": [\"a a\"]" },
          "model.merges[0]: 'aa' is not in the vocabulary" },
        { { .vocabulary =
                "\"vocab\": {\"a\": 0}, \"merges\": [[\"a\", \"\"]]" },
          "model.merges[0]: one half is empty" },
        { { .vocabulary = "\"vocab\": {\"a\": 0}, \"merges\": [\"a a a\"]" },
          "model.merges[0]: \"LEFT RIGHT\"" },
        { { .vocabulary = "\"vocab\": {\"a\": 0}, \"merges\": [[\"a\"]]" },
          "model.merges[0]: \"LEFT RIGHT\"" },
        { { .vocabulary = "\"vocab\": [], \"merges\": []" },
          "model.vocab: an object is expected" },
        { { .vocabulary = "\"merges\": []" }, "model.vocab: an object" },
        { { .vocabulary = VOCAB_A }, "added_tokens[0].id: '<|end|>' has the" },
        { { .added = "[{\"id\": 280, \"content\": \"\"}]" },
          "added_tokens[0]: an added token is empty" },
        { { .added = "[{\"id\": 280, \"content\": \"x!\"}, "
                     "{\"id\": 281, \"content\": \"x!\"}]" },
          "added_tokens[1]: added tokens 280 and 281 have the same text" },
        { { .added = "[{\"id\": 280, \"content\": \"x!\", \"trim\": 1}]" },
          "added_tokens[0]: the key 'trim'" },
        { { .added = "[{\"id\": 280, \"content\": \"\xFF\"}]" }, ":1:" },
        { { .added = "[{\"id\": 280, \"content\": \"\\u0000\"}]" }, "NUL" },
        { { .added = "[" }, ":1:" },
    };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        fixture_refused(fixture_path(folder, "tokenizer.json"), &rows[r].of,
                        rows[r].text);
}

/* What transformers writes for tokenizers that it has converted: decoders and a
 * byte_fallback that mean nothing to a file of bytes. */
static void test_converted(void)
{
    struct fixture_file of = {
        .model = ", \"byte_fallback\": true",
        .decoder = BEFORE(
            "{\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}, {\"type\": "
            "\"Replace\", \"pattern\": {\"String\": \"\xE2\x96\x81\"}, "
            "\"content\": \" \"}"),
    };
    static const char text[] =
        "the others <|end|> \xE2\x96\x81 \x04 caf\xC3\xA9";
    struct token_list lists[2];
    for (int i = 0; i < 2; i++) {
        struct fixture_both both =
            open_file(i == 0 ? &(struct fixture_file){ 0 } : &of);
        lists[i] = fixture_encode(&both, text, sizeof text - 1, 0);
        fixture_both_close(&both);
    }
    tap_ok(lists[0].count > 5 && fixture_same(&lists[0], &lists[1]),
           "a converted file has the tokens of the file");
    free(lists[0].token);
    free(lists[1].token);
}

/* Files that are large or deep for no good reason. */
static void test_hostile_files(void)
{
    struct tokenizer *tokenizer = NULL;
    char *deep = malloc(400001);
    const char *path = fixture_path(folder, "tokenizer.json");
    memset(deep, '[', 200000);
    memset(deep + 200000, ']', 200000);
    deep[400000] = '\0';
    tap_is_int(
        tokenizer_create(write_file(&(struct fixture_file){ .added = deep }),
                         &tokenizer),
        ERR_DATA, "arrays in arrays: %s", err_text());
    memset(deep, 'x', 400000);
    memcpy(deep, "[{\"id\": 280, \"content\": \"", 25);
    memcpy(deep + 399996, "\"}]", 4);
    tap_is_int(
        tokenizer_create(write_file(&(struct fixture_file){ .added = deep }),
                         &tokenizer),
        ERR_DATA, "a long added token: %s", err_text());
    free(deep);
    FILE *file = fopen(path, "w");
    fclose(file);
    tap_is_int(tokenizer_create(path, &tokenizer), ERR_DATA, "empty: %s",
               err_text());
    unlink(path);
    tap_is_int(tokenizer_create(folder, &tokenizer), ERR_DATA,
               "a folder without: %s", err_text());
    tap_is_int(tokenizer_create(path, &tokenizer), ERR_USAGE, "none: %s",
               err_text());
}

/* Of what is in a file, without the file. */
static void test_memory(void)
{
    char path[FSIO_PATH_MAX];
    char *text = NULL;
    size_t bytes = 0;
    struct tokenizer *of_file = NULL, *of_text = NULL;
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    fixture_tokenizer(path, &(struct fixture_file){ .pretokenizer = GPT2 });
    tap_ok(tokenizer_create(path, &of_file) == ERR_OK &&
               fsio_read_file(path, 1 << 20, &text, &bytes) == ERR_OK &&
               tokenizer_create_json("model", text, bytes, 104, FIXTURE_END,
                                     &of_text) == ERR_OK,
           "a tokenizer of a text in memory");
    tap_is_str(tokenizer_sha256(of_text), tokenizer_sha256(of_file),
               "it is that of the file");
    tap_ok(tokenizer_bos(of_text) == 104 &&
               tokenizer_eos(of_text) == FIXTURE_END &&
               strcmp(tokenizer_name(of_text), "model") == 0,
           "with the ends and the name that it was given");
    tokenizer_destroy(of_text);
    of_text = NULL;
    tap_ok(tokenizer_create_json("model", text, bytes, -1, 999, &of_text) ==
                   ERR_DATA &&
               strstr(err_text(), "model: ") != NULL,
           "an end that is no token: %s", err_text());
    tap_ok(tokenizer_create_json("model", text, bytes - 1, -1, -1, &of_text) ==
                   ERR_DATA &&
               of_text == NULL,
           "half a text: %s", err_text());
    tokenizer_destroy(of_file);
    free(text);
}

int main(void)
{
    folder = tap_folder();
    test_golden();
    test_memory();
    for (int p = GPT2; p <= NONE; p++) {
        test_cut(p, false, true);
        test_cut(p, false, false);
        if (p != PREFIX) /* it adds blanks */
            test_back(p);
    }
    test_cut(GPT2, true, true);
    test_cut(GPT4O, true, false);
    test_long_words();
    test_marks();
    test_patterns();
    test_properties();
    test_refused();
    test_converted();
    test_hostile_files();
    return tap_done();
}
