/* What both of MLflow's sinks share: a run of an experiment, which another
 * attempt finds again by RUN/tracking.json, and which step of each metric
 * MLflow has already: nothing can be taken back there, so steps that come again
 * are left out, which have the same loss anyway. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/tracking/tracking_http.h"
#include "src/tracking/tracking_sink.h"

#define TRACKING_MLFLOW_ID_BYTES 65
#define TRACKING_MLFLOW_VALUE_BYTES                                            \
    500 /* of a parameter; longer ones are cut */

/* Digits of RunStatus in files, and its words on the wire. */
enum tracking_mlflow_status {
    MLFLOW_RUNNING = 1,
    MLFLOW_SCHEDULED,
    MLFLOW_FINISHED,
    MLFLOW_FAILED
};

bool tracking_mlflow_is_http(const char *address);
/* The folder of "file:///folder" and "/folder". */
const char *tracking_mlflow_folder(const char *address);

/* For messages: what may hold a secret is not repeated. */
const char *tracking_mlflow_shown(const char *address);
/* ERR_USAGE: MLflow has no experiment of this name. */
enum err tracking_mlflow_check_experiment(const char *experiment);

/* The same of a registered model; "" is fine. */
enum err tracking_mlflow_check_register(const char *name);

/* A version of settings.mlflow_register, of options->model and this run, unless it
 * is there. Errors as of tracking_http_call(). */
enum err tracking_mlflow_register(struct tracking_http *http,
                                  const struct tracking_options *options,
                                  const char *run);

enum tracking_mlflow_status tracking_mlflow_status(enum tracking_end end);
int64_t tracking_mlflow_ms(double time_s);

/* Letters and digits, as MLflow makes them: fit for a path and an address. */
bool tracking_mlflow_is_id(const char *text);

/* The run that RUN/tracking.json has for this address and experiment; "": it
 * has none. *has_params: it has all parameters. */
enum err tracking_mlflow_load(const struct tracking_options *options,
                              char id[TRACKING_MLFLOW_ID_BYTES],
                              bool *has_params);
enum err tracking_mlflow_save(const struct tracking_options *options,
                              const char *id, bool has_params);

/* The last step of each metric that is there already. Zeros: of none. */
struct tracking_mlflow_seen {
    struct tracking_map *names;
    int64_t *last; /* [room] */
    int room;
};

/* Its number; *known: it was set before. */
enum err tracking_mlflow_seen_find(struct tracking_mlflow_seen *seen,
                                   const char *name, int *number, bool *known);
void tracking_mlflow_seen_clear(struct tracking_mlflow_seen *seen);
