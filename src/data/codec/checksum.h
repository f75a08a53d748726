/* The checksums that an index.json can record for a shard, by the names that
 * the Streaming library gives them: those of Python's hashlib with a fixed
 * length (md5, sha1, sha2, sha3, blake2) by OpenSSL's libcrypto, and xxhash's.
 */
#pragma once

#include <stddef.h>

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
