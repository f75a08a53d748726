/* What a run's settings come to, told at its first start. */
#include "src/train/loop/train_run_tell.h"

#include "src/base/log.h"
#include "src/train/plan/train_memory.h"

/* From here on Composer warns, too. */
#define DECAY_USUAL 1e-3

/* PyTorch's usual 0.1 would be the end of the weights. */
static void warn_of_decay(const char *where, double decay,
                          const struct optimizer_ops *optimizer)
{
    if (!optimizer->decay_by_lr && decay >= DECAY_USUAL)
        log_warn("%sweight_decay = %g: with %s weights shrink by that in every "
                 "step at the peak rate; where it is to be multiplied by lr, "
                 "as in PyTorch, use torch_adamw",
                 where, decay, optimizer->name);
}

void train_run_tell_decay(const struct train_settings *s)
{
    const struct optimizer_ops *rest = optimizer_at(s->optimizer.name);
    warn_of_decay("optimizer.", s->optimizer.weight_decay, rest);
    for (int i = 0; i < s->groups.count; i++) {
        char where[64];
        const struct optimizer_ops *optimizer = s->groups.list[i].optimizer;
        double decay = s->groups.own[i].weight_decay;
        snprintf(where, sizeof where, "optimizer.groups: item %d: ", i + 1);
        if (optimizer != rest || decay != s->optimizer.weight_decay)
            warn_of_decay(where, decay, optimizer);
    }
}

#define FEW_RANKS 8

void train_run_tell_slots(const struct train_settings *s)
{
    int most = train_memory_ranks_max(s);
    const struct setting *slots = train_settings_setting("parallel.slots");
    int64_t batch = s->train.global_batch;
    int64_t wanted = FEW_RANKS;
    log_info("this run can have at most %d ranks, at any start: parallel.slots "
             "(%lld) stays%s",
             most, (long long)s->parallel.slots,
             s->parallel.strategy >= REPLICA_ZERO2
                 ? ", and bounds the ranks of ddp and zero1"
                 : "");
    if (most >= FEW_RANKS || s->given[slots - train_settings_schema])
        return;
    while (wanted < batch && batch % wanted != 0)
        wanted++;
    if (wanted <= batch)
        log_warn("train.global_batch = %lld gives %lld slots: if more than %d "
                 "ranks are ever to train this run, start it anew with "
                 "parallel.slots=%lld",
                 (long long)batch, (long long)s->parallel.slots, most,
                 (long long)wanted);
}
