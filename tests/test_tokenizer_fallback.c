/* Tokenizers of characters with bytes as fallback: tokens as the Hugging Face
 * library 0.23.3 gives them for the same files, texts back byte for byte, cuts,
 * long texts, and what is refused. */
#include <time.h>

#include "src/data/set/dataset.h"
#include "src/data/prepare/tokenize.h"
#include "tests/tokenizer_fallback.h"

static const char *folder;

static struct fixture_both open_kind(int kind, const char *added)
{
    const char *path = fixture_path(folder, "tokenizer.json");
    fallback_tokenizer(path, kind, added);
    return fixture_both_open(path);
}

static bool comes_back(const struct fixture_both *both,
                       const struct token_list *list, const char *text,
                       size_t bytes)
{
    struct tokenizer_decoder decoder = { 0 };
    size_t done = 0;
    bool same = true;
    for (size_t i = 0; i < list->count && same; i++) {
        const uint8_t *part = NULL;
        size_t length = 0;
        fixture_need(tokenizer_decode_next(both->tokenizer, &decoder,
                                           list->token[i], &part, &length));
        same = length <= bytes - done && memcmp(text + done, part, length) == 0;
        done += length;
    }
    return same && done == bytes;
}

static void test_golden(void)
{
    static const struct {
        int kind;
        const char *text, *tokens;
    } rows[] = {
        { LLAMA2, "the  thing the\n", "271 272 268 275 271 278" },
        { LLAMA2, "a the \303\251\346\227\245\360\237\230\200x",
          "259 263 271 259 276 277 243 162 155 131 123" },
        { LLAMA2, "  a", "272 259 263" },
        { LLAMA2, "<w>the<s> a <n>b<n>",
          "281 271 1 272 263 282 264 63 266 65" },
        { LLAMA2, "a b a b", "259 263 259 264 259 263 259 264" },
        { LLAMA2, "\342\226\201the \342\226\201", "259 271 272" },
        { LLAMA2, "", "" },
        { ACROSS, "the  thing the\n", "271 272 268 275 271 278" },
        { ACROSS, "a the \303\251\346\227\245\360\237\230\200x",
          "259 263 271 259 276 277 243 162 155 131 123" },
        { ACROSS, "  a", "272 259 263" },
        { ACROSS, "<w>the<s> a <n>b<n>",
          "281 271 1 272 263 282 264 63 266 65" },
        { ACROSS, "a b a b", "259 280 264 259 280 264" },
        { ACROSS, "\342\226\201the \342\226\201", "259 271 272" },
        { ACROSS, "", "" },
        { GEMMA, "the  thing the\n", "269 272 268 275 271 278" },
        { GEMMA, "a the \303\251\346\227\245\360\237\230\200x",
          "263 271 259 276 277 243 162 155 131 123" },
        { GEMMA, "  a", "272 263" },
        { GEMMA, "<w>the<s> a <n>b<n>", "281 269 1 259 263 259 282 264 282" },
        { GEMMA, "a b a b", "263 259 264 259 263 259 264" },
        { GEMMA, "\342\226\201the \342\226\201", "271 272" },
        { GEMMA, "", "" },
        { META_ALWAYS, "the  thing the\n", "271 259 259 268 275 271 278" },
        { META_ALWAYS, "a the \303\251\346\227\245\360\237\230\200x",
          "259 263 271 259 276 277 243 162 155 131 123" },
        { META_ALWAYS, "  a", "259 259 263" },
        { META_ALWAYS, "<w>the<s> a <n>b<n>",
          "281 271 1 259 263 259 282 259 264 282" },
        { META_ALWAYS, "a b a b", "259 263 259 264 259 263 259 264" },
        { META_ALWAYS, "\342\226\201the \342\226\201", "271 259 259" },
        { META_ALWAYS, "", "" },
        { META_FIRST, "the  thing the\n", "271 272 268 275 271 278" },
        { META_FIRST, "a the \303\251\346\227\245\360\237\230\200x",
          "259 263 271 259 276 277 243 162 155 131 123" },
        { META_FIRST, "  a", "272 263" },
        { META_FIRST, "<w>the<s> a <n>b<n>",
          "281 269 1 259 263 259 282 264 282" },
        { META_FIRST, "a b a b", "259 263 259 264 259 263 259 264" },
        { META_FIRST, "\342\226\201the \342\226\201", "271 272" },
        { META_FIRST, "", "" },
        { META_NEVER, "the  thing the\n", "269 272 268 275 271 278" },
        { META_NEVER, "a the \303\251\346\227\245\360\237\230\200x",
          "263 271 259 276 277 243 162 155 131 123" },
        { META_NEVER, "  a", "272 263" },
        { META_NEVER, "<w>the<s> a <n>b<n>",
          "281 269 1 259 263 259 282 264 282" },
        { META_NEVER, "a b a b", "263 259 264 259 263 259 264" },
        { META_NEVER, "\342\226\201the \342\226\201", "271 272" },
        { META_NEVER, "", "" },
    };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        struct fixture_both both = open_kind(rows[r].kind, NULL);
        fixture_golden(&both, rows[r].text, 1, rows[r].tokens, r);
        fixture_both_close(&both);
    }
}

static const char *const texts[] = {
    "the", "ing",    " ",        "  ",           "\n",
    "a",   "b",      "\303\251", "\346\227\245", "\360\237\230\200",
    "<w>", "<s>",    "x",        " the",         "1",
    "t",   "<0x41>", "\302\240", "</s>",         "\357\277\275",
};
#define TEXTS (sizeof texts / sizeof *texts)

/* What Metaspace puts in front, it leaves out where a text begins with a blank:
 * there two texts have the same tokens, and the library's. */
static bool gives_back(int kind, const char *text)
{
    return (kind != META_ALWAYS && kind != META_FIRST) ||
           (text[0] != ' ' && strstr(text, "> ") == NULL);
}

/* Texts come back, and the parts of one that is cut have its tokens. */
static void test_texts(int kind)
{
    struct fixture_both both = open_kind(kind, NULL);
    uint64_t at = 0;
    int back = 0, bad = 0, cuts = 0;
    for (int round = 0; round < 3000; round++) {
        char text[512];
        unsigned flags = round % 2 == 0 ? TOKENIZER_SPECIAL : 0u;
        size_t known =
            fixture_random(texts, TEXTS, &at, text, 1 + rng_u64(2, 0, at) % 20);
        size_t bytes = known + fixture_random(texts, TEXTS, &at, text + known,
                                              rng_u64(3, 0, at) % 8);
        text[bytes] = '\0';
        struct token_list whole = fixture_encode(&both, text, bytes, flags);
        back +=
            gives_back(kind, text) && !comes_back(&both, &whole, text, bytes);
        fixture_cut(&both, text, known, bytes, flags, &cuts, &bad);
        free(whole.token);
    }
    tap_is_int(back, 0, "kind %d: texts and back", kind);
    tap_is_int(bad, 0, "... %d texts cut in two", cuts);
    tap_ok(kind == ACROSS ? cuts == 0 : cuts > 1000, "... where that is known");
    fixture_both_close(&both);
}

/* Added tokens that lie across blanks, or look at what is beside them. */
static void test_no_cut(void)
{
    static const char *const added[] = {
        "[{\"id\": 281, \"content\": \"<x y>\"}]",
        "[{\"id\": 281, \"content\": \"cat\", \"single_word\": true}]",
    };
    for (size_t i = 0; i < sizeof added / sizeof *added; i++) {
        struct fixture_both both = open_kind(LLAMA2, added[i]);
        tap_is_int((long long)tokenizer_cut(both.tokenizer,
                                            (const uint8_t *)"the the", 7),
                   0, "not cut with %s", added[i]);
        fixture_both_close(&both);
    }
}

/* What grows with the square of the length takes hours. */
#ifdef __SANITIZE_ADDRESS__
#define LONG_S 200
#else
#define LONG_S 20
#endif

/* One word of ten megabytes; and blanks alone. */
static void test_long(int kind)
{
    struct fixture_both both = open_kind(kind, NULL);
    size_t bytes = 0;
    char *text = fixture_repeat("the thing ab \303\251x  \n", 10000000, &bytes);
    clock_t begun = clock();
    struct token_list list = fixture_encode(&both, text, bytes, 0);
    tap_ok(comes_back(&both, &list, text, bytes), "kind %d: 10 MB and back",
           kind);
    free(list.token);
    memset(text, ' ', bytes / 10);
    list = fixture_encode(&both, text, bytes / 10, 0);
    tap_ok(comes_back(&both, &list, text, bytes / 10), "... 1 MB of blanks");
    tap_ok(clock() - begun < LONG_S * CLOCKS_PER_SEC, "... in seconds");
    free(list.token);
    free(text);
    fixture_both_close(&both);
}

/* A document of several pieces has in a data set the tokens of the whole. */
static void test_data_set(void)
{
    struct fixture_both both = open_kind(LLAMA2, NULL);
    size_t bytes = 0;
    char *text = fixture_repeat("the thing  ab x\n", 2400000, &bytes);
    char path[FSIO_PATH_MAX], out[FSIO_PATH_MAX];
    char tokenizer[FSIO_PATH_MAX], *files[] = { path };
    struct tokenize_result result;
    struct dataset *dataset = NULL;
    int32_t *tokens = NULL;
    int64_t length = 0;
    struct token_list list = fixture_encode(&both, text, bytes, 0);
    fixture_need(fsio_path(tokenizer, "%s/tokenizer.json", folder));
    fixture_need(fsio_path(path, "%s/text", folder));
    fixture_need(fsio_path(out, "%s/set", folder));
    fixture_write_file(path, text, bytes);
    struct tokenize_options options = { .out = out,
                                        .tokenizer = tokenizer,
                                        .seq_len = 1 << 22,
                                        .shard_bytes = 1 << 26,
                                        .no_eos = true };
    tap_is_int(tokenize_files(&options, files, 1, &result), ERR_OK,
               "a document of %zu bytes", bytes);
    fixture_need(dataset_open(out, &dataset));
    tokens = malloc(sizeof *tokens << 22);
    fixture_need(dataset_read(dataset, 0, tokens, 1 << 22, &length));
    tap_ok((size_t)length == list.count &&
               memcmp(tokens, list.token, list.count * sizeof *tokens) == 0,
           "... has the tokens of the whole in a data set");
    dataset_close(dataset);
    free(tokens);
    free(list.token);
    free(text);
    fixture_both_close(&both);
}

static void test_properties(void)
{
    struct fixture_both both = open_kind(LLAMA2, NULL);
    const uint8_t *text = NULL;
    size_t bytes = 0;
    tap_is_int(tokenizer_find(both.tokenizer, "<s>"), 1, "found");
    tap_is_int(tokenizer_find(both.tokenizer, "<n>"), 282,
               "... one that is normalized");
    fixture_need(tokenizer_decode(both.tokenizer, 271, &text, &bytes));
    tap_ok(bytes == 4 && memcmp(text, " the", 4) == 0, "a token alone");
    fixture_need(tokenizer_decode(both.tokenizer, 3 + 0xE3, &text, &bytes));
    tap_ok(bytes == 1 && *text == 0xE3, "a byte");
    tap_ok(tokenizer_is_special(both.tokenizer, 1) &&
               !tokenizer_is_special(both.tokenizer, 281),
           "special ones");
    fixture_both_close(&both);
}

static void test_refused(void)
{
    static const struct {
        struct fixture_file of;
        const char *text;
    } rows[] = {
        { { .pretoken = "null", .decoder = "null" }, "decoder: none, which" },
        { { .pretoken = "null", .decoder = "{\"type\": \"WordPiece\"}" },
          "decoder: 'WordPiece'" },
        { { .pretoken = "null",
            .decoder = FALLBACK_DECODERS ", "
                                         "{\"type\": \"ByteFallback\"}]}" },
          "decoder.decoders[3]: 'ByteFallback' behind Fuse" },
        { { .pretoken = "null",
            .decoder = "{\"type\": \"Strip\", \"content\": \" \", \"start\": "
                       "1, \"stop\": 0}" },
          "decoder: 'Strip' before Fuse" },
        { { .pretoken = "null",
            .decoder = FALLBACK_DECODERS
            ", {\"type\": \"Strip\", \"content\": \" \", \"start\": 2, "
            "\"stop\": 0}]}" },
          "decoder.decoders[3]: only one blank" },
        { { .normalizer = "{\"type\": \"Prepend\", \"prepend\": \"x\"}" },
          "normalizer: 'x' can't be put in front" },
        { { .normalizer = "{\"type\": \"Replace\", \"pattern\": {\"Regex\": "
                          "\"a\"}, \"content\": \"\"}" },
          "normalizer.pattern: a Regex can't be replaced" },
        { { .normalizer = "{\"type\": \"Replace\", \"pattern\": {\"String\": "
                          "\"\"}, \"content\": \"\"}" },
          "normalizer: the pattern is empty" },
        { { .normalizer = FALLBACK_LLAMA }, "pre_tokenizer: ByteLevel with" },
        { { .normalizer = FALLBACK_LLAMA,
            .pretoken = FALLBACK_META("first", "true") },
          "pre_tokenizer: 'first' behind the normalizers" },
        { { .pretoken = FALLBACK_META("last", "true") },
          "pre_tokenizer.prepend_scheme: 'last'" },
        { { .pretoken = "{\"type\": \"Metaspace\", \"replacement\": \"__\"}" },
          "pre_tokenizer: '__' is not one character" },
        { { .pretoken = "{\"type\": \"Metaspace\", \"replacement\": \"_\", "
                        "\"add_prefix_space\": false, \"prepend_scheme\": "
                        "\"always\"}" },
          "'always' with add_prefix_space false" },
        { { .pretoken = "{\"type\": \"Sequence\", \"pretokenizers\": "
                        "[" FALLBACK_META("always", "true") ", " FALLBACK_META(
                            "always", "true") "]}" },
          "pre_tokenizer.pretokenizers[1]: a second Metaspace" },
    };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        fixture_refused(fixture_path(folder, "tokenizer.json"), &rows[r].of,
                        rows[r].text);
}

/* A normalizer that makes a text grow without bound. */
static void test_growth(void)
{
    struct token_list list = { 0 };
    const char *path = fixture_path(folder, "tokenizer.json");
    char text[10000];
    char *vocabulary = fallback_vocabulary(LLAMA2);
#define GROW                                                                   \
    "{\"type\": \"Replace\", \"pattern\": {\"String\": \"a\"}, \"content\": "  \
    "\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"}"
    fixture_tokenizer(path, &(struct fixture_file){
                                .normalizer =
                                    "{\"type\": \"Sequence\", \"normalizers\": "
                                    "[" GROW ", " GROW ", " GROW ", " GROW "]}",
                                .pretoken = "null",
                                .decoder = FALLBACK_DECODERS "]}",
                                .added = "[]",
                                .post = "null",
                                .vocabulary = vocabulary });
    memset(text, 'a', sizeof text);
    struct fixture_both both = fixture_both_open(path);
    tap_is_int(
        tokenizer_encode(both.encoder, (uint8_t *)text, sizeof text, 0, &list),
        ERR_DATA, "a text that grows is refused: %s", err_text());
    free(list.token);
    free(vocabulary);
    fixture_both_close(&both);
}

int main(void)
{
    folder = tap_folder();
    test_golden();
    for (int kind = 0; kind < FALLBACK_KINDS; kind++)
        test_texts(kind);
    test_no_cut();
    test_long(LLAMA2);
    test_long(ACROSS);
    test_data_set();
    test_properties();
    test_refused();
    test_growth();
    return tap_done();
}
