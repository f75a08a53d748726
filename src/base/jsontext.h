/* JSON as text in which a real number has as few digits as make it again: 1e-05
 * where jansson's own writer has 1.0000000000000001e-05. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "src/base/err.h"

/* indent: blanks of a level, 0 for one line without blanks. Members have the
 * order in which they were set. *text is malloc'ed; ERR_MEMORY alone, also when
 * value is NULL. */
enum err jsontext_make(const json_t *value, int indent, char **text);

/* Such a number alone; "null" where it is not finite. */
#define JSONTEXT_NUMBER_BYTES 32
void jsontext_number(double value, char text[JSONTEXT_NUMBER_BYTES]);

/* The number, or null, since JSON has neither NaN nor infinity. */
json_t *jsontext_real(double value);

/* A string, in which bytes that are no UTF-8 become '?': JSON is UTF-8, a path
 * need not be, nor an error text that was cut. NULL: out of memory. */
json_t *jsontext_string(const char *text);

/* Puts a new value into an object, or behind an array's end. Where that fails,
 * for want of memory, the object or array goes, and is NULL: who makes something
 * of many parts looks once, at the end. */
void jsontext_set(json_t **object, const char *key, json_t *value);
void jsontext_set_part(json_t **object, const char *key, size_t key_bytes,
                       json_t *value);
void jsontext_append(json_t **array, json_t *value);
/* Another object with the same values; NULL: no memory, where json_copy() leaves out. */
json_t *jsontext_copy(json_t *object);

/* json_loadb(), whose error tells a text that is wrong from memory that is
 * missing: jansson calls a string that it has no room for an invalid token. */
json_t *jsontext_load(const char *text, size_t bytes, size_t flags,
                      json_error_t *problem);
/* The kind of that error: ERR_MEMORY, or ERR_DATA. */
enum err jsontext_wrong(const json_error_t *problem);
/* A text that is an object, new; the caller puts the file before the error. NULL
 * where it is none. */
enum err jsontext_object(const char *text, size_t bytes, size_t flags,
                         json_t **out);

/* An object of JSON, member by member, in one pass and without memory: for
 * files in which there may be a million members, each of them small, or a
 * million lines. Who reads a member's value gives it to jansson, which checks
 * it, or reads the number that it is; json_split checks what lies between the
 * values.
 *
 * Longest text of a member that is read with json_split_value. */
#define JSON_SPLIT_VALUE_MAX 65536

struct json_split {
    const char *text;
    size_t bytes;
    size_t at;
    bool begun;
};

struct json_member {
    const char *key; /* with its quotes and escapes */
    size_t key_bytes;
    const char *value;
    size_t value_bytes;
};

/* `text` is an object, maybe with white space around it. */
struct json_split json_split_begin(const char *text, size_t bytes);

/* The next member; *done: there was none, and nothing follows the object.
 * ERR_DATA says what is wrong at which byte; the caller puts the file before
 * it. */
enum err json_split_next(struct json_split *split, struct json_member *member,
                         bool *done);

/* The next element of an array, *value of so many bytes, by the same rules:
 * json_split_begin() was given the array. */
enum err json_split_element(struct json_split *split, const char **value,
                            size_t *bytes, bool *done);

/* The whole member as an object of one key, which the caller releases. ERR_DATA
 * where it is no JSON, has a key twice, a NUL in a string, or over
 * JSON_SPLIT_VALUE_MAX bytes. */
enum err json_split_value(const struct json_member *member, json_t **object);
