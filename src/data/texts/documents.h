/* The documents of text files, of JSON lines, of files of columns and of MDS data
 * sets, one after the other. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/data/texts/inputs.h"
#include "src/data/texts/text.h"

struct documents;

struct documents_options {
    const char *separator; /* of text: text_open() */
    const char *field;     /* of JSON lines, or a column of a table or a set */
    struct source_options source;
    bool binary; /* not only text */
    /* the share of documents that are held out (text_place.held): of what has
     * records by their text, of texts by their file's name, wherever it lies, and
     * where they begin */
    double holdout;
    uint64_t seed;
};

/* Inputs and the texts of the options are lent. ERR_USAGE for a separator that
 * can't be one. */
enum err documents_create(const struct inputs *inputs,
                          const struct documents_options *options,
                          struct documents **out);
void documents_destroy(struct documents *documents);

/* Nothing was read yet. */
enum err documents_go(struct documents *documents,
                      const struct text_place *place);

/* *more false: the end. Documents without text are left out. ERR_DATA also for
 * a file that changes meanwhile. */
enum err documents_next(struct documents *documents, struct text_span *span,
                        bool *more);

/* Whether what these bytes are the text of is held out. */
bool documents_are_held(const void *text, size_t bytes, uint64_t seed,
                        double share);

/* Records without a text so far: rows, samples, lines of JSON. */
int64_t documents_empty(const struct documents *documents);

/* How much of the inputs was read, of inputs_bytes(); of sets the texts. */
int64_t documents_done(const struct documents *documents);

/* The place of span->text[at], 0 <= at <= bytes. */
struct text_place documents_at(const struct documents *documents,
                               const struct text_span *span, size_t at);

/* The place `bytes` before `place` in the same document, where `last` is the
 * byte before that. */
struct text_place documents_back(const struct documents *documents,
                                 struct text_place place, size_t bytes,
                                 uint8_t last);

/* The file of a place, and in JSON lines the line, for messages. */
void documents_name(const struct documents *documents,
                    const struct text_place *place, char *text, size_t bytes);
