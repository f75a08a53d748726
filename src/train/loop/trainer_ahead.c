/* Tells the loader's thread which microbatches this rank computes in each step,
 * and takes them from it. */
#include "src/train/loop/trainer_ahead.h"

#include <stdlib.h>

#include "src/base/new.h"

int64_t trainer_ahead_offset(const struct trainer *trainer, int leaf)
{
    const struct train_settings *s = &trainer->settings;
    return leaf / s->parallel.sequence_chunks * s->train.microbatch;
}

enum err trainer_ahead_create(struct trainer *trainer)
{
    const struct train_settings *s = &trainer->settings;
    const struct replica *replica = trainer->replica;
    int microsteps = replica_microsteps(replica);
    int64_t *offsets = NULL;
    int count = 0;
    if (s->data.prefetch == 0 || microsteps == 0)
        return ERR_OK;
    TRY(new_zeroed(&offsets, (size_t)microsteps));
    for (int m = 0; m < microsteps; m++)
        if (replica_leaf(replica, m) >= 0)
            offsets[count++] =
                trainer_ahead_offset(trainer, replica_leaf(replica, m));
    struct loader_ahead_plan plan = {
        .datasets = trainer->train_data,
        .dataset_count = trainer->train_count,
        .order = trainer->order,
        .depth = (int)s->data.prefetch,
        .samples = s->train.microbatch,
        .seq_len = s->data.seq_len,
        .truncate = trainer->batch->truncate,
        .joined = trainer->batch->joined,
        .stride = s->train.global_batch,
        .offsets = offsets,
        .count = count,
        .timeline = trainer->timeline,
    };
    enum err rc =
        count == 0 ? ERR_OK : loader_ahead_create(&plan, &trainer->ahead);
    free(offsets);
    return rc;
}

void trainer_ahead_destroy(struct trainer *trainer)
{
    loader_ahead_destroy(trainer->ahead);
    trainer->ahead = NULL;
}

enum err trainer_ahead_read(struct trainer *trainer, int64_t first)
{
    return trainer->ahead != NULL
               ? loader_ahead_read(trainer->ahead, first, trainer->batch)
               : loader_read(trainer->train_data, trainer->order, first,
                             trainer->settings.train.microbatch,
                             trainer->batch);
}
