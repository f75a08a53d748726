/* Writes JSON as Python does. */
#include "src/data/mds_text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

enum err mds_text_add(struct mds_buffer *text, const char *format, ...)
{
    va_list list;
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
        TRY(mds_buffer_room(text, text->bytes + (size_t)length + 1));
    }
}

static enum err mds_text_character(struct mds_buffer *text, int32_t character)
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

enum err mds_text_string(struct mds_buffer *text, const char *string)
{
    if (string == NULL)
        return mds_text_add(text, "null");
    TRY(mds_text_add(text, "\""));
    const utf8proc_uint8_t *at = (const utf8proc_uint8_t *)string;
    while (at[0] != '\0') {
        utf8proc_int32_t character = 0;
        utf8proc_ssize_t bytes = utf8proc_iterate(at, -1, &character);
        if (bytes <= 0)
            return err_set(ERR_USAGE, "'%.60s' is no valid UTF-8", string);
        TRY(mds_text_character(text, character));
        at += bytes;
    }
    return mds_text_add(text, "\"");
}
