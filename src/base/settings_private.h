/* What the parts of the settings reader share: settings.c puts them together,
 * settings_file.c reads libconfig files, settings_scan.c guards libconfig
 * against what it gets wrong, settings_value.c turns text into checked values,
 * settings_nearest.c guesses what was meant, settings_format.c writes. */
#ifndef TESSERA_BASE_SETTINGS_PRIVATE_H
#define TESSERA_BASE_SETTINGS_PRIVATE_H

#include <stdint.h>

#include "src/base/settings.h"
#include "src/base/units.h"

/* The longest dotted key. */
#define SETTINGS_KEY_BYTES 256
/* Room for "path:line" in error texts; longer ones are cut. */
#define SETTINGS_PLACE_BYTES 256

/* One checked value, before it is applied; the setting's type says which member
 * holds it. */
struct settings_value {
    bool present; /* by default, file or override */
    bool given;   /* by file or override */
    int64_t integer;
    double number;
    bool truth;
    char text[SETTINGS_TEXT_BYTES];
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
/* ERR_USAGE "place: 'key' must be <what>, not <found>". */
enum err settings_value_wrong(const struct setting *setting, const char *found,
                              const char *place);
/* Copy to and from the caller's struct. */
void settings_value_apply(const struct setting *setting,
                          const struct settings_value *value, void *out);
void settings_value_fetch(const struct setting *setting, const void *values,
                          struct settings_value *out);

/* The current folder; the absolute folder of a file. */
enum err settings_folder_current(char out[SETTINGS_TEXT_BYTES]);
enum err settings_folder_of(const char *path, char out[SETTINGS_TEXT_BYTES]);

/* Read a file into the table: all keys known, all values checked. */
enum err settings_file_read(const char *path, struct settings_table *table);

/* libconfig 1.5 silently cuts whole numbers to 32 bits where there is no L
 * suffix, drops strings and comments without an end, and its lexer ends the
 * process when @include names a folder. Look through the file and what it
 * includes (relative to `folder`) for these; other faults are left for
 * libconfig to find. */
enum err settings_scan_file(const char *path, const char *folder);

/* The schema's key or group that `key` was probably meant to be; NULL if none
 * is near. Compares whole keys, and last components for keys that stand in the
 * wrong group or in none. The text lives in `out`. */
const char *settings_nearest(const struct setting *schema, int count,
                             const char *key, char out[SETTINGS_KEY_BYTES]);
/* Edits (insertion, deletion, substitution, swap of neighbours) between two
 * texts, of which at most 255 bytes are compared. */
int settings_nearest_edits(const char *a, const char *b);

#endif
