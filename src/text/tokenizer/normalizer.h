/* A row of steps, each of which changes what the one before gave. */
#pragma once

#include <stdbool.h>

#include "src/base/array.h"
#include "src/base/err.h"
#include "src/text/unicode.h"

/* What a text may grow to, per byte of it. */
#define NORMALIZER_GROWTH_MAX 64

struct normalizer;

/* unicode: lent. */
enum err normalizer_create(const struct unicode *unicode,
                           struct normalizer **out);
void normalizer_destroy(struct normalizer *normalizer);

enum normalizer_kind {
    NORMALIZER_NFC,
    NORMALIZER_PREPEND, /* content, before a part that no added token takes */
    NORMALIZER_REPLACE  /* each pattern by content */
};

/* Add a step. ERR_DATA: too many, or a text that is too long, or no pattern. */
enum err normalizer_add(struct normalizer *normalizer,
                        enum normalizer_kind kind, const char *pattern,
                        const char *content);
bool normalizer_has(const struct normalizer *normalizer,
                    enum normalizer_kind kind);
/* All that is replaced is a blank, by this. */
bool normalizer_marks_blanks(const struct normalizer *normalizer,
                             const uint8_t *mark, size_t bytes);

/* Zeros: nothing yet. */
struct normalizer_work {
    struct buffer buffer[2];
};

void normalizer_work_free(struct normalizer_work *work);

/* Normalize *text, which is valid UTF-8; what it becomes is lent until the next
 * call. prepend false: nothing is put in front. ERR_DATA: it grows too much. */
enum err normalizer_run(const struct normalizer *normalizer,
                        struct normalizer_work *work, bool prepend,
                        const uint8_t **text, size_t *bytes);

/* Append the text, valid UTF-8, in Normalization Form C. Takes n log n however
 * many marks follow each other. */
enum err normalizer_nfc(const struct unicode *unicode, const uint8_t *text,
                        size_t bytes, struct buffer *out);
