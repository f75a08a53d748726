/* JSON with short numbers: the same values, jansson's own form otherwise. */
#include "src/base/jsontext.h"

#include "tests/tap.h"

static void test_reals(void)
{
    static const struct {
        double value;
        const char *text;
    } cases[] = {
        { 1e-5, "1e-05" },
        { 0.002, "0.002" },
        { 4, "4.0" },
        { 0.1, "0.1" },
        { -0.0, "-0.0" },
        { 1e300, "1e+300" },
        { 1e15, "1e+15" },
        { 0.1 + 0.2, "0.30000000000000004" },
        { 5e-324, "4.94065645841247e-324" },
        { 1795343785.15171, "1795343785.15171" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *text = NULL;
        json_t *value = json_real(cases[i].value);
        tap_ok(jsontext_make(value, 0, &text) == ERR_OK, "%g is written",
               cases[i].value);
        tap_is_str(text, cases[i].text, "as %s", cases[i].text);
        json_t *again = json_loads(text, JSON_DECODE_ANY, NULL);
        tap_ok(json_equal(value, again), "and read again as the same real");
        json_decref(again);
        json_decref(value);
        free(text);
    }
}

static void test_forms(void)
{
    static const char *const cases[] = {
        "{}",      "[]",
        "[[],{}]", "{\"a\":[1,-2,true,false,null],\"b\":{\"c\":{}}}",
        "\"\"",    "{\"q\\\"\\\\\\n\\u0001\xc3\xa9\":\"\\u0000x\"}",
        "[\"x\"]",
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *text = NULL;
        json_t *value =
            json_loads(cases[i], JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
        for (int indent = 0; indent < 4; indent += 2) {
            char *theirs = json_dumps(
                value,
                JSON_ENCODE_ANY | (indent > 0 ? JSON_INDENT(2) : JSON_COMPACT));
            tap_ok(jsontext_make(value, indent, &text) == ERR_OK,
                   "%s is written", cases[i]);
            tap_is_str(text, theirs, "as jansson writes it, indent %d", indent);
            free(theirs);
            free(text);
        }
        json_decref(value);
    }
    char *text = NULL;
    tap_is_int(jsontext_make(NULL, 0, &text), ERR_MEMORY, "no value");
    tap_ok(text == NULL, "makes no text");
}

int main(void)
{
    test_reals();
    test_forms();
    return tap_done();
}
