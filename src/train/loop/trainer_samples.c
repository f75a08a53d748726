/* Walks over the microsteps of the batch as training does, evaluates the samples
 * of this rank's leaves one by one, and brings all ranks' to everybody: as sums
 * of integers of which one alone is not 0, for a sum of numbers has an order. */
#include "src/train/loop/trainer_samples.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/new.h"
#include "src/train/loop/trainer_ahead.h"
#include "src/train/loop/trainer_leaf.h"
#include "src/train/loop/trainer_losses.h"
#include "src/train/loop/trainer_rollback.h"

struct trainer_samples {
    struct trainer *trainer;
    int64_t samples;            /* of a batch */
    int chunks, own;            /* of a sample, of all ranks and of this one */
    struct trainer_losses sums; /* of this rank's samples' own chunks */
    int64_t *words; /* [samples, chunks] the bits of sums, then [samples] of
                       labels */
    double *losses; /* [samples] */
};

enum err trainer_samples_create(struct trainer *trainer,
                                struct trainer_samples **out)
{
    const struct train_settings *s = &trainer->settings;
    const struct replica *replica = trainer->replica;
    struct trainer_samples *samples = calloc(1, sizeof *samples);
    *out = samples;
    if (samples == NULL)
        return err_set(ERR_MEMORY, "out of memory");
    samples->trainer = trainer;
    samples->samples = s->train.global_batch;
    samples->chunks = (int)s->parallel.sequence_chunks;
    samples->own = replica_own_leaves(replica);
    TRY(new_zeroed(&samples->words,
                   (size_t)(samples->samples * (samples->chunks + 1))));
    TRY(new_zeroed(&samples->losses, (size_t)samples->samples));
    /* smaller microbatches are more of them */
    return trainer_losses_create(trainer->kernels->memory,
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
    struct trainer *trainer = samples->trainer;
    int64_t place = trainer_ahead_offset(trainer, number);
    int64_t *labels = samples->words + samples->samples * samples->chunks;
    TRY(trainer_ahead_read(
        trainer, trainer_rollback_position(trainer, trainer->step) + place));
    struct leaf leaf = trainer_leaf(trainer, 0);
    trainer_leaf_shorten(trainer->batch, seq_len, &leaf,
                         &trainer->batch->loss_tokens);
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
    struct trainer *trainer = samples->trainer;
    struct leaf leaf = trainer_leaf(trainer, 0);
    int64_t first = number * seq_len;
    leaf.samples = 1;
    leaf.seq_len = seq_len;
    leaf.tokens += first;
    leaf.labels += first;
    if (leaf.sequence_ids != NULL)
        leaf.sequence_ids += first;
    return model_eval_leaf(trainer->model, replica_access(trainer->replica),
                           &leaf, trainer_losses_at(&samples->sums, at));
}

/* Those with which the rank computes need it also when it has no leaf, or has
 * failed. */
static enum err eval_microstep(struct trainer_samples *samples, int microstep,
                               int64_t seq_len, struct err_kept *failed)
{
    struct trainer *trainer = samples->trainer;
    const struct replica *replica = trainer->replica;
    int64_t micro = trainer->settings.train.microbatch;
    int leaf = replica_leaf(replica, microstep);
    bool serves = replica_experts(replica) != NULL ||
                  (replica_sequence(replica) != NULL && leaf >= 0);
    if (leaf >= 0 && failed->code == ERR_OK)
        err_keep(failed, read_leaf(samples, leaf, seq_len));
    bool counts = leaf >= 0 && failed->code == ERR_OK;
    if (!counts && serves)
        trainer_leaf_empty(micro, trainer->batch);
    for (int64_t i = 0; i < micro; i++) {
        enum err rc = ERR_OK;
        replica_begin_eval(trainer->replica);
        if (counts || serves)
            rc = eval_sample(samples, i, seq_len,
                             counts ? (microstep * micro + i) * samples->own
                                    : -1);
        trainer->adrift = rc != ERR_OK && replica_shares(replica);
        if (rc == ERR_COMM || trainer->adrift)
            return rc;
        if (rc != ERR_OK && failed->code == ERR_OK)
            err_keep(failed, rc);
        counts = counts && rc == ERR_OK;
        TRY(replica_end_eval(trainer->replica));
    }
    return ERR_OK;
}

static enum err eval_all(struct trainer_samples *samples, int64_t seq_len)
{
    struct trainer *trainer = samples->trainer;
    struct err_kept failed = { ERR_OK, "" };
    for (int m = 0; m < replica_microsteps(trainer->replica); m++)
        TRY(eval_microstep(samples, m, seq_len, &failed));
    TRY(trainer_losses_fetch(&samples->sums, trainer->stream));
    return err_again(&failed);
}

/* What the device has left on this rank, in its place. */
static void place_own(struct trainer_samples *samples)
{
    const struct trainer *trainer = samples->trainer;
    const struct leaf_loss *loss = trainer_losses_host(&samples->sums);
    int64_t micro = trainer->settings.train.microbatch;
    for (int m = 0; m < replica_microsteps(trainer->replica); m++) {
        int leaf = replica_leaf(trainer->replica, m);
        for (int64_t i = 0; i < micro * samples->own && leaf >= 0; i++) {
            int64_t sample =
                trainer_ahead_offset(trainer, leaf) + i / samples->own;
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
    struct trainer *trainer = samples->trainer;
    size_t words = (size_t)(samples->samples * (samples->chunks + 1));
    const int64_t *labels = samples->words + samples->samples * samples->chunks;
    memset(samples->words, 0, words * sizeof samples->words[0]);
    enum err rc = eval_all(samples, seq_len);
    if (!trainer->adrift)
        rc = comm_agree(trainer->comm, rc);
    TRY(rc);
    TRY(replica_settle(trainer->replica));
    place_own(samples);
    TRY(comm_all_reduce_i64(trainer->comm, samples->words, words, COMM_SUM));
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
