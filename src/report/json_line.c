/* Reads the numbers of one line. The line needs no end mark; nothing behind
 * `end` is looked at. */
#include "src/report/json_line.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX 64
#define NUMBER_BYTES 64

struct cursor {
    const char *at, *end;
};

static void skip_blanks(struct cursor *c)
{
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\t' ||
                              *c->at == '\n' || *c->at == '\r'))
        c->at++;
}

static bool line_take(struct cursor *c, char wanted)
{
    skip_blanks(c);
    if (c->at == c->end || *c->at != wanted)
        return false;
    c->at++;
    return true;
}

/* The inside of a string, with its escapes as they are. */
static bool take_string(struct cursor *c, const char **text, size_t *bytes)
{
    if (!line_take(c, '"'))
        return false;
    *text = c->at;
    while (c->at < c->end && *c->at != '"')
        c->at += *c->at == '\\' && c->at + 1 < c->end ? 2 : 1;
    if (c->at >= c->end)
        return false;
    *bytes = (size_t)(c->at - *text);
    c->at++;
    return true;
}

/* An object or a list, whatever is in it. */
static bool skip_nested(struct cursor *c)
{
    int depth = 0;
    const char *text;
    size_t bytes;
    do {
        skip_blanks(c);
        if (c->at == c->end)
            return false;
        if (*c->at == '"') {
            if (!take_string(c, &text, &bytes))
                return false;
            continue;
        }
        if (*c->at == '{' || *c->at == '[')
            depth++;
        else if (*c->at == '}' || *c->at == ']')
            depth--;
        c->at++;
    } while (depth > 0 && depth <= DEPTH_MAX);
    return depth == 0;
}

/* Anything without quotes and brackets: a number, true, null, nan. */
static bool take_word(struct cursor *c, double *value)
{
    char word[NUMBER_BYTES];
    char *end = word;
    const char *begin = c->at;
    while (c->at < c->end && strchr(",}] \t\r\n", *c->at) == NULL)
        c->at++;
    size_t bytes = (size_t)(c->at - begin);
    if (bytes == 0)
        return false;
    *value = NAN;
    if (bytes >= sizeof word)
        return true;
    memcpy(word, begin, bytes);
    word[bytes] = '\0';
    if (strspn(word, "+-.0123456789Ee") != bytes) /* strtod takes more */
        return true;
    *value = strtod(word, &end);
    if (*end != '\0' || !isfinite(*value))
        *value = NAN;
    return true;
}

static bool take_value(struct cursor *c, double *value)
{
    const char *text;
    size_t bytes;
    *value = NAN;
    skip_blanks(c);
    if (c->at == c->end)
        return false;
    if (*c->at == '"')
        return take_string(c, &text, &bytes);
    if (*c->at == '{' || *c->at == '[')
        return skip_nested(c);
    return take_word(c, value);
}

bool json_line_numbers(const char *line, size_t bytes, const char *const *keys,
                       int count, double *values)
{
    assert(count > 0 && keys != NULL && values != NULL);
    struct cursor c = { line, line + bytes };
    for (int i = 0; i < count; i++)
        values[i] = NAN;
    if (!line_take(&c, '{'))
        return false;
    while (!line_take(&c, '}')) {
        const char *key;
        size_t length;
        double value;
        if (!take_string(&c, &key, &length) || !line_take(&c, ':') ||
            !take_value(&c, &value))
            return false;
        for (int i = 0; i < count; i++)
            if (strncmp(keys[i], key, length) == 0 && strlen(keys[i]) == length)
                values[i] = value;
        skip_blanks(&c);
        if (c.at < c.end && *c.at == '}')
            continue;
        if (!line_take(&c, ','))
            return false;
    }
    skip_blanks(&c);
    return c.at == c.end;
}
