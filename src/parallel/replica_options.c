/* Completes the options of a replica with their defaults and checks which go
 * together, and whether they fit the number of ranks and the model. Here alone
 * it says what cannot be, before anything is made: the other files assert it.
 */
#include "src/parallel/replica_impl.h"

#include <assert.h>

bool replica_by_block(const struct replica_options *options)
{
    return options->strategy == REPLICA_ZERO2 ||
           options->strategy == REPLICA_ZERO3;
}

static void fill(int *value)
{
    if (*value == 0)
        *value = 1;
}

int replica_kept_count(const struct replica_options *options)
{
    int count = 0;
    while (count < REPLICA_KEPT && options->kept[count].name != NULL)
        count++;
    return count;
}

struct replica_options replica_filled(const struct replica_options *options)
{
    struct replica_options filled = *options;
    fill(&filled.sequence_chunks);
    fill(&filled.sequence_degree);
    fill(&filled.expert_degree);
    if (filled.optimizer == NULL)
        filled.optimizer = optimizer_at(0);
    return filled;
}

int replica_part(const struct replica_options *options)
{
    struct replica_options o = replica_filled(options);
    return o.sequence_chunks / o.sequence_degree;
}

static enum err check_weights(const struct replica_options *options, int ranks)
{
    int degree = options->shard_degree > 0 ? options->shard_degree : ranks;
    assert(options->strategy != REPLICA_AUTO);
    if (options->shard_degree > 0 && options->strategy != REPLICA_ZERO3)
        return err_set(ERR_USAGE, "parallel.shard_degree is of weights, which "
                                  "only parallel.strategy=zero3 shards: leave "
                                  "one of them out");
    if (ranks % degree != 0)
        return err_set(ERR_USAGE,
                       "parallel.shard_degree (%d) does not divide the %d "
                       "ranks: choose a divisor, or -1 for all of them",
                       degree, ranks);
    return ERR_OK;
}

const char *replica_whole(const struct replica_options *options,
                          const struct params *params)
{
    const struct spans_input input = { .params = params,
                                       .rest = options->optimizer,
                                       .groups = options->groups,
                                       .group_count = options->group_count };
    return spans_whole(&input);
}

int64_t replica_kept_elements(const struct replica_options *options,
                              const struct params *params)
{
    int64_t elements = 0;
    const struct replica_options filled = replica_filled(options);
    for (int p = 0; p < params->count; p++) {
        const struct param *param = &params->list[p];
        const struct optimizer_ops *o;
        optimizer_find(filled.optimizer, filled.groups, filled.group_count,
                       param, &o);
        elements += optimizer_moments(o) * param->numel;
        for (int s = 0; s < optimizer_states(o); s++)
            elements += optimizer_state_elements(o, params, param, s);
    }
    return elements;
}

static enum err check_optimizer(const struct replica_options *options,
                                const struct params *params)
{
    const char *name = replica_whole(options, params);
    if (name == NULL || !replica_by_block(options))
        return ERR_OK;
    return err_set(ERR_USAGE,
                   "optimizer %s updates whole tensors, which "
                   "parallel.strategy=zero2 and zero3 cut: use ddp or zero1",
                   name);
}

static enum err check_precision(const struct replica_options *options)
{
    if (options->reduce_bf16 && options->exact)
        return err_set(ERR_USAGE,
                       "parallel.reduce_precision=bf16 rounds the gradients "
                       "that travel, and which do depends on the number of "
                       "ranks: parallel.determinism=elastic cannot promise the "
                       "same bits; use fp32, or determinism run or fast");
    if (options->reduce_bf16 && !replica_by_block(options))
        return err_set(ERR_USAGE,
                       "parallel.reduce_precision=bf16 is for "
                       "parallel.strategy=zero2 and zero3: use one of them, or "
                       "fp32");
    return ERR_OK;
}

static enum err check_degree(const char *name, int degree, int ranks)
{
    if (ranks % degree == 0)
        return ERR_OK;
    return err_set(ERR_USAGE,
                   "parallel.%s (%d) does not divide the %d ranks: choose a "
                   "divisor, or start a multiple of it",
                   name, degree, ranks);
}

static enum err check_sequence(const struct replica_options *options, int ranks)
{
    int chunks = options->sequence_chunks;
    int degree = options->sequence_degree;
    if (chunks == 1 && degree == 1)
        return ERR_OK;
    if (!replica_by_block(options))
        return err_set(ERR_USAGE,
                       "parallel.sequence_chunks and parallel.sequence_degree "
                       "need parallel.strategy=zero2 or zero3: ddp and zero1 "
                       "add whole slots on one rank");
    if (chunks % degree != 0)
        return err_set(ERR_USAGE,
                       "parallel.sequence_degree (%d) does not divide "
                       "parallel.sequence_chunks (%d): choose a divisor, or "
                       "more chunks",
                       degree, chunks);
    return check_degree("sequence_degree", degree, ranks);
}

static enum err check_experts(const struct replica_options *options, int ranks)
{
    if (options->expert_degree == 1)
        return ERR_OK;
    if (!replica_by_block(options))
        return err_set(ERR_USAGE,
                       "parallel.expert_degree needs parallel.strategy=zero2 "
                       "or zero3: ddp and zero1 keep all weights on every "
                       "rank");
    if (options->sequence_chunks > 1 || options->sequence_degree > 1)
        return err_set(ERR_USAGE,
                       "parallel.expert_degree and parallel.sequence_chunks "
                       "or sequence_degree are not combined yet: set one of "
                       "them to 1");
    return check_degree("expert_degree", options->expert_degree, ranks);
}

enum err replica_check(const struct replica_options *options, int ranks)
{
    struct replica_options filled = replica_filled(options);
    TRY(check_weights(&filled, ranks));
    TRY(check_precision(&filled));
    TRY(check_sequence(&filled, ranks));
    return check_experts(&filled, ranks);
}

enum err replica_check_model(const struct replica_options *options,
                             const struct params *params)
{
    int64_t experts = 0; /* of a layer */
    int64_t numel = 0;   /* of the matrices of one kind */
    const struct replica_options filled = replica_filled(options);
    int degree = filled.expert_degree;
    TRY(check_optimizer(&filled, params));
    if (degree == 1)
        return ERR_OK;
    if (params->frozen != NULL)
        return err_set(ERR_USAGE,
                       "parallel.expert_degree (%d) spreads experts that "
                       "train: with model.freeze or lora.rank set it to 1",
                       degree);
    for (int p = 0; p < params->count; p++) {
        const struct param *param = &params->list[p];
        if (param->role == PARAM_ROUTER)
            experts = param->shape[0];
        if (param->role == PARAM_EXPERTS_UP)
            numel = param->numel;
    }
    if (experts == 0 || experts % degree != 0)
        return err_set(ERR_USAGE,
                       "parallel.expert_degree (%d) does not divide the "
                       "model's %lld experts: choose a divisor, 1 for a dense "
                       "model",
                       degree, (long long)experts);
    if (numel / degree % KERNEL_CHUNK != 0)
        return err_set(ERR_USAGE,
                       "parallel.expert_degree (%d): a rank's %lld experts of "
                       "%lld elements are no multiple of %d, at which weights "
                       "are cut: choose a smaller degree, or model.ffn_width "
                       "and model.d_model with larger powers of two",
                       degree, (long long)(experts / degree),
                       (long long)(numel / experts), KERNEL_CHUNK);
    return ERR_OK;
}
