/* Most first configurations are written in another format, or as in one:
 * libconfig says "syntax error" to all of them. */
#include "src/base/settings_private.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#define SETTINGS_HINT_YAML                                                     \
    "this looks like YAML; settings are libconfig: write "                     \
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
        if (strlen(*words) == length &&
            strncasecmp(*words, value, length) == 0)
            return true;
    return false;
}

/* What is wrong with the value, which ends a line or a member of a group. */
static bool settings_hint_value(const char *value,
                                char hint[SETTINGS_PLACE_BYTES])
{
    static const char *const booleans[] = { "true", "false", NULL };
    static const char *const nothings[] = { "none", "null", "nil", "nan",
                                            "inf",  "-inf", NULL };
    size_t length = strcspn(value, " \t\r\n;,{}()#");
    size_t number = strspn(value, "+-0123456789._");
    if (value[0] == '\'') {
        snprintf(hint, SETTINGS_PLACE_BYTES,
                 "write strings in double quotes, not in single ones");
        return true;
    }
    if (settings_hint_is_one_of(nothings, value, length)) {
        snprintf(hint, SETTINGS_PLACE_BYTES,
                 "there is no %.*s: leave the setting out for its default",
                 (int)length, value);
        return true;
    }
    if (number == length && memchr(value, '_', length) != NULL) {
        snprintf(hint, SETTINGS_PLACE_BYTES, "write numbers without _");
        return true;
    }
    bool word = isalpha((unsigned char)value[0]) ||
                strchr("/.~$%", value[0]) != NULL ||
                isalpha((unsigned char)value[number]);
    bool exponent = (value[number] == 'e' || value[number] == 'E') &&
                    length == number + 1 +
                                  strspn(value + number + 1, "+-0123456789");
    bool hex = settings_hint_begins(value, "0x") ||
               settings_hint_begins(value, "0X") || value[number] == 'L';
    if (length == 0 || value[0] == '"' || !word || exponent || hex ||
        settings_hint_is_one_of(booleans, value, length))
        return false;
    snprintf(hint, SETTINGS_PLACE_BYTES, "write \"%.*s\" in double quotes",
             length < 64 ? (int)length : 64, value);
    return true;
}

/* The settings of one line. */
static bool settings_hint_in_line(const char *line,
                                  char hint[SETTINGS_PLACE_BYTES])
{
    for (const char *p = line; *p != '\0' && *p != '\n' && *p != '#'; p++) {
        if (*p == '"') {
            p += 1 + strcspn(p + 1, "\"\n");
            if (*p != '"')
                return false;
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

bool settings_hint_line(const char *text, int line,
                        char hint[SETTINGS_PLACE_BYTES])
{
    if (settings_hint_is_yaml(text)) {
        snprintf(hint, SETTINGS_PLACE_BYTES, "%s", SETTINGS_HINT_YAML);
        return true;
    }
    /* the line before may lack its end */
    const char *before = text;
    for (int i = 1; i < line; i++) {
        before = text;
        text += strcspn(text, "\n");
        text += *text == '\n';
    }
    return settings_hint_in_line(text, hint) ||
           settings_hint_in_line(before, hint);
}
