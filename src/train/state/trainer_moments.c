/* Keeps when moments began. What counts from there is in
 * src/parallel/replica_state.c. A list is judged as a whole before any of it is
 * taken over, so that a state with a mistake changes nothing. */
#include "src/train/state/state_parts.h"

#include <assert.h>
#include <string.h>

#include "src/base/jsontext.h"
#include "src/formats/weights.h"

#define MEMBER "moments_began"

enum err trainer_moments_store(const struct run *run, json_t *state)
{
    int count = 0;
    const struct ckpt_item *items = replica_items(run->engine.replica, &count);
    json_t *list = json_object();
    for (int i = 0; i < count; i++) {
        int64_t began = replica_began(run->engine.replica, i);
        if (began > 0)
            jsontext_set(&list, items[i].name, json_integer(began));
    }
    if (list == NULL || json_object_size(list) > 0)
        return run_put(state, MEMBER, list);
    json_decref(list);
    return ERR_OK;
}

/* 0 where the list has nothing of it. */
static enum err began_of(const json_t *list, const char *name, int64_t step,
                         int64_t *out)
{
    const json_t *value = json_object_get(list, name);
    *out = json_integer_value(value);
    if (value == NULL || (json_is_integer(value) && *out >= 0 && *out <= step))
        return ERR_OK;
    return err_set(ERR_CHECKPOINT,
                   "the state of step %lld says that %s began after another "
                   "step than one before it",
                   (long long)step, name);
}

enum err trainer_moments_restore(struct run *run, int64_t step,
                                 const json_t *state)
{
    int count = 0;
    int64_t began = 0;
    const struct ckpt_item *items = replica_items(run->engine.replica, &count);
    const json_t *list = json_object_get(state, MEMBER);
    if (list != NULL && !json_is_object(list))
        return err_set(ERR_CHECKPOINT, "the state's " MEMBER " is no object");
    for (int i = 0; i < count; i++)
        TRY(began_of(list, items[i].name, step, &began));
    for (int i = 0; i < count; i++) {
        TRY(began_of(list, items[i].name, step, &began));
        replica_set_began(run->engine.replica, i, began);
    }
    return ERR_OK;
}

int trainer_moments_begin(struct run *run, const char *ignore, int64_t step)
{
    int count = 0;
    int begun = 0;
    assert(step > 0 && step == run->position.step);
    const struct ckpt_item *items = replica_items(run->engine.replica, &count);
    for (int i = 0; i < count; i++)
        if (strncmp(items[i].name, "optimizer/", 10) == 0 &&
            weights_ignored(ignore, items[i].name)) {
            replica_set_began(run->engine.replica, i, step);
            begun++;
        }
    return begun;
}
