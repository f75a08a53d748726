/* Tokenizers of GGUF files: the files that are made of them load, and give the
 * tokens that they should; what is not known is refused by name. */

#include "src/formats/gguf/gguf_tokenizer.h"
#include "src/formats/gguf/gguf_writer.h"
#include "src/text/chat/chat.h"
#include "tests/tokenizer_fixture.h"

#define CONTROL "<|end|>"
#define TOKENS 261
#define KEY(name) "tokenizer.ggml." name

/* What a file has otherwise; zeros: as usual. */
struct other {
    const char *kind, *pre;
    bool no_pre, no_types, no_merges;
    const char *last;     /* token 260 */
    const char *merge;    /* the third */
    uint64_t more_merges; /* empty ones */
    int32_t type;         /* of it */
    bool add_bos;
    uint32_t bos, eos, eot, eom, pad; /* of the last three 0: no key */
    float temp, top_p;                /* 0: no key */
};

static const char *folder;

/* Bytes 0 to 255 in their characters, "th", "the", "12", <|end|>, [USER]. */
static void write_tokens(struct gguf_writer *writer, const struct other *other)
{
    static const char *const merges[] = { "t h", "th e", "1 2" };
    struct byte_alphabet alphabet;
    int32_t types[TOKENS];
    byte_alphabet_fill(&alphabet);
    fixture_need(gguf_writer_strings(writer, KEY("tokens"), TOKENS));
    for (int b = 0; b < 256; b++) {
        uint8_t text[4];
        uint32_t point = 0;
        while (alphabet.byte[point] != b)
            point++;
        fixture_need(gguf_writer_item(writer, (const char *)text,
                                      unicode_put(point, text)));
    }
    const char *more[] = { "th", "the", "12", CONTROL,
                           other->last != NULL ? other->last : "[USER]" };
    for (int i = 0; i < 5; i++)
        fixture_need(gguf_writer_item(writer, more[i], strlen(more[i])));
    for (int i = 0; i < TOKENS; i++)
        types[i] = i == 259 ? 3 : i == 260 ? 4 : 1;
    if (other->type != 0)
        types[260] = other->type;
    if (!other->no_types)
        fixture_need(gguf_writer_numbers(writer, KEY("token_type"), GGUF_I32,
                                         types, TOKENS));
    if (other->no_merges)
        return;
    fixture_need(
        gguf_writer_strings(writer, KEY("merges"), 3 + other->more_merges));
    for (int i = 0; i < 3; i++) {
        const char *merge =
            i == 2 && other->merge != NULL ? other->merge : merges[i];
        fixture_need(gguf_writer_item(writer, merge, strlen(merge)));
    }
    for (uint64_t i = 0; i < other->more_merges; i++)
        fixture_need(gguf_writer_item(writer, "", 0));
}

static void write_file(const char *path, const struct other *other)
{
    static const char template[] =
        "{% for m in messages %}{{ m['content'] }}<|end|>{% endfor %}";
    struct gguf_writer *writer = NULL;
    uint8_t yes = 1;
    const char *kind = other->kind != NULL ? other->kind : "gpt2";
    const char *pre = other->pre != NULL ? other->pre : "gpt-2";
    uint32_t bos = other->bos != 0 ? other->bos : 259;
    uint32_t eos = other->eos != 0 ? other->eos : 259;
    fixture_need(fsio_remove_tree(path)); /* of the case before */
    fixture_need(gguf_writer_create(path, &writer));
    const struct {
        const char *key;
        bool there;
        enum gguf_kind kind;
        const void *number;
    } numbers[] = {
        { KEY("bos_token_id"), true, GGUF_U32, &bos },
        { KEY("eos_token_id"), true, GGUF_U32, &eos },
        { KEY("eot_token_id"), other->eot != 0, GGUF_U32, &other->eot },
        { KEY("eom_token_id"), other->eom != 0, GGUF_U32, &other->eom },
        { KEY("padding_token_id"), other->pad != 0, GGUF_U32, &other->pad },
        { "general.sampling.temp", other->temp != 0, GGUF_F32, &other->temp },
        { "general.sampling.top_p", other->top_p != 0, GGUF_F32,
          &other->top_p },
        { KEY("add_bos_token"), other->add_bos, GGUF_BOOL, &yes },
    };
    fixture_need(gguf_writer_text(writer, KEY("model"), kind));
    if (!other->no_pre)
        fixture_need(gguf_writer_text(writer, KEY("pre"), pre));
    write_tokens(writer, other);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i].there)
            fixture_need(gguf_writer_number(
                writer, numbers[i].key, numbers[i].kind, numbers[i].number));
    fixture_need(gguf_writer_text(writer, "tokenizer.chat_template", template));
    fixture_need(gguf_writer_finish(writer));
    gguf_writer_destroy(writer);
}

static enum err make(const struct other *other, struct gguf_tokenizer *out)
{
    const char *path = fixture_path(folder, "t.gguf");
    struct gguf *gguf = NULL;
    write_file(path, other);
    fixture_need(gguf_open(path, &gguf));
    enum err rc = gguf_tokenizer_make(gguf, out);
    gguf_close(gguf);
    return rc;
}

/* Loads what was made. */
static enum err load(const struct gguf_tokenizer *made, struct tokenizer **out)
{
    const char *json = fixture_path(folder, "tokenizer.json");
    const char *config = fixture_path(folder, "tokenizer_config.json");
    fixture_write_file(json, made->tokenizer, strlen(made->tokenizer));
    fixture_write_file(config, made->config, strlen(made->config));
    return tokenizer_create(folder, out);
}

static void tokens(const struct tokenizer *tokenizer, const char *text,
                   unsigned flags, const char *want)
{
    struct fixture_both both = { .tokenizer = NULL };
    fixture_need(tokenizer_encoder_create(tokenizer, &both.encoder));
    fixture_golden(&both, text, flags, want, 0);
    tokenizer_encoder_destroy(both.encoder);
}

static void test_tokens(void)
{
    struct gguf_tokenizer made;
    struct tokenizer *tokenizer = NULL;
    struct chat_template *template = NULL;
    struct chat_text text = { 0 };
    const struct chat_message message = { "user", "the", 3 };
    struct other other = { 0 };
    fixture_need(make(&other, &made));
    fixture_need(load(&made, &tokenizer));
    tap_ok(tokenizer_eos(tokenizer) == 259 && tokenizer_bos(tokenizer) == 259 &&
               tokenizer_vocab_size(tokenizer) == TOKENS &&
               tokenizer_is_special(tokenizer, 259) &&
               !tokenizer_is_special(tokenizer, 260),
           "bos, eos, and what is special");
    tokens(tokenizer, "the 12" CONTROL "[USER]the", TOKENIZER_SPECIAL,
           "257 32 258 259 260 257");
    tokens(tokenizer, "the", TOKENIZER_TEMPLATE, "257");
    const char *path = fixture_path(folder, "chat_template.jinja");
    fixture_write_file(path, made.chat, strlen(made.chat));
    fixture_need(chat_template_create(path, tokenizer, &template));
    fixture_need(chat_render(template, &message, 1, false, &text));
    tap_is_str(text.text, "the" CONTROL, "the chat template");
    free(text.text);
    chat_template_destroy(template);
    tokenizer_destroy(tokenizer);
    gguf_tokenizer_free(&made);

    other = (struct other){ .add_bos = true, .pre = "smollm" };
    fixture_need(make(&other, &made));
    fixture_need(load(&made, &tokenizer));
    tokens(tokenizer, "the12", TOKENIZER_TEMPLATE, "259 257 49 50");
    tokenizer_destroy(tokenizer);
    gguf_tokenizer_free(&made);

    other = (struct other){ .no_types = true };
    fixture_need(make(&other, &made));
    fixture_need(load(&made, &tokenizer));
    tap_ok(tokenizer_is_special(tokenizer, 259) &&
               !tokenizer_is_special(tokenizer, 258),
           "without types only the named ones are");
    tokenizer_destroy(tokenizer);
    gguf_tokenizer_free(&made);
}

/* Ends, padding and sampling as generation_config.json has them. */
static void test_generation(void)
{
    static const struct {
        struct other other;
        const char *want;
    } cases[] = {
        { { .eos = 259 }, "{'eos_token_id':259}" },
        { { .eos = 259, .eot = 7, .eom = 259 }, "{'eos_token_id':[259,7]}" },
        { { .eot = 8, .eom = 7, .pad = 3 },
          "{'eos_token_id':[259,8,7],'pad_token_id':3}" },
        { { .eot = 70000, .pad = UINT32_MAX }, "{'eos_token_id':259}" },
        { { .temp = 0.2f, .top_p = 0.9f },
          "{'eos_token_id':259,'do_sample':true,'temperature':0.2,"
          "'top_p':0.9}" },
        { { .temp = -1.0f }, "{'eos_token_id':259,'do_sample':false}" },
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct gguf_tokenizer made;
        char got[256] = "";
        fixture_need(make(&cases[c].other, &made));
        for (const char *at = made.generation; *at != '\0'; at++)
            if (strchr(" \n", *at) == NULL)
                snprintf(got + strlen(got), 2, "%c", *at == '"' ? '\'' : *at);
        tap_is_str(got, cases[c].want, "what the file says of its answers");
        tap_ok(strstr(made.config, "\"attention_mask\"") != NULL,
               "and of its inputs");
        gguf_tokenizer_free(&made);
    }
    /* a row without a token is none; another that is not used stays */
    const struct other holes[] = { { .last = "[PAD260]", .type = 5 },
                                   { .last = "[PAD261]", .type = 5 } };
    for (size_t h = 0; h < 2; h++) {
        struct gguf_tokenizer made;
        struct tokenizer *tokenizer = NULL;
        fixture_need(make(&holes[h], &made));
        fixture_need(load(&made, &tokenizer));
        tap_is_int(tokenizer_vocab_size(tokenizer), TOKENS - (h == 0),
                   "tokens of a file with a hole");
        tokenizer_destroy(tokenizer);
        gguf_tokenizer_free(&made);
    }
}

/* Each name, and whether a text has a bos token where the file does not say. */
static void test_names(void)
{
    static const struct {
        const char *name, *want;
    } names[] = {
        { "gpt-2", "258 32 49 258 50" },
        { "mpt", "258 32 49 258 50" },
        { "smollm", "49 50 32 49 49 50 50" },
        { "llama-bpe", "259 258 32 49 258 50" },
        { "dbrx", "258 32 49 258 50" },
        { "qwen2", "49 50 32 49 49 50 50" },
        { "gpt-4o", "258 32 49 258 50" },
        { "tekken", "259 49 50 32 49 49 50 50" },
        { "deepseek-coder", "49 50 32 49 49 50 50" },
        { "deepseek-v3", "258 32 49 258 50" },
    };
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        struct other other = { .pre = names[n].name };
        struct gguf_tokenizer made;
        struct tokenizer *tokenizer = NULL;
        fixture_need(make(&other, &made));
        enum err rc = load(&made, &tokenizer);
        tap_ok(rc == ERR_OK, "%s loads%s%s", names[n].name,
               rc == ERR_OK ? "" : ": ", rc == ERR_OK ? "" : err_text());
        if (rc == ERR_OK)
            tokens(tokenizer, "12 1122", TOKENIZER_TEMPLATE, names[n].want);
        tokenizer_destroy(tokenizer);
        gguf_tokenizer_free(&made);
    }
}

static void test_refused(void)
{
    static const struct {
        struct other other;
        enum err rc;
        const char *text;
    } refused[] = {
        { { .kind = "llama" }, ERR_UNSUPPORTED, "the kind 'llama'" },
        { { .kind = "" }, ERR_UNSUPPORTED, "the kind ''" },
        { { .pre = "falcon" }, ERR_UNSUPPORTED, "'falcon' is not known" },
        { { .pre = "default" }, ERR_UNSUPPORTED, "there is: gpt-2, mpt" },
        { { .no_pre = true }, ERR_UNSUPPORTED, "tokenizer.ggml.pre" },
        { { .no_merges = true }, ERR_DATA, "tokenizer.ggml.merges" },
        { { .merge = "" }, ERR_DATA, "merge 2 is not \"LEFT RIGHT\"" },
        { { .merge = " " }, ERR_DATA, "merge 2 is not" },
        { { .merge = "12" }, ERR_DATA, "merge 2 is not" },
        { { .merge = "12 " }, ERR_DATA, "merge 2 is not" },
        { { .merge = " 12" }, ERR_DATA, "merge 2 is not" },
        { { .more_merges = (1 << 22) - 2 },
          ERR_DATA,
          "4194305 merges, at most 4194304" },
        { { .bos = 261 }, ERR_DATA, "bos_token_id is 261" },
        { { .eos = 4000000000u }, ERR_DATA, "eos_token_id" },
        { { .last = "the" }, ERR_DATA, "257 and 260" },
        { { .last = "\xff" }, ERR_DATA, "token 260 is no text" },
        { { .type = 7 }, ERR_DATA, "the type 7" },
        { { .type = -1 }, ERR_DATA, "the type -1" },
    };
    for (size_t r = 0; r < sizeof refused / sizeof *refused; r++) {
        struct gguf_tokenizer made;
        enum err rc = make(&refused[r].other, &made);
        tap_ok(rc == refused[r].rc &&
                   strstr(err_text(), refused[r].text) != NULL,
               "%s", err_text());
        if (rc == ERR_OK)
            gguf_tokenizer_free(&made);
    }
}

int main(void)
{
    folder = tap_folder();
    test_tokens();
    test_generation();
    test_names();
    test_refused();
    return tap_done();
}
