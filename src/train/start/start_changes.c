/* Compares the settings with config.cfg of the attempt before and tells what
 * has changed. It refuses nothing: what must not change is checked in
 * start_fixed.c.
 *
 * Who comes back to a run after a week wants to see what was changed, and a
 * learning rate that jumps is worth a warning whichever of ten settings has made
 * it: so the rate of the next step is computed with both sets of settings, and the
 * warning names the settings that would give the old curve again. Values that may
 * be secrets are compared and not shown. */
#include "src/train/start/start.h"

#include <assert.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/fsio.h"
#include "src/base/log.h"
#include "src/base/new.h"
#include "src/data/set/dataset.h"
#include "src/job/ledger.h"
#include "src/train/start/start_settings.h"

/* Smaller changes of the learning rate are no jump. */
#define JUMP 0.01

/* The settings of the attempt before; false if there are none to compare. */
static bool read_before(const char *run_dir, struct train_settings *before,
                        struct settings_origin *origins)
{
    char path[FSIO_PATH_MAX];
    if (fsio_path(path, "%s/config.cfg", run_dir) != ERR_OK ||
        !fsio_exists(path))
        return false;
    if (settings_load(train_settings_schema, train_settings_count, path, NULL,
                      0, before, origins) == ERR_OK)
        return true;
    log_warn("what has changed in the settings cannot be told: %s", err_text());
    return false;
}

/* Texts need not be UTF-8, which JSON is. */
static json_t *text_of(const char *text)
{
    json_t *json = json_string(text);
    return json != NULL ? json : json_string("?");
}

/* Log one setting if it differs, and put it into `changed`. */
static void compare(const struct run *run, const struct train_settings *before,
                    const struct setting *setting, json_t *changed)
{
    char was[SETTINGS_VALUE_BYTES];
    char is[SETTINGS_VALUE_BYTES];
    settings_text(setting, before, was);
    settings_text(setting, &run->settings, is);
    if (strcmp(was, is) == 0)
        return;
    if (train_settings_secret(setting->key, was) ||
        train_settings_secret(setting->key, is)) {
        snprintf(was, sizeof was, "%s", was[0] != '\0' ? "(not shown)" : "");
        snprintf(is, sizeof is, "%s", is[0] != '\0' ? "(not shown)" : "");
    }
    static const char format[] = "%s was %s and is %s now";
    const char *old = was[0] != '\0' ? was : "empty";
    const char *new = is[0] != '\0' ? is : "empty";
    if (train_settings_decides(setting))
        log_warn(format, setting->key, old, new);
    else
        log_info(format, setting->key, old, new);
    json_object_set_new(changed, setting->key,
                        json_pack("[o, o]", text_of(was), text_of(is)));
}

/* What the learning rate of the next step is and would have been. */
static void compare_rates(const struct run *run,
                          const struct train_settings *before, json_t *event)
{
    struct trainer_schedule plan;
    char advice[512];
    /* other data may have other epochs, which durations may count in */
    int64_t epoch = run->inputs.epoch_before > 0
                        ? run->inputs.epoch_before
                        : run->plan.rates.samples_per_epoch;
    if (before->train.global_batch < 1 || run->position.step == 0 ||
        trainer_schedule(before, epoch, &plan) != ERR_OK)
        return;
    double was = before->optimizer.lr *
                 schedule_multiplier(&plan.schedule, run->position.step);
    double is = run->settings.optimizer.lr *
                schedule_multiplier(&run->plan.schedule, run->position.step);
    if (fabs(is - was) <= JUMP * fmax(is, was))
        return;
    trainer_schedule_again(before, &plan, &run->settings, &run->plan, advice,
                           sizeof advice);
    log_warn("the learning rate of step %lld is %.3g, with the settings before "
             "it would be %.3g:%s keeps the old curve",
             (long long)run->position.step + 1, is, was, advice);
    json_object_set_new(event, "lr", json_pack("[f, f]", was, is));
}

/* The set may have been replaced under its name. */
static void compare_eval(const struct run *run, json_t *event)
{
    const char *was = run->inputs.eval_before;
    if (run->inputs.eval_data == NULL || was[0] == '\0' ||
        strcmp(was, dataset_id(run->inputs.eval_data)) == 0)
        return;
    log_warn("data.eval (%s) is another set than the one at step %lld: "
             "evaluations before and after it do not compare",
             run->settings.data.eval, (long long)run->position.step);
    json_object_set_new(
        event, "eval_set",
        json_pack("[s, s]", was, dataset_id(run->inputs.eval_data)));
}

/* The parts of what the run has read, with the one that begins here. */
static enum err record_data(const struct run *run)
{
    json_t *history = json_loads(run->inputs.history, 0, NULL);
    if (history == NULL)
        return err_set(ERR_MEMORY, "out of memory");
    return ledger_append(run->settings.run.dir, "data", run->attempt,
                         json_pack("{s:I, s:o}", "step",
                                   (json_int_t)run->position.step, "parts",
                                   history));
}

enum err start_changes_tell(const struct run *run)
{
    enum err rc = ERR_OK;
    assert(run->rank == 0);
    if (run->inputs.changed)
        TRY(record_data(run));
    struct train_settings *before = NULL;
    struct settings_origin *origins = NULL;
    json_t *changed = json_object();
    json_t *event =
        json_pack("{s:I, s:O}", "step", (json_int_t)run->position.step,
                  "changed", changed);
    TRY_OUT(new_zeroed(&before, 1));
    TRY_OUT(new_zeroed(&origins, (size_t)train_settings_count));
    if (event == NULL)
        TRY_OUT(err_set(ERR_MEMORY, "out of memory"));
    bool found = read_before(run->settings.run.dir, before, origins);
    /* what has no effect, if it was not told by the attempt before */
    start_idle(&(struct start_idle){ &run->settings, found ? before : NULL,
                                     &run->plan },
               NULL, NULL);
    if (!found)
        goto out;
    for (int i = 0; i < train_settings_count; i++) {
        const struct setting *setting = &train_settings_schema[i];
        /* an older version may lack some; a run may be moved */
        if (origins[i].place[0] != '\0' && strcmp(setting->key, "run.dir") != 0)
            compare(run, before, setting, changed);
    }
    compare_eval(run, event);
    if (json_object_size(changed) == 0 &&
        json_object_get(event, "eval_set") == NULL)
        goto out;
    compare_rates(run, before, event);
    rc = ledger_append(run->settings.run.dir, "settings", run->attempt,
                       json_incref(event));
out:
    json_decref(event);
    json_decref(changed);
    free(origins);
    free(before);
    return rc;
}
