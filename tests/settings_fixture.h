/* The schema of the settings tests and a folder for their files. */
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/fsio.h"
#include "src/base/settings/settings.h"
#include "src/base/units.h"
#include "tests/tap.h"

enum kind { ADAMW, LION, SGD };
static const char *const kind_names[] = { "adamw", "lion", "sgd", NULL };

struct values {
    char name[SETTINGS_TEXT_BYTES];
    int64_t batch;
    int64_t tokens;
    double lr;
    double decay;
    bool resume;
    enum kind kind;
    char data[SETTINGS_TEXT_BYTES];
    char cache[SETTINGS_TEXT_BYTES];
    struct duration length;
};

#define AT(field) offsetof(struct values, field)

/* "train" is interleaved with others on purpose. */
static const struct setting schema[] = {
    { "name", SETTING_STRING, AT(name), "run", 0, 0, NULL, "name of the run", 0,
      NULL },
    { "train.global_batch", SETTING_INT, AT(batch), "256", 1, 65536, NULL,
      "samples per step", 0, NULL },
    { "data.path", SETTING_PATH, AT(data), NULL, 0, 0, NULL,
      "folder of the data set", 0, NULL },
    { "train.optimizer.lr", SETTING_FLOAT, AT(lr), "1e-3", 0, 10, NULL,
      "peak learning rate", 0, NULL },
    { "train.optimizer.decay", SETTING_FLOAT, AT(decay), "0", 0, 1e300, NULL,
      "weight decay", 0, NULL },
    { "data.cache", SETTING_PATH, AT(cache), "", 0, 0, NULL, "cache folder", 0,
      NULL },
    { "train.max_tokens", SETTING_INT, AT(tokens), "-1", 0, 0, NULL,
      "limit in tokens", 0, NULL },
    { "train.resume", SETTING_BOOL, AT(resume), "true", 0, 0, NULL,
      "go on from the newest checkpoint", 0, NULL },
    { "train.optimizer.kind", SETTING_CHOICE, AT(kind), "adamw", 0, 0,
      kind_names, "algorithm", 0, NULL },
    { "train.max_duration", SETTING_DURATION, AT(length), "60ba", 0, 0, NULL,
      "length of the run", 0, NULL },
};

enum { COUNT = sizeof schema / sizeof *schema };

static char folder[FSIO_PATH_MAX];

static inline const char *at(const char *name)
{
    static char paths[4][FSIO_PATH_MAX];
    static int next;
    char *path = paths[next++ % 4];
    if (fsio_path(path, "%s/%s", folder, name) != ERR_OK)
        tap_ok(false, "path of %s", name);
    return path;
}

static inline void write_file(const char *name, const char *text)
{
    if (fsio_write_atomic(at(name), text, strlen(text)) != ERR_OK)
        tap_ok(false, "%s", err_text());
}

static inline enum err load(const char *name, const char *override,
                            struct values *out)
{
    char text[SETTINGS_TEXT_BYTES + 100] = "";
    char *overrides[] = { text };
    if (override != NULL)
        strncat(text, override, sizeof text - 1);
    return settings_load(schema, COUNT, name == NULL ? NULL : at(name),
                         overrides, override != NULL, out, NULL);
}

/* False, with a failed point, if there is no place for files. */
static inline bool make_folder(void)
{
    const char *parent = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/tessera-settings-XXXXXX",
             parent != NULL ? parent : "/tmp");
    return tap_ok(mkdtemp(folder) != NULL, "make a temporary folder") &&
           tap_is_int(fsio_mkdirs(at("parts")), ERR_OK, "and one in it");
}
