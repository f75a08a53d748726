/* Sums of bytes: SHA-256 by OpenSSL's libcrypto, streaming, for what may be
 * forged or is told by its sum; CRC32C (crc32c.c) for what may be damaged. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"

struct digest;

enum err digest_create(struct digest **out);
void digest_destroy(struct digest *digest);
enum err digest_update(struct digest *digest, const void *data, size_t bytes);
/* Lower-case hex of everything so far; the digest can't be updated after. */
enum err digest_finish(struct digest *digest, char hex[65]);
/* One buffer. */
enum err digest_bytes(const void *data, size_t bytes, char hex[65]);
/* Bytes as hex and a NUL. */
void digest_hex(const uint8_t *raw, size_t count, char *hex);
/* HMAC-SHA256 of one buffer under a key that is a text; lower-case hex. */
enum err digest_sign(const char *key, const void *data, size_t bytes,
                     char hex[65]);
/* Whether two such texts are the same, in a time that does not tell where they
 * differ. */
bool digest_same(const char *a, const char *b);

/* CRC32C (Castagnoli), as in iSCSI and ext4: crc32c("123456789") = e3069283. By
 * the processor's instructions where it has them, a table otherwise; same
 * result. Continues `crc` (0 to begin) over bytes. */
uint32_t crc32c(uint32_t crc, const void *data, size_t bytes);
/* What a beginning with this sum adds to the sum of the whole when so many bytes
 * follow it: crc32c(0, AB) = crc32c_shift(crc32c(0, A), |B|) ^ crc32c(0, B). So
 * parts can be summed apart and in any order. */
uint32_t crc32c_shift(uint32_t crc, uint64_t bytes);
/* The table implementation, for tests. */
uint32_t crc32c_table(uint32_t crc, const void *data, size_t bytes);
