/* Whose attention it is, without a GPU: what a fake library is told, when it is
 * chosen, in which parts, choices as text. */
#include <stddef.h>

#include "kernels/cuda/libraries/cuda_attention_choice.h"
#include "kernels/cuda/libraries/cuda_dnn_attention.h"
#include "kernels/cuda/libraries/cuda_fallback.h"
#include "tests/cuda_dnn_fake.h"
#include "tests/tap.h"

#define MEMORY ((size_t)1 << 20)

static int own_runs;
static double own_us, dnn_us; /* what the clock shows */

static enum err own_forward KERNEL_LIKE(attention_forward)
{
    (void)ctx;
    (void)dtype;
    (void)shape;
    (void)qkv;
    (void)out;
    (void)lse;
    own_runs++;
    return ERR_OK;
}

static enum err own_backward KERNEL_LIKE(attention_backward)
{
    (void)dout;
    (void)dqkv;
    return own_forward(ctx, dtype, shape, qkv, (void *)(uintptr_t)out,
                       (float *)(uintptr_t)lse);
}

static enum err clock_fake(void *stream, enum err (*run)(void *),
                           void *argument, double *us)
{
    int before = own_runs;
    enum err rc = run(argument);
    (void)stream;
    *us = own_runs > before ? own_us : dnn_us;
    return rc;
}

static const struct cuda_attention_own own = { own_forward, own_backward,
                                               clock_fake };

static char memory[MEMORY] __attribute__((aligned(256)));
static char scratch[2 << 20] __attribute__((aligned(256)));
static const struct kernel_ctx ctx = { .threads = 1,
                                       .stream = memory,
                                       .scratch = scratch,
                                       .scratch_bytes = sizeof scratch };
static const float slopes[64];

static const struct attention plain = { .batch = 2,
                                        .seq = 16,
                                        .heads = 4,
                                        .kv_heads = 2,
                                        .head_dim = 64,
                                        .scale = 0.125f };

static struct cuda_attention_choice *choice_create(void)
{
    struct cuda_attention_choice *choice = NULL;
    fake_dnn =
        (struct fake_dnn){ .engines = 3, .workspace = 512, .version = 9 };
    own_runs = 0;
    if (cuda_attention_choice_create(&fake_dnn_library, &own, &choice) !=
        ERR_OK)
        abort();
    return choice;
}

static enum err forward(struct cuda_attention_choice *choice, enum dtype dtype,
                        const struct attention *shape)
{
    return cuda_attention_choice_forward(choice, &ctx, dtype, shape, memory,
                                         memory + 64, (float *)scratch);
}

static enum err backward(struct cuda_attention_choice *choice,
                         const struct attention *shape)
{
    return cuda_attention_choice_backward(choice, &ctx, DTYPE_BF16, shape,
                                          memory, memory + 64, (float *)scratch,
                                          memory + 128, memory + 192);
}

/* Backward, and again after a measurement which cuDNN wins. */
static bool takes_dnn_backward(struct cuda_attention_choice *choice,
                               const struct kernel_ctx *roomy,
                               const struct attention *shape)
{
    bool good = true;
    own_us = 2;
    dnn_us = 1;
    for (int i = 0; i < 2 && good; i++) {
        own_runs = fake_dnn.runs = 0;
        good = cuda_attention_choice_backward(choice, roomy, DTYPE_BF16, shape,
                                              memory, memory, (float *)scratch,
                                              memory, memory) == ERR_OK &&
               (i > 0 || cuda_attention_choice_measure(choice, roomy, memory,
                                                       SIZE_MAX / 2) == ERR_OK);
    }
    return good;
}

static const void *given(int64_t id)
{
    for (int64_t i = 0; i < fake_dnn.count; i++)
        if (fake_dnn.ids[i] == id)
            return fake_dnn.pointers[i];
    return NULL;
}

static ptrdiff_t past(const void *pointer, const void *base)
{
    return (ptrdiff_t)((uintptr_t)pointer - (uintptr_t)base);
}

/* The own kernels until something was measured; then what was faster. */
static void check_measured(void)
{
    struct cuda_attention_choice *choice = choice_create();
    tap_ok(forward(choice, DTYPE_BF16, &plain) == ERR_OK &&
               backward(choice, &plain) == ERR_OK && own_runs == 2 &&
               fake_dnn.made == 0,
           "at first attention is the own one");
    own_us = 2;
    dnn_us = 1;
    tap_ok(cuda_attention_choice_measure(choice, &ctx, memory, MEMORY) ==
               ERR_OK,
           "both are measured");
    own_runs = fake_dnn.runs = 0;
    tap_ok(forward(choice, DTYPE_BF16, &plain) == ERR_OK && own_runs == 0 &&
               fake_dnn.runs == 1,
           "what was faster runs");
    tap_ok(given(1) == memory && given(2) == memory + 2 * 4 * 64 &&
               given(3) == memory + 2 * 6 * 64 && given(4) == memory + 64,
           "keys and values lie behind the queries");
    tap_ok(fake_dnn.stream == ctx.stream &&
               fake_dnn.used_workspace == (void *)scratch,
           "on the stream, in the scratch");
    tap_ok(backward(choice, &plain) == ERR_OK && own_runs == 0 &&
               fake_dnn.runs == 2 &&
               fake_dnn.used_workspace == (void *)(scratch + 512),
           "backward's sums come before the workspace");
    own_us = 0.5;
    tap_ok(
        cuda_attention_choice_measure(choice, &ctx, memory, MEMORY) == ERR_OK &&
            forward(choice, DTYPE_BF16, &plain) == ERR_OK && fake_dnn.runs == 3,
        "once measured, a choice stays");
    fake_dnn.run_status = CUDNN_STATUS_EXECUTION_FAILED;
    tap_ok(forward(choice, DTYPE_BF16, &plain) == ERR_INTERNAL &&
               strstr(err_text(), "last words") != NULL,
           "a failure is told: %s", err_text());
    cuda_attention_choice_destroy(choice);
    tap_is_int(fake_dnn.alive, 0, "no descriptor is left");
}

static size_t planned_for(const struct attention *s)
{
    const struct kernel_limits limits = { .batch = s->batch,
                                          .seq = s->seq,
                                          .heads = s->heads,
                                          .kv_heads = s->kv_heads,
                                          .head_dim = s->head_dim };
    return cuda_dnn_attention_cut_scratch(&limits);
}

/* Long samples, as in production, with the scratch that is planned for them,
 * where nobody needs hardware.fallback: the fewest parts that fit. cuDNN's
 * workspace is 2 bytes for each score of a part, and half a MiB. */
static const struct {
    const char *what;
    int64_t batch, seq, heads, kv_heads, head_dim;
    bool alibi;
    int64_t sequences, part; /* 0: refused */
} long_ones[] = {
    { "mpt-7b", 4, 2048, 32, 32, 128, true, 4, 32 },
    { "mpt-1b", 1, 4096, 16, 16, 128, true, 1, 16 },
    { "mpt-7b", 2, 4096, 32, 32, 128, true, 1, 32 },
    { "llama3-8b", 1, 4096, 32, 8, 128, false, 1, 32 },
    { "mpt-125m", 2, 8192, 12, 12, 64, true, 1, 6 },
    { "mpt-1b", 1, 8192, 16, 16, 128, true, 1, 8 },
    { "70b", 2, 4096, 64, 8, 128, false, 1, 32 },
    { "llama3-8b", 2, 8192, 32, 8, 128, false, 1, 8 },
    { "llama3-8b", 1, 16384, 32, 8, 128, false, 1, 4 },
    { "few heads of keys", 1, 8192, 14, 2, 64, false, 1, 7 },
    { "5 of 10 slopes", 1, 8192, 10, 10, 128, true, 1, 5 },
    { "6 sequences of which 3 fit", 6, 4096, 10, 5, 64, false, 3, 10 },
    { "4 sequences of which 3 fit", 4, 4096, 10, 5, 64, false, 2, 10 },
    { "one head of keys", 1, 8192, 32, 1, 128, false, 0, 0 },
    { "more slices than heads of keys", 1, 16384, 64, 4, 128, false, 0, 0 },
    { "one head that is too long", 2, 65536, 8, 8, 128, false, 0, 0 },
};

/* The last part is where it lies; nothing is touched. */
static bool is_last_part(const struct attention *s, int64_t sequences,
                         int64_t part)
{
    int64_t at = s->heads - part, kv_heads = s->kv_heads;
    int64_t kv_at = kv_heads - kv_heads / (s->heads / part);
    int64_t rows = (s->batch - sequences) * s->seq, d = s->head_dim;
    int64_t qkv = rows * (s->heads + 2 * kv_heads) * d;
    return past(given(1), memory) == 2 * (qkv + at * d) &&
           past(given(2), memory) == 2 * (qkv + (s->heads + kv_at) * d) &&
           past(given(3), memory) ==
               2 * (qkv + (s->heads + kv_heads + kv_at) * d) &&
           past(given(4), memory) == 2 * (rows * s->heads + at) * d &&
           past(given(5), scratch) == 4 * (rows * s->heads + at * s->seq) &&
           past(given(8), memory) == 2 * (qkv + (s->heads + kv_at) * d) &&
           (s->alibi_slopes == NULL || past(given(11), slopes) == 4 * at);
}

static void check_long(size_t i)
{
    struct cuda_attention_choice *choice = choice_create();
    const struct attention shape = {
        .batch = long_ones[i].batch,
        .seq = long_ones[i].seq,
        .heads = long_ones[i].heads,
        .kv_heads = long_ones[i].kv_heads,
        .head_dim = long_ones[i].head_dim,
        .scale = 0.125f,
        .alibi_slopes = long_ones[i].alibi ? slopes : NULL,
    };
    int64_t sequences = long_ones[i].sequences, part = long_ones[i].part;
    int64_t heads = shape.heads, times = sequences * part * shape.seq;
    size_t planned = planned_for(&shape);
    struct kernel_ctx roomy = ctx;
    roomy.scratch_bytes = planned > 0 ? planned : (size_t)32 << 20;
    fake_dnn.workspace = 0;
    fake_dnn.scores[1] = 1;
    cuda_fallback_allow(false);
    bool good = takes_dnn_backward(choice, &roomy, &shape);
    cuda_fallback_allow(true);
    if (part == 0)
        tap_ok(!good && own_runs == 1 && planned == 0 &&
                   strstr(err_text(), "data.seq_len") != NULL &&
                   strstr(err_text(), "hardware.fallback") != NULL,
               "%s, %lld tokens: refused: %s", long_ones[i].what,
               (long long)shape.seq, err_text());
    else {
        size_t used = (size_t)(times * (4 + 2 * shape.seq)) + (1 << 19);
        tap_ok(good && own_runs == 0 &&
                   fake_dnn.runs == shape.batch / sequences * (heads / part) &&
                   planned <= CUDA_DNN_ATTENTION_SCRATCH_MAX &&
                   used <= planned && (double)used > 0.85 * (double)planned,
               "%s, %lld x %lld tokens: %d runs, %zu of %zu MiB: %s",
               long_ones[i].what, (long long)shape.batch, (long long)shape.seq,
               fake_dnn.runs, used >> 20, planned >> 20,
               good ? "good" : err_text());
        tap_ok(is_last_part(&shape, sequences, part), "... each where it lies");
    }
    cuda_attention_choice_destroy(choice);
    tap_is_int(fake_dnn.alive, 0, "... and no descriptor is left");
}

/* What a plan turns out to need decides, in either direction: shorter samples of
 * a larger batch, an engine that takes more than is expected. */
static void check_needs(void)
{
    const struct attention most = { .batch = 8,
                                    .seq = 2048,
                                    .heads = 32,
                                    .kv_heads = 32,
                                    .head_dim = 128,
                                    .scale = 0.125f };
    struct attention shorter = most;
    struct kernel_ctx roomy = ctx;
    struct cuda_attention_choice *choice = choice_create();
    char *text = NULL;
    shorter.seq = 1900;
    roomy.scratch_bytes = planned_for(&most);
    cuda_fallback_allow(false);
    fake_dnn.workspace = 0;
    fake_dnn.scores[1] = 1;
    tap_ok(takes_dnn_backward(choice, &roomy, &shorter) && fake_dnn.runs == 2,
           "shorter samples go through the scratch of longer ones");
    fake_dnn.scores[0] = 1;
    fake_dnn.scores[1] = 5;
    own_us = 2;
    bool good =
        cuda_attention_choice_forward(choice, &roomy, DTYPE_BF16, &most, memory,
                                      memory, (float *)scratch) == ERR_OK &&
        takes_dnn_backward(choice, &roomy, &most) &&
        cuda_attention_choice_write(choice, &text) == ERR_OK;
    tap_ok(good &&
               strstr(text, "forward 8 2048 32 32 128 plain 4 32 ") != NULL &&
               strstr(text, "backward 8 2048 32 32 128 plain 1 16 ") != NULL,
           "an engine that takes more has smaller parts: %s",
           good ? text : err_text());
    cuda_fallback_allow(true);
    free(text);
    cuda_attention_choice_destroy(choice);
    tap_is_int(fake_dnn.alive, 0, "... and no descriptor is left");
}

static void check_kept(const char *what, const struct attention *shape,
                       enum dtype dtype, double own_time, int engines,
                       int64_t workspace, size_t bytes)
{
    struct cuda_attention_choice *choice = choice_create();
    fake_dnn.engines = engines;
    fake_dnn.workspace = workspace;
    own_us = own_time;
    dnn_us = 1;
    bool good =
        forward(choice, dtype, shape) == ERR_OK &&
        cuda_attention_choice_measure(choice, &ctx, memory, bytes) == ERR_OK;
    own_runs = 0;
    good = good && forward(choice, dtype, shape) == ERR_OK && own_runs == 1;
    tap_ok(good, "the own one stays: %s", what);
    cuda_attention_choice_destroy(choice);
    tap_is_int(fake_dnn.alive, 0, "... and no descriptor");
}

static void check_own(void)
{
    struct attention dropped = plain, documents = plain, wide = plain;
    int32_t ids[32] = { 0 };
    dropped.dropout = 0.1f;
    documents.sequence_ids = ids;
    wide.head_dim = 256;
    check_kept("faster", &plain, DTYPE_BF16, 0.5, 3, 512, MEMORY);
    check_kept("no engine", &plain, DTYPE_BF16, 2, 1, 512, MEMORY);
    check_kept("too little scratch", &plain, DTYPE_BF16, 2, 3, 4 << 20, MEMORY);
    check_kept("too little memory", &plain, DTYPE_BF16, 2, 3, 512, 4096);
    check_kept("fp32", &plain, DTYPE_F32, 2, 3, 512, MEMORY);
    check_kept("dropout", &dropped, DTYPE_BF16, 2, 3, 512, MEMORY);
    check_kept("documents", &documents, DTYPE_BF16, 2, 3, 512, MEMORY);
    check_kept("wide heads", &wide, DTYPE_BF16, 2, 3, 512, MEMORY);
}

/* Every byte of a shape that is of no member that cuDNN is told, nor a gap:
 * cuDNN is not asked for a shape that sets it. */
static void check_untold(void)
{
    static const struct {
        size_t from, to;
    } told[] = {
        { 0, offsetof(struct attention, sequence_ids) },
        { offsetof(struct attention, dropout) + sizeof plain.dropout,
          sizeof plain },
    };
    int refused = 0, bytes = 0;
    for (size_t b = 0; b < sizeof plain; b++) {
        struct attention shape = plain;
        bool is_told = false;
        for (size_t i = 0; i < sizeof told / sizeof told[0]; i++)
            is_told |= b >= told[i].from && b < told[i].to;
        if (is_told)
            continue;
        memset((char *)&shape + b, 1, 1);
        bytes++;
        refused += !cuda_dnn_attention_fits(DTYPE_BF16, &shape);
    }
    tap_ok(bytes >= 12 && cuda_dnn_attention_fits(DTYPE_BF16, &plain),
           "%d bytes of a shape are of members that cuDNN is not told", bytes);
    tap_is_int(refused, bytes, "... and whoever sets one is refused");
}

/* Where cuDNN should be and cannot: an error, unless that is allowed; a shape
 * that nobody measured ends no run. */
static void check_refused(const char *what, int engines, int64_t workspace,
                          size_t bytes, const char *text)
{
    struct cuda_attention_choice *choice = choice_create();
    fake_dnn.engines = engines;
    fake_dnn.workspace = workspace;
    own_us = 2;
    dnn_us = 1;
    bool good = forward(choice, DTYPE_BF16, &plain) == ERR_OK;
    cuda_fallback_allow(false);
    enum err rc = cuda_attention_choice_measure(choice, &ctx, memory, bytes);
    tap_ok(good && rc == ERR_UNSUPPORTED && strstr(err_text(), text) != NULL &&
               strstr(err_text(), "hardware.fallback") != NULL,
           "%s: %s", what, err_text());
    cuda_fallback_allow(true);
    int before = cuda_fallback_count();
    good =
        cuda_attention_choice_measure(choice, &ctx, memory, bytes) == ERR_OK &&
        cuda_attention_choice_measure(choice, &ctx, memory, bytes) == ERR_OK;
    tap_ok(good && cuda_fallback_count() == before + 1,
           "... or said once, where it is allowed");
    cuda_attention_choice_destroy(choice);
}

static void check_fallback(void)
{
    struct cuda_attention_choice *choice = choice_create();
    struct cuda_attention_count count;
    struct attention documents = plain;
    int32_t ids[32] = { 0 };
    check_refused("no engine", 1, 512, MEMORY, "engines makes a plan");
    check_refused("little scratch", 3, 4 << 20, MEMORY, "of scratch");
    check_refused("little memory", 3, 512, 4096, "does not fit");
    fake_dnn.engines = 3;
    fake_dnn.version = 9;
    cuda_fallback_allow(false);
    bool good =
        cuda_attention_choice_read(
            choice, &ctx,
            "cudnn 9\ncudnn forward 2 16 4 2 64 plain 2 4 any\n") == ERR_OK &&
        forward(choice, DTYPE_BF16, &plain) == ERR_OK;
    cuda_attention_choice_count(choice, &count);
    tap_ok(good && count.shapes == 1 && count.dnn == 1 && count.unfit == NULL,
           "attention is all cuDNN's");
    documents.sequence_ids = ids;
    good = forward(choice, DTYPE_BF16, &documents) == ERR_OK &&
           backward(choice, &plain) == ERR_OK;
    cuda_attention_choice_count(choice, &count);
    tap_ok(good && count.shapes == 2 && count.dnn == 1 &&
               strcmp(count.unfit, "samples of several documents") == 0,
           "what cuDNN is not asked for, or was not measured, is counted");
    cuda_fallback_allow(true);
    cuda_attention_choice_destroy(choice);
}

#define ENGINE "101:3=1:7=1"

static void check_damaged(struct cuda_attention_choice *choice)
{
    static const char *const damaged[] = {
        "",
        "cudnn\n",
        "cudnn 9",
        "cudnn 9\nmine forward 2 16 4 2 64 plain\n",
        "cudnn 9\ncudnn sideways 2 16 4 2 64 plain 2 4 " ENGINE "\n",
        "cudnn 9\ncudnn forward 2 16 4 2 64\n",
        "cudnn 9\nown forward 2 16 4 2 64 plain",
        "cudnn 9\nown forward 2 -16 4 2 64 plain\n",
        "cudnn 9\nown forward 2 16 4 2 64 plain more\n",
        "cudnn 9\nown forward 2 16 4 2 64 plain 2 4 " ENGINE "\n",
        "cudnn 9\ncudnn forward 2 16 4 2 64 plain 2 4\n",
        "cudnn 9\ncudnn forward 2 16 4 2 64 plain 2 4 " ENGINE " more\n",
        "cudnn 9\ncudnn forward 2 16 4 2 64 plain 3 4 " ENGINE "\n",
        "cudnn 9\ncudnn forward 2 16 4 2 64 plain 2 2 " ENGINE "\n",
        "cudnn 9\ncudnn forward 2 16 4 2 64 plain 1 1 " ENGINE "\n",
        "cudnn 9\ncudnn forward 2 16 4 2 256 plain 2 4 " ENGINE "\n",
        "cudnn 9\ncudnn backward 1 16 4 3 64 plain 1 4 " ENGINE "\n",
        "cudnn 9\ncudnn backward 1 9999999999 4 2 64 plain 1 4 " ENGINE "\n",
        "cudnn 9\ncudnn backward 1 16 4 2 64 plain 2 more\n"
    };
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++)
        tap_ok(cuda_attention_choice_read(choice, &ctx, damaged[i]) == ERR_DATA,
               "damaged text %zu: %s", i, err_text());
}

/* Sound, and not to be had here: told at once, and nothing is changed. */
static void check_elsewhere(struct cuda_attention_choice *choice,
                            const struct kernel_ctx *where, const char *text,
                            const char *why)
{
    char *before = NULL, *after = NULL;
    bool good =
        cuda_attention_choice_write(choice, &before) == ERR_OK &&
        cuda_attention_choice_read(choice, where, text) == ERR_UNSUPPORTED &&
        strstr(err_text(), why) != NULL &&
        cuda_attention_choice_write(choice, &after) == ERR_OK;
    tap_ok(good && strcmp(before, after) == 0, "%s: %s", why, err_text());
    free(before);
    free(after);
}

static void check_text(void)
{
    struct cuda_attention_choice *one = choice_create(), *two = NULL;
    struct attention biased = plain;
    struct kernel_ctx narrow = ctx;
    char *text = NULL, *again = NULL;
    fake_dnn.first = 100;
    biased.alibi_slopes = slopes;
    narrow.scratch_bytes = 600;
    own_us = 2;
    dnn_us = 1;
    bool good =
        forward(one, DTYPE_BF16, &plain) == ERR_OK &&
        forward(one, DTYPE_BF16, &biased) == ERR_OK &&
        backward(one, &plain) == ERR_OK &&
        cuda_attention_choice_measure(one, &ctx, memory, MEMORY) == ERR_OK &&
        cuda_attention_choice_write(one, &text) == ERR_OK;
    tap_ok(good, "choices become text");
    tap_is_str(text,
               "cudnn 9\ncudnn forward 2 16 4 2 64 plain 2 4 " ENGINE "\n"
               "cudnn forward 2 16 4 2 64 alibi 2 4 " ENGINE "\n"
               "cudnn backward 2 16 4 2 64 plain 2 4 " ENGINE "\n",
               "a line each");
    if (cuda_attention_choice_create(&fake_dnn_library, &own, &two) != ERR_OK)
        abort();
    own_runs = 0;
    tap_ok(cuda_attention_choice_read(two, &ctx, text) == ERR_OK &&
               cuda_attention_choice_write(two, &again) == ERR_OK &&
               strcmp(text, again) == 0 &&
               forward(two, DTYPE_BF16, &biased) == ERR_OK && own_runs == 0,
           "another rank takes them");
    int plans = fake_dnn.plans;
    tap_ok(cuda_attention_choice_read(two, &ctx, text) == ERR_OK &&
               fake_dnn.plans == plans &&
               forward(two, DTYPE_BF16, &plain) == ERR_OK && own_runs == 0,
           "who reads them again has the plans already");
    check_damaged(two);
    check_elsewhere(two, &narrow, text, "of scratch here");
    tap_ok(forward(two, DTYPE_BF16, &plain) == ERR_OK && own_runs == 0,
           "what cannot be had takes no plan away");
    check_elsewhere(
        two, &ctx, "cudnn 9\ncudnn forward 2 16 4 2 64 plain 2 4 100:3=0:7=1\n",
        "is here and makes no plan: cuDNN: making a plan");
    check_elsewhere(two, &ctx, "cudnn 9\ncudnn forward 2 16 4 2 64 plain\n",
                    "did not keep");
    check_elsewhere(two, &ctx, "cudnn 9\ncudnn backward 1 16 4 2 64 plain 2\n",
                    "did not keep");
    fake_dnn.first = 200;
    check_elsewhere(
        two, &ctx, "cudnn 9\ncudnn forward 2 16 4 2 64 plain 2 4 101:3=2:7=1\n",
        "is none of the 3");
    fake_dnn.version = 10;
    check_elsewhere(two, &ctx, text, "its bits are others");
    tap_ok(cuda_attention_choice_read(two, &ctx,
                                      "cudnn 9\nown forward 2 16 4 2 64 plain\n"
                                      "own backward 1 16 4 2 64 plain 2\n") ==
               ERR_OK,
           "for the own ones any version will do");
    tap_ok(cuda_attention_choice_read(two, &ctx,
                                      "cudnn 10\ncudnn forward 2 16 4 2 64 "
                                      "plain 1 4 202:3=2:7=1\n") == ERR_OK &&
               forward(two, DTYPE_BF16, &plain) == ERR_OK &&
               fake_dnn.engine == 2,
           "the engine is the text's and not the first, the parts as well");
    cuda_attention_choice_forget(two);
    own_runs = 0;
    bool began =
        forward(two, DTYPE_BF16, &plain) == ERR_OK && own_runs == 1 &&
        cuda_attention_choice_measure(two, &ctx, memory, MEMORY) == ERR_OK;
    own_runs = 0;
    tap_ok(began && forward(two, DTYPE_BF16, &plain) == ERR_OK && own_runs == 0,
           "what is forgotten is measured anew");
    cuda_attention_choice_destroy(one);
    cuda_attention_choice_destroy(two);
    free(text);
    free(again);
    tap_is_int(fake_dnn.alive, 0, "... and no descriptor is left");
}

int main(void)
{
    check_measured();
    for (size_t i = 0; i < sizeof long_ones / sizeof *long_ones; i++)
        check_long(i);
    check_needs();
    check_own();
    check_untold();
    check_fallback();
    check_text();
    return tap_done();
}
