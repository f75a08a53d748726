/* Reads YAML, TOML and JSON as pairs. It is what configurations need of them, in
 * fewer lines than calls of three libraries take: one function reads values, flow and
 * thus all of JSON; the lines around them are YAML's or TOML's. What is left out
 * (anchors, tags, texts over lines) is refused by its line, never guessed at. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/array.h"
#include "src/base/fsio.h"
#include "src/base/new.h"
#include "src/convert/foreign.h"

#define FOREIGN_BYTES_MAX (256 << 10)
#define FOREIGN_PAIRS_MAX 2048
#define FOREIGN_DEPTH 32
#define UNREAD "anchors, tags and texts over lines are not read: write them out"

struct reader {
    struct foreign_file *file;
    const char *at, *start; /* start: of the line */
    int line;
    char key[FOREIGN_TEXT_BYTES];
    char text[FOREIGN_TEXT_BYTES]; /* the last name or value */
    bool open;                     /* YAML: the last key has no value yet */
    int depth;
    struct level {
        int indent, items; /* items: -1 in a map */
        size_t bytes;      /* of the key of what it is in */
    } levels[FOREIGN_DEPTH + 1];
};

static enum err bad(const struct reader *r, const char *what)
{
    return err_set(ERR_USAGE, "%s:%d: %s", r->file->path, r->line, what);
}

struct foreign_pair *foreign_find(const struct foreign_file *file,
                                  const char *key)
{
    for (size_t i = 0; i < file->count; i++)
        if (strcmp(file->pairs[i].key, key) == 0)
            return &file->pairs[i];
    return NULL;
}

static enum err add(struct reader *r, const char *value)
{
    struct foreign_file *file = r->file;
    if (foreign_find(file, r->key) != NULL)
        return bad(r, "the key is there twice");
    if (file->count == FOREIGN_PAIRS_MAX)
        return bad(r, "more than 2048 values");
    TRY(array_room(&file->pairs, &file->capacity, file->count + 1));
    struct foreign_pair *pair = &file->pairs[file->count++];
    *pair = (struct foreign_pair){ .line = r->line };
    TRY(new_text(&pair->key, r->key));
    return new_text(&pair->value, value);
}

static bool at_end_of_line(struct reader *r)
{
    r->at += strspn(r->at, " \t\r");
    if (*r->at == '#')
        r->at += strcspn(r->at, "\n");
    return *r->at == '\n' || *r->at == '\0';
}

/* To the next thing, on this line or another. */
static void skip_lines(struct reader *r)
{
    while (at_end_of_line(r) && *r->at != '\0') {
        r->start = ++r->at;
        r->line++;
    }
}

/* A text in quotes, or up to one of `stop`; escapes but of quotes stay. */
static enum err read_text(struct reader *r, const char *stop)
{
    size_t bytes = 0, end = 0;
    char quote = *r->at == '"' || *r->at == '\'' ? *r->at++ : '\0';
    bool inside = false; /* of ${key} */
    for (; *r->at != '\0' && *r->at != '\n' && *r->at != quote; r->at++) {
        if (!quote && !inside &&
            (strchr(stop, *r->at) != NULL ||
             (*r->at == '#' && r->at[-1] == ' ')))
            break;
        inside = inside ? *r->at != '}' : r->at[0] == '$' && r->at[1] == '{';
        if (!quote && r->at[0] == ':' && isspace((unsigned char)r->at[1]))
            return bad(r, "a key where a value is read: quotes are missing");
        if (quote == '"' && *r->at == '\\' &&
            (r->at[1] == '"' || r->at[1] == '\\'))
            r->at++;
        if (bytes + 1 == sizeof r->text)
            return bad(r, "a text of more than 1023 bytes");
        r->text[bytes++] = *r->at;
        end = quote || !isspace((unsigned char)*r->at) ? bytes : end;
    }
    r->text[end] = '\0';
    if (quote && *r->at++ != quote)
        return bad(r, "the text does not end on its line");
    if (quote && *r->at == quote)
        return bad(r, "quotes within quotes, or three of them, are not read");
    return ERR_OK;
}

/* A name of letters, digits and -_./ or in quotes, and what is behind it. */
static enum err read_name(struct reader *r, size_t bytes, const char *behind)
{
    r->at += strspn(r->at, " \t");
    size_t length = strspn(r->at, "abcdefghijklmnopqrstuvwxyz-_./0123456789"
                                  "ABCDEFGHIJKLMNOPQRSTUVWXYZ");
    snprintf(r->text, sizeof r->text, "%.*s", (int)length, r->at);
    if (length == 0 && (*r->at == '"' || *r->at == '\''))
        TRY(read_text(r, ""));
    else
        r->at += length;
    r->at += strspn(r->at, " \t");
    if (r->text[0] == '\0' || *r->at == '\0' || strchr(behind, *r->at) == NULL)
        return bad(r, "no key with its : or =; " UNREAD);
    r->at++;
    int n = snprintf(r->key + bytes, sizeof r->key - bytes, "%s%s",
                     bytes > 0 ? "." : "", r->text);
    return n < (int)(sizeof r->key - bytes) ? ERR_OK : bad(r, "long keys");
}

/* What stands at r->at is the value of r->key, which is as before afterwards. */
static enum err read_value(struct reader *r, const char *stop, int depth)
{
    size_t bytes = strlen(r->key);
    char end = *r->at == '[' ? ']' : '}';
    if (*r->at != '[' && *r->at != '{') {
        bool plain = *r->at != '"' && *r->at != '\'';
        if (strchr("&*!|>%@`?", *r->at) != NULL && *r->at != '\0')
            return bad(r, UNREAD);
        TRY(read_text(r, stop));
        bool null = plain &&
                    (strcmp(r->text, "null") == 0 || strcmp(r->text, "~") == 0);
        return add(r, null ? "" : r->text);
    }
    if (depth == FOREIGN_DEPTH)
        return bad(r, "nested more than 32 deep");
    r->at++;
    for (int i = 0;; i++) {
        skip_lines(r);
        if (*r->at == end && i == 0 && bytes > 0)
            TRY(add(r, end == ']' ? "[]" : "{}"));
        if (*r->at == end)
            break;
        if (end == '}')
            TRY(read_name(r, bytes, ":="));
        else
            snprintf(r->key + bytes, sizeof r->key - bytes, ".%d", i);
        skip_lines(r);
        TRY(read_value(r, ",]}", depth + 1));
        r->key[bytes] = '\0';
        skip_lines(r);
        if (*r->at != ',' && *r->at != end)
            return bad(r, "no , or end of a list or map where one has to be");
        r->at += *r->at == ',';
    }
    r->at++;
    return ERR_OK;
}

/* --- lines of YAML and TOML --- */

static bool is_item(const char *at)
{
    return at[0] == '-' && (at[1] == '\0' || isspace((unsigned char)at[1]));
}

static enum err push(struct reader *r, int indent)
{
    if (r->depth == FOREIGN_DEPTH)
        return bad(r, "nested more than 32 deep");
    r->levels[++r->depth] = (struct level){ .indent = indent,
                                            .items = is_item(r->at) ? 0 : -1,
                                            .bytes = strlen(r->key) };
    return ERR_OK;
}

/* The level that a line of this indent is of. */
static enum err find_level(struct reader *r, int indent)
{
    struct level *level = &r->levels[r->depth];
    bool item = is_item(r->at), open = r->open;
    r->open = false;
    if (open && (indent > level->indent ||
                 (indent == level->indent && item && level->items < 0)))
        return push(r, indent);
    if (open)
        TRY(add(r, ""));
    if (indent > level->indent)
        return bad(r, "indented below a key that has its value");
    while (r->depth > 0 &&
           (level->indent > indent ||
            (level->indent == indent && !item && level->items >= 0)))
        level = &r->levels[--r->depth];
    if (level->indent != indent || item != (level->items >= 0))
        return bad(r, "indented as no line above it of its kind");
    return ERR_OK;
}

static enum err read_yaml_line(struct reader *r)
{
    if (memchr(r->start, '\t', (size_t)(r->at - r->start)) != NULL)
        return bad(r, "indented by a tab: YAML takes blanks alone");
    if (strncmp(r->at, "---", 3) == 0 && r->file->count == 0) {
        r->at += 3;
        return ERR_OK;
    }
    TRY(find_level(r, (int)(r->at - r->start)));
    for (bool more = true; more;) {
        struct level *level = &r->levels[r->depth];
        r->key[level->bytes] = '\0';
        more = level->items >= 0;
        if (more) {
            r->at++;
            snprintf(r->key + level->bytes, sizeof r->key - level->bytes, ".%d",
                     level->items++);
        } else {
            TRY(read_name(r, level->bytes, ":"));
        }
        r->open = at_end_of_line(r);
        struct reader ahead = *r;
        more = more && !r->open &&
               (is_item(r->at) ||
                (read_name(&ahead, 0, ":") == ERR_OK &&
                 (*ahead.at == '\0' || isspace((unsigned char)*ahead.at))));
        if (more)
            TRY(push(r, (int)(r->at - r->start)));
    }
    return r->open ? ERR_OK : read_value(r, "", 0);
}

static enum err read_toml_line(struct reader *r)
{
    if (r->at[0] == '[' && r->at[1] == '[')
        return bad(r, "arrays of tables ([[...]]) are not read");
    if (*r->at == '[') {
        r->at++;
        TRY(read_name(r, 0, "]"));
        r->levels[0].bytes = strlen(r->key);
        return ERR_OK;
    }
    TRY(read_name(r, r->levels[0].bytes, "="));
    return at_end_of_line(r) ? bad(r, "no value") : read_value(r, "", 0);
}

enum err foreign_read(const char *path, struct foreign_file *out)
{
    enum err rc = ERR_OK;
    char *text = NULL;
    struct reader *r = NULL;
    size_t bytes = 0;
    *out = (struct foreign_file){ .path = path };
    TRY_OUT(fsio_read_file(path, FOREIGN_BYTES_MAX, &text, &bytes));
    TRY_OUT(new_zeroed(&r, 1));
    *r = (struct reader){ .file = out, .line = 1 };
    r->at = r->start = text + (strncmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0);
    r->levels[0].items = -1;
    for (size_t i = 0; i < bytes; r->line += text[i++] == '\n')
        if ((unsigned char)text[i] < ' ' && !isspace((unsigned char)text[i]))
            TRY_OUT(bad(r, "a control character or NUL: this is no text"));
    r->line = 1;
    skip_lines(r);
    struct reader ahead = *r;
    bool toml = *r->at == '[' || read_name(&ahead, 0, "=") == ERR_OK;
    bool json = *r->at == '{';
    while (*r->at != '\0') {
        TRY_OUT(json   ? read_value(r, "", 0)
                : toml ? read_toml_line(r)
                       : read_yaml_line(r));
        if (!at_end_of_line(r))
            TRY_OUT(bad(r, "more than key and value"));
        skip_lines(r);
        if (json && *r->at != '\0')
            TRY_OUT(bad(r, "something behind the object"));
    }
    if (r->open)
        TRY_OUT(add(r, ""));
out:
    free(text);
    free(r);
    if (rc != ERR_OK)
        foreign_free(out);
    return rc;
}

void foreign_free(struct foreign_file *file)
{
    for (size_t i = 0; i < file->count; i++) {
        free(file->pairs[i].key);
        free(file->pairs[i].value);
    }
    free(file->pairs);
    *file = (struct foreign_file){ .pairs = NULL };
}
