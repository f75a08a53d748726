/* Signs requests to S3: AWS Signature Version 4, in its four steps.
 *
 *   1 the canonical request: method, path, query, a line for each signed header
 *     by name, the names, and the SHA-256 of the body
 *   2 what is signed: algorithm, time, scope DAY/REGION/s3/aws4_request, and
 *     the SHA-256 of 1
 *   3 the key: HMAC-SHA256 of day, region, service, "aws4_request", each keyed
 *     by the result before it, the first by "AWS4" and the secret. A key that
 *     leaks is good for one day and one region
 *   4 the signature: the HMAC of 2 by 3, in hex
 *
 * The server does the same with what it receives, so every byte here has to be
 * the one that libcurl sends. libcurl could sign by itself (CURLOPT_AWS_SIGV4),
 * but not in the versions that some distributions have, and what it signs has
 * changed. */
#include "src/data/remote/store_sign.h"

#include <assert.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/digest.h"

struct store_mac {
    uint8_t bytes[32];
};

void store_sign_date(time_t now, char date[STORE_SIGN_DATE_BYTES])
{
    struct tm utc;
    gmtime_r(&now, &utc);
    strftime(date, STORE_SIGN_DATE_BYTES, "%Y%m%dT%H%M%SZ", &utc);
}

static enum err store_mac(const void *key, size_t key_bytes, const char *text,
                          size_t text_bytes, struct store_mac *out)
{
    unsigned length = 0;
    if (HMAC(EVP_sha256(), key, (int)key_bytes, (const uint8_t *)text,
             text_bytes, out->bytes, &length) == NULL ||
        length != sizeof out->bytes)
        return err_set(ERR_UNSUPPORTED, "libcrypto has no HMAC-SHA256");
    return ERR_OK;
}

/* The key of a day, a region and S3. */
static enum err store_sign_key(const struct store_sign *in, const char *day,
                               struct store_mac *out)
{
    char first[320];
    const char *parts[] = { day, in->region, "s3", "aws4_request" };
    int length = snprintf(first, sizeof first, "AWS4%s", in->secret);
    assert(length < (int)sizeof first); /* as store_keys.h has it */
    enum err rc = store_mac(first, (size_t)length, day, strlen(day), out);
    explicit_bzero(first, sizeof first);
    for (int p = 1; p < 4 && rc == ERR_OK; p++) {
        struct store_mac key = *out;
        rc = store_mac(key.bytes, sizeof key.bytes, parts[p], strlen(parts[p]),
                       out);
    }
    return rc;
}

enum err store_sign(const struct store_sign *in,
                    const char date[STORE_SIGN_DATE_BYTES], char *header,
                    size_t bytes)
{
    assert(strlen(date) == STORE_SIGN_DATE_BYTES - 1 && in->path[0] == '/');
    enum err rc = ERR_OK;
    char hash[65], day[9], text[512], hex[65], *request = NULL;
    struct store_mac key, mac;
    bool has_token = in->token[0] != '\0';
    const char *body = in->sha256 != NULL ? in->sha256 : STORE_SIGN_NOTHING;
    const char *names = has_token ? "host;x-amz-content-sha256;x-amz-date;"
                                    "x-amz-security-token"
                                  : "host;x-amz-content-sha256;x-amz-date";
    snprintf(day, sizeof day, "%.8s", date);
    int length =
        asprintf(&request,
                 "%s\n%s\n%s\nhost:%s\nx-amz-content-sha256:%s\nx-amz-date:%s\n"
                 "%s%s%s\n%s\n%s",
                 in->method != NULL ? in->method : "GET", in->path, in->query,
                 in->host, body, date, has_token ? "x-amz-security-token:" : "",
                 in->token, has_token ? "\n" : "", names, body);
    if (length < 0)
        return err_set(ERR_MEMORY, "out of memory");
    TRY_OUT(digest_bytes(request, (size_t)length, hash));
    length = snprintf(text, sizeof text,
                      "AWS4-HMAC-SHA256\n%s\n%s/%s/s3/aws4_request\n%s", date,
                      day, in->region, hash);
    TRY_OUT(store_sign_key(in, day, &key));
    TRY_OUT(store_mac(key.bytes, sizeof key.bytes, text, (size_t)length, &mac));
    digest_hex(mac.bytes, sizeof mac.bytes, hex);
    length = snprintf(header, bytes,
                      "Authorization: AWS4-HMAC-SHA256 "
                      "Credential=%s/%s/%s/s3/aws4_request,SignedHeaders=%s,"
                      "Signature=%s",
                      in->id, day, in->region, names, hex);
    if ((size_t)length >= bytes)
        rc = err_set(ERR_USAGE, "the access key's name is too long");
out:
    free(request);
    explicit_bzero(&key, sizeof key);
    return rc;
}
