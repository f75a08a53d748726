/* Tells the loader's thread which microbatches this rank computes in each step,
 * and takes them from it. These are the same places of every batch, so the thread
 * gets them once, with the batch's length as the stride. */
#include "src/train/start/start.h"

#include <assert.h>
#include <stdlib.h>

#include "src/base/new.h"
#include "src/data/set/loader.h"
#include "src/data/set/loader_ahead.h"

int64_t trainer_ahead_offset(const struct run *run, int leaf)
{
    const struct train_settings *s = &run->settings;
    assert(leaf >= 0);
    return leaf / s->parallel.sequence_chunks * s->train.microbatch;
}

enum err trainer_ahead_create(struct run *run)
{
    const struct train_settings *s = &run->settings;
    const struct replica *replica = run->engine.replica;
    int microsteps = replica_microsteps(replica);
    int64_t *offsets = NULL;
    int count = 0;
    if (s->data.prefetch == 0 || microsteps == 0)
        return ERR_OK;
    TRY(new_zeroed(&offsets, (size_t)microsteps));
    for (int m = 0; m < microsteps; m++)
        if (replica_leaf(replica, m) >= 0)
            offsets[count++] =
                trainer_ahead_offset(run, replica_leaf(replica, m));
    assert(run->inputs.ahead == NULL && run->inputs.batch != NULL);
    struct loader_ahead_plan plan = {
        .datasets = run->inputs.train_data,
        .dataset_count = run->inputs.train_count,
        .order = run->inputs.order,
        .depth = (int)s->data.prefetch,
        .samples = s->train.microbatch,
        .seq_len = s->data.seq_len,
        .truncate = run->inputs.batch->truncate,
        .joined = run->inputs.batch->joined,
        .stride = s->train.global_batch,
        .offsets = offsets,
        .count = count,
        .timeline = run->timeline,
    };
    enum err rc =
        count == 0 ? ERR_OK : loader_ahead_create(&plan, &run->inputs.ahead);
    free(offsets);
    return rc;
}

void trainer_ahead_destroy(struct run *run)
{
    loader_ahead_destroy(run->inputs.ahead);
    run->inputs.ahead = NULL;
}

enum err trainer_ahead_read(struct run *run, int64_t first)
{
    return run->inputs.ahead != NULL
               ? loader_ahead_read(run->inputs.ahead, first, run->inputs.batch)
               : loader_read(run->inputs.train_data, run->inputs.order, first,
                             run->settings.train.microbatch, run->inputs.batch);
}
