/* What the parts of the settings reader share: settings.c puts them together,
 * settings_file.c reads libconfig files, settings_scan.c guards libconfig against
 * what it gets wrong, settings_value.c turns text into checked values,
 * settings_nearest.c guesses which setting was meant, settings_hint.c what was
 * meant by a text that is no libconfig, settings_list.c reads and writes lists
 * of groups, settings_format.c writes. */
#pragma once

#include <libconfig.h>
#include <stdint.h>

#include "src/base/settings/settings.h"

/* The longest dotted key. */
#define SETTINGS_KEY_BYTES 256

/* One checked value, before it is applied; the setting's type says which member
 * holds it. */
struct settings_value {
    bool present;                     /* by default, file or override */
    char place[SETTINGS_PLACE_BYTES]; /* as of struct settings_origin */
    int64_t integer;
    int choice; /* which of the names */
    double number;
    bool truth;
    char text[SETTINGS_VALUE_BYTES]; /* shorter where it is no list */
    struct duration duration;
};

/* A schema and the values found so far, one per setting. */
struct settings_table {
    const struct setting *schema;
    int count;
    struct settings_value *values;
};

/* The index of the key; -1 if the schema has none. */
int settings_find(const struct settings_table *table, const char *key);
/* Whether keys below "group." exist. */
bool settings_is_group(const struct settings_table *table, const char *group);
/* ERR_USAGE for a key that the schema does not have, with the nearest one. */
enum err settings_unknown(const struct settings_table *table, const char *key,
                          const char *place);

/* Give every setting that has one its default; paths are relative to `folder`.
 */
enum err settings_defaults(struct settings_table *table, const char *folder);

/* Store a value of the libconfig type that matches the setting's; checks limits
 * and choices. `place` ("run.cfg:12") begins every error text. A path is taken
 * relative to `folder`, an absolute one. */
enum err settings_value_integer(const struct setting *setting, int64_t integer,
                                const char *place, struct settings_value *out);
enum err settings_value_number(const struct setting *setting, double number,
                               const char *place, struct settings_value *out);
enum err settings_value_string(const struct setting *setting, const char *text,
                               const char *folder, const char *place,
                               struct settings_value *out);
/* Any type from text: defaults and the command line. */
enum err settings_value_parse(const struct setting *setting, const char *text,
                              const char *folder, const char *place,
                              struct settings_value *out);
/* Whether the text from `text` to `end` is not 0 but too small for `number`,
 * which was read from it. */
bool settings_vanishes(const char *text, const char *end, double number);
/* ERR_USAGE "place: 'key' must be <what>, not <found>". */
enum err settings_value_wrong(const struct setting *setting, const char *found,
                              const char *place);
/* "a|b|c" of a list that NULL ends. */
void settings_value_choices(const char *const *names,
                            char out[SETTINGS_TEXT_BYTES]);
/* ERR_USAGE: the text is none of the names, with the nearest, or what others
 * call so is here (NULL: nothing). */
enum err settings_value_no_choice(const char *place, const char *key,
                                  const char *const *names, const char *text,
                                  const char *ours);
/* Copy to and from the caller's struct. */
void settings_value_apply(const struct setting *setting,
                          const struct settings_value *value, void *out);
void settings_value_fetch(const struct setting *setting, const void *values,
                          struct settings_value *out);

/* The current folder; the absolute folder of a file. */
enum err settings_folder_current(char out[SETTINGS_TEXT_BYTES]);
enum err settings_folder_of(const char *path, char out[SETTINGS_TEXT_BYTES]);

/* One value as settings_format() writes it. */
void settings_format_value(FILE *stream, const struct setting *setting,
                           const struct settings_value *value);

/* A list of groups from text, with its defaults: out->text. */
enum err settings_list_value(const struct setting *setting, const char *text,
                             const char *folder, const char *place,
                             struct settings_value *out);

/* The node's value, checked; `place` begins error texts, paths are relative to
 * `folder`. */
enum err settings_node_value(const struct setting *setting,
                             const config_setting_t *node, const char *folder,
                             const char *place, struct settings_value *value);

/* The same of a list of groups (settings_list.h). */
enum err settings_list_node(const struct setting *setting,
                            const config_setting_t *node, const char *folder,
                            const char *place, struct settings_value *value);

/* Read a file into the table: all keys known, all values checked. */
enum err settings_file_read(const char *path, struct settings_table *table);

/* libconfig 1.5 silently cuts whole numbers to 32 bits where there is no L
 * suffix, takes numbers that are too small for 0, drops strings and comments
 * without an end, takes time with the square of its input, and its lexer ends
 * the process when @include names a folder. Look through the file and what it
 * includes (relative to `folder`) for these; other faults are left for
 * libconfig to find. */
enum err settings_scan_file(const char *path, const char *folder);
/* The same for a text that includes nothing; `place` begins errors. */
enum err settings_scan_memory(const char *text, const char *place);
/* The text of a file, NUL-terminated; the caller frees it. */
enum err settings_scan_read(const char *path, size_t bytes_max, char **text,
                            size_t *bytes);
#define SETTINGS_SCAN_BYTES_MAX ((size_t)256 << 10)

/* The schema's key or group that `key` was probably meant to be; NULL if none
 * is near. Compares whole keys, and last components for keys that stand in the
 * wrong group or in none. The text lives in `out`. */
const char *settings_nearest(const struct setting *schema, int count,
                             const char *key, char out[SETTINGS_KEY_BYTES]);
/* The schema's setting that other programs call so, by the whole key or its last
 * component, in any case and with dashes; NULL: none. *note: what to know of it,
 * or behind a ! why there is nothing like it here. */
const struct setting *settings_foreign(const struct settings_table *table,
                                       const char *key, const char **note);
/* The same of a choice: what it is here. */
const char *settings_foreign_choice(const struct setting *setting,
                                    const char *text);

/* What a text is that can't be libconfig, and how that is written here; NULL if
 * it could be libconfig by what it begins with, in *line. `bytes` without the
 * NUL at its end. */
const char *settings_hint_format(const char *text, size_t bytes, int *line);
/* What may be wrong with a text in which libconfig finds a syntax error in
 * `line`. */
void settings_hint_line(const char *text, int line,
                        char hint[SETTINGS_PLACE_BYTES]);
/* Edits (insertion, deletion, substitution, swap of neighbours) between two
 * texts, of which at most 255 bytes are compared; upper and lower case are the
 * same. */
int settings_nearest_edits(const char *a, const char *b);
