/* Finds the control characters of Unicode: C0, DEL and C1. */
#include "src/text/visible.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "src/text/unicode.h"

static bool visible_control(uint32_t point)
{
    return (point < 0x20 && point != '\n' && point != '\t') ||
           (point >= 0x7F && point < 0xA0);
}

enum err visible_add(const char *text, size_t bytes, struct buffer *out)
{
    const uint8_t *at = (const uint8_t *)text;
    const uint8_t *end = at + bytes;
    for (size_t length; at < end; at += length) {
        char written[16];
        uint32_t point = unicode_at(at, &length);
        if (!visible_control(point)) {
            TRY(buffer_add(out, at, length));
            continue;
        }
        snprintf(written, sizeof written, "\\u%04x", (unsigned)point);
        TRY(buffer_add(out, written, strlen(written)));
    }
    return ERR_OK;
}
