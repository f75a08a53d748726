/* Escapes for HTML and terminals. */
#include "src/report/escape.h"

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "src/text/unicode.h"

/* Controls, and what turns the direction of the text around it. */
static bool is_harmful(uint32_t point)
{
    return (point < 0x20 && point != '\n' && point != '\t') ||
           (point >= 0x7f && point <= 0x9f) || point == 0x200e ||
           point == 0x200f || point == 0x2028 || point == 0x2029 ||
           (point >= 0x202a && point <= 0x202e) ||
           (point >= 0x2066 && point <= 0x2069) || point == 0xfeff ||
           (point & 0xfffe) == 0xfffe;
}

static void put_html(FILE *out, uint32_t point, const char *bytes,
                     size_t length)
{
    if (is_harmful(point))
        fputs("\xef\xbf\xbd", out);
    else if (point == '<')
        fputs("&lt;", out);
    else if (point == '>')
        fputs("&gt;", out);
    else if (point == '&')
        fputs("&amp;", out);
    else if (point == '"')
        fputs("&quot;", out);
    else if (point == '\'')
        fputs("&#39;", out);
    else
        fwrite(bytes, 1, length, out);
}

void escape_html(FILE *out, const char *text)
{
    const uint8_t *at = (const uint8_t *)text;
    size_t left = strlen(text);
    size_t valid = unicode_valid(at, left);
    while (left > 0) {
        size_t length = 1;
        if (valid == 0) {
            fputs("\xef\xbf\xbd", out);
        } else {
            uint32_t point = unicode_at(at, &length);
            put_html(out, point, (const char *)at, length);
            assert(length >= 1 && length <= valid);
            valid -= length;
        }
        at += length;
        left -= length;
        if (valid == 0)
            valid = unicode_valid(at, left);
    }
}

void escape_terminal(const char *text, char *out, size_t size)
{
    assert(size > 0);
    size_t used = 0;
    for (const unsigned char *c = (const unsigned char *)text;
         *c != '\0' && used + 1 < size; c++) {
        if (*c == '\n' || *c == '\t')
            out[used++] = ' ';
        else if (*c >= 0x20 && *c < 0x7f)
            out[used++] = (char)*c;
        else if ((*c & 0xc0) != 0x80) /* once for a character */
            out[used++] = '?';
    }
    assert(size == 0 || used < size);
    if (size > 0)
        out[used] = '\0';
}
