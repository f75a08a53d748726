/* Chat templates: what they make of conversations, beside what Jinja in Python
 * makes, whose results stand here; and templates that are none. */
#include "src/text/chat/chat.h"

#include "tests/chat_cases.h"
#include "tests/tap.h"

#define MESSAGE(role, content)                                                 \
    {                                                                          \
        role, content, sizeof content - 1                                      \
    }

static const struct chat_message talk[] = {
    MESSAGE("system", " Be brief. "),
    MESSAGE("user", "Hi\n"),
    MESSAGE("assistant", "Hello."),
    MESSAGE("user", "Bye"),
    MESSAGE("assistant", "\xc2\xa0See you.\n"),
};

static struct tokenizer *tokenizer;
static char path[64];

static void write_template(const char *text, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(text, 1, bytes, file) != bytes ||
        fclose(file) != 0)
        exit(1);
}

static const struct built_in {
    const char *name;
    size_t count;
    bool prompt;
    const char *want;
} built_in[] = {
    { "chatml", 3, false,
      "<|im_start|>system\n Be brief. <|im_end|>\n<|im_start|>user\nHi\n"
      "<|im_end|>\n<|im_start|>assistant\nHello.<|im_end|>" },
    { "chatml", 2, true,
      "<|im_start|>system\n Be brief. <|im_end|>\n<|im_start|>user\nHi\n"
      "<|im_end|>\n<|im_start|>assistant\n" },
    { "chatml", 0, true, "<|im_start|>assistant\n" },
    { "llama3", 3, false,
      "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n"
      "Be brief.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n"
      "Hi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
      "Hello.<|eot_id|>" },
    { "llama3", 0, true,
      "<|begin_of_text|><|start_header_id|>assistant<|end_header_id|>\n\n" },
    { "none", 5, true, " Be brief. Hi\nHello.Bye\xc2\xa0See you.\n" },
};

static void test_built_in(void)
{
    for (size_t i = 0; i < sizeof built_in / sizeof *built_in; i++) {
        struct chat_template *template = NULL;
        struct chat_text text = { 0 };
        bool made = chat_template_create(built_in[i].name, tokenizer,
                                         &template) == ERR_OK &&
                    chat_render(template, talk, built_in[i].count,
                                built_in[i].prompt, &text) == ERR_OK;
        tap_is_str(made ? text.text : err_text(), built_in[i].want,
                   "%s of %d messages", built_in[i].name,
                   (int)built_in[i].count);
        chat_template_destroy(template);
        free(text.text);
    }
}

#define CUTS                                                                   \
    "{% for m in messages %}[{{ m.content.split('.')[-1] if not loop.last "    \
    "else m.content }}]{% endfor %}"
#define MARKED                                                                 \
    "{% for m in messages %}{% if m.role == 'assistant' %}<{% generation "     \
    "%}{{ m.content | trim }}!{% endgeneration %}>{% else %}{{ m.role }}"      \
    "{% endif %}{% endfor %}"
#define THINKS                                                                 \
    "{% for m in messages %}{{ m.role }}:{{ '<think>' if loop.last and "       \
    "m.role == 'assistant' }}{{ m.content }};{% endfor %}"                     \
    "{% if add_generation_prompt %}assistant:{% endif %}"

/* What Jinja 3.1 makes of the five messages, with a prompt. */
static const struct file {
    const char *text, *want; /* want: "!" and a part of the error's text */
} files[] = {
    { "", "" },
    { "a\n", "a" },
    { "a\n\n", "a\n" },
    { "{% for m in messages %}\n  {{ m.role[:1] }}\n{% endfor %}",
      "  s\n  u\n  a\n  u\n  a\n" },
    { "{% for m in messages %}\n  {{ m.role }}\n{% endfor %}\n",
      "  system\n  user\n  assistant\n  user\n  assistant\n" },
    { "{%- for m in messages -%}\n  {{- loop.index -}} \n{%- endfor -%}\n.",
      "12345." },
    { "x  {%- if true +%}\n y {%+ endif %}\nz", "x\n y z" },
    { "a {# c -#}  b {#- c #} d", "a b d" },
    { "{% for m in messages if m.role == 'user' %}{{ loop.index0 ~ m.content "
      "}}{{ '' if loop.last else ',' }}{% endfor %}",
      "0Hi\n,1Bye" },
    { "{% set n = namespace(a=0) %}{% for m in messages %}{% set x = 1 %}"
      "{% if m['role'] != 'user' %}{% set n.a = n.a + m.content | length %}"
      "{% endif %}{% endfor %}{{ n.a }}{{ x }}",
      "27" },
    { "{% set x = 'o' %}{% for m in messages %}{{ x }}{% set x = 'i' %}{{ x }}"
      "{% endfor %}{{ x }}",
      "oioioioioio" },
    { "{{ messages[-1]['content'].strip() + '|' + messages[0].content | trim "
      "}}",
      "See you.|Be brief." },
    { "{{ (messages[1:] | length) % 3 }}{{ -7 // 2 }}{{ -7 % 3 }}", "1-42" },
    { "{% if tools is defined and tools %}{{ tools | tojson }}{% elif not "
      "messages[0].tool_calls %}no{% else %}yes{% endif %}",
      "no" },
    { "{{ 'a' if messages else 'b' }}{{ 'c' if false }}{{ bos_token }}", "a" },
    { "{{ '\\u00e9\\x41\\'\\\\\\n' ~ \"\\t\" }}", "\xc3\xa9"
                                                  "A'\\\n\t" },
    { "{% for m in messages[::-1] %}{{ m.role[0:0] }}{% endfor %}", "" },
    { "{% for m in messages[::-1] %}{{ loop.revindex }}{{ m.get('role') }}"
      "{% endfor %}",
      "5assistant4user3assistant2user1system" },
    { "{{ 'b' in 'abc' and 'x' not in ['y'] and 'role' in messages[0] }}",
      "True" },
    { "{{ -1 is number }}{{ -2 | string | length }}{{ - -3 }}{{ -[4][0] }}",
      "True23-4" },
    { CUTS, "[ ][Hi\n][][Bye][\xc2\xa0See you.\n]" },
    { MARKED, "systemuser<Hello.!>user<See you.!>" },
    { "{{ 'a-b-c'.split('-')[1] ~ 'aXbX'.replace('X', '') }}", "bab" },
    { "{% if add_generation_prompt %}{{ none }}{% endif %}", "None" },
    { "{% if messages[0].role == 'system' %}\n{{ raise_exception('no system "
      "here') }}{% endif %}",
      "!line 2: raise_exception: no system here" },
    CHAT_CASES{ "\n{% call f() %}{% endcall %}",
                "!line 2: the statement 'call'" },
    { "{{ x | tojson }}", "!nothing is not printed" },
    { "{{ x | wordcount }}", "!the filter 'wordcount'" },
    { "{{ cycler('a') }}", "!the function 'cycler'" },
    { "{{ messages[0].copy() }}", "!the method 'copy'" },
    { "{{ messages | join(e=1) }}", "!a named argument" },
    { "{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}", "!no such argument" },
    { "{% macro f(a) %}{% endmacro %}{{ f(b=2) }}", "!no such argument" },
    { "{% for a, b in [[1]] %}{% endfor %}", "!as many parts" },
    { "{% if a if b else c %}{% endif %}", "!if where '%}'" },
    { "{% if a %}{% elif a if b %}{% endif %}", "!if where '%}'" },
    { "{% for a in x %}{% endmacro %}", "!endmacro where endfor" },
    { "{% macro f() %}", "!'macro' without its 'endmacro'" },
    { "{% set a %}", "!'set' without its 'endset'" },
    { "{{ {1.5: 2} }}", "!whole" },
    { "{{ {none: 2} }}", "!as a key" },
    { "{{ 'a'.strip(1) }}", "!where a text should be" },
    { "{{ '{0}'.format(1) }}", "!knows {} alone" },
    { "{{ range(99999999999) }}", "!'range' of a number" },
    { "{{ 'a' * 999999999999 }}", "!too much text" },
    { "{{ -9223372036854775807 - 2 }}", "!without a value" },
    { "{{ (-9223372036854775807 - 1) // -1 }}", "!without a value" },
    { "{{ -(-9223372036854775807 - 1) }}", "!without a value" },
    { "{{ 9223372036854775807 * 2 }}", "!without a value" },
    { "{{ (-9223372036854775807 - 1) % -1 }}", "!without a value" },
    { "{{ x.y }}", "!'x' is not defined" },
    { "{{ x is sameas 3 }}", "!'is sameas'" },
    { "{{ 1.5 }}", "!whole" },
    { "{{ 'a", "!does not end" },
    { "{{ a ", "!'{{' is not closed" },
    { "{# a ", "!'{#' is not closed" },
    { "{% if a %}b", "!'if' without its 'endif'" },
    { "b{% endfor %}", "!'endfor' without its beginning" },
    { "{% for a in b %}{% endif %}", "!endif where endfor should follow" },
    { "{{ a b }}", "!b where '}}' should follow" },
    { "{{ }}", "!a value" },
    { "{{ 1 + 'a' }}", "!a number + a text" },
    { "{{ 1 % 0 }}", "!without a value" },
    { "{{ 9223372036854775807 + 1 }}", "!without a value" },
    { "{{ 9223372036854775808 }}", "!too large" },
    { "{{ '\\N' }}", "!not known" },
    { "{{ '\\ud800' }}", "!U+D800" },
    { "{{ strftime_now('0123456789012345678901234567890123456789"
      "0123456789012345678901234567890123456789012345678901234567890123456789"
      "0123456789 %d of this month') }}",
      "!strftime_now('0123456789012345678901234567890123456789..') has" },
    { "{% set messages[0].role = 1 %}", "!where '=' should follow" },
    { "{% set m = messages[0] %}{% set m.role = 1 %}", "!namespace" },
    { "{{ messages[9].x }}", "!something of what is not defined" },
    { "{{ messages['a':] }}", "!as a bound" },
    { "{{ 1[1:] }}", "!no [from:to] of" },
    { "{{ 1 in 2 }}", "!a number in a number" },
    { "{{ 'a' < 1 }}", "!is not compared with" },
    { "{{ -'a' }}", "!-a text" },
    { "{{ 'a' | tojson(ensure_ascii=True) }}", "!'tojson' of ASCII" },
    { "{{ 'a' | tojson(indent=99) }}", "!with 99 blanks" },
    { "{{ 'a' | replace('b') }}", "!too few arguments" },
    { "{{ 'a' | upper(1) }}", "!too many arguments" },
    { "{{ dict(1) }}", "!takes name=value" },
    { "{{ messages[0]() }}", "!a call of what has no name" },
    { "{{ x.f() }}", "!'f' of what is not defined" },
    { "{% for a in 1 %}{% endfor %}", "!the items of a number" },
    { "{{ messages | sort(attribute=messages) }}", "!where a name should be" },
    { "{{ 'a' | dictsort }}", "!'dictsort' of a text" },
    { "{{ ['a'] | sort(case_sensitive=true) }}", "!'sort' by case" },
    { "{{ range(0, 1, 0) }}", "!with a step of 0" },
    { "{{ messages | select(1) }}", "!without a name" },
    { "{{ '\xc3\xa9' | upper }}", "!for ASCII only" },
    { "{{ 'a'.split('') }}", "!'split' by nothing" },
    { "{{ 'a' | indent(99) }}", "!more than 16 blanks" },
    { "{{ '\\u00g0' }}", "!a broken \\u" },
    { "{{ $ }}", "!no character for a template" },
};

/* The text, or the error's. */
static const char *render(struct chat_text *text)
{
    struct chat_template *template = NULL;
    enum err rc = chat_template_create(path, tokenizer, &template);
    if (rc == ERR_OK)
        rc = chat_render(template, talk, 5, true, text);
    chat_template_destroy(template);
    return rc == ERR_OK ? text->text : err_text();
}

static void test_files(void)
{
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct chat_text text = { 0 };
        write_template(files[i].text, strlen(files[i].text));
        const char *got = render(&text), *want = files[i].want;
        if (*want == '!')
            tap_ok(strstr(got, want + 1) != NULL && strstr(got, path) != NULL,
                   "refused: %s", got);
        else
            tap_is_str(got, want, "template %d", (int)i);
        free(text.text);
    }
}

/* Deep, endless and growing ones end, with an error. */
static void test_hostile(void)
{
    static char text[1 << 20];
    static const char *const parts[] = {
        "{{(",      "{% if a %}",       "{{ not ",     "{{ a[",
        "{{ '' ~ ", "{% for a in b %}", "{{[",         "{{ a if b else ",
        "{{ {1:",   "{% macro f() %}",  "{% set a %}", "{{ 1 < ",
        "{{ a is ", "{% filter a %}",   "{{ a | a(",   "{% generation %}"
    };
    for (size_t p = 0; p < sizeof parts / sizeof *parts; p++) {
        size_t skip = parts[p][1] == '{' ? 2 : 0, length = strlen(parts[p]);
        struct chat_text out = { 0 };
        memcpy(text, parts[p], length);
        size_t bytes = length;
        while (bytes + length < sizeof text) {
            memcpy(text + bytes, parts[p] + skip, length - skip);
            bytes += length - skip;
        }
        memcpy(text + bytes - 3, skip == 2 ? " }}" : " %}", 3);
        write_template(text, bytes);
        const char *got = render(&out);
        tap_ok(strstr(got, "levels") != NULL ||
                   strstr(got, "is not closed") != NULL,
               "deep: %s", parts[p]);
        free(out.text);
    }
    static const char *const growing[] = {
        "{% set n = namespace(a='aaaaaaaaaaaaaaaa') %}{% for a in messages %}"
        "{% for b in messages %}{% for c in messages %}"
        "{% set n.a = n.a + n.a %}{% endfor %}{% endfor %}{% endfor %}",
        "{% set n = namespace(a='ab', b=[1]) %}{% for a in messages %}"
        "{% set n.a = n.a.replace('a', n.a).replace('b', n.a) %}{% endfor %}"
        "{% for a in messages %}{% set n.a = n.a.replace('a', n.a) %}"
        "{% endfor %}",
        "{% macro f(n) %}{{ f(n) }}{{ f(n) }}{% endmacro %}{{ f(1) }}",
        "{% macro f(n) %}{% for x in n %}{{ f(n + n) }}{% endfor %}"
        "{% endmacro %}{{ f([1]) }}",
        "{% set n = namespace(a=['x']) %}{% for i in range(90) %}"
        "{% set n.a = [n.a, n.a] %}{% endfor %}{{ n.a | tojson }}",
        "{% set n = namespace(a=['x'], b=['x']) %}{% for i in range(90) %}"
        "{% set n.a = [n.a, n.a] %}{% set n.b = [n.b, n.b] %}{% endfor %}"
        "{{ n.a == n.b }}",
        "{% set n = namespace(a=['x']) %}{% for i in range(200) %}"
        "{% set n.a = [n.a] %}{% endfor %}{{ n.a }}",
        "{% for a in range(99999999) %}{% endfor %}too large",
        "{% for a in range(9999999) %}{{ messages | join(messages[0].content) "
        "}}{% endfor %}",
        "{% set n = namespace(a='x') %}{% for a in range(99) %}"
        "{% set n.a = n.a ~ n.a %}{% endfor %}",
        "{% set x = 'ab' * 99999 %}{% for a in range(99999) %}"
        "{% if x.strip('xyzw') %}{% endif %}{{ '' if x == x ~ 'a' }}"
        "{% endfor %}",
        "{% for a in messages %}{% for b in messages %}{% for c in messages %}"
        "{% for d in messages %}{% for e in messages %}{% for f in messages %}"
        "{% for g in messages %}{% for h in messages %}{% for i in messages %}"
        "{% for j in messages %}{% for k in messages %}{% for l in messages %}"
        "{% endfor %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}"
        "{% endfor %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}"
        "{% endfor %}{% endfor %}",
    };
    for (size_t g = 0; g < sizeof growing / sizeof *growing; g++) {
        struct chat_text out = { 0 };
        write_template(growing[g], strlen(growing[g]));
        const char *got = render(&out);
        tap_ok(strstr(got, "too ") != NULL || strstr(got, "levels") != NULL,
               "growing: %s", err_text());
        free(out.text);
    }
    struct chat_text out = { 0 };
    write_template("a\0b", 3);
    tap_ok(strstr(render(&out), "NUL") != NULL, "a NUL");
    write_template(memset(text, 'a', sizeof text), sizeof text);
    tap_is_int((long long)strlen(render(&out)), sizeof text, "a long text");
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = "<|"[i % 2];
    write_template(text, sizeof text);
    tap_is_int((long long)strlen(render(&out)), sizeof text,
               "... of broken markers");
    free(out.text);
}

/* What the assistant said, by a built-in template or a text with blocks of
 * generation or without; only the last answer, or all; or why it cannot be told. */
static const struct divided {
    const char *template;
    size_t count;
    bool last_only;
    const char *said[2];
    const char *refused;
} divided[] = {
    { "chatml",
      5,
      false,
      { "Hello.<|im_end|>", "\xc2\xa0See you.\n<|im_end|>" },
      NULL },
    { "llama3", 5, false, { "Hello.<|eot_id|>", "See you.<|eot_id|>" }, NULL },
    { "none", 5, false, { "Hello.", "\xc2\xa0See you.\n" }, NULL },
    { "{{ messages[-1].content }}", 5, false, { 0 }, "no place of its own" },
    { MARKED, 5, false, { "Hello.!", "See you.!" }, NULL },
    { MARKED, 2, false, { 0 }, "no generation block" },
    { "{% macro f() %}{% generation %}{% endgeneration %}{% endmacro %}"
      "{{ f() }}",
      5,
      false,
      { 0 },
      "in a macro" },
    { CUTS, 5, false, { 0 }, "no place of its own" },
    { CUTS, 5, true, { "[\xc2\xa0See you.\n]" }, NULL },
    { "{% for m in messages %}{{ m.content }};{% endfor %}"
      "{% if add_generation_prompt %}<think>{% endif %}",
      5,
      true,
      { 0 },
      "no place of its own" },
    { THINKS, 5, true, { "<think>\xc2\xa0See you.\n;" }, NULL },
    { THINKS, 5, false, { 0 }, "only last responses" },
};

static void test_divided(const struct divided *of, size_t row)
{
    struct chat_text text = { 0 }, all = { 0 };
    struct chat_turn turns[5];
    struct chat_template *template = NULL;
    size_t count = 0;
    bool built = strchr(of->template, '{') == NULL;
    write_template(of->template, strlen(of->template));
    if (chat_template_create(built ? of->template : path, tokenizer,
                             &template) != ERR_OK)
        exit(1);
    enum err rc = chat_divide(template, talk, of->count, of->last_only, &text,
                              turns, &count);
    if (of->refused != NULL)
        tap_ok(rc == ERR_DATA && strstr(err_text(), of->refused) != NULL,
               "not divided: %s", err_text());
    else
        tap_ok(rc == ERR_OK &&
                   chat_render(template, talk, of->count, false, &all) ==
                       ERR_OK &&
                   strcmp(text.text, all.text) == 0 &&
                   count == 1u + (of->said[1] != NULL),
               "row %zu: %zu turns, and the text of all", row, count);
    for (size_t t = 0; rc == ERR_OK && t < count && t < 2; t++) {
        char *said = strndup(text.text + turns[t].prompt,
                             turns[t].response - turns[t].prompt);
        tap_is_str(said, of->said[t], "... turn %zu", t);
        free(said);
    }
    chat_template_destroy(template);
    free(text.text);
    free(all.text);
}

static void test_names(void)
{
    struct chat_template *template = NULL;
    tap_ok(chat_template_create("chatlm", tokenizer, &template) == ERR_USAGE &&
               strstr(err_text(), "chatml, llama3, none") != NULL,
           "no such template: %s", err_text());
    struct chat_text text = { 0 };
    static const char in_memory[] = "{{ messages | length }}!never";
    tap_ok(chat_template_create_text("mine", in_memory, 23, tokenizer,
                                     &template) == ERR_OK &&
               chat_render(template, talk, 5, true, &text) == ERR_OK &&
               strcmp(text.text, "5") == 0,
           "a text in memory");
    chat_template_destroy(template);
    template = NULL;
    tap_ok(chat_template_create_text("mine", "{{", 2, tokenizer, &template) ==
                   ERR_DATA &&
               strstr(err_text(), "chat template mine") != NULL,
           "one that is wrong: %s", err_text());
    unlink(path);
    strcat(path, ".json");
    static const char good[] = "{\"a\": 1, \"chat_template\": \"x{{ 1 }}\"}";
    write_template(good, sizeof good - 1);
    tap_is_str(render(&text), "x1", "of a JSON file");
    write_template("{}", 2);
    tap_ok(strstr(render(&text), "chat_template") != NULL, "... without one");
    write_template("{", 1);
    tap_ok(strstr(render(&text), "line 1") != NULL, "... that is broken");
    free(text.text);
}

int main(void)
{
    const char *base = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/chat.XXXXXX",
             base != NULL && strlen(base) < 40 ? base : "/tmp");
    int file = mkstemp(path);
    if (file < 0 || tokenizer_create("bytes", &tokenizer) != ERR_OK)
        return 1;
    close(file);
    setenv("SOURCE_DATE_EPOCH", "1763856000", 1);
    test_built_in();
    test_files();
    test_hostile();
    for (size_t i = 0; i < sizeof divided / sizeof *divided; i++)
        test_divided(&divided[i], i);
    test_names();
    unlink(path);
    tokenizer_destroy(tokenizer);
    return tap_done();
}
