/* Compares the optimizers of tensors with those of a checkpoint, and keeps the
 * groups' rates. */
#include "src/train/start/trainer_groups.h"

#include <string.h>

void trainer_groups_begin(struct trainer *trainer)
{
    const struct train_groups *groups = &trainer->settings.groups;
    for (int i = 0; i < groups->count; i++)
        trainer->groups_lr0[i] = groups->own[i].lr;
}

static const struct optimizer_ops *of_run(const struct trainer *trainer)
{
    return optimizer_at(trainer->settings.optimizer.name);
}

static const struct optimizer_ops *of_tensor(const struct trainer *trainer,
                                             const struct param *param)
{
    const struct optimizer_ops *optimizer;
    const struct train_groups *groups = &trainer->settings.groups;
    optimizer_find(of_run(trainer), groups->list, groups->count, param,
                   &optimizer);
    return optimizer;
}

enum err trainer_groups_store(const struct trainer *trainer, json_t *state)
{
    const struct params *params = trainer->params;
    json_t *rates = json_array();
    json_t *optimizers = json_object();
    bool failed = json_object_set_new(state, "groups_lr0", rates) != 0;
    failed |= json_object_set_new(state, "optimizers", optimizers) != 0;
    for (int i = 0; i < trainer->settings.groups.count && !failed; i++)
        failed = json_array_append_new(rates,
                                       json_real(trainer->groups_lr0[i])) != 0;
    for (int p = 0; p < params->count && !failed; p++) {
        const struct optimizer_ops *own = of_tensor(trainer, &params->list[p]);
        if (own != of_run(trainer))
            failed = json_object_set_new(optimizers, params->list[p].name,
                                         json_string(own->name)) != 0;
    }
    return failed ? err_set(ERR_MEMORY, "out of memory") : ERR_OK;
}

void trainer_groups_restore(struct trainer *trainer, const json_t *state)
{
    const json_t *rates = json_object_get(state, "groups_lr0");
    int count = trainer->settings.groups.count;
    for (int i = 0; i < count && json_array_size(rates) == (size_t)count; i++)
        trainer->groups_lr0[i] =
            json_number_value(json_array_get(rates, (size_t)i));
}

enum err trainer_groups_check(const struct trainer *trainer,
                              const json_t *state)
{
    const struct params *params = trainer->params;
    const json_t *optimizers = json_object_get(state, "optimizers");
    const char *of_all = json_string_value(
        json_object_get(json_object_get(state, "fixed"), "optimizer.name"));
    if (optimizers == NULL || of_all == NULL)
        return ERR_OK;
    for (int p = 0; p < params->count; p++) {
        const char *name = params->list[p].name;
        const char *now = of_tensor(trainer, &params->list[p])->name;
        const char *then = json_string_value(json_object_get(optimizers, name));
        then = then != NULL ? then : of_all;
        if (strcmp(then, now) != 0)
            return err_set(
                ERR_CHECKPOINT,
                "optimizer.groups: %.80s was %.32s's in the run in %s and "
                "would be %s's, to which its moments mean another thing: use "
                "the old groups; or begin another run from this one's state, "
                "with checkpoint.load and checkpoint.load_ignore = "
                "\"optimizer/*\"",
                name, then, trainer->settings.run.dir, now);
    }
    return ERR_OK;
}
