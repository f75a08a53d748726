/* Values as texts: as JSON, and as Python shows lists and dictionaries.
 *
 * tojson is what templates show tools and arguments with, and its every blank
 * is a token: "," and ":" have a blank behind them, as json.dumps() of Python
 * writes them; with an indent a line end stands where the comma's blank would,
 * and empty things stay on a line. The Hugging Face library has its own tojson
 * in place of Jinja's, which would escape <, >, & and ' for web pages, and
 * leaves characters beyond ASCII as they are. Printing a list without tojson
 * gives Python's repr(): 'single quotes', True, None, and (1,) for a tuple of
 * one. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "src/base/array.h"
#include "src/text/chat/chat_value.h"

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
