/* What the two files of home.h share. */
#pragma once

#include "src/data/remote/cache.h"
#include "src/data/remote/store.h"
#include "src/mirror/home.h"

enum home_kind { KIND_CHECKPOINT, KIND_RUN, KIND_FOLDER, KIND_FILE, KIND_TREE };

struct home_entry {
    const char *name; /* in the folder of the store */
    int64_t bytes;
};

struct home_copy {
    struct home_copy *next;
    char given[FSIO_PATH_MAX],
        exact[FSIO_PATH_MAX]; /* without what follows "#NAME" */
    enum home_what what;
    enum home_kind kind;
    const char *only;         /* of a file its name in the folder; "": all */
    char path[FSIO_PATH_MAX]; /* "": not there yet */
    struct cache *cache;
    char *text; /* the list, which the entries lend from */
    struct home_entry *entries;
    int64_t count, room;
};

/* The last part of a path. Lent. */
const char *home_last(const char *path);
/* ADDRESS, #STEP (*step, else -1) and #NAME, with its "#", apart. */
enum err home_cut(const char *given, char url[FSIO_PATH_MAX], int64_t *step,
                  char name[64]);
/* What copy->exact, as it was given, means: its kind and what exactly. */
enum err home_find(struct home_copy *copy, int64_t step,
                   const struct store_options *options);
