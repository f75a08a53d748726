
#include "tests/settings_fixture.h"

static void test_defaults(void)
{
    struct values v;
    struct settings_origin origins[COUNT];
    char *overrides[] = { "data.path=/d" };
    tap_is_int(settings_load(schema, COUNT, NULL, overrides, 1, &v, origins),
               ERR_OK, "defaults alone: %s", err_text());
    tap_is_str(v.name, "run", "string");
    tap_is_int(v.batch, 256, "whole number");
    tap_is_int(v.tokens, -1, "negative where there is no limit");
    tap_ok(v.lr == 1e-3 && v.decay == 0, "numbers");
    tap_ok(v.resume, "boolean");
    tap_is_int(v.kind, ADAMW, "choice");
    tap_is_str(v.data, "/d", "path");
    tap_is_str(v.cache, "", "an empty path stays empty");
    tap_ok(v.length.value == 60 && v.length.unit == UNIT_BA, "duration");
    int set = 0;
    for (int i = 0; i < COUNT; i++)
        set += origins[i].place[0] != '\0';
    tap_is_int(set, 1, "only the override counts as given");
    tap_is_str(origins[2].place, "command line", "it has its place");
    tap_ok(settings_given(schema, COUNT, origins, "data.path") &&
               !settings_given(schema, COUNT, origins, "name"),
           "by name");
}

static const char whole_file[] =
    "# comment with 5000000000 and \"\n"
    "name = \"a \\\"b\\\" 5000000000\"; // 5000000000\n"
    "train: {\n"
    "  global_batch = 0x200;\n"
    "  max_tokens = 5000000000L; /* 5000000000\n @include \"x\" */\n"
    "  resume = False\n"
    "  max_duration = \"2EP\";\n"
    "  optimizer = { lr = 1e-4, decay = 1; kind = \"li\" \"on\"; };\n"
    "};\n"
    "data: { path = \"sets/./c4\"; cache = \"./cache\"; };\n";

static void test_file(void)
{
    struct values v;
    char want[FSIO_PATH_MAX + 32];
    write_file("whole.cfg", whole_file);
    if (!tap_is_int(load("whole.cfg", NULL, &v), ERR_OK, "a whole file")) {
        tap_note("%s", err_text());
        return;
    }
    tap_is_str(v.name, "a \"b\" 5000000000", "string");
    tap_is_int(v.batch, 512, "hexadecimal");
    tap_is_int(v.tokens, 5000000000, "64 bits");
    tap_ok(v.lr == 1e-4, "number");
    tap_ok(v.decay == 1, "a whole number is a number");
    tap_ok(!v.resume, "boolean");
    tap_is_int(v.kind, LION, "choice");
    tap_ok(v.length.value == 2 && v.length.unit == UNIT_EP, "duration");
    snprintf(want, sizeof want, "%s/sets/./c4", folder);
    tap_is_str(v.data, want, "path relative to the file");
    snprintf(want, sizeof want, "%s/cache", folder);
    tap_is_str(v.cache, want, "path without ./");

    tap_is_int(load("whole.cfg", "train.global_batch=8", &v), ERR_OK,
               "file and override");
    tap_is_int(v.batch, 8, "the override wins");
    tap_is_int(v.tokens, 5000000000, "the rest is the file's");
}

static void test_include(void)
{
    struct values v;
    char want[FSIO_PATH_MAX + 32];
    write_file("parts/data.cfg", "data: { path = \"c4\"; };\n");
    write_file("top.cfg", "@include \"parts/data.cfg\"\nname = \"top\";\n");
    tap_is_int(load("top.cfg", NULL, &v), ERR_OK, "include: %s", err_text());
    snprintf(want, sizeof want, "%s/parts/c4", folder);
    tap_is_str(v.data, want, "path relative to the included file");
    tap_is_str(v.name, "top", "what follows the include");

    char before[FSIO_PATH_MAX];
    if (getcwd(before, sizeof before) == NULL || chdir(folder) != 0) {
        tap_ok(false, "change the folder");
        return;
    }
    char current[FSIO_PATH_MAX] = "";
    if (getcwd(current, sizeof current) == NULL)
        tap_ok(false, "current folder");
    enum err rc = settings_load(schema, COUNT, "top.cfg", NULL, 0, &v, NULL);
    tap_is_int(rc, ERR_OK, "a file of the current folder: %s", err_text());
    snprintf(want, sizeof want, "%s/parts/c4", current);
    tap_is_str(v.data, want, "its path is absolute");
    tap_is_int(load("top.cfg", "data.path=here", &v), ERR_OK, "override");
    snprintf(want, sizeof want, "%s/here", current);
    tap_is_str(v.data, want, "path relative to the current folder");
    tap_is_int(load("top.cfg", "data.path=.", &v), ERR_OK, "override");
    tap_is_str(v.data, current, "the current folder itself");
    if (chdir(before) != 0)
        tap_ok(false, "change back");
}

static void test_overrides(void)
{
    struct values v;
    write_file("min.cfg", "data: { path = \"/d\" }");
    static const char *const good[] = {
        "name=",
        "name=a b=c",
        "name=\"quoted\"",
        "data.cache=\"\"",
        "train.resume=FALSE",
        "train.optimizer.lr=.5",
        "train.optimizer.lr=3",
        "train.optimizer.lr=+1e-5",
        "train.max_tokens=-9223372036854775808",
        "train.max_duration=1h30m",
        "train.optimizer.kind=sgd",
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        tap_is_int(load("min.cfg", good[i], &v), ERR_OK, "take '%s'", good[i]);
    load("min.cfg", "name=a b=c", &v);
    tap_is_str(v.name, "a b=c", "the first = divides");
    load("min.cfg", "name=\"quoted\"", &v);
    tap_is_str(v.name, "quoted", "quotes may be given");
    load("min.cfg", "name=", &v);
    tap_is_str(v.name, "", "an empty string");
    load("min.cfg", "train.max_tokens=-9223372036854775808", &v);
    tap_ok(v.tokens == INT64_MIN, "all 64 bits");
    char *twice[] = { "train.global_batch=1", "train.global_batch=2" };
    settings_load(schema, COUNT, at("min.cfg"), twice, 2, &v, NULL);
    tap_is_int(v.batch, 2, "the last override wins");
}

/* Values that need care in the text come back the same. */
static void test_format(void)
{
    static const double numbers[] = { 0,       -0.0,   1, 1e-5,   0.1,   1e22,
                                      1.0 / 3, 123456, 9, 1e-300, 6e-05, 10 };
    static const int64_t integers[] = { 0,         INT64_MIN, INT64_MAX,
                                        INT32_MIN, INT32_MAX, -2147483649,
                                        -5,        2147483648 };
    struct setting free_schema[COUNT];
    memcpy(free_schema, schema, sizeof schema);
    for (int i = 0; i < COUNT; i++)
        free_schema[i].min = free_schema[i].max = 0;
    struct values in;
    load("whole.cfg", NULL, &in);
    memset(in.name, 0, sizeof in.name);
    strcpy(in.name, "q\" b\\ n\n t\t \x01\x7f /* # // \xc3\xa9 @include");
    in.length = (struct duration){ 0.1, UNIT_DUR };
    int wrong = 0;
    for (int i = 0; i < 24; i++) {
        struct values out;
        struct settings_origin origins[COUNT] = { 0 };
        char *text = NULL;
        in.lr = numbers[i % 12];
        in.decay = numbers[(i + 5) % 12];
        in.tokens = integers[i % 8];
        in.resume = i % 2;
        memset(&out, 0, sizeof out);
        if (settings_format(free_schema, COUNT, &in, &text) != ERR_OK)
            wrong++;
        else
            write_file("again.cfg", text);
        enum err rc = settings_load(free_schema, COUNT, at("again.cfg"), NULL,
                                    0, &out, origins);
        for (int k = 0; k < COUNT; k++)
            wrong += origins[k].place[0] == '\0';
        bool same = rc == ERR_OK && strcmp(in.name, out.name) == 0 &&
                    in.batch == out.batch && in.tokens == out.tokens &&
                    in.lr == out.lr && in.decay == out.decay &&
                    in.resume == out.resume && in.kind == out.kind &&
                    strcmp(in.data, out.data) == 0 &&
                    strcmp(in.cache, out.cache) == 0 &&
                    in.length.value == out.length.value &&
                    in.length.unit == out.length.unit;
        if (!same)
            tap_note("%s\n%s", err_text(), text == NULL ? "" : text);
        wrong += !same;
        free(text);
    }
    tap_is_int(wrong, 0, "load(format(x)) is x");
}

static void test_format_layout(void)
{
    struct values v;
    char *text = NULL;
    load(NULL, "data.path=/d", &v);
    tap_is_int(settings_format(schema, COUNT, &v, &text), ERR_OK, "format");
    tap_is_str(text,
               "name = \"run\";\n"
               "train: {\n"
               "    global_batch = 256;\n"
               "    optimizer: {\n"
               "        lr = 0.001;\n"
               "        decay = 0.0;\n"
               "        kind = \"adamw\";\n"
               "    };\n"
               "    max_tokens = -1;\n"
               "    resume = true;\n"
               "    max_duration = \"60ba\";\n"
               "};\n"
               "data: {\n"
               "    path = \"/d\";\n"
               "    cache = \"\";\n"
               "};\n",
               "groups are whole, in schema order");
    free(text);
}

static void test_help(void)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&text, &bytes);
    if (!tap_ok(stream != NULL, "open a stream"))
        return;
    settings_help(schema, COUNT, NULL, stream);
    fclose(stream);
    int lines = 0;
    for (size_t i = 0; i < bytes; i++)
        lines += text[i] == '\n';
    tap_is_int(lines, COUNT, "one line per setting");
    int missing = 0;
    for (int i = 0; i < COUNT; i++) {
        missing += strstr(text, schema[i].key) == NULL;
        missing += strstr(text, schema[i].help) == NULL;
    }
    tap_is_int(missing, 0, "every key and help text");
    tap_ok(strstr(text, "adamw|lion|sgd") != NULL, "the choices");
    tap_ok(strstr(text, "[256]") != NULL, "the default");
    tap_ok(strstr(text, "(required)") != NULL, "what is required");
    free(text);
}

int main(void)
{
    make_folder();
    test_defaults();
    test_file();
    test_include();
    test_overrides();
    test_format();
    test_format_layout();
    test_help();
    return tap_done();
}
