/* Lists what a rank exchanges in a step. ddp and zero1 sum the gradient once (twice where
 * slots do not divide by the ranks) and gather what was updated; zero2 sums it for every
 * leaf. zero3 besides gathers the weights of each leaf twice, forward and backward,
 * within its degree, and its groups may sum leaves by themselves and what is theirs once.
 * src/parallel/DESIGN.md has the sums, and who exchanges in levels. */
#include "src/train/plan/train_exchange.h"

#include <assert.h>
#include <math.h>

#include "src/model/model.h"
#include "src/train/plan/train_memory.h"
#include "src/train/plan/trainer_backend.h"

/* Rows of experts are sent so often: there and back, backward besides with gradients. */
#define EXPERT_FORWARD 2.0
#define EXPERT_BACKWARD 3.0
/* A place's keys and values that another's queries see: of two chunks, as they are dealt,
 * the early one is seen by all and the late one by half of them. */
#define SEEN 0.75

struct train_exchange_sent train_exchange_sent(const struct train_exchange *x,
                                               int node_ranks)
{
    double here = fmax(1.0, (double)(node_ranks / x->stride));
    double ranks = (double)x->ranks;
    double near = fmin(ranks, here);
    double far = x->flat ? ranks / near : ceil(ranks / near);
    double all = x->flat ? ranks : near;
    assert(ranks >= 1 && near >= 1);
    return (struct train_exchange_sent){
        .near = x->bytes * (near - 1.0) / all,
        .far = x->bytes * (far - 1.0) / far / (x->flat ? 1.0 : near),
    };
}

double train_exchange_leaves(const struct train_settings *s, int64_t microbatch,
                             int ranks)
{
    double batch = (double)s->train.global_batch;
    double leaf = (double)microbatch / (double)s->parallel.sequence_degree;
    assert(ranks > 0 && microbatch > 0);
    return fmax(1.0, ceil(batch / leaf / (double)ranks));
}

/* Values that a rank's own leaves add up to before they travel, by the tree: one where
 * they are a power of two. */
static double values_of(int64_t leaves)
{
    return (double)__builtin_popcountll((unsigned long long)leaves);
}

static double experts_elements(const struct params *params)
{
    double elements = 0.0;
    for (int b = 0; b < params->block_count; b++)
        if (params->blocks[b].kind == PARAM_BLOCK_EXPERTS)
            elements += (double)params->blocks[b].elements;
    return elements;
}

/* Rows of chosen experts, of each layer. */
static struct train_exchange of_experts(const struct train_settings *s,
                                        double rows, double leaves,
                                        double again)
{
    const struct model_config *m = &s->model;
    return (struct train_exchange){
        .bytes = rows * (double)m->experts_top_k * (double)m->d_model *
                 (double)dtype_bytes(trainer_backend_dtype(s)) *
                 (double)m->n_layers,
        .times =
            s->parallel.expert_degree > 1
                ? leaves * (EXPERT_FORWARD * (1.0 + again) + EXPERT_BACKWARD)
                : 0.0,
        .ranks = (int)s->parallel.expert_degree,
        .stride = 1,
        .flat = true
    };
}

/* Keys and values of a place, forward and backward, to all who see them, and their
 * gradients in fp32 once around. */
static struct train_exchange of_sequences(const struct train_settings *s,
                                          double rows, double leaves,
                                          double again)
{
    const struct model_config *m = &s->model;
    double degree = (double)s->parallel.sequence_degree;
    double each = (double)dtype_bytes(trainer_backend_dtype(s));
    return (struct train_exchange){
        .bytes = rows * degree * 2.0 * (double)model_config_kv(m) *
                 (double)m->n_layers *
                 (SEEN * each * (2.0 + again) + sizeof(float)),
        .times = degree > 1.0 ? leaves : 0.0,
        .ranks = (int)degree,
        .stride = 1,
        .flat = true
    };
}

void train_exchanges(const struct train_settings *s,
                     const struct train_memory_place *place,
                     const struct params *params,
                     const struct train_memory_way *way,
                     struct train_exchange out[TRAIN_EXCHANGES])
{
    int ranks = way->ranks;
    int experts = (int)s->parallel.expert_degree;
    double apart = experts > 1 ? experts_elements(params) : 0.0;
    double p = (double)params->elements - apart, missing = 0.0;
    double each = (double)dtype_bytes(trainer_backend_dtype(s));
    double weights = p * each;
    bool bf16 = s->parallel.reduce_precision == REDUCE_BF16;
    bool elastic = s->parallel.determinism == DETERMINISM_ELASTIC;
    double sum_bytes = bf16 ? 2.0 : 4.0, gradient = p * sum_bytes;
    bool zero3 = way->strategy == REPLICA_ZERO3;
    bool blocks = way->strategy >= REPLICA_ZERO2;
    int degree = zero3 ? way->shard_degree : 1;
    int groups = ranks / degree;
    bool once = zero3 && way->once && groups > 1;
    bool device = place->kernels->memory->device, alike = place->uneven == 0;
    bool adds = alike && !bf16 && (blocks ? elastic : !device);
    bool ddp = way->strategy == REPLICA_DDP;
    double leaves = train_exchange_leaves(s, way->microbatch, ranks);
    int64_t own = s->parallel.sequence_chunks / s->parallel.sequence_degree;
    bool single = s->train.global_batch <= s->parallel.slots * way->microbatch;
    double sums = leaves * (single ? values_of(own) : (double)own);
    double updated = ddp ? p * sizeof(float) : weights;
    if (!blocks)
        sums = !elastic || s->parallel.slots % ranks == 0 ? 1.0 : 2.0;
    (void)train_memory_again(s, &missing);
    double again = way->again ? 1.0 : 1.0 - missing;
    double rows = (double)way->microbatch * (double)s->data.seq_len /
                  (double)s->parallel.sequence_degree;
    out[0] = (struct train_exchange){ weights, zero3 ? 2.0 * leaves : 0.0,
                                      degree, 1, !alike || groups > 1 };
    out[1] = (struct train_exchange){ gradient, sums, once ? degree : ranks, 1,
                                      !adds };
    /* of shards: sums that have waited, and what is updated */
    out[2] = (struct train_exchange){ gradient / degree, once ? 1.0 : 0.0,
                                      groups, degree, !adds };
    out[3] = (struct train_exchange){ updated / degree, 1.0, groups, degree,
                                      !alike || degree > 1 || (ddp && device) };
    out[4] = (struct train_exchange){ apart / experts * sum_bytes,
                                      apart > 0.0 ? leaves * values_of(experts)
                                                  : 0.0,
                                      ranks / experts, experts, !adds };
    out[5] = (struct train_exchange){ apart / experts * each,
                                      apart > 0.0 ? 1.0 : 0.0, ranks / experts,
                                      experts, !alike };
    out[6] = of_experts(s, rows, leaves, again);
    out[7] = of_sequences(s, rows, leaves, again);
}
