/* Computes the checksums that an index may name. What is compared with what is
 * decided in mds.c and cache_shard.c.
 *
 * An index has its checksums by Python's names, so this is a table from those
 * to whoever computes them: OpenSSL's libcrypto what Python's hashlib has,
 * xxhash the others. A checksum is an object that is fed piece by piece, since
 * a shard is never in memory whole; all of one file are fed with the same piece
 * while it is in the processor's cache. A name that is not in the
 * table is no error: a set of a later Streaming is to be read, unchecked, and
 * dataset_checksums() says so. */
#include "src/data/codec/checksum.h"

#include <assert.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

/* All of it from the header: nothing to install where the programs run. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "src/base/digest.h"
#include "src/base/new.h"

enum checksum_kind { LIBCRYPTO, XXH_32, XXH_64, XXH3_64, XXH3_128 };

static const struct checksum_algorithm {
    const char *name; /* Streaming's */
    enum checksum_kind kind;
    const char *libcrypto;
    size_t digits;
} checksum_algorithms[] = {
    { "md5", LIBCRYPTO, "MD5", 32 },
    { "sha1", LIBCRYPTO, "SHA1", 40 },
    { "sha224", LIBCRYPTO, "SHA224", 56 },
    { "sha256", LIBCRYPTO, "SHA256", 64 },
    { "sha384", LIBCRYPTO, "SHA384", 96 },
    { "sha512", LIBCRYPTO, "SHA512", 128 },
    { "sha3_224", LIBCRYPTO, "SHA3-224", 56 },
    { "sha3_256", LIBCRYPTO, "SHA3-256", 64 },
    { "sha3_384", LIBCRYPTO, "SHA3-384", 96 },
    { "sha3_512", LIBCRYPTO, "SHA3-512", 128 },
    { "blake2b", LIBCRYPTO, "BLAKE2b512", 128 },
    { "blake2s", LIBCRYPTO, "BLAKE2s256", 64 },
    { "xxh32", XXH_32, NULL, 8 },
    { "xxh64", XXH_64, NULL, 16 },
    { "xxh3_64", XXH3_64, NULL, 16 },
    { "xxh3_128", XXH3_128, NULL, 32 },
    { "xxh128", XXH3_128, NULL, 32 },
};

struct checksum {
    const struct checksum_algorithm *algorithm;
    EVP_MD_CTX *context;
    XXH32_state_t xxh32;
    XXH64_state_t xxh64;
    XXH3_state_t *xxh3; /* aligned to 64 bytes by its own allocation */
};

static const struct checksum_algorithm *checksum_find(const char *name)
{
    size_t count = sizeof checksum_algorithms / sizeof *checksum_algorithms;
    for (size_t a = 0; a < count; a++)
        if (strcmp(checksum_algorithms[a].name, name) == 0)
            return &checksum_algorithms[a];
    return NULL;
}

size_t checksum_digits(const char *name)
{
    const struct checksum_algorithm *algorithm = checksum_find(name);
    return algorithm != NULL ? algorithm->digits : 0;
}

static enum err checksum_begin(struct checksum *checksum)
{
    const struct checksum_algorithm *algorithm = checksum->algorithm;
    switch (algorithm->kind) {
    /* md5 may be refused here at run time: in FIPS mode libcrypto has it not */
    case LIBCRYPTO:
        checksum->context = EVP_MD_CTX_new();
        if (checksum->context == NULL)
            return err_set(ERR_MEMORY, "%s: no memory for the state",
                           algorithm->name);
        const EVP_MD *type = EVP_get_digestbyname(algorithm->libcrypto);
        if (type == NULL ||
            EVP_DigestInit_ex(checksum->context, type, NULL) != 1)
            return err_set(ERR_UNSUPPORTED,
                           "%s: libcrypto does not provide it on this machine",
                           algorithm->name);
        break;
    case XXH_32:
        XXH32_reset(&checksum->xxh32, 0);
        break;
    case XXH_64:
        XXH64_reset(&checksum->xxh64, 0);
        break;
    case XXH3_64:
    case XXH3_128:
        checksum->xxh3 = XXH3_createState();
        if (checksum->xxh3 == NULL)
            return err_set(ERR_MEMORY, "%s: no memory for the state",
                           algorithm->name);
        if (algorithm->kind == XXH3_64)
            XXH3_64bits_reset(checksum->xxh3);
        else
            XXH3_128bits_reset(checksum->xxh3);
        break;
    }
    return ERR_OK;
}

enum err checksum_create(const char *name, struct checksum **out)
{
    assert(name != NULL && out != NULL);
    *out = NULL;
    struct checksum *checksum = NULL;
    TRY(new_zeroed(&checksum, 1));
    checksum->algorithm = checksum_find(name);
    assert(checksum->algorithm != NULL);
    enum err rc = checksum_begin(checksum);
    return new_or_none(rc, checksum, out, checksum_destroy);
}

void checksum_destroy(struct checksum *checksum)
{
    if (checksum == NULL)
        return;
    EVP_MD_CTX_free(checksum->context);
    XXH3_freeState(checksum->xxh3);
    free(checksum);
}

enum err checksum_update(struct checksum *checksum, const void *data,
                         size_t bytes)
{
    assert(checksum != NULL && (data != NULL || bytes == 0));
    switch (checksum->algorithm->kind) {
    case LIBCRYPTO:
        if (EVP_DigestUpdate(checksum->context, data, bytes) != 1)
            return err_set(ERR_INTERNAL, "%s: libcrypto refused %zu bytes",
                           checksum->algorithm->name, bytes);
        break;
    case XXH_32:
        XXH32_update(&checksum->xxh32, data, bytes);
        break;
    case XXH_64:
        XXH64_update(&checksum->xxh64, data, bytes);
        break;
    case XXH3_64:
        XXH3_64bits_update(checksum->xxh3, data, bytes);
        break;
    case XXH3_128:
        XXH3_128bits_update(checksum->xxh3, data, bytes);
        break;
    }
    return ERR_OK;
}

enum err checksum_finish(struct checksum *checksum,
                         char hex[CHECKSUM_TEXT_BYTES])
{
    union {
        unsigned char raw[EVP_MAX_MD_SIZE];
        XXH32_canonical_t word;
        XXH64_canonical_t pair;
        XXH128_canonical_t quad;
    } sum;
    switch (checksum->algorithm->kind) {
    case LIBCRYPTO:
        if (EVP_DigestFinal_ex(checksum->context, sum.raw, NULL) != 1)
            return err_set(ERR_INTERNAL, "%s: libcrypto could not finish",
                           checksum->algorithm->name);
        break;
    case XXH_32:
        XXH32_canonicalFromHash(&sum.word, XXH32_digest(&checksum->xxh32));
        break;
    case XXH_64:
        XXH64_canonicalFromHash(&sum.pair, XXH64_digest(&checksum->xxh64));
        break;
    case XXH3_64:
        XXH64_canonicalFromHash(&sum.pair, XXH3_64bits_digest(checksum->xxh3));
        break;
    case XXH3_128:
        XXH128_canonicalFromHash(&sum.quad,
                                 XXH3_128bits_digest(checksum->xxh3));
        break;
    }
    digest_hex(sum.raw, checksum->algorithm->digits / 2, hex);
    return ERR_OK;
}

/* --- those of a file, in one pass over its bytes: reading a shard from a file
 * server costs more than all of its sums --- */

struct file_sums {
    int count;
    struct {
        const struct file_sum *hash;
        struct checksum *sum;
    } one[FILE_SUMS_MAX];
};

enum err file_sums_create(const struct file_sum *hash, int count,
                          struct file_sums **out)
{
    assert(out != NULL && count >= 0 && count <= FILE_SUMS_MAX);
    enum err rc = ERR_OK;
    struct file_sums *sums = NULL;
    *out = NULL;
    TRY(new_zeroed(&sums, 1));
    for (int h = 0; h < count; h++) {
        /* not known here: others of the same file may be */
        if (checksum_digits(hash[h].name) == 0)
            continue;
        TRY_OUT(checksum_create(hash[h].name, &sums->one[sums->count].sum));
        sums->one[sums->count++].hash = &hash[h];
    }
out:
    return new_or_none(rc, sums, out, file_sums_destroy);
}

void file_sums_destroy(struct file_sums *sums)
{
    if (sums == NULL)
        return;
    for (int s = 0; s < sums->count; s++)
        checksum_destroy(sums->one[s].sum);
    free(sums);
}

bool file_sums_is_empty(const struct file_sums *sums)
{
    return sums->count == 0;
}

enum err file_sums_update(struct file_sums *sums, const void *data,
                          size_t bytes)
{
    assert(sums != NULL && (data != NULL || bytes == 0));
    for (int s = 0; s < sums->count; s++)
        TRY(checksum_update(sums->one[s].sum, data, bytes));
    return ERR_OK;
}

enum err file_sums_compare(struct file_sums *sums)
{
    char hex[CHECKSUM_TEXT_BYTES];
    for (int s = 0; s < sums->count; s++) {
        const struct file_sum *hash = sums->one[s].hash;
        TRY(checksum_finish(sums->one[s].sum, hex));
        if (strcmp(hex, hash->hex) != 0)
            return err_set(ERR_DATA, "its %s should be %s and is %s",
                           hash->name, hash->hex, hex);
    }
    return ERR_OK;
}
