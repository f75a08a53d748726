/* Reads command lines by the rows of a table.
 *
 * getopt_long() needs a second table, knows no limits and speaks in its own
 * words. Here the row has the type, the field and its limits, so that reading,
 * checking, the nearest name, --help and the manual page come from one place.
 * Which options a command has of its program's is a text of names, in which a !
 * asks for one of a group: the one thing that rows alone cannot say. */
#include "src/base/clean.h"
#include "src/base/settings/options.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/settings/options_private.h"
#include "src/base/settings/settings.h"
#include "src/base/units.h"

#define OPTIONS_NAMES_MAX 66
#define OPTIONS_WORD_BYTES 64

const struct options_command *
options_command_at(const struct options_program *program, size_t i)
{
    assert(i < program->count &&
           program->stride >= sizeof(struct options_command));
    return (const void *)((const char *)program->commands +
                          i * program->stride);
}

bool options_row_is(const struct options_row *row)
{
    return row->name != NULL || row->help != NULL;
}

const char *options_chosen(const char *choice, const char *name)
{
    size_t length = strlen(name);
    if (choice == NULL)
        return "";
    for (const char *at = choice; *at != '\0'; at += strcspn(at, " |!")) {
        at += strspn(at, " |!");
        if (strncmp(at, name, length) == 0 &&
            (at[length] == '\0' || strchr(" |!", at[length]) != NULL))
            return at;
    }
    return strchr(choice, '*');
}

bool options_must(const char *word)
{
    return word[strcspn(word, " !")] == '!';
}

/* Names are compared without dashes and values, and come back with as many dashes as
 * were typed, so that the answer can be copied. */
enum err options_unknown(const char *what, const char *given,
                         const char *const *names)
{
    char word[OPTIONS_WORD_BYTES];
    size_t dashes = strspn(given, "-");
    snprintf(word, sizeof word, "%.*s", (int)strcspn(given + dashes, "="),
             given + dashes);
    const char *near = settings_nearest_choice(names, word);
    if (near == NULL || strcmp(near, word) == 0)
        return err_set(ERR_USAGE, "%s%.64s; see --help", what, given);
    return err_set(ERR_USAGE, "%s%.64s; did you mean %.*s%s? see --help", what,
                   given, (int)dashes, "--", near);
}

/* --- values --- */

static enum err parse_whole(const struct options_row *row, const char *text,
                            void *field)
{
    char *end = NULL;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    bool whole = end != text && *end == '\0' && errno == 0 &&
                 value >= row->least && value <= row->most;
    if (!whole && row->most == INT64_MAX)
        return err_set(ERR_USAGE,
                       "--%s takes a whole number of at least %" PRId64
                       ", not '%.64s'",
                       row->name, row->least, text);
    if (!whole)
        return err_set(ERR_USAGE,
                       "--%s takes a whole number from %" PRId64 " to %" PRId64
                       ", not '%.64s'",
                       row->name, row->least, row->most, text);
    if (row->bytes == sizeof(int))
        *(int *)field = (int)value;
    else
        *(int64_t *)field = value;
    return ERR_OK;
}

static enum err parse_real(const struct options_row *row, const char *text,
                           double *field)
{
    char *end = NULL;
    char from[64] = "";
    double value = strtod(text, &end);
    bool bounded = isfinite(row->low) || isfinite(row->high);
    *field = value;
    if (end != text && *end == '\0' &&
        (!bounded || (value >= row->low && value <= row->high)))
        return ERR_OK;
    if (bounded)
        snprintf(from, sizeof from, " of at least %.10g", row->low);
    if (!isfinite(row->high))
        return err_set(ERR_USAGE, "--%s takes a number%s, not '%.64s'",
                       row->name, from, text);
    return err_set(ERR_USAGE,
                   "--%s takes a number %s%.10g %s %.10g, not '%.64s'",
                   row->name, row->low == OPTION_ABOVE_0 ? "above " : "from ",
                   row->low == OPTION_ABOVE_0 ? 0 : row->low,
                   row->high == OPTION_BELOW_1 ? "and below" : "to",
                   row->high == OPTION_BELOW_1 ? 1 : row->high, text);
}

static enum err parse_bytes(const struct options_row *row, const char *text,
                            int64_t *field)
{
    enum err rc = units_bytes_parse(text, field);
    if (rc == ERR_OK && *field == 0)
        rc = err_set(ERR_USAGE, "a size above 0 is needed");
    return rc == ERR_OK ? rc : err_prefix(rc, "--%s", row->name);
}

static enum err parse_choice(const struct options_row *row, const char *text,
                             void *field)
{
    char all[256] = "";
    for (int i = 0; row->choices[i] != NULL; i++) {
        if (strcmp(text, row->choices[i]) == 0) {
            if (row->bytes == sizeof(bool))
                *(bool *)field = i != 0;
            else
                *(int *)field = i;
            return ERR_OK;
        }
        clean_join(all, sizeof all, ", ", "%s", row->choices[i]);
    }
    return err_set(ERR_USAGE, "--%s takes %s, not '%.64s'", row->name, all,
                   text);
}

static enum err add_text(const struct options_row *row, const char *text,
                         const char **field)
{
    int count = options_texts_count(field);
    assert(row->bytes % sizeof *field == 0);
    int most = (int)(row->bytes / sizeof *field) - 1;
    if (text[0] == '\0')
        return err_set(ERR_USAGE, "--%s takes a text that is not empty",
                       row->name);
    if (count == most)
        return err_set(ERR_USAGE, "--%s can be given %d times", row->name,
                       most);
    field[count] = text;
    return ERR_OK;
}

/* Into the field, whose type follows from the row's kind and, for whole numbers and
 * choices, its size. text: NULL for a flag. */
static enum err set_field(const struct options_row *row, char *text, void *into)
{
    void *field = (char *)into + row->offset;
    switch (row->kind) {
    case OPTIONS_FLAG:
        *(bool *)field = row->most != 0;
        return ERR_OK;
    case OPTIONS_TEXT:
        *(const char **)field = text;
        return row->least == 0 || text[0] != '\0'
                   ? ERR_OK
                   : err_set(ERR_USAGE, "--%s is empty", row->name);
    case OPTIONS_TEXTS:
        return add_text(row, text, field);
    case OPTIONS_WHOLE:
        return parse_whole(row, text, field);
    case OPTIONS_REAL:
        return parse_real(row, text, field);
    case OPTIONS_BYTES:
        return parse_bytes(row, text, field);
    case OPTIONS_CHOICE:
        return parse_choice(row, text, field);
    default:
        return row->take(into, text);
    }
}

/* --- the command line --- */

/* The row of the name, of which `length` bytes are given: all of it, or what
 * only this one begins with. NULL: none, or several, or another command's. */
static const struct options_row *find(const struct options_command *command,
                                      const char *name, size_t length)
{
    const struct options_row *found = NULL;
    bool several = false;
    for (const struct options_row *row = command->rows; options_row_is(row);
         row++) {
        if (row->name == NULL || strncmp(row->name, name, length) != 0)
            continue;
        bool taken = options_chosen(command->choice, row->name) != NULL;
        if (row->name[length] == '\0')
            return taken ? row : NULL;
        if (!taken)
            continue;
        several = found != NULL;
        found = row;
    }
    return several || length == 0 ? NULL : found;
}

static enum err no_option(const struct options_command *command,
                          const char *given)
{
    char what[OPTIONS_WORD_BYTES] = "no option ";
    const char *names[OPTIONS_NAMES_MAX + 3] = { "help", "version" };
    int count = 2;
    for (const struct options_row *row = command->rows;
         options_row_is(row) && count < OPTIONS_NAMES_MAX; row++)
        if (row->name != NULL &&
            options_chosen(command->choice, row->name) != NULL)
            names[count++] = row->name;
    if (command->name != NULL)
        snprintf(what, sizeof what, "%.32s has no option ", command->name);
    return options_unknown(what, given, names);
}

static bool asks(struct options *out, const char *given)
{
    out->help = strcmp(given, "--help") == 0 || strcmp(given, "-h") == 0;
    out->version = strcmp(given, "--version") == 0;
    return out->help || out->version;
}

/* The option argv[*i], and its value, if that is the next argument. A value is taken
 * whatever it looks like, as --stop --help may be meant; --help alone is seen before,
 * so that it works beside options that are wrong. */
static enum err take_option(struct options *out, int argc, char **argv, int *i)
{
    char *given = argv[*i], *name = given + 2;
    size_t length = strcspn(name, "=");
    char *value = name[length] == '=' ? name + length + 1 : NULL;
    if (asks(out, given))
        return ERR_OK;
    const struct options_row *row =
        given[1] == '-' ? find(out->command, name, length) : NULL;
    if (row == NULL)
        return no_option(out->command, given);
    bool flag = row->kind == OPTIONS_FLAG;
    if (flag && value != NULL)
        return err_set(ERR_USAGE, "--%s takes no value; see --help", row->name);
    if (!flag && value == NULL && *i + 1 == argc)
        return err_set(ERR_USAGE, "--%s needs a value; see --help", row->name);
    if (!flag && value == NULL)
        value = argv[++*i];
    assert(row - out->command->rows < 64); /* a bit for each */
    out->given |= (uint64_t)1 << (row - out->command->rows);
    return set_field(row, value, out->into);
}

static enum err take_all(struct options *out, int argc, char **argv, int first)
{
    bool options = true;
    out->operands = argv + first;
    for (int i = first; i < argc; i++) {
        if (options && strcmp(argv[i], "--") == 0)
            options = false;
        else if (options && argv[i][0] == '-' && argv[i][1] != '\0')
            TRY(take_option(out, argc, argv, &i));
        else
            out->operands[out->operand_count++] = argv[i];
        if (out->help || out->version)
            break;
    }
    return ERR_OK;
}

/* "merge ", of the command; "": the program, whose name every error begins with,
 * has only this one. */
static const char *whose_name(const struct options *options, char text[64])
{
    const char *name = options->command->name;
    snprintf(text, 64, "%s%s", name != NULL ? name : "",
             name != NULL ? " " : "");
    return text;
}

/* Appends "--keep K" or "one of --keep K and --keep-every M", of the word that
 * *at is at, and moves *at behind it. Was one of them given? */
static bool needed_word(const struct options *options, const char **at,
                        char *text, size_t bytes)
{
    bool there = false;
    size_t used = strlen(text);
    const char *and = (*at)[strcspn(*at, "|! ")] == '|' ? "one of " : "";
    if (used > 0)
        used += (size_t)snprintf(text + used, bytes - used, ", ");
    while (**at != ' ' && **at != '\0') {
        size_t length = strcspn(*at, " |!");
        const struct options_row *row = find(options->command, *at, length);
        assert(row != NULL && used < bytes);
        there = there || options_given(options, row->name);
        used += (size_t)snprintf(text + used, bytes - used, "%s--%s%s%s", and,
                                 row->name, row->value != NULL ? " " : "",
                                 row->value != NULL ? row->value : "");
        *at += length;
        *at += strspn(*at, "|!");
        and = (*at)[strcspn(*at, "|! ")] == '|' ? ", " : " and ";
    }
    return there;
}

/* One of each "a|b!" is there; else all that are needed are named. */
static enum err check_needed(const struct options *options)
{
    const char *at = options->command->choice;
    char whose[64], text[512] = "";
    bool complete = true;
    while (at != NULL && *at != '\0') {
        if (!options_must(at))
            at += strcspn(at, " ");
        else
            complete = needed_word(options, &at, text, sizeof text) && complete;
        at += strspn(at, " ");
    }
    return complete ? ERR_OK
                    : err_set(ERR_USAGE, "%sneeds %s; see --help",
                              whose_name(options, whose), text);
}

/* The texts follow what the limits mean: none, one, so many paths, at least one. */
static enum err check_operands(const struct options *options)
{
    char whose[64];
    const struct options_command *command = options->command;
    int count = options->operand_count, least = command->operands_min;
    int most = command->operands_max;
    if (most == 0 && count > 0)
        return err_set(ERR_USAGE,
                       "%sreads standard input, not '%s'; see --help",
                       whose_name(options, whose), options->operands[0]);
    if (count >= least && (most < 0 || count <= most))
        return ERR_OK;
    if (most == 1)
        return err_set(ERR_USAGE, "%stakes %sone %s, not %d; see --help",
                       whose_name(options, whose), least == 0 ? "at most " : "",
                       command->operands, count);
    if (most > 1 && least == most)
        return err_set(ERR_USAGE, "%stakes %d paths (%s), not %d; see --help",
                       whose_name(options, whose), most, command->operands,
                       count);
    return err_set(ERR_USAGE, "%sneeds at least one %s; see --help",
                   whose_name(options, whose), command->operands);
}

static enum err find_command(const struct options_program *program,
                             const char *name,
                             const struct options_command **out)
{
    const char *names[OPTIONS_NAMES_MAX + 1] = { NULL };
    for (size_t i = 0; i < program->count && i < OPTIONS_NAMES_MAX; i++) {
        *out = options_command_at(program, i);
        names[i] = (*out)->name;
        if (strcmp(name, names[i]) == 0)
            return ERR_OK;
    }
    return options_unknown("no command ", name, names);
}

enum err options_parse(const struct options_program *program, int argc,
                       char **argv, void *into, struct options *out)
{
    assert(program->count > 0 && argc > 0);
    bool named = options_command_at(program, 0)->name != NULL;
    *out = (struct options){ .program = program, .into = into };
    out->command = options_command_at(program, 0);
    if (named && argc > 1 && asks(out, argv[1]))
        return ERR_OK;
    if (named)
        TRY(find_command(program, argc > 1 ? argv[1] : "", &out->command));
    TRY(take_all(out, argc, argv, named ? 2 : 1));
    if (out->help || out->version)
        return ERR_OK;
    TRY(check_operands(out));
    return check_needed(out);
}

bool options_given(const struct options *options, const char *name)
{
    const struct options_row *row = find(options->command, name, strlen(name));
    return row != NULL &&
           (options->given >> (row - options->command->rows) & 1) != 0;
}

int options_texts_count(const char *const *texts)
{
    int count = 0;
    while (texts[count] != NULL)
        count++;
    return count;
}
