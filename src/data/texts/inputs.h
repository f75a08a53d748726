/* The files that a command line names: files, folders and stdin. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"

struct columns_format;

struct inputs_file {
    char *path;         /* "-": stdin */
    int64_t bytes;      /* -1: not a regular file */
    int64_t changed_ns; /* when it was changed last */
    bool json;          /* JSON lines */
    bool set;           /* a folder, an MDS data set: size and time are those of
                         * its index */
    /* Parquet or Arrow; NULL: neither. None of these: text */
    const struct columns_format *columns;
};

/* What files hold: by their names, or all the same. */
enum inputs_kind { INPUTS_BY_NAME, INPUTS_TEXT, INPUTS_JSON };

/* Files of folders that were left out as no text, by the reason. */
#define INPUTS_KINDS_MAX 24
struct inputs_passed {
    const char *why;
    size_t files;
};

struct inputs {
    struct inputs_file *file;
    size_t count, capacity;
    struct inputs_passed passed[INPUTS_KINDS_MAX]; /* the last: all others */
    char *passed_first;                            /* a path; NULL: none */
    const char *remedy; /* what would have read some of them; NULL: nothing */
    size_t folders;     /* that were named */
    size_t hidden;      /* files and folders that were left out */
    size_t by_name;     /* JSON lines that only their names tell of */
    enum inputs_kind kind;
    bool binary; /* not only text */
    /* set before inputs_find(), lent: which files of folders; source_open()'s */
    const char *split, *encoding;
};

/* Files in the given order; in place of a folder all that is in it and in its
 * folders, sorted by name, without what is hidden (".name"). Links to files are
 * followed. INPUTS_BY_NAME: those are JSON lines, but of stdin, whose names end
 * in .jsonl, .ndjson or .json, before .gz, .zst, .bz2 or .br. Files of a folder
 * that are no text, by their beginnings, are passed over unless `binary`; those
 * that are named are kept, so that their reader refuses them. ERR_DATA for a
 * missing file, a folder with nothing in it, a link to a folder or to nothing
 * in one, and a data set. Files whose names say so are of columns
 * (columns_by_name()), but for INPUTS_TEXT.
 *
 * A folder with such files and, beside them, README, LICENSE, dataset_info*,
 * dataset_dict*, state.json, *.md or _* alone, is one of the Hugging Face hub's, of
 * Python's datasets, or of Spark: those are passed over, and if the names of what it
 * has tell of several splits (as datasets reads them: test.parquet, valid/..,
 * data/train-00000-of-00010.parquet, train/data-00000-of-00001.arrow), `split` has to
 * say which: "train", "validation", "test" or another one's own name; "all" for
 * all. ERR_USAGE where it does not, or there is no folder. Elsewhere they are
 * passed over. inputs_release() also after an error. */
enum err inputs_find(char *const *operands, int count, enum inputs_kind kind,
                     bool binary, struct inputs *out);
/* INPUTS_JSON where a field is named; ERR_USAGE for both. */
enum err inputs_choose(bool text, const char *field, enum inputs_kind *out);
/* ERR_USAGE where a separator is wanted (not NULL) and no input is text, which
 * it could divide. */
enum err inputs_check_separator(const struct inputs *inputs,
                                const char *separator);
/* Log what was decided without being asked. */
void inputs_tell(const struct inputs *inputs);
/* The same as inputs_find() of MDS data sets alone. */
enum err inputs_find_sets(char *const *operands, int count, struct inputs *out);
void inputs_release(struct inputs *inputs);

/* One document, or several between separators. */
static inline bool inputs_is_text(const struct inputs_file *file)
{
    return !file->json && !file->set && file->columns == NULL;
}

/* Bytes of all; -1: unknown, as one is no regular file, which could be read again.
 */
int64_t inputs_bytes(const struct inputs *inputs);

/* ERR_DATA when the file is not what it was when it was found. */
enum err inputs_check(const struct inputs_file *file);

/* Files of prompts (prompt_file.c): a .jsonl has a record with a text "prompt"
 * on each line, any other file a prompt on each line, which may end with a
 * carriage return. */

/* Whether it can be read: it is there, and a regular file or a descriptor that
 * the process was given (regular_readable()). */
enum err prompt_file_check(const char *path);

/* Gives each to `take`, lent, whose failures are prefixed with the place.
 * ERR_USAGE: it cannot be read, or there is no prompt in it. */
enum err prompt_file_read(const char *path,
                          enum err (*take)(void *arg, const char *text,
                                           size_t bytes),
                          void *arg);
