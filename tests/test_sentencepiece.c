/* SentencePiece models: what comes of one, what is refused and how, and files
 * that are cut off or changed at any byte. tests/interop/pieces.sh has
 * the library beside it. */

#include "src/text/tokenizer/sentencepiece.h"
#include "src/text/tokenizer/tokenizer.h"
#include "tests/sentencepiece_build.h"
#include "tests/tap.h"

#define MARK "\xE2\x96\x81"

struct shape {
    unsigned kind; /* 0: BPE */
    unsigned bare, squeezes, plain, suffix, lacking_bytes;
    const char *charsmap, *name, *extra;
    unsigned extra_type;
    float extra_score;
};

/* unk <s> </s>, bytes, then characters and what they merge to. */
static void build(const struct shape *shape, struct proto *out)
{
    static const char *const pieces[] = { MARK "a", "bc",  MARK "abc",
                                          "ab",     "abc", MARK,
                                          "a",      "b",   "c" };
    struct proto part = { .bytes = 0 };
    out->bytes = 0;
    proto_piece(out, "<unk>", 0, 2);
    proto_piece(out, "<s>", 0, 3);
    proto_piece(out, "</s>", 0, 3);
    for (unsigned b = 0; b < 256 - shape->lacking_bytes; b++) {
        char text[16];
        snprintf(text, sizeof text, "<0x%02X>", b);
        proto_piece(out, text, 0, 6);
    }
    for (unsigned i = 0; i < 9; i++)
        proto_piece(out, pieces[i], -(float)i, 1);
    if (shape->extra != NULL)
        proto_piece(out, shape->extra, shape->extra_score, shape->extra_type);
    proto_varint(&part, 3, shape->kind == 0 ? 2 : shape->kind);
    proto_varint(&part, 24, shape->suffix);
    proto_varint(&part, 35, 1);
    proto_bytes(out, 2, part.data, part.bytes);
    part.bytes = 0;
    if (shape->charsmap != NULL)
        proto_bytes(&part, 2, shape->charsmap, strlen(shape->charsmap));
    proto_varint(&part, 3, !shape->bare);
    proto_varint(&part, 4, shape->squeezes);
    proto_varint(&part, 5, !shape->plain);
    proto_bytes(out, 3, part.data, part.bytes);
}

/* The tokens of a text as "1 2 3". */
static void tokens(const struct sentencepiece *made, const char *text,
                   unsigned flags, char *out, size_t room)
{
    struct tokenizer *tokenizer = NULL;
    struct tokenizer_encoder *encoder = NULL;
    struct token_list list = { 0 };
    size_t used = 0;
    out[0] = '\0';
    if (tap_ok(tokenizer_create_json("made", made->json, strlen(made->json),
                                     made->bos, made->eos,
                                     &tokenizer) == ERR_OK &&
                   tokenizer_encoder_create(tokenizer, &encoder) == ERR_OK &&
                   tokenizer_encode(encoder, (const uint8_t *)text,
                                    strlen(text), flags, &list) == ERR_OK,
               "'%s': encoded", text))
        for (size_t i = 0; i < list.count; i++)
            used += (size_t)snprintf(out + used, room - used, "%s%d",
                                     i == 0 ? "" : " ", (int)list.token[i]);
    free(list.token);
    tokenizer_encoder_destroy(encoder);
    tokenizer_destroy(tokenizer);
}

static void test_tokens(void)
{
    static const struct {
        unsigned prefix, flags;
        bool ends;
        const char *text, *want;
    } cases[] = {
        /* bc is above abc and ab, and MARK a above both */
        { 1, 0, false, "abc", "261" },
        { 1, 0, false, "ab", "259 266" },
        { 0, 0, false, "abc", "263" },
        { 0, 0, false, " abc", "261" },
        { 1, 0, false, "a\xC3\xA9", "259 198 172" }, /* by its bytes */
        { 1, TOKENIZER_TEMPLATE, false, "bc", "1 264 260" },
        { 1, TOKENIZER_TEMPLATE, true, "bc", "1 264 260 2" },
        { 1, 0, false, "", "" },
    };
    struct proto file;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct shape shape = { 0 };
        struct sentencepiece made = { NULL };
        char got[256] = "";
        shape.bare = !cases[i].prefix;
        build(&shape, &file);
        if (!tap_ok(sentencepiece_make("m", file.data, file.bytes, true,
                                       cases[i].ends, &made) == ERR_OK,
                    "a model is read (%s)", err_text()))
            continue;
        tap_ok(made.bos == 1 && made.eos == 2, "its ends");
        tokens(&made, cases[i].text, cases[i].flags, got, sizeof got);
        tap_is_str(got, cases[i].want, "tokens of '%s'", cases[i].text);
        free(made.json);
    }
}

static void test_refused(void)
{
    static const struct {
        struct shape shape;
        enum err rc;
        const char *text;
    } cases[] = {
        { { .kind = 1 }, ERR_UNSUPPORTED, "the type unigram" },
        { { .kind = 4 }, ERR_UNSUPPORTED, "another type than BPE" },
        { { .charsmap = "x" }, ERR_UNSUPPORTED, "changes characters" },
        { { .squeezes = 1 }, ERR_UNSUPPORTED, "remove_extra_white" },
        { { .plain = 1 }, ERR_UNSUPPORTED, "escape_whitespaces" },
        { { .suffix = 1 }, ERR_UNSUPPORTED, "treat_whitespace" },
        { { .lacking_bytes = 1 }, ERR_DATA, "not all bytes" },
        { { .extra = "ab", .extra_type = 1 }, ERR_DATA, "twice" },
        { { .extra = "x", .extra_type = 9 }, ERR_DATA, "its type" },
        { { .extra = "<0xZZ>", .extra_type = 6 }, ERR_DATA, "its type" },
        { { .extra = "<unk2>", .extra_type = 2 }, ERR_DATA, "its type" },
        { { .extra = "u", .extra_type = 4 }, ERR_UNSUPPORTED, "users" },
        { { .extra = "u", .extra_type = 5 }, ERR_UNSUPPORTED, "not used" },
        { { .extra = "bx", .extra_type = 1 }, ERR_UNSUPPORTED, "is no piece" },
        { { .extra = "\xFF", .extra_type = 1 }, ERR_DATA, "UTF-8" },
        { { .extra = "", .extra_type = 1 }, ERR_DATA, "empty" },
        { { .extra = "x", .extra_type = 1, .extra_score = INFINITY },
          ERR_DATA,
          "a score" },
    };
    struct proto file;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sentencepiece made = { NULL };
        build(&cases[i].shape, &file);
        tap_ok(sentencepiece_make("m", file.data, file.bytes, true, false,
                                  &made) == cases[i].rc &&
                   strstr(err_text(), cases[i].text) != NULL,
               "refused: %s", err_text());
        free(made.json);
    }
}

/* Cut off anywhere, and with any byte another: refused, or read. */
static void test_hostile(void)
{
    struct shape shape = { 0 };
    struct proto file, other;
    int cut = 0, read = 0, refused = 0, wrong = 0;
    build(&shape, &file);
    for (size_t i = 0; i < file.bytes; i++) {
        struct sentencepiece made = { NULL };
        uint8_t *exact = malloc(i + 1);
        memcpy(exact, file.data, i);
        cut += sentencepiece_make("m", exact, i, true, true, &made) != ERR_OK;
        free(made.json);
        free(exact);
        other = file;
        other.data[i] ^= (uint8_t)(1 << i % 8);
        made.json = NULL;
        enum err rc =
            sentencepiece_make("m", other.data, other.bytes, true, true, &made);
        read += rc == ERR_OK;
        refused += rc == ERR_DATA || rc == ERR_UNSUPPORTED;
        wrong += rc != ERR_OK && made.json != NULL;
        free(made.json);
    }
    tap_is_int(cut, (long long)file.bytes, "cut off anywhere: refused");
    tap_ok(read > 0 && refused > 0 && wrong == 0 &&
               (size_t)(read + refused) == file.bytes,
           "a byte changed: %d read, %d refused", read, refused);
}

static bool put(const char *folder, const char *name, const void *data,
                size_t bytes)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    return file != NULL && fwrite(data, 1, bytes, file) == bytes &&
           fclose(file) == 0;
}

static void check_work(const struct proto *file, const char *what, bool fine)
{
    struct sentencepiece made = { NULL };
    enum err rc =
        sentencepiece_make("m", file->data, file->bytes, true, false, &made);
    tap_ok(fine ? rc == ERR_OK
                : rc == ERR_DATA && strstr(err_text(), "more ways") != NULL,
           "%s: %s", what, rc == ERR_OK ? "read" : err_text());
    free(made.json);
}

/* Pieces that are all of each other, x^i y^j; and long ones that are not. */
static void test_work(void)
{
    struct shape shape = { 0 };
    static struct proto file;
    char text[257] = "";
    build(&shape, &file);
    for (int length = 1; length <= 40; length++) {
        for (int i = 0; i <= length; i++) {
            memset(text, 'x', (size_t)i);
            memset(text + i, 'y', (size_t)(length - i));
            proto_piece(&file, text, -(float)length, 1);
        }
        if (length == 16 || length == 40)
            check_work(&file, "pieces of each other", length == 16);
    }
    build(&shape, &file);
    for (unsigned i = 0; i < 64; i++) {
        for (unsigned k = 0; k < 256; k++)
            text[k] = k < 8 ? "ab"[i >> k & 1] : 'c';
        proto_piece(&file, text, -1, 1);
    }
    check_work(&file, "long ones", false);
}

/* A folder without a tokenizer.json, and what lies beside the model. */
static void test_folder(void)
{
    struct shape shape = { 0 };
    struct proto file;
    struct tokenizer *tokenizer = NULL;
    struct tokenizer_encoder *encoder = NULL;
    struct token_list list = { 0 };
    static const char config[] =
        "{\"add_bos_token\": false, \"add_eos_token\": true, "
        "\"eos_token\": \"</s>\", \"model_max_length\": 1e30, "
        "\"added_tokens_decoder\": {\"268\": {\"content\": \"<x>\", "
        "\"special\": true}}}";
    const char *folder = tap_folder();
    build(&shape, &file);
    tap_ok(
        put(folder, "tokenizer.model", file.data, file.bytes) &&
            put(folder, "tokenizer_config.json", config, sizeof config - 1) &&
            tokenizer_create(folder, &tokenizer) == ERR_OK,
        "a folder with a tokenizer.model (%s)", err_text());
    tap_ok(tokenizer != NULL && tokenizer_eos(tokenizer) == 2 &&
               tokenizer_bos(tokenizer) == 1 &&
               strstr(folder, tokenizer_name(tokenizer)) != NULL,
           "its ends and its name");
    tap_ok(tokenizer != NULL &&
               tokenizer_encoder_create(tokenizer, &encoder) == ERR_OK &&
               tokenizer_encode(encoder, (const uint8_t *)"<x>bc", 5,
                                TOKENIZER_TEMPLATE | TOKENIZER_SPECIAL,
                                &list) == ERR_OK &&
               list.count == 4 && list.token[0] == 268 && list.token[3] == 2,
           "add_bos_token, add_eos_token and added tokens");
    free(list.token);
    tokenizer_encoder_destroy(encoder);
    tokenizer_destroy(tokenizer);
    tap_ok(put(folder, "added_tokens.json", "{}", 2) &&
               put(folder, "tokenizer_config.json", "{}", 2) &&
               tokenizer_create(folder, &tokenizer) == ERR_UNSUPPORTED &&
               strstr(err_text(), "added_tokens.json") != NULL,
           "tokens beside it are refused: %s", err_text());
}

int main(void)
{
    test_folder();
    test_work();
    test_tokens();
    test_refused();
    test_hostile();
    return tap_done();
}
