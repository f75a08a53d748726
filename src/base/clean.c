/* Finds control characters in UTF-8, and what is not UTF-8. */
#include "src/base/clean.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of the character that begins here, by Unicode's table 3-7; 0: none does.
 */
static size_t clean_length(const unsigned char *at)
{
    size_t more = at[0] < 0x80                    ? 0
                  : at[0] >= 0xC2 && at[0] < 0xE0 ? 1
                  : (at[0] & 0xF0) == 0xE0        ? 2
                  : at[0] >= 0xF0 && at[0] < 0xF5 ? 3
                                                  : 4;
    unsigned char low = at[0] == 0xE0 ? 0xA0 : at[0] == 0xF0 ? 0x90 : 0x80;
    unsigned char high = at[0] == 0xED ? 0x9F : at[0] == 0xF4 ? 0x8F : 0xBF;
    if (more == 4 || (more > 0 && (at[1] < low || at[1] > high)))
        return 0;
    for (size_t i = 2; i <= more; i++) /* a NUL ends this, too */
        if ((at[i] & 0xC0) != 0x80)
            return 0;
    return more + 1;
}

void clean_text(char *text, bool lines)
{
    unsigned char *at = (unsigned char *)text;
    while (*at != '\0') {
        size_t length = clean_length(at);
        if (length == 0)
            *at = '?';
        else if (length == 1 && (*at < 0x20 || *at == 0x7F) &&
                 !(lines && (*at == '\n' || *at == '\t')))
            *at = ' ';
        else if (length == 2 && at[0] == 0xC2 && at[1] < 0xA0)
            memset(at, ' ', 2);
        at += length > 0 ? length : 1;
    }
}

static void clean_print(FILE *out, const char *format, va_list args)
{
    char *text = NULL;
    if (vasprintf(&text, format, args) < 0)
        return;
    clean_text(text, true);
    fputs(text, out);
    free(text);
}

void clean_printf(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    clean_print(stdout, format, args);
    va_end(args);
}

void clean_fprintf(FILE *out, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    clean_print(out, format, args);
    va_end(args);
}
