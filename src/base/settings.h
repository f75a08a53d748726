/* Settings: one schema drives checking, overrides, --help and the resolved
 * configuration file.
 *
 * A program declares a table of `struct setting`; each names a dotted key, a
 * type, the place in the caller's struct, a default, limits and a help line.
 * settings_load() fills the struct from defaults, then a libconfig file, then
 * `key=value` overrides; everything is checked before anything is applied.
 * Unknown keys and wrong types are ERR_USAGE that name file, line and, for a
 * misspelt key, the nearest one (edit distance):
 *
 *   run.cfg:12: unknown setting 'train.global_bacth'; did you mean
 *   'train.global_batch'?
 *
 * Types in the struct: INT int64_t, FLOAT double (accepts whole numbers), BOOL
 * bool, STRING/CHOICE/PATH char[SETTINGS_TEXT_BYTES], DURATION struct duration
 * (written as a string, "60ba"), BYTES int64_t (a string, "8GiB", or a whole
 * number). A PATH from a file is relative to the file's
 * folder, one from the command line or a default to the current folder; all are
 * made absolute; empty stays empty. @include "x" works, x relative to the
 * folder of the first file. Whole numbers of more than 32 bits need libconfig's
 * suffix L in files: without it they are an error, as libconfig would cut them.
 * On the command line strings may be given without quotes. Lists are not
 * supported.
 *
 * A file has at most 256 KiB, 4096 settings and 64 includes, included files
 * counted in: libconfig takes time with the square of these. What was written
 * for other programs, in YAML, JSON, TOML or with the names of their settings,
 * is refused with a hint at how it is written here. */
#ifndef TESSERA_BASE_SETTINGS_H
#define TESSERA_BASE_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "src/base/err.h"

#define SETTINGS_TEXT_BYTES 1024
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
    SETTING_BYTES
};

struct setting {
    const char *key;       /* "train.global_batch" */
    enum setting_type type;
    size_t offset;         /* offsetof(struct ..., field) */
    const char *preset;    /* default as on the command line; NULL: required.
                            * Outside the limits it is ERR_INTERNAL. */
    double min, max;       /* INT, FLOAT, BYTES: inclusive; both 0: no limits */
    const char *choices;   /* CHOICE: "a|b|c". DURATION: "auto" if that is
                            * accepted too (UNIT_AUTO); INT: "auto" if that may be
                            * written for 0 */
    const char *help;      /* one line, with the unit */
};

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
                   char out[SETTINGS_TEXT_BYTES]);

/* ERR_USAGE "place: unknown setting 'key'", with what was probably meant. */
enum err settings_no_such(const struct setting *schema, int count,
                          const char *key, const char *place);

#endif
