/* What a format of columns does for columns.h, and the table of those there are. A
 * file is a tree of columns, whose leaves have values, and groups of rows that come
 * one after the other. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"

/* A column as it is stored: a leaf of the tree of columns. A value has levels:
 * how much of its path is there (up to `defined`), and whether it goes on in a
 * list (above 0). */
struct columns_leaf {
    char *path;        /* "messages.list.element.role" */
    size_t top, last;  /* bytes of its first name; where its last one begins */
    size_t number;     /* of all leaves */
    const char *wrong; /* why it is no text; NULL: it is */
    int defined, repeated; /* highest levels */
    int list;   /* a value of this level or above is in the outermost list; of
                 * one level less: in one that is empty */
    int inside; /* names of its path behind that list's repeated one */
};

struct columns_value {
    bool begins;         /* a row, rather than going on in its list */
    int defined;         /* its level */
    const uint8_t *text; /* lent until the next one; NULL: there is none */
    size_t bytes;
};

/* A file that is open; a format's own begins with it. */
struct columns_file {
    char *path;
    int fd;
    struct columns_leaf *leaf;
    size_t leaves, leaves_capacity, groups;
    int64_t *rows; /* of each group */
};

struct columns_format {
    const char *name, *group; /* "Parquet"; what it calls a group of rows */
    const char *ends[2];      /* of its files' names: ".parquet" */
    const char *remedy;       /* for what a column has that is not read here */
    /* A regular file: its leaves, then, when some of them are chosen, in their
     * order, its groups. */
    enum err (*open)(const char *path, struct columns_file **out);
    enum err (*choose)(struct columns_file *file,
                       const struct columns_leaf *const *chosen, size_t count);
    void (*close)(struct columns_file *file);
    /* A group, never one before the last. */
    void (*begin)(struct columns_file *file, size_t group);
    /* The next value of chosen[column]; *more false: there is no group, or this is
     * its end. Errors are said of the column: "is damaged". */
    enum err (*next)(struct columns_file *file, size_t column,
                     struct columns_value *out, bool *more);
    int64_t (*position)(const struct columns_file *file);
};
#define COLUMNS_FORMAT(name_, group_, ...)                                     \
    .name = (name_), .group = (group_), .ends = { __VA_ARGS__ }

extern const struct columns_format parquet_format, arrow_format;
#define COLUMNS_FORMATS &parquet_format, &arrow_format

/* --- for formats: the way from the root to a leaf, name by name --- */

/* No column's path is longer, no file has more, none lies deeper. */
#define COLUMNS_PATH_BYTES 1024
#define COLUMNS_MAX 16384
#define COLUMNS_DEPTH_MAX 32

struct columns_way {
    size_t bytes, top, last; /* of the path, its first name, before its last */
    int defined, repeated, list, inside;
};

/* One name further in `path`, of COLUMNS_PATH_BYTES. What is wrong with it as
 * "has a ..", or NULL. */
const char *columns_leaf_name(struct columns_way *way, char *path,
                              const uint8_t *name, size_t bytes);
/* It may be there or not; it may be there any number of times, as a list's
 * elements. */
void columns_leaf_level(struct columns_way *way, bool repeated);
enum err columns_leaf_add(struct columns_file *file, const char *path,
                          const struct columns_way *way, const char *wrong);
/* Open it, a regular one of *bytes, in zeros. _close(): all that this struct has, and
 * the memory of the file itself, also after an error. */
enum err columns_leaf_open(struct columns_file *file, const char *path,
                           int64_t *bytes);
void columns_leaf_close(struct columns_file *file);
