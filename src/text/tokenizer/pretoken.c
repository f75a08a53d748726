/* The steps of a pre-tokenizer.
 *
 * Merges do not go across words, and what a word is says the pre-tokenizer.
 * There are two reasons to have one. Without it merges learn whole phrases of
 * much used text and "dog." and "dog!" beside "dog" (that is what GPT-2's
 * authors saw, and why its pattern divides letters, numbers and other signs).
 * And a text as one word would be one long search for merges, of which nothing
 * can be remembered, where most words come again and their tokens are looked
 * up.
 *
 * A blank goes with the word behind it, so that words within a text are one
 * token with their blank. Steps follow one another, each dividing what the one
 * before gave: first digits are taken apart, then the rest by a pattern. They
 * are walked by recursion and not by lists of all words, so that a word reaches
 * the encoder while it is in the cache; a pattern lists those of one part. */
#include "src/text/tokenizer/pretoken.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/array.h"
#include "src/base/new.h"
#include "src/text/tokenizer/pretoken_regex.h"

#define PRETOKEN_STEPS_MAX 16

/* Blanks become marks. */
struct pretoken_metaspace {
    uint8_t mark[4];
    size_t bytes; /* of the mark; 0: this is no such step */
    enum pretoken_prepend prepend;
    bool split;
};

/* Where a pattern begins a word whatever comes before and behind. */
enum pretoken_break {
    /* nowhere, and what another step has for one word may be cut there */
    PRETOKEN_BREAK_DIGITS = 1,
    /* at a blank behind anything but white space, and at other white space
     * behind a letter or number */
    PRETOKEN_BREAK_SPACES = 2,
    /* at white space behind anything else, too */
    PRETOKEN_BREAK_ALL_SPACES = 4,
    /* behind line ends that follow what is no letter, number, white space */
    PRETOKEN_BREAK_LINES = 8
};

/* Either `regex` or `metaspace`, or none: a blank is put in front. */
struct pretoken_step {
    struct pretoken_regex *regex;
    unsigned breaks; /* of a pattern that is known; 0: of another */
    struct pretoken_metaspace metaspace;
    enum pretoken_behavior behavior;
    bool invert;
};

struct pretoken {
    struct pretoken_step step[PRETOKEN_STEPS_MAX];
    int steps;
};

struct pretoken_work {
    struct pretoken_spans spans[PRETOKEN_STEPS_MAX];
    struct buffer prefixed, marked;
};

enum err pretoken_create(struct pretoken **out)
{
    assert(out != NULL);
    return new_zeroed(out, 1);
}

void pretoken_destroy(struct pretoken *pretoken)
{
    if (pretoken == NULL)
        return;
    for (int i = 0; i < pretoken->steps; i++)
        pretoken_regex_destroy(pretoken->step[i].regex);
    free(pretoken);
}

static enum err pretoken_add(struct pretoken *pretoken,
                             const struct pretoken_step *step)
{
    if (pretoken->steps == PRETOKEN_STEPS_MAX)
        return err_set(ERR_DATA, "more than %d steps", PRETOKEN_STEPS_MAX);
    pretoken->step[pretoken->steps++] = *step;
    return ERR_OK;
}

enum err pretoken_add_prefix(struct pretoken *pretoken)
{
    return pretoken_add(pretoken, &(struct pretoken_step){ .regex = NULL });
}

enum pretoken_prepend pretoken_prepends(const struct pretoken *pretoken)
{
    enum pretoken_prepend prepend = PRETOKEN_NEVER;
    for (int i = 0; i < pretoken->steps; i++)
        if (pretoken->step[i].metaspace.bytes > 0)
            prepend = pretoken->step[i].metaspace.prepend;
    return prepend;
}

bool pretoken_only_metaspace(const struct pretoken *pretoken)
{
    return pretoken->steps == 0 ||
           (pretoken->steps == 1 && pretoken->step[0].metaspace.bytes > 0);
}

enum err pretoken_add_metaspace(struct pretoken *pretoken, const char *mark,
                                enum pretoken_prepend prepend, bool split)
{
    assert(mark != NULL && prepend <= PRETOKEN_ALWAYS);
    struct pretoken_step step = { .metaspace = { .prepend = prepend,
                                                 .split = split } };
    size_t length = 0, bytes = strlen(mark);
    if (bytes > 0)
        unicode_at((const uint8_t *)mark, &length);
    if (bytes == 0 || length != bytes)
        return err_set(ERR_DATA, "'%s' is not one character", mark);
    for (int i = 0; i < pretoken->steps; i++)
        if (pretoken->step[i].metaspace.bytes > 0)
            return err_set(ERR_DATA, "a second Metaspace");
    memcpy(step.metaspace.mark, mark, bytes);
    step.metaspace.bytes = bytes;
    return pretoken_add(pretoken, &step);
}

/* Four patterns divide nearly all texts, since most files were made with the
 * tokenizer of GPT-2, Llama 3, Qwen or GPT-4o. */
static unsigned pretoken_known(const char *pattern)
{
    static const unsigned lines = PRETOKEN_BREAK_SPACES | PRETOKEN_BREAK_LINES;
    static const struct {
        const char *pattern;
        unsigned breaks;
    } known[] = {
        { PRETOKEN_DIGIT, PRETOKEN_BREAK_DIGITS },
        { PRETOKEN_DIGITS, PRETOKEN_BREAK_DIGITS },
        { PRETOKEN_GPT2, PRETOKEN_BREAK_SPACES | PRETOKEN_BREAK_ALL_SPACES },
        { "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
          "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+"
          "|\\s+(?!\\S)|\\s+",
          lines },
        { "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
          "|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+"
          "|\\s+(?!\\S)|\\s+",
          lines },
        { "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*"
          "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
          "|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+"
          "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
          "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+"
          "|\\s+(?!\\S)|\\s+",
          lines },
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(pattern, known[i].pattern) == 0)
            return known[i].breaks;
    return 0;
}

enum err pretoken_add_split(struct pretoken *pretoken,
                            const struct unicode *unicode, const char *pattern,
                            bool literal, enum pretoken_behavior behavior,
                            bool invert)
{
    assert(pattern != NULL && behavior <= PRETOKEN_CONTIGUOUS);
    struct pretoken_step step = { .behavior = behavior, .invert = invert };
    if (*pattern == '\0')
        return err_set(ERR_DATA, "the pattern is empty");
    /* these match everything, so that there is nothing between matches */
    bool each = behavior == PRETOKEN_ISOLATED ||
                (behavior == PRETOKEN_REMOVED && invert);
    step.breaks = each && !literal ? pretoken_known(pattern) : 0;
    TRY(pretoken_regex_create(unicode, pattern, literal, &step.regex));
    enum err rc = pretoken_add(pretoken, &step);
    if (rc != ERR_OK)
        pretoken_regex_destroy(step.regex);
    return rc;
}

enum err pretoken_work_create(struct pretoken_work **out)
{
    assert(out != NULL);
    return new_zeroed(out, 1);
}

void pretoken_work_destroy(struct pretoken_work *work)
{
    if (work == NULL)
        return;
    for (int i = 0; i < PRETOKEN_STEPS_MAX; i++)
        pretoken_regex_free(&work->spans[i]);
    buffer_free(&work->prefixed);
    buffer_free(&work->marked);
    free(work);
}

/* Whether the span is joined with the one before it in the order of walking,
 * which is backwards where matches join what follows them. */
static bool pretoken_joins(enum pretoken_behavior behavior, bool match,
                           bool before)
{
    return behavior == PRETOKEN_CONTIGUOUS ? match == before : match && !before;
}

/* Spans of matches become spans of words, in place: a match is a word by itself
 * (Isolated), no word (Removed), or the end of the word before it or the
 * beginning of the next. The last is the same rule as the one before it, from
 * right to left. */
static void pretoken_join(struct pretoken_spans *spans,
                          enum pretoken_behavior behavior)
{
    struct pretoken_span *span = spans->span;
    size_t count = spans->count, kept = 0;
    bool back = behavior == PRETOKEN_MERGED_WITH_NEXT, before = false;
    if (behavior == PRETOKEN_ISOLATED || count == 0)
        return;
    if (behavior == PRETOKEN_REMOVED) {
        for (size_t i = 0; i < count; i++)
            if (!span[i].match)
                span[kept++] = span[i];
        spans->count = kept;
        return;
    }
    for (size_t k = 0; k < count; k++) {
        size_t i = back ? count - 1 - k : k;
        bool match = span[i].match;
        if (kept > 0 && pretoken_joins(behavior, match, before)) {
            struct pretoken_span *last = &span[back ? count - kept : kept - 1];
            last->start = back ? span[i].start : last->start;
            last->end = back ? last->end : span[i].end;
        } else {
            kept++;
            span[back ? count - kept : kept - 1] = span[i];
        }
        before = match;
    }
    if (back)
        memmove(span, span + count - kept, kept * sizeof *span);
    spans->count = kept;
}

/* One division, from the step `at` on. */
struct pretoken_walk {
    const struct pretoken *pretoken;
    const struct unicode *unicode;
    struct pretoken_work *work;
    enum pretoken_place place;
    const uint8_t *text; /* where all of it begins */
    pretoken_word_fn *word;
    void *arg;
};

static enum err pretoken_part(const struct pretoken_walk *walk, int at,
                              const uint8_t *text, size_t bytes);

static enum err pretoken_prefix(const struct pretoken_walk *walk, int at,
                                const uint8_t *text, size_t bytes)
{
    struct buffer *prefixed = &walk->work->prefixed;
    if (text[0] == ' ')
        return pretoken_part(walk, at + 1, text, bytes);
    prefixed->bytes = 0;
    TRY(buffer_add(prefixed, " ", 1));
    TRY(buffer_add(prefixed, text, bytes));
    return pretoken_part(walk, at + 1, prefixed->data, prefixed->bytes);
}

static bool pretoken_marked(const struct pretoken_metaspace *metaspace,
                            const uint8_t *text, size_t bytes)
{
    return bytes >= metaspace->bytes &&
           memcmp(text, metaspace->mark, metaspace->bytes) == 0;
}

/* SentencePiece's way: a blank is a mark and begins a word, which takes in all
 * up to the next mark. What is in front depends on where the part stands: the
 * first of a text, behind an added token, or the rest of a text that was cut.
 */
static enum err pretoken_metaspace(const struct pretoken_walk *walk, int at,
                                   const uint8_t *text, size_t bytes)
{
    const struct pretoken_metaspace *metaspace =
        &walk->pretoken->step[at].metaspace;
    struct buffer *out = &walk->work->marked;
    enum pretoken_place place =
        text == walk->text ? walk->place : PRETOKEN_LATER;
    bool prepend = metaspace->prepend == PRETOKEN_ALWAYS
                       ? place != PRETOKEN_INSIDE
                       : metaspace->prepend == PRETOKEN_FIRST_ONLY &&
                             place == PRETOKEN_FIRST;
    out->bytes = 0;
    TRY(buffer_reserve(out, metaspace->bytes * (bytes + 1)));
    if (prepend && text[0] != ' ' && !pretoken_marked(metaspace, text, bytes))
        TRY(buffer_add(out, metaspace->mark, metaspace->bytes));
    for (size_t i = 0, end = 0; i < bytes; i = end) {
        bool blank = text[i] == ' ';
        for (end = i + 1; !blank && end < bytes && text[end] != ' ';)
            end++;
        TRY(buffer_add(out, blank ? metaspace->mark : text + i,
                       blank ? metaspace->bytes : end - i));
    }
    if (!metaspace->split)
        return pretoken_part(walk, at + 1, out->data, out->bytes);
    for (size_t i = 0, end = 0; i < out->bytes; i = end) {
        for (end = i + 1;
             end < out->bytes &&
             !pretoken_marked(metaspace, out->data + end, out->bytes - end);)
            end++;
        TRY(pretoken_part(walk, at + 1, out->data + i, end - i));
    }
    return ERR_OK;
}

static enum err pretoken_listed(const struct pretoken_walk *walk, int at,
                                const uint8_t *text, size_t bytes)
{
    const struct pretoken_step *step = &walk->pretoken->step[at];
    struct pretoken_spans *spans = &walk->work->spans[at];
    spans->count = 0;
    TRY(pretoken_regex_split(step->regex, text, bytes, spans));
    for (size_t i = 0; i < spans->count; i++)
        spans->span[i].match = spans->span[i].match != step->invert;
    pretoken_join(spans, step->behavior);
    for (size_t i = 0; i < spans->count; i++) {
        const struct pretoken_span *span = &spans->span[i];
        if (span->end > span->start)
            TRY(pretoken_part(walk, at + 1, text + span->start,
                              span->end - span->start));
    }
    return ERR_OK;
}

static enum err pretoken_part(const struct pretoken_walk *walk, int at,
                              const uint8_t *text, size_t bytes)
{
    if (at == walk->pretoken->steps)
        return walk->word(walk->arg, text, bytes);
    const struct pretoken_step *step = &walk->pretoken->step[at];
    if (step->regex != NULL)
        return pretoken_listed(walk, at, text, bytes);
    if (step->metaspace.bytes > 0)
        return pretoken_metaspace(walk, at, text, bytes);
    return pretoken_prefix(walk, at, text, bytes);
}

enum err pretoken_run(const struct pretoken *pretoken,
                      const struct unicode *unicode, struct pretoken_work *work,
                      enum pretoken_place place, const uint8_t *text,
                      size_t bytes, pretoken_word_fn *word, void *arg)
{
    assert(place <= PRETOKEN_INSIDE && word != NULL);
    struct pretoken_walk walk = { .pretoken = pretoken,
                                  .unicode = unicode,
                                  .work = work,
                                  .place = place,
                                  .text = text,
                                  .word = word,
                                  .arg = arg };
    return bytes > 0 ? pretoken_part(&walk, 0, text, bytes) : ERR_OK;
}

/* Where all steps begin a word that do not only look for digits; 0: nowhere.
 * *prefix: what does not begin with a blank is given one. */
static unsigned pretoken_breaks(const struct pretoken *pretoken, bool *prefix)
{
    unsigned all = 0;
    *prefix = false;
    for (int i = 0; i < pretoken->steps; i++) {
        const struct pretoken_step *step = &pretoken->step[i];
        if (step->metaspace.bytes > 0 ||
            (step->regex != NULL && step->breaks == 0))
            return 0;
        *prefix = *prefix || step->regex == NULL;
        if (step->breaks > PRETOKEN_BREAK_DIGITS)
            all = all == 0 ? step->breaks : all & step->breaks;
    }
    return all;
}

/* Whether line ends lie before `cut`, and what takes them into its word before
 * them: no letter, number, white space or mark. GPT-4o's words go on at '/'. */
static bool pretoken_behind_lines(const struct unicode *unicode,
                                  const uint8_t *text, size_t cut)
{
    size_t i = cut;
    while (i > 0 && (text[i - 1] == '\n' || text[i - 1] == '\r'))
        i--;
    return i > 0 && i < cut && text[cut] != '\n' && text[cut] != '\r' &&
           text[cut] != '/' &&
           (unicode->of[unicode_before(text, i)] &
            (UNICODE_LETTER | UNICODE_NUMBER | UNICODE_SPACE | UNICODE_MARK)) ==
               0;
}

/* A text that is too long to be held at once is encoded in parts, whose tokens
 * have to be those of the whole. A cut has to be a place where a word begins
 * whatever the parts are, which a pattern's form tells: where it begins a word
 * at a blank behind a letter, what is before the letter and behind the blank
 * says nothing. Files with patterns that are not known by heart have no such
 * place. */
bool pretoken_cuts(const struct pretoken *pretoken,
                   const struct unicode *unicode, const uint8_t *text,
                   size_t cut)
{
    bool prefix = false;
    unsigned breaks = pretoken_breaks(pretoken, &prefix);
    bool space = text[cut] < 0x80 && (unicode->of[text[cut]] & UNICODE_SPACE);
    unsigned before = unicode->of[unicode_before(text, cut)];
    if (breaks == 0 || (prefix && text[cut] != ' '))
        return false;
    if (!space || (before & UNICODE_SPACE) != 0)
        return (breaks & PRETOKEN_BREAK_LINES) != 0 &&
               pretoken_behind_lines(unicode, text, cut);
    if (text[cut] == ' ')
        return true;
    return (breaks & PRETOKEN_BREAK_ALL_SPACES) != 0 ||
           (before & (UNICODE_LETTER | UNICODE_NUMBER)) != 0;
}
