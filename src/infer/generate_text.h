/* The text of a continuation as its tokens come: always valid UTF-8, whole
 * characters at a time, ended by the first stop text that it has, also across
 * tokens.
 *
 * Special tokens have no text, nor have numbers without a token. Bytes that are no UTF-8 become U+FFFD, one for
 * each maximal part of a sequence. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/array.h"
#include "src/base/err.h"
#include "src/text/tokenizer/tokenizer.h"

/* All lent. */
struct generate_text_options {
    const struct tokenizer *tokenizer;
    const char *const *stop; /* [stop_count] none of them empty */
    size_t stop_count;
};

/* Zeros: a new one. */
struct generate_text {
    const struct generate_text_options *options;
    struct tokenizer_decoder decoder;
    struct buffer text;    /* valid, without what ended it */
    struct buffer pending; /* the beginning of a character */
    size_t ready;          /* of the text: no stop text can begin before it */
    bool stopped;          /* the text had a stop text, nothing is added */
};

void generate_text_free(struct generate_text *text);

/* Begins anew behind a prompt; the options are lent. */
void generate_text_begin(struct generate_text *text,
                         const struct generate_text_options *options,
                         const int32_t *prompt, size_t count);
enum err generate_text_add(struct generate_text *text, int32_t token);
/* No token follows: half a character becomes U+FFFD, all is ready. */
enum err generate_text_end(struct generate_text *text);
