/* Values of templates and the memory that they lie in.
 *
 * A rendering makes many small values and needs none of them when it is over,
 * so they are never freed one by one: memory is taken from blocks from front to
 * back, and all blocks go at the end (an arena). Values are passed as they are,
 * and what they point to is shared, since nothing but a namespace changes.
 *
 * Templates are strangers' programs, and loops within loops, or a text that is
 * joined with itself, would take any time and memory. Three limits hold: bytes
 * of all blocks; work, which every step and every byte that is copied adds to;
 * and the depth of calls. They are far above what conversations need, and what
 * goes beyond ends with an error, not with the machine.
 *
 * A dictionary is a list of fields in the order in which they came, as Python's
 * are gone through. A key that is a number is kept as its digits behind a \1,
 * so that 1 and "1" are two keys and all of them are texts. */
#include "src/text/chat/chat_value.h"

#include <assert.h>
#include <inttypes.h>
#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/base/array.h"

#define CHAT_VALUE_BLOCK_BYTES ((size_t)1 << 16)
#define CHAT_VALUE_STEP_WORK 64

struct chat_value_block {
    struct chat_value_block *before;
    size_t used, bytes;
    alignas(16) char room[];
};

enum err chat_value_work(struct chat_memory *memory, size_t bytes)
{
    memory->work += CHAT_VALUE_STEP_WORK + (int64_t)bytes;
    if (memory->work <= CHAT_VALUE_WORK_MAX)
        return ERR_OK;
    return err_set(ERR_DATA,
                   "the conversation is too long for this template: "
                   "more than %d GiB are copied",
                   (int)(CHAT_VALUE_WORK_MAX >> 30));
}

enum err chat_value_call(struct chat_memory *memory)
{
    if (++memory->calls <= CHAT_VALUE_CALLS_MAX)
        return ERR_OK;
    return err_set(ERR_DATA, "the template has more than %d levels of calls",
                   CHAT_VALUE_CALLS_MAX);
}

enum err chat_value_room(struct chat_memory *memory, size_t bytes, void **out)
{
    assert(memory != NULL && out != NULL);
    struct chat_value_block *block = memory->last;
    TRY(chat_value_work(memory, bytes));
    bytes = (bytes + 15) & ~(size_t)15;
    if (block == NULL || bytes > block->bytes - block->used) {
        size_t room =
            bytes > CHAT_VALUE_BLOCK_BYTES ? bytes : CHAT_VALUE_BLOCK_BYTES;
        if (room > CHAT_VALUE_BYTES_MAX - memory->bytes)
            return err_set(ERR_DATA,
                           "the conversation is too long for this template: "
                           "more than %zu MiB are needed",
                           CHAT_VALUE_BYTES_MAX >> 20);
        block = malloc(sizeof *block + room);
        if (block == NULL)
            return err_set(ERR_MEMORY, "no memory for a conversation");
        block->before = memory->last;
        block->used = 0;
        block->bytes = room;
        memory->last = block;
        memory->bytes += room;
    }
    *out = block->room + block->used;
    block->used += bytes;
    return ERR_OK;
}

void chat_value_release(struct chat_memory *memory)
{
    while (memory->last != NULL) {
        struct chat_value_block *block = memory->last;
        memory->last = block->before;
        free(block);
    }
    memory->bytes = 0;
    memory->calls = 0;
}

struct chat_value chat_value_string(const char *text, size_t bytes)
{
    return (struct chat_value){ .kind = CHAT_VALUE_STRING,
                                .as.text = text,
                                .count = bytes };
}

struct chat_value chat_value_integer(int64_t integer)
{
    return (struct chat_value){ .kind = CHAT_VALUE_INTEGER,
                                .as.integer = integer };
}

struct chat_value chat_value_boolean(bool value)
{
    return (struct chat_value){ .kind = CHAT_VALUE_BOOLEAN,
                                .as.integer = value };
}

const char *chat_value_name(const struct chat_value *value)
{
    static const char *const names[] = { "nothing",  "none",   "a truth value",
                                         "a number", "a text", "a list",
                                         "a record", "a macro" };
    return names[value->kind];
}

bool chat_value_true(const struct chat_value *value)
{
    switch (value->kind) {
    case CHAT_VALUE_UNDEFINED:
    case CHAT_VALUE_NONE:
        return false;
    case CHAT_VALUE_BOOLEAN:
    case CHAT_VALUE_INTEGER:
        return value->as.integer != 0;
    case CHAT_VALUE_RECORD:
        return value->as.record != NULL;
    case CHAT_VALUE_MACRO:
        return true;
    default:
        return value->count > 0;
    }
}

static bool chat_value_is_number(const struct chat_value *value)
{
    return value->kind == CHAT_VALUE_BOOLEAN ||
           value->kind == CHAT_VALUE_INTEGER;
}

static enum err chat_value_same(struct chat_memory *memory,
                                const struct chat_value *a,
                                const struct chat_value *b, int depth,
                                bool *out);

/* Records: the same names with the same values, in any order. So long as each
 * name of one is in the other, it is the count that tells whether any is left.
 */
static enum err chat_value_same_fields(struct chat_memory *memory,
                                       const struct chat_value *a,
                                       const struct chat_value *b, int depth,
                                       bool *out)
{
    size_t more = 0;
    for (struct chat_field *f = b->as.record; f != NULL; f = f->next)
        more++;
    *out = true;
    for (struct chat_field *f = a->as.record; f != NULL && *out; f = f->next) {
        TRY(chat_value_work(memory, more));
        const struct chat_field *other = chat_value_field(b, f->name, f->bytes);
        *out = other != NULL && more-- > 0;
        if (*out)
            TRY(chat_value_same(memory, &f->value, &other->value, depth, out));
    }
    *out = *out && more == 0;
    return ERR_OK;
}

static enum err chat_value_same(struct chat_memory *memory,
                                const struct chat_value *a,
                                const struct chat_value *b, int depth,
                                bool *out)
{
    TRY(chat_value_work(memory, a->kind == CHAT_VALUE_STRING ? a->count : 0));
    if (depth > CHAT_VALUE_DEPTH_MAX)
        return err_set(ERR_DATA, "lists lie too deep in one another");
    if (chat_value_is_number(a) && chat_value_is_number(b))
        *out = a->as.integer == b->as.integer;
    else if (a->kind != b->kind)
        *out = false;
    else if (a->kind == CHAT_VALUE_STRING)
        *out = a->count == b->count &&
               memcmp(a->as.text, b->as.text, a->count) == 0;
    else if (a->kind == CHAT_VALUE_RECORD)
        return chat_value_same_fields(memory, a, b, depth + 1, out);
    else if (a->kind == CHAT_VALUE_LIST) {
        *out = a->count == b->count && a->tuple == b->tuple;
        for (size_t i = 0; i < a->count && *out; i++)
            TRY(chat_value_same(memory, &a->as.list[i], &b->as.list[i],
                                depth + 1, out));
    } else
        *out = a->kind != CHAT_VALUE_MACRO || a->as.macro == b->as.macro;
    return ERR_OK;
}

enum err chat_value_equal(struct chat_memory *memory,
                          const struct chat_value *a,
                          const struct chat_value *b, bool *out)
{
    assert(a != NULL && b != NULL && out != NULL);
    return chat_value_same(memory, a, b, 0, out);
}

enum err chat_value_text(struct chat_memory *memory,
                         const struct chat_value *value, struct chat_value *out)
{
    assert(value != NULL && out != NULL);
    if (value->kind != CHAT_VALUE_STRING && value->kind != CHAT_VALUE_UNDEFINED)
        return chat_value_print(memory, value, false, -1, out);
    *out = value->count > 0 ? *value : chat_value_string("", 0);
    return ERR_OK;
}

enum err chat_value_join(struct chat_memory *memory, const struct chat_value *a,
                         const struct chat_value *b, struct chat_value *out)
{
    void *room = NULL;
    assert(a->kind == CHAT_VALUE_STRING && b->kind == CHAT_VALUE_STRING);
    if (a->count == 0 || b->count == 0) {
        *out = a->count == 0 ? *b : *a;
        return ERR_OK;
    }
    TRY(chat_value_room(memory, a->count + b->count, &room));
    memcpy(room, a->as.text, a->count);
    memcpy((char *)room + a->count, b->as.text, b->count);
    *out = chat_value_string(room, a->count + b->count);
    return ERR_OK;
}

struct chat_field *chat_value_field(const struct chat_value *record,
                                    const char *name, size_t bytes)
{
    struct chat_field *field =
        record->kind == CHAT_VALUE_RECORD ? record->as.record : NULL;
    while (field != NULL &&
           (field->bytes != bytes || memcmp(field->name, name, bytes) != 0))
        field = field->next;
    return field;
}

enum err chat_value_add_field(struct chat_memory *memory,
                              struct chat_value *record, const char *name,
                              size_t bytes, struct chat_value value)
{
    void *room = NULL;
    assert(record->kind == CHAT_VALUE_RECORD);
    TRY(chat_value_room(memory, sizeof(struct chat_field), &room));
    struct chat_field *field = room;
    *field = (struct chat_field){ name, bytes, value, record->as.record };
    record->as.record = field;
    return ERR_OK;
}

enum err chat_value_set_field(struct chat_memory *memory,
                              struct chat_value *record, const char *name,
                              size_t bytes, struct chat_value value)
{
    assert(record->kind == CHAT_VALUE_RECORD);
    struct chat_field **last = &record->as.record;
    struct chat_value rest = { .kind = CHAT_VALUE_RECORD };
    size_t steps = 0;
    for (; *last != NULL; last = &(*last)->next, steps++)
        if ((*last)->bytes == bytes &&
            memcmp((*last)->name, name, bytes) == 0) {
            (*last)->value = value;
            return chat_value_work(memory, steps);
        }
    TRY(chat_value_work(memory, steps));
    TRY(chat_value_add_field(memory, &rest, name, bytes, value));
    *last = rest.as.record;
    return ERR_OK;
}

enum err chat_value_list(struct chat_memory *memory, size_t count,
                         struct chat_value *out)
{
    void *room = NULL;
    if (count > CHAT_VALUE_BYTES_MAX / sizeof *out)
        return err_set(ERR_DATA, "a list of %zu is too long", count);
    TRY(chat_value_room(memory, count * sizeof *out, &room));
    *out = (struct chat_value){ .kind = CHAT_VALUE_LIST,
                                .as.list = room,
                                .count = count };
    return ERR_OK;
}

enum err chat_value_key(struct chat_memory *memory,
                        const struct chat_value *key, struct chat_value *out)
{
    assert(key != NULL && out != NULL);
    static const struct chat_value mark = { .kind = CHAT_VALUE_STRING,
                                            .as.text = "\1",
                                            .count = 1 };
    if (key->kind == CHAT_VALUE_STRING) {
        *out = *key;
        return ERR_OK;
    }
    if (key->kind != CHAT_VALUE_INTEGER)
        return err_set(ERR_DATA, "%s as a key is not known here",
                       chat_value_name(key));
    TRY(chat_value_text(memory, key, out));
    return chat_value_join(memory, &mark, out, out);
}

struct chat_value chat_value_of_key(const struct chat_field *field)
{
    if (field->bytes < 2 || field->bytes > 21 || *field->name != '\1')
        return chat_value_string(field->name, field->bytes);
    char text[24];
    memcpy(text, field->name + 1, field->bytes - 1);
    text[field->bytes - 1] = '\0';
    return chat_value_integer(strtoll(text, NULL, 10));
}

/* --- values as texts: as JSON, and as Python shows lists and dictionaries ---
 *
 * tojson is what templates show tools and arguments with, and its every blank
 * is a token: "," and ":" have a blank behind them, as json.dumps() of Python
 * writes them; with an indent a line end stands where the comma's blank would,
 * and empty things stay on a line. The Hugging Face library has its own tojson
 * in place of Jinja's, which would escape <, >, & and ' for web pages, and
 * leaves characters beyond ASCII as they are. Printing a list without tojson
 * gives Python's repr(): 'single quotes', True, None, and (1,) for a tuple of
 * one. */

struct value_print {
    struct chat_memory *memory;
    struct buffer text;
    int64_t indent; /* below 0: all on one line */
    bool json;
    int depth;
};

static enum err print_value(struct value_print *print,
                            const struct chat_value *value);

static enum err print_put(struct value_print *print, const char *text,
                          size_t bytes)
{
    TRY(chat_value_work(print->memory, bytes));
    if (print->text.bytes + bytes > CHAT_VALUE_BYTES_MAX)
        return err_set(ERR_DATA, "a value is too long to be printed");
    return buffer_add(&print->text, text, bytes);
}

/* repr() takes single quotes unless the text has one of them and no double one;
 * JSON has double ones only. What has no short name is written by its number.
 */
static enum err print_string(struct value_print *print, const char *text,
                             size_t bytes)
{
    bool twice = print->json || (memchr(text, '\'', bytes) != NULL &&
                                 memchr(text, '"', bytes) == NULL);
    char quote = twice ? '"' : '\'';
    TRY(print_put(print, &quote, 1));
    for (size_t i = 0, from = 0; i <= bytes; i++) {
        unsigned char c = i < bytes ? (unsigned char)text[i] : 0;
        static const char known[] = "\n\r\t\b\f", names[] = "nrtbf";
        char escape[8] = "";
        const char *name =
            i < bytes && c != 0 ? memchr(known, c, print->json ? 5 : 3) : NULL;
        if (i < bytes && (c == (unsigned char)quote || c == '\\'))
            snprintf(escape, sizeof escape, "\\%c", c);
        else if (name != NULL)
            snprintf(escape, sizeof escape, "\\%c", names[name - known]);
        else if (i < bytes && (c < 0x20 || (c == 0x7f && !print->json)))
            snprintf(escape, sizeof escape, print->json ? "\\u%04x" : "\\x%02x",
                     (unsigned)c);
        else if (i < bytes)
            continue;
        TRY(print_put(print, text + from, i - from));
        TRY(print_put(print, escape, strlen(escape)));
        from = i + 1;
    }
    return print_put(print, &quote, 1);
}

static enum err print_line(struct value_print *print, bool first)
{
    if (print->indent < 0)
        return print_put(print, ", ", first ? 0 : 2);
    TRY(print_put(print, ",\n", first ? 0 : 1));
    TRY(print_put(print, "\n", 1));
    for (int64_t i = 0; i < print->indent * print->depth; i++)
        TRY(print_put(print, " ", 1));
    return ERR_OK;
}

static enum err print_items(struct value_print *print,
                            const struct chat_value *value)
{
    bool record = value->kind == CHAT_VALUE_RECORD;
    bool tuple = value->tuple && !print->json, first = true;
    const struct chat_field *field = record ? value->as.record : NULL;
    size_t at = 0;
    if (++print->depth > CHAT_VALUE_DEPTH_MAX)
        return err_set(ERR_DATA, "lists lie too deep in one another");
    TRY(print_put(print, record ? "{" : tuple ? "(" : "[", 1));
    for (; record ? field != NULL : at < value->count; at++) {
        TRY(print_line(print, first));
        first = false;
        if (record) {
            struct chat_value key = chat_value_of_key(field);
            TRY(print->json && key.kind != CHAT_VALUE_STRING
                    ? print_string(print, field->name + 1, field->bytes - 1)
                    : print_value(print, &key));
            TRY(print_put(print, ": ", 2));
        }
        TRY(print_value(print, record ? &field->value : &value->as.list[at]));
        field = record ? field->next : NULL;
    }
    print->depth--;
    if (!first && print->indent >= 0)
        TRY(print_line(print, true));
    if (tuple && value->count == 1)
        TRY(print_put(print, ",", 1));
    return print_put(print, record ? "}" : tuple ? ")" : "]", 1);
}

static enum err print_value(struct value_print *print,
                            const struct chat_value *value)
{
    char number[24];
    const char *word = NULL;
    switch (value->kind) {
    case CHAT_VALUE_STRING:
        return print_string(print, value->as.text, value->count);
    case CHAT_VALUE_INTEGER:
        snprintf(number, sizeof number, "%" PRId64, value->as.integer);
        word = number;
        break;
    case CHAT_VALUE_BOOLEAN:
        word = value->as.integer != 0 ? (print->json ? "true" : "True")
                                      : (print->json ? "false" : "False");
        break;
    case CHAT_VALUE_NONE:
        word = print->json ? "null" : "None";
        break;
    case CHAT_VALUE_LIST:
    case CHAT_VALUE_RECORD:
        if (!value->may_change)
            return print_items(print, value);
        /* fall through */
    default:
        return err_set(ERR_DATA, "%s is not printed here",
                       value->may_change ? "a namespace"
                                         : chat_value_name(value));
    }
    return print_put(print, word, strlen(word));
}

enum err chat_value_print(struct chat_memory *memory,
                          const struct chat_value *value, bool json,
                          int64_t indent, struct chat_value *out)
{
    assert(value != NULL && out != NULL);
    enum err rc = ERR_OK;
    struct value_print print = { .memory = memory,
                                 .indent = indent,
                                 .json = json };
    void *room = NULL;
    TRY_OUT(print_value(&print, value));
    TRY_OUT(chat_value_room(memory, print.text.bytes, &room));
    memcpy(room, print.text.data, print.text.bytes);
    *out = chat_value_string(room, print.text.bytes);
out:
    buffer_free(&print.text);
    return rc;
}
