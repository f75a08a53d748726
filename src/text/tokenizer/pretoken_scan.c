/* Scanners for the patterns that most files have.
 *
 * Four patterns divide nearly all texts, since most files were made with the
 * tokenizer of GPT-2, Llama 3, Qwen or GPT-4o. A scanner of each of them is
 * quicker than any engine. A pattern is tried at a place from its first
 * alternative to its last, and the first that matches wins; each alternative is
 * told apart by the class of one or two characters, so a scanner looks at these
 * and then runs through a row of one class. It is the automaton of the pattern,
 * written down by hand: no state is ever left for one before it, but for white
 * space, whose last character belongs to the word behind (scan_spaces()).
 *
 * A pattern that differs in one sign has no scanner and goes to PCRE2. */
#include "src/text/tokenizer/pretoken_scan.h"

#include <string.h>

/* The classes that patterns ask for; a character has one of them or none. */
#define KINDS (UNICODE_LETTER | UNICODE_NUMBER | UNICODE_SPACE)

static unsigned scan_of(const struct unicode *unicode, const uint8_t *text,
                        size_t i, size_t *length)
{
    return unicode->of[unicode_at(text + i, length)];
}

static unsigned scan_kind(const struct unicode *unicode, const uint8_t *text,
                          size_t i, size_t *length)
{
    return scan_of(unicode, text, i, length) & KINDS;
}

/* The end of the row of this kind that goes on at i. */
static size_t scan_row(const struct unicode *unicode, const uint8_t *text,
                       size_t bytes, size_t i, unsigned kind)
{
    size_t length = 0;
    while (i < bytes && scan_kind(unicode, text, i, &length) == kind)
        i += length;
    return i;
}

/* \p{N}{1,most} at the beginning. */
static size_t scan_numbers(const struct unicode *unicode, const uint8_t *text,
                           size_t bytes, int most)
{
    size_t i = 0, length = 0;
    while (i < bytes && most-- > 0 &&
           scan_kind(unicode, text, i, &length) == UNICODE_NUMBER)
        i += length;
    return i;
}

/* 's 't 're 've 'm 'll 'd in small letters; 0: it is none of them. */
static size_t scan_contraction(const uint8_t *text, size_t bytes)
{
    if (bytes < 2 || text[0] != '\'')
        return 0;
    switch (text[1]) {
    case 's':
    case 't':
    case 'm':
    case 'd':
        return 2;
    case 'r':
    case 'v':
        return bytes > 2 && text[2] == 'e' ? 3 : 0;
    case 'l':
        return bytes > 2 && text[2] == 'l' ? 3 : 0;
    default:
        return 0;
    }
}

/* ... in small and large letters, of which s has a third, U+017F. */
static size_t scan_contraction_any(const uint8_t *text, size_t bytes)
{
    uint8_t small[3] = { '\'' };
    if (bytes < 2 || text[0] != '\'')
        return 0;
    if (bytes > 2 && text[1] == 0xC5 && text[2] == 0xBF)
        return 3;
    size_t known = bytes < 3 ? bytes : 3;
    for (size_t i = 1; i < known; i++)
        small[i] = text[i] < 0x80 ? text[i] | 0x20 : 0;
    return scan_contraction(small, known);
}

/* \s+(?!\S)|\s+ at i: a row of white space leaves its last character to what
 * follows, unless it has no other. Several in a row of blanks are common. */
static size_t scan_spaces(const struct unicode *unicode, const uint8_t *text,
                          size_t bytes)
{
    size_t i = 0, last = 0, length = 0;
    while (i < bytes && scan_kind(unicode, text, i, &length) == UNICODE_SPACE) {
        last = i;
        i += length;
    }
    return i == bytes || last == 0 ? i : last;
}

/* 's|'t|..., then a blank or none before a row of letters, or of numbers, or of
 * what is neither: the class of its first character says which row it is. White
 * space comes last, where nothing else has taken a blank. */
size_t pretoken_scan_gpt2(const struct unicode *unicode, const uint8_t *text,
                          size_t bytes)
{
    size_t length = 0, next = 0;
    size_t contraction = scan_contraction(text, bytes);
    if (contraction > 0)
        return contraction;
    unsigned kind = scan_kind(unicode, text, 0, &length);
    if (text[0] == ' ' && bytes > 1)
        kind = scan_kind(unicode, text, 1, &next);
    return kind == UNICODE_SPACE
               ? scan_spaces(unicode, text, bytes)
               : scan_row(unicode, text, bytes, length + next, kind);
}

/* [\r\n]* from i on. */
static size_t scan_newlines(const uint8_t *text, size_t bytes, size_t i)
{
    while (i < bytes && (text[i] == '\r' || text[i] == '\n'))
        i++;
    return i;
}

/* \s*[\r\n]+|\s+(?!\S)|\s+ */
static size_t scan_lines(const struct unicode *unicode, const uint8_t *text,
                         size_t bytes)
{
    size_t i = 0, end = 0, length = 0;
    unsigned of = 0;
    while (i < bytes &&
           ((of = scan_of(unicode, text, i, &length)) & UNICODE_SPACE) != 0) {
        i += length;
        if ((of & UNICODE_NEWLINE) != 0)
            end = i;
    }
    return end > 0 ? end : scan_spaces(unicode, text, bytes);
}

/* From `length` on what follows a word's first character, of class `of`, that is
 * neither letter nor number:  ?[^\s\p{L}\p{N}]+ and newlines, or white space. */
static size_t scan_others(const struct unicode *unicode, const uint8_t *text,
                          size_t bytes, unsigned of, size_t length)
{
    size_t next = 0;
    if ((of & UNICODE_SPACE) == 0 || (text[0] == ' ' && bytes > 1 &&
                                      scan_kind(unicode, text, 1, &next) == 0))
        return scan_row(unicode, text, bytes, length + next, 0);
    return 0;
}

/* Any character but a line end or a number may stand before letters, not just a
 * blank; numbers are taken one or three at a time; line ends behind other signs
 * belong to these, and white space up to the last line end is one word. */
static inline size_t scan_llama3(const struct unicode *unicode,
                                 const uint8_t *text, size_t bytes, int digits)
{
    size_t length = 0, next = 0;
    size_t contraction = scan_contraction_any(text, bytes);
    if (contraction > 0)
        return contraction;
    unsigned of = scan_of(unicode, text, 0, &length);
    if ((of & UNICODE_NUMBER) != 0)
        return scan_numbers(unicode, text, bytes, digits);
    bool letters = (of & UNICODE_LETTER) != 0;
    if (!letters && (of & UNICODE_NEWLINE) == 0 && length < bytes)
        letters = scan_kind(unicode, text, length, &next) == UNICODE_LETTER;
    if (letters)
        return scan_row(unicode, text, bytes, length, UNICODE_LETTER);
    size_t others = scan_others(unicode, text, bytes, of, length);
    return others > 0 ? scan_newlines(text, bytes, others)
                      : scan_lines(unicode, text, bytes);
}

static size_t scan_llama3_3(const struct unicode *unicode, const uint8_t *text,
                            size_t bytes)
{
    return scan_llama3(unicode, text, bytes, 3);
}

static size_t scan_llama3_1(const struct unicode *unicode, const uint8_t *text,
                            size_t bytes)
{
    return scan_llama3(unicode, text, bytes, 1);
}

/* The end of the row of characters with this bit that goes on at i. */
static size_t scan_case(const struct unicode *unicode, const uint8_t *text,
                        size_t bytes, size_t i, unsigned bit)
{
    size_t length = 0;
    while (i < bytes && (scan_of(unicode, text, i, &length) & bit) != 0)
        i += length;
    return i;
}

/* [upper]*[lower]+ from i on, 0 if there is none; *upper: the end of [upper]*,
 * which leaves a character to the second half if nothing else is there. Marks
 * and letters without case are both. */
static size_t scan_cases(const struct unicode *unicode, const uint8_t *text,
                         size_t bytes, size_t i, size_t *upper)
{
    size_t length = 0, both = 0;
    while (i < bytes) {
        unsigned of = scan_of(unicode, text, i, &length);
        if ((of & UNICODE_UPPER) == 0)
            break;
        i += length;
        if ((of & UNICODE_LOWER) != 0)
            both = i;
    }
    *upper = i;
    size_t end = scan_case(unicode, text, bytes, i, UNICODE_LOWER);
    return end > i ? end : both;
}

/* GPT-4o's words: an optional character that is neither letter nor number, large
 * letters, small letters, a contraction. 0: there is none here. */
static size_t scan_cased_word(const struct unicode *unicode,
                              const uint8_t *text, size_t bytes, unsigned of,
                              size_t length)
{
    size_t upper = 0, end = 0;
    bool prefix =
        (of & (UNICODE_NEWLINE | UNICODE_LETTER | UNICODE_NUMBER)) == 0;
    size_t from = prefix ? length : 0;
    end = scan_cases(unicode, text, bytes, from, &upper);
    size_t large = upper > from ? upper : 0;
    if (end == 0 && prefix && (of & UNICODE_LOWER) != 0) /* a mark alone */
        end = scan_cases(unicode, text, bytes, 0, &upper);
    if (end == 0)
        end = large;
    return end == 0 ? 0 : end + scan_contraction_any(text + end, bytes - end);
}

static size_t scan_gpt4o(const struct unicode *unicode, const uint8_t *text,
                         size_t bytes)
{
    size_t length = 0;
    unsigned of = scan_of(unicode, text, 0, &length);
    if ((of & UNICODE_NUMBER) != 0)
        return scan_numbers(unicode, text, bytes, 3);
    size_t end = scan_cased_word(unicode, text, bytes, of, length);
    if (end > 0)
        return end;
    end = scan_others(unicode, text, bytes, of, length);
    if (end == 0)
        return scan_lines(unicode, text, bytes);
    while (end < bytes &&
           (text[end] == '\r' || text[end] == '\n' || text[end] == '/'))
        end++;
    return end;
}

size_t pretoken_scan_digit(const struct unicode *unicode, const uint8_t *text,
                           size_t bytes)
{
    size_t length = 0;
    if (scan_kind(unicode, text, 0, &length) == UNICODE_NUMBER)
        return length;
    size_t i = length;
    while (i < bytes && scan_kind(unicode, text, i, &length) != UNICODE_NUMBER)
        i += length;
    return i;
}

size_t pretoken_scan_digits(const struct unicode *unicode, const uint8_t *text,
                            size_t bytes)
{
    size_t length = 0;
    if (scan_kind(unicode, text, 0, &length) == UNICODE_NUMBER)
        return scan_row(unicode, text, bytes, length, UNICODE_NUMBER);
    return pretoken_scan_digit(unicode, text, bytes);
}

pretoken_scan_fn *pretoken_scan_find(const char *pattern)
{
    static const struct {
        const char *pattern;
        pretoken_scan_fn *scan;
    } known[] = {
        { "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+"
          "|\\s+(?!\\S)|\\s+",
          pretoken_scan_gpt2 },
        { "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
          "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+"
          "|\\s+(?!\\S)|\\s+",
          scan_llama3_3 },
        { "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
          "|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+"
          "|\\s+(?!\\S)|\\s+",
          scan_llama3_1 },
        { "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*"
          "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
          "|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+"
          "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
          "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+"
          "|\\s+(?!\\S)|\\s+",
          scan_gpt4o },
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(pattern, known[i].pattern) == 0)
            return known[i].scan;
    return NULL;
}

unsigned pretoken_scan_breaks(pretoken_scan_fn *scan)
{
    if (scan == pretoken_scan_digit || scan == pretoken_scan_digits)
        return 0;
    return scan == pretoken_scan_gpt2
               ? PRETOKEN_SCAN_SPACES | PRETOKEN_SCAN_ALL_SPACES
               : PRETOKEN_SCAN_SPACES | PRETOKEN_SCAN_LINES;
}
