/* Guesses what a file that is no libconfig was meant to be, for the text of the
 * error.
 *
 * Most first configurations are written in another format, or as in one:
 * libconfig says "syntax error" to all of them. What begins like JSON, TOML,
 * XML or YAML is told by its first character. Else libconfig has named a line,
 * but it finds an error where it cannot go on, which is often behind the one
 * that is wrong: so that line is looked at, then the one before it, then the
 * braces of the whole file. What a hint says is what to write, never only what
 * is wrong. */
#include "src/base/settings/settings_private.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define SETTINGS_HINT_YAML                                                     \
    "this looks like YAML; settings are libconfig, into which tessera "        \
    "convert makes other trainers': write "                                    \
    "train: { seed = 1; }; for `train:` and, below it, `seed: 1`, and "        \
    "strings in double quotes"

static bool settings_hint_begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* The first character that is neither blank nor comment. */
static const char *settings_hint_first(const char *text, int *line)
{
    for (;;) {
        for (; isspace((unsigned char)*text); text++)
            *line += *text == '\n';
        if (*text != '#' && !settings_hint_begins(text, "//"))
            return text;
        text += strcspn(text, "\n");
    }
}

const char *settings_hint_format(const char *text, size_t bytes, int *line)
{
    *line = 1;
    if (settings_hint_begins(text, "\xef\xbb\xbf"))
        return "begins with a byte order mark: save it as UTF-8 without one";
    if (settings_hint_begins(text, "\xff\xfe") ||
        settings_hint_begins(text, "\xfe\xff"))
        return "is UTF-16: save it as UTF-8";
    if (strlen(text) < bytes)
        return "is not a text file: it holds a NUL";
    const char *first = settings_hint_first(text, line);
    if (*first == '{')
        return "this looks like JSON; settings are libconfig: write "
               "train: { seed = 1; }; for { \"train\": { \"seed\": 1 } }";
    if (*first == '[')
        return "this looks like TOML or INI; settings are libconfig: write "
               "train: { seed = 1; }; for `[train]` and, below it, `seed = 1`";
    if (*first == '<')
        return "this looks like XML; settings are libconfig: write "
               "train: { seed = 1; }; for <train seed=\"1\"/>";
    if (settings_hint_begins(first, "---") || *first == '%')
        return SETTINGS_HINT_YAML;
    return NULL;
}

/* Lines "name: value" without the marks of libconfig, and such with them. */
static bool settings_hint_is_yaml(const char *text)
{
    int yaml = 0;
    int others = 0;
    while (*text != '\0') {
        size_t length = strcspn(text, "\n");
        size_t blank = strspn(text, " \t");
        const char *name = text + blank;
        size_t word = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQ"
                                   "RSTUVWXYZ0123456789_-.");
        if (blank < length && *name != '#') {
            if (memchr(text, '=', length) != NULL ||
                memchr(text, ';', length) != NULL ||
                memchr(text, '{', length) != NULL)
                others++;
            else if (settings_hint_begins(name, "- ") ||
                     (word > 0 && name[word] == ':' &&
                      isspace((unsigned char)name[word + 1])))
                yaml++;
        }
        text += length + (text[length] == '\n');
    }
    return yaml > others;
}

static bool settings_hint_is_one_of(const char *const *words, const char *value,
                                    size_t length)
{
    for (; *words != NULL; words++)
        if (strlen(*words) == length && strncasecmp(*words, value, length) == 0)
            return true;
    return false;
}

/* Whether libconfig takes it for a number or a boolean. */
static bool settings_hint_is_value(const char *value, size_t length)
{
    static const char *const booleans[] = { "true", "false", NULL };
    if (settings_hint_is_one_of(booleans, value, length))
        return true;
    char *end = NULL;
    (void)strtod(value, &end);
    size_t used = (size_t)(end - value);
    bool is_long = used + 1 == length && *end == 'L';
    return used > 0 && (used == length || is_long);
}

/* A duration or a size, which are strings here. */
static bool settings_hint_is_quantity(const char *value, size_t length)
{
    char text[64];
    struct duration duration;
    int64_t bytes = 0;
    snprintf(text, sizeof text, "%.*s", (int)length, value);
    return units_parse(text, &duration) == ERR_OK ||
           units_bytes_parse(text, &bytes) == ERR_OK;
}

/* What is wrong with the value, which ends a line or a member of a group. */
static bool settings_hint_value(const char *value,
                                char hint[SETTINGS_PLACE_BYTES])
{
    static const char *const nothings[] = { "none", "null", "nil", "nan",
                                            "inf",  "-inf", NULL };
    static const char *const answers[] = { "yes", "no", "on", "off", NULL };
    size_t length = strcspn(value, " \t\r\n;,{}()#");
    int shown = length < 64 ? (int)length : 64;
    bool word = isalpha((unsigned char)value[0]) ||
                (value[0] != '\0' && strchr("/.~$%", value[0]) != NULL);
    bool digit = isdigit((unsigned char)value[0]);
    if (value[0] == '\'')
        snprintf(hint, SETTINGS_PLACE_BYTES,
                 "write strings in double quotes, not in single ones");
    else if (value[0] == '=')
        snprintf(hint, SETTINGS_PLACE_BYTES, "write one =");
    else if (value[0] == '$' || value[0] == '%')
        snprintf(hint, SETTINGS_PLACE_BYTES,
                 "variables are not filled in: give it on the command line");
    else if (settings_hint_is_one_of(nothings, value, length))
        snprintf(hint, SETTINGS_PLACE_BYTES,
                 "there is no %.*s: leave the setting out for its default",
                 shown, value);
    else if (settings_hint_is_one_of(answers, value, length))
        snprintf(hint, SETTINGS_PLACE_BYTES, "write true or false, not %.*s",
                 shown, value);
    else if (settings_hint_is_value(value, length) || (!word && !digit))
        return false;
    else if (digit && !settings_hint_is_quantity(value, length))
        snprintf(hint, SETTINGS_PLACE_BYTES,
                 "%.*s is not a number: write 12, 1.5 or 6e-4", shown, value);
    else
        snprintf(hint, SETTINGS_PLACE_BYTES, "write \"%.*s\" in double quotes",
                 shown, value);
    return true;
}

/* A line that begins like one of another language. */
static bool settings_hint_name(const char *line,
                               char hint[SETTINGS_PLACE_BYTES])
{
    line += strspn(line, " \t");
    size_t word = strspn(line, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQ"
                               "RSTUVWXYZ0123456789_-.");
    const char *after = line + word + strspn(line + word, " \t");
    const char *dot = memchr(line, '.', word);
    if (*line == '@') {
        snprintf(hint, SETTINGS_PLACE_BYTES, "write @include \"FILE\"");
        return true;
    }
    if (word == 0)
        return false;
    if (settings_hint_begins(line, "include "))
        snprintf(hint, SETTINGS_PLACE_BYTES, "write @include \"FILE\"");
    else if (dot != NULL && (*after == '=' || *after == ':'))
        snprintf(hint, SETTINGS_PLACE_BYTES,
                 "write %.*s: { %.*s = ...; }; for %.*s, which is for the "
                 "command line",
                 (int)(dot - line), line, (int)(line + word - dot - 1), dot + 1,
                 (int)word, line);
    else if (*after == '{')
        snprintf(hint, SETTINGS_PLACE_BYTES, "write %.*s: {", (int)word, line);
    else
        return false;
    return true;
}

/* The settings of one line. */
static bool settings_hint_in_line(const char *line,
                                  char hint[SETTINGS_PLACE_BYTES])
{
    if (settings_hint_name(line, hint))
        return true;
    for (const char *p = line; *p != '\0' && *p != '\n' && *p != '#'; p++) {
        if (*p == '"') {
            p += 1 + strcspn(p + 1, "\"\n");
            if (*p != '"')
                return false;
        } else if ((unsigned char)*p >= 0x80) {
            snprintf(hint, SETTINGS_PLACE_BYTES,
                     "a character outside of ASCII, such as a typographic "
                     "quote or a no-break space, stands outside of a string");
            return true;
        } else if (*p == '=' || *p == ':') {
            p++;
            p += strspn(p, " \t");
            if (settings_hint_value(p, hint))
                return true;
            p--;
        }
    }
    return false;
}

/* Braces that have no partner. Only depths up to 16 have their line kept; no group of
 * settings is as deep. */
static bool settings_hint_braces(const char *text,
                                 char hint[SETTINGS_PLACE_BYTES])
{
    int opened[16] = { 0 };
    int depth = 0;
    int line = 1;
    for (const char *p = text; *p != '\0'; p++) {
        if (*p == '"')
            p += 1 + strcspn(p + 1, "\"\n");
        else if (*p == '#' || settings_hint_begins(p, "//"))
            p += strcspn(p, "\n");
        if (*p == '\0')
            break;
        line += *p == '\n';
        if (*p == '{' && depth < 16)
            opened[depth++] = line;
        if (*p == '}' && depth-- == 0) {
            snprintf(hint, SETTINGS_PLACE_BYTES, "the } in line %d has no {",
                     line);
            return true;
        }
    }
    if (depth > 0)
        snprintf(hint, SETTINGS_PLACE_BYTES, "the { in line %d has no }",
                 opened[depth - 1]);
    return depth > 0;
}

void settings_hint_line(const char *text, int line,
                        char hint[SETTINGS_PLACE_BYTES])
{
    if (settings_hint_is_yaml(text)) {
        snprintf(hint, SETTINGS_PLACE_BYTES, "%s", SETTINGS_HINT_YAML);
        return;
    }
    /* the line before may lack its end */
    const char *here = text;
    const char *before = text;
    for (int i = 1; i < line; i++) {
        before = here;
        here += strcspn(here, "\n");
        here += *here == '\n';
    }
    if (settings_hint_in_line(here, hint) ||
        settings_hint_in_line(before, hint) || settings_hint_braces(text, hint))
        return;
    snprintf(hint, SETTINGS_PLACE_BYTES,
             "write settings as name = value; and groups as "
             "name: { name = value; };");
}
