/* SHA-256 by OpenSSL's libcrypto, streaming. */
#ifndef TESSERA_BASE_DIGEST_H
#define TESSERA_BASE_DIGEST_H

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

#endif
