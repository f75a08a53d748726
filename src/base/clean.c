/* Texts for people: control characters in UTF-8 and what is not UTF-8 are
 * replaced, and paths through descriptors by those that people know.
 *
 * err.c and log.c call this for whatever they are given, so it stands below all
 * that reports errors and reports none itself. The table of paths is here for
 * the same reason, and not in own.c, whose folders they are: a text is put right
 * at the one place where every text comes by. */
#include "src/base/clean.h"

#include <assert.h>
#include <pthread.h>
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

/* --- paths --- */

#define PATH_BYTES 1024

static struct {
    pthread_mutex_t mutex;
    struct {
        char at[32]; /* "": a free entry */
        char path[PATH_BYTES];
    } entries[CLEAN_ALIASES_MAX];
} aliases = { .mutex = PTHREAD_MUTEX_INITIALIZER };

/* .../fd/1 is not the beginning of .../fd/12. */
static void replace(const char *at, const char *path, char *text, size_t bytes)
{
    size_t length = strlen(at);
    for (char *p = strstr(text, at); p != NULL; p = strstr(p, at)) {
        char rest[2 * PATH_BYTES];
        if (p[length] >= '0' && p[length] <= '9') {
            p += length;
            continue;
        }
        snprintf(rest, sizeof rest, "%s", p + length);
        snprintf(p, bytes - (size_t)(p - text), "%s%s", path, rest);
        p += strlen(p) < strlen(path) ? strlen(p) : strlen(path);
    }
}

void clean_paths(char *text, size_t bytes)
{
    assert(strlen(text) < bytes);
    if (strstr(text, CLEAN_AT) == NULL)
        return;
    pthread_mutex_lock(&aliases.mutex);
    for (int i = 0; i < CLEAN_ALIASES_MAX; i++)
        if (aliases.entries[i].at[0] != '\0')
            replace(aliases.entries[i].at, aliases.entries[i].path, text,
                    bytes);
    pthread_mutex_unlock(&aliases.mutex);
}

void clean_alias(const char *from, const char *at, const char *path)
{
    assert(strlen(at) < sizeof aliases.entries[0].at);
    pthread_mutex_lock(&aliases.mutex);
    for (int i = 0; i < CLEAN_ALIASES_MAX; i++) {
        if (strcmp(aliases.entries[i].at, from) != 0)
            continue;
        snprintf(aliases.entries[i].at, sizeof aliases.entries[i].at, "%s", at);
        snprintf(aliases.entries[i].path, PATH_BYTES, "%s", path);
        break;
    }
    pthread_mutex_unlock(&aliases.mutex);
}

void clean_join(char *out, size_t bytes, const char *between,
                const char *format, ...)
{
    va_list args;
    size_t used = strlen(out);
    if (used > 0)
        used += (size_t)snprintf(out + used, bytes - used, "%s", between);
    va_start(args, format);
    if (used < bytes)
        vsnprintf(out + used, bytes - used, format, args);
    va_end(args);
}

void clean_quote(const char *text, char *out, size_t bytes)
{
    size_t used = 0;
    bool plain = *text != '\0' &&
                 text[strcspn(text, " \t\n'\"\\$`(){};|&<>*?#~!")] == '\0';
    assert(bytes >= CLEAN_QUOTED_BYTES(strlen(text)));
    if (plain) {
        snprintf(out, bytes, "%s", text);
        return;
    }
    out[used++] = '\'';
    for (const char *p = text; *p != '\0'; p++)
        if (*p == '\'')
            used += (size_t)snprintf(out + used, bytes - used, "'\\''");
        else
            out[used++] = *p;
    out[used++] = '\'';
    out[used] = '\0';
}
