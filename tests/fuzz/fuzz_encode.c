/* Texts of any bytes through the encoders of small files: tokens give the text
 * back, and the parts of a cut text give the tokens of the whole. The first byte
 * chooses file and flags. */

#include "src/base/array.h"
#include "tests/fuzz/fuzz.h"
#include "tests/tokenizer_fallback.h"

/* Each of bytes without and with NFC and added tokens, then those of
 * characters. */
#define BYTE_FILES (2 * (NONE + 1))
#define FILES (BYTE_FILES + FALLBACK_KINDS)

struct both {
    struct tokenizer *tokenizer;
    struct tokenizer_encoder *encoder;
};

/* Made once; they live as long as the process. */
static struct both *open_all(void)
{
    static struct both all[FILES];
    char path[FSIO_PATH_MAX];
    const char *folder = tap_folder();
    fixture_need(fsio_path(path, "%s/tokenizer.json", folder));
    for (int f = 0; f < FILES; f++) {
        bool more = f > NONE;
        struct fixture_file of = {
            .pretokenizer = f % (NONE + 1),
            .added = more ? "[{\"id\": 280, \"content\": \"<|end|>\", "
                            "\"special\": true}, {\"id\": 281, \"content\": "
                            "\"<l>\", \"lstrip\": true}, {\"id\": 282, "
                            "\"content\": \"<r>\", \"rstrip\": true, "
                            "\"normalized\": false}, {\"id\": 283, "
                            "\"content\": \"s t\", \"normalized\": false}]"
                          : "[]",
            .normalizer = more ? "{\"type\": \"NFC\"}" : NULL,
            .post = more ? NULL : "null"
        };
        if (f < BYTE_FILES)
            fixture_tokenizer(path, &of);
        else
            fallback_tokenizer(path, f - BYTE_FILES, NULL);
        fixture_need(tokenizer_create(path, &all[f].tokenizer));
        fixture_need(
            tokenizer_encoder_create(all[f].tokenizer, &all[f].encoder));
    }
    fsio_remove_tree(folder);
    return all;
}

/* false: the pattern takes too long. */
static bool encode(const struct both *both, const uint8_t *text, size_t bytes,
                   unsigned flags, struct token_list *list)
{
    return tokenizer_encode(both->encoder, text, bytes, flags, list) == ERR_OK;
}

static void check_back(const struct both *both, const struct token_list *list,
                       const uint8_t *text, size_t bytes)
{
    struct tokenizer_decoder decoder = { 0 };
    struct buffer whole = { 0 }, valid = { 0 };
    fixture_need(unicode_repair(text, bytes, &valid));
    for (size_t i = 0; i < list->count; i++) {
        const uint8_t *part = NULL;
        size_t length = 0;
        assert(tokenizer_decode_next(both->tokenizer, &decoder, list->token[i],
                                     &part, &length) == ERR_OK);
        fixture_need(buffer_add(&whole, part, length));
    }
    assert(
        whole.bytes == valid.bytes &&
        (whole.bytes == 0 || memcmp(whole.data, valid.data, whole.bytes) == 0));
    buffer_free(&whole);
    buffer_free(&valid);
}

static void check_cut(const struct both *both, const struct token_list *whole,
                      const uint8_t *text, size_t bytes, unsigned flags)
{
    struct token_list parts = { 0 };
    size_t cut = tokenizer_cut(both->tokenizer, text, bytes - bytes / 4);
    assert(cut <= bytes);
    if (cut > 0 && encode(both, text, cut, flags, &parts) &&
        encode(both, text + cut, bytes - cut, flags | TOKENIZER_INSIDE, &parts))
        assert(parts.count == whole->count &&
               memcmp(parts.token, whole->token,
                      parts.count * sizeof *parts.token) == 0);
    free(parts.token);
}

/* Not blanks that look like those that the file puts in front, marks in a text,
 * and a normalized added token, which takes the mark before it. */
static bool gives_back(int file, const uint8_t *text, size_t bytes)
{
    if (file < BYTE_FILES)
        return file <= NONE && file != PREFIX;
    int kind = file - BYTE_FILES;
    bool blanks = kind != META_ALWAYS && kind != META_FIRST;
    return bytes > 0 && (blanks || text[0] != ' ') &&
           memmem(text, bytes, FALLBACK_MARK, 3) == NULL &&
           memmem(text, bytes, "<n>", 3) == NULL &&
           (blanks || memmem(text, bytes, "> ", 2) == NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct both *all;
    struct token_list list = { 0 };
    if (all == NULL)
        all = open_all();
    if (bytes == 0)
        return 0;
    int file = data[0] % FILES;
    unsigned flags = data[0] / 128 != 0 ? TOKENIZER_SPECIAL : 0u;
    const struct both *both = &all[file];
    data++;
    bytes--;
    if (encode(both, data, bytes, flags, &list)) {
        if (gives_back(file, data, bytes))
            check_back(both, &list, data, bytes);
        check_cut(both, &list, data, bytes, flags);
    }
    free(list.token);
    return 0;
}
