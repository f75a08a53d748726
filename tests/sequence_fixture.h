/* A leaf in chunks, computed by one or more ranks that are threads of the
 * test. */
#pragma once

#include "tests/model_probe.h"
#include "tests/thread_group.h"

#define CHUNKS_MAX 6
#define CALLS_MAX 512

/* Of all chunks, in order. */
struct sequence_result {
    float *gradient; /* [CHUNKS_MAX][params->elements] */
    struct leaf_loss train[CHUNKS_MAX], eval[CHUNKS_MAX];
    int64_t counts[LAYERS_MAX * EXPERTS_MAX]; /* of eval */
    char calls[CALLS_MAX]; /* what the first rank did with its parameters */
    double
        work[CHUNKS_MAX]; /* of attention, of each rank; where it is counted */
};

/* What this thread's rank has had of attention's work, for whoever counts it. */
static _Thread_local double sequence_work;

struct sequence_rank {
    struct model_fixture *f;
    const struct kernels *kernels;
    struct model_options options;
    struct thread_member member;
    struct group_access access;
    float *gradient; /* of each block those of the own chunks */
    struct leaf_loss train[CHUNKS_MAX], eval[CHUNKS_MAX];
    int64_t counts[LAYERS_MAX * EXPERTS_MAX];
    char calls[CALLS_MAX];
    size_t call_count;
    double work;
    bool fine;
    char text[256]; /* of its error */
};

static inline enum err note_call(struct sequence_rank *rank, char kind,
                                 int block)
{
    if (rank->call_count + 3 > sizeof rank->calls)
        return err_set(ERR_INTERNAL, "more calls than were counted on");
    rank->calls[rank->call_count++] = kind;
    rank->calls[rank->call_count++] = (char)('0' + block);
    return ERR_OK;
}

static inline enum err rank_gather(void *arg, int block, const void **weights)
{
    struct sequence_rank *rank = arg;
    *weights = rank->f->weights + rank->f->params->blocks[block].offset;
    return note_call(rank, 'g', block);
}

static inline enum err rank_release(void *arg, int block)
{
    return note_call(arg, 'r', block);
}

static inline enum err rank_gradient(void *arg, int block, float **gradient)
{
    struct sequence_rank *rank = arg;
    *gradient = rank->gradient + rank->options.own_chunks *
                                     rank->f->params->blocks[block].offset;
    return note_call(rank, 'd', block);
}

static inline enum err rank_done(void *arg, int block)
{
    return note_call(arg, 'e', block);
}

static inline void *rank_main(void *arg)
{
    enum err rc = ERR_OK;
    struct sequence_rank *rank = arg;
    const struct model_config *config = &rank->f->config;
    struct param_access access = { .arg = rank,
                                   .gather = rank_gather,
                                   .release = rank_release,
                                   .gradient = rank_gradient,
                                   .gradient_done = rank_done };
    struct model *model = NULL;
    sequence_work = 0.0;
    TRY_OUT(model_create(config, rank->f->params, rank->kernels, &rank->options,
                         &model));
    TRY_OUT(model_train_leaf(model, &access, &rank->f->leaf, rank->train));
    TRY_OUT(model_expert_counts_clear(model));
    TRY_OUT(model_eval_leaf(model, &access, &rank->f->leaf, rank->eval));
    TRY_OUT(fixture_counts(model, rank->kernels, config, rank->counts));
out:
    model_destroy(model);
    rank->work = sequence_work;
    rank->fine = rc == ERR_OK;
    snprintf(rank->text, sizeof rank->text, "%s", err_text());
    return NULL;
}

static inline void rank_open(struct sequence_rank *rank,
                             struct model_fixture *f,
                             const struct kernels *kernels,
                             const struct model_options *options, int number,
                             int ranks, struct thread_group *group)
{
    int own = options->chunks / ranks;
    *rank = (struct sequence_rank){ .f = f,
                                    .kernels = kernels,
                                    .options = *options };
    rank->member = (struct thread_member){ .group = group, .rank = number };
    rank->access =
        (struct group_access){ &rank->member, number, ranks,
                               thread_member_start, thread_member_wait };
    rank->options.own_chunks = own;
    rank->options.first_place = number * own;
    rank->options.sequence = ranks > 1 ? &rank->access : NULL;
    rank->gradient = aligned_alloc(64, (size_t)own * fixture_bytes(f));
    if (rank->gradient == NULL)
        abort();
    memset(rank->gradient, 0, (size_t)own * fixture_bytes(f));
}

/* What a rank has of its chunks to where all chunks' is. */
static inline void rank_collect(const struct sequence_rank *rank,
                                struct sequence_result *out)
{
    const struct params *params = rank->f->params;
    int own = rank->options.own_chunks;
    for (int i = 0; i < own; i++) {
        int chunk =
            model_chunk_at(rank->options.chunks, rank->options.first_place + i);
        out->train[chunk] = rank->train[i];
        out->eval[chunk] = rank->eval[i];
        for (int b = 0; b < params->block_count; b++) {
            const struct param_block *block = &params->blocks[b];
            memcpy(out->gradient + chunk * params->elements + block->offset,
                   rank->gradient + own * block->offset + i * block->elements,
                   (size_t)block->elements * sizeof(float));
        }
    }
    for (int i = 0; i < LAYERS_MAX * EXPERTS_MAX; i++)
        out->counts[i] += rank->counts[i];
}

static inline struct sequence_result *
sequence_result_create(const struct model_fixture *f)
{
    struct sequence_result *result = calloc(1, sizeof *result);
    if (result != NULL)
        result->gradient = calloc(CHUNKS_MAX, fixture_bytes(f));
    if (result == NULL || result->gradient == NULL)
        abort();
    return result;
}

static inline void sequence_result_destroy(struct sequence_result *result)
{
    free(result->gradient);
    free(result);
}

/* A training and an evaluation by `ranks` threads; NULL after an error. */
static inline struct sequence_result *
sequence_run(struct model_fixture *f, const struct kernels *kernels,
             const struct model_options *options, int ranks)
{
    struct thread_group group = THREAD_GROUP_INIT;
    struct sequence_rank all[CHUNKS_MAX];
    pthread_t threads[CHUNKS_MAX];
    struct sequence_result *result = sequence_result_create(f);
    bool fine = true;
    for (int r = 0; r < ranks; r++)
        rank_open(&all[r], f, kernels, options, r, ranks, &group);
    for (int r = 1; r < ranks; r++)
        if (pthread_create(&threads[r], NULL, rank_main, &all[r]) != 0)
            abort();
    rank_main(&all[0]);
    for (int r = 0; r < ranks; r++) {
        if (r > 0)
            pthread_join(threads[r], NULL);
        if (!all[r].fine)
            tap_note("rank %d: %s", r, all[r].text);
        fine &= all[r].fine;
        rank_collect(&all[r], result);
        result->work[r] = all[r].work;
        free(all[r].gradient);
    }
    memcpy(result->calls, all[0].calls, sizeof result->calls);
    if (fine && thread_group_fine(&group))
        return result;
    sequence_result_destroy(result);
    return NULL;
}

static inline bool sequence_same(const struct model_fixture *f, int chunks,
                                 const struct sequence_result *a,
                                 const struct sequence_result *b)
{
    size_t bytes = (size_t)chunks * fixture_bytes(f);
    bool same = a != NULL && b != NULL &&
                memcmp(a->gradient, b->gradient, bytes) == 0 &&
                memcmp(a->counts, b->counts, sizeof a->counts) == 0;
    for (int c = 0; same && c < chunks; c++)
        same = fixture_same_loss(a->train[c], b->train[c]) &&
               fixture_same_loss(a->eval[c], b->eval[c]);
    return same;
}

static inline struct leaf_loss sequence_loss(const struct leaf_loss *loss,
                                             int chunks)
{
    struct leaf_loss sum = { 0 };
    for (int c = 0; c < chunks; c++) {
        sum.cross_entropy += loss[c].cross_entropy;
        sum.balance += loss[c].balance;
    }
    return sum;
}

/* To f->gradient. */
static inline void sequence_gradient(struct model_fixture *f,
                                     const struct sequence_result *result,
                                     int chunks)
{
    int64_t elements = f->params->elements;
    memset(f->gradient, 0, fixture_bytes(f));
    for (int64_t i = 0; i < chunks * elements; i++)
        f->gradient[i % elements] += result->gradient[i];
}

static inline struct model_options
sequence_options(const struct model_fixture *f, int chunks)
{
    struct model_options options = fixture_options(f, 1);
    options.chunks = chunks;
    return options;
}
