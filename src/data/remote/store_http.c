/* Sends the requests for a file until it is there, refused, or its time is
 * over; and the schemes http and https.
 *
 * Requests to object stores fail, and they hang. What failed and may pass is
 * sent again after a pause that doubles up to 20 s and is shortened by chance,
 * for the ranks of a job fail at the same moment and should not come back at
 * the same moment; a server's own wish (Retry-After) is obeyed. A request goes
 * on where the last one ended, if the server can tell that it is the same file
 * (store_transfer.c).
 *
 * What hangs is met twice. A transfer that gives less than a kilobyte a second
 * counts as failed. One that takes some times as long as the median of the last
 * ones gets a second beside it, into a file of its own, and the first that is
 * whole wins (hedged requests: Dean and Barroso, "The Tail at Scale", 2013).
 * Only one in ten transfers may have a second: a server that is slow for
 * everybody must not be asked for everything twice. Above all stands one
 * deadline for the file, so that there is an end whatever a server does.
 *
 * Whoever gets a file has a session of its own, two handles of libcurl and the
 * connections that they keep; idle ones wait in a list for the next file. */
#include <assert.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/digest.h"
#include "src/base/log.h"
#include "src/base/new.h"
#include "src/base/real.h"
#include "src/base/rng.h"
#include "src/data/remote/store_impl.h"
#include "src/data/remote/store_transfer.h"

#define STORE_RECENT 32      /* transfers whose times are remembered */
#define STORE_RECENT_LEAST 5 /* before that there are no second transfers */
#define STORE_HEDGE_LEAST_S 0.1
#define STORE_HEDGE_ONE_IN 10 /* transfers, and as many at first */
#define STORE_PAUSE_S 0.2     /* the first; each is twice the one before */
#define STORE_PAUSE_MAX_S 20.0
#define STORE_UNRESOLVED_MAX 3 /* times that a host has no address */
#define STORE_STALL_S 30.0     /* or a quarter of the deadline */
#define STORE_POLL_S 0.1       /* between looks at whether to stop */

/* What one thread needs for a file; connections live in `multi`. */
struct store_session {
    CURLM *multi;
    struct store_transfer of[2]; /* the second for a second transfer */
    struct store_session *next;
};

struct store_http {
    pthread_mutex_t mutex; /* of all */
    struct store_session *idle;
    double recent[STORE_RECENT]; /* seconds */
    int64_t finished;
    int64_t hedges; /* second transfers so far */
};

/* A file on its way. */
struct store_job {
    struct store *store;
    struct store_session *session;
    const char *name;
    const char *path;
    double begin, end; /* by the clock */
    double pause_s;    /* before the next request */
    int running;       /* of the session's transfers */
    bool hedged;
    struct store_transfer *whole; /* the one that has the file */
};

static void store_session_destroy(struct store_session *session)
{
    if (session == NULL)
        return;
    store_transfer_destroy(&session->of[0]);
    store_transfer_destroy(&session->of[1]);
    if (session->multi != NULL)
        curl_multi_cleanup(session->multi);
    free(session);
}

static enum err store_session_create(struct store_session **out)
{
    enum err rc = ERR_OK;
    struct store_session *session = NULL;
    TRY(new_zeroed(&session, 1));
    session->of[0].fd = session->of[1].fd = -1;
    session->multi = curl_multi_init();
    if (session->multi == NULL)
        TRY_OUT(err_set(ERR_MEMORY, "no memory for a transfer"));
    TRY_OUT(store_transfer_create(&session->of[0]));
    TRY_OUT(store_transfer_create(&session->of[1]));
out:
    return new_or_none(rc, session, out, store_session_destroy);
}

static enum err store_session_take(struct store_http *http,
                                   struct store_session **out)
{
    pthread_mutex_lock(&http->mutex);
    *out = http->idle;
    if (http->idle != NULL)
        http->idle = http->idle->next;
    pthread_mutex_unlock(&http->mutex);
    return *out != NULL ? ERR_OK : store_session_create(out);
}

static void store_session_give(struct store_http *http,
                               struct store_session *session)
{
    pthread_mutex_lock(&http->mutex);
    session->next = http->idle;
    http->idle = session;
    pthread_mutex_unlock(&http->mutex);
}

static void store_global_init(void)
{
    curl_global_init(CURL_GLOBAL_DEFAULT);
}

enum err store_http_create(struct store_http **out)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, store_global_init);
    TRY(new_zeroed(out, 1));
    pthread_mutex_init(&(*out)->mutex, NULL);
    return ERR_OK;
}

void store_http_destroy(struct store_http *http)
{
    if (http == NULL)
        return;
    while (http->idle != NULL) {
        struct store_session *session = http->idle;
        http->idle = session->next;
        store_session_destroy(session);
    }
    pthread_mutex_destroy(&http->mutex);
    free(http);
}

/* Seconds after which a second transfer begins. A few of them are free, then
 * one in ten: where everything has become slow they would only add to it. */
static double store_hedge_after(const struct store_job *job)
{
    double values[STORE_RECENT];
    double after = INFINITY;
    double hedge = job->store->options.hedge;
    struct store_http *http = job->store->http;
    pthread_mutex_lock(&http->mutex);
    int count =
        http->finished < STORE_RECENT ? (int)http->finished : STORE_RECENT;
    bool may =
        hedge > 0 && count >= STORE_RECENT_LEAST &&
        job->session->of[0].expected >= 0 &&
        http->hedges < STORE_HEDGE_ONE_IN + http->finished / STORE_HEDGE_ONE_IN;
    memcpy(values, http->recent, sizeof values);
    pthread_mutex_unlock(&http->mutex);
    if (may)
        after = fmax(hedge * real_median(values, count), STORE_HEDGE_LEAST_S);
    return after;
}

static void store_remember(const struct store_job *job, double seconds)
{
    struct store_http *http = job->store->http;
    if (job->session->of[0].expected < 0)
        return;
    pthread_mutex_lock(&http->mutex);
    http->recent[http->finished++ % STORE_RECENT] = seconds;
    pthread_mutex_unlock(&http->mutex);
}

static enum err store_send(struct store_job *job, struct store_transfer *t)
{
    assert(!t->sent && (t->fd >= 0 || t->send != NULL));
    struct store_request request = { .headers = NULL };
    enum err rc =
        job->store->scheme->request(job->store, job->name, t->send, &request);
    if (rc == ERR_OK)
        rc = store_transfer_prepare(t, &request);
    curl_slist_free_all(request.headers);
    if (rc != ERR_OK)
        return rc;
    if (curl_multi_add_handle(job->session->multi, t->easy) != CURLM_OK)
        return err_set(ERR_MEMORY, "no memory for a transfer");
    t->sent = true;
    job->running++;
    return ERR_OK;
}

static enum err store_send_second(struct store_job *job)
{
    char path[FSIO_PATH_MAX];
    struct store_transfer *first = &job->session->of[0];
    struct store_transfer *second = &job->session->of[1];
    struct store_http *http = job->store->http;
    job->hedged = true;
    TRY(fsio_path(path, "%s.second", job->path));
    TRY(store_transfer_open(second, first->address, path, first->expected));
    TRY(store_send(job, second));
    pthread_mutex_lock(&http->mutex);
    http->hedges++;
    pthread_mutex_unlock(&http->mutex);
    return ERR_OK;
}

/* Bytes that have come, of the transfer that is further. */
static int64_t store_arrived(const struct store_job *job)
{
    const struct store_transfer *of = job->session->of;
    if (of[0].send != NULL)
        return (int64_t)of[0].send->sent;
    return of[1].fd >= 0 && of[1].received > of[0].received ? of[1].received
                                                            : of[0].received;
}

static enum err store_late(const struct store_job *job, const char *last)
{
    char of[40] = "";
    const struct store_send *send = job->session->of[0].send;
    int64_t expected =
        send != NULL ? (int64_t)send->bytes : job->session->of[0].expected;
    if (expected >= 0)
        snprintf(of, sizeof of, " of %lld", (long long)expected);
    return err_set(ERR_IO,
                   "%lld%s bytes %s in %.0f s, then the time was over "
                   "(data.remote_deadline = %g)%s%s",
                   (long long)store_arrived(job), of,
                   send != NULL ? "went" : "came", clock_now() - job->begin,
                   job->store->options.deadline_s,
                   last[0] != '\0' ? "; last: " : "", last);
}

/* The verdict on a transfer that has ended. */
static enum store_verdict store_end(struct store_job *job,
                                    struct store_transfer *t, CURLcode code,
                                    enum err *kind)
{
    assert(t->sent && job->running > 0);
    curl_multi_remove_handle(job->session->multi, t->easy);
    t->sent = false;
    job->running--;
    enum store_verdict verdict = store_transfer_judge(t, code, kind);
    job->pause_s = fmax(job->pause_s, t->retry_after_s);
    if (verdict == STORE_DONE)
        job->whole = t;
    if (verdict == STORE_NEVER && t->failed.code == ERR_OK) {
        char advice[256] = "";
        job->store->scheme->advise(job->store, t, advice, sizeof advice);
        *kind = err_set(*kind, "%s%s", err_text(), advice);
    }
    return verdict;
}

/* The verdict on all that have ended or stall. STORE_AGAIN also without any. */
static enum store_verdict store_collect(struct store_job *job, enum err *kind)
{
    int left = 0;
    enum store_verdict verdict = STORE_AGAIN;
    const CURLMsg *message = NULL;
    double stall_s = fmin(job->store->options.deadline_s / 4, STORE_STALL_S);
    while (verdict == STORE_AGAIN &&
           (message = curl_multi_info_read(job->session->multi, &left)) !=
               NULL) {
        struct store_transfer *t = NULL;
        if (message->msg != CURLMSG_DONE)
            continue;
        CURLcode code = message->data.result;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&t);
        verdict = store_end(job, t, code, kind);
    }
    for (int i = 0; i < 2 && verdict == STORE_AGAIN; i++) {
        struct store_transfer *t = &job->session->of[i];
        if (t->sent && store_transfer_stalls(t, stall_s))
            verdict = store_end(job, t, CURLE_OPERATION_TIMEDOUT, kind);
    }
    return verdict;
}

/* Requests until one is done or none is left. */
static enum store_verdict store_round(struct store_job *job, enum err *kind)
{
    enum store_verdict verdict = STORE_NEVER;
    CURLM *multi = job->session->multi;
    double hedge_at = clock_now() + store_hedge_after(job);
    *kind = store_send(job, &job->session->of[0]);
    while (job->running > 0) {
        int running = 0;
        curl_multi_perform(multi, &running);
        verdict = store_collect(job, kind);
        if (verdict != STORE_AGAIN || job->running == 0)
            break;
        double now = clock_now();
        if (store_ends(job->store) || now >= job->end) {
            verdict = STORE_NEVER;
            *kind = now >= job->end
                        ? store_late(job, "")
                        : err_set(ERR_IO, "given up, the program ends");
            break;
        }
        if (now >= hedge_at && !job->hedged)
            (void)store_send_second(
                job); /* the first is on its way in any case */
        double wait = fmin(STORE_POLL_S, job->end - now);
        if (!job->hedged)
            wait = fmin(wait, fmax(hedge_at - now, 0.0));
        curl_multi_poll(multi, NULL, 0, (int)(wait * 1e3) + 1, NULL);
    }
    /* whoever has lost is broken off */
    for (int i = 0; i < 2; i++) {
        if (job->session->of[i].sent)
            curl_multi_remove_handle(multi, job->session->of[i].easy);
        job->session->of[i].sent = false;
    }
    job->running = 0;
    return verdict;
}

/* Until the next request; false: the program ends. */
static bool store_pause(const struct store_job *job, double seconds)
{
    double until = clock_now() + seconds;
    while (clock_now() < until && !store_ends(job->store))
        clock_sleep(fmin(until - clock_now(), STORE_POLL_S / 2));
    return !store_ends(job->store);
}

/* A pause of 2^attempt, shortened by chance, so that many ranks that failed at
 * once do not come back at once. */
static double store_backoff(int attempt)
{
    assert(attempt >= 0);
    double most = fmin(ldexp(STORE_PAUSE_S, attempt), STORE_PAUSE_MAX_S);
    double chance = rng_uniform((uint64_t)getpid(), (uint64_t)attempt,
                                (uint64_t)(clock_now() * 1e6));
    return most * (0.5 + 0.5 * chance);
}

static enum err store_try(struct store_job *job)
{
    int unresolved = 0;
    for (int attempt = 0;; attempt++) {
        char last[ERR_TEXT_BYTES];
        enum err kind = ERR_OK;
        job->pause_s = 0.0;
        enum store_verdict verdict = store_round(job, &kind);
        if (verdict == STORE_DONE)
            return ERR_OK;
        if (verdict == STORE_NEVER)
            return kind;
        snprintf(last, sizeof last, "%s", err_text());
        /* a name server may be away for a moment, but mostly the name is wrong
         */
        bool unknown = job->session->of[0].code == CURLE_COULDNT_RESOLVE_HOST ||
                       job->session->of[0].code == CURLE_COULDNT_RESOLVE_PROXY;
        if (unknown && ++unresolved >= STORE_UNRESOLVED_MAX)
            return err_set(ERR_IO,
                           "%s: is the address right, and has this node a name "
                           "server or a proxy (HTTPS_PROXY)?",
                           last);
        double pause = fmax(job->pause_s, store_backoff(attempt));
        if (clock_now() + pause >= job->end)
            return store_late(job, last);
        /* where all ranks write rank 0 says so for all */
        (job->session->of[0].send != NULL ? log_info : log_warn)(
            "%s/%s: %s; again in %.1f s", job->store->address, job->name, last,
            pause);
        if (!store_pause(job, pause))
            return err_set(ERR_IO, "given up, the program ends: %s", last);
    }
}

/* The file is at its path, or nothing is. */
static enum err store_settle(struct store_job *job, enum err rc)
{
    assert(rc != ERR_OK || job->whole != NULL);
    struct store_transfer *of = job->session->of;
    enum err first = store_transfer_close(&of[0]);
    bool second = of[1].fd >= 0;
    enum err other = store_transfer_close(&of[1]);
    if (rc != ERR_OK || job->whole == &of[0]) {
        if (second)
            unlink(of[1].path);
        return rc != ERR_OK ? rc : first;
    }
    if (other == ERR_OK && rename(of[1].path, job->path) != 0)
        other = err_errno("%s: rename", of[1].path);
    return other;
}

enum err store_http_get(struct store *store, const char *name, const char *path,
                        int64_t expected, int64_t *bytes)
{
    struct store_job job = {
        .store = store, .name = name, .path = path, .begin = clock_now()
    };
    job.end = job.begin + store->options.deadline_s +
              (expected > 0 ? (double)expected / (double)(1 << 20) : 0.0);
    TRY(store_session_take(store->http, &job.session));
    enum err rc = store_transfer_open(&job.session->of[0], store->address, path,
                                      expected);
    if (rc == ERR_OK)
        rc = store_try(&job);
    if (job.session->of[0].fd >= 0)
        rc = store_settle(&job, rc);
    if (rc == ERR_OK) {
        *bytes = job.whole->received;
        store_remember(&job, clock_now() - job.begin);
    }
    store_session_give(store->http, job.session);
    return rc == ERR_OK ? rc : err_prefix(rc, "%s/%s", store->address, name);
}

enum err store_http_send(struct store *store, const char *name,
                         struct store_send *send)
{
    struct store_job job = { .store = store,
                             .name = name,
                             .begin = clock_now() };
    job.end = job.begin + store->options.deadline_s +
              (double)send->bytes / (double)(1 << 20);
    TRY(digest_bytes(send->data, send->bytes, send->sha256));
    TRY(store_session_take(store->http, &job.session));
    struct store_transfer *t = &job.session->of[0];
    t->send = send;
    t->address = store->address;
    t->expected = -1;
    t->etag[0] = '\0';
    enum err rc = store_try(&job);
    t->send = NULL;
    store_session_give(store->http, job.session);
    return rc == ERR_OK ? rc : err_prefix(rc, "%s/%s", store->address, name);
}

/* --- http and https ------------------------------------------------------- */

static enum err store_plain_request(struct store *store, const char *name,
                                    const struct store_send *send,
                                    struct store_request *out)
{
    (void)send;
    char path[STORE_ADDRESS_BYTES];
    TRY(store_url_encode(store->url.path, name, true, path, sizeof path));
    int length = snprintf(out->url, sizeof out->url, "%s://%s%s",
                          store->url.scheme, store->url.place, path);
    return length < (int)sizeof out->url
               ? ERR_OK
               : err_set(ERR_USAGE, "the address is too long");
}

static void store_plain_advise(struct store *store,
                               const struct store_transfer *answer, char *text,
                               size_t bytes)
{
    (void)store;
    if (answer->status == 401 || answer->status == 403)
        snprintf(text, bytes,
                 "; asked with the user and password of ~/.netrc, if it has "
                 "the host, else with none");
    else if (answer->status == 404 || answer->status == 410)
        snprintf(text, bytes,
                 "; is the address that of the data set's folder?");
    else if (answer->code == CURLE_TOO_MANY_REDIRECTS)
        snprintf(text, bytes, "; give the address that it leads to");
    else if (answer->code == CURLE_PEER_FAILED_VERIFICATION)
        snprintf(text, bytes,
                 "; for a certificate authority of your own set "
                 "CURL_CA_BUNDLE");
}

static enum err store_plain_open(struct store *store)
{
    return store->url.place[0] != '\0'
               ? ERR_OK
               : err_set(ERR_USAGE, "%s: names no host", store->address);
}

#define STORE_PLAIN(scheme)                                                    \
    {                                                                          \
        .name = (scheme), .open = store_plain_open, .get = store_http_get,     \
        .request = store_plain_request, .advise = store_plain_advise           \
    }
const struct store_scheme store_http_scheme = STORE_PLAIN("http");
const struct store_scheme store_https_scheme = STORE_PLAIN("https");
