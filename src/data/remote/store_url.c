/* Takes addresses apart and makes them, and finds words in answers and in files
 * of credentials. No network here. What an address may have is narrow on
 * purpose: it is written to a run's files and its log, so a password in it is
 * refused, without being repeated. */
#include "src/data/remote/store_url.h"

#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>

static size_t store_url_scheme(const char *text)
{
    size_t length = 0;
    while (isalnum((unsigned char)text[length]) || text[length] == '+' ||
           text[length] == '-' || text[length] == '.')
        length++;
    return length > 0 && strncmp(text + length, "://", 3) == 0 ? length : 0;
}

bool store_url_is(const char *text)
{
    return store_url_scheme(text) > 0;
}

/* What must not stand behind "://". */
static const char *store_url_wrong(const char *rest, size_t place, bool blanks)
{
    for (const char *p = rest; *p != '\0'; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f || (*p == ' ' && !blanks))
            return "has a blank or a control character: write it as %XX";
    if (memchr(rest, '@', place) != NULL)
        return "has a user or a password, which would be written to the run's "
               "files: give it in ~/.netrc, or for s3 in ~/.aws/credentials";
    if (strpbrk(rest, "?#\\") != NULL)
        return "has a '?', '#' or '\\'; an address of a data set is that of a "
               "folder";
    for (const char *part = strchr(rest, '/'); part != NULL;
         part = strchr(part + 1, '/'))
        if (strncmp(part, "/..", 3) == 0 && (part[3] == '/' || part[3] == '\0'))
            return "has '..' in it";
    return NULL;
}

enum err store_url_parse(const char *text, struct store_url *out)
{
    assert(text != NULL && out != NULL);
    memset(out, 0, sizeof *out);
    size_t scheme = store_url_scheme(text);
    if (scheme == 0 || scheme >= sizeof out->scheme)
        return err_set(ERR_USAGE, "'%.40s' is not an address", text);
    for (size_t i = 0; i < scheme; i++)
        out->scheme[i] = (char)tolower((unsigned char)text[i]);
    const char *rest = text + scheme + 3;
    size_t place = strcspn(rest, "/");
    const char *wrong =
        store_url_wrong(rest, place, strcmp(out->scheme, "s3") == 0);
    if (wrong != NULL) /* without the text, for what a password may be */
        return err_set(ERR_USAGE, "the %s address %s", out->scheme, wrong);
    size_t path = strlen(rest + place);
    while (path > 0 && rest[place + path - 1] == '/')
        path--;
    if (place >= sizeof out->place || path >= sizeof out->path)
        return err_set(ERR_USAGE, "the %s address is longer than %zu bytes",
                       out->scheme, sizeof out->path - 1);
    memcpy(out->place, rest, place);
    memcpy(out->path, rest + place, path);
    return ERR_OK;
}

bool store_url_is_plain(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c >= '0' && c <= '9') || (c != '\0' && strchr("-._~/", c) != NULL);
}

enum err store_url_encode(const char *path, const char *name, bool keep,
                          char *out, size_t bytes)
{
    assert(path != NULL && name != NULL && bytes > 0);
    size_t at = 0;
    const char *parts[] = { path, "/", name };
    for (int p = 0; p < 3; p++)
        for (const char *c = parts[p]; *c != '\0'; c++) {
            if (at + 4 > bytes)
                return err_set(ERR_USAGE, "%.40s...: the address is too long",
                               path);
            if ((keep && p == 0) || store_url_is_plain(*c))
                out[at++] = *c;
            else
                at += (size_t)snprintf(out + at, 4, "%%%02X",
                                       (unsigned)(unsigned char)*c);
        }
    out[at] = '\0';
    return ERR_OK;
}

enum err store_url_decode(char *text)
{
    char *to = text;
    for (const char *from = text; *from != '\0'; from++) {
        char c = *from;
        if (c == '%') {
            unsigned value = 0;
            if (!isxdigit((unsigned char)from[1]) ||
                !isxdigit((unsigned char)from[2]) ||
                sscanf(from + 1, "%2x", &value) != 1 || value == 0)
                return err_set(ERR_USAGE, "'%%' in the address is not followed "
                                          "by the two digits of a byte");
            c = (char)value;
            from += 2;
        }
        *to++ = c;
    }
    *to = '\0';
    return ERR_OK;
}

void store_url_tag(const char *body, size_t body_bytes, const char *tag,
                   char *out, size_t bytes)
{
    assert(bytes > 0 && tag[0] != '\0');
    char mark[64];
    out[0] = '\0';
    if (body_bytes == 0)
        return;
    int length = snprintf(mark, sizeof mark, "<%s>", tag);
    assert(length > 0 && (size_t)length < sizeof mark);
    /* answers are XML, of which a word or two are shown: no parser is needed */
    const char *begin = memmem(body, body_bytes, mark, (size_t)length);
    if (begin == NULL)
        return;
    begin += length;
    const char *end = memchr(begin, '<', body_bytes - (size_t)(begin - body));
    if (end == NULL)
        return;
    size_t count = (size_t)(end - begin);
    if (count >= bytes)
        count = bytes - 1;
    for (size_t i = 0; i < count; i++)
        out[i] =
            (unsigned char)begin[i] < 0x20 || begin[i] == 0x7f ? ' ' : begin[i];
    out[count] = '\0';
}

/* The text of a line between blanks. */
static void store_url_trim(const char **begin, size_t *length)
{
    while (*length > 0 && isspace((unsigned char)**begin))
        (*begin)++, (*length)--;
    while (*length > 0 && isspace((unsigned char)(*begin)[*length - 1]))
        (*length)--;
}

static bool store_url_equals(const char *begin, size_t length, const char *text)
{
    store_url_trim(&begin, &length);
    return length == strlen(text) && memcmp(begin, text, length) == 0;
}

bool store_url_ini(const char *text, const char *section, const char *key,
                   char *out, size_t bytes)
{
    assert(section[0] != '\0' && key[0] != '\0' && bytes > 0);
    bool inside = false;
    for (const char *line = text; *line != '\0';) {
        const char *begin = line;
        size_t length = strcspn(line, "\n");
        line += length + (line[length] == '\n');
        store_url_trim(&begin, &length);
        if (length == 0 || begin[0] == '#' || begin[0] == ';')
            continue;
        if (begin[0] == '[') {
            const char *end = memchr(begin, ']', length);
            inside =
                end != NULL &&
                store_url_equals(begin + 1, (size_t)(end - begin - 1), section);
            continue;
        }
        const char *is = memchr(begin, '=', length);
        if (!inside || is == NULL ||
            !store_url_equals(begin, (size_t)(is - begin), key))
            continue;
        length -= (size_t)(is + 1 - begin);
        begin = is + 1;
        store_url_trim(&begin, &length);
        if (length >= bytes)
            return false;
        memcpy(out, begin, length);
        out[length] = '\0';
        return true;
    }
    return false;
}
