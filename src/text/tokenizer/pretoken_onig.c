/* From Oniguruma's Ruby syntax to PCRE2's. What both have alike is copied.
 *
 *   \s \S     the property White_Space; PCRE2 10.42 takes U+180E for one
 *   \p{L} \d  general categories alone, by stand-ins (pretoken_regex.h)
 *   {n,m}+    repeats there and does not give back here: refused
 *   (?m:)     lets a dot match line ends there and is of ^ and $ here: refused
 *   [a[b]&&c] sets of sets there: refused
 *   \w \b     have other characters: refused, and so is all else
 *   (?i:ss)   matches one character there, U+00DF: refused, and so are
 *             categories, and beside them characters beyond ASCII
 *
 * This does not parse a pattern as a regular expression: it goes from left to
 * right over the signs, of which each is known to mean the same and is copied,
 * or known to mean something else and is said in another way, or is refused. A
 * pattern that is refused costs its user a question; one that is misread costs
 * a training run, whose tokens nobody else's tokenizer makes. */
#include "src/text/tokenizer/pretoken_regex.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>
#include <strings.h>

#define WHITE_SPACE                                                            \
    "\\x09-\\x0d\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}"      \
    "\\x{2029}\\x{202f}\\x{205f}\\x{3000}"

/* What of it no category of blanks has */
#define CONTROL_SPACE "\\x09-\\x0d\\x{85}"
#define BLANKS (1u << UNICODE_ZS | 1u << UNICODE_ZL | 1u << UNICODE_ZP)
#define ALL_CATEGORIES ((1u << UNICODE_CATEGORIES) - 1)

struct onig {
    const char *pattern, *at; /* the whole, and the rest */
    const struct unicode *unicode;
    struct pretoken_classes *classes;
    struct buffer *out;
    int depth, caseless; /* of groups; of the one that is (?i:, or 0 */
    bool first;          /* classes are divided, what is written is left */
};

static enum err onig_refuse(const struct onig *onig, const char *what)
{
    return err_set(ERR_DATA,
                   "the pattern '%s' has %s at byte %td, which is not known to "
                   "mean the same here",
                   onig->pattern, what, onig->at - onig->pattern);
}

static enum err onig_put(struct onig *onig, const char *text)
{
    return buffer_add(onig->out, text, strlen(text));
}

static enum err onig_copy(struct onig *onig, size_t bytes)
{
    TRY(buffer_add(onig->out, onig->at, bytes));
    onig->at += bytes;
    return ERR_OK;
}

/* A set of categories, or part of one. */
static enum err onig_categories(struct onig *onig, uint32_t categories,
                                bool in_set)
{
    if (onig->caseless > 0)
        return onig_refuse(onig, "a category where case does not matter");
    TRY(onig_put(onig, in_set ? "" : "["));
    TRY(pretoken_classes_put(onig->classes, onig->unicode, categories,
                             onig->out));
    return onig_put(onig, in_set ? "" : "]");
}

/* \p{..} and \P{..}, from their backslash on. */
static enum err onig_property(struct onig *onig, bool in_set)
{
    static const char known[] = "LuLlLtLmLoMnMcMeNdNlNoPcPdPsPePiPfPo"
                                "SmScSkSoZsZlZpCc";
    const char *name = onig->at + 3;
    uint32_t categories = 0;
    if (onig->at[2] != '{')
        return onig_refuse(onig, "a \\p without {");
    size_t length = strcspn(name, "}");
    for (uint32_t c = 0; known[2 * c] != '\0'; c++)
        if ((length == 2 && memcmp(name, known + 2 * c, 2) == 0) ||
            (length == 1 && *name == known[2 * c] && *name != 'C'))
            categories |= 1u << c;
    if (name[length] != '}' || categories == 0)
        return onig_refuse(onig, "a property that is no general category");
    if (onig->at[1] == 'P')
        categories ^= ALL_CATEGORIES;
    TRY(onig_categories(onig, categories, in_set));
    onig->at = name + length + 1;
    return ERR_OK;
}

/* A character beyond ASCII, or a range that ends with one, of a pattern that
 * asks for categories. */
static enum err onig_far(struct onig *onig, bool in_set)
{
    size_t length = 0;
    const uint8_t *at = (const uint8_t *)onig->at;
    uint32_t low = unicode_at(at, &length), high = low;
    at += length;
    if (in_set && at[0] == '-' && at[1] >= 0x80) {
        high = unicode_at(at + 1, &length);
        at += 1 + length;
    }
    if (onig->caseless > 0)
        return onig_refuse(onig, "a character where case does not matter");
    if (high < low || (in_set && at[0] == '-' && at[1] != ']'))
        return onig_refuse(onig, "a range that is none");
    if (low < 0x80) {
        TRY(onig_copy(onig, 1));
        TRY(onig_put(onig, "-\\x7f"));
        low = 0x80;
    }
    if (onig->first &&
        pretoken_classes_divide(onig->classes, low, high) != ERR_OK)
        return onig_refuse(onig, "too many characters beyond ASCII");
    TRY(onig_put(onig, in_set ? "" : "["));
    TRY(pretoken_classes_put_range(onig->classes, low, high, onig->out));
    onig->at = (const char *)at;
    return onig_put(onig, in_set ? "" : "]");
}

/* A character as it is. */
static enum err onig_plain(struct onig *onig, bool in_set)
{
    const uint8_t *at = (const uint8_t *)onig->at;
    bool far = at[0] >= 0x80 || (in_set && at[1] == '-' && at[2] >= 0x80);
    return far && onig->classes->count > 0 ? onig_far(onig, in_set)
                                           : onig_copy(onig, 1);
}

static enum err onig_blanks(struct onig *onig, bool in_set)
{
    bool none = onig->at[1] == 'S';
    onig->at += 2;
    TRY(onig_put(onig, in_set ? "" : none ? "[^" : "["));
    TRY(onig_put(onig, onig->classes->count > 0 ? CONTROL_SPACE : WHITE_SPACE));
    if (onig->classes->count > 0)
        TRY(pretoken_classes_put(onig->classes, onig->unicode, BLANKS,
                                 onig->out));
    return onig_put(onig, in_set ? "" : "]");
}

/* From a backslash on. in_set: between brackets. */
static enum err onig_escape(struct onig *onig, bool in_set)
{
    char c = onig->at[1];
    bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                  (c >= '0' && c <= '9') || (unsigned char)c >= 0x80;
    bool class = c != '\0' && strchr("sSdDpP", c) != NULL;
    if (c == '\0')
        return onig_refuse(onig, "a \\ that is the last character");
    if (letter && !class && strchr("rntf", c) == NULL)
        return onig_refuse(onig, "a \\ before this character");
    if (c == 'S' && in_set)
        return onig_refuse(onig, "a \\S between brackets");
    if (c == 'p' || c == 'P') {
        TRY(onig_property(onig, in_set));
    } else if (c == 'd' || c == 'D') {
        uint32_t digits = 1u << UNICODE_ND;
        TRY(onig_categories(onig, c == 'd' ? digits : digits ^ ALL_CATEGORIES,
                            in_set));
        onig->at += 2;
    } else if (c == 's' || c == 'S') {
        TRY(onig_blanks(onig, in_set));
    } else {
        TRY(onig_copy(onig, 2));
    }
    if (in_set && onig->at[0] == '-' && onig->at[1] != ']' &&
        (class || (unsigned char)onig->at[1] >= 0x80))
        return onig_refuse(onig, "a range that begins with a \\");
    return ERR_OK;
}

/* A set, from its bracket on. */
static enum err onig_set(struct onig *onig)
{
    TRY(onig_copy(onig, onig->at[1] == '^' ? 2 : 1));
    if (*onig->at == ']')
        return onig_refuse(onig, "a set that begins with ]");
    while (*onig->at != ']') {
        if (*onig->at == '\0')
            return onig_refuse(onig, "a set without end");
        if (*onig->at == '[' || (onig->at[0] == '&' && onig->at[1] == '&'))
            return onig_refuse(onig, "a set in a set");
        TRY(*onig->at == '\\' ? onig_escape(onig, true)
                              : onig_plain(onig, true));
    }
    return onig_copy(onig, 1);
}

/* An opening parenthesis and what makes it a group of some kind. */
static enum err onig_group(struct onig *onig)
{
    static const char *const known[] = { "(?:", "(?i:", "(?=",
                                         "(?!", "(?<=", "(?<!" };
    onig->depth++;
    for (size_t k = 0; k < sizeof known / sizeof known[0]; k++)
        if (strncmp(onig->at, known[k], strlen(known[k])) == 0) {
            if (known[k][2] == 'i' && onig->caseless == 0)
                onig->caseless = onig->depth;
            return onig_copy(onig, strlen(known[k]));
        }
    return onig->at[1] == '?' || onig->at[1] == '*'
               ? onig_refuse(onig, "a group of this kind")
               : onig_copy(onig, 1);
}

/* {N}, {N,}, {N,M} */
static enum err onig_count(struct onig *onig)
{
    const char *at = onig->at + 1;
    size_t digits = strspn(at, "0123456789"), length = digits;
    if (digits > 0 && at[length] == ',')
        length += 1 + strspn(at + length + 1, "0123456789");
    if (digits == 0 || at[length] != '}')
        return onig_refuse(onig, "a { that begins no count");
    if (at[length + 1] == '+' || at[length + 1] == '?')
        return onig_refuse(onig, "a count with + or ? behind it");
    return onig_copy(onig, length + 2);
}

/* Letters that are one character together when case does not matter. */
static enum err onig_folds(const struct onig *onig)
{
    static const char *const pairs[] = { "ss", "st", "ff", "fi", "fl" };
    if (strstr(onig->pattern, "(?i") == NULL)
        return ERR_OK;
    for (size_t p = 0; p < sizeof pairs / sizeof pairs[0]; p++)
        for (const char *at = onig->pattern; *at != '\0'; at++)
            if (strncasecmp(at, pairs[p], 2) == 0)
                return onig_refuse(onig, "(?i: and letters of a ligature");
    return ERR_OK;
}

static bool onig_asks(const char *pattern)
{
    for (const char *at = strchr(pattern, '\\'); at != NULL && at[1] != '\0';
         at = strchr(at + 2, '\\'))
        if (strchr("pPdD", at[1]) != NULL)
            return true;
    return false;
}

static enum err onig_all(struct onig *onig)
{
    while (*onig->at != '\0') {
        switch (*onig->at) {
        case '\\':
            TRY(onig_escape(onig, false));
            break;
        case '[':
            TRY(onig_set(onig));
            break;
        case '(':
            TRY(onig_group(onig));
            break;
        case ')':
            if (onig->depth-- == onig->caseless)
                onig->caseless = 0;
            TRY(onig_copy(onig, 1));
            break;
        case '{':
            TRY(onig_count(onig));
            break;
        case '.':
            return onig_refuse(onig, "a dot");
        default:
            TRY(onig_plain(onig, false));
        }
    }
    return buffer_add(onig->out, "", 1);
}

enum err pretoken_onig_translate(const struct unicode *unicode,
                                 const char *pattern,
                                 struct pretoken_classes *classes,
                                 struct buffer *out)
{
    assert(unicode != NULL && classes != NULL && out != NULL);
    size_t begin = out->bytes;
    struct onig onig = { .pattern = pattern,
                         .at = pattern,
                         .unicode = unicode,
                         .classes = classes,
                         .out = out };
    TRY(onig_folds(&onig));
    if (onig_asks(pattern)) {
        struct onig first = onig;
        first.first = true;
        TRY(pretoken_classes_divide(classes, 0x80, UNICODE_COUNT - 1));
        TRY(onig_all(&first));
        out->bytes = begin;
    }
    return onig_all(&onig);
}
