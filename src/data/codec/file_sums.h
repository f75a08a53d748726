/* The checksums that an index has for a file, computed together as its bytes
 * pass, so that nothing is read for each of them. Those that
 * src/data/codec/checksum.h does not know are left out. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/data/codec/checksum.h"

struct file_sum {
    /* Streaming's, known to src/data/codec/checksum.h or not; lent */
    const char *name;
    /* of a known one: lower-case, of the right length; or "" */
    char hex[CHECKSUM_TEXT_BYTES];
};

/* Those that an index may have, and one more of tessera.json. */
#define FILE_SUMS_MAX 33
#define FILE_NAME_BYTES 513

/* A file as an index has it. */
struct file_entry {
    /* relative to the folder of the index; "": no file */
    char name[FILE_NAME_BYTES];
    int64_t bytes;
    int hashes;
    struct file_sum hash[FILE_SUMS_MAX];
};

struct file_sums;

/* `hash` is lent. */
enum err file_sums_create(const struct file_sum *hash, int count,
                          struct file_sums **out);
void file_sums_destroy(struct file_sums *sums);

/* None is known: there is nothing to read for them. */
bool file_sums_is_empty(const struct file_sums *sums);

/* The next bytes of the file. */
enum err file_sums_update(struct file_sums *sums, const void *data,
                          size_t bytes);

/* After the last: ERR_DATA "its sha1 should be 12 and is 34" for the first that
 * differs. */
enum err file_sums_compare(struct file_sums *sums);
