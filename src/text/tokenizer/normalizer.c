/* The steps of a normalizer, from one buffer to the other. */
#include "src/text/tokenizer/normalizer.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/new.h"
#include "src/text/tokenizer/normalize.h"

#define NORMALIZER_STEPS_MAX 16
#define NORMALIZER_TEXT_MAX 63 /* bytes of a pattern, or of what replaces it */
#define NORMALIZER_GROWTH_LEAST 4096 /* of a short text, whatever its length */

enum normalizer_kind { NORMALIZER_NFC, NORMALIZER_PREPEND, NORMALIZER_REPLACE };

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

static enum err normalizer_add(struct normalizer *normalizer,
                               enum normalizer_kind kind, const char *pattern,
                               const char *content)
{
    if (normalizer->steps == NORMALIZER_STEPS_MAX)
        return err_set(ERR_DATA, "more than %d steps", NORMALIZER_STEPS_MAX);
    struct normalizer_step *step = &normalizer->step[normalizer->steps];
    step->kind = kind;
    TRY(normalizer_text(pattern, &step->pattern));
    TRY(normalizer_text(content, &step->content));
    normalizer->steps++;
    return ERR_OK;
}

enum err normalizer_add_nfc(struct normalizer *normalizer)
{
    return normalizer_add(normalizer, NORMALIZER_NFC, "", "");
}

enum err normalizer_add_prepend(struct normalizer *normalizer, const char *text)
{
    return normalizer_add(normalizer, NORMALIZER_PREPEND, "", text);
}

enum err normalizer_add_replace(struct normalizer *normalizer,
                                const char *pattern, const char *content)
{
    if (*pattern == '\0')
        return err_set(ERR_DATA, "the pattern is empty");
    return normalizer_add(normalizer, NORMALIZER_REPLACE, pattern, content);
}

static bool normalizer_has(const struct normalizer *normalizer,
                           enum normalizer_kind kind)
{
    bool has = false;
    for (int i = 0; i < normalizer->steps; i++)
        has = has || normalizer->step[i].kind == kind;
    return has;
}

bool normalizer_has_nfc(const struct normalizer *normalizer)
{
    return normalizer_has(normalizer, NORMALIZER_NFC);
}

bool normalizer_prepends(const struct normalizer *normalizer)
{
    return normalizer_has(normalizer, NORMALIZER_PREPEND);
}

bool normalizer_replaces(const struct normalizer *normalizer)
{
    return normalizer_has(normalizer, NORMALIZER_REPLACE);
}

bool normalizer_marks_blanks(const struct normalizer *normalizer,
                             const uint8_t *mark, size_t bytes)
{
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
    size_t limit = NORMALIZER_GROWTH_MAX * *bytes + NORMALIZER_GROWTH_LEAST;
    for (int i = 0; i < normalizer->steps; i++) {
        const struct normalizer_step *step = &normalizer->step[i];
        struct buffer *out = &work->buffer[i % 2];
        out->bytes = 0;
        TRY(buffer_reserve(out, *bytes + 1));
        if (step->kind == NORMALIZER_NFC) {
            TRY(normalize_nfc(normalizer->unicode, *text, *bytes, out));
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
