/* MLflow's registry: the checkpoint of a finished run becomes a version of a
 * model there, by two requests of its REST interface.
 *
 * A version is asked for before it is made: a run that is extended, or whose end
 * is sent again, has one for each checkpoint and not one for each end. Nothing is
 * uploaded, a version says where the checkpoint lies. That is an address that
 * everybody reads, as of an object store, or one of this file system; the latter
 * servers refuse as file:, since they would read their own files for whoever
 * asks, so it goes by a scheme of ours. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "src/base/jsontext.h"
#include "src/base/log.h"
#include "src/tracking/tracking_mlflow.h"

#define API "/api/2.0/mlflow/"
#define NAME_MAX_BYTES 200

enum err tracking_mlflow_check_register(const char *name)
{
    size_t length = strlen(name);
    if (length > NAME_MAX_BYTES || name[0] == ' ' ||
        (length > 0 && name[length - 1] == ' ') ||
        strspn(name, "abcdefghijklmnopqrstuvwxyz"
                     "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-. ") != length)
        return err_set(ERR_USAGE,
                       "tracking.mlflow_register = \"%s\": up to %d letters, "
                       "digits, blanks and \"_-.\", please",
                       name, NAME_MAX_BYTES);
    return ERR_OK;
}

/* The run's versions of the model; *number: that of this source; "": none. */
static enum err find_version(struct tracking_http *http,
                             const struct tracking_options *options,
                             const char *run, char number[32])
{
    char path[1024] = API "model-versions/search?max_results=200&filter=name%3D"
                          "%27";
    char *end = path + strlen(path);
    json_t *answer = NULL;
    const json_t *version;
    size_t i;
    /* tracking_mlflow_check_register() leaves no other characters to encode */
    for (const char *c = options->settings.mlflow_register; *c != '\0'; c++)
        end += sprintf(end, *c == ' ' ? "%%20" : "%c", *c);
    sprintf(end, "%%27%%20and%%20run_id%%3D%%27%s%%27", run);
    TRY(tracking_http_call(http, path, NULL, TRACKING_HTTP_ANSWER_BYTES,
                           &answer));
    number[0] = '\0';
    json_array_foreach(json_object_get(answer, "model_versions"), i, version)
    {
        const char *source =
            json_string_value(json_object_get(version, "source"));
        const char *its =
            json_string_value(json_object_get(version, "version"));
        if (source != NULL && its != NULL &&
            strcmp(source, options->model.source) == 0)
            snprintf(number, 32, "%s", its);
    }
    json_decref(answer);
    return ERR_OK;
}

/* Most often it is there already, which is a refusal as others are: what
 * follows tells these apart. */
static enum err make_model(struct tracking_http *http, const char *name)
{
    json_t *answer = NULL;
    enum err rc = tracking_http_call(http, API "registered-models/create",
                                     json_pack("{s:s}", "name", name),
                                     TRACKING_HTTP_ANSWER_BYTES, &answer);
    json_decref(answer);
    return rc == ERR_DATA ? ERR_OK : rc;
}

static json_t *tag(const char *key, const char *value)
{
    return json_pack("{s:s, s:o}", "key", key, "value", jsontext_string(value));
}

enum err tracking_mlflow_register(struct tracking_http *http,
                                  const struct tracking_options *options,
                                  const char *run)
{
    const char *name = options->settings.mlflow_register;
    const struct tracking_model *model = &options->model;
    char number[32], step[32];
    json_t *answer = NULL;
    TRY(make_model(http, name));
    TRY(find_version(http, options, run, number));
    if (number[0] != '\0') {
        log_info("tracking: mlflow: version %s of %s is this checkpoint",
                 number, name);
        return ERR_OK;
    }
    snprintf(step, sizeof step, "%lld", (long long)model->step);
    TRY(tracking_http_call(
        http, API "model-versions/create",
        json_pack("{s:s, s:o, s:s, s:[o, o, o]}", "name", name, "source",
                  jsontext_string(model->source), "run_id", run, "tags",
                  tag("tessera.checkpoint", model->path),
                  tag("tessera.step", step),
                  tag("tessera.run", options->run_name)),
        TRACKING_HTTP_ANSWER_BYTES, &answer));
    const char *its = json_string_value(
        json_object_get(json_object_get(answer, "model_version"), "version"));
    log_info("tracking: mlflow: version %s of %s is step %lld, %s",
             its != NULL ? its : "?", name, (long long)model->step,
             model->source);
    json_decref(answer);
    return ERR_OK;
}
