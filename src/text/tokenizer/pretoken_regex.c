/* Regular expressions, by PCRE2 with its just-in-time compiler.
 *
 * Patterns of files are strangers' programs, and backtracking can take a time
 * that doubles with each character: (a+)+b on a row of a's. PCRE2 can limit the
 * steps of a match, but a text has many matches, so time is limited as well,
 * the thread's own and not the clock's, or a busy machine would refuse what an
 * idle one takes. Patterns are compiled (JIT). Where the machine has no such
 * compiler, or its small stack does not do, the interpreter gives the same. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "src/text/tokenizer/pretoken_regex.h"

#include <assert.h>
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "src/base/new.h"

/* --- stand-ins for characters, numbered by category and then by interval ---
 *
 * A pattern asks of a character only in which category it is, or whether it is
 * one of those that the pattern names. So a text can be replaced, before it is
 * matched, by one in which all characters that no pattern tells apart are the
 * same stand-in: then PCRE2 needs to know no category, and the version of
 * Unicode is that of our table. A stand-in takes as many bytes of UTF-8 as what
 * it stands for, or places in both texts would differ; that is why each length
 * has a range of its own. U+0085, U+017F and U+212A stay, as \s and (?i:) know
 * them. */

/* By bytes of UTF-8: where its characters end and where its stand-ins begin. */
static const struct {
    uint32_t end, base;
} classes_zone[] = { [2] = { 0x800, 0x590 },
                     [3] = { 0x10000, 0xE000 },
                     [4] = { UNICODE_COUNT, 0xF0000 } };

static const uint32_t classes_kept[] = { 0x85, 0x17F, 0x212A };
#define KEPT (sizeof classes_kept / sizeof *classes_kept)

static enum err classes_bound(struct pretoken_classes *classes, uint32_t first)
{
    uint32_t at = 0;
    if (classes->count == 0)
        classes->first[classes->count++] = 0x80;
    while (at < classes->count && classes->first[at] < first)
        at++;
    if (first <= 0x80 || first >= UNICODE_COUNT ||
        (at < classes->count && classes->first[at] == first))
        return ERR_OK;
    if (classes->count == PRETOKEN_CLASSES_INTERVALS)
        return err_set(ERR_DATA, "names too many characters beyond ASCII");
    memmove(classes->first + at + 1, classes->first + at,
            (classes->count - at) * sizeof *classes->first);
    classes->first[at] = first;
    classes->count++;
    return ERR_OK;
}

enum err pretoken_classes_divide(struct pretoken_classes *classes, uint32_t low,
                                 uint32_t high)
{
    TRY(classes_bound(classes, low));
    return classes_bound(classes, high + 1);
}

static enum err classes_range(uint32_t low, uint32_t high, struct buffer *out)
{
    char text[32];
    int bytes = snprintf(text, sizeof text, "\\x{%x}-\\x{%x}", low, high);
    return buffer_add(out, text, (size_t)bytes);
}

enum err pretoken_classes_put(const struct pretoken_classes *classes,
                              const struct unicode *unicode,
                              uint32_t categories, struct buffer *out)
{
    assert(classes->count > 0);
    uint32_t end = 0;
    for (uint32_t p = 0; p < 0x80; p = end) {
        uint32_t in = categories >> unicode->category[p] & 1;
        for (end = p + 1; end < 0x80; end++)
            if ((categories >> unicode->category[end] & 1) != in)
                break;
        if (in != 0)
            TRY(classes_range(p, end - 1, out));
    }
    for (size_t k = 0; k < KEPT; k++)
        if ((categories >> unicode->category[classes_kept[k]] & 1) != 0)
            TRY(classes_range(classes_kept[k], classes_kept[k], out));
    for (uint32_t c = 0; c < UNICODE_CATEGORIES; c = end) {
        end = c + 1;
        if ((categories >> c & 1) == 0)
            continue;
        while (end < UNICODE_CATEGORIES && (categories >> end & 1) != 0)
            end++;
        for (int z = 2; z <= 4; z++)
            TRY(classes_range(classes_zone[z].base + c * classes->count,
                              classes_zone[z].base + end * classes->count - 1,
                              out));
    }
    return ERR_OK;
}

static uint32_t classes_interval(const struct pretoken_classes *classes,
                                 uint32_t point)
{
    uint32_t at = 1;
    while (at < classes->count && classes->first[at] <= point)
        at++;
    return at - 1;
}

enum err pretoken_classes_put_range(const struct pretoken_classes *classes,
                                    uint32_t low, uint32_t high,
                                    struct buffer *out)
{
    uint32_t from = classes_interval(classes, low);
    uint32_t to = classes_interval(classes, high);
    for (size_t k = 0; k < KEPT; k++)
        if (classes_kept[k] >= low && classes_kept[k] <= high)
            TRY(classes_range(classes_kept[k], classes_kept[k], out));
    for (int z = 2; z <= 4; z++)
        for (uint32_t c = 0; c < UNICODE_CATEGORIES; c++)
            if (low < classes_zone[z].end &&
                (z == 2 || high >= classes_zone[z - 1].end)) {
                uint32_t base = classes_zone[z].base + c * classes->count;
                TRY(classes_range(base + from, base + to, out));
            }
    return ERR_OK;
}

/* The text with stand-ins, in place of what is in `out`. */
static enum err classes_map(const struct pretoken_classes *classes,
                            const struct unicode *unicode, const uint8_t *text,
                            size_t bytes, struct buffer *out)
{
    out->bytes = 0;
    TRY(buffer_reserve(out, bytes));
    for (size_t i = 0, length = 0; i < bytes; i += length) {
        uint32_t point = unicode_at(text + i, &length);
        if (length == 1) {
            out->data[i] = (uint8_t)point;
            continue;
        }
        if (point != classes_kept[0] && point != classes_kept[1] &&
            point != classes_kept[2])
            point = classes_zone[length].base +
                    unicode->category[point] * classes->count +
                    classes_interval(classes, point);
        unicode_put(point, out->data + i);
    }
    out->bytes = bytes;
    return ERR_OK;
}

/* Whether all of the text is ASCII. */
static bool classes_ascii(const uint8_t *text, size_t bytes)
{
    uint64_t all = 0, eight = 0;
    size_t i = 0;
    for (; i + sizeof eight <= bytes; i += sizeof eight) {
        memcpy(&eight, text + i, sizeof eight);
        all |= eight;
    }
    for (; i < bytes; i++)
        all |= (uint64_t)text[i] << 56 | text[i];
    return (all & 0x8080808080808080) == 0;
}

/* Steps of one match, and seconds of processor time for one text, 20 us a byte
 * beyond. Ordinary patterns take a ten-thousandth of it. */
#define REGEX_STEPS 10000000
#define REGEX_SECONDS 10.0
#define REGEX_SECONDS_PER_BYTE 20e-6
#define REGEX_CLOCK_EVERY 256 /* matches between two looks at the clock */

struct pretoken_regex {
    pcre2_code *code;
    char *pattern;
    const struct unicode *unicode;
    struct pretoken_classes classes;
};

/* Compile regex->pattern. */
static enum err regex_compile(struct pretoken_regex *regex, bool literal,
                              const char *text)
{
    int code = 0;
    PCRE2_SIZE at = 0;
    /* ^ and $ are of lines in Oniguruma's Ruby syntax */
    uint32_t options =
        literal ? PCRE2_UTF | PCRE2_LITERAL : PCRE2_UTF | PCRE2_MULTILINE;
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (context == NULL)
        return err_set(ERR_MEMORY, "no memory for a pattern");
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    regex->code =
        pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED,
                      options | PCRE2_NO_UTF_CHECK, &code, &at, context);
    pcre2_compile_context_free(context);
    if (regex->code == NULL) {
        char reason[128] = "";
        pcre2_get_error_message(code, (PCRE2_UCHAR *)reason, sizeof reason);
        return err_set(code == PCRE2_ERROR_HEAP_FAILED ? ERR_MEMORY : ERR_DATA,
                       "the pattern '%s': %s", regex->pattern, reason);
    }
    /* without it (another processor) matching is slower and else the same */
    (void)pcre2_jit_compile(regex->code, PCRE2_JIT_COMPLETE);
    return ERR_OK;
}

enum err pretoken_regex_create(const struct unicode *unicode,
                               const char *pattern, bool literal,
                               struct pretoken_regex **out)
{
    assert(unicode != NULL && pattern != NULL && out != NULL);
    enum err rc = ERR_OK;
    struct buffer text = { 0 };
    struct pretoken_regex *regex = NULL;
    TRY(new_zeroed(&regex, 1));
    regex->unicode = unicode;
    TRY_OUT(new_text(&regex->pattern, pattern));
    TRY_OUT(literal ? buffer_add(&text, pattern, strlen(pattern) + 1)
                    : pretoken_onig_translate(unicode, pattern, &regex->classes,
                                              &text));
    TRY_OUT(regex_compile(regex, literal, (const char *)text.data));
out:
    buffer_free(&text);
    return new_or_none(rc, regex, out, pretoken_regex_destroy);
}

void pretoken_regex_destroy(struct pretoken_regex *regex)
{
    if (regex == NULL)
        return;
    pcre2_code_free(regex->code);
    free(regex->pattern);
    free(regex);
}

static enum err pretoken_regex_add(struct pretoken_spans *spans, size_t start,
                                   size_t end, bool match)
{
    TRY(array_room(&spans->span, &spans->capacity, spans->count + 1));
    spans->span[spans->count++] =
        (struct pretoken_span){ .start = start, .end = end, .match = match };
    return ERR_OK;
}

static double regex_seconds(void)
{
    struct timespec now = { 0 };
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* What searches through texts need, and the time of the present one. */
struct pretoken_search {
    pcre2_match_data *data;
    pcre2_match_context *context;
    struct buffer mapped; /* the text with stand-ins */
    double begun;
    size_t matches;
};

static enum err regex_search_create(struct pretoken_search **out)
{
    struct pretoken_search *search = calloc(1, sizeof *search);
    *out = search;
    if (search != NULL) {
        search->data = pcre2_match_data_create(1, NULL);
        search->context = pcre2_match_context_create(NULL);
    }
    if (search == NULL || search->data == NULL || search->context == NULL)
        return err_set(ERR_MEMORY, "no memory to match a pattern");
    pcre2_set_match_limit(search->context, REGEX_STEPS);
    return ERR_OK;
}

void pretoken_regex_free(struct pretoken_spans *spans)
{
    if (spans->search != NULL) {
        pcre2_match_context_free(spans->search->context);
        pcre2_match_data_free(spans->search->data);
        buffer_free(&spans->search->mapped);
    }
    free(spans->search);
    free(spans->span);
    *spans = (struct pretoken_spans){ 0 };
}

/* The next match at or behind `from`; *found false: there is none. */
static enum err regex_next(const struct pretoken_regex *regex,
                           struct pretoken_search *search, const uint8_t *text,
                           size_t bytes, size_t from, bool *found)
{
    int code = pcre2_match(regex->code, text, bytes, from, PCRE2_NO_UTF_CHECK,
                           search->data, search->context);
    if (code == PCRE2_ERROR_JIT_STACKLIMIT) /* its stack is small */
        code = pcre2_match(regex->code, text, bytes, from,
                           PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, search->data,
                           search->context);
    bool slow =
        code == PCRE2_ERROR_MATCHLIMIT || code == PCRE2_ERROR_DEPTHLIMIT ||
        code == PCRE2_ERROR_JIT_STACKLIMIT || code == PCRE2_ERROR_HEAPLIMIT;
    /* most texts have so few that the clock would take as long as they do */
    if (++search->matches == REGEX_CLOCK_EVERY)
        search->begun = regex_seconds();
    else if (search->matches % REGEX_CLOCK_EVERY == 0)
        slow =
            slow || regex_seconds() - search->begun >
                        REGEX_SECONDS + REGEX_SECONDS_PER_BYTE * (double)bytes;
    if (slow)
        return err_set(ERR_DATA,
                       "the pattern '%s' takes too long at byte %zu of a text "
                       "of %zu",
                       regex->pattern, from, bytes);
    if (code < 0 && code != PCRE2_ERROR_NOMATCH)
        return err_set(ERR_INTERNAL, "the pattern '%s': PCRE2 fails with %d",
                       regex->pattern, code);
    *found = code >= 0;
    return ERR_OK;
}

/* Matches and what is between them, in order, so that together they are the
 * text. A pattern can match nothing, as \s* does; directly behind a match that
 * is no new one, and the search goes on a character further, as Oniguruma's and
 * Python's do. */
enum err pretoken_regex_split(const struct pretoken_regex *regex,
                              const uint8_t *text, size_t bytes,
                              struct pretoken_spans *spans)
{
    assert(regex != NULL && spans != NULL);
    size_t from = 0, end = 0;
    bool found = false, any = false;
    if (spans->search == NULL) {
        enum err rc = regex_search_create(&spans->search);
        if (rc != ERR_OK) {
            pretoken_regex_free(spans);
            return rc;
        }
    }
    spans->search->matches = 0;
    if (regex->classes.count > 0 && !classes_ascii(text, bytes)) {
        struct buffer *mapped = &spans->search->mapped;
        TRY(classes_map(&regex->classes, regex->unicode, text, bytes, mapped));
        text = mapped->data;
    }
    while (from <= bytes) {
        TRY(regex_next(regex, spans->search, text, bytes, from, &found));
        if (!found)
            break;
        const PCRE2_SIZE *at = pcre2_get_ovector_pointer(spans->search->data);
        if (at[0] == at[1] && any && at[1] == end) {
            /* an empty one right behind the last: on by a character */
            size_t length = 1;
            if (from < bytes)
                unicode_at(text + from, &length);
            from += length;
            continue;
        }
        if (at[0] > end)
            TRY(pretoken_regex_add(spans, end, at[0], false));
        TRY(pretoken_regex_add(spans, at[0], at[1], true));
        from = end = at[1];
        any = true;
    }
    return end < bytes ? pretoken_regex_add(spans, end, bytes, false) : ERR_OK;
}
