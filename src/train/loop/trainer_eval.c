/* Computes an evaluation: deals the leaves of the data set to the ranks, reads
 * and evaluates them, and sums their losses. When one is due and where its
 * result goes is on_eval.c's.
 *
 * Leaves are dealt in contiguous ranges to groups of ranks that compute one
 * together; a group that has a leaf less still takes part in the last microstep.
 * Losses lie in one array, rank by rank, so that one all-gather brings them to
 * all; each rank then adds them in the order of leaves and chunks, whoever has
 * computed them. A stop signal ends it between leaves, without a result. */
#include "src/train/loop/trainer.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/base/new.h"
#include "src/data/set/dataset.h"
#include "src/data/set/loader.h"
#include "src/job/stop.h"
#include "src/train/start/run_data.h"

struct trainer_eval {
    struct run *run;
    int set;         /* of run->inputs.eval_sets */
    int64_t samples; /* per evaluation */
    int64_t micro;   /* per leaf */
    int64_t leaves;
    int chunks, own; /* of a leaf, of all ranks and of one of them */
    int groups;      /* of ranks that compute a leaf together */
    double *losses;  /* [leaves * chunks] sums, listed rank by rank */
    struct trainer_losses sums; /* of this rank, microstep by microstep */
    size_t *bytes;              /* [ranks] for the exchange */
    size_t *offsets;            /* [ranks] */
};

static int64_t leaf_begin(const struct trainer_eval *eval, int group)
{
    assert(group >= 0 && group <= eval->groups);
    return eval->leaves * group / eval->groups;
}

/* Where the loss of a chunk is listed; its leaf is one of the group's. */
static int64_t loss_at(const struct trainer_eval *eval, int group, int64_t leaf,
                       int chunk)
{
    int64_t begin = leaf_begin(eval, group);
    int64_t count = leaf_begin(eval, group + 1) - begin;
    assert(leaf >= begin && leaf <= begin + count);
    return begin * eval->chunks + chunk / eval->own * count * eval->own +
           (leaf - begin) * eval->own + chunk % eval->own;
}

static int degree_of(const struct trainer_eval *eval)
{
    return eval->chunks / eval->own;
}

/* The microsteps of each group; in the last microstep some groups have no leaf.
 */
static int64_t eval_microsteps(const struct trainer_eval *eval)
{
    return (eval->leaves + eval->groups - 1) / eval->groups;
}

/* Leaves are the trainer's, whose size may have become smaller. */
static enum err eval_layout(struct trainer_eval *eval)
{
    const struct run *run = eval->run;
    int64_t micro = run->settings.train.microbatch;
    if (eval->micro == micro)
        return ERR_OK;
    free(eval->losses);
    trainer_losses_destroy(&eval->sums);
    eval->micro = micro;
    eval->leaves = (eval->samples + micro - 1) / micro;
    TRY(new_zeroed(&eval->losses, (size_t)(eval->leaves * eval->chunks + 1)));
    TRY(trainer_losses_create(run->engine.kernels->memory,
                              eval_microsteps(eval) * eval->own, eval->own,
                              &eval->sums));
    for (int r = 0; r < run->ranks; r++) {
        int group = r / degree_of(eval);
        int chunk = r % degree_of(eval) * eval->own;
        int64_t begin = leaf_begin(eval, group);
        int64_t end = leaf_begin(eval, group + 1);
        eval->offsets[r] =
            (size_t)loss_at(eval, group, begin, chunk) * sizeof(double);
        eval->bytes[r] = (size_t)((end - begin) * eval->own) * sizeof(double);
    }
    return ERR_OK;
}

static enum err eval_fill(struct trainer_eval *eval)
{
    const struct run *run = eval->run;
    eval->chunks = (int)run->settings.parallel.sequence_chunks;
    eval->own = replica_own_leaves(run->engine.replica);
    eval->groups = run->ranks / degree_of(eval);
    TRY(new_zeroed(&eval->bytes, (size_t)run->ranks));
    TRY(new_zeroed(&eval->offsets, (size_t)run->ranks));
    return eval_layout(eval);
}

enum err trainer_eval_create(struct run *run, int set,
                             struct trainer_eval **out)
{
    int64_t limit = run->settings.eval.samples;
    int64_t samples =
        dataset_contents(run->inputs.eval_sets->sets[set])->samples;
    struct trainer_eval *eval = NULL;
    TRY(new_zeroed(&eval, 1));
    eval->run = run;
    eval->set = set;
    eval->samples = limit > 0 && limit < samples ? limit : samples;
    *out = eval;
    return eval_fill(eval);
}

void trainer_eval_destroy(struct trainer_eval *eval)
{
    if (eval == NULL)
        return;
    free(eval->losses);
    trainer_losses_destroy(&eval->sums);
    free(eval->bytes);
    free(eval->offsets);
    free(eval);
}

/* Samples of a leaf, of which the last may have fewer. */
static int64_t leaf_samples(const struct trainer_eval *eval, int64_t number)
{
    int64_t count = eval->samples - number * eval->micro;
    assert(number >= 0 && count > 0);
    return count > eval->micro ? eval->micro : count;
}

/* Evaluates what is in the batch; it counts if it is this rank's leaf. */
static enum err eval_leaf(struct trainer_eval *eval, struct run *run,
                          int64_t number, bool counts, int64_t *tokens)
{
    int degree = degree_of(eval);
    int64_t microstep = number - leaf_begin(eval, run->rank / degree);
    struct leaf leaf = trainer_leaf(run, 0);
    TRY(model_eval_leaf(
        run->engine.model, replica_access(run->engine.replica), &leaf,
        trainer_losses_at(&eval->sums, counts ? microstep * eval->own : -1)));
    if (counts && run->rank % degree == 0)
        *tokens += run->inputs.batch->loss_tokens;
    return ERR_OK;
}

/* One microstep; those with which the rank computes need it also when it has no
 * leaf or has failed. */
static enum err eval_microstep(struct trainer_eval *eval, struct run *run,
                               int64_t number, enum err *failed,
                               int64_t *tokens)
{
    enum err rc = ERR_OK;
    const struct replica *replica = run->engine.replica;
    int group = run->rank / degree_of(eval);
    bool has = number < leaf_begin(eval, group + 1);
    bool serves = replica_experts(replica) != NULL ||
                  (replica_sequence(replica) != NULL && has);
    bool counts = has && *failed == ERR_OK && stop_requested() == 0;
    if (counts)
        *failed = loader_read(&run->inputs.eval_sets->sets[eval->set],
                              run->inputs.eval_orders[eval->set],
                              number * eval->micro, leaf_samples(eval, number),
                              run->inputs.batch);
    counts = counts && *failed == ERR_OK;
    if (!counts && !serves)
        return ERR_OK;
    if (!counts)
        trainer_leaf_empty(has ? leaf_samples(eval, number) : eval->micro,
                           run->inputs.batch);
    rc = eval_leaf(eval, run, number, counts, tokens);
    run->engine.adrift = rc != ERR_OK && replica_shares(replica);
    if (rc == ERR_COMM || run->engine.adrift)
        return rc;
    *failed = rc != ERR_OK ? rc : *failed;
    return ERR_OK;
}

/* Ranks that compute together end together, when a signal has come to one of
 * them or its leaf has failed. Others end by themselves. */
static enum err eval_goes_on(const struct run *run, enum err failed,
                             bool *goes_on)
{
    int64_t ends = failed != ERR_OK || stop_requested() != 0;
    *goes_on = true;
    if (!replica_shares(run->engine.replica))
        return ERR_OK;
    TRY(comm_all_reduce_i64(run->comm, &ends, 1, COMM_MAX));
    *goes_on = ends == 0;
    return ERR_OK;
}

/* This rank's leaves; it stops early when a signal has come or a leaf fails,
 * but the others may need its part of the weights to their end. */
static enum err eval_leaves(struct trainer_eval *eval, struct run *run,
                            int64_t *tokens)
{
    enum err failed = ERR_OK;
    struct err_kept kept = { ERR_OK, "" };
    int64_t begin = leaf_begin(eval, run->rank / degree_of(eval));
    int64_t microsteps = eval_microsteps(eval);
    for (int64_t microstep = 0; microstep < microsteps; microstep++) {
        enum err before = failed;
        bool goes_on;
        TRY(eval_goes_on(run, failed, &goes_on));
        if (!goes_on && run->rank == 0)
            log_info("evaluation left after %lld of %lld microsteps",
                     (long long)microstep, (long long)microsteps);
        if (!goes_on)
            break;
        TRY(trainer_event(run, EVENT_EVAL_BATCH_START));
        replica_begin_eval(run->engine.replica);
        TRY(eval_microstep(eval, run, begin + microstep, &failed, tokens));
        if (failed != before)
            err_keep(&kept, failed);
        TRY(replica_end_eval(run->engine.replica));
        TRY(trainer_event(run, EVENT_EVAL_BATCH_END));
    }
    return err_again(&kept);
}

/* Brings to the host what the leaves of this rank have left on the device. */
static enum err eval_fetch(struct trainer_eval *eval, const struct run *run)
{
    int group = run->rank / degree_of(eval);
    int first = run->rank % degree_of(eval) * eval->own;
    int64_t begin = leaf_begin(eval, group), end = leaf_begin(eval, group + 1);
    TRY(trainer_losses_fetch(&eval->sums, run->engine.stream));
    TRY(replica_settle(run->engine.replica));
    const struct leaf_loss *loss = trainer_losses_host(&eval->sums);
    for (int64_t leaf = begin; leaf < end; leaf++)
        for (int i = 0; i < eval->own; i++, loss++)
            eval->losses[loss_at(eval, group, leaf, first + i)] =
                loss->cross_entropy;
    return ERR_OK;
}

/* Sums the losses in the order of leaves and their chunks. */
static double eval_sum(const struct trainer_eval *eval)
{
    double sum = 0.0;
    int group = 0;
    for (int64_t leaf = 0; leaf < eval->leaves; leaf++) {
        while (leaf >= leaf_begin(eval, group + 1))
            group++;
        for (int chunk = 0; chunk < eval->chunks; chunk++)
            sum += eval->losses[loss_at(eval, group, leaf, chunk)];
    }
    return sum;
}

enum err trainer_eval_run(struct trainer_eval *eval, struct step_eval *out,
                          bool *done)
{
    enum err rc = ERR_OK;
    struct run *run = eval->run;
    double begin = clock_now();
    assert(run->now.left_out == NULL && !run->engine.adrift);
    int64_t words[2] = { 0, 0 }; /* tokens, ranks that were cut short */
    TRY(comm_agree(run->comm, eval_layout(eval)));
    rc = eval_leaves(eval, run, &words[0]);
    if (!run->engine.adrift)
        rc = comm_agree(run->comm, rc);
    TRY(rc);
    /* waits for all ranks, so none may have left */
    TRY(comm_agree(run->comm, eval_fetch(eval, run)));
    words[1] = stop_requested() != 0;
    TRY(comm_all_reduce_i64(run->comm, words, 2, COMM_SUM));
    TRY(comm_all_gather(run->comm, eval->losses, eval->bytes, eval->offsets));
    *done = words[1] == 0;
    if (*done)
        *out = (struct step_eval){
            .step = run->position.step,
            .loss = words[0] > 0 ? eval_sum(eval) / (double)words[0] : NAN,
            .tokens = words[0],
            .seconds = clock_now() - begin,
        };
    return ERR_OK;
}
