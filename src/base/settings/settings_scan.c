/* Looks through a file before libconfig reads it, for what libconfig gets wrong
 * or takes minutes for. It gives no values: settings_file.c does.
 *
 * libconfig 1.5 is on every system and its files are what users have, but it
 * believes what it reads. A whole number of more than 32 bits without an L is
 * cut to 32 without a word, so that a token budget of 1e10 written out becomes
 * 1410065408; a number below the least double becomes 0; a string or comment
 * that does not end takes the rest of the file with it; an @include of a folder
 * ends the process in its lexer; and each setting is compared with all before
 * it, so that a large file that is no configuration takes minutes. This is a
 * lexer of the same language that knows just enough to stand on the right
 * character: strings, comments, numbers, names, includes. Whatever else is
 * wrong it passes over, and libconfig tells of it, in its own words and place.
 *
 * What may be read in all, of this file and what it includes, is counted down
 * in one struct: files, bytes and settings. */
#include "src/base/settings/settings_private.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "src/base/fsio.h"

#define SETTINGS_SCAN_SETTINGS_MAX 4096
#define SETTINGS_SCAN_FILES_MAX 64
/* libconfig's own limit of nested includes is 10; it reports the excess. */
#define SETTINGS_SCAN_DEPTH_MAX 11

/* What is left for the file and all that it includes. */
struct settings_scan_room {
    size_t bytes;
    int settings;
    int files;
};

struct settings_scan {
    struct settings_scan_room *room;
    const char *path;   /* for error texts */
    const char *folder; /* that @include is relative to */
    const char *next;   /* text not looked at yet; NUL-terminated */
    int line;
    int depth;
};

static enum err settings_scan_nested(const char *path, const char *folder,
                                     int depth,
                                     struct settings_scan_room *room);

/* libconfig takes what has no end for the end of the file. */
static enum err settings_scan_endless(const struct settings_scan *scan,
                                      const char *what, int line)
{
    return err_set(ERR_USAGE, "%s:%d: the %s that begins here has no end",
                   scan->path, line, what);
}

/* Over a quoted string; `next` stands on its first quote. */
static enum err settings_scan_string(struct settings_scan *scan)
{
    int line = scan->line;
    const char *p = scan->next + 1;
    for (; *p != '\0' && *p != '"'; p++) {
        if (*p == '\\' && p[1] != '\0')
            p++;
        if (*p == '\n')
            scan->line++;
    }
    if (*p == '\0')
        return settings_scan_endless(scan, "string", line);
    scan->next = p + 1;
    return ERR_OK;
}

static bool settings_scan_is_comment(const char *p)
{
    return *p == '#' || (p[0] == '/' && (p[1] == '/' || p[1] == '*'));
}

/* Over a comment of one of the three kinds. */
static enum err settings_scan_comment(struct settings_scan *scan)
{
    int line = scan->line;
    const char *p = scan->next;
    if (strncmp(p, "#include \"", 10) == 0)
        return err_set(ERR_USAGE,
                       "%s:%d: #include is a comment: write "
                       "@include",
                       scan->path, line);
    if (p[0] == '#' || p[1] == '/') {
        scan->next = p + strcspn(p, "\n");
        return ERR_OK;
    }
    for (p += 2; *p != '\0' && !(p[0] == '*' && p[1] == '/'); p++)
        if (*p == '\n')
            scan->line++;
    if (*p == '\0')
        return settings_scan_endless(scan, "comment", line);
    scan->next = p + 2;
    return ERR_OK;
}

/* A whole number must fit in the bits that libconfig gives it. */
static enum err settings_scan_number(struct settings_scan *scan)
{
    const char *first = scan->next;
    const char *p = first + (*first == '+' || *first == '-');
    bool hex = p[0] == '0' && (p[1] == 'x' || p[1] == 'X');
    char *end = NULL;
    errno = 0;
    long long number = strtoll(first, &end, hex ? 16 : 10);
    bool overflow = errno == ERANGE;
    int digits = (int)(end - first);
    /* the rest of a decimal number is of no interest here, as 1.5 and 1e9 */
    bool decimal = !hex && (*end == '.' || *end == 'e' || *end == 'E');
    bool is_long = *end == 'L';
    while (isalnum((unsigned char)*end) || *end == '.' ||
           ((*end == '+' || *end == '-') && tolower(end[-1]) == 'e' && !hex))
        end++;
    scan->next = end;
    if (decimal && settings_vanishes(first, end, strtod(first, NULL)))
        return err_set(ERR_USAGE,
                       "%s:%d: %.*s is too small: the least number is 2.3e-308",
                       scan->path, scan->line, (int)(end - first), first);
    if (decimal)
        return ERR_OK;
    if (overflow)
        return err_set(ERR_USAGE, "%s:%d: %.*s does not fit in 64 bits",
                       scan->path, scan->line, digits, first);
    if (!is_long && (number < INT_MIN || number > INT_MAX))
        return err_set(ERR_USAGE,
                       "%s:%d: a whole number of more than 32 bits needs the "
                       "suffix L: write %.*sL",
                       scan->path, scan->line, digits, first);
    return ERR_OK;
}

/* `next` stands on an @ that begins a line. */
static enum err settings_scan_include(struct settings_scan *scan)
{
    static const char word[] = "@include";
    const char *p = scan->next++;
    if (strncmp(p, word, sizeof word - 1) != 0)
        return ERR_OK;
    p += sizeof word - 1;
    p += strspn(p, " \t");
    if (*p != '"')
        return ERR_OK;
    size_t bytes = strcspn(p + 1, "\"\n");
    char name[FSIO_PATH_MAX];
    char path[FSIO_PATH_MAX];
    TRY(fsio_path(name, "%.*s", (int)bytes, p + 1));
    if (name[0] == '/')
        return err_set(ERR_USAGE,
                       "%s:%d: @include \"%s\": give a path relative to the "
                       "configuration file's folder %s",
                       scan->path, scan->line, name, scan->folder);
    TRY(fsio_path(path, "%s/%s", scan->folder, name));
    scan->next = p;
    struct stat st;
    const char *wrong = NULL;
    if (stat(path, &st) != 0)
        wrong = strerror(errno);
    else if (!S_ISREG(st.st_mode))
        wrong = S_ISDIR(st.st_mode) ? "is a folder" : "is not a regular file";
    if (wrong != NULL)
        return err_set(ERR_USAGE, "%s:%d: cannot include %s: %s", scan->path,
                       scan->line, path, wrong);
    if (scan->room->files-- <= 0)
        return err_set(ERR_USAGE, "%s:%d: more than %d includes", scan->path,
                       scan->line, SETTINGS_SCAN_FILES_MAX);
    return settings_scan_nested(path, scan->folder, scan->depth + 1,
                                scan->room);
}

static void settings_scan_name(struct settings_scan *scan)
{
    while (isalnum((unsigned char)*scan->next) ||
           (*scan->next != '\0' && strchr("-_*", *scan->next) != NULL))
        scan->next++;
}

/* `next` stands on an = or :. */
static enum err settings_scan_setting(struct settings_scan *scan)
{
    scan->next++;
    if (scan->room->settings-- > 0)
        return ERR_OK;
    return err_set(ERR_USAGE, "%s:%d: more than %d settings", scan->path,
                   scan->line, SETTINGS_SCAN_SETTINGS_MAX);
}

/* A character decides what begins with it; only an @ counts as an include where
 * it is the first on its line, as in libconfig's lexer. */
static enum err settings_scan_text(struct settings_scan *scan)
{
    bool line_start = true;
    while (*scan->next != '\0') {
        unsigned char c = (unsigned char)*scan->next;
        if (c == '\n') {
            scan->line++;
            scan->next++;
            line_start = true;
            continue;
        }
        if (c == ' ' || c == '\t') {
            scan->next++;
            continue;
        }
        if (c == '"')
            TRY(settings_scan_string(scan));
        else if (settings_scan_is_comment(scan->next))
            TRY(settings_scan_comment(scan));
        else if (c == '@' && line_start)
            TRY(settings_scan_include(scan));
        else if (isdigit(c) || ((c == '+' || c == '-') &&
                                isdigit((unsigned char)scan->next[1])))
            TRY(settings_scan_number(scan));
        else if (isalpha(c) || c == '*')
            settings_scan_name(scan);
        else if (c == '=' || c == ':')
            TRY(settings_scan_setting(scan));
        else
            scan->next++;
        line_start = false;
    }
    return ERR_OK;
}

enum err settings_scan_read(const char *path, size_t bytes_max, char **text,
                            size_t *bytes)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return err_set(ERR_USAGE, "configuration file %s: %s", path,
                       strerror(errno));
    if (!S_ISREG(st.st_mode))
        return err_set(
            ERR_USAGE, "configuration file %s: is %s", path,
            S_ISDIR(st.st_mode)
                ? "a folder, not a file; of a run take config.cfg in it"
                : "not a regular file");
    if (st.st_size > (off_t)bytes_max)
        return err_set(ERR_USAGE,
                       "configuration file %s: more than %zu KiB, included "
                       "files counted in",
                       path, SETTINGS_SCAN_BYTES_MAX >> 10);
    enum err rc = fsio_read_file(path, bytes_max, text, bytes);
    if (rc == ERR_OK || rc == ERR_MEMORY)
        return rc;
    return err_prefix(ERR_USAGE, "configuration file");
}

/* Also what looks like another format is told here, before libconfig can say "syntax
 * error" of it. */
static enum err settings_scan_nested(const char *path, const char *folder,
                                     int depth, struct settings_scan_room *room)
{
    enum err rc = ERR_OK;
    char *text = NULL;
    size_t bytes = 0;
    assert(depth >= 0 && room->settings >= 0 && room->files >= 0);
    if (depth > SETTINGS_SCAN_DEPTH_MAX)
        return ERR_OK;
    TRY_OUT(settings_scan_read(path, room->bytes, &text, &bytes));
    room->bytes -= bytes;
    int line = 1;
    const char *hint = settings_hint_format(text, bytes, &line);
    if (hint != NULL)
        TRY_OUT(err_set(ERR_USAGE, "%s:%d: %s", path, line, hint));
    struct settings_scan scan = { room, path, folder, text, 1, depth };
    TRY_OUT(settings_scan_text(&scan));
out:
    free(text);
    return rc;
}

enum err settings_scan_memory(const char *text, const char *place)
{
    struct settings_scan_room room = { 0, SETTINGS_SCAN_SETTINGS_MAX, 0 };
    struct settings_scan scan = { &room, place, "",
                                  text,  1,     SETTINGS_SCAN_DEPTH_MAX };
    return settings_scan_text(&scan);
}

enum err settings_scan_file(const char *path, const char *folder)
{
    struct settings_scan_room room = { SETTINGS_SCAN_BYTES_MAX,
                                       SETTINGS_SCAN_SETTINGS_MAX,
                                       SETTINGS_SCAN_FILES_MAX };
    return settings_scan_nested(path, folder, 0, &room);
}
