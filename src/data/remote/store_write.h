/* Writing to a store, beside the reading of store.h: s3:// alone. With the same
 * signatures, deadlines and repetitions; what will not pass (403, no bucket) is
 * ERR_DATA at once and says what to do. A file is there whole or not at all:
 * that is S3's own promise. Any number of threads at once. */
#pragma once

#include "src/data/remote/store.h"

/* ERR_USAGE for a store that can only be read. */
enum err store_writable(const struct store *store);

/* Make or replace the file `name` of the folder. */
enum err store_put(struct store *store, const char *name, const void *data,
                   size_t bytes);

/* The same from a file of this machine, which must have so many bytes. What is
 * larger than STORE_PART_BYTES goes in parts, at most STORE_PARTS_MAX; parts
 * that an upload left, which was cut off, are not sent again where they are the
 * same bytes by their MD5. */
#define STORE_PART_BYTES ((int64_t)16 << 20)
#define STORE_PARTS_MAX 1000
enum err store_put_file(struct store *store, const char *name, const char *path,
                        int64_t bytes);

/* Names in the folder that begin with `prefix`, in their order, without the
 * folder's own; with `folders` those up to the next "/" behind the prefix, once
 * each, and no deeper. */
struct store_name {
    char *name;
    int64_t bytes; /* -1: a folder */
    char etag
        [48]; /* its contents' sign, cut, or where the store has none its time;
                      "" of a folder */
};
struct store_names {
    struct store_name *list;
    int count, capacity;
};
enum err store_list(struct store *store, const char *prefix, bool folders,
                    struct store_names *out);
/* The first page of those behind the name `after`; *more: there are others. A list
 * of more than STORE_NAMES_MAX is ERR_DATA, above. */
#define STORE_NAMES_MAX (1 << 22)
enum err store_list_page(struct store *store, const char *prefix, bool folders,
                         const char *after, struct store_names *out,
                         bool *more);
/* Zeros are fine. */
void store_names_free(struct store_names *names);

/* Whether there is this very file, and with how many bytes; -1: there is none. */
enum err store_size(struct store *store, const char *name, int64_t *bytes);

/* Remove the file `first`, then, when it is gone, all whose names begin with
 * `prefix`, and what uploads that were cut off have left of such. */
enum err store_remove(struct store *store, const char *first,
                      const char *prefix);
