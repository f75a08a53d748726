/* Listener: every monitor.activations figures of the residual stream behind each
 * block, "activation/FIGURE/transformer.blocks.N":
 *
 *   mean, std   of its elements (std: of all of them, not of a sample)
 *   max         the largest magnitude
 *   zeros       the share of elements that are 0
 *
 * of the first microbatch of every slot, as training computes it, padding
 * included. So they are the same bits whatever the ranks and the strategy. Where
 * the gradient is computed twice they are of the second time. */
#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/new.h"
#include "src/train/listeners/monitor_due.h"
#include "src/train/run/run.h"

#define HOST_BYTES ((size_t)1 << 20)

struct on_activations {
    struct run *run;
    struct monitor_due due;
    struct run_look look;
    struct arena host; /* of a device */
    int64_t layers;
    int slots;
    double *values;   /* [leaves of a batch], of one figure */
    int64_t *largest; /* [layers], the bits of doubles that are not negative */
};

static void on_activations_destroy(void *self)
{
    struct on_activations *on = self;
    if (on->run == NULL)
        return;
    const struct kernel_memory *memory = on->run->engine.kernels->memory;
    if (on->look.of_leaf.event != NULL)
        memory->event_destroy(on->look.of_leaf.event);
    memory->host_destroy(&on->host);
    free(on->look.all);
    free(on->values);
    free(on->largest);
}

static enum err on_activations_create(void *self, struct run *run)
{
    struct on_activations *on = self;
    const struct train_settings *s = &run->settings;
    const struct kernel_memory *memory = run->engine.kernels->memory;
    struct replica_options replica = train_memory_replica(s);
    on->run = run;
    on->layers = s->model.n_layers;
    on->slots = replica.slots;
    on->look.leaves = replica.leaves;
    on->look.chunks = (int)s->parallel.sequence_chunks;
    TRY(monitor_due_create(run, "monitor.activations", s->monitor.activations,
                           false, &on->due));
    if (!monitor_due_ever(&on->due))
        return ERR_OK;
    size_t figures =
        (size_t)on->slots * (size_t)on->look.chunks * (size_t)on->layers;
    TRY(new_zeroed(&on->look.all, figures));
    TRY(new_zeroed(&on->values, (size_t)on->slots * (size_t)on->look.leaves));
    TRY(new_zeroed(&on->largest, (size_t)on->layers));
    if (!memory->device)
        return ERR_OK;
    TRY(memory->host_create(HOST_BYTES, &on->host));
    on->look.of_leaf.host = on->host.base;
    on->look.of_leaf.host_bytes = HOST_BYTES;
    return memory->event_create(&on->look.of_leaf.event);
}

static struct stream_figures *figures_at(const struct on_activations *on,
                                         int slot, int chunk, int64_t layer)
{
    assert(slot >= 0 && slot < on->slots && layer >= 0 && layer < on->layers);
    assert(chunk >= 0 && chunk < on->look.chunks);
    return &on->look
                .all[((int64_t)slot * on->look.chunks + chunk) * on->layers +
                     layer];
}

/* One of the sums of a layer, over the ranks, in the order of gradients. */
static enum err sum_up(const struct on_activations *on, int64_t layer,
                       size_t offset, double *sum)
{
    for (int slot = 0; slot < on->slots; slot++)
        for (int c = 0; c < on->look.chunks; c++)
            memcpy(&on->values[slot * on->look.leaves + c],
                   (const char *)figures_at(on, slot, c, layer) + offset,
                   sizeof(double));
    return replica_leaf_sum(on->run->engine.replica, on->values, sum);
}

static enum err find_largest(const struct on_activations *on)
{
    for (int64_t layer = 0; layer < on->layers; layer++) {
        double largest = 0.0;
        for (int slot = 0; slot < on->slots; slot++)
            for (int c = 0; c < on->look.chunks; c++)
                largest =
                    fmax(largest, figures_at(on, slot, c, layer)->largest);
        memcpy(&on->largest[layer], &largest, sizeof largest);
    }
    return comm_all_reduce_i64(on->run->comm, on->largest, (size_t)on->layers,
                               COMM_MAX);
}

static void tell(const struct step_record *step, const char *figure,
                 int64_t layer, double value)
{
    char name[96];
    snprintf(name, sizeof name, "activation/%s/transformer.blocks.%lld", figure,
             (long long)layer);
    tracking_list_add(step->scalars, name, value);
}

static enum err tell_layer(const struct on_activations *on,
                           const struct step_record *step, int64_t layer)
{
    struct stream_figures all = { 0 };
    TRY(sum_up(on, layer, offsetof(struct stream_figures, elements),
               &all.elements));
    TRY(sum_up(on, layer, offsetof(struct stream_figures, sum), &all.sum));
    TRY(sum_up(on, layer, offsetof(struct stream_figures, squares),
               &all.squares));
    TRY(sum_up(on, layer, offsetof(struct stream_figures, zeros), &all.zeros));
    memcpy(&all.largest, &on->largest[layer], sizeof all.largest);
    double mean = all.sum / all.elements;
    double variance = all.squares / all.elements - mean * mean;
    tell(step, "mean", layer, mean);
    /* NaN stays NaN */
    tell(step, "std", layer, sqrt(variance < 0.0 ? 0.0 : variance));
    tell(step, "max", layer, all.largest);
    tell(step, "zeros", layer, all.zeros / all.elements);
    return ERR_OK;
}

static enum err on_activations_handle(void *self, enum event event,
                                      const struct step_record *step,
                                      struct asks *asks)
{
    struct on_activations *on = self;
    struct run *run = on->run;
    (void)asks;
    if (event == EVENT_BEFORE_TRAIN_BATCH) {
        assert(run->engine.look == NULL); /* the last batch's is told */
        run->engine.look =
            monitor_due_step(&on->due, step->step + 1) ? &on->look : NULL;
        return ERR_OK;
    }
    if (run->engine.look == NULL)
        return ERR_OK;
    run->engine.look = NULL;
    TRY(find_largest(on));
    for (int64_t layer = 0; layer < on->layers; layer++)
        TRY(tell_layer(on, step, layer));
    return ERR_OK;
}

const struct listener_ops on_activations_ops = {
    LISTENER_OF(struct on_activations),
    .create_together = on_activations_create, .destroy = on_activations_destroy,
    .handle = on_activations_handle
};
