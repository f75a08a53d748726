/* Sequences in chunks: losses and gradients against the fp64 reference, the
 * same bits of every chunk on any number of ranks, whatever is computed again
 * or packed, and what a rank needs for it. */

#include "kernels/kernel_profile.h"
#include "src/model/model.h"
#include "src/model/model_impl.h"
#include "tests/played_device.h"
#include "tests/sequence_fixture.h"

static const struct {
    const char *name;
    struct model_config config;
} cases[] = {
    { "learned", { FOUNDRY } },
    { "alibi", { FOUNDRY, .positions = POSITIONS_ALIBI, .clip_qkv = 0.6 } },
    { "llama", { LLAMA } },
    { "qk norm, multi-query, rope",
      { FOUNDRY, .n_kv_heads = 1, .qk_norm = QK_NORM_FULL,
        .positions = POSITIONS_ROPE } },
    { "qwen3", { LLAMA, .head_dim = 24, .qk_norm = QK_NORM_HEAD } },
    { "olmo2, a layer without rope",
      { LLAMA, .norm_place = NORM_AFTER, .qk_norm = QK_NORM_FULL,
        .no_rope_interval = 2 } },
    { "olmo3, windows within a chunk and over one",
      { LLAMA, .norm_place = NORM_AFTER, .qk_norm = QK_NORM_FULL, .window = 3,
        .window_interval = 2, .window_rope_theta = 300,
        .rope_scaling = ROPE_SCALING_LINEAR, .rope_factor = 4 } },
    { "gemma3, windows", { GEMMA3_WINDOWS } },
    { "mpt with dropout", { FOUNDRY, DROPOUTS, .residual_scale = 0.6 } },
    { "dbrx", { DBRX, .router_jitter = 0.1, .balance_weight = 3.0 } },
    { "everything",
      { DBRX, DROPOUTS, .bias = true, .qk_norm = QK_NORM_HEAD,
        .logit_scale = 0.7, .residual_scale = 0.8, .router_jitter = 0.2,
        .balance_weight = 0.5 } },
};
#define CASES (sizeof cases / sizeof cases[0])

/* --- what is computed --- */

static bool close_to(struct leaf_loss got, struct model_reference_loss want)
{
    double loss = fabs(got.cross_entropy - want.cross_entropy);
    double balance = fabs(got.balance - want.balance);
    return loss <= 2e-6 * fmax(1.0, want.cross_entropy) &&
           balance <= 2e-6 * fmax(1.0, want.balance);
}

static void check_result(struct model_fixture *f, const struct expected *want,
                         int chunks, const struct sequence_result *got,
                         const char *name)
{
    double worst = 0.0;
    int used = 0;
    size_t experts = (size_t)(f->config.n_layers * f->config.experts);
    sequence_gradient(f, got, chunks);
    for (int i = 0; i < want->probe_count; i++)
        if (!want->probes[i].useless) {
            worst = fmax(worst, probe_error(f, want->probes[i]));
            used++;
        }
    tap_ok(close_to(sequence_loss(got->train, chunks), want->train) &&
               close_to(sequence_loss(got->eval, chunks), want->eval),
           "%s: losses", name);
    tap_ok(worst <= 2e-5 && 2 * used > want->probe_count,
           "%s: gradients (worst %.2g, %d of %d probes)", name, worst, used,
           want->probe_count);
    tap_ok(memcmp(got->counts, want->counts, experts * sizeof(int64_t)) == 0,
           "%s: choices of the experts", name);
}

static void check_case(struct model_fixture *f, const struct kernels *kernels,
                       const struct expected *want, int chunks,
                       const char *name)
{
    struct model_options options = sequence_options(f, chunks);
    struct sequence_result *one = sequence_run(f, kernels, &options, 1);
    char text[96];
    snprintf(text, sizeof text, "%s, %s%s in %d", kernels->kernel_set, name,
             f->leaf.sequence_ids != NULL ? ", packed" : "", chunks);
    if (!tap_ok(one != NULL, "%s: trains", text))
        return;
    check_result(f, want, chunks, one, text);
    for (int ranks = 2; ranks <= chunks && ranks <= THREAD_GROUP_MAX; ranks++) {
        if (chunks % ranks != 0)
            continue;
        struct sequence_result *more =
            sequence_run(f, kernels, &options, ranks);
        tap_ok(sequence_same(f, chunks, one, more),
               "%s: the same bits on %d ranks", text, ranks);
        if (more != NULL)
            sequence_result_destroy(more);
    }
    options.threads = 3;
    struct sequence_result *threads = sequence_run(f, kernels, &options, 1);
    tap_ok(sequence_same(f, chunks, one, threads),
           "%s: the same bits with 3 threads", text);
    if (threads != NULL)
        sequence_result_destroy(threads);
    sequence_result_destroy(one);
}

static struct model_fixture *fixture_of(struct model_config config,
                                        int64_t samples, int64_t seq_len,
                                        bool packed)
{
    config.max_seq_len = seq_len + 12; /* so that all chunks divide it */
    struct model_fixture *f = fixture_create(config, packed);
    fixture_leaf(f, samples, seq_len, packed);
    return f;
}

static void test_cases(void)
{
    static struct expected want;
    const struct kernels *const *tables = kernels_all();
    static const int chunks_of[] = { 1, 2, 3, 4, 6 };
    for (size_t i = 0; i < CASES; i++)
        for (int which = 0; which < 10; which++) {
            int chunks = chunks_of[which / 2];
            struct model_fixture *f =
                fixture_of(cases[i].config, 2, 12, which % 2 > 0);
            expect(f, chunks, &want);
            for (int k = 0; tables[k] != NULL && (chunks % 3 > 0 || k == 0);
                 k++)
                check_case(f, tables[k], &want, chunks, cases[i].name);
            fixture_destroy(f);
        }
}

/* Where a leaf's numbers are copied before they are used. */
static void test_device(const struct kernels *kernels)
{
    struct played_device device;
    played_device_create(kernels, &device);
    for (size_t i = 0; i < CASES; i++) {
        struct model_fixture *f = fixture_of(cases[i].config, 2, 12, true);
        struct model_options options = sequence_options(f, 4);
        struct sequence_result *one = sequence_run(f, kernels, &options, 1);
        struct sequence_result *two =
            sequence_run(f, &device.kernels, &options, 2);
        tap_ok(sequence_same(f, 4, one, two),
               "%s: the same bits on two devices", cases[i].name);
        if (one != NULL)
            sequence_result_destroy(one);
        if (two != NULL)
            sequence_result_destroy(two);
        fixture_destroy(f);
    }
}

/* Chunks longer than the tiles of attention and than the rows of logits that
 * are made at a time: what they give together is what the whole gives. */
static void test_long(const struct kernels *kernels)
{
    struct model_config config = { FOUNDRY, .positions = POSITIONS_ALIBI,
                                   .n_layers = 1, .n_kv_heads = 2 };
    struct model_fixture *f = fixture_of(config, 1, 780, false);
    struct model_options whole = sequence_options(f, 1),
                         thirds = sequence_options(f, 3);
    struct sequence_result *want = sequence_run(f, kernels, &whole, 1);
    struct sequence_result *got = sequence_run(f, kernels, &thirds, 3);
    double worst = 0.0;
    if (tap_ok(want != NULL && got != NULL, "long chunks: train")) {
        tap_is_close(sequence_loss(got->train, 3).cross_entropy,
                     want->train[0].cross_entropy, 1e-6, "long chunks: loss");
        sequence_gradient(f, got, 3);
        for (int p = 0; p < f->params->count; p++)
            worst =
                fmax(worst, fixture_distance(&f->params->list[p], f->gradient,
                                             want->gradient, 0.1));
        tap_ok(worst < 5e-6, "long chunks: gradients (%.2g)", worst);
        tap_is_str(got->calls, want->calls,
                   "parameters are reached in the same order");
        sequence_result_destroy(want);
        sequence_result_destroy(got);
    }
    fixture_destroy(f);
}

/* --- the work of ranks --- */

static const struct kernels *counted;

static enum err count_forward KERNEL_LIKE(attention_chunk_forward)
{
    sequence_work += kernel_work_attention_chunk_forward(ctx, dtype, chunk, q,
                                                         kv, first, out, lse)
                         .flop;
    return counted->attention_chunk_forward(ctx, dtype, chunk, q, kv, first,
                                            out, lse);
}

static enum err count_backward KERNEL_LIKE(attention_chunk_backward)
{
    sequence_work += kernel_work_attention_chunk_backward(
                         ctx, dtype, chunk, q, kv, out, lse, dout, dq, dkv)
                         .flop;
    return counted->attention_chunk_backward(ctx, dtype, chunk, q, kv, out, lse,
                                             dout, dq, dkv);
}

/* Even where every rank has whole pairs of a first and a last chunk; chunks
 * that are neighbours would have (2 ranks - 1) / ranks times the mean. */
static void test_work(const struct kernels *kernels)
{
    static const int layouts[][2] = { { 2, 1 }, { 4, 2 }, { 6, 3 }, { 4, 1 },
                                      { 3, 3 }, { 4, 4 }, { 6, 2 } };
    struct model_config config = { FOUNDRY };
    struct model_fixture *f = fixture_of(config, 2, 12, false);
    struct kernels counting = *kernels;
    counted = kernels;
    counting.attention_chunk_forward = count_forward;
    counting.attention_chunk_backward = count_backward;
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        int chunks = layouts[i][0], ranks = layouts[i][1];
        struct model_options options = sequence_options(f, chunks);
        struct sequence_result *got =
            sequence_run(f, &counting, &options, ranks);
        double most = 0.0, sum = 0.0;
        for (int r = 0; got != NULL && r < ranks; r++) {
            most = fmax(most, got->work[r]);
            sum += got->work[r];
        }
        bool even = chunks / ranks % 2 == 0;
        tap_ok(got != NULL && sum > 0.0 &&
                   (even ? most * ranks == sum
                         : most * ranks <= sum * (2.0 * chunks - 1) / chunks),
               "%d chunks on %d ranks: most work %.3f of the mean", chunks,
               ranks, most * ranks / sum);
        if (got != NULL)
            sequence_result_destroy(got);
    }
    fixture_destroy(f);
}

/* Each chunk has what is its own: only the third one bears loss, so its
 * queries, and keys and values of those before it, have gradients. */
static void test_chunks_apart(const struct kernels *kernels)
{
    struct model_config config = { FOUNDRY };
    struct model_fixture *f = fixture_of(config, 2, 12, false);
    struct model_options options = sequence_options(f, 4);
    bool zero[4] = { true, true, true, true };
    for (int64_t i = 0; i < f->leaf.samples * f->leaf.seq_len; i++)
        f->labels[i] = i % 12 / 3 == 2 ? 1 : -100;
    struct sequence_result *got = sequence_run(f, kernels, &options, 2);
    if (tap_ok(got != NULL, "loss in one chunk: trains")) {
        for (int64_t i = 0; i < 4 * f->params->elements; i++)
            zero[i / f->params->elements] &= got->gradient[i] == 0.0f;
        tap_ok(got->train[2].cross_entropy > 0.0 &&
                   got->train[0].cross_entropy == 0.0 &&
                   got->train[1].cross_entropy == 0.0 &&
                   got->train[3].cross_entropy == 0.0,
               "loss in one chunk: it alone has a loss");
        tap_ok(!zero[0] && !zero[1] && !zero[2] && zero[3],
               "loss in one chunk: gradients of it and of those before");
        sequence_result_destroy(got);
    }
    fixture_destroy(f);
}

/* --- memory --- */

static const struct {
    const char *recompute;
    enum packing packing;
} memories[] = {
    { "block", PACKING_NONE },
    { "ffn", PACKING_NONE },
    { "attention", PACKING_NONE },
    { "attention: 1; ffn: last-1", PACKING_NONE },
    { "none", PACKING_BF16 },
    { "block: 1", PACKING_INT8 },
    { "attention: last-1; ffn: 1", PACKING_BF16 },
};

static void test_memories(const struct kernels *kernels, const char *name,
                          struct model_config config)
{
    struct model_fixture *f = fixture_of(config, 2, 12, true);
    struct model_options options = sequence_options(f, 4);
    struct sequence_result *plain = sequence_run(f, kernels, &options, 1);
    for (size_t i = 0; i < sizeof memories / sizeof memories[0]; i++) {
        bool packs = memories[i].packing != PACKING_NONE;
        options.memory.packing = memories[i].packing;
        tap_ok(model_memory_parse(memories[i].recompute, f->config.n_layers,
                                  &options.memory) == ERR_OK,
               "\"%s\"", memories[i].recompute);
        struct sequence_result *one = sequence_run(f, kernels, &options, 1);
        tap_ok(plain != NULL && one != NULL &&
                   sequence_same(f, 4, plain, one) == !packs,
               "%s, \"%s\"%s: %s bits", name, memories[i].recompute,
               packs ? ", packed" : "", packs ? "other" : "the same");
        for (int ranks = 2; ranks <= 4; ranks *= 2) {
            struct sequence_result *more =
                sequence_run(f, kernels, &options, ranks);
            tap_ok(sequence_same(f, 4, one, more),
                   "%s, \"%s\"%s: the same bits on %d ranks", name,
                   memories[i].recompute, packs ? ", packed" : "", ranks);
            if (more != NULL)
                sequence_result_destroy(more);
        }
        if (one != NULL)
            sequence_result_destroy(one);
    }
    if (plain != NULL)
        sequence_result_destroy(plain);
    fixture_destroy(f);
}

/* Bytes of each of `ranks` ranks. */
static struct model_bytes bytes_of(const struct model_fixture *f,
                                   const struct kernels *kernels, int ranks)
{
    struct model_options options = sequence_options(f, 4);
    struct model_bytes bytes = { 0 };
    options.own_chunks = 4 / ranks;
    if (model_plan(&f->config, kernels, &options, &bytes) != ERR_OK)
        return (struct model_bytes){ 0 };
    return bytes;
}

static void test_plan(const struct kernels *kernels, const char *name,
                      struct model_config config)
{
    config.max_seq_len = 1024;
    struct model_fixture *f = fixture_create(config, false);
    struct model_bytes one = bytes_of(f, kernels, 1);
    struct model_options options = sequence_options(f, 4);
    struct model *model = NULL;
    options.own_chunks = 4;
    tap_ok(model_create(&f->config, f->params, kernels, &options, &model) ==
                   ERR_OK &&
               one.total == model->arena.capacity &&
               one.total == model->arena.used,
           "%s: the plan is what is allocated", name);
    model_destroy(model);
    for (int ranks = 2; ranks <= 4; ranks *= 2) {
        struct model_bytes more = bytes_of(f, kernels, ranks);
        size_t share = one.saved / (size_t)ranks;
        tap_ok(more.saved >= share && more.saved <= share + share / 50 &&
                   more.workspace < one.workspace && more.total < one.total,
               "%s: %d ranks keep %zu of %zu bytes each, in all %zu of %zu",
               name, ranks, more.saved, one.saved, more.total, one.total);
    }
    fixture_destroy(f);
}

/* --- failures --- */

/* A group of two whose other rank is not there, and whose call number fail_at
 * fails. */
struct alone {
    int calls;
    int fail_at;
};

static enum err alone_call(struct alone *alone)
{
    return ++alone->calls == alone->fail_at
               ? err_set(ERR_COMM, "the exchange that fails")
               : ERR_OK;
}

static enum err alone_start(void *arg, int slot, int to, const void *send,
                            size_t send_bytes, int from, void *recv,
                            size_t recv_bytes)
{
    (void)slot;
    (void)to;
    (void)send;
    (void)send_bytes;
    (void)from;
    if (recv != NULL)
        memset(recv, 0, recv_bytes);
    return alone_call(arg);
}

static enum err alone_wait(void *arg, int slot)
{
    (void)slot;
    return alone_call(arg);
}

static void test_failures(const struct kernels *kernels, int number)
{
    struct model_config config = { FOUNDRY };
    struct model_fixture *f = fixture_of(config, 2, 12, true);
    struct alone alone = { 0 };
    struct group_access group = { &alone, number, 2, alone_start, alone_wait };
    struct model_options options = sequence_options(f, 4);
    struct sequence_rank rank;
    int failed = 0, calls;
    rank_open(&rank, f, kernels, &options, number, 2, NULL);
    rank.options.sequence = &group;
    rank_main(&rank);
    calls = alone.calls;
    tap_ok(rank.fine && calls > 0, "rank %d: %d calls of a leaf", number,
           calls);
    for (int at = 1; at <= calls; at++) {
        alone = (struct alone){ .fail_at = at };
        rank.call_count = 0;
        rank_main(&rank);
        failed += !rank.fine && alone.calls == at &&
                  strcmp(rank.text, "the exchange that fails") == 0;
    }
    tap_is_int(failed, calls, "rank %d: each that fails ends the leaf", number);
    free(rank.gradient);
    fixture_destroy(f);
}

int main(void)
{
    const struct kernels *const *tables = kernels_all();
    test_cases();
    test_device(tables[0]);
    for (int k = 0; tables[k] != NULL; k++) {
        tap_note("%s", tables[k]->kernel_set);
        test_long(tables[k]);
        test_work(tables[k]);
        test_chunks_apart(tables[k]);
        for (size_t i = 0; i < CASES; i++)
            test_memories(tables[k], cases[i].name, cases[i].config);
    }
    for (size_t i = 0; i < CASES; i++)
        test_plan(tables[0], cases[i].name, cases[i].config);
    for (int number = 0; number < 2; number++)
        test_failures(tables[0], number);
    return tap_done();
}
