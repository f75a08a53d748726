/* s3://BUCKET/FOLDER: requests to Amazon's service, or to another one at
 * AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL or S3_ENDPOINT_URL, where the bucket
 * then is the first part of the path. Credentials are looked for in each
 * request anew where they come from a file, so that those that expire may be
 * replaced (store_keys.h).
 *
 * With Amazon a bucket stands before the host's name, which says where it is,
 * unless it has dots: the certificate is for one part before the service's
 * name. A signature is for one host and one path, so redirects are not
 * followed; which region the bucket is in the answer says, and the advice
 * passes it on. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/new.h"
#include "src/data/remote/store_impl.h"
#include "src/data/remote/store_keys.h"
#include "src/data/remote/store_sign.h"
#include "src/data/remote/store_transfer.h"

struct store_s3 {
    char base[FSIO_PATH_MAX];     /* "https://host", without "/" at its end */
    char host[384];               /* of the header */
    char prefix[FSIO_PATH_MAX];   /* of paths at the endpoint; "" or "/x" */
    char root[300];               /* decoded: bucket, where it belongs; or "" */
    char path[2 * FSIO_PATH_MAX]; /* the same and folder */
    char endpoint_from[32];       /* the variable; "": none */
};

/* A bucket that can stand before a host's name, under its certificate. */
static bool store_s3_is_host(const char *bucket)
{
    size_t length = strlen(bucket);
    return length >= 3 && length <= 63 &&
           strspn(bucket, "abcdefghijklmnopqrstuvwxyz0123456789-") == length &&
           bucket[0] != '-' && bucket[length - 1] != '-';
}

/* Another service than Amazon's. */
static enum err store_s3_endpoint(struct store *store, struct store_s3 *s3,
                                  const char *variable, const char *address)
{
    struct store_url url;
    enum err rc = store_url_parse(address, &url);
    if (rc == ERR_OK && ((strcmp(url.scheme, "http") != 0 &&
                          strcmp(url.scheme, "https") != 0) ||
                         url.place[0] == '\0'))
        rc = err_set(ERR_USAGE, "is not an address with http:// or https://");
    TRY(err_prefix(rc, "%s", variable));
    bool tls = strcmp(url.scheme, "https") == 0;
    snprintf(s3->endpoint_from, sizeof s3->endpoint_from, "%s", variable);
    snprintf(s3->host, sizeof s3->host, "%s", url.place);
    /* libcurl leaves the scheme's own port out of the header */
    size_t length = strlen(s3->host);
    const char *port = tls ? ":443" : ":80";
    if (length > strlen(port) &&
        strcmp(s3->host + length - strlen(port), port) == 0)
        s3->host[length - strlen(port)] = '\0';
    TRY(fsio_path(s3->base, "%s://%s", url.scheme, url.place));
    TRY(fsio_path(s3->prefix, "%s", url.path));
    snprintf(s3->root, sizeof s3->root, "/%s", store->url.place);
    snprintf(s3->path, sizeof s3->path, "%s%s", s3->root, store->url.path);
    return ERR_OK;
}

static enum err store_s3_amazon(struct store *store, struct store_s3 *s3,
                                const char *region)
{
    const char *domain =
        strncmp(region, "cn-", 3) == 0 ? "amazonaws.com.cn" : "amazonaws.com";
    bool is_host = store_s3_is_host(store->url.place);
    snprintf(s3->host, sizeof s3->host, "%s%ss3.%s.%s",
             is_host ? store->url.place : "", is_host ? "." : "", region,
             domain);
    snprintf(s3->root, sizeof s3->root, "%s%s", is_host ? "" : "/",
             is_host ? "" : store->url.place);
    snprintf(s3->path, sizeof s3->path, "%s%s", s3->root, store->url.path);
    return fsio_path(s3->base, "https://%s", s3->host);
}

static enum err store_s3_settle(struct store *store, struct store_s3 *s3)
{
    static const char *const variables[] = { "AWS_ENDPOINT_URL_S3",
                                             "AWS_ENDPOINT_URL",
                                             "S3_ENDPOINT_URL" };
    const char *address = NULL;
    size_t v = 0;
    for (; v < 3 && (address == NULL || address[0] == '\0'); v++)
        address = getenv(variables[v]);
    struct store_keys keys;
    enum err rc = store_keys_find(&keys);
    if (rc == ERR_OK)
        rc = address != NULL && address[0] != '\0'
                 ? store_s3_endpoint(store, s3, variables[v - 1], address)
                 : store_s3_amazon(store, s3, keys.region);
    explicit_bzero(&keys, sizeof keys);
    return rc;
}

static enum err store_s3_sign(const struct store_s3 *s3, const char *path,
                              const struct store_keys *keys,
                              const struct store_send *send,
                              struct store_request *out)
{
    char date[STORE_SIGN_DATE_BYTES], authorization[1024];
    char lines[3][sizeof keys->token + 32];
    struct store_sign sign = { .id = keys->id,
                               .secret = keys->secret,
                               .token = keys->token,
                               .region = keys->region,
                               .host = s3->host,
                               .path = path,
                               .query = send != NULL ? send->query : "",
                               .method = send != NULL ? send->method : "GET",
                               .sha256 = send != NULL ? send->sha256
                                                      : STORE_SIGN_NOTHING };
    store_sign_date(time(NULL), date);
    TRY(store_sign(&sign, date, authorization, sizeof authorization));
    snprintf(lines[0], sizeof lines[0], "x-amz-content-sha256: %s",
             sign.sha256);
    snprintf(lines[1], sizeof lines[1], "x-amz-date: %s", date);
    snprintf(lines[2], sizeof lines[2], "x-amz-security-token: %s",
             keys->token);
    const char *all[] = { authorization, lines[0], lines[1],
                          keys->token[0] != '\0' ? lines[2] : NULL };
    for (int i = 0; i < 4 && all[i] != NULL; i++)
        TRY(store_transfer_header(&out->headers, all[i]));
    return ERR_OK;
}

static enum err store_s3_request(struct store *store, const char *name,
                                 const struct store_send *send,
                                 struct store_request *out)
{
    const struct store_s3 *s3 = store->state;
    struct store_keys keys;
    char key[STORE_ADDRESS_BYTES], path[STORE_ADDRESS_BYTES];
    bool bucket = send != NULL && send->bucket;
    const char *query = send != NULL ? send->query : "";
    TRY(store_url_encode(bucket ? s3->root : s3->path, bucket ? "" : name,
                         false, key, sizeof key));
    int length = snprintf(path, sizeof path, "%s%s", s3->prefix, key);
    if (length >= (int)sizeof path ||
        snprintf(out->url, sizeof out->url, "%s%s%s%s", s3->base, path,
                 query[0] != '\0' ? "?" : "", query) >= (int)sizeof out->url)
        return err_set(ERR_USAGE, "the address is too long");
    enum err rc = store_keys_find(&keys);
    out->signs = true;
    if (rc == ERR_OK && keys.id[0] != '\0')
        rc = store_s3_sign(s3, path, &keys, send, out);
    explicit_bzero(&keys, sizeof keys);
    return rc;
}

static void store_s3_advise(struct store *store,
                            const struct store_transfer *answer, char *text,
                            size_t bytes)
{
    const struct store_s3 *s3 = store->state;
    struct store_keys keys;
    long status = answer->status;
    if (store_keys_find(&keys) != ERR_OK)
        return;
    const char *where =
        s3->endpoint_from[0] != '\0' ? s3->endpoint_from : "Amazon's service";
    if (answer->region[0] != '\0' && strcmp(answer->region, keys.region) != 0)
        snprintf(text, bytes, "; the bucket is in region %.40s: set AWS_REGION",
                 answer->region);
    else if (status >= 300 && status < 400)
        snprintf(text, bytes,
                 "; it leads elsewhere, where signed requests do not go: set "
                 "AWS_REGION to the bucket's, or an endpoint");
    else if ((status == 400 || status == 401 || status == 403) &&
             keys.id[0] == '\0')
        snprintf(text, bytes,
                 "; asked %s without credentials: set AWS_ACCESS_KEY_ID and "
                 "AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
                 where);
    else if (status == 400 || status == 401 || status == 403)
        snprintf(text, bytes,
                 "; asked %s in region %.40s with the credentials of %.120s",
                 where, keys.region, keys.from);
    else if (status == 404)
        snprintf(text, bytes, "; asked %s in region %.40s", where, keys.region);
    explicit_bzero(&keys, sizeof keys);
}

static enum err store_s3_open(struct store *store)
{
    if (store->url.place[0] == '\0')
        return err_set(ERR_USAGE, "%s: names no bucket", store->address);
    struct store_s3 *s3 = NULL;
    TRY(new_zeroed(&s3, 1));
    store->state = s3;
    TRY(store_s3_settle(store, s3));
    return fsio_path(store->service, "%s%s", s3->base, s3->prefix);
}

const struct store_scheme store_s3_scheme = {
    .name = "s3",
    .open = store_s3_open,
    .get = store_http_get,
    .request = store_s3_request,
    .advise = store_s3_advise,
};
