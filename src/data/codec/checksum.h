/* The checksums that an index.json can record for a shard, by the names that
 * the Streaming library gives them: those of Python's hashlib with a fixed
 * length (md5, sha1, sha2, sha3, blake2) by OpenSSL's libcrypto, and xxhash's.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"

/* Hex digits of the longest, and a NUL. */
#define CHECKSUM_TEXT_BYTES 129

struct checksum;

/* Hex digits of a checksum of this name; 0: it is not known here. */
size_t checksum_digits(const char *name);

/* ERR_UNSUPPORTED where libcrypto does not provide it (md5 in FIPS mode). The
 * name is known. */
enum err checksum_create(const char *name, struct checksum **out);
void checksum_destroy(struct checksum *checksum);
enum err checksum_update(struct checksum *checksum, const void *data,
                         size_t bytes);
/* Lower-case hex of everything so far; it can't be updated after. */
enum err checksum_finish(struct checksum *checksum,
                         char hex[CHECKSUM_TEXT_BYTES]);

/* --- the checksums that an index has for a file ---
 *
 * They are computed together as its bytes pass, so that nothing is read for each of
 * them. Those that are not known above are left out. */

struct file_sum {
    /* Streaming's, known here or not; lent */
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
