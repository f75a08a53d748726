/* A text file as documents, in spans of bounded size. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/data/texts/source.h"

/* No span is longer. */
#define TEXT_SPAN_BYTES_MAX ((size_t)1 << 20)

struct text;

/* Where to read on. Zeros: the beginning. */
struct text_place {
    int64_t file;   /* of the inputs (documents.h) */
    int64_t offset; /* of text: bytes before it, unpacked; of JSON lines: before
                     * the record's line; of a set: the sample */
    int64_t line;   /* of JSON lines */
    int64_t skip;   /* of both: bytes of the record's text before it */
    int64_t empty;  /* records without a text before it, of all files */
    bool inside;    /* of text: a document has begun before it */
    bool held;      /* its document is held out */
    bool midline; /* the byte before it is of that document and ends no line */
};

struct text_span {
    const uint8_t *text; /* of one document, lent until the next call */
    size_t bytes;
    bool begins, ends; /* the document; one that ends may have no bytes here */
    struct text_place place; /* of its first byte, or of the end */
};

/* `path` as in source_open(): one document, or, with a separator, those between
 * lines that are exactly the separator (at most 4096 bytes, no line end in it;
 * "": blank lines) or that and a carriage return, which belong to none. separator NULL: none; lent.
 * binary: whatever is in it. */
enum err text_open(const char *path, const char *separator, bool binary,
                   const struct source_options *watch, struct text **out);
void text_close(struct text *text);

/* ERR_USAGE where a separator is none that text_open() takes. */
enum err text_check_separator(const char *separator);

/* Nothing was read yet. */
enum err text_go(struct text *text, struct text_place place);

/* *more false: the end. Documents without bytes are left out. */
enum err text_next(struct text *text, struct text_span *span, bool *more);

/* source_position() of the file. */
int64_t text_position(const struct text *text);
