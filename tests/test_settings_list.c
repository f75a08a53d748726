/* Lists of groups: what they read as, what their text is, and errors. */
#include "src/base/settings/settings_list.h"

#include "tests/settings_fixture.h"

struct ema {
    struct duration half_life;
    double start;
};
struct freeze {
    char match[SETTINGS_TEXT_BYTES];
    char file[SETTINGS_TEXT_BYTES];
    int64_t from;
    bool all;
    enum kind kind;
};
struct lists {
    settings_list_field algorithms;
    settings_list_field groups;
    int64_t batch;
};

#define EMA_ROWS(S)                                                            \
    S(ema, DURATION, half_life, "1000ba", 0, "of the average")                 \
    S(ema, FLOAT(0, 1), start, "0", 0, "when it begins")
#define FREEZE_ROWS(S)                                                         \
    S(freeze, STRING, match, NULL, 0, "globs of names")                        \
    S(freeze, PATH, file, "", 0, "a file")                                     \
    S(freeze, INT(0, SETTINGS_LARGE), from, "0", 0, "the first step")          \
    S(freeze, BOOL, all, "false", 0, "all of them")                            \
    S(freeze, CHOICE(kind), kind, "sgd", 0, "one of them")
#define MEMBER(group, type, field, ...)                                        \
    SETTINGS_ROW(offsetof(struct group, field), #field, type, __VA_ARGS__),

static const struct setting ema_schema[] = { EMA_ROWS(MEMBER) };
static const struct setting freeze_schema[] = { FREEZE_ROWS(MEMBER) };
static const struct settings_kind algorithm_kinds[] = {
    { "ema", "average of the weights", ema_schema, 2 },
    { "freeze", "weights that stay", freeze_schema, 5 },
    { "plain", "has no members", NULL, 0 },
    { 0 },
};
static const struct settings_kind group_kinds[] = {
    { NULL, "parameters by name", freeze_schema, 5 },
    { 0 },
};
static const struct setting list_schema[] = {
    SETTINGS_ROW(offsetof(struct lists, algorithms), "algorithms",
                 LIST(algorithm), "()", 0, "what changes training"),
    SETTINGS_ROW(offsetof(struct lists, groups), "train.groups", LIST(group),
                 "()", 0, "of parameters"),
    SETTINGS_ROW(offsetof(struct lists, batch), "train.batch", INT(1, 100), "8",
                 0, "samples"),
};

static struct lists values;

static enum err load_lists(const char *file, const char *override)
{
    char text[2 * SETTINGS_VALUE_BYTES] = "";
    char *overrides[] = { text };
    if (override != NULL)
        snprintf(text, sizeof text, "%s", override);
    return settings_load(list_schema, 3, file != NULL ? at(file) : NULL,
                         overrides, override != NULL, &values, NULL);
}

static void check_read(void)
{
    struct ema ema;
    struct freeze freeze;
    int count = -1, kind = -1;
    write_file("a.cfg",
               "algorithms = ( { name = \"freeze\"; match = \"*\\\"x\";"
               " from = 3; file = \"here\"; kind = \"adamw\"; },\n"
               "  { half_life = \"5ba\"; name = \"ema\" } );\n"
               "train: { batch = 9; groups = ( { match = \"a\" },"
               "{ match = \"b\"; all = true; } ); };\n");
    if (!tap_is_int(load_lists("a.cfg", NULL), ERR_OK, "a file with lists"))
        tap_note("%s", err_text());
    settings_list_count(&list_schema[0], values.algorithms, &count);
    tap_is_int(count, 2, "two algorithms");
    tap_is_int(settings_list_item(&list_schema[0], values.algorithms, 0, &kind,
                                  &freeze),
               ERR_OK, "the first");
    tap_is_int(kind, 1, "is of the second kind");
    tap_is_str(freeze.match, "*\"x", "its text, with a quote");
    tap_is_str(freeze.file, at("here"), "its path, of the file's folder");
    tap_ok(freeze.from == 3 && !freeze.all && freeze.kind == ADAMW,
           "its number, its default, its choice");
    settings_list_item(&list_schema[0], values.algorithms, 1, &kind, &ema);
    tap_ok(kind == 0 && ema.half_life.value == 5 && ema.start == 0,
           "the second's");
    settings_list_item(&list_schema[1], values.groups, 1, &kind, &freeze);
    tap_ok(kind == 0 && freeze.all && strcmp(freeze.match, "b") == 0,
           "of a list without names");
    tap_is_int(values.batch, 9, "what stands beside a list");
}

/* What a list is written as reads as the same list. */
static void check_text(void)
{
    char *text = NULL;
    struct lists before = values;
    settings_format(list_schema, 3, &values, &text);
    write_file("b.cfg", text);
    tap_is_int(load_lists("b.cfg", NULL), ERR_OK, "its text reads");
    tap_ok(memcmp(&before, &values, sizeof before) == 0, "as the same");
    free(text);
    tap_is_int(load_lists(NULL, "algorithms=({name=\"ema\";})"), ERR_OK,
               "an override");
    tap_is_str(values.algorithms,
               "( { name = \"ema\"; half_life = \"1000ba\"; start = 0.0; } )",
               "has the defaults in its text");
    tap_is_str(values.groups, "()", "the other list is empty");
    load_lists(NULL, "train.groups=[\"a\", \"b\"]");
    strcpy(before.groups, values.groups);
    load_lists(NULL, "train.groups=({match=\"a\";}, {match=\"b\";})");
    tap_is_str(values.groups, before.groups, "first members alone");
    tap_is_int(
        load_lists(NULL, "algorithms=( { start = 0.0; name = \"ema\" } )"),
        ERR_OK, "the same, written otherwise");
    char other[SETTINGS_VALUE_BYTES];
    settings_text(&list_schema[0], &values, other);
    tap_is_str(other,
               "( { name = \"ema\"; half_life = \"1000ba\"; start = 0.0; } )",
               "is the same text");
}

static const struct {
    const char *override, *text;
} refused[] = {
    { "algorithms=3", "a list of groups" },
    { "algorithms=", "no list of groups" },
    { "algorithms=ema", "no list of groups" },
    { "algorithms=[1,2]", "must be a list of groups" },
    { "algorithms={name=\"ema\";}", "must be a list of groups" },
    { "algorithms=(3)", "item 1: is no group" },
    { "algorithms=({name=\"ema\";},{start=0.5;})", "item 2: has no name" },
    { "algorithms=({name=3;})", "item 1: has no name" },
    { "algorithms=({name=\"emma\";})", "did you mean 'ema'?" },
    { "algorithms=({name=\"ema\";half_lif=\"3ba\";})",
      "algorithms: item 1 (ema): unknown setting 'half_lif'; did you mean "
      "'half_life'?" },
    { "algorithms=({name=\"ema\";start=2.0;})", "'start' must be from 0 to 1" },
    { "algorithms=({name=\"ema\";start=\"x\";})", "'start' must be a number" },
    { "algorithms=({name=\"freeze\";})", "(freeze): 'match' is missing" },
    { "algorithms=({name=\"freeze\";match=\"a\";kind=\"lions\";})",
      "did you mean 'lion'?" },
    { "algorithms=({name=\"freeze\";match=({name=\"ema\";});})",
      "'match' must be a string" },
    { "algorithms=({name=\"plain\";x=1;})", "unknown setting 'x'" },
    { "algorithms=();train={batch=2;}", "a list of groups" },
    { "algorithms=({name=\"ema\";start=0.5;start=0.6;})", "duplicate" },
    { "algorithms=({name=\"freeze\";match=\"a\";from=3000000000;})",
      "needs the suffix L" },
    { "algorithms=(\n@include \"/tmp\"\n)", "@include" },
    { "algorithms=({name=\"ema", "has no end" },
    { "train.groups=({name=\"x\";})", "unknown setting 'name'" },
    { "train.groups=[3]", "'match' must be a string" },
    { "train.groups=([\"a\"])", "item 1: is no group" },
    { "train.groups=[\"a\", \"b\"]", NULL },
    { "train.groups=\"()\"", NULL },
};

static void check_refused(void)
{
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        enum err rc = load_lists(NULL, refused[i].override);
        if (refused[i].text == NULL) {
            tap_is_int(rc, ERR_OK, refused[i].override);
            continue;
        }
        tap_is_int(rc, ERR_USAGE, refused[i].override);
        if (!tap_ok(strstr(err_text(), refused[i].text) != NULL, "for \"%s\"",
                    refused[i].text))
            tap_note("%s", err_text());
    }
    write_file("c.cfg", "\nalgorithms = ( { name = \"ema\"; strat = 1; } );");
    load_lists("c.cfg", NULL);
    if (!tap_ok(strstr(err_text(), "c.cfg:2: algorithms: item 1 (ema)") != NULL,
                "file and line"))
        tap_note("%s", err_text());
}

static void check_long(void)
{
    char text[SETTINGS_VALUE_BYTES] = "algorithms=(",
         *end = text + strlen(text);
    int items = 0;
    while (end - text < 1900) {
        end += sprintf(end, "%s{name=\"ema\";}", items > 0 ? "," : "");
        items++;
    }
    strcpy(end, ")");
    int count = 0;
    tap_is_int(load_lists(NULL, text), ERR_OK, "many items");
    settings_list_count(&list_schema[0], values.algorithms, &count);
    tap_is_int(count, items, "are all there");
    while (end - text < 4000)
        end += sprintf(end, ",{name=\"ema\";}");
    strcpy(end, ")");
    tap_is_int(load_lists(NULL, text), ERR_USAGE, "too many");
    tap_ok(strstr(err_text(), "is longer than") != NULL, "are too long a text");
}

static void check_help(void)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&text, &bytes);
    settings_help(list_schema, 3, NULL, stream);
    fclose(stream);
    tap_ok(strstr(text, "name = \"freeze\"") != NULL &&
               strstr(text, "half_life") != NULL &&
               strstr(text, "[1000ba]") != NULL,
           "--help tells kinds and members");
    free(text);
}

int main(void)
{
    make_folder();
    check_read();
    check_text();
    check_refused();
    check_long();
    check_help();
    return tap_done();
}
