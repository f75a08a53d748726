/* Command lines by rows: what they set, what is refused in which words, and what
 * --help prints. */

#include "src/base/settings/options.h"
#include "tests/tap.h"

struct fields {
    bool json, strip;
    const char *out, *text, *stops[3];
    int ranks;
    int64_t steps, bytes;
    uint64_t seed;
    double share, any;
    int form;
    size_t taken;
};

static enum err take(void *into, char *value)
{
    ((struct fields *)into)->taken += strlen(value);
    return ERR_OK;
}

static const char *const forms[] = { "hf", "gguf", NULL };

static const struct options_row rows[] = {
    OPTION_FLAG(struct fields, json, "json", "one object"),
    OPTION_OFF(struct fields, strip, "no-strip", "leave blanks"),
    OPTION_PATH(struct fields, out, "out", "OUT", "where to"),
    OPTION_HEADING("numbers:"),
    OPTION_TEXT(struct fields, text, "text", "TEXT", "any"),
    OPTION_TEXTS(struct fields, stops, "stop", "TEXT", "two of them"),
    OPTION_WHOLE(struct fields, ranks, "ranks", "N", 1, 64, "few"),
    OPTION_WHOLE(struct fields, steps, "steps", "N", 0, INT64_MAX, "many"),
    OPTION_WHOLE(struct fields, seed, "seed", "N", 0, INT64_MAX, "drawn"),
    OPTION_BYTES(struct fields, bytes, "memory", "BYTES",
                 "a text that is so long that it needs a second line, on which "
                 "it goes on"),
    OPTION_REAL(struct fields, share, "share", "F", OPTION_ABOVE_0,
                OPTION_BELOW_1, "of one"),
    OPTION_REAL(struct fields, any, "any", "X", -INFINITY, INFINITY, "all"),
    OPTION_CHOICE(struct fields, form, "format", forms, "hf if not given"),
    OPTION_TAKE("task", "TASK", take, "adds"),
    { 0 },
};

/* A limit on one side alone. */
static const struct options_row from_two[] = {
    OPTION_REAL(struct fields, any, "any", "X", 2, INFINITY, "all"),
    { 0 },
};
static const struct options_command half_command[] = { { .rows = from_two } };
static const struct options_program half = { .name = "half",
                                             .about = "About it.\n",
                                             OPTIONS_COMMANDS(half_command) };

static const struct options_command one[] = { { .operands = "RUN...",
                                                .rows = rows,
                                                .operands_min = 1,
                                                .operands_max = -1 } };
static const struct options_program single = { .name = "one",
                                               .about = "About it.\n",
                                               OPTIONS_COMMANDS(one) };

static const struct options_command two[] = {
    { "make", "A B", "makes it", rows, "out! json ranks", 2, 2 },
    { "prune", "RUN", NULL, rows, "ranks|steps! json", 1, 1 },
    { "read", "[RUN]", NULL, rows, "share! *", 0, 1 },
    { "list", "", NULL, rows, "", 0, 0 },
};
static const struct options_program several = { .name = "two",
                                                .about = "About both.\n",
                                                .end = "The end.\n",
                                                OPTIONS_COMMANDS(two) };

static char line_text[512];
static char *line_words[64];

/* Words with blanks between them, '' for an empty one, behind the program. */
static enum err parse(const struct options_program *program, const char *text,
                      struct fields *fields, struct options *options)
{
    int count = 1;
    snprintf(line_text, sizeof line_text, "%s", text);
    line_words[0] = line_text + sizeof line_text - 1;
    for (char *word = strtok(line_text, " "); word != NULL;
         word = strtok(NULL, " ")) {
        if (strcmp(word, "''") == 0)
            word[0] = '\0';
        line_words[count++] = word;
    }
    *fields = (struct fields){ .strip = true };
    return options_parse(program, count, line_words, fields, options);
}

static void test_values(void)
{
    struct fields f;
    struct options o;
    tap_is_int(parse(&single,
                     "a --json --out=x --text '' b --ranks 3 --steps=9 "
                     "--no-strip --seed 9223372036854775807 --memory 2KiB "
                     "--share .5 --any -3 --format gguf --task abc --task de "
                     "--stop p --stop q c -- --json -",
                     &f, &o),
               ERR_OK, "all kinds of options between operands: %s", err_text());
    tap_ok(f.json && !f.strip && strcmp(f.out, "x") == 0 && f.text[0] == '\0',
           "flags and texts");
    tap_ok(f.ranks == 3 && f.steps == 9 && f.seed == INT64_MAX &&
               f.bytes == 2048,
           "whole numbers of both sizes, and bytes");
    tap_ok(f.share == .5 && f.any == -3 && f.form == 1 && f.taken == 5,
           "numbers, a choice, and what a function takes");
    tap_is_int(options_texts_count(f.stops), 2, "texts that were repeated");
    tap_is_int(o.operand_count, 5, "operands");
    tap_is_str(o.operands[3], "--json", "behind -- nothing is an option");
    tap_is_str(o.operands[4], "-", "a dash is an operand");
    tap_ok(options_given(&o, "ranks") && options_given(&o, "task"), "given");
    parse(&single, "--ranks 1 --ranks 2 a --js", &f, &o);
    tap_ok(f.ranks == 2 && f.json && !options_given(&o, "out"),
           "the last counts, and the beginning of a name will do");
}

static void test_refused(void)
{
    static const struct {
        const struct options_program *program;
        const char *line, *said;
    } rows_refused[] = {
        { &single, "a --jsn",
          "no option --jsn; did you mean --json? see --help" },
        { &single, "a -x", "no option -x; see --help" },
        { &single, "a --s 1", "no option --s; see --help" },
        { &single, "a --zzzzz=1", "no option --zzzzz=1; see --help" },
        { &single, "a --out", "--out needs a value; see --help" },
        { &single, "a --out ''", "--out is empty" },
        { &single, "a --json=1", "--json takes no value; see --help" },
        { &single, "a --ranks 65",
          "--ranks takes a whole number from 1 to 64, not '65'" },
        { &single, "a --ranks 1x",
          "--ranks takes a whole number from 1 to 64, not '1x'" },
        { &single, "a --steps 99999999999999999999",
          "--steps takes a whole number of at least 0, not "
          "'99999999999999999999'" },
        { &single, "a --share 1",
          "--share takes a number above 0 and below 1, not '1'" },
        { &single, "a --share nan",
          "--share takes a number above 0 and below 1, not 'nan'" },
        { &single, "a --any x", "--any takes a number, not 'x'" },
        { &half, "--any 1", "--any takes a number of at least 2, not '1'" },
        { &half, "--any nan", "--any takes a number of at least 2, not 'nan'" },
        { &single, "a --format x", "--format takes hf, gguf, not 'x'" },
        { &single, "a --memory 0", "--memory: a size above 0 is needed" },
        { &single, "a --stop ''", "--stop takes a text that is not empty" },
        { &single, "a --stop x --stop y --stop z",
          "--stop can be given 2 times" },
        { &single, "", "needs at least one RUN...; see --help" },
        { &several, "maek", "no command maek; did you mean make? see --help" },
        { &several, "make a", "make takes 2 paths (A B), not 1; see --help" },
        { &several, "make a b", "make needs --out OUT; see --help" },
        { &several, "make a b --out c --share 1",
          "make has no option --share; see --help" },
        { &several, "prune a",
          "prune needs one of --ranks N and --steps N; see --help" },
        { &several, "prune a b", "prune takes one RUN, not 2; see --help" },
        { &several, "list a",
          "list reads standard input, not 'a'; see --help" },
        { &several, "--json", "no command --json; see --help" },
    };
    struct fields f;
    struct options o;
    for (size_t i = 0; i < sizeof rows_refused / sizeof *rows_refused; i++) {
        enum err rc =
            parse(rows_refused[i].program, rows_refused[i].line, &f, &o);
        tap_is_str(rc == ERR_USAGE ? err_text() : "taken", rows_refused[i].said,
                   "refused: %s", rows_refused[i].line);
    }
}

static void test_usage(void)
{
    struct fields f;
    struct options o;
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    options_usage(&several, out);
    fclose(out);
    tap_ok(strstr(text, "usage: tessera-two make A B --out OUT [--json] "
                        "[--ranks N]\n          makes it\n") == text,
           "a command, what it needs, what it takes");
    tap_ok(strstr(text, " prune RUN --ranks N|--steps N [--json]\n") != NULL,
           "one of two");
    tap_ok(strstr(text, " read [RUN] --share F [OPTION]...\n") != NULL,
           "of many options none is shown");
    tap_ok(strstr(text, "  --format hf|gguf  hf if not given\n") != NULL,
           "a choice has its names");
    tap_ok(strstr(text, "  --memory BYTES    a text that is so long that it "
                        "needs a second line, on\n"
                        "                    which it goes on\n") != NULL,
           "a long text is wrapped");
    tap_ok(strstr(text, "\nnumbers:\n") != NULL &&
               strstr(text, "\n\nThe end.\n") != NULL,
           "headings and the end");
    tap_note("%s", text);
    free(text);
    static const char *const helps[] = { "--help", "-h", "make --help",
                                         "make a --help --zzz" };
    for (int i = 0; i < 4; i++)
        tap_ok(parse(&several, helps[i], &f, &o) == ERR_OK && o.help,
               "help: %s", helps[i]);
    tap_ok(parse(&single, "a --text --help", &f, &o) == ERR_OK && !o.help,
           "a value is no option");
    tap_ok(parse(&several, "--version", &f, &o) == ERR_OK && o.version,
           "the version");
}

int main(void)
{
    test_values();
    test_refused();
    test_usage();
    return tap_done();
}
