/* Pre-tokenizers: how a text is divided into words before words are encoded. A
 * row of steps, each of which divides further what the one before gave. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/text/unicode.h"

/* What becomes of the places where a pattern matches. */
enum pretoken_behavior {
    PRETOKEN_REMOVED,
    PRETOKEN_ISOLATED,
    PRETOKEN_MERGED_WITH_PREVIOUS,
    PRETOKEN_MERGED_WITH_NEXT,
    PRETOKEN_CONTIGUOUS
};

struct pretoken;

enum err pretoken_create(struct pretoken **out);
void pretoken_destroy(struct pretoken *pretoken);

/* GPT-2's pattern, which ByteLevel has of itself; a digit, and a row of them. */
#define PRETOKEN_GPT2                                                          \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+"        \
    "|\\s+(?!\\S)|\\s+"
#define PRETOKEN_DIGIT "\\p{N}"
#define PRETOKEN_DIGITS "\\p{N}+"

/* Add a step. All: ERR_DATA for too many. prefix: a blank in front of what has
 * none. */
enum err pretoken_add_prefix(struct pretoken *pretoken);
/* invert: what lies between matches counts as match and the other way round.
 * ERR_DATA for a pattern that can't be used. unicode: lent. */
enum err pretoken_add_split(struct pretoken *pretoken,
                            const struct unicode *unicode, const char *pattern,
                            bool literal, enum pretoken_behavior behavior,
                            bool invert);

/* To which parts of a text Metaspace adds a mark. */
enum pretoken_prepend {
    PRETOKEN_NEVER,
    PRETOKEN_FIRST_ONLY, /* the first, unless an added token comes before it */
    PRETOKEN_ALWAYS      /* ... those behind added tokens, too */
};

/* Blanks become `mark`, a character, which is put in front as well of what does
 * not begin with it. split: each begins a word. */
enum err pretoken_add_metaspace(struct pretoken *pretoken, const char *mark,
                                enum pretoken_prepend prepend, bool split);
/* What Metaspace puts in front; NEVER: there is none. */
enum pretoken_prepend pretoken_prepends(const struct pretoken *pretoken);
/* Whether there is no step, or Metaspace alone. */
bool pretoken_only_metaspace(const struct pretoken *pretoken);

struct pretoken_work;

/* Memory to divide texts with, one per thread. */
enum err pretoken_work_create(struct pretoken_work **out);
void pretoken_work_destroy(struct pretoken_work *work);

/* What takes the words, none of which is empty. */
typedef enum err pretoken_word_fn(void *arg, const uint8_t *word, size_t bytes);

/* Where in a text what is to be divided lies. */
enum pretoken_place {
    PRETOKEN_FIRST, /* at its beginning */
    PRETOKEN_LATER, /* behind an added token */
    PRETOKEN_INSIDE /* it goes on from what was cut off before */
};

/* Divide a text of valid UTF-8 and hand on its words in order. */
enum err pretoken_run(const struct pretoken *pretoken,
                      const struct unicode *unicode, struct pretoken_work *work,
                      enum pretoken_place place, const uint8_t *text,
                      size_t bytes, pretoken_word_fn *word, void *arg);

/* Whether a text may be divided at `cut` without changing its words. Never if
 * a step is a pattern that is not known. */
bool pretoken_cuts(const struct pretoken *pretoken,
                   const struct unicode *unicode, const uint8_t *text,
                   size_t cut);
