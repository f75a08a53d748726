/* What the files that write to S3 share. */
#pragma once

#include "src/base/array.h"
#include "src/data/remote/store_impl.h"
#include "src/data/remote/store_write.h"

#define STORE_ID_BYTES 1024

/* A text grows: by one as it is, as a value of a query, in which "/" is coded
 * too, or as XML. */
enum err store_say(struct buffer *text, const char *what);
enum err store_say_value(struct buffer *text, const char *value);
enum err store_say_xml(struct buffer *text, const char *value);
/* XML as text, in place. */
void store_plain_xml(char *text);
/* The next <TAG>...</TAG> from *at on, which goes behind it; false: none. */
bool store_next(const struct buffer *text, size_t *at, const char *tag,
                const char **inside, size_t *bytes);
/* The folder's own part of keys, "sets/c4/"; "" for the bucket itself. */
const char *store_folder(const struct store *store,
                         char out[FSIO_PATH_MAX + 1]);
/* Ask for a file, or for the bucket (name NULL); out->header may be set before,
 * out->answer is the caller's to free. */
enum err store_ask(struct store *store, const char *method, const char *name,
                   const char *query, const void *data, size_t bytes,
                   struct store_send *out);
enum err store_md5(const void *data, size_t bytes, uint8_t raw[16]);

/* --- store_parts.c --- */

struct store_parts {
    struct store *store;
    const char *name;
    char id[STORE_ID_BYTES]; /* of the upload; "": none */
    int fd;
    const char *path;
    int64_t bytes, part_bytes;
    int count;
    char (*etags)[128]; /* [count] of parts that are there; "": not */
    uint8_t *room;      /* part_bytes */
};

/* Put the open file; what was missing in an upload before, or all. */
enum err store_put_parts(struct store_parts *parts);
/* Uploads of keys that begin so which were begun and not ended: for each `each`
 * with its name in the folder and its number. *count: so many are in the list, which
 * has not all where they are more than a page. */
enum err store_uploads(struct store *store, const char *prefix,
                       enum err (*each)(void *arg, const char *name,
                                        const char *id),
                       void *arg, int *count);
/* The upload, and with `part` one of it. */
enum err store_ask_upload(struct store_parts *parts, const char *method,
                          int part, const void *data, size_t bytes,
                          struct store_send *send);
