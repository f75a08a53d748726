/* The memory plan: what each kind holds, and what makes it smaller. */
#include "src/parallel/memory_plan.h"

#include "checkpoint/ckpt.h"
#include "checkpoint/local/ckpt_xor.h"
#include "src/parallel/owner.h"
#include "src/formats/weights.h"
#include "tests/tap.h"

static struct memory_plan plan_of(const struct memory_plan_input *input)
{
    struct memory_plan plan = { 0 };
    tap_ok(memory_plan(input, &plan) == ERR_OK, "a plan");
    return plan;
}

/* Elements that a rank updates at most: an even part of all, on several nodes of each
 * block. */
static int64_t own_most(const struct params *params, int ranks, bool far)
{
    struct owner *owner = NULL;
    enum owner_cut cut = far && ranks > 1 ? OWNER_CUT_JOINED : OWNER_CUT_FLAT;
    tap_ok(owner_create(params, cut, OWNER_LARGEST, ranks, 1, 1, &owner) ==
               ERR_OK,
           "its owners");
    int64_t own = owner->own;
    owner_destroy(owner);
    return own;
}

static void test_kinds(const struct memory_plan_input *base, bool far)
{
    static const struct {
        int ranks, slots, buffers;
    } cases[] = { { 1, 1, 1 }, { 1, 2, 2 }, { 1, 8, 4 }, { 2, 8, 3 },
                  { 8, 8, 1 }, { 3, 3, 1 }, { 3, 9, 3 } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct memory_plan_input input = *base;
        int ranks = cases[i].ranks;
        input.ranks = ranks;
        input.node_ranks = far ? base->node_ranks : 0;
        input.replica.slots = cases[i].slots;
        struct memory_plan plan = plan_of(&input);
        int64_t elements = base->params->elements;
        int64_t own = own_most(base->params, ranks, far);
        size_t whole = (size_t)elements * sizeof(float);
        tap_note("%d ranks, %d slots", ranks, cases[i].slots);
        tap_is_int((int64_t)plan.weights, (int64_t)whole, "weights: all");
        tap_is_int((int64_t)plan.moments, own * 8, "two moments of a part");
        tap_is_int((int64_t)plan.gradients, (int64_t)whole, "one gradient");
        tap_is_int((int64_t)plan.partial_sums,
                   (int64_t)whole * (cases[i].buffers - 1), "partial sums");
        tap_ok(plan.staging >= (size_t)own * 8 &&
                   plan.staging < (size_t)own * 12 + (1 << 20),
               "staging: the part of the state, in pages");
        input.order = 12345;
        tap_is_int((int64_t)(plan_of(&input).total - plan.total), 12345,
                   "the order of samples counts");
        tap_is_int((int64_t)plan.total,
                   (int64_t)(plan.weights + plan.moments + plan.gradients +
                             plan.partial_sums + plan.model.total +
                             plan.staging + plan.parity + plan.data +
                             plan.comm + plan.runtime + plan.reading),
                   "total: the sum of the kinds");
    }
}

/* Two segments of each other member: 1/16 of a shard, at least 1 MiB each, and
 * never more than two shards. */
static void test_parity(const struct memory_plan_input *base)
{
    const size_t mib = (size_t)1 << 20;
    tap_is_int((int64_t)ckpt_xor_bytes(512 * mib, 2, 2), 32 * mib, "a pair");
    tap_is_int((int64_t)ckpt_xor_bytes(512 * mib, 3, 2), 32 * mib, "a three");
    tap_is_int((int64_t)ckpt_xor_bytes(448 * mib, 8, 8), 28 * mib, "an eight");
    tap_is_int((int64_t)ckpt_xor_bytes(112 * mib, 64, 8), 14 * mib,
               "two MiB of each other one");
    tap_is_int((int64_t)ckpt_xor_bytes(1000, 2, 2), 1000, "all in one round");
    tap_is_int((int64_t)ckpt_xor_bytes(512 * mib, 1, 8), 0, "no other node");
    struct memory_plan_input input = *base;
    struct memory_plan without = plan_of(&input);
    input.parity_nodes = 4;
    input.parity_group = 2;
    struct memory_plan with = plan_of(&input);
    tap_ok(with.parity == ckpt_xor_bytes(without.staging, 4, 2) &&
               with.parity > 0 && without.parity == 0 &&
               with.total - with.reading ==
                   without.total - without.reading + with.parity,
           "parity counts");
}

/* A reader at the start counts as far as nothing larger comes later. */
static void test_reading(const struct memory_plan_input *base)
{
    struct memory_plan_input input = *base;
    input.options.samples = 256;
    struct memory_plan plan = plan_of(&input);
    input.reads = true;
    tap_ok(plan.reading == 0 && plan_of(&input).total == plan.total,
           "gradients and activations are more than what reads weights");
    const struct params_tuning tuning = { "", "q_proj", 1 };
    struct params *params = NULL;
    if (base->config->experts > 0 ||
        params_create_tuned(base->config, &tuning, &params) != ERR_OK)
        return;
    input.params = params;
    input.stage = false;
    input.options.frozen = true;
    input.options.lora = (struct lora_options){ 1, 8.0, 0.0, "q_proj" };
    input.options.samples = 1;
    input.options.seq_len = 8;
    struct memory_plan read = plan_of(&input);
    input.reads = false;
    plan = plan_of(&input);
    tap_ok(read.reading > 0 && read.reading < WEIGHTS_READING_BYTES &&
               read.total - read.reading == plan.total - plan.reading,
           "of an adapter they are less: %zu KiB are counted",
           read.reading >> 10);
    input.reads = true;
    input.replica.kept[0] = (struct replica_kept){ "ema", true };
    plan = plan_of(&input);
    /* with their rows in the table of items, and in a checkpoint's file */
    size_t more = plan.total - read.total;
    tap_ok(plan.kept > 0 && plan.reading > 0 && more >= plan.kept &&
               more < plan.kept + plan.kept / 50 +
                          (size_t)params->count * 10 * 1024,
           "what algorithms keep is there then, too");
    params_destroy(params);
}

static void test_model(const struct memory_plan_input *base)
{
    struct model_bytes model;
    struct memory_plan whole = plan_of(base);
    struct memory_plan_input input = *base;
    tap_ok(model_plan(base->config, base->kernels, &base->options, &model) ==
                   ERR_OK &&
               model.total == whole.model.total,
           "the model's part is model_plan()'s");
    input.options.samples *= 2;
    tap_is_close((double)plan_of(&input).model.saved,
                 2.0 * (double)whole.model.saved, 0.01,
                 "twice the microbatch, twice the activations");
    input = *base;
    input.options.memory.packing = PACKING_BF16;
    tap_ok(plan_of(&input).model.saved < whole.model.saved,
           "fewer bits, fewer bytes");
    input = *base;
    for (int i = 0; i < MODEL_LAYERS_MAX; i++)
        input.options.memory.recompute[i] = RECOMPUTE_BLOCK;
    tap_ok(plan_of(&input).model.total < whole.model.total,
           "computed again, not kept");
    input = *base;
    input.stage = false;
    tap_is_int((int64_t)plan_of(&input).staging, 0,
               "synchronous checkpoints: no copy");
}

/* Experts apart are at rest once in a group; chunks need a gradient each. */
static void test_shared(const struct memory_plan_input *base)
{
    struct memory_plan_input input = *base;
    int64_t experts = 0;
    for (int b = 0; b < base->params->block_count; b++)
        if (base->params->blocks[b].kind == PARAM_BLOCK_EXPERTS)
            experts += base->params->blocks[b].elements;
    input.ranks = 4;
    input.replica.strategy = REPLICA_ZERO2;
    struct memory_plan whole = plan_of(&input);
    input.replica.sequence_chunks = 2;
    input.replica.leaves = 2;
    tap_is_int((int64_t)plan_of(&input).gradients, 2 * (int64_t)whole.gradients,
               "2 chunks: 2 gradients of the blocks at work");
    if (experts == 0)
        return;
    input.replica = (struct replica_options){ .strategy = REPLICA_ZERO2,
                                              .slots = 8,
                                              .leaves = 1,
                                              .expert_degree = 4,
                                              .exact = true };
    tap_is_int((int64_t)(whole.weights - plan_of(&input).weights),
               experts * 3 / 4 * (int64_t)sizeof(float),
               "a rank of 4 has a quarter of the experts");
}

/* NCCL's buffers are the device's, between two ranks and more. */
static void test_nccl(const struct memory_plan_input *base)
{
    struct memory_plan_input input = *base;
    struct kernel_memory memory = *base->kernels->memory;
    struct kernels table = *base->kernels;
    int64_t buffers[3]; /* 1, 2 and 64 ranks */
    memory.device = true;
    table.memory = &memory;
    input.kernels = &table;
    input.replica.slots = 64;
    for (int i = 0; i < 3; i++) {
        input.ranks = i == 2 ? 64 : i + 1;
        input.replica.exchange = EXCHANGE_STAGED;
        struct memory_plan staged = plan_of(&input);
        input.replica.exchange = EXCHANGE_AUTO;
        struct memory_plan plan = plan_of(&input);
        buffers[i] = (int64_t)(plan.total - staged.total);
        tap_ok(plan.host == staged.host &&
                   buffers[i] == (int64_t)(plan.comm - staged.comm),
               "NCCL's buffers are on the device alone");
    }
    tap_is_int(buffers[0], 0, "one rank has none");
    tap_is_int(buffers[1], (int64_t)16 * 12 << 20, "one peer on the node");
    setenv("NCCL_MAX_CTAS", "32", 1);
    input.ranks = 2;
    input.replica.exchange = EXCHANGE_STAGED;
    struct memory_plan none = plan_of(&input);
    input.replica.exchange = EXCHANGE_AUTO;
    tap_is_int((long long)(plan_of(&input).total - none.total),
               (int64_t)32 * 12 << 20, "as many channels as a site allows");
    unsetenv("NCCL_MAX_CTAS");
    tap_is_int(buffers[2], (int64_t)(7 * 2 * 12 + 2 * 32) << 20,
               "7 peers on the node, others elsewhere");
    input.kernels = base->kernels;
    input.ranks = 2;
    struct memory_plan plan = plan_of(&input);
    input.replica.exchange = EXCHANGE_STAGED;
    tap_ok(plan.total == plan_of(&input).total, "without a device none");
}

/* On one node ranks see each other's sums in huge pages, elsewhere they get
 * them in messages, of which two rounds are under way. */
static void test_near(const struct memory_plan_input *base)
{
    struct memory_plan_input input = *base;
    input.ranks = 4;
    struct memory_plan far = plan_of(&input);
    input.node_ranks = 0;
    struct memory_plan near = plan_of(&input);
    size_t others = near.gradients / 4 * 3;
    tap_ok(near.comm > others && near.weights == far.weights &&
               near.gradients == far.gradients &&
               near.partial_sums == far.partial_sums,
           "others' sums are mapped: %zu KiB, in messages %zu KiB",
           near.comm >> 10, far.comm >> 10);
    input.ranks = 6;
    input.node_ranks = 3;
    near = plan_of(&input);
    input.uneven = 2;
    for (input.node_ranks = 4; input.node_ranks > 0; input.node_ranks -= 2)
        tap_is_int((int64_t)plan_of(&input).total, (int64_t)near.total,
                   "4 and 2 ranks, seen by the %d: as 3 and 3",
                   input.node_ranks);
}

/* A copy of large tensors is written from where it lies, small ones by way of
 * two buffers. */
static void test_small(void)
{
    const int64_t mib = (int64_t)1 << 18; /* elements */
    struct ckpt_item items[2] = { { .part.end = mib / 2 },
                                  { .part.end = 9 * mib } };
    size_t small = 0;
    items[0].dtype = items[1].dtype = DTYPE_F32;
    tap_ok(ckpt_saver_stage_bytes(items, 2, &small) == (size_t)mib * 38 &&
               small == (size_t)mib * 2,
           "the small one passes buffers");
}

int main(void)
{
    static const char *const presets[] = { "mpt-tiny", "llama-tiny",
                                           "moe-tiny" };
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
        struct model_config config;
        struct params *params = NULL;
        struct memory_plan_input input = {
            .config = &config,
            .options = { .threads = 2, .samples = 4, .seq_len = 64 },
            .ranks = 1,
            .node_ranks = 1,
            .replica = { .strategy = REPLICA_ZERO1,
                         .slots = 8,
                         .leaves = 1,
                         .exact = true },
            .stage = true,
        };
        tap_note("%s", presets[i]);
        if (!tap_ok(model_config_preset(presets[i], &config) == ERR_OK &&
                        params_create(&config, &params) == ERR_OK &&
                        kernels_find("cpu", "generic", &input.kernels) ==
                            ERR_OK,
                    "the model"))
            continue;
        input.params = params;
        test_kinds(&input, false);
        test_kinds(&input, true);
        test_model(&input);
        test_reading(&input);
        test_parity(&input);
        test_shared(&input);
        test_nccl(&input);
        test_near(&input);
        params_destroy(params);
    }
    test_small();
    return tap_done();
}
