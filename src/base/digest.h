/* SHA-256 by OpenSSL's libcrypto, streaming. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "src/base/err.h"

struct digest;

enum err digest_create(struct digest **out);
void digest_destroy(struct digest *digest);
enum err digest_update(struct digest *digest, const void *data, size_t bytes);
/* Lower-case hex of everything so far; the digest can't be updated after. */
enum err digest_finish(struct digest *digest, char hex[65]);
/* One buffer. */
enum err digest_bytes(const void *data, size_t bytes, char hex[65]);
/* HMAC-SHA256 of one buffer under a key that is a text; lower-case hex. */
enum err digest_sign(const char *key, const void *data, size_t bytes,
                     char hex[65]);
/* Whether two such texts are the same, in a time that does not tell where they
 * differ. */
bool digest_same(const char *a, const char *b);
