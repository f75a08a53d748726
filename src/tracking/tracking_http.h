/* Requests with JSON in and out, one at a time, as MLflow's REST interface has
 * them. They may be given up at any time. */
#ifndef TESSERA_TRACKING_TRACKING_HTTP_H
#define TESSERA_TRACKING_TRACKING_HTTP_H

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

/* POST of `body`, GET where it is NULL; steals it. *answer is a new object.
 * ERR_IO: it may go better next time. ERR_USAGE: the server does not let us in.
 * ERR_DATA: it does not take this. ERR_CHECKPOINT: there is no such thing. The
 * text has the server's own. */
enum err tracking_http_call(struct tracking_http *http, const char *path,
                            json_t *body, json_t **answer);

#endif
