/* What a scheme of addresses provides (src/data/remote/store.h). A further one
 * is a file with its row, declared and listed below. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "src/data/remote/store.h"
#include "src/data/remote/store_url.h"

struct store {
    char address[FSIO_PATH_MAX];
    struct store_url url;
    struct store_options options;
    const struct store_scheme *scheme;
    void *state;         /* the scheme's */
    atomic_bool stopped; /* by store_stop() */
    pthread_mutex_t mutex;
    int64_t hedges; /* second transfers so far, under the mutex */
};

struct store_scheme {
    const char *name;
    enum err (*open)(struct store *store);
    void (*close)(struct store *store); /* NULL: nothing to do */
    /* As store_get(). */
    enum err (*get)(struct store *store, const char *name, const char *path,
                    int64_t expected, int64_t *bytes);
};

extern const struct store_scheme store_file_scheme;
extern const struct store_scheme store_http_scheme;
extern const struct store_scheme store_https_scheme;
extern const struct store_scheme store_s3_scheme;
#define STORE_SCHEMES                                                          \
    &store_file_scheme, &store_http_scheme, &store_https_scheme,               \
        &store_s3_scheme
