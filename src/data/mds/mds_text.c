/* Writes JSON as Python does: only ASCII, with short escapes where there are
 * some, \uXXXX in lower case for the others, and a pair of surrogates beyond
 * U+FFFF. jansson's own writer escapes other characters. */
#include "src/data/mds/mds_text.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

enum err mds_text_add(struct buffer *text, const char *format, ...)
{
    va_list list;
    TRY(buffer_reserve(text, 1));
    /* a second turn where the first one finds out how much room it needs */
    for (;;) {
        size_t room = text->capacity - text->bytes;
        va_start(list, format);
        int length =
            vsnprintf((char *)text->data + text->bytes, room, format, list);
        va_end(list);
        if (length < 0)
            return err_set(ERR_INTERNAL, "a text of an index is not printable");
        if ((size_t)length < room) {
            text->bytes += (size_t)length;
            return ERR_OK;
        }
        TRY(buffer_reserve(text, (size_t)length + 1));
    }
}

static enum err mds_text_character(struct buffer *text, int32_t character)
{
    static const char escaped[] = "\"\\\n\r\t\f\b", letters[] = "\"\\nrtfb";
    const char *at = character != 0 && character < 128
                         ? strchr(escaped, (int)character)
                         : NULL;
    if (at != NULL)
        return mds_text_add(text, "\\%c", letters[at - escaped]);
    if (character >= ' ' && character <= '~')
        return mds_text_add(text, "%c", (char)character);
    if (character < 0x10000)
        return mds_text_add(text, "\\u%04x", (unsigned)character);
    unsigned rest = (unsigned)character - 0x10000;
    return mds_text_add(text, "\\u%04x\\u%04x", 0xd800 | rest >> 10,
                        0xdc00 | (rest & 0x3ff));
}

/* How many bytes stand for themselves. */
static size_t mds_text_plain(const uint8_t *at, size_t bytes)
{
    size_t plain = 0;
    while (plain < bytes && at[plain] >= ' ' && at[plain] <= '~' &&
           at[plain] != '"' && at[plain] != '\\')
        plain++;
    return plain;
}

enum err mds_text_span(struct buffer *text, const char *string, size_t bytes)
{
    assert(text != NULL && (string != NULL || bytes == 0));
    TRY(mds_text_add(text, "\""));
    const utf8proc_uint8_t *at = (const utf8proc_uint8_t *)string;
    while (bytes > 0) {
        utf8proc_int32_t character = 0;
        size_t plain = mds_text_plain(at, bytes);
        if (plain > 0) {
            TRY(buffer_add(text, at, plain));
            at += plain;
            bytes -= plain;
            continue;
        }
        utf8proc_ssize_t taken =
            utf8proc_iterate(at, (utf8proc_ssize_t)bytes, &character);
        if (taken <= 0)
            return err_set(ERR_USAGE, "'%.*s' is no valid UTF-8",
                           bytes < 60 ? (int)bytes : 60, string);
        TRY(mds_text_character(text, character));
        at += taken;
        bytes -= (size_t)taken;
    }
    return mds_text_add(text, "\"");
}

enum err mds_text_string(struct buffer *text, const char *string)
{
    return mds_text_span(text, string, strlen(string));
}
