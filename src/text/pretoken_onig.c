/* From Oniguruma's Ruby syntax to PCRE2's. What both have alike is copied.
 *
 *   \s \S     the property White_Space; PCRE2 10.42 takes U+180E for one
 *   \p{L}     general categories alone: \p{Han} is another set in PCRE2
 *   {n,m}+    repeats there and does not give back here: refused
 *   (?m:)     lets a dot match line ends there and is of ^ and $ here: refused
 *   [a[b]&&c] sets of sets there: refused
 *   \w \b     have other characters: refused, and so is all else
 *   (?i:ss)   matches one character there, U+00DF: refused */
#include "src/text/pretoken_onig.h"

#include <stdbool.h>
#include <string.h>
#include <strings.h>

#define WHITE_SPACE                                                            \
    "\\x09-\\x0d\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}"      \
    "\\x{2029}\\x{202f}\\x{205f}\\x{3000}"

struct onig {
    const char *pattern, *at; /* the whole, and the rest */
    struct buffer *out;
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

/* \p{..} and \P{..}, from their backslash on. */
static enum err onig_property(struct onig *onig)
{
    static const char known[] =
        " L Lu Ll Lt Lm Lo M Mn Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po S Sm "
        "Sc Sk So Z Zs Zl Zp Cc ";
    char name[8] = " ";
    size_t length = 0;
    if (onig->at[2] != '{')
        return onig_refuse(onig, "a \\p without {");
    const char *in = onig->at + 3;
    while (length < 3 && in[length] != '}' && in[length] != '\0') {
        name[1 + length] = in[length];
        length++;
    }
    name[1 + length] = ' ';
    if (length == 0 || in[length] != '}' || strstr(known, name) == NULL)
        return onig_refuse(onig, "a property that is no general category");
    return onig_copy(onig, length + 4);
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
        TRY(onig_property(onig));
    } else if (c == 's' || c == 'S') {
        TRY(onig_put(onig, in_set     ? WHITE_SPACE
                           : c == 's' ? "[" WHITE_SPACE "]"
                                      : "[^" WHITE_SPACE "]"));
        onig->at += 2;
    } else {
        TRY(onig_copy(onig, 2));
    }
    if (in_set && class && onig->at[0] == '-' && onig->at[1] != ']')
        return onig_refuse(onig, "a range that begins with a class");
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
        TRY(*onig->at == '\\' ? onig_escape(onig, true) : onig_copy(onig, 1));
    }
    return onig_copy(onig, 1);
}

/* An opening parenthesis and what makes it a group of some kind. */
static enum err onig_group(struct onig *onig)
{
    static const char *const known[] = { "(?:", "(?i:", "(?=",
                                         "(?!", "(?<=", "(?<!" };
    for (size_t k = 0; k < sizeof known / sizeof known[0]; k++)
        if (strncmp(onig->at, known[k], strlen(known[k])) == 0)
            return onig_copy(onig, strlen(known[k]));
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

enum err pretoken_onig_translate(const char *pattern, struct buffer *out)
{
    struct onig onig = { .pattern = pattern, .at = pattern, .out = out };
    TRY(onig_folds(&onig));
    while (*onig.at != '\0') {
        switch (*onig.at) {
        case '\\':
            TRY(onig_escape(&onig, false));
            break;
        case '[':
            TRY(onig_set(&onig));
            break;
        case '(':
            TRY(onig_group(&onig));
            break;
        case '{':
            TRY(onig_count(&onig));
            break;
        case '.':
            return onig_refuse(&onig, "a dot");
        default:
            TRY(onig_copy(&onig, 1));
        }
    }
    return buffer_add(out, "", 1);
}
