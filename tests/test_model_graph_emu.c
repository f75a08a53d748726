/* Leaves as graphs on the emulated device (cuda_emulator_memory.h): the bits of
 * leaves that are enqueued op by op, whatever comes in between; how many are
 * kept and launched; and what happens where nothing can be kept. */
#include "src/base/log.h"
#include "tests/graph_fixture.h"

#define SMALL .n_layers = 1, .d_model = 16, .n_heads = 2, .ffn_width = 16
#define FEW 4 /* leaves, where that will do */
#define MOE                                                                    \
    LLAMA, .experts = 4, .experts_top_k = 2, .router_normalize = 1.0,          \
           .balance_weight = 0.5

/* --- the same bits --- */

static void test_bits(const struct kernels *kernels, const char *name,
                      struct model_config config, enum dtype dtype)
{
    struct device d;
    struct results off, on;
    int kinds = 0, kept = 0, launched = 0;
    bool experts = config.experts > 0;
    struct model_fixture *f = fixture_create(config, true);
    device_open(&d, f, kernels, dtype);
    for (int i = 0; i < STEPS; i++) {
        int before = 0;
        for (int j = 0; j < i; j++)
            before += same_step(&script[i], &script[j], experts);
        kinds += before == 0;
        kept += before == 1;
        launched += before > 0;
    }
    bool fine = run(&d, false, STEPS, &off);
    tap_ok(fine && off.counts.captures == 0 && off.counts.launches == 0,
           "%s: op by op where graphs are not wanted", name);
    fine = fine && run(&d, true, STEPS, &on);
    tap_ok(fine && same_results(&d, &off, &on), "%s: the same bits", name);
    tap_ok(fine && on.counts.captures == kept && on.counts.launches == launched,
           "%s: %d kinds, %lld kept, %lld of %d leaves launched (want %d, %d)",
           name, kinds, (long long)on.counts.captures,
           (long long)on.counts.launches, STEPS, kept, launched);
    tap_is_int(on.launches, launched, "%s: the model knows", name);
    tap_is_int(on.calls * STEPS, off.calls * (kinds + kept),
               "%s: calls are made for the first leaf and the kept one", name);
    tap_is_int(on.counts.waits, off.counts.waits, "%s: no wait more", name);
    tap_ok(on.counts.enqueued < off.counts.enqueued,
           "%s: the host puts %lld things on the stream, not %lld", name,
           (long long)on.counts.enqueued, (long long)off.counts.enqueued);
    results_close(&off);
    results_close(&on);
    device_close(&d);
    fixture_destroy(f);
}

/* --- what is not kept --- */

/* op_by_op: what is changed leaves nothing to keep. */
static void check_plain(struct device *d, const char *name)
{
    struct results off, on;
    bool fine = run(d, false, FEW, &off) && run(d, true, FEW, &on);
    tap_ok(fine && same_results(d, &off, &on) && on.calls == off.calls &&
               on.counts.launches == 0 && on.launches == 0,
           "%s: op by op", name);
    results_close(&off);
    results_close(&on);
}

static void test_plain(const struct kernels *kernels)
{
    static const struct {
        const char *name;
        struct model_config config;
    } cases[] = {
        { "dropout of embeddings", { SMALL, .dropout_embedding = 0.1 } },
        { "dropout of attention", { SMALL, .dropout_attention = 0.1 } },
        { "dropout of branches", { SMALL, .dropout_residual = 0.1 } },
        { "jitter", { SMALL, MOE, .router_jitter = 0.1 } },
    };
    struct device d;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct model_fixture *f = fixture_create(cases[i].config, true);
        device_open(&d, f, kernels, DTYPE_F32);
        check_plain(&d, cases[i].name);
        device_close(&d);
        fixture_destroy(f);
    }
    struct model_fixture *f =
        fixture_create((struct model_config){ SMALL }, true);
    device_open(&d, f, kernels, DTYPE_F32);
    d.memory.capture_begin = NULL;
    check_plain(&d, "a table without graphs");
    device_close(&d);
    fixture_destroy(f);
}

/* --- failures --- */

static int begun;
static const struct kernels *whole;
static bool out_of_memory;

static enum err count_begin(void *stream)
{
    begun++;
    return whole->memory->capture_begin(stream);
}

static enum err refuse_begin(void *stream)
{
    (void)stream;
    begun++;
    return err_set(ERR_UNSUPPORTED, "it keeps nothing");
}

static enum err refuse_end(void *stream, void **graph)
{
    enum err rc = whole->memory->capture_end(stream, graph);
    whole->memory->graph_destroy(*graph);
    *graph = NULL;
    return rc == ERR_OK ? err_set(ERR_UNSUPPORTED, "it keeps nothing") : rc;
}

/* An op that needs the host. */
static enum err waiting_sum KERNEL_LIKE(sum)
{
    enum err rc = whole->memory->wait(ctx->stream);
    return rc == ERR_OK ? whole->sum(ctx, n, x, out) : rc;
}

static enum err failing_sum KERNEL_LIKE(sum)
{
    return out_of_memory ? err_set(ERR_MEMORY, "an op without memory")
                         : whole->sum(ctx, n, x, out);
}

static void check_failure(struct device *d, const struct results *want,
                          const char *name)
{
    struct results got;
    begun = 0;
    bool fine = run(d, true, FEW, &got);
    tap_ok(fine && same_results(d, want, &got) && got.counts.launches == 0 &&
               begun == 1,
           "%s: tried once, and op by op from then on", name);
    results_close(&got);
}

/* The error of a leaf itself is the leaf's, with graphs as without. */
static void test_error(struct device *d)
{
    enum err rc = ERR_OK;
    struct model *model = NULL;
    d->kernels.sum = failing_sum;
    out_of_memory = false;
    TRY_OUT(model_open(d, true, &model));
    TRY_OUT(train_one(d, model, 0, &script[0]));
    out_of_memory = true;
    rc = train_one(d, model, 1, &script[1]);
    tap_ok(rc == ERR_MEMORY && strcmp(err_text(), "an op without memory") == 0,
           "an op that fails fails the leaf: %s", err_text());
    out_of_memory = false;
    TRY_OUT(train_one(d, model, 2, &script[2]));
out:
    tap_ok(rc == ERR_OK, "and the next one is trained");
    model_destroy(model);
    d->kernels.sum = whole->sum;
}

static void test_failures(const struct kernels *kernels)
{
    struct device d;
    struct results want, got;
    struct model_fixture *f =
        fixture_create((struct model_config){ SMALL }, true);
    whole = kernels;
    device_open(&d, f, kernels, DTYPE_F32);
    bool fine = run(&d, false, FEW, &want);
    tap_ok(fine, "leaves to compare with");
    d.memory.capture_begin = refuse_begin;
    check_failure(&d, &want, "nothing can be begun");
    d.memory.capture_begin = count_begin;
    d.memory.capture_end = refuse_end;
    check_failure(&d, &want, "nothing can be ended");
    d.memory.capture_end = kernels->memory->capture_end;
    d.kernels.sum = waiting_sum;
    check_failure(&d, &want, "an op waits");
    d.kernels.sum = kernels->sum;
    /* within the second leaf, whose calls are then made once more */
    f->fail_at = want.calls / FEW + 9;
    check_failure(&d, &want, "a call of the access fails");
    f->fail_at = 0;
    begun = 0;
    fine = run(&d, true, FEW, &got);
    tap_ok(fine && begun == 1 && got.counts.captures == 1 &&
               same_results(&d, &want, &got),
           "and all is well without these");
    results_close(&got);
    test_error(&d);
    results_close(&want);
    device_close(&d);
    fixture_destroy(f);
}

/* --- a limit, and forgetting --- */

#define KINDS (MODEL_GRAPHS_MAX + 3)

static void test_limit(const struct kernels *kernels)
{
    enum err rc = ERR_OK;
    struct model *model = NULL;
    struct device d;
    struct model_fixture *f =
        fixture_create((struct model_config){ SMALL }, true);
    struct step step = { 1, 2, 0, false, 0 };
    struct cuda_emulator_memory_counts before = cuda_emulator_memory_counts();
    device_open(&d, f, kernels, DTYPE_F32);
    TRY_OUT(model_open(&d, true, &model));
    for (int turn = 0; turn < 2; turn++)
        for (int i = 0; i < KINDS; i++) {
            step.fixed = i;
            TRY_OUT(train_one(&d, model, i, &step));
        }
    tap_is_int(counts_since(before).captures, MODEL_GRAPHS_MAX,
               "so many kinds and no more are kept");
    step.fixed = 0;
    TRY_OUT(train_one(&d, model, 0, &step));
    tap_is_int(model_graph_launches(model), MODEL_GRAPHS_MAX + 1,
               "and they are launched");
    before = cuda_emulator_memory_counts();
    TRY_OUT(model_graph_forget(model));
    TRY_OUT(train_one(&d, model, 0, &step));
    tap_ok(counts_since(before).launches == 0 &&
               counts_since(before).captures == 0,
           "after forgetting a kind is new");
    TRY_OUT(train_one(&d, model, 0, &step));
    tap_ok(counts_since(before).launches == 1 &&
               counts_since(before).captures == 1,
           "and kept again");
out:
    tap_ok(rc == ERR_OK, "nothing failed");
    model_destroy(model);
    device_close(&d);
    fixture_destroy(f);
}

/* One where nothing is fixed, and the processor, which has no graphs. */
static void test_others(const struct kernels *kernels)
{
    struct model_fixture *f =
        fixture_create((struct model_config){ SMALL }, true);
    struct model_options options = fixture_options(f, 1);
    struct leaf_loss loss[2];
    struct device d;
    struct model *model = NULL;
    enum err rc = ERR_OK;
    struct cuda_emulator_memory_counts before = cuda_emulator_memory_counts();
    device_open(&d, f, kernels, DTYPE_F32);
    struct param_access access = device_access(&d);
    TRY_OUT(model_open(&d, true, &model));
    for (int i = 0; i < 3; i++) {
        memset(f->done, 0, sizeof f->done);
        TRY_OUT(model_train_leaf(model, &access, &f->leaf, d.loss));
    }
out:
    tap_ok(rc == ERR_OK && counts_since(before).captures == 0 &&
               model_graph_launches(model) == 0,
           "an access that exchanges is called for every leaf");
    model_destroy(model);
    device_close(&d);
    options.graphs = true;
    bool fine = fixture_run(f, kernels_all()[0], &options, &loss[0]);
    options.graphs = false;
    fine = fine && fixture_run(f, kernels_all()[0], &options, &loss[1]);
    tap_ok(fine && fixture_same_loss(loss[0], loss[1]),
           "the processor does as before");
    fixture_destroy(f);
}

int main(void)
{
    const struct kernels *kernels = NULL;
    const struct model_config mpt = { .d_model = 16,
                                      .bias = true,
                                      .tied = true };
    const struct model_config alibi = { SMALL, .positions = POSITIONS_ALIBI };
    const struct model_config llama = { .d_model = 16, .n_heads = 4, LLAMA };
    const struct model_config moe = { .n_layers = 1, .d_model = 16, MOE };
    log_init("test", 0, LOG_ERROR);
    if (kernels_find("cuda", "emulated", &kernels) != ERR_OK) {
        tap_skip("no emulated device: %s", err_text());
        return tap_done();
    }
    test_bits(kernels, "mpt", mpt, DTYPE_F32);
    test_bits(kernels, "mpt with alibi in bf16", alibi, DTYPE_BF16);
    test_bits(kernels, "llama", llama, DTYPE_F32);
    test_bits(kernels, "moe", moe, DTYPE_F32);
    test_bits(kernels, "moe in bf16", moe, DTYPE_BF16);
    test_plain(kernels);
    test_failures(kernels);
    test_limit(kernels);
    test_others(kernels);
    return tap_done();
}
