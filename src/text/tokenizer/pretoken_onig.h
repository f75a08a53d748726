/* Regular expressions of tokenizer files are written for Oniguruma; this says
 * the same for PCRE2, and refuses what is not known to mean the same there. */
#pragma once

#include "src/base/err.h"
#include "src/base/buffer.h"
#include "src/text/tokenizer/pretoken_classes.h"

/* Append the expression for PCRE2, with a NUL, for texts with the stand-ins of
 * `classes`, which are filled; zeros: for texts as they are. ERR_DATA names the
 * first byte of what can't be used. */
enum err pretoken_onig_translate(const struct unicode *unicode,
                                 const char *pattern,
                                 struct pretoken_classes *classes,
                                 struct buffer *out);
