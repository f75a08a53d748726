/* AWS Signature Version 4 of a request, as S3 checks it:
 * HMAC-SHA256 by OpenSSL's libcrypto. Source: "Authenticating Requests (AWS
 * Signature Version 4)", Amazon S3 API Reference. */
#pragma once

#include <stddef.h>
#include <time.h>

#include "src/base/err.h"

/* x-amz-content-sha256 of no bytes. */
#define STORE_SIGN_NOTHING                                                     \
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define STORE_SIGN_DATE_BYTES 17 /* 20130524T000000Z */

struct store_sign {
    const char *id, *secret;
    const char *token; /* of a session; "": none */
    const char *region;
    const char *host;   /* as the header has it */
    const char *path;   /* as the request has it, encoded once */
    const char *query;  /* canonical, "lifecycle="; "": none */
    const char *method; /* NULL: GET */
    const char *sha256; /* of the body; NULL: STORE_SIGN_NOTHING */
};

/* x-amz-date for a time. */
void store_sign_date(time_t now, char date[STORE_SIGN_DATE_BYTES]);

/* The header "Authorization: ..."; signed are host, x-amz-content-sha256,
 * x-amz-date and, where there is a token, x-amz-security-token. */
enum err store_sign(const struct store_sign *in,
                    const char date[STORE_SIGN_DATE_BYTES], char *header,
                    size_t bytes);
