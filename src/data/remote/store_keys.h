/* Credentials for S3 and where they come from, as for Amazon's own tools:
 *
 *   AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, else the
 *   profile AWS_PROFILE ("default") of AWS_SHARED_CREDENTIALS_FILE
 *   (~/.aws/credentials), else none: requests are not signed.
 *   AWS_REGION, AWS_DEFAULT_REGION, else the profile's region in
 *   AWS_CONFIG_FILE (~/.aws/config), else us-east-1.
 *
 * Roles of machines, web identities and commands of a profile are not asked. */
#pragma once

#include "src/base/err.h"

struct store_keys {
    char id[160]; /* "": none, requests are not signed */
    char secret[300];
    char token[4096];
    char region[64];
    char from[320]; /* for messages: where they were found */
};

/* ERR_USAGE for half a pair of credentials, and for an AWS_PROFILE that the
 * file does not have. */
enum err store_keys_find(struct store_keys *out);
