/* How optimizers update a replica: span by span, each with the settings of its
 * group. Updates are element-wise, or of whole tensors, so the bits do not
 * depend on how the space is cut. */
#include "src/parallel/replica_impl.h"

/* What an update of elements [begin, end) of the span gets. */
static struct optimizer_partition partition_of(const struct replica *replica,
                                               const struct span *span,
                                               int64_t begin, int64_t end)
{
    struct optimizer_partition partition = {
        .params = replica->params,
        .begin = begin,
        .elements = end - begin,
        .weights = replica_master_at(replica, span->block, begin),
        .gradient = replica_gradient_at(replica, span->block, begin),
        .scratch = replica->scratch,
    };
    for (int i = 0; i < optimizer_moments(span->optimizer); i++)
        partition.moments[i] =
            replica->moments[i] + span->moment_at[i] + (begin - span->begin);
    if (!span->optimizer->whole_tensors)
        return partition;
    partition.tensor = &replica->params->list[span->first];
    partition.elements = partition.tensor->numel;
    for (int i = 0; i < optimizer_states(span->optimizer); i++)
        if (span->state_at[i] >= 0)
            partition.states[i] = replica->states + span->state_at[i];
    return partition;
}

/* When what the optimizer keeps of the tensor began: moments, or else states.
 */
static int64_t began(const struct replica *replica, const struct span *span,
                     int moment, int tensor)
{
    int64_t steps = 0;
    if (moment < optimizer_moments(span->optimizer))
        return replica_kept_began(replica, moment, tensor);
    for (int i = 0; i < optimizer_states(span->optimizer); i++)
        if (steps == 0)
            steps = replica_kept_began(replica, UPDATE_MOMENTS + i, tensor);
    return steps;
}

/* Elements [begin, end) of the span, all alike with the tensor. */
static enum err update_part(const struct replica *replica,
                            const struct optimizer_step *steps,
                            const struct span *span, int tensor, int64_t begin,
                            int64_t end)
{
    struct optimizer_step step = steps[span->group];
    struct optimizer_partition partition =
        partition_of(replica, span, begin, end);
    for (int i = 0; i < UPDATE_MOMENTS; i++)
        step.began[i] = began(replica, span, i, tensor);
    return span->optimizer->update(&step, replica->kernels, replica->ctx,
                                   &partition);
}

/* The same, in stretches that somebody looks at before and after. */
static enum err update_watched(const struct replica *replica,
                               const struct optimizer_step *steps,
                               const struct span *span, int tensor,
                               int64_t begin, int64_t end)
{
    const struct replica_watch *watch = replica->watch;
    int64_t next;
    if (watch == NULL)
        return update_part(replica, steps, span, tensor, begin, end);
    for (int64_t at = begin; at < end; at = next) {
        next = (at / REPLICA_WATCHED + 1) * REPLICA_WATCHED;
        if (next > end || span->optimizer->whole_tensors)
            next = end;
        const float *weights = replica_master_at(replica, span->block, at);
        TRY(watch->before(watch->arg, at, next, weights));
        TRY(update_part(replica, steps, span, tensor, at, next));
        TRY(watch->after(watch->arg, at, next, weights));
    }
    return ERR_OK;
}

static bool is_held(const struct replica *replica, int tensor)
{
    return replica->held != NULL && replica->held[tensor];
}

/* Whether a tensor and the next are updated alike. */
static bool alike(const struct replica *replica, const struct span *span,
                  int tensor)
{
    bool same = is_held(replica, tensor) == is_held(replica, tensor + 1);
    for (int i = 0; i < UPDATE_MOMENTS; i++)
        same = same && began(replica, span, i, tensor) ==
                           began(replica, span, i, tensor + 1);
    return same;
}

/* At once, but for tensors that are held, and where moments of neighbours began
 * at different steps. Padding goes with the tensor before it. */
static enum err update_span(const struct replica *replica,
                            const struct optimizer_step *steps,
                            const struct span *span)
{
    const struct param *list = replica->params->list;
    int64_t begin = span->begin;
    for (int p = span->first; p < span->last; p++) {
        bool last = p + 1 == span->last;
        int64_t end = last ? span->end : list[p + 1].offset;
        if (!last && alike(replica, span, p))
            continue;
        if (!is_held(replica, p))
            TRY(update_watched(replica, steps, span, p, begin, end));
        begin = end;
    }
    return ERR_OK;
}

void replica_hold(struct replica *replica, const bool *held)
{
    replica->held = held;
}

void replica_watch(struct replica *replica, const struct replica_watch *watch)
{
    replica->watch = watch;
}

enum err replica_update(struct replica *replica,
                        const struct optimizer_step *steps)
{
    for (int i = 0; i < replica->spans->count; i++)
        TRY(update_span(replica, steps, &replica->spans->list[i]));
    return replica_publish(replica);
}
