/* Sink: an MLflow server, by its REST interface (2.0). What is sent twice,
 * after an answer that was lost, is the same value of the same step and time,
 * which the server keeps once.
 *
 * An attempt at a run finds the run of the attempt before it by
 * RUN/tracking.json, which is written as soon as the server has given an id;
 * that parameters are there, too, is noted when all of them are. Nothing can be
 * taken back from a server: so what it has is asked for at every begin, and
 * steps that come again are left out.
 *
 * Which errors are worth another try is for the answer to say
 * (tracking_http.c): no answer, 408, 429 and 5xx may pass; a refusal with
 * MLflow's own code will not, and costs these records alone; a run that is gone
 * is replaced by a new one. tracking.c waits between tries, twice as long each
 * time. */
#include <assert.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/base/jsontext.h"
#include "src/base/log.h"
#include "src/tracking/tracking_mlflow.h"
#include "src/tracking/tracking_sink.h"

#define API "/api/2.0/mlflow/"
/* of one request, by MLflow's limits */
#define METRICS_MAX 1000
#define PARAMS_MAX 100
/* a whole run, with the last value of each metric */
#define RUN_BYTES_MAX ((size_t)4 << 20)

struct mlflow_rest {
    const struct tracking_options *options;
    struct tracking_http *http;
    char run[TRACKING_MLFLOW_ID_BYTES];
    struct tracking_mlflow_seen seen;
    json_t *metrics; /* of the next request */
};

static bool mlflow_rest_wanted(const struct tracking_settings *settings)
{
    return tracking_mlflow_is_http(settings->mlflow);
}

static enum err mlflow_rest_check(const struct tracking_settings *settings)
{
    assert(tracking_mlflow_is_http(settings->mlflow));
    const char *address = settings->mlflow;
    const char *host = strstr(address, "://") + 3;
    /* a password may have a "/", so "@" is looked for in all of it */
    if (strchr(host, '@') != NULL)
        return err_set(ERR_USAGE,
                       "tracking.mlflow has a user or password, which would "
                       "be written to the run's files: give "
                       "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, "
                       "or MLFLOW_TRACKING_TOKEN, in the environment");
    for (const char *c = address; *c != '\0'; c++)
        if (*c == '?' || *c == '#' || (unsigned char)*c <= 0x20 || *c == 0x7f)
            return err_set(ERR_USAGE,
                           "tracking.mlflow = \"%s\": an address without "
                           "blanks, \"?\" and \"#\", please",
                           tracking_mlflow_shown(address));
    if (host[0] == '\0' || host[0] == '/' || host[0] == ':')
        return err_set(ERR_USAGE, "tracking.mlflow = \"%s\": names no host",
                       tracking_mlflow_shown(address));
    TRY(tracking_mlflow_check_register(settings->mlflow_register));
    return tracking_mlflow_check_experiment(settings->experiment);
}

/* A call whose answer does not matter. */
static enum err rest_send(struct mlflow_rest *m, const char *path, json_t *body)
{
    json_t *answer = NULL;
    TRY(tracking_http_call(m->http, path, body, TRACKING_HTTP_ANSWER_BYTES,
                           &answer));
    json_decref(answer);
    return ERR_OK;
}

/* --- the run ---------------------------------------------------------------------- */

static enum err copy_id(const json_t *text, char id[TRACKING_MLFLOW_ID_BYTES])
{
    const char *value = json_string_value(text);
    if (value == NULL || !tracking_mlflow_is_id(value))
        return err_set(ERR_IO, "the server does not answer as MLflow does");
    memcpy(id, value, strlen(value) + 1);
    return ERR_OK;
}

static enum err find_experiment(struct mlflow_rest *m,
                                char id[TRACKING_MLFLOW_ID_BYTES])
{
    char path[640] = API "experiments/get-by-name?experiment_name=";
    char *end = path + strlen(path);
    json_t *answer = NULL;
    /* mlflow_rest_check() leaves no other characters to encode */
    for (const char *c = m->options->settings.experiment; *c != '\0'; c++)
        end += sprintf(end, *c == ' ' || *c == '/' ? "%%%02X" : "%c", *c);
    enum err rc = tracking_http_call(m->http, path, NULL,
                                     TRACKING_HTTP_ANSWER_BYTES, &answer);
    if (rc == ERR_OK)
        rc = copy_id(json_object_get(json_object_get(answer, "experiment"),
                                     "experiment_id"),
                     id);
    json_decref(answer);
    if (rc != ERR_CHECKPOINT)
        return rc;
    TRY(tracking_http_call(
        m->http, API "experiments/create",
        json_pack("{s:s}", "name", m->options->settings.experiment),
        TRACKING_HTTP_ANSWER_BYTES, &answer));
    rc = copy_id(json_object_get(answer, "experiment_id"), id);
    json_decref(answer);
    return rc;
}

/* No more than the server takes in one request. */
static enum err send_all_params(struct mlflow_rest *m)
{
    const struct tracking_options *options = m->options;
    for (int i = 0; i < options->param_count;) {
        json_t *params = json_array();
        for (; i < options->param_count && json_array_size(params) < PARAMS_MAX;
             i++) {
            char value[TRACKING_MLFLOW_VALUE_BYTES + 1];
            snprintf(value, sizeof value, "%s", options->params[i].value);
            json_array_append_new(
                params, json_pack("{s:s, s:o}", "key", options->params[i].key,
                                  "value", jsontext_string(value)));
        }
        TRY(rest_send(
            m, API "runs/log-batch",
            json_pack("{s:s, s:o}", "run_id", m->run, "params", params)));
    }
    return ERR_OK;
}

/* Until the server has them: a run that is known already, from a try that was
 * cut off, gets those again that it has. */
static enum err send_params(struct mlflow_rest *m)
{
    enum err rc = send_all_params(m);
    if (rc == ERR_DATA)
        log_warn("tracking: mlflow: run %s lacks parameters: %s", m->run,
                 err_text());
    else if (rc != ERR_OK)
        return rc;
    return tracking_mlflow_save(m->options, m->run, true);
}

static enum err make_run(struct mlflow_rest *m)
{
    char experiment[TRACKING_MLFLOW_ID_BYTES];
    json_t *answer = NULL;
    TRY(find_experiment(m, experiment));
    TRY(tracking_http_call(
        m->http, API "runs/create",
        json_pack("{s:s, s:o, s:I}", "experiment_id", experiment, "run_name",
                  jsontext_string(m->options->run_name), "start_time",
                  (json_int_t)tracking_mlflow_ms(clock_wall())),
        TRACKING_HTTP_ANSWER_BYTES, &answer));
    const json_t *info =
        json_object_get(json_object_get(answer, "run"), "info");
    enum err rc = copy_id(json_object_get(info, "run_id"), m->run);
    json_decref(answer);
    TRY(rc);
    TRY(tracking_mlflow_save(m->options, m->run, false));
    log_info("tracking: mlflow: run %s of experiment \"%s\" at %s", m->run,
             m->options->settings.experiment, m->options->settings.mlflow);
    return send_params(m);
}

static enum err get_run(struct mlflow_rest *m, json_t **answer)
{
    char path[256];
    snprintf(path, sizeof path, API "runs/get?run_id=%s", m->run);
    return tracking_http_call(m->http, path, NULL, RUN_BYTES_MAX, answer);
}

static enum err set_status(struct mlflow_rest *m,
                           enum tracking_mlflow_status status)
{
    static const char *const names[] = {
        [MLFLOW_RUNNING] = "RUNNING",
        [MLFLOW_SCHEDULED] = "SCHEDULED",
        [MLFLOW_FINISHED] = "FINISHED",
        [MLFLOW_FAILED] = "FAILED",
    };
    json_t *body =
        json_pack("{s:s, s:s}", "run_id", m->run, "status", names[status]);
    if (status != MLFLOW_RUNNING)
        json_object_set_new(
            body, "end_time",
            json_integer((json_int_t)tracking_mlflow_ms(clock_wall())));
    return rest_send(m, API "runs/update", body);
}

static enum err mlflow_rest_open(void *self,
                                 const struct tracking_options *options)
{
    struct mlflow_rest *m = self;
    json_t *answer = NULL;
    bool has_params;
    m->options = options;
    m->metrics = json_array();
    TRY(tracking_http_create(options->settings.mlflow, options->given_up,
                             &m->http));
    TRY(tracking_mlflow_load(options, m->run, &has_params));
    if (m->run[0] == '\0')
        return make_run(m);
    enum err rc = get_run(m, &answer);
    const char *stage = json_string_value(
        json_object_get(json_object_get(json_object_get(answer, "run"), "info"),
                        "lifecycle_stage"));
    bool there =
        rc == ERR_OK && (stage == NULL || strcmp(stage, "active") == 0);
    json_decref(answer);
    if (there && !has_params)
        TRY(send_params(m));
    if (there)
        return set_status(m, MLFLOW_RUNNING);
    if (rc != ERR_OK && rc != ERR_CHECKPOINT)
        return rc;
    log_warn("tracking: mlflow: %s has no run %s any more: a new one begins",
             options->settings.mlflow, m->run);
    return make_run(m);
}

/* --- metrics ----------------------------------------------------------------------- */

/* Which steps the server has. */
static enum err mlflow_rest_begin(void *self, int64_t step)
{
    struct mlflow_rest *m = self;
    json_t *answer = NULL;
    const json_t *metric;
    size_t i;
    (void)step;
    tracking_mlflow_seen_clear(&m->seen);
    enum err rc = get_run(m, &answer);
    json_array_foreach(
        json_object_get(json_object_get(json_object_get(answer, "run"), "data"),
                        "metrics"),
        i, metric)
    {
        int number;
        bool known;
        const char *name = json_string_value(json_object_get(metric, "key"));
        if (rc != ERR_OK || name == NULL)
            continue;
        rc = tracking_mlflow_seen_find(&m->seen, name, &number, &known);
        if (rc == ERR_OK)
            m->seen.last[number] =
                json_integer_value(json_object_get(metric, "step"));
    }
    json_decref(answer);
    return rc;
}

static enum err send_metrics(struct mlflow_rest *m)
{
    if (json_array_size(m->metrics) == 0)
        return ERR_OK;
    enum err rc = rest_send(
        m, API "runs/log-batch",
        json_pack("{s:s, s:O}", "run_id", m->run, "metrics", m->metrics));
    json_array_clear(m->metrics);
    return rc;
}

/* JSON has no NaN; MLflow takes these words. */
static json_t *as_json(double value)
{
    return isfinite(value) ? json_real(value)
           : isnan(value)  ? json_string("NaN")
                           : json_string(value > 0 ? "Infinity" : "-Infinity");
}

static enum err add_metric(struct mlflow_rest *m,
                           const struct tracking_scalar *scalar,
                           const struct tracking_record *record)
{
    int number = m->seen.names != NULL
                     ? tracking_map_find(m->seen.names, scalar->name)
                     : -1;
    if (number >= 0 && m->seen.last[number] >= record->step)
        return ERR_OK;
    json_array_append_new(
        m->metrics, json_pack("{s:s, s:o, s:I, s:I}", "key", scalar->name,
                              "value", as_json(scalar->value), "timestamp",
                              (json_int_t)tracking_mlflow_ms(record->time_s),
                              "step", (json_int_t)record->step));
    return json_array_size(m->metrics) == METRICS_MAX ? send_metrics(m)
                                                      : ERR_OK;
}

static enum err mlflow_rest_write(void *self,
                                  const struct tracking_record *const *records,
                                  int count)
{
    assert(count > 0);
    struct mlflow_rest *m = self;
    json_array_clear(m->metrics);
    for (int r = 0; r < count; r++)
        for (int i = 0; i < records[r]->count; i++)
            TRY(add_metric(m, &records[r]->scalars[i], records[r]));
    return send_metrics(m);
}

/* A run that is not registered is finished even so. */
static enum err mlflow_rest_finish(void *self, enum tracking_end end)
{
    struct mlflow_rest *m = self;
    TRY(set_status(m, tracking_mlflow_status(end)));
    if (m->options->model.source[0] != '\0' &&
        tracking_mlflow_register(m->http, m->options, m->run) != ERR_OK)
        log_warn("tracking: mlflow: %s is not registered as %s: %s",
                 m->options->model.path, m->options->settings.mlflow_register,
                 err_text());
    return ERR_OK;
}

static void mlflow_rest_close(void *self)
{
    struct mlflow_rest *m = self;
    tracking_http_destroy(m->http);
    tracking_mlflow_seen_clear(&m->seen);
    json_decref(m->metrics);
}

const struct tracking_sink_ops tracking_mlflow_rest_ops = {
    TRACKING_SINK("mlflow", struct mlflow_rest),
    .pause_s = 0.1, /* what waits meanwhile is one request */
    .wanted = mlflow_rest_wanted,
    .check = mlflow_rest_check,
    .open = mlflow_rest_open,
    .begin = mlflow_rest_begin,
    .write = mlflow_rest_write,
    .finish = mlflow_rest_finish,
    .close = mlflow_rest_close
};
