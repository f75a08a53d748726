#include "src/train/trainer_memory.h"

#include <stdio.h>
#include <string.h>

#include "src/base/log.h"

static struct train_memory_place place_of(const struct trainer *trainer)
{
    return (struct train_memory_place){ .kernels = trainer->kernels,
                                        .threads = trainer->threads,
                                        .ranks = trainer->ranks };
}

/* The first sample, so that an evaluation that cannot work fails now and not
 * after days. */
static enum err probe_eval(struct trainer *trainer)
{
    if (trainer->eval_data == NULL)
        return ERR_OK;
    struct order order = { .samples = dataset_samples(trainer->eval_data) };
    if (order.samples == 0)
        return ERR_OK;
    return loader_read(trainer->eval_data, &order, 0, 1, trainer->batch);
}

/* What depends on the microbatch, as far as it is not there; may fail on one
 * rank alone. */
static enum err make_leaf(struct trainer *trainer)
{
    enum err rc = ERR_OK;
    const struct train_settings *s = &trainer->settings;
    struct train_memory_place place = place_of(trainer);
    struct replica_options replica = train_memory_replica(s);
    size_t leaves = (size_t)replica.slots * (size_t)replica.leaves;
    if (trainer->batch != NULL)
        return ERR_OK;
    TRY(train_memory_check(s, &place));
    TRY(batch_create(s->train.microbatch, s->data.seq_len, &trainer->batch));
    trainer->batch->truncate = strcmp(s->data.too_long, "truncate") == 0;
    TRY(probe_eval(trainer));
    trainer->leaf_loss = calloc(leaves, sizeof trainer->leaf_loss[0]);
    trainer->leaf_balance = calloc(leaves, sizeof trainer->leaf_balance[0]);
    if (trainer->leaf_loss == NULL || trainer->leaf_balance == NULL)
        return err_set(ERR_MEMORY, "out of memory");
    TRY(trainer_losses_create(trainer->kernels->memory, (int64_t)leaves,
                              replica.sequence_chunks, &trainer->losses));
out:
    return rc;
}

/* With the replica's groups; may fail on one rank alone. */
static enum err make_model(struct trainer *trainer)
{
    enum err rc = ERR_OK;
    struct model_config config = train_settings_model(&trainer->settings);
    struct model_options options;
    if (trainer->model != NULL)
        return ERR_OK;
    TRY(train_memory_model(&trainer->settings, trainer->threads, &options));
    options.stream = trainer->stream;
    options.sequence = replica_sequence(trainer->replica);
    options.experts = replica_experts(trainer->replica);
    if (options.sequence != NULL)
        options.first_chunk = options.sequence->rank * options.own_chunks;
    TRY(model_create(&config, trainer->params, trainer->kernels, &options,
                     &trainer->model));
    if (trainer->fp8 != NULL) {
        TRY(train_fp8_give(trainer->fp8, trainer->model));
        /* what is loaded next takes their place */
        TRY(trainer->kernels->memory->wait(trainer->stream));
    }
    trainer->ctx = *model_ctx(trainer->model);
out:
    return rc;
}

static void drop_leaf(struct trainer *trainer)
{
    model_destroy(trainer->model);
    batch_destroy(trainer->batch);
    free(trainer->leaf_loss);
    free(trainer->leaf_balance);
    trainer_losses_destroy(&trainer->losses);
    trainer->model = NULL;
    trainer->batch = NULL;
    trainer->leaf_loss = NULL;
    trainer->leaf_balance = NULL;
}

/* Its kernels have the context of the model that follows. */
static enum err make_replica(struct trainer *trainer)
{
    struct replica_options options = train_memory_replica(&trainer->settings);
    if (trainer->replica != NULL)
        return replica_set_leaves(trainer->replica, options.leaves);
    return replica_create(trainer->comm, trainer->kernels, &trainer->ctx,
                          trainer->params, &options, &trainer->replica);
}

/* One smaller, without making it. */
static enum err step_down(struct trainer *trainer)
{
    struct train_settings *s = &trainer->settings;
    int64_t smaller = train_memory_smaller(s->train.microbatch);
    if (strcmp(s->parallel.determinism, "elastic") == 0 || smaller == 0)
        return ERR_MEMORY;
    if (trainer->rank == 0)
        log_warn("train.microbatch is now %lld, no longer %lld: %s",
                 (long long)smaller, (long long)s->train.microbatch,
                 err_text());
    s->train.microbatch = smaller;
    trainer->shrunk = true;
    return ERR_OK;
}

enum err trainer_memory_create(struct trainer *trainer)
{
    for (;;) {
        enum err rc = comm_agree(trainer->comm, make_leaf(trainer));
        if (rc == ERR_OK)
            rc = comm_agree(trainer->comm, make_replica(trainer));
        if (rc == ERR_OK)
            rc = comm_agree(trainer->comm, make_model(trainer));
        if (rc != ERR_MEMORY)
            return rc;
        rc = step_down(trainer);
        if (rc != ERR_OK)
            return rc;
        drop_leaf(trainer);
    }
}

enum err trainer_memory_shrink(struct trainer *trainer)
{
    enum err rc = ERR_OK;
    TRY(step_down(trainer));
    drop_leaf(trainer);
    TRY(trainer_memory_create(trainer));
out:
    return rc;
}

enum err trainer_memory_adopt(struct trainer *trainer, int64_t microbatch)
{
    trainer->settings.train.microbatch = microbatch;
    drop_leaf(trainer);
    return trainer_memory_create(trainer);
}

enum err trainer_memory_plan(const struct trainer *trainer,
                             struct memory_plan *out)
{
    struct train_memory_place place = place_of(trainer);
    return train_memory_plan(&trainer->settings, &place, out);
}
