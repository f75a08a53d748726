/* Where files of a data set come from when that is no folder of this machine:
 * file://, http://, https:// and s3://, each a row of store_impl.h.
 *
 * A store is one folder there; its files are fetched whole. store_get() may be
 * called by any number of threads at once. What may pass (a lost connection, a
 * server's 5xx or 429) is tried again with growing pauses, as long as the
 * deadline allows; what will not (403, 404) is an error at once, and says what
 * to do. No error or log line has a password, secret key or token in it.
 *
 * Environment: HTTP(S)_PROXY, NO_PROXY, CURL_CA_BUNDLE and ~/.netrc as for
 * curl; of s3 what store_keys.h and store_s3.c say. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "src/base/err.h"

/* The most of a file whose length is not known before: an index. */
#define STORE_BYTES_MAX ((int64_t)256 << 20)

struct store;

struct store_options {
    /* seconds that a file may take, and one more for each MiB of it */
    double deadline_s;
    /* Begin a transfer a second time when it takes so many times the median of
     * the last ones; 0: never. */
    double hedge;
    /* Whether to end soon, as after store_stop(); asked by any thread. NULL: never. */
    bool (*ended)(void);
};

/* ERR_USAGE for an address that is malformed or of another scheme. Nothing is
 * fetched yet. */
enum err store_open(const char *url, const struct store_options *options,
                    struct store **out);
void store_close(struct store *store);

/* Fetch the file `name` of the folder to `path`, which is made or replaced and
 * is whole only when this returns ERR_OK; the caller removes it otherwise.
 * `expected`: its length, where anything else is ERR_DATA; -1: not known, then
 * at most STORE_BYTES_MAX. ERR_DATA where there is no such file or it may not
 * be read; ERR_IO when the deadline has passed, with how far it came. *bytes
 * is its length. */
enum err store_get(struct store *store, const char *name, const char *path,
                   int64_t expected, int64_t *bytes);

/* The path of a file that needs no fetching, into path[FSIO_PATH_MAX]; false:
 * there is no such way. */
bool store_local(const struct store *store, const char *name, char *path);

/* From now on, while none is at it. */
void store_deadline(struct store *store, double deadline_s);

/* Let every store_get() end soon, with ERR_IO, now and until `stop` is false.
 */
void store_stop(struct store *store, bool stop);

/* Either of the two says so. */
bool store_ends(const struct store *store);

/* As it was given. Lent. */
const char *store_address(const struct store *store);
/* Where it is asked for, if the address does not say: an endpoint of s3; else "". Lent. */
const char *store_service(const struct store *store);
