/* The steps of a normalizer, from one buffer to the other.
 *
 * Unicode writes many characters in two ways: an accented e is U+00E9, or an e
 * and U+0301 behind it. A tokenizer knows only bytes, so one word would be two
 * rows of tokens, and the model would have to learn both. Normalization Form C
 * (https://www.unicode.org/reports/tr15) takes one way: everything is
 * decomposed, marks behind a character are put in an order, and what has a
 * character of its own is composed again. SentencePiece's files have two steps
 * more: Replace makes a mark of each blank, so that a blank is part of a word
 * and texts come back with all of theirs, and Prepend puts one in front, so
 * that a word is the same token at the beginning of a text as within.
 *
 * What was in front is gone when text is cut or decoded, so whoever asks for
 * these steps has to be asked about it (normalizer_has() and its like): a
 * text is only cut where no step looks across. */
#include "src/text/tokenizer/normalizer.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "src/base/new.h"

#define NORMALIZER_STEPS_MAX 16
#define NORMALIZER_TEXT_MAX 63 /* bytes of a pattern, or of what replaces it */
#define NORMALIZER_GROWTH_LEAST 4096 /* of a short text, whatever its length */

struct normalizer_text {
    char data[NORMALIZER_TEXT_MAX + 1];
    size_t bytes;
};

struct normalizer_step {
    enum normalizer_kind kind;
    struct normalizer_text pattern, content;
};

struct normalizer {
    const struct unicode *unicode;
    struct normalizer_step step[NORMALIZER_STEPS_MAX];
    int steps;
};

enum err normalizer_create(const struct unicode *unicode,
                           struct normalizer **out)
{
    assert(unicode != NULL && out != NULL);
    TRY(new_zeroed(out, 1));
    (*out)->unicode = unicode;
    return ERR_OK;
}

void normalizer_destroy(struct normalizer *normalizer)
{
    free(normalizer);
}

static enum err normalizer_text(const char *text, struct normalizer_text *out)
{
    out->bytes = strlen(text);
    if (out->bytes > NORMALIZER_TEXT_MAX)
        return err_set(ERR_DATA, "a text of %zu bytes, at most %d", out->bytes,
                       NORMALIZER_TEXT_MAX);
    memcpy(out->data, text, out->bytes + 1);
    return ERR_OK;
}

enum err normalizer_add(struct normalizer *normalizer,
                        enum normalizer_kind kind, const char *pattern,
                        const char *content)
{
    assert(pattern != NULL && content != NULL);
    if (kind == NORMALIZER_REPLACE && *pattern == '\0')
        return err_set(ERR_DATA, "the pattern is empty");
    if (normalizer->steps == NORMALIZER_STEPS_MAX)
        return err_set(ERR_DATA, "more than %d steps", NORMALIZER_STEPS_MAX);
    struct normalizer_step *step = &normalizer->step[normalizer->steps];
    step->kind = kind;
    TRY(normalizer_text(pattern, &step->pattern));
    TRY(normalizer_text(content, &step->content));
    normalizer->steps++;
    return ERR_OK;
}

bool normalizer_has(const struct normalizer *normalizer,
                    enum normalizer_kind kind)
{
    bool has = false;
    for (int i = 0; i < normalizer->steps; i++)
        has = has || normalizer->step[i].kind == kind;
    return has;
}

bool normalizer_marks_blanks(const struct normalizer *normalizer,
                             const uint8_t *mark, size_t bytes)
{
    assert(mark != NULL);
    bool only = true;
    for (int i = 0; i < normalizer->steps; i++) {
        const struct normalizer_step *step = &normalizer->step[i];
        only = only && (step->kind != NORMALIZER_REPLACE ||
                        (strcmp(step->pattern.data, " ") == 0 &&
                         step->content.bytes == bytes &&
                         memcmp(step->content.data, mark, bytes) == 0));
    }
    return only;
}

void normalizer_work_free(struct normalizer_work *work)
{
    buffer_free(&work->buffer[0]);
    buffer_free(&work->buffer[1]);
}

static enum err normalizer_replace(const struct normalizer_step *step,
                                   const uint8_t *text, size_t bytes,
                                   size_t limit, struct buffer *out)
{
    const struct normalizer_text *pattern = &step->pattern;
    size_t done = 0;
    while (done < bytes) {
        const uint8_t *match =
            memmem(text + done, bytes - done, pattern->data, pattern->bytes);
        size_t end = match == NULL ? bytes : (size_t)(match - text);
        TRY(buffer_add(out, text + done, end - done));
        done = end;
        if (match == NULL)
            break;
        TRY(buffer_add(out, step->content.data, step->content.bytes));
        done += pattern->bytes;
        if (out->bytes > limit)
            return err_set(ERR_DATA,
                           "the tokenizer's normalizer makes more than %zu "
                           "bytes of a text; at most %d times as many as it "
                           "has",
                           limit, NORMALIZER_GROWTH_MAX);
    }
    return ERR_OK;
}

enum err normalizer_run(const struct normalizer *normalizer,
                        struct normalizer_work *work, bool prepend,
                        const uint8_t **text, size_t *bytes)
{
    assert(normalizer != NULL && work != NULL && bytes != NULL);
    size_t limit = NORMALIZER_GROWTH_MAX * *bytes + NORMALIZER_GROWTH_LEAST;
    for (int i = 0; i < normalizer->steps; i++) {
        const struct normalizer_step *step = &normalizer->step[i];
        struct buffer *out = &work->buffer[i % 2];
        out->bytes = 0;
        TRY(buffer_reserve(out, *bytes + 1));
        if (step->kind == NORMALIZER_NFC) {
            TRY(normalizer_nfc(normalizer->unicode, *text, *bytes, out));
        } else if (step->kind == NORMALIZER_REPLACE) {
            TRY(normalizer_replace(step, *text, *bytes, limit, out));
        } else {
            if (prepend && *bytes > 0)
                TRY(buffer_add(out, step->content.data, step->content.bytes));
            TRY(buffer_add(out, *text, *bytes));
        }
        *text = out->data;
        *bytes = out->bytes;
    }
    return ERR_OK;
}

/* Normalization Form C: libutf8proc decomposes each character and composes, but
 * marks are put in their order here, since its way of sorting takes quadratic
 * time for many in a row. What Unicode 9 did not have is left alone, as the
 * Hugging Face library does, so that no version of libutf8proc matters. */

/* Below this nothing composes, decomposes or is put in order. */
#define NORMALIZE_FIRST 0x300

/* A character decomposes into at most 18 in any form, 4 in this one. */
#define NORMALIZE_MOST 18

struct normalize_mark {
    int32_t point;
    int32_t place; /* keeps marks of one class in their order */
    int class;
};

static int normalize_class(int32_t point)
{
    return utf8proc_get_property(point)->combining_class;
}

static int normalize_compare(const void *a, const void *b)
{
    const struct normalize_mark *x = a, *y = b;
    if (x->class != y->class)
        return x->class < y->class ? -1 : 1;
    return (x->place > y->place) - (x->place < y->place);
}

/* Put the marks in points[0, count) in order. */
/* qsort() keeps no order of equals, but marks of one class have to keep theirs,
 * since they lie on top of each other; so the place is a part of the key. */
static enum err normalize_sort(int32_t *points, size_t count)
{
    struct normalize_mark *mark = NULL;
    TRY(new_room(&mark, count));
    for (size_t i = 0; i < count; i++)
        mark[i] =
            (struct normalize_mark){ .point = points[i],
                                     .place = (int32_t)i,
                                     .class = normalize_class(points[i]) };
    qsort(mark, count, sizeof *mark, normalize_compare);
    for (size_t i = 0; i < count; i++)
        points[i] = mark[i].point;
    free(mark);
    return ERR_OK;
}

static enum err normalize_order(int32_t *points, size_t count)
{
    for (size_t i = 0; i < count;) {
        size_t end = i;
        bool sorted = true;
        int before = 0;
        while (end < count) {
            int class = normalize_class(points[end]);
            if (class == 0)
                break;
            sorted = sorted && before <= class;
            before = class;
            end++;
        }
        if (!sorted)
            TRY(normalize_sort(points + i, end - i));
        i = end > i ? end : i + 1;
    }
    return ERR_OK;
}

/* Order and compose points[0, count), and append them. */
static enum err normalize_compose(int32_t *points, size_t count,
                                  struct buffer *out)
{
    if (count == 0)
        return ERR_OK;
    TRY(normalize_order(points, count));
    count = (size_t)utf8proc_normalize_utf32(
        points, (utf8proc_ssize_t)count, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    TRY(buffer_reserve(out, 4 * count));
    for (size_t i = 0; i < count; i++)
        out->bytes += unicode_put((uint32_t)points[i], out->data + out->bytes);
    return ERR_OK;
}

/* A text that needs it: decompose, order, compose what lies between two
 * characters that Unicode 9 did not have, which stay as they are. */
static enum err normalize_all(const struct unicode *unicode,
                              const uint8_t *text, size_t bytes,
                              struct buffer *out)
{
    enum err rc = ERR_OK;
    size_t count = 0, capacity = bytes + NORMALIZE_MOST;
    int32_t *points = NULL;
    TRY(new_room(&points, capacity));
    for (size_t i = 0, length = 0; i < bytes; i += length) {
        int last = 0;
        int32_t point = (int32_t)unicode_at(text + i, &length);
        if ((unicode->of[point] & UNICODE_LATER) != 0) {
            TRY_OUT(normalize_compose(points, count, out));
            TRY_OUT(buffer_add(out, text + i, length));
            count = 0;
            continue;
        }
        TRY_OUT(array_room(&points, &capacity, count + NORMALIZE_MOST));
        count += (size_t)utf8proc_decompose_char(
            point, points + count, NORMALIZE_MOST, UTF8PROC_DECOMPOSE, &last);
    }
    TRY_OUT(normalize_compose(points, count, out));
out:
    free(points);
    return rc;
}

enum err normalizer_nfc(const struct unicode *unicode, const uint8_t *text,
                        size_t bytes, struct buffer *out)
{
    for (size_t i = 0, length = 0; i < bytes; i += length)
        if (unicode_at(text + i, &length) >= NORMALIZE_FIRST)
            return normalize_all(unicode, text, bytes, out);
    return buffer_add(out, text, bytes);
}
