/* Groups of libconfig into structs by a table of their fields. */
#pragma once

#include <libconfig.h>
#include <stdbool.h>
#include <stddef.h>

#include "src/base/err.h"

enum gauntlet_file_type {
    GAUNTLET_FILE_TEXT,   /* const char *, lent by libconfig */
    GAUNTLET_FILE_WHOLE,  /* int64_t from 0 on */
    GAUNTLET_FILE_NUMBER, /* double */
    GAUNTLET_FILE_TRUTH,  /* bool */
    GAUNTLET_FILE_OTHER   /* the caller reads it: a list, or several types */
};

struct gauntlet_file_field {
    const char *name;
    enum gauntlet_file_type type;
    size_t offset;
    bool needed;
};

/* ERR_USAGE "line N: ...": what is missing, unknown, or of another type. */
enum err gauntlet_file_group(const config_setting_t *group,
                             const struct gauntlet_file_field *fields,
                             int count, void *out);

/* A member that is a list or an array; *list NULL: there is none. */
enum err gauntlet_file_list(const config_setting_t *group, const char *name,
                            const config_setting_t **list, int *count);

enum err gauntlet_file_wrong(const config_setting_t *at, const char *format,
                             ...) __attribute__((format(printf, 2, 3)));
