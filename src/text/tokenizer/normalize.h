/* Normalizers: what is done to a text before it is divided into words. */
#pragma once

#include "src/base/err.h"
#include "src/base/buffer.h"
#include "src/text/unicode.h"

/* Append the text, valid UTF-8, in Normalization Form C. Takes n log n however
 * many marks follow each other. */
enum err normalize_nfc(const struct unicode *unicode, const uint8_t *text,
                       size_t bytes, struct buffer *out);
