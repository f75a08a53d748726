/* Files by HTTP: requests that fail are sent again, those that take too long a
 * second time beside the first. How a request is addressed and signed is the
 * source's (store_http.c, store_s3.c). */
#pragma once

#include "src/data/remote/store_impl.h"
#include "src/data/remote/store_transfer.h"

struct store_http;

struct store_http_source {
    /* Address and headers of a file, for every request anew. */
    enum err (*request)(struct store *store, const char *name,
                        struct store_request *out);
    /* What to do about the answer, which is final; "" where nothing helps. */
    void (*advise)(struct store *store, const struct store_transfer *answer,
                   char *text, size_t bytes);
};

enum err store_http_create(const struct store_http_source *source,
                           struct store_http **out);
void store_http_destroy(struct store_http *http);
/* As store_get(). */
enum err store_http_get(struct store *store, struct store_http *http,
                        const char *name, const char *path, int64_t expected,
                        int64_t *bytes);
