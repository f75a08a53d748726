/* Tokenizers and chat templates while memory or files fail. */
#include "src/text/chat/chat.h"
#include "tests/chat_cases.h"
#include "tests/faults.h"
#include "tests/sentencepiece_build.h"
#include "tests/tokenizer_fixture.h"

static const struct fixture_file files[] = {
    { .pretokenizer = GPT2 },
    { .pretokenizer = LLAMA3 },
    { .pretokenizer = GPT4O, .normalizer = "{\"type\": \"NFC\"}" },
    { .pretokenizer = DIGITS },
    { .pretokenizer = REGEX },
    { .pretokenizer = PREFIX },
};
#define FILES (sizeof files / sizeof *files)
static int file; /* of the row at hand */

/* A text there and back. */
static enum err there_and_back(const char *name)
{
    static const char text[] = "the thing  they're 12 123\n\n hello<|end|> e"
                               "\314\201! \346\227\245x";
    enum err rc = ERR_OK;
    struct tokenizer *tokenizer = NULL;
    struct tokenizer_encoder *encoder = NULL;
    struct token_list list = { 0 };
    struct tokenizer_decoder decoder = { 0 };
    TRY_OUT(tokenizer_create(name, &tokenizer));
    TRY_OUT(tokenizer_encoder_create(tokenizer, &encoder));
    TRY_OUT(tokenizer_encode(encoder, (const uint8_t *)text, sizeof text - 1,
                             TOKENIZER_SPECIAL | TOKENIZER_TEMPLATE, &list));
    for (size_t t = 0; t < list.count; t++) {
        const uint8_t *part = NULL;
        size_t bytes = 0;
        TRY_OUT(tokenizer_decode_next(tokenizer, &decoder, list.token[t], &part,
                                      &bytes));
    }
out:
    free(list.token);
    tokenizer_encoder_destroy(encoder);
    tokenizer_destroy(tokenizer);
    return rc;
}

static enum err use_file(void)
{
    char name[] = "0.json";
    name[0] = (char)('0' + file);
    return there_and_back(name);
}

static enum err use_sentencepiece(void)
{
    return there_and_back("pieces.model");
}

/* With a character beyond its pieces, which becomes the unknown one. */
static void write_sentencepiece(void)
{
    static struct proto model, part;
    static const char *const pieces[] = { "th", "he", "the", "t", "h", "e" };
    proto_piece(&model, "<unk>", 0, 2);
    proto_piece(&model, "<s>", 0, 3);
    for (int i = 0; i < 6; i++)
        proto_piece(&model, pieces[i], -(float)i, 1);
    proto_varint(&part, 3, 2);
    proto_bytes(&model, 2, part.data, part.bytes);
    part.bytes = 0;
    proto_varint(&part, 4, 0);
    proto_bytes(&model, 3, part.data, part.bytes);
    fixture_write_file("pieces.model", (const char *)model.data, model.bytes);
}

static enum err use_bytes(void)
{
    return there_and_back("bytes");
}

static const struct {
    const char *text, *want;
} cases[] = { CHAT_CASES };
static const struct chat_message talk[] = { { "system", "Be brief.", 9 },
                                            { "user", " Hi\n", 4 },
                                            { "assistant", "Hello!", 6 },
                                            { "user", "Bye", 3 },
                                            { "assistant", "See you.", 8 } };

/* All templates of the table, each with what it makes. */
static enum err use_template(const char *name, const char *text,
                             const char *want)
{
    enum err rc = ERR_OK;
    struct tokenizer *tokenizer = NULL;
    struct chat_template *template = NULL;
    struct chat_text out = { 0 };
    TRY_OUT(tokenizer_create("bytes", &tokenizer));
    rc = text == NULL ? chat_template_create(name, tokenizer, &template)
                      : chat_template_create_text(name, text, strlen(text),
                                                  tokenizer, &template);
    if (rc != ERR_OK)
        goto out;
    TRY_OUT(chat_render(template, talk, 5, true, &out));
    if (want != NULL && want[0] != '!' && strcmp(out.text, want) != 0)
        rc = err_set(ERR_INTERNAL, "it made %s", out.text);
out:
    free(out.text);
    chat_template_destroy(template);
    tokenizer_destroy(tokenizer);
    return rc;
}

static enum err use_case(void)
{
    return use_template("case", cases[file].text, cases[file].want);
}

static enum err use_template_file(void)
{
    return use_template("chat.json", NULL, NULL);
}

static enum err use_chatml(void)
{
    return use_template("chatml", NULL, NULL);
}

int main(int argc, char **argv)
{
    static const char config[] = "{\"chat_template\": \"{{ messages[0].role "
                                 "}}\"}";
    static const struct faults_row rows[] = {
        { .name = "bytes", .call = use_bytes },
        { .name = "a SentencePiece model", .call = use_sentencepiece },
        { .name = "a template of a file", .call = use_template_file },
        { .name = "chatml", .call = use_chatml },
        { .line = "data train-tokenizer --vocab-size 280 --threads 1 --pattern "
                  "llama3 --out work/t.json a.txt" },
    };
    faults_begin();
    fixture_need(setenv("SOURCE_DATE_EPOCH", "1763900000", 1) == 0
                     ? ERR_OK
                     : ERR_INTERNAL);
    write_sentencepiece();
    fixture_write_file("a.txt", "one two two\n", 12);
    fixture_write_file("chat.json", config, sizeof config - 1);
    faults_sweep(rows, sizeof rows / sizeof *rows, argc, argv);
    for (file = 0; file < (int)FILES; file++) {
        char name[] = "0.json", what[32];
        name[0] = (char)('0' + file);
        snprintf(what, sizeof what, "tokenizer %d", file);
        fixture_tokenizer(name, &files[file]);
        faults_sweep(&(struct faults_row){ .name = what, .call = use_file }, 1,
                     argc, argv);
    }
    for (file = 0; file < (int)(sizeof cases / sizeof *cases); file++)
        if (cases[file].want[0] != '!')
            faults_sweep(&(struct faults_row){ .name = cases[file].text,
                                               .call = use_case,
                                               .most = 60 },
                         1, argc, argv);
    return faults_done();
}
