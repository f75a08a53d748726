/* SHA-256 by libcrypto, as it has the processor's instructions for it. Bits that nobody forges are guarded by CRC32C
 * (crc32c.c), which is faster. */
#include "src/base/digest.h"

#include <assert.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/new.h"

#define DIGEST_BYTES 32

struct digest {
    EVP_MD_CTX *context;
    bool finished;
};

enum err digest_create(struct digest **out)
{
    enum err rc = ERR_OK;
    *out = NULL;
    struct digest *digest = NULL;
    TRY(new_zeroed(&digest, 1));
    digest->context = EVP_MD_CTX_new();
    if (digest->context == NULL)
        TRY_OUT(err_set(ERR_MEMORY, "sha256: no memory for the state"));
    if (EVP_DigestInit_ex(digest->context, EVP_sha256(), NULL) != 1)
        TRY_OUT(
            err_set(ERR_UNSUPPORTED,
                    "sha256: libcrypto does not provide it on this machine"));
out:
    return new_or_none(rc, digest, out, digest_destroy);
}

void digest_destroy(struct digest *digest)
{
    if (digest == NULL)
        return;
    EVP_MD_CTX_free(digest->context);
    free(digest);
}

enum err digest_update(struct digest *digest, const void *data, size_t bytes)
{
    assert(!digest->finished);
    if (EVP_DigestUpdate(digest->context, data, bytes) != 1)
        return err_set(ERR_INTERNAL, "sha256: libcrypto refused %zu bytes",
                       bytes);
    return ERR_OK;
}

void digest_hex(const uint8_t *raw, size_t count, char *hex)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < count; i++) {
        hex[2 * i] = digits[raw[i] >> 4];
        hex[2 * i + 1] = digits[raw[i] & 15];
    }
    hex[2 * count] = '\0';
}

enum err digest_finish(struct digest *digest, char hex[65])
{
    assert(!digest->finished);
    unsigned char raw[EVP_MAX_MD_SIZE];
    unsigned int bytes = 0;
    digest->finished = true;
    if (EVP_DigestFinal_ex(digest->context, raw, &bytes) != 1)
        return err_set(ERR_INTERNAL, "sha256: libcrypto could not finish");
    assert(bytes == DIGEST_BYTES);
    digest_hex(raw, DIGEST_BYTES, hex);
    return ERR_OK;
}

enum err digest_sign(const char *key, const void *data, size_t bytes,
                     char hex[65])
{
    unsigned char raw[EVP_MAX_MD_SIZE];
    unsigned int length = 0;
    if (HMAC(EVP_sha256(), key, (int)strlen(key), data, bytes, raw, &length) ==
            NULL ||
        length != DIGEST_BYTES)
        return err_set(ERR_UNSUPPORTED, "libcrypto has no HMAC-SHA256");
    digest_hex(raw, DIGEST_BYTES, hex);
    return ERR_OK;
}

bool digest_same(const char *a, const char *b)
{
    size_t length = strlen(a);
    return length == strlen(b) && CRYPTO_memcmp(a, b, length) == 0;
}

enum err digest_bytes(const void *data, size_t bytes, char hex[65])
{
    enum err rc = ERR_OK;
    struct digest *digest = NULL;
    TRY_OUT(digest_create(&digest));
    TRY_OUT(digest_update(digest, data, bytes));
    TRY_OUT(digest_finish(digest, hex));
out:
    digest_destroy(digest);
    return rc;
}
