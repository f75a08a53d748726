/* Sink: MLflow's file store, as its client writes it: a folder of experiments,
 * in each a folder of its runs.
 *
 *   ROOT/EXPERIMENT/meta.yaml
 *   ROOT/EXPERIMENT/RUN/meta.yaml
 *   ROOT/EXPERIMENT/RUN/metrics/train/loss   lines "milliseconds value step"
 *   ROOT/EXPERIMENT/RUN/params/optimizer.lr  the value
 *   ROOT/EXPERIMENT/RUN/tags/mlflow.runName  the value
 *
 * A metric's file only grows, a line at a time. Which step it has last is read
 * from its end when a name comes for the first time, and a line that a crash has
 * torn is cut off then: so no other state has to agree with the files. The run's
 * id is saved when all of it is there, and a folder that an attempt has left
 * half made is never looked at again. YAML is written with every text in single
 * quotes, where one character alone means something, and of YAML no more is read
 * than MLflow's own client writes. */
#include <assert.h>
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/base/regular.h"
#include "src/tracking/tracking_mlflow.h"
#include "src/tracking/tracking_sink.h"

#define META_BYTES_MAX 65536
#define TAIL_BYTES 128 /* more than a line of a metric */

struct mlflow_file {
    const struct tracking_options *options;
    const char *root;
    char experiment[TRACKING_MLFLOW_ID_BYTES];
    char run[TRACKING_MLFLOW_ID_BYTES];
    int64_t start_ms;
    struct tracking_mlflow_seen seen;
};

static bool mlflow_file_wanted(const struct tracking_settings *settings)
{
    return settings->mlflow[0] != '\0' &&
           !tracking_mlflow_is_http(settings->mlflow);
}

static enum err mlflow_file_check(const struct tracking_settings *settings)
{
    assert(settings->mlflow[0] != '\0');
    const char *folder = tracking_mlflow_folder(settings->mlflow);
    if (strstr(folder, "://") != NULL || strstr(folder, "/file:") != NULL ||
        folder[0] != '/')
        return err_set(ERR_USAGE,
                       "tracking.mlflow = \"%s\": give the address of a "
                       "server, http://host:port or https://..., or a folder, "
                       "as its path or as file:///path",
                       tracking_mlflow_shown(settings->mlflow));
    if (settings->mlflow_register[0] != '\0')
        return err_set(ERR_USAGE,
                       "tracking.mlflow_register is for a server: the folder "
                       "of tracking.mlflow has runs, and no registry");
    return tracking_mlflow_check_experiment(settings->experiment);
}

static enum err random_bytes(void *out, size_t bytes)
{
    return getrandom(out, bytes, 0) == (ssize_t)bytes
               ? ERR_OK
               : err_errno("random numbers");
}

/* --- meta.yaml ---------------------------------------------------------------- */

/* The value of `key` in lines "key: value", without quotes; "" if there is none
 * or it does not fit. */
static void yaml_value(const char *text, const char *key, char *out,
                       size_t room)
{
    size_t length = strlen(key);
    out[0] = '\0';
    for (; text != NULL && *text != '\0';
         text = strchr(text, '\n'), text += text != NULL) {
        if (strncmp(text, key, length) != 0 || text[length] != ':')
            continue;
        const char *value = text + length + 1;
        value += strspn(value, " ");
        size_t bytes = strcspn(value, "\r\n");
        if (bytes >= 2 && (*value == '\'' || *value == '"') &&
            value[bytes - 1] == *value) {
            value++;
            bytes -= 2;
        }
        if (bytes < room) {
            memcpy(out, value, bytes);
            out[bytes] = '\0';
        }
        return;
    }
}

/* A string of YAML in single quotes, where a quote is written twice and other
 * control characters cannot stand. */
static void yaml_quote(const char *text, char *out, size_t room)
{
    size_t used = 0;
    out[used++] = '\'';
    for (; *text != '\0' && used + 4 < room; text++) {
        if (*text == '\'')
            out[used++] = '\'';
        out[used++] = (unsigned char)*text < 0x20 ? ' ' : *text;
    }
    out[used++] = '\'';
    out[used] = '\0';
}

static enum err write_meta(const char *folder, const char *text)
{
    char path[FSIO_PATH_MAX];
    TRY(fsio_mkdirs(folder));
    TRY(fsio_path(path, "%s/meta.yaml", folder));
    return fsio_write_atomic(path, text, strlen(text));
}

/* --- the experiment ------------------------------------------------------------ */

static bool is_experiment(const struct mlflow_file *m, const char *id)
{
    char path[FSIO_PATH_MAX], name[256], stage[32];
    char *text = NULL;
    size_t bytes = 0;
    if (!tracking_mlflow_is_id(id) ||
        fsio_path(path, "%s/%s/meta.yaml", m->root, id) != ERR_OK ||
        !fsio_exists(path) ||
        fsio_read_file(path, META_BYTES_MAX, &text, &bytes) != ERR_OK)
        return false;
    yaml_value(text, "name", name, sizeof name);
    yaml_value(text, "lifecycle_stage", stage, sizeof stage);
    free(text);
    return strcmp(name, m->options->settings.experiment) == 0 &&
           strcmp(stage, "active") == 0;
}

static enum err make_experiment(struct mlflow_file *m)
{
    char folder[FSIO_PATH_MAX], name[FSIO_PATH_MAX], where[2 * FSIO_PATH_MAX];
    char text[8 * FSIO_PATH_MAX];
    uint64_t number;
    TRY(random_bytes(&number, sizeof number));
    /* 18 digits, as MLflow has them */
    snprintf(m->experiment, sizeof m->experiment, "%" PRIu64,
             UINT64_C(100000000000000000) +
                 number % UINT64_C(900000000000000000));
    TRY(fsio_path(folder, "%s/%s", m->root, m->experiment));
    yaml_quote(m->options->settings.experiment, name, sizeof name);
    yaml_quote(folder, where, sizeof where);
    int64_t now = tracking_mlflow_ms(clock_wall());
    snprintf(text, sizeof text,
             "artifact_location: %s\ncreation_time: %" PRId64
             "\nexperiment_id: '%s'\nlast_update_time: %" PRId64
             "\nlifecycle_stage: active\nname: %s\n",
             where, now, m->experiment, now, name);
    return write_meta(folder, text);
}

static enum err find_experiment(struct mlflow_file *m)
{
    m->experiment[0] = '\0';
    TRY(fsio_mkdirs(m->root));
    DIR *entries = opendir(m->root);
    if (entries == NULL)
        return err_errno("%s: read the folder", m->root);
    for (const struct dirent *entry; (entry = readdir(entries)) != NULL;)
        if (is_experiment(m, entry->d_name)) {
            memcpy(m->experiment, entry->d_name, strlen(entry->d_name) + 1);
            break;
        }
    closedir(entries);
    return m->experiment[0] != '\0' ? ERR_OK : make_experiment(m);
}

/* --- the run ----------------------------------------------------------------------- */

static enum err run_path(const struct mlflow_file *m, const char *name,
                         char path[FSIO_PATH_MAX])
{
    return fsio_path(path, "%s/%s/%s/%s", m->root, m->experiment, m->run, name);
}

static enum err write_run(const struct mlflow_file *m,
                          enum tracking_mlflow_status status)
{
    char folder[FSIO_PATH_MAX], name[2 * FSIO_PATH_MAX],
        where[2 * FSIO_PATH_MAX], end[32] = "null";
    char text[8 * FSIO_PATH_MAX];
    TRY(fsio_path(folder, "%s/%s/%s", m->root, m->experiment, m->run));
    yaml_quote(m->options->run_name, name, sizeof name);
    yaml_quote(folder, where, sizeof where);
    where[strlen(where) - 1] = '\0'; /* goes on */
    if (status != MLFLOW_RUNNING)
        snprintf(end, sizeof end, "%" PRId64, tracking_mlflow_ms(clock_wall()));
    snprintf(text, sizeof text,
             "artifact_uri: %s/artifacts'\nend_time: %s\n"
             "entry_point_name: ''\nexperiment_id: '%s'\n"
             "lifecycle_stage: active\nrun_id: '%s'\nrun_name: %s\n"
             "source_name: ''\nsource_type: 4\nsource_version: ''\n"
             "start_time: %" PRId64 "\nstatus: %d\ntags: []\n"
             "user_id: unknown\n",
             where, end, m->experiment, m->run, name, m->start_ms, status);
    return write_meta(folder, text);
}

/* A file of its own in one of the run's folders. */
static enum err write_value(const struct mlflow_file *m, const char *folder,
                            const char *name, const char *value)
{
    char path[FSIO_PATH_MAX], file[FSIO_PATH_MAX];
    TRY(run_path(m, folder, path));
    TRY(fsio_mkdirs(path));
    TRY(fsio_path(file, "%s/%s", path, name));
    return fsio_write_hint(file, value, strlen(value));
}

static enum err make_run(struct mlflow_file *m)
{
    uint8_t bytes[16];
    char path[FSIO_PATH_MAX];
    TRY(random_bytes(bytes, sizeof bytes));
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(m->run + 2 * i, 3, "%02x", bytes[i]);
    m->start_ms = tracking_mlflow_ms(clock_wall());
    TRY(write_run(m, MLFLOW_RUNNING));
    TRY(run_path(m, "artifacts", path));
    TRY(fsio_mkdirs(path));
    TRY(run_path(m, "metrics", path));
    TRY(fsio_mkdirs(path));
    TRY(write_value(m, "tags", "mlflow.runName", m->options->run_name));
    for (int i = 0; i < m->options->param_count; i++) {
        char value[TRACKING_MLFLOW_VALUE_BYTES + 1];
        const struct tracking_param *param = &m->options->params[i];
        snprintf(value, sizeof value, "%s", param->value);
        TRY(write_value(m, "params", param->key, value));
    }
    return tracking_mlflow_save(m->options, m->run, true);
}

/* false: there is no such run any more. */
static bool find_run(struct mlflow_file *m)
{
    char path[FSIO_PATH_MAX], start[32], stage[32];
    char *text = NULL;
    size_t bytes = 0;
    if (m->run[0] == '\0' || run_path(m, "meta.yaml", path) != ERR_OK ||
        !fsio_exists(path) ||
        fsio_read_file(path, META_BYTES_MAX, &text, &bytes) != ERR_OK)
        return false;
    yaml_value(text, "start_time", start, sizeof start);
    yaml_value(text, "lifecycle_stage", stage, sizeof stage);
    free(text);
    m->start_ms = strtoll(start, NULL, 10);
    return strcmp(stage, "active") == 0;
}

static enum err mlflow_file_open(void *self,
                                 const struct tracking_options *options)
{
    struct mlflow_file *m = self;
    bool has_params; /* or there is no run: it is saved last */
    m->options = options;
    m->root = tracking_mlflow_folder(options->settings.mlflow);
    TRY(tracking_mlflow_load(options, m->run, &has_params));
    TRY(find_experiment(m));
    if (find_run(m))
        return write_run(m, MLFLOW_RUNNING);
    if (m->run[0] != '\0')
        log_warn("tracking: mlflow: %s has no run %s any more: a new one "
                 "begins",
                 m->root, m->run);
    return make_run(m);
}

/* --- metrics --------------------------------------------------------------------- */

static enum err mlflow_file_begin(void *self, int64_t step)
{
    struct mlflow_file *m = self;
    (void)step;
    tracking_mlflow_seen_clear(&m->seen);
    return ERR_OK;
}

/* The step of the last whole line, -1: there is none; what a crash has torn is
 * cut off. */
static enum err last_step(int fd, const char *path, int64_t *step)
{
    char tail[TAIL_BYTES + 1];
    off_t end = lseek(fd, 0, SEEK_END);
    off_t begin = end > TAIL_BYTES ? end - TAIL_BYTES : 0;
    *step = -1;
    if (end < 0)
        return err_errno("%s: seek", path);
    TRY(fsio_pread(fd, tail, (size_t)(end - begin), begin, path));
    char *stop = tail + (end - begin);
    while (stop > tail && stop[-1] != '\n')
        stop--;
    if (begin + (stop - tail) != end &&
        ftruncate(fd, begin + (stop - tail)) != 0)
        return err_errno("%s: cut off a torn line", path);
    if (stop == tail)
        return ERR_OK;
    stop[-1] = '\0';
    const char *space = strrchr(tail, ' ');
    if (space != NULL)
        *step = strtoll(space + 1, NULL, 10);
    return ERR_OK;
}

/* A file is opened for one line and closed again: a run may have thousands of
 * metrics, and a process only so many open files. */
static enum err add_metric(struct mlflow_file *m,
                           const struct tracking_scalar *scalar, int64_t step,
                           double time_s)
{
    enum err rc = ERR_OK;
    char path[FSIO_PATH_MAX], name[TRACKING_NAME_BYTES + 16], line[96];
    int number, fd = -1;
    bool known;
    TRY(tracking_mlflow_seen_find(&m->seen, scalar->name, &number, &known));
    if (known && m->seen.last[number] >= step)
        return ERR_OK;
    snprintf(name, sizeof name, "metrics/%s", scalar->name);
    TRY(run_path(m, name, path));
    if (!known) {
        char *slash = strrchr(path, '/');
        *slash = '\0';
        rc = fsio_mkdirs(path);
        *slash = '/';
    }
    TRY_OUT(rc);
    TRY_OUT(regular_open_at(AT_FDCWD, path, O_RDWR | O_CREAT, REGULAR_NO_LINK,
                            path, &fd));
    if (!known)
        TRY_OUT(last_step(fd, path, &m->seen.last[number]));
    if (m->seen.last[number] >= step)
        goto out;
    int bytes = snprintf(line, sizeof line, "%" PRId64 " %.17g %" PRId64 "\n",
                         tracking_mlflow_ms(time_s), scalar->value, step);
    TRY_OUT(regular_append(fd, path, line, (size_t)bytes));
    m->seen.last[number] = step;
out:
    fsio_close(fd);
    return rc;
}

static enum err mlflow_file_write(void *self,
                                  const struct tracking_record *const *records,
                                  int count)
{
    assert(count > 0);
    struct mlflow_file *m = self;
    for (int r = 0; r < count; r++)
        for (int i = 0; i < records[r]->count; i++)
            TRY(add_metric(m, &records[r]->scalars[i], records[r]->step,
                           records[r]->time_s));
    return ERR_OK;
}

static enum err mlflow_file_finish(void *self, enum tracking_end end)
{
    return write_run(self, tracking_mlflow_status(end));
}

static void mlflow_file_close(void *self)
{
    struct mlflow_file *m = self;
    tracking_mlflow_seen_clear(&m->seen);
}

const struct tracking_sink_ops tracking_mlflow_file_ops = {
    TRACKING_SINK("mlflow", struct mlflow_file),
    .wanted = mlflow_file_wanted,
    .check = mlflow_file_check,
    .open = mlflow_file_open,
    .begin = mlflow_file_begin,
    .write = mlflow_file_write,
    .finish = mlflow_file_finish,
    .close = mlflow_file_close
};
