/* Finds where members of an object end: strings are skipped, brackets counted. */
#include "src/base/json_split.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/new.h"

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* What is in no number, true, false or null. */
static bool is_mark(char c)
{
    return c == '"' || c == ',' || c == ':' || c == '{' || c == '}' ||
           c == '[' || c == ']' || is_space(c);
}

static void skip_space(struct json_split *split)
{
    while (split->at < split->bytes && is_space(split->text[split->at]))
        split->at++;
}

static enum err wrong(const struct json_split *split, const char *what)
{
    return err_set(ERR_DATA, "no JSON object: %s at its byte %zu", what,
                   split->at);
}

/* Past the character, with white space before it, if it is next. */
static bool take(struct json_split *split, char c)
{
    skip_space(split);
    if (split->at == split->bytes || split->text[split->at] != c)
        return false;
    split->at++;
    return true;
}

/* Past a string, of which the opening quote is next. */
static enum err skip_string(struct json_split *split)
{
    split->at++;
    while (split->at < split->bytes) {
        char c = split->text[split->at++];
        if (c == '"')
            return ERR_OK;
        if (c == '\\')
            split->at++;
    }
    split->at = split->bytes;
    return wrong(split, "a string does not end");
}

/* Past a value: a string, a word, or what is in brackets, of whichever kind. */
static enum err skip_value(struct json_split *split)
{
    size_t depth = 0;
    do {
        skip_space(split);
        if (split->at == split->bytes)
            return wrong(split, "a value does not end");
        char c = split->text[split->at];
        bool closes = c == '}' || c == ']';
        if (depth == 0 && (closes || c == ','))
            return wrong(split, "no value");
        if (c == '"') {
            TRY(skip_string(split));
            continue;
        }
        split->at++;
        depth += c == '{' || c == '[';
        depth -= closes;
        if (is_mark(c))
            continue;
        while (split->at < split->bytes && !is_mark(split->text[split->at]))
            split->at++;
    } while (depth > 0);
    return ERR_OK;
}

struct json_split json_split_begin(const char *text, size_t bytes)
{
    return (struct json_split){ .text = text, .bytes = bytes };
}

static enum err end(struct json_split *split, bool *done)
{
    skip_space(split);
    if (split->at != split->bytes)
        return wrong(split, "something follows it");
    *done = true;
    return ERR_OK;
}

enum err json_split_next(struct json_split *split, struct json_member *member,
                         bool *done)
{
    *done = false;
    if (!split->begun) {
        if (!take(split, '{'))
            return wrong(split, "no {");
        split->begun = true;
        if (take(split, '}'))
            return end(split, done);
    } else {
        if (take(split, '}'))
            return end(split, done);
        if (!take(split, ','))
            return wrong(split, split->at == split->bytes
                                    ? "a value does not end"
                                    : "neither , nor }");
    }
    skip_space(split);
    if (split->at == split->bytes || split->text[split->at] != '"')
        return wrong(split, "no key");
    member->key = split->text + split->at;
    TRY(skip_string(split));
    member->key_bytes = (size_t)(split->text + split->at - member->key);
    if (!take(split, ':'))
        return wrong(split, "no :");
    skip_space(split);
    member->value = split->text + split->at;
    TRY(skip_value(split));
    member->value_bytes = (size_t)(split->text + split->at - member->value);
    return ERR_OK;
}

enum err json_split_value(const struct json_member *member, json_t **object)
{
    size_t bytes = member->key_bytes + member->value_bytes + 3;
    int shown = member->key_bytes < 200 ? (int)member->key_bytes : 200;
    if (bytes > JSON_SPLIT_VALUE_MAX)
        return err_set(ERR_DATA, "%.*s: an entry of %zu bytes, at most %d",
                       shown, member->key, bytes, JSON_SPLIT_VALUE_MAX);
    char *text = NULL;
    TRY(new_room(&text, bytes));
    char *at = text;
    *at++ = '{';
    memcpy(at, member->key, member->key_bytes);
    at += member->key_bytes;
    *at++ = ':';
    memcpy(at, member->value, member->value_bytes);
    at += member->value_bytes;
    *at = '}';
    json_error_t problem;
    *object = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &problem);
    free(text);
    if (*object == NULL)
        return err_set(ERR_DATA, "%.*s: no JSON: %s", shown, member->key,
                       problem.text);
    return ERR_OK;
}
