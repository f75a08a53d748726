/* In-context tasks: a file of examples, and how prompts are made of them. Kinds,
 * options and their defaults are LLM Foundry's. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"

enum icl_kind {
    ICL_LANGUAGE_MODELING, /* every token of the continuation is the likeliest */
    ICL_MULTIPLE_CHOICE,   /* the right choice is the likeliest per token */
    ICL_SCHEMA,            /* behind the right context a continuation is */
    ICL_GENERATION         /* what is generated begins with an answer */
};
static const char *const icl_kind_names[] = { "language_modeling",
                                              "multiple_choice", "schema",
                                              "generation_task_with_answers",
                                              NULL };

/* Examples that stand before another one, at most. */
#define ICL_SHOTS_MAX 10000
/* early_stopping_criteria */
#define ICL_STOPS_MAX 16

/* All texts are lent. */
struct icl_task {
    const char *label; /* "": the file's stem */
    const char *file;  /* JSON lines, packed or not */
    enum icl_kind kind;
    int64_t shots; /* examples before each */
    uint64_t seed; /* of their choice */
    const char *prompt_string, *prelimiter;
    const char *example_delimiter, *continuation_delimiter;
    bool strip;      /* white space at the ends of fields (strip_dataset) */
    bool categories; /* each value of "category" is scored by itself */
    /* of generation alone: */
    const char *cot_delimiter;
    const char *stops[ICL_STOPS_MAX + 1]; /* regular expressions; NULL ends */
    bool normalize;                       /* do_normalization */
};

/* What is not said otherwise; label and file are "". */
void icl_task_default(struct icl_task *task);

/* "KIND:FILE" or "KIND:FILE:SHOTS" into kind, file, shots; file is cut out of
 * `text`. ERR_USAGE says what is there instead. */
enum err icl_task_parse(char *text, struct icl_task *task);

enum err icl_task_kind(const char *name, enum icl_kind *kind);

/* The label, or of the file's name what is before its extensions; at most
 * bytes - 1 of it. */
void icl_task_name(const struct icl_task *task, char *name, size_t bytes);
