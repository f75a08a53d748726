/* The words of a chat template, which is Jinja's language: text, and between
 * {{ }} and {% %} names, strings, numbers and signs.
 *
 * White space as the Hugging Face library has it: a line end after a block goes
 * away, so do blanks before a block that begins its line ("trim_blocks",
 * "lstrip_blocks"), "-" at a bracket takes all white space on that side and "+"
 * leaves it; one line end at the end of the file goes away. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"

/* Bytes of a template at most. */
#define CHAT_LEX_BYTES_MAX ((size_t)1 << 20)

enum chat_lex_kind {
    CHAT_LEX_END,
    CHAT_LEX_DATA,        /* text outside of brackets */
    CHAT_LEX_PRINT,       /* {{ */
    CHAT_LEX_PRINT_CLOSE, /* }} */
    CHAT_LEX_BLOCK,       /* {% */
    CHAT_LEX_BLOCK_CLOSE, /* %} */
    CHAT_LEX_NAME,
    CHAT_LEX_STRING,
    CHAT_LEX_INTEGER,
    CHAT_LEX_REAL, /* a number that is no whole decimal one */
    CHAT_LEX_SIGN
};

struct chat_lex_word {
    enum chat_lex_kind kind;
    int line;
    const char *text; /* of a string what it stands for */
    size_t bytes;
    int64_t value; /* CHAT_LEX_INTEGER */
};

struct chat_lex {
    struct chat_lex_word *word; /* the last one is CHAT_LEX_END */
    size_t count, capacity;
    char *source;
};

/* ERR_DATA names the line of what is no template. Zeros, or what
 * chat_lex_release() left, before. */
enum err chat_lex_read(const char *text, size_t bytes, struct chat_lex *out);
void chat_lex_release(struct chat_lex *lex);

bool chat_lex_is(const struct chat_lex_word *word, enum chat_lex_kind kind,
                 const char *text);
