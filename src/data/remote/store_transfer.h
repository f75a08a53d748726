/* One HTTP request for a file, and what became of it. Who sends requests, how
 * often and how many at once is store_http.c's business. */
#pragma once

#include <curl/curl.h>
#include <stdbool.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/base/fsio.h"

#define STORE_ADDRESS_BYTES (4 * FSIO_PATH_MAX)

/* What is asked for. */
struct store_request {
    char url[STORE_ADDRESS_BYTES];
    struct curl_slist *headers; /* the transfer frees them */
    bool signs; /* the headers are for this host alone: no redirects */
};

/* One more header of a request. */
enum err store_transfer_header(struct curl_slist **headers, const char *text);

enum store_verdict {
    STORE_DONE,  /* the file is whole */
    STORE_AGAIN, /* it may go better next time */
    STORE_NEVER  /* it will not */
};

struct store_send;

struct store_transfer {
    CURL *easy;
    struct store_send *send; /* NULL: a file is fetched; lent */
    const char *address;     /* of the file, for messages; lent */
    struct curl_slist *headers;
    char path[FSIO_PATH_MAX];
    int fd;
    int64_t expected; /* -1: not known */
    int64_t received; /* bytes of the file that are there */
    char etag[128];   /* of what is there; "": it can't be gone on with */

    bool sent;    /* and on its way */
    int64_t mark; /* received when last enough had come */
    double mark_s;

    /* of the answer that is coming in */
    char new_etag[128];
    char region[64];     /* S3's, of the bucket */
    int64_t range_begin; /* of the answer; -1: not said */
    bool accepted;       /* bytes go to the file */
    char body[1024];     /* what came in place of a file */
    size_t body_bytes;
    struct err_kept failed; /* here, not there */

    /* verdict */
    long status; /* HTTP's; 0: no answer */
    CURLcode code;
    double retry_after_s; /* the server's wish; 0: none */
};

/* A handle; its file is opened by the first begin. */
enum err store_transfer_create(struct store_transfer *transfer);
void store_transfer_destroy(struct store_transfer *transfer);

/* For a new file, at `path`: nothing of it is there. */
enum err store_transfer_open(struct store_transfer *transfer,
                             const char *address, const char *path,
                             int64_t expected);
/* Closes the file: ERR_IO or ERR_FULL where bytes were lost. */
enum err store_transfer_close(struct store_transfer *transfer);

/* Make the easy handle ready: from where the file ends, where the server knows
 * whether it is still the same file, else from its beginning. */
enum err store_transfer_prepare(struct store_transfer *transfer,
                                struct store_request *request);
/* Whether less than a kilobyte a second has come for so long. */
bool store_transfer_stalls(struct store_transfer *transfer, double stall_s);

/* After the request has ended with `code`. Other than done: the text of the
 * thread's error says what was wrong, without the address, and *kind is its
 * code. */
enum store_verdict store_transfer_judge(struct store_transfer *transfer,
                                        CURLcode code, enum err *kind);
