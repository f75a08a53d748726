/* Writes JSON as text with the shortest numbers that read back the same, and
 * splits an object into its members. Reading is jansson's own.
 *
 * Any number of 15 decimal digits comes back out of a double, and 17 digits tell
 * every double from its neighbours (IEEE 754-2019, 5.12.2): so 15, 16 and 17 are
 * tried, the first that strtod() turns into the same double is taken, and zeros
 * at its end are dropped.
 *
 * The splitter knows nothing of JSON but strings and how deep brackets lie,
 * which is enough to find where a value ends. What is wrong inside of one is
 * found by jansson, which gets it next. */
#include "src/base/jsontext.h"
#include "src/base/new.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIGITS_MIN 15
#define DIGITS_MAX 17 /* make any double again */

struct writer {
    FILE *out;
    int indent;
    bool failed;
};

static void put_value(struct writer *w, const json_t *value, int depth);

void jsontext_number(double value, char text[JSONTEXT_NUMBER_BYTES])
{
    snprintf(text, JSONTEXT_NUMBER_BYTES, "null");
    for (int digits = DIGITS_MIN; digits <= DIGITS_MAX && isfinite(value);
         digits++) {
        snprintf(text, JSONTEXT_NUMBER_BYTES, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
}

json_t *jsontext_real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static void put_real(struct writer *w, double value)
{
    char text[JSONTEXT_NUMBER_BYTES];
    jsontext_number(value, text);
    /* a reader must still see a real number */
    fprintf(w->out, "%s%s", text, strpbrk(text, ".e") == NULL ? ".0" : "");
}

/* What jansson writes well, but for control characters above ASCII's first: DEL
 * and C1, which a terminal would obey. */
static void put_simple(struct writer *w, const json_t *value)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY);
    w->failed |= text == NULL;
    for (const unsigned char *p = (unsigned char *)text;
         p != NULL && *p != '\0'; p++) {
        bool c1 = p[0] == 0xC2 && p[1] >= 0x80 && p[1] < 0xA0;
        p += c1;
        if (c1 || *p == 0x7F)
            fprintf(w->out, "\\u%04x", *p);
        else
            fputc(*p, w->out);
    }
    free(text);
}

static void break_line(struct writer *w, int depth)
{
    if (w->indent > 0)
        fprintf(w->out, "\n%*s", w->indent * depth, "");
}

static void put_object(struct writer *w, const json_t *object, int depth)
{
    const char *before = "";
    for (void *at = json_object_iter((json_t *)object); at != NULL;
         at = json_object_iter_next((json_t *)object, at)) {
        json_t *key = json_string(json_object_iter_key(at));
        fputs(before, w->out);
        break_line(w, depth + 1);
        put_simple(w, key);
        fputs(w->indent > 0 ? ": " : ":", w->out);
        put_value(w, json_object_iter_value(at), depth + 1);
        json_decref(key);
        before = ",";
    }
}

static void put_array(struct writer *w, const json_t *array, int depth)
{
    for (size_t i = 0; i < json_array_size(array); i++) {
        fputs(i == 0 ? "" : ",", w->out);
        break_line(w, depth + 1);
        put_value(w, json_array_get(array, i), depth + 1);
    }
}

static void put_value(struct writer *w, const json_t *value, int depth)
{
    bool object = json_is_object(value);
    bool some = (object ? json_object_size(value) : json_array_size(value)) > 0;
    if (json_is_real(value)) {
        put_real(w, json_real_value(value));
    } else if (!object && !json_is_array(value)) {
        put_simple(w, value);
    } else {
        fputc(object ? '{' : '[', w->out);
        if (object)
            put_object(w, value, depth);
        else
            put_array(w, value, depth);
        if (some)
            break_line(w, depth);
        fputc(object ? '}' : ']', w->out);
    }
}

enum err jsontext_make(const json_t *value, int indent, char **text)
{
    size_t bytes;
    *text = NULL;
    assert(indent >= 0 && indent <= 8);
    struct writer w = { .out = open_memstream(text, &bytes), .indent = indent };
    if (w.out != NULL) {
        put_value(&w, value, 0);
        w.failed |= ferror(w.out) != 0;
        w.failed |= fclose(w.out) != 0;
    }
    if (w.out != NULL && !w.failed && *text != NULL)
        return ERR_OK;
    free(*text);
    *text = NULL;
    return err_set(ERR_MEMORY, "JSON: out of memory");
}

static void put(json_t **into, int failed)
{
    if (failed == 0)
        return;
    json_decref(*into);
    *into = NULL;
}

void jsontext_set(json_t **object, const char *key, json_t *value)
{
    put(object, json_object_set_new(*object, key, value));
}

void jsontext_set_part(json_t **object, const char *key, size_t key_bytes,
                       json_t *value)
{
    put(object, json_object_setn_new(*object, key, key_bytes, value));
}

void jsontext_append(json_t **array, json_t *value)
{
    put(array, json_array_append_new(*array, value));
}

json_t *jsontext_copy(json_t *object)
{
    json_t *copy = json_copy(object);
    if (json_object_size(copy) == json_object_size(object))
        return copy;
    json_decref(copy);
    return NULL;
}

json_t *jsontext_load(const char *text, size_t bytes, size_t flags,
                      json_error_t *problem)
{
    errno = 0;
    json_t *root = json_loadb(text, bytes, flags, problem);
    if (root == NULL && errno == ENOMEM) {
        snprintf(problem->text, sizeof problem->text, "out of memory");
        problem->text[sizeof problem->text - 1] = json_error_out_of_memory;
    }
    return root;
}

enum err jsontext_wrong(const json_error_t *problem)
{
    return json_error_code(problem) == json_error_out_of_memory ? ERR_MEMORY
                                                                : ERR_DATA;
}

enum err jsontext_object(const char *text, size_t bytes, size_t flags,
                         json_t **out)
{
    json_error_t problem;
    *out = jsontext_load(text, bytes, flags, &problem);
    if (json_is_object(*out))
        return ERR_OK;
    if (*out == NULL)
        return err_set(jsontext_wrong(&problem), "line %d: no JSON object: %s",
                       problem.line, problem.text);
    json_decref(*out);
    *out = NULL;
    return err_set(ERR_DATA, "no JSON object");
}

json_t *jsontext_string(const char *text)
{
    char ascii[1024];
    json_t *string = json_string(text);
    if (string != NULL)
        return string;
    snprintf(ascii, sizeof ascii, "%s", text);
    for (char *p = ascii; *p != '\0'; p++)
        if ((unsigned char)*p >= 0x80)
            *p = '?';
    return json_string(ascii);
}

/* --- splitting --- */
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

/* To the next of what is in brackets. */
static enum err go_on(struct json_split *split, const char brackets[2],
                      bool *done)
{
    *done = false;
    bool begun = split->begun;
    if (!begun && !take(split, brackets[0]))
        return wrong(split, brackets[0] == '{' ? "no {" : "no [");
    split->begun = true;
    if (take(split, brackets[1]))
        return end(split, done);
    if (begun && !take(split, ','))
        return wrong(split, split->at == split->bytes ? "a value does not end"
                            : brackets[0] == '{'      ? "neither , nor }"
                                                      : "neither , nor ]");
    skip_space(split);
    return ERR_OK;
}

static enum err take_value(struct json_split *split, const char **value,
                           size_t *bytes)
{
    skip_space(split);
    *value = split->text + split->at;
    TRY(skip_value(split));
    *bytes = (size_t)(split->text + split->at - *value);
    return ERR_OK;
}

enum err json_split_element(struct json_split *split, const char **value,
                            size_t *bytes, bool *done)
{
    TRY(go_on(split, "[]", done));
    return *done ? ERR_OK : take_value(split, value, bytes);
}

enum err json_split_next(struct json_split *split, struct json_member *member,
                         bool *done)
{
    TRY(go_on(split, "{}", done));
    if (*done)
        return ERR_OK;
    if (split->at == split->bytes || split->text[split->at] != '"')
        return wrong(split, "no key");
    member->key = split->text + split->at;
    TRY(skip_string(split));
    member->key_bytes = (size_t)(split->text + split->at - member->key);
    if (!take(split, ':'))
        return wrong(split, "no :");
    return take_value(split, &member->value, &member->value_bytes);
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
    *object = jsontext_load(text, bytes, JSON_REJECT_DUPLICATES, &problem);
    free(text);
    if (*object == NULL)
        return err_set(jsontext_wrong(&problem), "%.*s: no JSON: %s", shown,
                       member->key, problem.text);
    return ERR_OK;
}
