/* The schema of the settings tests and a folder for their files. */
#pragma once

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
#define ROW(field, key, ...) SETTINGS_ROW(AT(field), key, __VA_ARGS__)
static const struct setting schema[] = {
    ROW(name, "name", STRING, "run", 0, "name of the run"),
    ROW(batch, "train.global_batch", INT(1, 65536), "256", 0,
        "samples per step"),
    ROW(data, "data.path", PATH, NULL, 0, "folder of the data set"),
    ROW(lr, "train.optimizer.lr", FLOAT(0, 10), "1e-3", 0,
        "peak learning rate"),
    ROW(decay, "train.optimizer.decay", FLOAT(0, 1e300), "0", 0,
        "weight decay"),
    ROW(cache, "data.cache", PATH, "", 0, "cache folder"),
    ROW(tokens, "train.max_tokens", INT(0, 0), "-1", 0, "limit in tokens"),
    ROW(resume, "train.resume", BOOL, "true", 0,
        "go on from the newest checkpoint"),
    ROW(kind, "train.optimizer.kind", CHOICE(kind), "adamw", 0, "algorithm"),
    ROW(length, "train.max_duration", DURATION, "60ba", 0, "length of the run"),
};

enum { COUNT = sizeof schema / sizeof *schema };

static const char *folder;

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

static inline void make_folder(void)
{
    folder = tap_folder();
    tap_is_int(fsio_mkdirs(at("parts")), ERR_OK, "a folder for files");
}
