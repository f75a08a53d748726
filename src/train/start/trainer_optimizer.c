/* Settings, rate and decay of a step, for each group of tensors. */
#include "src/train/start/trainer_optimizer.h"

/* For tensors that are in no group. */
static struct optimizer_step rest_of(const struct trainer *trainer,
                                     double scale)
{
    const struct train_settings *s = &trainer->settings;
    return (struct optimizer_step){
        .lr = trainer->record.lr,
        .grad_scale = scale,
        .beta1 = s->optimizer.beta1,
        .beta2 = s->optimizer.beta2,
        .eps = s->optimizer.eps,
        .count = trainer->step + 1,
        .dampening = s->optimizer.dampening,
        .nesterov = s->optimizer.nesterov,
        .momentum = s->optimizer.momentum,
        .ns_steps = (int)s->optimizer.ns_steps,
        .match_rms = s->optimizer.adjust_lr == ADJUST_MATCH_RMS,
        .clip_threshold = s->optimizer.clip_threshold,
        .decay_rate = s->optimizer.decay_rate,
        .scale_parameter = s->optimizer.scale_parameter,
        .outlier_threshold = s->optimizer.outlier_threshold,
        .outlier_penalty = s->optimizer.outlier_penalty,
        .outlier_floor = s->optimizer.outlier_floor,
        .outlier_timeout = s->optimizer.outlier_timeout,
    };
}

/* Which part of its own peak a group's rate is; one that is scaled is as large
 * a part as the rest's. */
static double group_share(const struct trainer *trainer, int group, double lr,
                          double share)
{
    double lr0 = trainer->groups_lr0[group];
    if (!trainer->settings.groups.own[group].has_lr)
        return share;
    return lr0 > 0.0 ? lr / lr0 : 0.0;
}

void trainer_optimizer_steps(const struct trainer *trainer, double scale,
                             struct optimizer_step *steps)
{
    const struct train_settings *s = &trainer->settings;
    const struct train_groups *groups = &s->groups;
    double part = schedule_multiplier(&trainer->schedule, trainer->step);
    /* a peak rate of 0 trains nothing and must not make NaN of 0 / 0 */
    double share = trainer->lr0 > 0.0 ? trainer->record.lr / trainer->lr0 : 0.0;
    steps[0] = rest_of(trainer, scale);
    steps[0].decay =
        s->optimizer.weight_decay *
        (optimizer_at(s->optimizer.name)->decay_by_lr ? steps[0].lr : share);
    for (int i = 0; i < groups->count; i++) {
        const struct train_group *own = &groups->own[i];
        struct optimizer_step *step = &steps[1 + i];
        bool by_lr = groups->list[i].optimizer->decay_by_lr;
        *step = steps[0];
        step->lr = own->lr * part;
        step->decay =
            own->weight_decay *
            (by_lr ? step->lr : group_share(trainer, i, step->lr, share));
        step->beta1 = own->beta1;
        step->beta2 = own->beta2;
        step->eps = own->eps;
        step->outlier_threshold = own->outlier_threshold;
    }
    /* weights stay, moments decay as by a zero gradient */
    for (int i = 0; i <= groups->count && trainer->record.skipped; i++)
        steps[i].lr = steps[i].decay = steps[i].grad_scale = 0.0;
}
