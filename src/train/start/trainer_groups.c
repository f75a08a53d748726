/* Compares the optimizers of tensors with those of a checkpoint, keeps the
 * groups' rates, and gives each group its settings, rate and decay of a step.
 *
 * Decoupled weight decay (Loshchilov and Hutter 2019) is decay * lr(t) / lr0: it
 * follows the schedule and not how high the peak is. lr0 is the peak of the run's
 * first start and in every checkpoint, so a rate that is changed amid a run changes
 * the decay in proportion, as it would have with one schedule. Optimizers that
 * multiply by the rate itself, as PyTorch's AdamW does, get decay * lr(t). */
#include "src/train/start/start.h"

#include <assert.h>
#include <string.h>

#include "src/base/jsontext.h"

void trainer_groups_begin(struct run *run)
{
    const struct train_groups *groups = &run->settings.groups;
    assert(groups->count <= OPTIMIZER_GROUPS);
    for (int i = 0; i < groups->count; i++)
        run->position.groups_lr0[i] = groups->own[i].lr;
}

static const struct optimizer_ops *of_run(const struct run *run)
{
    return optimizer_at(run->settings.optimizer.name);
}

static const struct optimizer_ops *of_tensor(const struct run *run,
                                             const struct param *param)
{
    const struct optimizer_ops *optimizer;
    const struct train_groups *groups = &run->settings.groups;
    optimizer_find(of_run(run), groups->list, groups->count, param, &optimizer);
    return optimizer;
}

enum err trainer_groups_store(const struct run *run, json_t *state)
{
    const struct params *params = run->engine.params;
    json_t *rates = json_array();
    json_t *optimizers = json_object();
    for (int i = 0; i < run->settings.groups.count; i++)
        jsontext_append(&rates, json_real(run->position.groups_lr0[i]));
    for (int p = 0; p < params->count; p++) {
        const struct optimizer_ops *own = of_tensor(run, &params->list[p]);
        if (own != of_run(run))
            jsontext_set(&optimizers, params->list[p].name,
                         json_string(own->name));
    }
    enum err rc = run_put(state, "groups_lr0", rates);
    enum err last = run_put(state, "optimizers", optimizers);
    return rc != ERR_OK ? rc : last;
}

void trainer_groups_restore(struct run *run, const json_t *state)
{
    const json_t *rates = json_object_get(state, "groups_lr0");
    int count = run->settings.groups.count;
    for (int i = 0; i < count && json_array_size(rates) == (size_t)count; i++)
        run->position.groups_lr0[i] =
            json_number_value(json_array_get(rates, (size_t)i));
}

enum err trainer_groups_check(const struct run *run, const json_t *state)
{
    const struct params *params = run->engine.params;
    const json_t *optimizers = json_object_get(state, "optimizers");
    const char *of_all = json_string_value(
        json_object_get(json_object_get(state, "fixed"), "optimizer.name"));
    if (optimizers == NULL || of_all == NULL)
        return ERR_OK;
    for (int p = 0; p < params->count; p++) {
        const char *name = params->list[p].name;
        const char *now = of_tensor(run, &params->list[p])->name;
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
                name, then, run->settings.run.dir, now);
    }
    return ERR_OK;
}

/* For tensors that are in no group. */
#define OWN(group, type, field, ...) .field = s->optimizer.field,
static struct optimizer_step rest_of(const struct run *run, double scale)
{
    const struct train_settings *s = &run->settings;
    return (struct optimizer_step){ .lr = run->now.record.lr,
                                    .grad_scale = scale,
                                    .beta1 = s->optimizer.beta1,
                                    .beta2 = s->optimizer.beta2,
                                    .eps = s->optimizer.eps,
                                    .count = run->position.step + 1,
                                    OPTIMIZER_OWN_SETTINGS(OWN, 0) };
}

/* Which part of its own peak a group's rate is; one that is scaled is as large
 * a part as the rest's. */
static double group_share(const struct run *run, int group, double lr,
                          double share)
{
    assert(group >= 0 && group < run->settings.groups.count);
    double lr0 = run->position.groups_lr0[group];
    if (!run->settings.groups.own[group].has_lr)
        return share;
    return lr0 > 0.0 ? lr / lr0 : 0.0;
}

void trainer_groups_steps(const struct run *run, double scale,
                          struct optimizer_step *steps)
{
    const struct train_settings *s = &run->settings;
    const struct train_groups *groups = &s->groups;
    double part = schedule_multiplier(&run->plan.schedule, run->position.step);
    /* a peak rate of 0 trains nothing and must not make NaN of 0 / 0 */
    double share =
        run->position.lr0 > 0.0 ? run->now.record.lr / run->position.lr0 : 0.0;
    steps[0] = rest_of(run, scale);
    steps[0].decay =
        s->optimizer.weight_decay *
        (optimizer_at(s->optimizer.name)->decay_by_lr ? steps[0].lr : share);
    for (int i = 0; i < groups->count; i++) {
        const struct train_group *own = &groups->own[i];
        struct optimizer_step *step = &steps[1 + i];
        bool by_lr = groups->list[i].optimizer->decay_by_lr;
        *step = steps[0];
        step->lr = own->lr * part;
        step->decay = own->weight_decay *
                      (by_lr ? step->lr : group_share(run, i, step->lr, share));
        step->beta1 = own->beta1;
        step->beta2 = own->beta2;
        step->eps = own->eps;
        step->outlier_threshold = own->outlier_threshold;
    }
    /* weights stay, moments decay as by a zero gradient */
    for (int i = 0; i <= groups->count && run->now.record.skipped; i++)
        steps[i].lr = steps[i].decay = steps[i].grad_scale = 0.0;
}
