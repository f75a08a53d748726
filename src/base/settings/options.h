/* Command lines. An option is a row of a table: its name, the field of a struct
 * that it sets, within which limits, and what --help says of it. From the rows a
 * command line is read and checked, a misspelt name finds the nearest, and
 * --help and the list of options in the manual page (docs/man/options) are
 * printed. A program has one command without a name, or several with names,
 * each with its rows, or a choice of them.
 *
 * --NAME VALUE and --NAME=VALUE are the same, as is the beginning of a name that
 * no other has; what comes behind -- is no option. Options and operands may
 * stand in any order, and of an option that is given twice the last counts. */
#pragma once

#include <float.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "src/base/err.h"

enum options_kind {
    OPTIONS_FLAG,  /* bool: `most` */
    OPTIONS_TEXT,  /* const char *, lent from argv; of at least `least` bytes */
    OPTIONS_TEXTS, /* const char *[], which NULL ends: it may be repeated */
    OPTIONS_WHOLE, /* int, int64_t or uint64_t, of 4 or 8 bytes */
    OPTIONS_REAL,  /* double */
    OPTIONS_BYTES, /* int64_t above 0, with a unit (units.h) */
    OPTIONS_CHOICE, /* enum, int or, of two, bool: the place in `choices` */
    OPTIONS_TAKE    /* what `take` makes of the text */
};

/* Begun by the macros below; a row of which `name` is NULL is a text that --help
 * has between options, or without `help` the end of the rows. At most 64. */
struct options_row {
    const char *name, *value; /* value: what --help calls it; NULL: a flag */
    enum options_kind kind;
    size_t offset, bytes; /* of the field */
    int64_t least, most;
    double low, high;
    const char *const *choices;
    enum err (*take)(void *into, char *value);
    const char *help;
};

#define OPTIONS_ROW(its_kind, type, field, ...)                                \
    {                                                                          \
        .kind = its_kind, .offset = offsetof(type, field),                     \
        .bytes = sizeof((type *)NULL)->field, __VA_ARGS__                      \
    }
#define OPTION_FLAG(type, field, its_name, its_help)                           \
    OPTIONS_ROW(OPTIONS_FLAG, type, field, .name = its_name, .most = 1,        \
                .help = its_help)
/* A flag that makes the field false. */
#define OPTION_OFF(type, field, its_name, its_help)                            \
    OPTIONS_ROW(OPTIONS_FLAG, type, field, .name = its_name, .help = its_help)
#define OPTION_TEXT(type, field, its_name, its_value, its_help)                \
    OPTIONS_ROW(OPTIONS_TEXT, type, field, .name = its_name,                   \
                .value = its_value, .help = its_help)
/* A text that is not empty. */
#define OPTION_PATH(type, field, its_name, its_value, its_help)                \
    OPTIONS_ROW(OPTIONS_TEXT, type, field, .name = its_name,                   \
                .value = its_value, .least = 1, .help = its_help)
#define OPTION_TEXTS(type, field, its_name, its_value, its_help)               \
    OPTIONS_ROW(OPTIONS_TEXTS, type, field, .name = its_name,                  \
                .value = its_value, .help = its_help)
#define OPTION_WHOLE(type, field, its_name, its_value, from, to, its_help)     \
    OPTIONS_ROW(OPTIONS_WHOLE, type, field, .name = its_name,                  \
                .value = its_value, .least = from, .most = to,                 \
                .help = its_help)
/* From OPTION_ABOVE_0, to OPTION_BELOW_1: without 0, without 1. */
#define OPTION_ABOVE_0 DBL_TRUE_MIN
#define OPTION_BELOW_1 (1 - DBL_EPSILON / 2)
#define OPTION_REAL(type, field, its_name, its_value, from, to, its_help)      \
    OPTIONS_ROW(OPTIONS_REAL, type, field, .name = its_name,                   \
                .value = its_value, .low = from, .high = to, .help = its_help)
#define OPTION_BYTES(type, field, its_name, its_value, its_help)               \
    OPTIONS_ROW(OPTIONS_BYTES, type, field, .name = its_name,                  \
                .value = its_value, .help = its_help)
/* The names end with NULL; --help shows them all. */
#define OPTION_CHOICE(type, field, its_name, its_names, its_help)              \
    OPTIONS_ROW(OPTIONS_CHOICE, type, field, .name = its_name,                 \
                .choices = its_names, .help = its_help)
#define OPTION_TAKE(its_name, its_value, its_take, its_help)                   \
    {                                                                          \
        .kind = OPTIONS_TAKE, .name = its_name, .value = its_value,            \
        .take = its_take, .help = its_help                                     \
    }
#define OPTION_HEADING(text)                                                   \
    {                                                                          \
        .help = text                                                           \
    }

struct options_command {
    const char *name;     /* NULL: the program has only this one */
    const char *operands; /* as in "RUN..."; "" or NULL: none */
    const char *help;     /* what it does; NULL: nothing is said beside it */
    const struct options_row *rows;
    /* Which of the rows, by their names: "out! keep|keep-every! json": with a !
     * one of these must be given. "*": all others. NULL: all. */
    const char *choice;
    int operands_min, operands_max; /* max -1: any number */
};

struct options_program {
    const char *name;  /* behind "tessera-" */
    const char *about; /* lines behind the usage in --help */
    const char *end;   /* lines behind the options; NULL: none */
    /* Rows that begin with a struct options_command, `stride` bytes each. */
    const void *commands;
    size_t count, stride;
    void (*more)(FILE *out); /* after `end`; NULL: nothing */
    bool bare; /* it runs without arguments; others print the usage */
};

#define OPTIONS_COMMANDS(array)                                                \
    .commands = (array), .count = sizeof(array) / sizeof *(array),             \
    .stride = sizeof *(array)

/* What a command line came to. */
struct options {
    const struct options_program *program;
    const struct options_command *command;
    void *into; /* the struct that has the fields */
    char **operands;
    int operand_count;
    bool help, version; /* asked for: nothing else is checked then */
    uint64_t given;     /* bits of rows */
};

/* Sets fields of `into`, which has defaults; moves operands to the front of argv.
 * ERR_USAGE says which argument is wrong, and how. */
enum err options_parse(const struct options_program *program, int argc,
                       char **argv, void *into, struct options *out);
/* Was it on the command line? It is an option of the command. */
bool options_given(const struct options *options, const char *name);
int options_texts_count(const char *const *texts);

void options_usage(const struct options_program *program, FILE *out);

/* ERR_USAGE: "WHAT GIVEN; did you mean NAME?", of names that NULL ends. */
enum err options_unknown(const char *what, const char *given,
                         const char *const *names);
