/* Listener: sends what is known of each logged step, of evaluations and samples
 * to the trackers of the settings tracking.* (src/tracking). Rank 0.
 *
 * Whatever a tracker does, nothing of it comes back to the run but words in the
 * log and, at the end, the ledger's event "tracking-lost". The last step is sent
 * when the run ends, together with what is evaluated then, so that each step is
 * one record. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/files/ckpt_index.h"
#include "src/base/clock.h"
#include "src/base/jsontext.h"
#include "src/base/log.h"
#include "src/base/new.h"
#include "src/job/ledger.h"
#include "src/job/slurm.h"
#include "src/job/stop.h"
#include "src/mirror/mirror.h"
#include "src/tracking/tracking.h"
#include "src/train/run/run.h"

struct on_tracking {
    const struct run *run;
    struct tracking *tracking; /* NULL: nobody wants anything */
    int64_t last;              /* step of the last batch_end */
    enum tracking_end end;
};

/* All settings but those that are empty, and hooks and plug-ins. */
static enum err make_params(const struct train_settings *settings,
                            struct tracking_options *options)
{
    char text[SETTINGS_VALUE_BYTES];
    TRY(new_zeroed(&options->params, (size_t)train_settings_count));
    for (int i = 0; i < train_settings_count; i++) {
        const struct setting *setting = &train_settings_schema[i];
        settings_text(setting, settings, text);
        if (text[0] == '\0' || train_settings_secret(setting->key, text))
            continue;
        assert(options->param_count < train_settings_count);
        struct tracking_param *param = &options->params[options->param_count++];
        param->key = strdup(setting->key);
        param->value = strdup(text);
        if (param->key == NULL || param->value == NULL)
            return err_set(ERR_MEMORY, "out of memory");
    }
    return ERR_OK;
}

/* The last part of a path. */
static void name_run(const char *dir, char *out, size_t size)
{
    size_t end = strlen(dir);
    while (end > 0 && dir[end - 1] == '/')
        end--;
    size_t begin = end;
    while (begin > 0 && dir[begin - 1] != '/')
        begin--;
    snprintf(out, size, "%.*s", (int)(end - begin), dir + begin);
}

static enum err start(struct on_tracking *on)
{
    enum err rc = ERR_OK;
    const struct run *run = on->run;
    const struct train_settings *s = &run->settings;
    struct slurm slurm;
    struct tracking_options *options = NULL;
    TRY(new_zeroed(&options, 1));
    options->settings = s->tracking;
    snprintf(options->run_dir, FSIO_PATH_MAX, "%s", s->run.dir);
    if (s->tracking.run_name[0] != '\0')
        snprintf(options->run_name, FSIO_PATH_MAX, "%s", s->tracking.run_name);
    else
        name_run(s->run.dir, options->run_name, sizeof options->run_name);
    slurm_read(&slurm);
    if (slurm.job_id > 0)
        snprintf(options->job, sizeof options->job, "%ld", slurm.job_id);
    TRY_OUT(make_params(s, options));
    TRY_OUT(tracking_create(options,
                            tracking_list_names(run->now.record.scalars), NULL,
                            &on->tracking));
    options->params = NULL;
out:
    if (options->params != NULL)
        tracking_params_free(options->params, options->param_count);
    free(options);
    return rc;
}

static enum err on_tracking_create(void *self, const struct run *run)
{
    struct on_tracking *on = self;
    on->run = run;
    on->end = TRACKING_FAILED;
    if (start(on) != ERR_OK)
        log_warn("tracking: %s; the run goes on without trackers", err_text());
    return ERR_OK;
}

static bool registers(const struct on_tracking *on)
{
    return on->run->settings.tracking.mlflow_register[0] != '\0' &&
           on->end == TRACKING_FINISHED;
}

/* The last step has told; of another one, the best, the store is asked, which may have
 * it no more. */
static enum err is_mirrored(const struct run *run,
                            const struct mirror_step *there, bool *is)
{
    const struct train_settings *s = &run->settings;
    const struct store_options options = { fmin(s->data.remote_deadline,
                                                s->tracking.finish_s),
                                           0.0, stop_is_requested };
    struct store *store = NULL;
    *is = run->mirrored == there->step;
    if (*is)
        return ERR_OK;
    enum err rc = store_open(s->checkpoint.mirror, &options, &store);
    if (rc == ERR_OK)
        rc = mirror_is_whole(store, there->folder, is);
    store_close(store);
    return rc;
}

/* The checkpoint to register: where it has been copied to, else where it lies. */
static enum err find_model(const struct run *run, struct tracking_model *out)
{
    const struct train_settings *s = &run->settings;
    struct mirror_step there = { .step = -1 };
    char path[FSIO_PATH_MAX];
    bool is;
    out->step = -1;
    if (s->checkpoint.keep_best)
        TRY(ckpt_index_best(s->run.dir, true, &out->step));
    if (out->step >= 0)
        TRY(ckpt_index_path(path, s->run.dir, out->step));
    else
        TRY(ckpt_index_newest(path, s->run.dir));
    out->step = ckpt_manifest_step_of(path);
    if (realpath(path, out->path) == NULL)
        return err_errno("%s", path);
    snprintf(out->source, sizeof out->source, "tessera://%s", out->path);
    const char *mirror = s->checkpoint.mirror;
    size_t bytes = strlen(mirror);
    if (bytes == 0)
        return ERR_OK;
    while (bytes > 0 && mirror[bytes - 1] == '/')
        bytes--;
    TRY(mirror_step_of(path, &there));
    if (is_mirrored(run, &there, &is) != ERR_OK)
        log_warn("tracking: mlflow: whether %s has step %lld is not known: %s",
                 mirror, (long long)out->step, err_text());
    else if (is)
        snprintf(out->source, sizeof out->source, "%.*s/%s", (int)bytes, mirror,
                 there.folder);
    mirror_step_free(&there);
    return ERR_OK;
}

/* Behind the last checkpoint and its copy. */
static void give_model(const struct on_tracking *on)
{
    struct tracking_model model = { .source = "" };
    if (find_model(on->run, &model) == ERR_OK)
        tracking_model(on->tracking, &model);
    else
        log_warn("tracking: mlflow: nothing is registered: %s", err_text());
}

static void send(struct on_tracking *on, const struct step_record *step)
{
    struct tracking_record record = *tracking_list_record(step->scalars);
    assert(step->rank == 0 && step->step >= 0);
    record.step = step->step;
    record.time_s = clock_wall();
    /* also nothing, of a run that had finished before and comes to register */
    if (record.count > 0 || record.text_count > 0 || registers(on))
        tracking_push(on->tracking, &record);
}

static enum err on_tracking_handle(void *self, enum event event,
                                   const struct step_record *step,
                                   struct asks *asks)
{
    struct on_tracking *on = self;
    if (on->tracking == NULL)
        return ERR_OK;
    switch (event) {
    case EVENT_FIT_START:
        tracking_begin(on->tracking, step->step);
        on->last = step->step;
        return ERR_OK;
    case EVENT_BATCH_END:
        if (step->step <= on->last) /* the run has gone back */
            tracking_begin(on->tracking, step->step - 1);
        on->last = step->step;
        if (!step->finished && step->stop_signal == 0)
            send(on, step);
        return ERR_OK;
    default:
        on->end = step->finished && asks->of[ASK_CONTINUE] == 0
                      ? TRACKING_FINISHED
                      : TRACKING_GOES_ON;
        send(on, step);
        if (!registers(on))
            tracking_finish(on->tracking, on->end);
        return ERR_OK;
    }
}

static void tell_lost(const struct on_tracking *on,
                      const struct tracking_lost *lost)
{
    const struct run *run = on->run;
    log_warn("tracking: %s has not got %lld records of this attempt: %s",
             lost->sink, (long long)lost->records, lost->reason);
    enum err rc =
        ledger_append(run->settings.run.dir, "tracking-lost", run->attempt,
                      json_pack("{s:s, s:I, s:o}", "sink", lost->sink,
                                "records", (json_int_t)lost->records, "reason",
                                jsontext_string(lost->reason)));
    if (rc != ERR_OK)
        log_warn("tracking: %s", err_text());
}

static bool on_tracking_leave(void *self, bool together)
{
    struct on_tracking *on = self;
    struct tracking_lost lost[TRACKING_SINKS_MAX];
    if (on->tracking == NULL)
        return true;
    if (on->run->now.back.asked)
        on->end = TRACKING_GOES_ON;
    if (together && registers(on))
        give_model(on);
    int64_t left_out = tracking_list_left_out(on->run->now.record.scalars);
    if (left_out > 0)
        log_warn("tracking: %lld values were left out: there are too many "
                 "names or texts",
                 (long long)left_out);
    int count = tracking_end(on->tracking, on->end,
                             on->run->settings.tracking.finish_s, lost);
    on->tracking = NULL;
    for (int i = 0; i < count; i++)
        tell_lost(on, &lost[i]);
    return true;
}

const struct listener_ops on_tracking_ops = { LISTENER_OF(struct on_tracking),
                                              .create = on_tracking_create,
                                              .handle = on_tracking_handle,
                                              .leave = on_tracking_leave };
