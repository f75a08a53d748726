/* Divides a template into words. The source is copied once; words point into
 * the copy, strings are unescaped in their own place, which never grows them.
 *
 * A template is text in which brackets begin a program, so there are two ways
 * to read. Outside, everything up to the next {{, {% or {# is one word. Inside,
 * white space divides names, numbers, strings and signs, up to the bracket that
 * closes; "}}" closes nothing while a dictionary is open, as in {{ {'a': {}}
 * }}, which is why braces are counted.
 *
 * White space is most of what differs between two templates that look alike,
 * and each blank of it is a token that the model sees. Jinja's rules, with the
 * settings of the Hugging Face library: a line end behind a block or comment
 * goes away (trim_blocks), and so do blanks that a block or comment has before
 * it on its line (lstrip_blocks); "-" beside a bracket takes all white space on
 * that side, "+" keeps what these settings would take
 * (https://jinja.palletsprojects.com/templates/#whitespace-control). All of it
 * is done here, where both sides of a bracket are known, and what follows sees
 * text that stays as it is. */
#include "src/text/chat/chat_lex.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/array.h"
#include "src/base/new.h"
#include "src/text/unicode.h"

struct chat_lex_place {
    struct chat_lex *lex;
    char *at, *end;
    int line;
    bool line_begins; /* what was read last ended a line */
};

static enum err chat_lex_add(struct chat_lex_place *place,
                             enum chat_lex_kind kind, const char *text,
                             size_t bytes)
{
    struct chat_lex *lex = place->lex;
    TRY(array_room(&lex->word, &lex->capacity, lex->count + 1));
    lex->word[lex->count++] =
        (struct chat_lex_word){ kind, place->line, text, bytes, 0 };
    return ERR_OK;
}

static void chat_lex_skip(struct chat_lex_place *place, size_t bytes)
{
    assert(bytes <= (size_t)(place->end - place->at));
    for (size_t i = 0; i < bytes; i++)
        place->line += place->at[i] == '\n';
    if (bytes > 0)
        place->line_begins = place->at[bytes - 1] == '\n';
    place->at += bytes;
}

static size_t chat_lex_left(const struct chat_lex_place *place)
{
    return (size_t)(place->end - place->at);
}

static bool chat_lex_sees(const struct chat_lex_place *place, const char *text)
{
    size_t bytes = strlen(text);
    return chat_lex_left(place) >= bytes && memcmp(place->at, text, bytes) == 0;
}

/* A backslash and what follows, written to `to`; returns what it took. */
static enum err chat_lex_escape(int line, const char *from, size_t bytes,
                                char **to, size_t *took)
{
    static const char names[] = "ntr\\'\"abfv";
    static const char values[] = "\n\t\r\\'\"\a\b\f\v";
    const char *name =
        bytes > 1 && from[1] != '\0' ? strchr(names, from[1]) : NULL;
    *took = 2;
    if (name != NULL) {
        *(*to)++ = values[name - names];
        return ERR_OK;
    }
    size_t digits = bytes > 1 && from[1] == 'x'   ? 2
                    : bytes > 1 && from[1] == 'u' ? 4
                                                  : 0;
    unsigned point = 0;
    for (size_t d = 0; d < digits; d++) {
        int digit = bytes > 2 + d ? unicode_hex(from[2 + d]) : -1;
        if (digit < 0)
            return err_set(ERR_DATA, "line %d: a string has a broken \\%c",
                           line, from[1]);
        point = point << 4 | (unsigned)digit;
    }
    if (digits == 0 && bytes > 1 && strchr("NU01234567", from[1]) == NULL) {
        *(*to)++ = '\\'; /* stands for itself before anything else */
        *took = 1;
        return ERR_OK;
    }
    if (digits == 0)
        return err_set(ERR_DATA, "line %d: a string has \\%c, not known here",
                       line, bytes > 1 ? from[1] : ' ');
    if (point == 0 || (point >= 0xd800 && point < 0xe000))
        return err_set(ERR_DATA, "line %d: a string has the character U+%04X",
                       line, point);
    *to += unicode_put(point, (uint8_t *)*to);
    *took = 2 + digits;
    return ERR_OK;
}

static enum err chat_lex_string(struct chat_lex_place *place)
{
    char quote = *place->at;
    char *begin = place->at + 1, *end = begin, *to = begin;
    int line = place->line;
    while (end < place->end && *end != quote)
        end += *end == '\\' && place->end - end > 1 ? 2 : 1;
    if (end >= place->end)
        return err_set(ERR_DATA, "line %d: a string that does not end", line);
    chat_lex_skip(place, (size_t)(end + 1 - place->at));
    for (char *from = begin; from < end;) {
        size_t took = 1;
        if (*from != '\\')
            *to++ = *from;
        else
            TRY(chat_lex_escape(line, from, (size_t)(end - from), &to, &took));
        from += took;
    }
    TRY(chat_lex_add(place, CHAT_LEX_STRING, begin, (size_t)(to - begin)));
    place->lex->word[place->lex->count - 1].line = line;
    return ERR_OK;
}

static bool chat_lex_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/* A whole number. What goes on as 1.5, 1e3 or 0x1f do is read as one word, too,
 * so that it can be refused as what it is, and only if it is ever evaluated. */
static enum err chat_lex_number(struct chat_lex_place *place)
{
    int64_t value = 0;
    size_t bytes = 0;
    while (bytes < chat_lex_left(place) && place->at[bytes] >= '0' &&
           place->at[bytes] <= '9') {
        int64_t digit = place->at[bytes++] - '0';
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, digit, &value))
            return err_set(ERR_DATA, "line %d: a number that is too large",
                           place->line);
    }
    enum chat_lex_kind kind = CHAT_LEX_INTEGER;
    while (bytes < chat_lex_left(place) &&
           (chat_lex_letter(place->at[bytes]) ||
            (bytes + 1 < chat_lex_left(place) &&
             unicode_hex(place->at[bytes + (place->at[bytes] == '.')]) >= 0))) {
        kind = CHAT_LEX_REAL;
        bytes++;
    }
    TRY(chat_lex_add(place, kind, place->at, bytes));
    place->lex->word[place->lex->count - 1].value = value;
    chat_lex_skip(place, bytes);
    return ERR_OK;
}

/* The longer signs are in front, or "//" would be found as two of "/". */
static enum err chat_lex_sign(struct chat_lex_place *place)
{
    static const char *const signs[] = {
        "==", "!=", "<=", ">=", "//", "**", "+", "-", "*", "/", "%", "~", "|",
        ".",  ",",  ":",  "(",  ")",  "[",  "]", "=", "<", ">", "{", "}"
    };
    for (size_t s = 0; s < sizeof signs / sizeof *signs; s++)
        if (chat_lex_sees(place, signs[s])) {
            size_t bytes = strlen(signs[s]);
            TRY(chat_lex_add(place, CHAT_LEX_SIGN, place->at, bytes));
            chat_lex_skip(place, bytes);
            return ERR_OK;
        }
    return err_set(ERR_DATA, "line %d: no character for a template: '%.1s'",
                   place->line,
                   (unsigned char)*place->at < 0x80 ? place->at : "?");
}

/* What follows a closing bracket is laid out by its mark. */
static void chat_lex_after(struct chat_lex_place *place, char mark, bool block)
{
    if (mark == '-')
        chat_lex_skip(place,
                      unicode_blank_front(place->at, chat_lex_left(place)));
    else if (block && mark != '+' && chat_lex_left(place) > 0 &&
             *place->at == '\n')
        chat_lex_skip(place, 1);
}

/* Words up to the closing bracket and with it. */
static enum err chat_lex_inside(struct chat_lex_place *place, bool block)
{
    const char *close = block ? "%}" : "}}";
    int line = place->line;
    for (size_t braces = 0;;) { /* of dictionaries, which are open */
        chat_lex_skip(place,
                      unicode_blank_front(place->at, chat_lex_left(place)));
        if (chat_lex_left(place) == 0)
            return err_set(ERR_DATA, "line %d: '%s' is not closed", line,
                           block ? "{%" : "{{");
        char mark = *place->at;
        size_t skip = mark == '-' || mark == '+' ? 1 : 0;
        if (braces == 0 && chat_lex_left(place) >= skip + 2 &&
            memcmp(place->at + skip, close, 2) == 0) {
            chat_lex_skip(place, skip + 2);
            TRY(chat_lex_add(
                place, block ? CHAT_LEX_BLOCK_CLOSE : CHAT_LEX_PRINT_CLOSE,
                close, 2));
            chat_lex_after(place, mark, block);
            return ERR_OK;
        }
        if (mark == '\'' || mark == '"') {
            TRY(chat_lex_string(place));
        } else if (mark >= '0' && mark <= '9') {
            TRY(chat_lex_number(place));
        } else if (chat_lex_letter(mark)) {
            size_t bytes = 1;
            while (bytes < chat_lex_left(place) &&
                   (chat_lex_letter(place->at[bytes]) ||
                    (place->at[bytes] >= '0' && place->at[bytes] <= '9')))
                bytes++;
            TRY(chat_lex_add(place, CHAT_LEX_NAME, place->at, bytes));
            chat_lex_skip(place, bytes);
        } else {
            TRY(chat_lex_sign(place));
            braces += mark == '{';
            braces -= mark == '}' && braces > 0;
        }
    }
}

/* The text before a bracket, or up to the end. What the bracket takes away of
 * it is left out here. Blanks before a block go away only where they are all
 * that its line has so far; the line may have begun before this text, behind
 * another bracket, which `line_begins` remembers. */
static enum err chat_lex_data(struct chat_lex_place *place)
{
    char *text = place->at;
    bool line_begins = place->line_begins;
    size_t bytes = 0, all = chat_lex_left(place);
    while (bytes < all && !(text[bytes] == '{' && bytes + 1 < all &&
                            (text[bytes + 1] == '{' || text[bytes + 1] == '%' ||
                             text[bytes + 1] == '#')))
        bytes++;
    size_t keep = bytes;
    char mark = bytes + 2 < all ? text[bytes + 2] : '\0';
    if (bytes < all && mark == '-') {
        keep -= unicode_blank_back(text, bytes);
    } else if (bytes < all && mark != '+' && text[bytes + 1] != '{') {
        size_t first = bytes;
        while (first > 0 && text[first - 1] != '\n')
            first--;
        if ((first > 0 || line_begins) &&
            unicode_blank_front(text + first, bytes - first) == bytes - first)
            keep = first;
    }
    if (keep > 0)
        TRY(chat_lex_add(place, CHAT_LEX_DATA, text, keep));
    chat_lex_skip(place, bytes);
    return ERR_OK;
}

static enum err chat_lex_comment(struct chat_lex_place *place)
{
    int line = place->line;
    chat_lex_skip(place, 2);
    while (chat_lex_left(place) > 0 && !chat_lex_sees(place, "#}"))
        chat_lex_skip(place, 1);
    if (chat_lex_left(place) == 0)
        return err_set(ERR_DATA, "line %d: '{#' is not closed", line);
    char mark = place->at[-1];
    chat_lex_skip(place, 2);
    chat_lex_after(place, mark, true);
    return ERR_OK;
}

static enum err chat_lex_all(struct chat_lex_place *place)
{
    while (chat_lex_left(place) > 0) {
        TRY(chat_lex_data(place));
        if (chat_lex_left(place) == 0)
            break;
        if (chat_lex_sees(place, "{#")) {
            TRY(chat_lex_comment(place));
            continue;
        }
        bool block = chat_lex_sees(place, "{%");
        TRY(chat_lex_add(place, block ? CHAT_LEX_BLOCK : CHAT_LEX_PRINT,
                         place->at, 2));
        chat_lex_skip(place, 2);
        if (chat_lex_left(place) > 0 &&
            (*place->at == '-' || *place->at == '+'))
            chat_lex_skip(place, 1);
        TRY(chat_lex_inside(place, block));
    }
    return chat_lex_add(place, CHAT_LEX_END, place->end, 0);
}

/* Line ends of all systems become \n, and one at the end of a file goes away,
 * as editors put it there: both as in Jinja. */
enum err chat_lex_read(const char *text, size_t bytes, struct chat_lex *out)
{
    assert((text != NULL || bytes == 0) && out != NULL);
    if (bytes > CHAT_LEX_BYTES_MAX)
        return err_set(ERR_DATA, "%zu bytes are too many for a template",
                       bytes);
    *out = (struct chat_lex){ 0 };
    TRY(new_room(&out->source, bytes + 1));
    char *to = out->source;
    for (size_t i = 0; i < bytes; i++)
        if (text[i] != '\r')
            *to++ = text[i];
        else if (i + 1 == bytes || text[i + 1] != '\n')
            *to++ = '\n';
    if (to > out->source && to[-1] == '\n')
        to--;
    *to = '\0';
    struct chat_lex_place place = { out, out->source, to, 1, true };
    enum err rc = chat_lex_all(&place);
    if (rc != ERR_OK)
        chat_lex_release(out);
    return rc;
}

void chat_lex_release(struct chat_lex *lex)
{
    free(lex->word);
    free(lex->source);
    *lex = (struct chat_lex){ 0 };
}

bool chat_lex_is(const struct chat_lex_word *word, enum chat_lex_kind kind,
                 const char *text)
{
    return word->kind == kind && word->bytes == strlen(text) &&
           memcmp(word->text, text, word->bytes) == 0;
}
