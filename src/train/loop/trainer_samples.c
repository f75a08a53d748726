/* Walks over the microsteps of the batch as training does, evaluates the samples
 * of this rank's leaves one by one, and brings all ranks' to everybody: as sums
 * of integers of which one alone is not 0, for a sum of numbers has an order. */
#include "src/train/loop/trainer.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/new.h"
#include "src/data/set/loader.h"
#include "src/train/start/start.h"

struct trainer_samples {
    struct run *run;
    int64_t samples;            /* of a batch */
    int chunks, own;            /* of a sample, of all ranks and of this one */
    struct trainer_losses sums; /* of this rank's samples' own chunks */
    int64_t *words; /* [samples, chunks] the bits of sums, then [samples] of
                       labels */
    double *losses; /* [samples] */
};

enum err trainer_samples_create(struct run *run, struct trainer_samples **out)
{
    const struct train_settings *s = &run->settings;
    const struct replica *replica = run->engine.replica;
    struct trainer_samples *samples = NULL;
    TRY(new_zeroed(out, 1));
    samples = *out;
    samples->run = run;
    samples->samples = s->train.global_batch;
    samples->chunks = (int)s->parallel.sequence_chunks;
    samples->own = replica_own_leaves(replica);
    TRY(new_zeroed(&samples->words,
                   (size_t)(samples->samples * (samples->chunks + 1))));
    TRY(new_zeroed(&samples->losses, (size_t)samples->samples));
    /* smaller microbatches are more of them */
    return trainer_losses_create(run->engine.kernels->memory,
                                 replica_microsteps(replica) *
                                     s->train.microbatch * samples->own,
                                 samples->own, &samples->sums);
}

void trainer_samples_destroy(struct trainer_samples *samples)
{
    if (samples == NULL)
        return;
    trainer_losses_destroy(&samples->sums);
    free(samples->words);
    free(samples->losses);
    free(samples);
}

/* Reads a leaf; its labels are counted by the rank that has its first chunk. */
static enum err read_leaf(struct trainer_samples *samples, int number,
                          int64_t seq_len)
{
    struct run *run = samples->run;
    int64_t place = trainer_ahead_offset(run, number);
    int64_t *labels = samples->words + samples->samples * samples->chunks;
    TRY(trainer_ahead_read(
        run, trainer_rollback_position(run, run->position.step) + place));
    struct leaf leaf = trainer_leaf(run, 0);
    trainer_leaf_shorten(run->inputs.batch, seq_len, &leaf,
                         &run->inputs.batch->loss_tokens);
    for (int64_t i = 0;
         i < leaf.samples * seq_len && number % samples->chunks == 0; i++)
        labels[place + i / seq_len] += leaf.labels[i] >= 0;
    return ERR_OK;
}

/* One sample of what is in the batch; its loss goes to number `at`, or nobody
 * counts it. */
static enum err eval_sample(struct trainer_samples *samples, int64_t number,
                            int64_t seq_len, int64_t at)
{
    struct run *run = samples->run;
    struct leaf leaf = trainer_leaf(run, 0);
    int64_t first = number * seq_len;
    assert(number >= 0 && number < leaf.samples && seq_len <= leaf.seq_len);
    leaf.samples = 1;
    leaf.seq_len = seq_len;
    leaf.tokens += first;
    leaf.labels += first;
    if (leaf.sequence_ids != NULL)
        leaf.sequence_ids += first;
    return model_eval_leaf(run->engine.model,
                           replica_access(run->engine.replica), &leaf,
                           trainer_losses_at(&samples->sums, at));
}

/* Those with which the rank computes need it also when it has no leaf, or has
 * failed. */
static enum err eval_microstep(struct trainer_samples *samples, int microstep,
                               int64_t seq_len, struct err_kept *failed)
{
    struct run *run = samples->run;
    const struct replica *replica = run->engine.replica;
    int64_t micro = run->settings.train.microbatch;
    int leaf = replica_leaf(replica, microstep);
    bool serves = replica_experts(replica) != NULL ||
                  (replica_sequence(replica) != NULL && leaf >= 0);
    if (leaf >= 0 && failed->code == ERR_OK)
        err_keep(failed, read_leaf(samples, leaf, seq_len));
    bool counts = leaf >= 0 && failed->code == ERR_OK;
    if (!counts && serves)
        trainer_leaf_empty(micro, run->inputs.batch);
    for (int64_t i = 0; i < micro; i++) {
        enum err rc = ERR_OK;
        replica_begin_eval(run->engine.replica);
        if (counts || serves)
            rc = eval_sample(samples, i, seq_len,
                             counts ? (microstep * micro + i) * samples->own
                                    : -1);
        run->engine.adrift = rc != ERR_OK && replica_shares(replica);
        if (rc == ERR_COMM || run->engine.adrift)
            return rc;
        if (rc != ERR_OK && failed->code == ERR_OK)
            err_keep(failed, rc);
        counts = counts && rc == ERR_OK;
        TRY(replica_end_eval(run->engine.replica));
    }
    return ERR_OK;
}

static enum err eval_all(struct trainer_samples *samples, int64_t seq_len)
{
    struct run *run = samples->run;
    struct err_kept failed = { ERR_OK, "" };
    for (int m = 0; m < replica_microsteps(run->engine.replica); m++)
        TRY(eval_microstep(samples, m, seq_len, &failed));
    TRY(trainer_losses_fetch(&samples->sums, run->engine.stream));
    return err_again(&failed);
}

/* What the device has left on this rank, in its place. */
static void place_own(struct trainer_samples *samples)
{
    const struct run *run = samples->run;
    const struct leaf_loss *loss = trainer_losses_host(&samples->sums);
    int64_t micro = run->settings.train.microbatch;
    for (int m = 0; m < replica_microsteps(run->engine.replica); m++) {
        int leaf = replica_leaf(run->engine.replica, m);
        for (int64_t i = 0; i < micro * samples->own && leaf >= 0; i++) {
            int64_t sample = trainer_ahead_offset(run, leaf) + i / samples->own;
            int64_t chunk = leaf % samples->chunks + i % samples->own;
            memcpy(&samples->words[sample * samples->chunks + chunk],
                   &loss[m * micro * samples->own + i].cross_entropy,
                   sizeof(double));
        }
    }
}

enum err trainer_samples_losses(struct trainer_samples *samples,
                                int64_t seq_len, const double **out)
{
    struct run *run = samples->run;
    size_t words = (size_t)(samples->samples * (samples->chunks + 1));
    const int64_t *labels = samples->words + samples->samples * samples->chunks;
    assert(seq_len > 0 && seq_len <= run->settings.data.seq_len);
    memset(samples->words, 0, words * sizeof samples->words[0]);
    enum err rc = eval_all(samples, seq_len);
    if (!run->engine.adrift)
        rc = comm_agree(run->comm, rc);
    TRY(rc);
    TRY(replica_settle(run->engine.replica));
    place_own(samples);
    TRY(comm_all_reduce_i64(run->comm, samples->words, words, COMM_SUM));
    for (int64_t i = 0; i < samples->samples; i++) {
        double sum = 0.0, part;
        for (int c = 0; c < samples->chunks; c++) {
            memcpy(&part, &samples->words[i * samples->chunks + c],
                   sizeof part);
            sum += part;
        }
        samples->losses[i] = labels[i] > 0 ? sum / (double)labels[i] : -1.0;
    }
    *out = samples->losses;
    return ERR_OK;
}
