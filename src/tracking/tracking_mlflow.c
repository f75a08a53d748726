/* MLflow's runs, wherever they are kept: names and ids, RUN/tracking.json, and
 * which steps are there. The file has the address and the experiment beside the
 * id, as a run that is sent elsewhere is a new run there. */
#include "src/tracking/tracking_mlflow.h"

#include <assert.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "src/base/array.h"
#include "src/base/jsontext.h"
#include "src/base/log.h"

#define STATE_BYTES_MAX 65536

bool tracking_mlflow_is_http(const char *address)
{
    return strncasecmp(address, "http://", 7) == 0 ||
           strncasecmp(address, "https://", 8) == 0;
}

const char *tracking_mlflow_folder(const char *address)
{
    return strncasecmp(address, "file://", 7) == 0 ? address + 7 : address;
}

const char *tracking_mlflow_shown(const char *address)
{
    return strpbrk(address, "@?#") == NULL
               ? address
               : "(not shown, for it may have a password)";
}

enum err tracking_mlflow_check_experiment(const char *experiment)
{
    size_t length = strlen(experiment);
    if (length == 0 || length > 128 || experiment[0] == ' ' ||
        experiment[length - 1] == ' ' ||
        strspn(experiment,
               "abcdefghijklmnopqrstuvwxyz"
               "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./ ") != length)
        return err_set(ERR_USAGE,
                       "tracking.experiment = \"%s\": 1 to 128 letters, "
                       "digits, blanks and \"_-./\", please",
                       experiment);
    return ERR_OK;
}

enum tracking_mlflow_status tracking_mlflow_status(enum tracking_end end)
{
    return end == TRACKING_FINISHED  ? MLFLOW_FINISHED
           : end == TRACKING_GOES_ON ? MLFLOW_SCHEDULED
                                     : MLFLOW_FAILED;
}

int64_t tracking_mlflow_ms(double time_s)
{
    return (int64_t)llround(time_s * 1e3);
}

bool tracking_mlflow_is_id(const char *text)
{
    size_t length = strlen(text);
    return length > 0 && length < TRACKING_MLFLOW_ID_BYTES &&
           strspn(text, "abcdefghijklmnopqrstuvwxyz"
                        "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") == length;
}

/* --- which run ------------------------------------------------------------- */

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}

enum err tracking_mlflow_load(const struct tracking_options *options,
                              char id[TRACKING_MLFLOW_ID_BYTES],
                              bool *has_params)
{
    char path[FSIO_PATH_MAX];
    char *data = NULL;
    size_t bytes = 0;
    id[0] = '\0';
    *has_params = false;
    TRY(fsio_path(path, "%s/tracking.json", options->run_dir));
    if (!fsio_exists(path))
        return ERR_OK;
    TRY(fsio_read_file(path, STATE_BYTES_MAX, &data, &bytes));
    json_t *state = json_loadb(data, bytes, 0, NULL);
    const json_t *mlflow = json_object_get(state, "mlflow");
    const char *run = text_of(mlflow, "run_id");
    if (!tracking_mlflow_is_id(run))
        log_warn("tracking: mlflow: %s names no run: a new one begins", path);
    else if (strcmp(text_of(mlflow, "address"), options->settings.mlflow) ==
                 0 &&
             strcmp(text_of(mlflow, "experiment"),
                    options->settings.experiment) == 0)
        memcpy(id, run, strlen(run) + 1);
    *has_params = !json_is_false(json_object_get(mlflow, "has_params"));
    json_decref(state);
    free(data);
    return ERR_OK;
}

enum err tracking_mlflow_save(const struct tracking_options *options,
                              const char *id, bool has_params)
{
    assert(options->settings.mlflow[0] != '\0');
    enum err rc = ERR_OK;
    char path[FSIO_PATH_MAX];
    char *text = NULL;
    json_t *address = jsontext_string(options->settings.mlflow);
    json_t *state = json_pack(
        "{s:{s:o, s:s, s:s, s:b}}", "mlflow", "address", address, "experiment",
        options->settings.experiment, "run_id", id, "has_params", has_params);
    TRY_OUT(jsontext_make(state, 2, &text));
    TRY_OUT(fsio_path(path, "%s/tracking.json", options->run_dir));
    TRY_OUT(fsio_write_atomic(path, text, strlen(text)));
out:
    free(text);
    json_decref(state);
    return rc;
}

/* --- what is there ---------------------------------------------------------- */

enum err tracking_mlflow_seen_find(struct tracking_mlflow_seen *seen,
                                   const char *name, int *number, bool *known)
{
    if (seen->names == NULL)
        TRY(tracking_map_create(&seen->names));
    *number = tracking_map_find(seen->names, name);
    *known = *number >= 0;
    if (*known)
        return ERR_OK;
    TRY(array_room(&seen->last, &seen->room,
                   tracking_map_count(seen->names) + 1));
    TRY(tracking_map_add(seen->names, name, number));
    seen->last[*number] = -1;
    return ERR_OK;
}

void tracking_mlflow_seen_clear(struct tracking_mlflow_seen *seen)
{
    tracking_map_destroy(seen->names);
    free(seen->last);
    *seen = (struct tracking_mlflow_seen){ 0 };
}
