/* Opens an address by its scheme. How files travel is the scheme's
 * (store_impl.h). */
#include "src/data/remote/store.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/new.h"
#include "src/data/remote/store_impl.h"

static const struct store_scheme *const store_schemes[] = { STORE_SCHEMES };
#define STORE_SCHEME_COUNT (sizeof store_schemes / sizeof store_schemes[0])

enum err store_open(const char *url, const struct store_options *options,
                    struct store **out)
{
    assert(options->deadline_s > 0);
    enum err rc = ERR_OK;
    struct store *store = NULL;
    TRY(new_zeroed(&store, 1));
    store->options = *options;
    TRY_OUT(store_url_parse(url, &store->url));
    TRY_OUT(fsio_path(store->address, "%s", url));
    const struct store_scheme *scheme = NULL;
    for (size_t s = 0; s < STORE_SCHEME_COUNT && scheme == NULL; s++)
        if (strcmp(store_schemes[s]->name, store->url.scheme) == 0)
            scheme = store_schemes[s];
    if (scheme == NULL)
        TRY_OUT(err_set(ERR_USAGE,
                        "%s: there is no '%s://'; give a folder, or an address "
                        "with file://, http://, https:// or s3://",
                        url, store->url.scheme));
    store->scheme = scheme;
    TRY_OUT(scheme->open(store));
    if (scheme->request != NULL)
        TRY_OUT(store_http_create(&store->http));
out:
    return new_or_none(rc, store, out, store_close);
}

void store_close(struct store *store)
{
    if (store == NULL)
        return;
    store_http_destroy(store->http);
    free(store->state);
    free(store);
}

enum err store_get(struct store *store, const char *name, const char *path,
                   int64_t expected, int64_t *bytes)
{
    assert(name != NULL && path != NULL && expected >= -1);
    TRY(store->scheme->get(store, name, path, expected, bytes));
    assert(expected < 0 || *bytes == expected);
    return ERR_OK;
}

bool store_local(const struct store *store, const char *name, char *path)
{
    return store->scheme == &store_file_scheme &&
           fsio_path(path, "%s/%s", store->url.path, name) == ERR_OK;
}

void store_deadline(struct store *store, double deadline_s)
{
    store->options.deadline_s = deadline_s;
}

void store_stop(struct store *store, bool stop)
{
    atomic_store(&store->stopped, stop);
}

bool store_ends(const struct store *store)
{
    return atomic_load(&store->stopped) ||
           (store->options.ended != NULL && store->options.ended());
}

const char *store_address(const struct store *store)
{
    return store->address;
}

const char *store_service(const struct store *store)
{
    return store->service;
}
