/* Settings: one schema drives checking, overrides, --help, the manual page and
 * the resolved configuration file.
 *
 * A program declares a table of `struct setting`; each names a dotted key, a
 * type, the place in the caller's struct, a default, limits and a help line.
 * A group of settings is a list of rows, of which each gives both the entry of
 * the table and the field of the struct (SETTINGS_FIELD, SETTINGS_ROW).
 * settings_load() fills the struct from defaults, then a libconfig file, then
 * `key=value` overrides; everything is checked before anything is applied.
 * Unknown keys and wrong types are ERR_USAGE that name file, line and, for a
 * misspelt key, the nearest one (edit distance):
 *
 *   run.cfg:12: unknown setting 'train.global_bacth'; did you mean
 *   'train.global_batch'?
 *
 * Types in the struct: INT int64_t, FLOAT double (accepts whole numbers), BOOL
 * bool, STRING/PATH char[SETTINGS_TEXT_BYTES], CHOICE an enum (a string, one of
 * the enum's names), DURATION struct duration (written as a string, "60ba"),
 * BYTES int64_t (a string, "8GiB", or a whole number). A PATH from a file is
 * relative to the file's folder, one from the command line or a default to the
 * current folder; all are made absolute; empty stays empty. @include "x" works,
 * x relative to the folder of the first file. Whole numbers of more than 32
 * bits need libconfig's suffix L in files: without it they are an error, as
 * libconfig would cut them. On the command line strings may be given without
 * quotes. LIST is a list of groups (settings_list.h); other lists and arrays
 * are not supported.
 *
 * A file has at most 256 KiB, 4096 settings and 64 includes, included files
 * counted in: libconfig takes time with the square of these. What was written
 * for other programs, in YAML, JSON, TOML or with the names of their settings,
 * is refused with a hint at how it is written here. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "src/base/err.h"
#include "src/base/units.h"

#define SETTINGS_TEXT_BYTES 1024
/* The longest text of any setting, a list's, with its end. */
#define SETTINGS_VALUE_BYTES 8192
/* Limits from here on are told only to those who have gone beyond them. */
#define SETTINGS_LARGE 1e15
/* Room for "path:line" in error texts; longer ones are cut. */
#define SETTINGS_PLACE_BYTES 256

enum setting_type {
    SETTING_INT,
    SETTING_FLOAT,
    SETTING_BOOL,
    SETTING_STRING,
    SETTING_PATH,
    SETTING_CHOICE,
    SETTING_DURATION,
    SETTING_BYTES,
    SETTING_LIST
};

/* What a program has to know of a setting besides its value. Those from
 * SETTING_OWN on are the program's. */
enum setting_flag {
    SETTING_AUTO = 1,    /* "auto" may be written: INT 0, DURATION UNIT_AUTO */
    SETTING_DECIDES = 2, /* the result of a run depends on it */
    SETTING_STAYS = 4, /* the same, and a run keeps what it was started with */
    SETTING_LOCAL = 8, /* ranks of one run may have different values */
    SETTING_ADDRESS = 16,     /* PATH: "https://..." may be written, as it is */
    SETTING_STAYS_ADDED = 32, /* SETTING_STAYS, but of later versions: a run
                                 that does not tell its value has the default */
    SETTING_OWN = 64
};

#define SETTING_THEIRS 10

/* What a group in a LIST may be (settings_list.h). A table of them ends with one
 * without help. */
struct settings_kind {
    const char *name; /* NULL: the only kind of its list, items have no name */
    const char *help; /* one line */
    const struct setting *schema;
    int count;
};

struct setting {
    const char *key; /* "train.global_batch" */
    enum setting_type type;
    size_t offset;      /* offsetof(struct ..., field) */
    const char *preset; /* default as on the command line; NULL: required.
                            * Outside the limits it is ERR_INTERNAL. */
    double min, max;    /* INT, FLOAT, BYTES: inclusive; both 0: no limits */
    const char *const *names;          /* CHOICE: by value, NULL-terminated */
    const char *help;                  /* one line, with the unit */
    unsigned flags;                    /* enum setting_flag */
    const struct settings_kind *kinds; /* LIST: of items, ends with NULL help */
    const char *theirs[SETTING_THEIRS]; /* what other programs call it */
};

/* Entries of `theirs`: names with a blank between (in small letters with _; how
 * they begin, with a *), and what to know, where help does not say it; names of
 * something that is not here, and why; choices, and what they are here. */
#define ALSO(names) names
#define THEIRS(names, note) names "\t" note
#define NOT_HERE(names, why) names "\t!" why
#define CHOICES(names, ours) "=" names "\t" ours

typedef char settings_text_field[SETTINGS_TEXT_BYTES];
typedef char settings_list_field[SETTINGS_VALUE_BYTES];

/* A group of settings is a macro
 *
 *     #define NAME_SETTINGS(S) S(group, TYPE, field, default, flags, help) ...
 *
 * with one entry per setting, whose key is "group.field"; behind help may stand
 * .theirs = { ... }. TYPE is INT(min,
 * max), FLOAT(min, max), BYTES(min, max), BOOL, STRING, PATH, DURATION,
 * CHOICE(name) of an `enum name` with a table `name_names`, INDEX(name) of such
 * a table without an enum, or LIST(name) of kinds in a table `name_kinds`. */
#define SETTINGS_STRUCT(settings)                                              \
    struct {                                                                   \
        settings(SETTINGS_FIELD)                                               \
    }
#define SETTINGS_FIELD(group, type, field, ...) SETTINGS_CTYPE_##type field;
#define SETTINGS_CTYPE_INT(min, max) int64_t
#define SETTINGS_CTYPE_FLOAT(min, max) double
#define SETTINGS_CTYPE_BYTES(min, max) int64_t
#define SETTINGS_CTYPE_BOOL bool
#define SETTINGS_CTYPE_STRING settings_text_field
#define SETTINGS_CTYPE_PATH settings_text_field
#define SETTINGS_CTYPE_DURATION struct duration
#define SETTINGS_CTYPE_CHOICE(name) enum name
#define SETTINGS_CTYPE_INDEX(name) int
#define SETTINGS_CTYPE_LIST(name) settings_list_field

/* The entry of the table for the key `name`, whose field is `at` so many bytes
 * into the struct. */
#define SETTINGS_ROW(at, name, type_, default_, flags_, ...)                   \
    {                                                                          \
        .key = (name), .offset = (at), .preset = (default_),                   \
        .flags = (flags_), SETTINGS_TYPE_##type_, .help = __VA_ARGS__          \
    }
#define SETTINGS_TYPE_INT(low, high)                                           \
    .type = SETTING_INT, .min = (low), .max = (high)
#define SETTINGS_TYPE_FLOAT(low, high)                                         \
    .type = SETTING_FLOAT, .min = (low), .max = (high)
#define SETTINGS_TYPE_BYTES(low, high)                                         \
    .type = SETTING_BYTES, .min = (low), .max = (high)
#define SETTINGS_TYPE_BOOL .type = SETTING_BOOL
#define SETTINGS_TYPE_STRING .type = SETTING_STRING
#define SETTINGS_TYPE_PATH .type = SETTING_PATH
#define SETTINGS_TYPE_DURATION .type = SETTING_DURATION
#define SETTINGS_TYPE_CHOICE(name) .type = SETTING_CHOICE, .names = name##_names
#define SETTINGS_TYPE_INDEX(name) SETTINGS_TYPE_CHOICE(name)
#define SETTINGS_TYPE_LIST(name) .type = SETTING_LIST, .kinds = name##_kinds

/* Where a setting was set: "run.cfg:12", "command line"; "": by default. */
struct settings_origin {
    char place[SETTINGS_PLACE_BYTES];
};

/* path may be NULL (defaults and overrides only). overrides: "key=value". A
 * required setting that is missing is an error naming key and help. `origins`,
 * if not NULL, has `count` entries. */
enum err settings_load(const struct setting *schema, int count,
                       const char *path, char *const *overrides,
                       int override_count, void *out,
                       struct settings_origin *origins);

/* Whether the setting was given, by file or override. */
bool settings_given(const struct setting *schema, int count,
                    const struct settings_origin *origins, const char *key);

/* Who is to blame for what an error text says of settings that don't go
 * together: the place of one that it names and that was given, the command line
 * before a file; `otherwise` if it names none. */
const char *settings_blame(const struct setting *schema, int count,
                           const struct settings_origin *origins,
                           const char *text, const char *otherwise);

/* The complete configuration as libconfig text, keys in schema order, grouped;
 * loading it gives the same struct. *text is malloc'ed. */
enum err settings_format(const struct setting *schema, int count,
                         const void *values, char **text);

/* One line per setting: key, type or choices, value, help. The value is the
 * default, or what `values`, if not NULL, has; a
 * required setting that is empty or 0 is "(required)". */
void settings_help(const struct setting *schema, int count, const void *values,
                   FILE *out);

/* One setting as on the command line; the fewest digits that read back as the
 * same number. */
void settings_text(const struct setting *setting, const void *values,
                   char out[SETTINGS_VALUE_BYTES]);

/* One setting of a struct into another of the same schema. */
void settings_copy(const struct setting *setting, const void *from, void *to);

/* ERR_USAGE "place: unknown setting 'key'", with what was probably meant. */
enum err settings_no_such(const struct setting *schema, int count,
                          const char *key, const char *place);

/* The name of a list that NULL ends that is nearest to the text; NULL if none is
 * near. */
const char *settings_nearest_choice(const char *const *names, const char *text);

struct config_t; /* libconfig's */
/* A libconfig file of whatever content, read as safely and with as clear errors
 * as one of settings, into `config`, which the caller initialises and destroys.
 * `folder` becomes that of the file, absolute, where what @include names is
 * looked for. ERR_USAGE names file and line. */
enum err settings_parse(const char *path, char folder[SETTINGS_TEXT_BYTES],
                        struct config_t *config);
