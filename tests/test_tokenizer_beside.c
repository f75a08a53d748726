/* Tokens that files beside a tokenizer.json name, as transformers adds them: "xy" is a
 * piece of the vocabulary, 275, and "xyz" another one. */
#include "tests/tokenizer_fixture.h"

#define CONFIG "tokenizer_config.json"
#define MAP "special_tokens_map.json"
#define MORE(list) "{\"additional_special_tokens\": " list "}"
#define DECODER(list) "{\"added_tokens_decoder\": {" list "}}"
#define TOKEN(number, text, flags)                                             \
    "\"" number "\": {\"content\": \"" text "\"" flags "}"
#define SPECIAL ", \"special\": true"
static const struct {
    const char *config, *map;
    const char *tokens; /* of "xyz<|end|>", or TEXT=TOKENS; NULL: refused */
    bool special;
    const char *says; /* of another text than the file's: what it has */
} rows[] = {
    { MORE("[\"xy\", \"<|end|>\"]"), NULL, "275 122 280", true, "\"xy\"" },
    { NULL, MORE("[{\"content\": \"xy\", \"rstrip\": true}]"), "275 122 280",
      true, "\"rstrip\": true" },
    { "{\"extra_special_tokens\": [{\"__type\": \"AddedToken\", "
      "\"content\": \"xy\"}]}",
      NULL, "275 122 280", true, "\"xy\"" },
    { "{\"added_tokens_decoder\": {}}", MORE("[\"none\"]"), "274 280", false,
      NULL },
    { "{\"eos_token\": \"xy\", \"pad_token\": \"none\"}", NULL, "275 122 280",
      true, "\"xy\"" },
    { NULL, "{\"eos_token\": {\"content\": \"xy\", \"normalized\": null}}",
      "275 122 280", true, "\"normalized\": false" },
    { "{\"extra_special_tokens\": {\"image_token\": \"xy\", \"none\": "
      "\"none\"}}",
      NULL, "275 122 280", true, "\"xy\"" },
    { MORE("[\"\"]"), NULL, "274 280", false, NULL },
    { MORE("[\"<|end|>\"]"), MORE("null"), "274 280", false, NULL },
    { MORE("[\"none\"]"), NULL, NULL, false, "the token 'none', which it" },
    { NULL, MORE("[{\"content\": \"none\"}]"), NULL, false, "'none', which" },
    { "[]", NULL, NULL, false, "tokenizer_config.json" },
    { DECODER(TOKEN("275", "xy", "")), NULL, "275 122 280", false, "\"xy\"" },
    { DECODER(TOKEN("275", "xy", SPECIAL)), NULL, "275 122 280", true,
      "\"xy\"" },
    { "{\"eos_token\": \"xy\", \"added_tokens_decoder\": {" TOKEN("275", "xy",
                                                                  "") "}}",
      NULL, "275 122 280", true, "\"normalized\": true" },
    { DECODER(TOKEN("280", "<|end|>", SPECIAL ", \"lstrip\": true")), NULL,
      "a <|end|>=97 280", false, "\"lstrip\": true" },
    { DECODER(TOKEN("286", "more", "") ", " TOKEN("285", "none", "")),
      MORE("[\"else\"]"), "nonemore<|end|>=285 286 280", false, "\"more\"" },
    { "{\"additional_special_tokens\": [\"none\"], "
      "\"added_tokens_decoder\": {" TOKEN("285", "none", "") "}}",
      NULL, "none=285", false, "\"special\": true" },
    { DECODER(TOKEN("276", "xy", "")), NULL, NULL, false,
      "276: 'xy' is the tokenizer's token 275" },
    { DECODER(TOKEN("281", "<|end|>", "")), NULL, NULL, false, "token 280" },
    { DECODER(TOKEN("285", "none", "") ", " TOKEN("287", "more", "")), NULL,
      NULL, false, "287: 'more' is new, and the next number is 286" },
    { DECODER(TOKEN("0275", "xy", "")), NULL, NULL, false,
      "0275: 'xy' is the tokenizer's token 275" },
    { DECODER("\"275\": \"xy\""), NULL, NULL, false, "a text 'content' is" },
    { DECODER(TOKEN("275", "xy", ", \"special\": 1")), NULL, NULL, false,
      "'special' is neither" },
    { "{\"added_tokens_decoder\": []}", NULL, NULL, false, "it is no object" },
};

static void put(const char *folder, const char *name, const char *text)
{
    const char *path = fixture_path(folder, name);
    unlink(path);
    if (text != NULL)
        fixture_write_file(path, text, strlen(text));
}

int main(void)
{
    const char *folder = tap_folder();
    fixture_tokenizer(fixture_path(folder, "tokenizer.json"),
                      &(struct fixture_file){ .pretokenizer = GPT2 });
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        struct tokenizer *refused = NULL;
        struct fixture_both both = { 0 };
        size_t bytes;
        char given[100];
        put(folder, CONFIG, rows[r].config);
        put(folder, MAP, rows[r].map);
        if (rows[r].tokens == NULL) {
            tap_ok(tokenizer_create(folder, &refused) != ERR_OK &&
                       strstr(err_text(), rows[r].says) != NULL,
                   "row %zu is refused: %s", r, err_text());
            continue;
        }
        both = fixture_both_open(folder);
        const char *text = tokenizer_file(both.tokenizer, &bytes);
        const char *equals = strchr(rows[r].tokens, '=');
        snprintf(given, sizeof given, "%.*s",
                 equals != NULL ? (int)(equals - rows[r].tokens) : 99,
                 equals != NULL ? rows[r].tokens : "xyz<|end|>");
        fixture_golden(&both, given, TOKENIZER_SPECIAL,
                       equals != NULL ? equals + 1 : rows[r].tokens, r);
        tap_ok(tokenizer_is_special(both.tokenizer, 275) == rows[r].special,
               "row %zu: special or not", r);
        /* a data set's and a checkpoint's copy says the same by itself */
        tap_ok(strstr(text, "\"version\": \"1.0\"") != NULL &&
                   (rows[r].says == NULL ||
                    strstr(strstr(text, "added_tokens"), rows[r].says) != NULL),
               "row %zu: the file that is kept", r);
        fixture_both_close(&both);
    }
    return tap_done();
}
