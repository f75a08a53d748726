/* The examples of a task's file, as they stand there. They are kept in memory,
 * since any of them may stand before any other. */
#pragma once

#include <stdint.h>

#include "src/base/err.h"
#include "src/eval/icl_task.h"

/* What a kind has no use for is NULL or 0; fields of the file that no kind uses
 * are ignored, as LLM Foundry does. */
struct icl_record {
    const char *context;        /* "query" of multiple_choice */
    const char *answer;         /* "continuation", of generation "answer" */
    const char *thought;        /* "chain_of_thought"; NULL: no record has it */
    const char *const *options; /* "choices", "context_options", "aliases" */
    int64_t option_count;
    int64_t gold; /* the right one of the options */
    const char *category;
    int64_t line; /* of the file */
};

/* Those of a category, in the order of the file. */
struct icl_part {
    const char *category; /* NULL: all */
    const struct icl_record *const *records;
    int64_t count; /* > 0 */
};

/* Read only. One part of all, or one for each category in alphabetical order
 * (bytes). */
struct icl_records {
    struct icl_part *parts;
    int part_count;
    /* of icl_records.c: */
    struct icl_block *blocks; /* of texts */
    struct icl_record *list;
    int64_t count, capacity;
    const struct icl_record **order; /* by category */
};

/* ERR_USAGE: there is no such file, or it is no regular one. ERR_DATA names file,
 * line and field. A record has at most 1024 "choices" or
 * "context_options". */
enum err icl_records_read(const struct icl_task *task,
                          struct icl_records **out);
void icl_records_destroy(struct icl_records *records);
