/* Sends one request by libcurl, writes what comes to a file, and judges how it
 * ended.
 *
 * A transfer can be gone on with: `received` bytes are in the file, of what the
 * server called `etag`. The next request asks for the rest under the condition
 * that it is the same still (Range and If-Match, RFC 9110). 206 goes on; 412
 * and 416 say that the file has changed, so it is begun anew; 200 sends all of
 * it, by a server that knows no ranges, and the file is emptied first. A weak
 * ETag ("W/...") does not promise equal bytes and does not count.
 *
 * A status that may pass is tried again, one that will not is told at once: 403
 * and 404 stay as they are, and a run should end with them in seconds. What
 * comes in place of a file is kept, as far as a message needs it, and never
 * written to one. */
#include "src/data/remote/store_transfer.h"

#include <assert.h>
#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/data/remote/store_impl.h"
#include "src/data/remote/store_url.h"

#define STORE_REDIRECTS 5L
#define STORE_SLOW_BYTES 1000.0 /* a second */
#define STORE_CONNECT_MS 10000L
#define STORE_ANSWER_MAX ((size_t)8 << 20)

static bool store_header(const char *line, size_t bytes, const char *name,
                         char *out, size_t room)
{
    size_t length = strlen(name);
    if (bytes <= length || line[length] != ':' ||
        strncasecmp(line, name, length) != 0)
        return false;
    const char *value = line + length + 1;
    size_t count = bytes - length - 1;
    while (count > 0 && isspace((unsigned char)*value))
        value++, count--;
    while (count > 0 && isspace((unsigned char)value[count - 1]))
        count--;
    if (count >= room)
        return false;
    memcpy(out, value, count);
    out[count] = '\0';
    return true;
}

static size_t store_on_header(char *line, size_t size, size_t count, void *self)
{
    struct store_transfer *t = self;
    char text[128];
    size_t bytes = size * count;
    long long begin = 0;
    if (bytes >= 5 && strncasecmp(line, "HTTP/", 5) == 0) {
        /* another answer, behind a redirect or a proxy's */
        t->new_etag[0] = '\0';
        t->range_begin = -1;
        t->body_bytes = 0;
    } else if (store_header(line, bytes, "ETag", text, sizeof text)) {
        /* a weak one does not tell that the bytes are the same */
        snprintf(t->new_etag, sizeof t->new_etag, "%s",
                 text[0] == '"' ? text : "");
        if (t->send != NULL)
            memcpy(t->send->etag, t->new_etag, sizeof t->send->etag);
    } else if (store_header(line, bytes, "Content-Range", text, sizeof text)) {
        if (sscanf(text, "bytes %lld-", &begin) == 1 && begin >= 0)
            t->range_begin = begin;
    } else {
        (void)store_header(line, bytes, "x-amz-bucket-region", t->region,
                           sizeof t->region);
    }
    return bytes;
}

/* The first bytes of an answer: is it a file, and which part of it? */
static enum err store_accept(struct store_transfer *t, long status)
{
    if (status == 206 && t->range_begin != t->received)
        return err_set(ERR_IO, "sends bytes from %lld, not from %lld",
                       (long long)t->range_begin, (long long)t->received);
    if (status == 200 && t->received > 0) {
        if (ftruncate(t->fd, 0) != 0)
            return err_errno("%s: truncate", t->path);
        t->received = 0;
    }
    memcpy(t->etag, t->new_etag, sizeof t->etag);
    t->accepted = true;
    return ERR_OK;
}

/* The answer to what was sent; `received` is how much went and came, by which a
 * stall is told. */
static enum err store_hear(struct store_transfer *t, const char *data,
                           size_t bytes)
{
    t->received += (int64_t)bytes;
    if (t->send->answer.bytes + bytes > STORE_ANSWER_MAX)
        return err_set(ERR_DATA, "answers with more than %zu bytes",
                       STORE_ANSWER_MAX);
    return buffer_add(&t->send->answer, data, bytes);
}

static size_t store_on_need(char *to, size_t size, size_t count, void *self)
{
    struct store_transfer *t = self;
    size_t left = t->send->bytes - t->send->sent;
    size_t bytes = left < size * count ? left : size * count;
    memcpy(to, t->send->data + t->send->sent, bytes);
    t->send->sent += bytes;
    t->received += (int64_t)bytes;
    return bytes;
}

/* libcurl sends again by itself on a connection that the server had closed. */
static int store_on_seek(void *self, curl_off_t offset, int origin)
{
    struct store_transfer *t = self;
    if (origin != SEEK_SET || offset < 0 || offset > (curl_off_t)t->send->bytes)
        return CURL_SEEKFUNC_FAIL;
    t->send->sent = (size_t)offset;
    return CURL_SEEKFUNC_OK;
}

static enum err store_write(struct store_transfer *t, const char *data,
                            size_t bytes)
{
    if (t->send != NULL)
        return store_hear(t, data, bytes);
    long status = 0;
    curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
    if (status != 200 && status != 206) {
        size_t room = sizeof t->body - t->body_bytes;
        size_t count = bytes < room ? bytes : room;
        memcpy(t->body + t->body_bytes, data, count);
        t->body_bytes += count;
        return ERR_OK;
    }
    if (!t->accepted)
        TRY(store_accept(t, status));
    int64_t most = t->expected >= 0 ? t->expected : STORE_BYTES_MAX;
    if ((int64_t)bytes > most - t->received)
        return err_set(ERR_DATA, "has more than the %lld bytes that %s",
                       (long long)most,
                       t->expected >= 0 ? "the index says" : "it may have");
    TRY(fsio_pwrite(t->fd, data, bytes, t->received, t->path));
    t->received += (int64_t)bytes;
    assert(t->received <= most);
    return ERR_OK;
}

static size_t store_on_data(char *data, size_t size, size_t count, void *self)
{
    struct store_transfer *t = self;
    enum err rc = store_write(t, data, size * count);
    if (rc == ERR_OK)
        return size * count;
    err_keep(&t->failed, rc);
    return 0;
}

enum err store_transfer_create(struct store_transfer *transfer)
{
    memset(transfer, 0, sizeof *transfer);
    transfer->fd = -1;
    transfer->easy = curl_easy_init();
    return transfer->easy != NULL
               ? ERR_OK
               : err_set(ERR_MEMORY, "no memory for a transfer");
}

void store_transfer_destroy(struct store_transfer *transfer)
{
    fsio_close(transfer->fd);
    curl_slist_free_all(transfer->headers);
    if (transfer->easy != NULL)
        curl_easy_cleanup(transfer->easy);
    memset(transfer, 0, sizeof *transfer);
    transfer->fd = -1;
}

enum err store_transfer_open(struct store_transfer *t, const char *address,
                             const char *path, int64_t expected)
{
    assert(t->fd < 0 && expected >= -1);
    t->address = address;
    t->expected = expected;
    t->received = 0;
    t->etag[0] = '\0';
    TRY(fsio_path(t->path, "%s", path));
    t->fd =
        open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    return t->fd >= 0 ? ERR_OK : err_errno("%s: open", path);
}

enum err store_transfer_close(struct store_transfer *t)
{
    int fd = t->fd;
    t->fd = -1;
    return fd < 0 || close(fd) == 0 ? ERR_OK : err_errno("%s: close", t->path);
}

enum err store_transfer_header(struct curl_slist **headers, const char *text)
{
    struct curl_slist *grown = curl_slist_append(*headers, text);
    if (grown == NULL)
        return err_set(ERR_MEMORY, "out of memory");
    *headers = grown;
    return ERR_OK;
}

/* From TLS never down to plain text; and no other protocol that libcurl knows,
 * such as file:, whatever a redirect says. */
static void store_set_protocols(CURL *easy, const char *url)
{
    bool tls = strncasecmp(url, "https:", 6) == 0;
#if LIBCURL_VERSION_NUM >= 0x075500
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, tls ? "https" : "http");
    curl_easy_setopt(easy, CURLOPT_REDIR_PROTOCOLS_STR,
                     tls ? "https" : "http,https");
#else
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS,
                     tls ? (long)CURLPROTO_HTTPS : (long)CURLPROTO_HTTP);
    curl_easy_setopt(easy, CURLOPT_REDIR_PROTOCOLS,
                     tls ? (long)CURLPROTO_HTTPS
                         : (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
}

/* All but request and file: after a reset, which keeps connections. */
static void store_set_options(struct store_transfer *t)
{
    CURL *easy = t->easy;
    const char *authorities = getenv("CURL_CA_BUNDLE");
    if (authorities == NULL || authorities[0] == '\0')
        authorities = getenv("AWS_CA_BUNDLE");
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "tessera/" TESSERA_VERSION);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, STORE_CONNECT_MS);
    curl_easy_setopt(easy, CURLOPT_MAXREDIRS, STORE_REDIRECTS);
    curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, 256L << 10);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, store_on_data);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, store_on_header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, t);
    if (authorities != NULL && authorities[0] != '\0')
        curl_easy_setopt(easy, CURLOPT_CAINFO, authorities);
}

static enum err store_prepare_send(struct store_transfer *t)
{
    struct store_send *send = t->send;
    send->sent = send->answer.bytes = 0;
    send->etag[0] = '\0';
    curl_easy_setopt(t->easy, CURLOPT_CUSTOMREQUEST, send->method);
    if (send->method[0] != 'P')
        return ERR_OK;
    curl_easy_setopt(t->easy, CURLOPT_UPLOAD, 1L);
    curl_easy_setopt(t->easy, CURLOPT_INFILESIZE_LARGE,
                     (curl_off_t)send->bytes);
    curl_easy_setopt(t->easy, CURLOPT_READFUNCTION, store_on_need);
    curl_easy_setopt(t->easy, CURLOPT_READDATA, t);
    curl_easy_setopt(t->easy, CURLOPT_SEEKFUNCTION, store_on_seek);
    curl_easy_setopt(t->easy, CURLOPT_SEEKDATA, t);
    /* not every service answers before the body has come */
    TRY(store_transfer_header(&t->headers, "Expect:"));
    return send->header != NULL
               ? store_transfer_header(&t->headers, send->header)
               : ERR_OK;
}

enum err store_transfer_prepare(struct store_transfer *t,
                                struct store_request *request)
{
    assert((t->fd >= 0 || t->send != NULL) && t->received >= 0);
    char line[160];
    curl_easy_reset(t->easy);
    curl_slist_free_all(t->headers);
    t->headers = request->headers;
    request->headers = NULL;
    t->accepted = false;
    t->range_begin = -1;
    t->body_bytes = 0;
    t->region[0] = t->new_etag[0] = '\0';
    t->failed.code = ERR_OK;
    t->mark_s = clock_now();
    if (t->etag[0] == '\0' || t->send != NULL)
        t->received = 0;
    t->mark = t->received;
    if (t->send != NULL)
        TRY(store_prepare_send(t));
    else if (t->received == 0 && ftruncate(t->fd, 0) != 0)
        return err_errno("%s: truncate", t->path);
    if (t->received > 0) {
        snprintf(line, sizeof line, "Range: bytes=%lld-",
                 (long long)t->received);
        TRY(store_transfer_header(&t->headers, line));
        snprintf(line, sizeof line, "If-Match: %s", t->etag);
        TRY(store_transfer_header(&t->headers, line));
    }
    store_set_options(t);
    store_set_protocols(t->easy, request->url);
    curl_easy_setopt(t->easy, CURLOPT_URL, request->url);
    curl_easy_setopt(t->easy, CURLOPT_HTTPHEADER, t->headers);
    curl_easy_setopt(t->easy, CURLOPT_FOLLOWLOCATION, request->signs ? 0L : 1L);
    if (!request->signs)
        curl_easy_setopt(t->easy, CURLOPT_NETRC, (long)CURL_NETRC_OPTIONAL);
    curl_easy_setopt(t->easy, CURLOPT_PRIVATE, t);
    return ERR_OK;
}

/* A whole answer without an error of the connection. */
static enum store_verdict store_judge_file(struct store_transfer *t,
                                           enum err *kind)
{
    curl_off_t length = -1;
    if (t->expected < 0 || t->received == t->expected)
        return STORE_DONE;
    curl_easy_getinfo(t->easy, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    /* a whole answer of a length that was announced: the file is another one.
     * Of an answer without a length nobody knows whether it was cut off */
    if (length >= 0) {
        *kind = err_set(ERR_DATA,
                        "has %lld bytes, but the index says %lld; copy the "
                        "data set there again",
                        (long long)t->received, (long long)t->expected);
        return STORE_NEVER;
    }
    t->etag[0] = '\0';
    *kind = err_set(ERR_IO, "was cut off after %lld of %lld bytes",
                    (long long)t->received, (long long)t->expected);
    return STORE_AGAIN;
}

bool store_transfer_stalls(struct store_transfer *t, double stall_s)
{
    assert(stall_s > 0);
    double now = clock_now();
    int64_t came = t->received - t->mark;
    if (came < 0 || (double)came >= STORE_SLOW_BYTES * stall_s) {
        t->mark = t->received;
        t->mark_s = now;
    }
    return now - t->mark_s > stall_s;
}

static enum store_verdict store_judge_status(struct store_transfer *t,
                                             enum err *kind)
{
    char code[64], message[160];
    curl_off_t wait = 0;
    long status = t->status;
    const char *body =
        t->send != NULL ? (const char *)t->send->answer.data : t->body;
    size_t body_bytes = t->send != NULL ? t->send->answer.bytes : t->body_bytes;
    store_url_tag(body, body_bytes, "Code", code, sizeof code);
    store_url_tag(body, body_bytes, "Message", message, sizeof message);
    curl_easy_getinfo(t->easy, CURLINFO_RETRY_AFTER, &wait);
    t->retry_after_s = (double)wait;
    bool changed = (status == 412 || status == 416) && t->etag[0] != '\0';
    if (changed)
        t->etag[0] = '\0'; /* from its beginning, then */
    bool passes = status == 408 || status == 425 || status == 429 ||
                  status >= 500 || changed;
    *kind = err_set(passes ? ERR_IO : ERR_DATA, "%s%ld%s%s%s%s",
                    status == 404 || status == 410 ? "no such file: status "
                    : status != 403                ? "status "
                    : t->send == NULL || t->send->method[0] == 'G'
                        ? "may not be read: status "
                        : "may not be written: status ",
                    status, code[0] != '\0' ? ", " : "", code,
                    message[0] != '\0' ? ": " : "", message);
    return passes ? STORE_AGAIN : STORE_NEVER;
}

/* S3 answers 200 before it knows that it can put parts together. */
static enum store_verdict store_judge_send(struct store_transfer *t,
                                           enum err *kind)
{
    const struct buffer *answer = &t->send->answer;
    char code[64];
    store_url_tag((const char *)answer->data, answer->bytes, "Code", code,
                  sizeof code);
    if (code[0] == '\0')
        return STORE_DONE;
    bool stays = strstr(code, "Denied") != NULL;
    *kind = err_set(stays ? ERR_DATA : ERR_IO, "status %ld, but %s", t->status,
                    code);
    return stays ? STORE_NEVER : STORE_AGAIN;
}

/* Whether a failure of the connection may pass. */
static bool store_passes(CURLcode code)
{
    switch (code) {
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_PARTIAL_FILE:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_AGAIN:
        return true;
    default:
        return false;
    }
}

/* Whether it surely comes again: what the server is and says. */
static bool store_stays(CURLcode code)
{
    return code == CURLE_TOO_MANY_REDIRECTS ||
           code == CURLE_UNSUPPORTED_PROTOCOL || code == CURLE_URL_MALFORMAT ||
           code == CURLE_PEER_FAILED_VERIFICATION ||
           code == CURLE_OUT_OF_MEMORY;
}

static const char *store_words(CURLcode code)
{
    if (code == CURLE_OPERATION_TIMEDOUT)
        return "no answer in time, or no more of it";
    if (code == CURLE_OUT_OF_MEMORY) /* so curl calls an endless header, too */
        return "the answer's header is too large";
    return curl_easy_strerror(code);
}

enum store_verdict store_transfer_judge(struct store_transfer *t, CURLcode code,
                                        enum err *kind)
{
    t->code = code;
    t->status = 0;
    t->retry_after_s = 0.0;
    curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &t->status);
    if (t->failed.code != ERR_OK) {
        *kind = err_again(&t->failed);
        return *kind == ERR_IO ? STORE_AGAIN : STORE_NEVER;
    }
    if (code != CURLE_OK) {
        *kind = err_set(store_stays(code) ? ERR_DATA : ERR_IO, "%s",
                        store_words(code));
        return store_passes(code) ? STORE_AGAIN : STORE_NEVER;
    }
    if (t->send != NULL && t->status / 100 == 2)
        return store_judge_send(t, kind);
    if (t->send != NULL || (t->status != 200 && t->status != 206))
        return store_judge_status(t, kind);
    if (!t->accepted) { /* an empty file */
        *kind = store_accept(t, t->status);
        if (*kind != ERR_OK)
            return STORE_AGAIN;
    }
    return store_judge_file(t, kind);
}
