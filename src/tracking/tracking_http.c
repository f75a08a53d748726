/* One libcurl handle, whose connection is kept between requests.
 *
 * Whether an error is for good is told by its code, since who calls knows
 * nothing of HTTP: ERR_IO may pass, ERR_DATA is about what was sent, ERR_USAGE
 * about the address or the password, ERR_CHECKPOINT says that what was asked
 * for is not there. A request can be broken off between any two bytes, by the
 * function that libcurl calls to show its progress, when the run ends and waits
 * no longer. */
#include "src/tracking/tracking_http.h"

#include <assert.h>
#include <curl/curl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/array.h"
#include "src/base/jsontext.h"
#include "src/base/new.h"

#define CONNECT_S 5L
#define REQUEST_S 30L
#define ADDRESS_BYTES 4096

struct tracking_http {
    CURL *easy;
    struct curl_slist *headers;
    const atomic_bool *given_up;
    char base[ADDRESS_BYTES / 2];
    char error[CURL_ERROR_SIZE];
    struct buffer answer;
    size_t answer_max;
    bool too_long;
};

/* An answer that goes on is broken off: it would be parsed into memory. */
static size_t take(char *data, size_t size, size_t count, void *self)
{
    struct tracking_http *http = self;
    size_t bytes = size * count;
    http->too_long = bytes > http->answer_max - http->answer.bytes;
    return !http->too_long && buffer_add(&http->answer, data, bytes) == ERR_OK
               ? bytes
               : 0;
}

/* libcurl asks at least once a second: non-zero ends the request. */
static int look(void *self, curl_off_t a, curl_off_t b, curl_off_t c,
                curl_off_t d)
{
    const struct tracking_http *http = self;
    (void)a, (void)b, (void)c, (void)d;
    return atomic_load(http->given_up);
}

static enum err add_header(struct tracking_http *http, const char *text)
{
    struct curl_slist *headers = curl_slist_append(http->headers, text);
    if (headers == NULL)
        return err_set(ERR_MEMORY, "out of memory");
    http->headers = headers;
    return ERR_OK;
}

/* From where MLflow's own client has them, user and password before a token. They
 * are never a part of the address, which stands in files and messages. */
static enum err set_credentials(struct tracking_http *http)
{
    char header[4096];
    const char *token = getenv("MLFLOW_TRACKING_TOKEN");
    const char *user = getenv("MLFLOW_TRACKING_USERNAME");
    const char *password = getenv("MLFLOW_TRACKING_PASSWORD");
    const char *authorities = getenv("CURL_CA_BUNDLE");
    if (authorities != NULL && authorities[0] != '\0')
        curl_easy_setopt(http->easy, CURLOPT_CAINFO, authorities);
    if (user != NULL && password != NULL) {
        curl_easy_setopt(http->easy, CURLOPT_HTTPAUTH, (long)CURLAUTH_BASIC);
        curl_easy_setopt(http->easy, CURLOPT_USERNAME, user);
        curl_easy_setopt(http->easy, CURLOPT_PASSWORD, password);
        return ERR_OK;
    }
    if (token == NULL)
        return ERR_OK;
    if (strpbrk(token, "\r\n") != NULL || strlen(token) > sizeof header - 64)
        return err_set(ERR_USAGE,
                       "MLFLOW_TRACKING_TOKEN has a line end or is too long");
    snprintf(header, sizeof header, "Authorization: Bearer %s", token);
    return add_header(http, header);
}

static void set_options(struct tracking_http *http)
{
    CURL *easy = http->easy;
#if LIBCURL_VERSION_NUM >= 0x075500
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
#else
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS,
                     (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT, CONNECT_S);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT, REQUEST_S);
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "tessera/" TESSERA_VERSION);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, http->headers);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, http->error);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, http);
    curl_easy_setopt(easy, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(easy, CURLOPT_XFERINFOFUNCTION, look);
    curl_easy_setopt(easy, CURLOPT_XFERINFODATA, http);
#if LIBCURL_VERSION_NUM >= 0x075700
    /* nobody waits for a name server that does not answer */
    curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);
#endif
}

static void global_init(void)
{
    curl_global_init(CURL_GLOBAL_DEFAULT);
}

enum err tracking_http_create(const char *base, const atomic_bool *given_up,
                              struct tracking_http **out)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    enum err rc = ERR_OK;
    pthread_once(&once, global_init);
    struct tracking_http *http = NULL;
    TRY(new_zeroed(&http, 1));
    http->given_up = given_up;
    snprintf(http->base, sizeof http->base, "%s", base);
    for (size_t n = strlen(http->base); n > 0 && http->base[n - 1] == '/';)
        http->base[--n] = '\0';
    http->easy = curl_easy_init();
    if (http->easy == NULL)
        TRY_OUT(err_set(ERR_MEMORY, "out of memory"));
    TRY_OUT(add_header(http, "Content-Type: application/json"));
    TRY_OUT(add_header(http, "Expect:"));
    TRY_OUT(set_credentials(http));
    set_options(http);
out:
    return new_or_none(rc, http, out, tracking_http_destroy);
}

void tracking_http_destroy(struct tracking_http *http)
{
    if (http == NULL)
        return;
    curl_easy_cleanup(http->easy);
    curl_slist_free_all(http->headers);
    buffer_free(&http->answer);
    free(http);
}

/* The error of an answer other than 200. */
static enum err http_refused(const struct tracking_http *http, long status,
                             const json_t *answer)
{
    const char *code = json_string_value(json_object_get(answer, "error_code"));
    const char *text = json_string_value(json_object_get(answer, "message"));
    code = code != NULL ? code : "";
    text = text != NULL ? text : "";
    if (strcmp(code, "RESOURCE_DOES_NOT_EXIST") == 0)
        return err_set(ERR_CHECKPOINT, "%s: %.200s", http->base, text);
    if (status == 401 || status == 403)
        return err_set(ERR_USAGE,
                       "%s does not let us in (HTTP %ld): are "
                       "MLFLOW_TRACKING_USERNAME and "
                       "MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN, "
                       "in the environment, and right?",
                       http->base, status);
    if (status >= 300 && status < 400)
        return err_set(ERR_USAGE,
                       "%s answers with another address (HTTP %ld): give that "
                       "as tracking.mlflow",
                       http->base, status);
    bool again = status >= 500 || status == 429 || status == 408;
    return err_set(again || code[0] == '\0' ? ERR_IO : ERR_DATA,
                   "%s: HTTP %ld %s %.250s", http->base, status, code, text);
}

static enum err http_perform(struct tracking_http *http, const char *path,
                             const char *text, json_t **answer)
{
    char address[ADDRESS_BYTES];
    long status = 0;
    snprintf(address, sizeof address, "%s%s", http->base, path);
    curl_easy_setopt(http->easy, CURLOPT_URL, address);
    if (text != NULL) {
        curl_easy_setopt(http->easy, CURLOPT_POSTFIELDSIZE_LARGE,
                         (curl_off_t)strlen(text));
        curl_easy_setopt(http->easy, CURLOPT_POSTFIELDS, text);
    } else {
        curl_easy_setopt(http->easy, CURLOPT_HTTPGET, 1L);
    }
    http->answer.bytes = 0;
    http->too_long = false;
    http->error[0] = '\0';
    CURLcode code = curl_easy_perform(http->easy);
    if (http->too_long)
        return err_set(ERR_IO,
                       "%s: an answer has more than %zu KiB, which MLflow's "
                       "would not",
                       http->base, http->answer_max / 1024);
    if (code != CURLE_OK)
        return err_set(ERR_IO, "%s: %s", http->base,
                       code == CURLE_ABORTED_BY_CALLBACK
                           ? "no answer came before the run's end"
                       : http->error[0] != '\0' ? http->error
                                                : curl_easy_strerror(code));
    curl_easy_getinfo(http->easy, CURLINFO_RESPONSE_CODE, &status);
    *answer = json_loadb(
        http->answer.bytes > 0 ? (const char *)http->answer.data : "",
        http->answer.bytes, 0, NULL);
    if (status != 200)
        return http_refused(http, status, *answer);
    if (!json_is_object(*answer))
        return err_set(ERR_IO, "%s: does not answer as MLflow does",
                       http->base);
    return ERR_OK;
}

enum err tracking_http_call(struct tracking_http *http, const char *path,
                            json_t *body, size_t bytes_max, json_t **answer)
{
    assert(bytes_max > 0 && answer != NULL);
    enum err rc = ERR_OK;
    char *text = NULL;
    *answer = NULL;
    http->answer_max = bytes_max;
    if (body != NULL)
        rc = jsontext_make(body, 0, &text);
    if (rc == ERR_OK)
        rc = http_perform(http, path, text, answer);
    if (rc != ERR_OK) {
        json_decref(*answer);
        *answer = NULL;
    }
    free(text);
    json_decref(body);
    return rc;
}
