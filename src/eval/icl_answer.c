/* Judges generated answers. What a model writes is "The answer is: a Paris.\n\nQ:",
 * and what it should have written is "Paris". Four steps bring them together,
 * each as LLM Foundry's code in Python does it:
 *
 *   up to the first match of a stop    The answer is: a Paris.
 *   behind the last cot_delimiter      a Paris.        (if it is "answer is:")
 *   normalised                         paris
 *   begins with a wanted text, which is normalised likewise
 *
 * "Begins with" forgives all that comes behind the answer, and makes an answer of
 * which nothing is left once it is normalised right for every text; such
 * examples are counted when a task is read (icl_answer_always). */
#include "src/eval/icl_answer.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <utf8proc.h>

#include "src/base/log.h"
#include "src/base/new.h"
#include "src/text/unicode.h"

/* Limit of a search: what a pattern may take on a text of some hundred tokens.
 */
#define MATCH_STEPS 1000000

struct icl_answer {
    const struct icl_task *task;
    pcre2_code *stop; /* any of the task's; NULL: it has none */
    pcre2_match_data *match;
    pcre2_match_context *limits;
    bool warned;        /* that a search takes too long */
    struct buffer text; /* the generated one, valid UTF-8 */
    struct buffer cleaned, wanted, work;
};

/* The alternatives as Python joins them, "|" between: one search finds the first
 * place at which any of them matches. They are compiled as Python's `re` has
 * them for str: on code points, with classes of all of Unicode. */
static enum err compile_stops(struct icl_answer *answer)
{
    int code = 0;
    PCRE2_SIZE offset = 0;
    struct buffer *all = &answer->work;
    const char *const *stops = answer->task->stops;
    if (stops[0] == NULL)
        return ERR_OK;
    for (int i = 0; stops[i] != NULL; i++) {
        TRY(buffer_add(all, "|", i > 0));
        TRY(buffer_add(all, stops[i], strlen(stops[i])));
    }
    /* \C, a byte, could end the text within a character */
    answer->stop = pcre2_compile(
        all->data, all->bytes, PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C,
        &code, &offset, NULL);
    if (answer->stop == NULL) {
        PCRE2_UCHAR reason[128] = "";
        pcre2_get_error_message(code, reason, sizeof reason);
        return err_set(ERR_USAGE,
                       "early_stopping_criteria '%.*s' is no regular "
                       "expression: %s at %zu",
                       (int)(all->bytes < 200 ? all->bytes : 200), all->data,
                       (const char *)reason, (size_t)offset);
    }
    answer->match = pcre2_match_data_create_from_pattern(answer->stop, NULL);
    answer->limits = pcre2_match_context_create(NULL);
    if (answer->match == NULL || answer->limits == NULL)
        return err_set(ERR_MEMORY, "out of memory");
    pcre2_set_match_limit(answer->limits, MATCH_STEPS);
    return ERR_OK;
}

/* What is searched for in UTF-8 has to be UTF-8: anything else may be found
 * within a character. */
static enum err check_delimiter(const struct icl_task *task)
{
    size_t bytes = strlen(task->cot_delimiter);
    size_t valid = unicode_valid((const uint8_t *)task->cot_delimiter, bytes);
    if (valid == bytes)
        return ERR_OK;
    return err_set(ERR_USAGE,
                   "%s: cot_delimiter is not valid UTF-8, from byte %zu on",
                   task->file, valid + 1);
}

enum err icl_answer_create(const struct icl_task *task, struct icl_answer **out)
{
    struct icl_answer *answer = NULL;
    TRY(new_zeroed(&answer, 1));
    answer->task = task;
    enum err rc = ERR_OK;
    TRY_OUT(check_delimiter(task));
    TRY_OUT(compile_stops(answer));
out:
    return new_or_none(rc, answer, out, icl_answer_destroy);
}

void icl_answer_destroy(struct icl_answer *answer)
{
    if (answer == NULL)
        return;
    pcre2_match_context_free(answer->limits);
    pcre2_match_data_free(answer->match);
    pcre2_code_free(answer->stop);
    buffer_free(&answer->text);
    buffer_free(&answer->cleaned);
    buffer_free(&answer->wanted);
    buffer_free(&answer->work);
    free(answer);
}

/* Where answer->text ends for a stop: its length where there is none. */
static enum err find_stop(struct icl_answer *answer, size_t *end)
{
    const struct buffer *text = &answer->text;
    *end = text->bytes;
    if (answer->stop == NULL)
        return ERR_OK;
    int found = pcre2_match(answer->stop, text->data, text->bytes, 0,
                            PCRE2_NO_UTF_CHECK, answer->match, answer->limits);
    if (found == PCRE2_ERROR_NOMEMORY)
        return err_set(ERR_MEMORY, "out of memory");
    if (found < 0 && found != PCRE2_ERROR_NOMATCH && !answer->warned) {
        log_warn("%s: early_stopping_criteria take too long on a generated "
                 "text, in which none counts as found",
                 answer->task->file);
        answer->warned = true;
    }
    if (found < 0)
        return ERR_OK;
    *end = pcre2_get_ovector_pointer(answer->match)[0];
    assert(*end <= text->bytes);
    return ERR_OK;
}

/* The text, valid and never NULL. */
static enum err take_text(struct icl_answer *answer, const uint8_t *text,
                          size_t bytes)
{
    answer->text.bytes = 0;
    TRY(buffer_reserve(&answer->text, 1));
    return unicode_repair(text, bytes, &answer->text);
}

enum err icl_answer_stops(struct icl_answer *answer, const uint8_t *text,
                          size_t bytes, bool *stops)
{
    size_t end;
    *stops = false;
    if (answer->stop == NULL)
        return ERR_OK;
    TRY(take_text(answer, text, bytes));
    TRY(find_stop(answer, &end));
    *stops = end < answer->text.bytes;
    return ERR_OK;
}

/* A letter or number: what Python's \w has beside "_", which is a blank here.
 */
static bool is_word(uint32_t point)
{
    switch (utf8proc_category((utf8proc_int32_t)point)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
        return true;
    default:
        return false;
    }
}

/* Python's string.punctuation, and three quotes that LLM Foundry adds. They become
 * blanks and do not just go: "ice-cream" is two words, not one. */
static bool is_punctuation(uint32_t point)
{
    return (point > 0x20 && point < 0x30) || (point > 0x39 && point < 0x41) ||
           (point > 0x5a && point < 0x61) || (point > 0x7a && point < 0x7f) ||
           point == 0x2018 || point == 0x2019 || point == 0xb4;
}

static enum err put(struct buffer *out, uint32_t point)
{
    uint8_t utf8[4];
    size_t length = unicode_put(point, utf8);
    return buffer_add(out, utf8, length);
}

/* Case by code points, one by one. Python looks at the neighbours of one letter,
 * the sigma that ends a word; here it is lowered as in the middle of one, in the
 * text and in the answer alike. */
static enum err lower(const uint8_t *text, size_t bytes, struct buffer *out)
{
    size_t length;
    out->bytes = 0;
    for (size_t at = 0; at < bytes; at += length) {
        uint32_t point = unicode_at(text + at, &length);
        if (is_punctuation(point))
            TRY(put(out, ' '));
        else if (point == 0x130) /* the one letter that becomes two */
            TRY(buffer_add(out, "i\xcc\x87", 3));
        else
            TRY(put(out, (uint32_t)utf8proc_tolower((int32_t)point)));
    }
    return ERR_OK;
}

/* The pattern \b(a|an|the)\b: between word boundaries is a whole run of letters. */
static bool is_article(const uint8_t *word, size_t bytes)
{
    return (bytes == 1 && word[0] == 'a') ||
           (bytes == 2 && memcmp(word, "an", 2) == 0) ||
           (bytes == 3 && memcmp(word, "the", 3) == 0);
}

/* Bytes from `at` on of letters and numbers, or else of one character. */
static size_t piece(const struct buffer *text, size_t at, bool *word)
{
    size_t length, end = at;
    assert(at < text->bytes);
    *word = is_word(unicode_at(text->data + at, &length));
    do
        end += length;
    while (*word && end < text->bytes &&
           is_word(unicode_at(text->data + end, &length)));
    return end - at;
}

/* Leaves out articles, and joins what is left by single blanks. */
static enum err join(const struct buffer *text, struct buffer *out)
{
    bool word, blank = false;
    size_t bytes;
    out->bytes = 0;
    for (size_t at = 0; at < text->bytes; at += bytes) {
        bytes = piece(text, at, &word);
        const uint8_t *data = text->data + at;
        if ((word && is_article(data, bytes)) ||
            unicode_blank_front((const char *)data, bytes) == bytes) {
            blank = true;
            continue;
        }
        TRY(buffer_add(out, " ", blank && out->bytes > 0));
        TRY(buffer_add(out, data, bytes));
        blank = false;
    }
    return ERR_OK;
}

/* What is compared, ended by a 0 that is not counted. */
static enum err clean(struct icl_answer *answer, const uint8_t *text,
                      size_t bytes, struct buffer *out)
{
    if (answer->task->normalize) {
        TRY(lower(text, bytes, &answer->work));
        TRY(join(&answer->work, out));
    } else {
        size_t front = unicode_blank_front((const char *)text, bytes);
        bytes -= front;
        bytes -= unicode_blank_back((const char *)text + front, bytes);
        out->bytes = 0;
        TRY(buffer_add(out, text + front, bytes));
    }
    TRY(buffer_add(out, "", 1));
    out->bytes--;
    return ERR_OK;
}

/* *right stays true once it is: any of several answers will do. */
static enum err is_answer(struct icl_answer *answer, const char *want,
                          bool *right)
{
    const struct buffer *got = &answer->cleaned, *wanted = &answer->wanted;
    TRY(clean(answer, (const uint8_t *)want, strlen(want), &answer->wanted));
    *right = *right || (wanted->bytes <= got->bytes &&
                        (wanted->bytes == 0 ||
                         memcmp(got->data, wanted->data, wanted->bytes) == 0));
    return ERR_OK;
}

enum err icl_answer_judge(struct icl_answer *answer,
                          const struct icl_record *record, const uint8_t *text,
                          size_t bytes, bool *right, const char **cleaned)
{
    const char *delimiter = answer->task->cot_delimiter;
    size_t length = strlen(delimiter), begin = 0, end;
    const uint8_t *found;
    TRY(take_text(answer, text, bytes));
    TRY(find_stop(answer, &end));
    const uint8_t *data = answer->text.data;
    while (length > 0 && (found = memmem(data + begin, end - begin, delimiter,
                                         length)) != NULL)
        begin = (size_t)(found - data) + length;
    assert(begin <= end && end <= answer->text.bytes);
    TRY(clean(answer, data + begin, end - begin, &answer->cleaned));
    *right = false;
    TRY(is_answer(answer, record->answer, right));
    for (int64_t i = 0; i < record->option_count; i++)
        TRY(is_answer(answer, record->options[i], right));
    *cleaned = (const char *)answer->cleaned.data;
    return ERR_OK;
}

enum err icl_answer_always(struct icl_answer *answer,
                           const struct icl_record *record, bool *always)
{
    answer->cleaned.bytes = 0;
    *always = false;
    TRY(is_answer(answer, record->answer, always));
    for (int64_t i = 0; i < record->option_count; i++)
        TRY(is_answer(answer, record->options[i], always));
    return ERR_OK;
}
