/* Requests with JSON in and out, one at a time, as MLflow's REST interface has
 * them. They may be given up at any time. */
#pragma once

#include <jansson.h>
#include <stdatomic.h>

#include "src/base/err.h"

struct tracking_http;

/* `base` begins every address. User and password, or a token, are taken from
 * MLFLOW_TRACKING_USERNAME, MLFLOW_TRACKING_PASSWORD and MLFLOW_TRACKING_TOKEN;
 * they are in no message. */
enum err tracking_http_create(const char *base, const atomic_bool *given_up,
                              struct tracking_http **out);
void tracking_http_destroy(struct tracking_http *http);

/* What an answer may have at most. As JSON it takes up to 80 times as much. */
#define TRACKING_HTTP_ANSWER_BYTES ((size_t)1 << 20)

/* POST of `body`, GET where it is NULL; steals it. *answer is a new object, of
 * an answer of so many bytes at most.
 * ERR_IO: it may go better next time. ERR_USAGE: the server does not let us in.
 * ERR_DATA: it does not take this. ERR_CHECKPOINT: there is no such thing. The
 * text has the server's own. */
enum err tracking_http_call(struct tracking_http *http, const char *path,
                            json_t *body, size_t bytes_max, json_t **answer);
