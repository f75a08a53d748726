/* What a scheme of addresses provides (src/data/remote/store.h). A further one
 * is a file with its row, declared and listed below. */
#pragma once

#include <stdatomic.h>

#include "src/base/array.h"
#include "src/data/remote/store.h"
#include "src/data/remote/store_url.h"

struct store_http;
struct store_request;
struct store_transfer;

/* A request that is not for a file: what goes, and what comes back. */
struct store_send {
    const char *method;
    const char *query;  /* canonical; "": none */
    const char *header; /* one more; NULL: none */
    bool bucket;        /* asks the bucket, not a file of the folder */
    const uint8_t *data;
    size_t bytes, sent;
    char sha256[65];      /* of the data */
    char etag[128];       /* of the answer */
    struct buffer answer; /* its text; the caller frees it */
};

struct store {
    char address[FSIO_PATH_MAX];
    char service[FSIO_PATH_MAX]; /* the scheme's open() may fill it */
    struct store_url url;
    struct store_options options;
    const struct store_scheme *scheme;
    void *state;             /* the scheme's, malloc'ed */
    atomic_bool stopped;     /* by store_stop() */
    struct store_http *http; /* of schemes that go by HTTP */
};

struct store_scheme {
    const char *name;
    enum err (*open)(struct store *store);
    /* As store_get(). */
    enum err (*get)(struct store *store, const char *name, const char *path,
                    int64_t expected, int64_t *bytes);
    /* A scheme that goes by HTTP has these two, and store_http_get(); others
     * have NULL. Address and headers of a request, for every one anew; send NULL:
     * for a file, as with schemes that cannot be written to. */
    enum err (*request)(struct store *store, const char *name,
                        const struct store_send *send,
                        struct store_request *out);
    /* What to do about the answer, which is final; "" where nothing helps. */
    void (*advise)(struct store *store, const struct store_transfer *answer,
                   char *text, size_t bytes);
};

enum err store_http_create(struct store_http **out);
void store_http_destroy(struct store_http *http);
/* As store_get(). Requests that fail are sent again, those that take too long a
 * second time beside the first. */
enum err store_http_get(struct store *store, const char *name, const char *path,
                        int64_t expected, int64_t *bytes);
/* Send until it has been answered; other than success (2xx) as store_get(). The
 * whole request is sent again where it has failed. */
enum err store_http_send(struct store *store, const char *name,
                         struct store_send *send);

extern const struct store_scheme store_file_scheme;
extern const struct store_scheme store_http_scheme;
extern const struct store_scheme store_https_scheme;
extern const struct store_scheme store_s3_scheme;
#define STORE_SCHEMES                                                          \
    &store_file_scheme, &store_http_scheme, &store_https_scheme,               \
        &store_s3_scheme
