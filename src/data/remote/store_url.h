/* Addresses of data sets, "https://host/sets/c4", and what a store answers
 * instead of an object. All of it comes from outside: whatever the bytes are,
 * nothing is read beyond them. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "src/base/err.h"
#include "src/base/fsio.h"

struct store_url {
    char scheme[16];          /* lower case: "s3" */
    char place[256];          /* host, host:port or bucket; "" for file */
    char path[FSIO_PATH_MAX]; /* "/sets/c4", without a "/" at its end */
};

/* Whether the text is an address at all, "WORD://...". */
bool store_url_is(const char *text);

/* ERR_USAGE where it is malformed, and for what an address of a data set may
 * not have: a user or password (it would be written to the run's files; say
 * where it belongs), "?", "#", control characters, "..", and blanks but for
 * those of S3's keys, which are not encoded. */
enum err store_url_parse(const char *text, struct store_url *out);

/* What stands in an address as it is. */
bool store_url_is_plain(char c);
/* PATH/NAME with what is no letter, digit or one of "-._~/" as %XX of its
 * bytes. `keep`: the path is so already, and only the name is encoded.
 * ERR_USAGE when longer than `bytes`. */
enum err store_url_encode(const char *path, const char *name, bool keep,
                          char *out, size_t bytes);

/* The other way round, in place; ERR_USAGE for a "%" without two digits, and
 * for %00. */
enum err store_url_decode(char *text);

/* The text of the first <TAG>...</TAG> of S3's answer, cut to the room and
 * without control characters; "" where there is none. */
void store_url_tag(const char *body, size_t body_bytes, const char *tag,
                   char *out, size_t bytes);

/* KEY = VALUE in [section] of a file as ~/.aws/credentials, blanks around the
 * value removed. false: there is none, or it does not fit. */
bool store_url_ini(const char *text, const char *section, const char *key,
                   char *out, size_t bytes);
