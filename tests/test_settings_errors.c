#include "src/base/settings/settings_private.h"
#include "tests/settings_fixture.h"

/* Text of a file, what the error must contain: place and cause. */
static const struct {
    const char *name;
    const char *text;
    const char *want[3];
} file_failures[] = {
    { "unknown key",
      "\n\ntrain: {\n global_bacth = 4; };",
      { "bad.cfg:4: ", "'train.global_bacth'",
        "did you mean 'train.global_batch'?" } },
    { "key without its group",
      "global_batch = 4;",
      { "bad.cfg:1: ", "'global_batch'", "'train.global_batch'?" } },
    { "key in the wrong group",
      "data: { lr = 0.1; };",
      { "'data.lr'", "'train.optimizer.lr'?", NULL } },
    { "misspelt group",
      "trian: { resume = true; };",
      { "'trian.resume'", "'train.resume'?", NULL } },
    { "empty unknown group",
      "trian: { };",
      { "'trian'", "did you mean 'train'?", NULL } },
    { "nothing near", "zzzzzzzzzz = 1;", { "'zzzzzzzzzz'", "--help", NULL } },
    { "string for a whole number",
      "train: { global_batch = \"8\"; };",
      { "bad.cfg:1: 'train.global_batch'", "a whole number", "a string" } },
    { "decimal for a whole number",
      "train: { global_batch = 8.5; };",
      { "'train.global_batch'", "a whole number", "decimal point" } },
    { "boolean for a whole number",
      "train: { global_batch = true; };",
      { "'train.global_batch'", "a whole number", "true or false" } },
    { "string for a number",
      "train: { optimizer: { lr = \"x\"; }; };",
      { "'train.optimizer.lr'", "a number", "a string" } },
    { "whole number for a boolean",
      "train: { resume = 1; };",
      { "'train.resume'", "true or false", "a whole number" } },
    { "string for a boolean",
      "train: { resume = \"true\"; };",
      { "'train.resume'", "true or false", "a string" } },
    { "number for a string",
      "name = 1.5;",
      { "'name'", "a string in quotes", "a decimal number" } },
    { "number for a duration",
      "train: { max_duration = 60; };",
      { "'train.max_duration'", "60ba", "a whole number" } },
    { "list for a path",
      "data: { path = (\"a\"); };",
      { "'data.path'", "a path", "a list" } },
    { "array for a number",
      "train: { optimizer: { lr = [1.0]; }; };",
      { "'train.optimizer.lr'", "a number", "an array" } },
    { "group for a string",
      "name: { a = 1; };",
      { "'name'", "a string", "a group" } },
    { "value for a group",
      "train = 5;",
      { "'train' is a group", "train: {", NULL } },
    { "too small",
      "train: { global_batch = 0; };",
      { "'train.global_batch'", "from 1 to 65536", "not 0" } },
    { "negative",
      "train: { global_batch = -4; };",
      { "'train.global_batch'", "from 1 to 65536", "not -4" } },
    { "too large",
      "train: { optimizer: { lr = 10.5; }; };",
      { "'train.optimizer.lr'", "from 0 to 10", "not 10.5" } },
    { "below the only limit",
      "train: { optimizer: { decay = -0.1; }; };",
      { "'train.optimizer.decay'", "at least 0", "not -0.1" } },
    { "infinite",
      "train: { optimizer: { decay = 1e999; }; };",
      { "'train.optimizer.decay'", "precision", NULL } },
    { "more than 32 bits",
      "name = \"a\nb\";\ntrain: { max_tokens = 5000000000 };",
      { "bad.cfg:3: ", "suffix L", "5000000000L" } },
    { "more than 32 bits in hex",
      "train: { max_tokens = 0xffffffff };",
      { "bad.cfg:1: ", "suffix L", "0xffffffffL" } },
    { "more than 64 bits",
      "train: { max_tokens = 9223372036854775808L };",
      { "bad.cfg:1: ", "64 bits", "9223372036854775808" } },
    { "bad choice",
      "train: { optimizer: { kind = \"adam\"; }; };",
      { "'train.optimizer.kind'", "adamw|lion|sgd", "'adam'" } },
    { "two choices",
      "train: { optimizer: { kind = \"lion|sgd\"; }; };",
      { "'train.optimizer.kind'", "one of", "'lion|sgd'" } },
    { "empty choice",
      "train: { optimizer: { kind = \"\"; }; };",
      { "'train.optimizer.kind'", "one of", "''" } },
    { "bad duration",
      "train: { max_duration = \"60 steps\"; };",
      { "bad.cfg:1: 'train.max_duration'", "60 steps", "1h30m5s" } },
    { "set twice",
      "name = \"a\";\nname = \"b\";",
      { "bad.cfg:2: ", "duplicate", NULL } },
    { "syntax",
      "\ntrain: { optimizer = = };",
      { "bad.cfg:2: ", "syntax error", NULL } },
    { "missing include",
      "\n@include \"gone.cfg\"\n",
      { "bad.cfg:2: ", "gone.cfg", "No such file" } },
    { "include of a folder",
      "@include \"parts\"\n",
      { "/parts", "folder", NULL } },
    { "absolute include",
      "@include \"/etc/x.cfg\"\n",
      { "bad.cfg:1: ", "/etc/x.cfg", "relative" } },
    { "syntax in an include",
      "@include \"parts/syntax.cfg\"\n",
      { "/parts/syntax.cfg:2: ", "syntax error", NULL } },
    { "unknown key in an include",
      "@include \"parts/unknown.cfg\"\n",
      { "/parts/unknown.cfg:1: ", "'nmae'", "'name'?" } },
    { "include of itself",
      "@include \"bad.cfg\"\n",
      { "bad.cfg:1: ", "too deep", NULL } },
    { "string without an end",
      "data: { path = \"/d\"; };\n\"abc\n",
      { "bad.cfg:2: ", "string", "no end" } },
    { "comment without an end",
      "data: { path = \"/d\"; };\n/* name = \n 1;",
      { "bad.cfg:2: ", "comment", "no end" } },
    { "required one missing",
      "name = \"a\";",
      { "bad.cfg: ", "'data.path' is missing", "folder of the data set" } },
};

static bool text_has(const char *const want[3])
{
    for (int i = 0; i < 3 && want[i] != NULL; i++)
        if (strstr(err_text(), want[i]) == NULL) {
            tap_note("no \"%s\" in: %s", want[i], err_text());
            return false;
        }
    return true;
}

static void test_file_failures(void)
{
    write_file("parts/syntax.cfg", "name = \"a\";\n} = 1;\n");
    write_file("parts/unknown.cfg", "nmae = \"a\";\n");
    struct values untouched;
    struct values v;
    memset(&untouched, 0x5a, sizeof untouched);
    size_t count = sizeof file_failures / sizeof *file_failures;
    for (size_t i = 0; i < count; i++) {
        v = untouched;
        write_file("bad.cfg", file_failures[i].text);
        tap_is_int(load("bad.cfg", NULL, &v), ERR_USAGE, "%s: refused",
                   file_failures[i].name);
        tap_ok(text_has(file_failures[i].want), "%s: text",
               file_failures[i].name);
        tap_ok(memcmp(&v, &untouched, sizeof v) == 0, "%s: nothing applied",
               file_failures[i].name);
    }
    tap_is_int(load("none.cfg", NULL, &v), ERR_USAGE, "a missing file");
    tap_ok(strstr(err_text(), at("none.cfg")) != NULL, "it is named");
    tap_is_int(load("parts", NULL, &v), ERR_USAGE, "a folder");
    tap_ok(strstr(err_text(), "folder") != NULL, "it is told");
    tap_is_int(load("bad.cfg/x", NULL, &v), ERR_USAGE, "below a file");

    char text[SETTINGS_TEXT_BYTES + 64];
    snprintf(text, sizeof text, "name = \"%0*d\";", SETTINGS_TEXT_BYTES, 0);
    write_file("bad.cfg", text);
    tap_is_int(load("bad.cfg", NULL, &v), ERR_USAGE, "a long string");
    tap_ok(strstr(err_text(), "longer than 1023") != NULL, "limit is told");
    snprintf(text, sizeof text, "%0*d = 1;", 300, 0);
    memset(text, 'k', 300);
    write_file("bad.cfg", text);
    tap_is_int(load("bad.cfg", NULL, &v), ERR_USAGE, "a long key");
}

static void test_override_failures(void)
{
    static const struct {
        const char *override;
        const char *want[3];
    } cases[] = {
        { "train.global_batch", { "command line: ", "key=value", NULL } },
        { "=5", { "command line: ", "key=value", NULL } },
        { "", { "command line: ", "key=value", NULL } },
        { "train.globl_batch=5",
          { "command line: ", "'train.globl_batch'",
            "'train.global_batch'?" } },
        { "batch=5", { "command line: ", "'batch'", NULL } },
        { "train=5", { "'train' is a group", "train.name=value", NULL } },
        { "train.global_batch=", { "'train.global_batch'", "whole", "''" } },
        { "train.global_batch=x", { "'train.global_batch'", "whole", "'x'" } },
        { "train.global_batch=1.5",
          { "'train.global_batch'", "whole", "'1.5'" } },
        { "train.global_batch= 5",
          { "'train.global_batch'", "whole", "' 5'" } },
        { "train.global_batch=99999999999999999999",
          { "'train.global_batch'", "whole", NULL } },
        { "train.global_batch=0",
          { "command line: ", "from 1 to 65536", "not 0" } },
        { "train.optimizer.lr=nan", { "'train.optimizer.lr'", "'nan'", NULL } },
        { "train.optimizer.lr=1e999",
          { "'train.optimizer.lr'", "precision", NULL } },
        { "train.optimizer.lr=1e", { "'train.optimizer.lr'", "'1e'", NULL } },
        { "train.resume=yes", { "'train.resume'", "true or false", "'yes'" } },
        { "train.max_duration=5",
          { "command line: 'train.max_duration'", "'5'", "60ba" } },
    };
    struct values v;
    write_file("min.cfg", "data: { path = \"/d\" }");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tap_is_int(load("min.cfg", cases[i].override, &v), ERR_USAGE,
                   "'%s': refused", cases[i].override);
        tap_ok(text_has(cases[i].want), "'%s': text", cases[i].override);
    }
    tap_is_int(load(NULL, NULL, &v), ERR_USAGE, "required one missing");
    tap_ok(strstr(err_text(), "data.path") != NULL, "it is named");
}

static void test_bad_schema(void)
{
    static const struct setting bad[] = {
        ROW(batch, "size", INT(1, 9), "0", 0, "a size"),
    };
    struct values v;
    tap_is_int(settings_load(bad, 1, NULL, NULL, 0, &v, NULL), ERR_INTERNAL,
               "a default outside the limits is a bug");
    tap_ok(strstr(err_text(), "'size'") != NULL, "the setting is named");
}

static void test_edits(void)
{
    static const struct {
        const char *a, *b;
        int want;
    } cases[] = {
        { "", "", 0 },         { "", "abc", 3 },           { "abc", "", 3 },
        { "abc", "abc", 0 },   { "abc", "acb", 1 },        { "abc", "abd", 1 },
        { "abc", "abcd", 1 },  { "abc", "bc", 1 },         { "ab", "ba", 1 },
        { "abcd", "badc", 2 }, { "kitten", "sitting", 3 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        tap_is_int(settings_nearest_edits(cases[i].a, cases[i].b),
                   cases[i].want, "edits '%s' to '%s'", cases[i].a, cases[i].b);
}

/* NULL: nothing is suggested. */
static void test_nearest(void)
{
    static const struct {
        const char *key, *want;
    } cases[] = {
        { "train.global_bacth", "train.global_batch" },
        { "global_batch", "train.global_batch" },
        { "globalbatch", "train.global_batch" },
        { "eval.global_batch", "train.global_batch" },
        { "train.lr", "train.optimizer.lr" },
        { "lr", "train.optimizer.lr" },
        { "date.path", "data.path" },
        { "data.pth", "data.path" },
        { "tarin", "train" },
        { "optimizer", "train.optimizer" },
        { "nmae", "name" },
        { "xy", NULL },
        { "x", NULL },
        { "model.xy", NULL },
        { "quite.something_else", NULL },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char near[SETTINGS_KEY_BYTES];
        const char *got = settings_nearest(schema, COUNT, cases[i].key, near);
        if (cases[i].want == NULL)
            tap_ok(got == NULL, "nothing is near '%s'", cases[i].key);
        else
            tap_is_str(got, cases[i].want, "near '%s'", cases[i].key);
    }
}

int main(void)
{
    test_edits();
    test_nearest();
    make_folder();
    test_file_failures();
    test_override_failures();
    test_bad_schema();
    return tap_done();
}
