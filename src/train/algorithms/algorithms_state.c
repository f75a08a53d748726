/* Stores what algorithms keep between steps, finds it again by name, and holds
 * on to the steps of durations. */
#include "src/train/algorithms/algorithms_state.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "src/base/jsontext.h"
#include "src/base/log.h"
#include "src/train/run/run.h"
#include "src/formats/weights.h"

/* As a new reference, which may be empty; NULL: no memory. */
static json_t *times_json(const struct algorithm *a)
{
    json_t *steps = json_object();
    assert(a->time_count <= ALGORITHM_TIMES);
    for (int i = 0; i < a->time_count; i++)
        if (a->times[i].duration.unit == UNIT_DUR)
            jsontext_set(&steps, a->times[i].key,
                         json_integer(*a->times[i].steps));
    return steps;
}

static enum err store_one(const struct algorithm *a, json_t *list)
{
    json_t *item = json_pack("{s:s}", "name", a->name);
    json_t *steps = times_json(a);
    if (steps == NULL || json_object_size(steps) > 0)
        jsontext_set(&item, "steps", steps);
    else
        json_decref(steps);
    if (json_array_append_new(list, item) != 0)
        return err_set(ERR_MEMORY, "out of memory");
    return a->ops->store != NULL
               ? algorithm_named(a, a->ops->store(a->self, item))
               : ERR_OK;
}

enum err algorithms_store(const struct algorithms *algorithms, json_t *state)
{
    if (algorithms->count == 0)
        return ERR_OK;
    json_t *list = json_array();
    TRY(run_put(state, "algorithms", list));
    for (int i = 0; i < algorithms->count; i++)
        TRY(store_one(&algorithms->list[i], list));
    return ERR_OK;
}

/* NULL: the state has nothing of it. */
static const json_t *find(const json_t *state, const char *name)
{
    const json_t *item;
    size_t i;
    json_array_foreach(json_object_get(state, "algorithms"), i, item)
    {
        const char *text = json_string_value(json_object_get(item, "name"));
        if (text != NULL && strcmp(text, name) == 0)
            return item;
    }
    return NULL;
}

static enum err restore_one(const struct algorithm *a, const json_t *item)
{
    if (a->ops->restore == NULL)
        return ERR_OK;
    if (item == NULL)
        return algorithm_named(
            a, err_set(
                   ERR_CHECKPOINT,
                   "the checkpoint has no state of it: "
                   "checkpoint.load_ignore = \"algorithms/*\" begins it anew"));
    return algorithm_named(a, a->ops->restore(a->self, item));
}

/* Those that are not stored stay: of checkpoints that had none. */
static enum err keep_times(const struct run *run, const struct algorithm *a,
                           const json_t *item)
{
    char length[40];
    const json_t *steps = json_object_get(item, "steps");
    units_format(run->settings.train.max_duration, length, sizeof length);
    for (int i = 0; i < a->time_count; i++) {
        const struct algorithm_time *time = &a->times[i];
        const json_t *stored = json_object_get(steps, time->key);
        json_int_t then = json_integer_value(stored);
        if (stored == NULL || time->duration.unit != UNIT_DUR)
            continue;
        if (!json_is_integer(stored) || then < 0)
            return algorithm_named(
                a, err_set(ERR_CHECKPOINT,
                           "its %s in the checkpoint is no step", time->key));
        if (then != *time->steps && run->rank == 0)
            log_info("algorithms: %s: %s stays at %lld steps; by "
                     "train.max_duration = %s it would now be %lld",
                     a->name, time->key, (long long)then, length,
                     (long long)*time->steps);
        *time->steps = then;
    }
    return ERR_OK;
}

enum err algorithms_restore(struct run *run, const json_t *state)
{
    for (int i = 0; i < run->algorithms.count; i++) {
        const struct algorithm *a = &run->algorithms.list[i];
        const json_t *item = find(state, a->name);
        TRY(keep_times(run, a, item));
        TRY(restore_one(a, item));
    }
    return ERR_OK;
}

static bool is_ignored(const struct run *run, const char *name,
                       const char *ignore)
{
    char path[80];
    int count = 0;
    const struct ckpt_item *items = replica_items(run->engine.replica, &count);
    int bytes = snprintf(path, sizeof path, "algorithms/%s/", name);
    for (int i = 0; i < count; i++)
        if (strncmp(items[i].name, path, (size_t)bytes) == 0 &&
            weights_ignored(ignore, items[i].name))
            return true;
    path[bytes - 1] = '\0';
    return weights_ignored(ignore, path);
}

enum err algorithms_take(struct run *run, const json_t *state,
                         const char *ignore)
{
    for (int i = 0; i < run->algorithms.count; i++) {
        const struct algorithm *a = &run->algorithms.list[i];
        if (!is_ignored(run, a->name, ignore))
            TRY(restore_one(a, find(state, a->name)));
        else if (run->rank == 0 && a->ops->restore != NULL)
            log_info("algorithms: %s begins anew, as checkpoint.load_ignore "
                     "leaves it out",
                     a->name);
    }
    return ERR_OK;
}
