/* Attention by cuDNN as far as it goes without a GPU: what a fake library is
 * told, when it is chosen, choices as text; then plans of the real library for
 * a described H200, over a driver that only loads (cuda_driver_double.c). */
#include <dlfcn.h>
#include <stddef.h>

#include "kernels/cuda/libraries/cuda_attention_choice.h"
#include "kernels/cuda/libraries/cuda_dnn_attention.h"
#include "kernels/cuda/libraries/cuda_fallback.h"
#include "tests/cuda_dnn_fake.h"
#include "tests/tap.h"

#define MEMORY ((size_t)1 << 20)

/* An H200 in cuDNN's words. */
static const char h200[] =
    "{\"deviceVer\":900,\"driverVer\":13000,\"cudaDeviceId\":0,"
    "\"maxGridSize\":[2147483647,65535,65535],"
    "\"maxBlockSize\":[1024,1024,64],\"regsPerBlock\":65536,"
    "\"multiProcessorCount\":132,\"warpSize\":32,"
    "\"maxSharedMemoryPerBlock\":49152,"
    "\"maxSharedMemoryPerBlockOptin\":232448,"
    "\"reservedSharedMemoryPerBlock\":1024,\"maxRegistersPerSM\":65536,"
    "\"maxCtasPerSM\":32,\"maxThreadsPerBlock\":1024,"
    "\"maxThreadsPerSM\":2048,\"pciDeviceId\":0,\"isTccDriver\":0,"
    "\"supportCoopLaunch\":1,\"smClockRateKHz\":1980000,"
    "\"memClockRateKHz\":3201000,\"l2CacheSize\":62914560,"
    "\"totalGlobalMem\":150000000000,\"deviceName\":\"NVIDIA H200\"}";

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
static char scratch[4096] __attribute__((aligned(256)));
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

static size_t scratch_of(int64_t batch, int64_t seq)
{
    const struct kernel_limits limits = {
        .batch = batch, .seq = seq, .heads = 2, .head_dim = 64
    };
    return cuda_dnn_attention_cut_scratch(&limits);
}

/* 6 sequences of which 3 fit into the scratch; nothing is touched. */
static void check_parts(void)
{
    enum { SEQ = 8192, ROWS = 3 * SEQ };
    struct cuda_attention_choice *choice = choice_create();
    const struct attention long_one = { .batch = 6,
                                        .seq = SEQ,
                                        .heads = 2,
                                        .kv_heads = 1,
                                        .head_dim = 64,
                                        .scale = 0.125f };
    struct kernel_ctx roomy = ctx;
    char *text = NULL;
    roomy.scratch_bytes = scratch_of(6, SEQ);
    tap_ok(scratch_of(3, SEQ) == roomy.scratch_bytes &&
               scratch_of(2, SEQ) < roomy.scratch_bytes &&
               roomy.scratch_bytes <= CUDA_DNN_ATTENTION_SCRATCH_MAX,
           "scratch is for as many sequences as fit");
    tap_ok(scratch_of(6, 32768) == 0, "for none where one is too long");
    bool good = takes_dnn_backward(choice, &roomy, &long_one);
    tap_ok(good && own_runs == 0 && fake_dnn.runs == 2,
           "backward goes through the batch in two parts");
    tap_ok(past(given(1), memory) == ROWS * 4 * 64 * 2 &&
               past(given(2), memory) == ROWS * 4 * 64 * 2 + 2 * 64 * 2 &&
               past(given(4), memory) == ROWS * 2 * 64 * 2 &&
               past(given(5), scratch) == ROWS * 2 * 4,
           "the second one is where it lies");
    tap_ok(cuda_attention_choice_write(choice, &text) == ERR_OK &&
               strstr(text, "cudnn backward 3 8192 2 1 64 plain\n") != NULL,
           "the choice is one for a part");
    free(text);
    cuda_attention_choice_destroy(choice);
}

/* Samples of which not one sequence fits into the scratch, as in production:
 * their heads go through it in slices, and nobody needs hardware.fallback.
 * cuDNN's workspace is heads x seq x seq x 2 bytes and half a MiB. */
static const struct {
    const char *what;
    int64_t seq, heads, kv_heads, head_dim;
    bool alibi;
    int64_t slices; /* 0: the own kernels compute */
} long_ones[] = {
    { "mpt-7b", 2048, 32, 32, 128, true, 1 },
    { "mpt-1b", 4096, 16, 16, 128, true, 1 },
    { "mpt-7b", 4096, 32, 32, 128, true, 2 },
    { "llama3-8b", 4096, 32, 8, 128, false, 2 },
    { "mpt-125m", 8192, 12, 12, 64, true, 3 },
    { "mpt-1b", 8192, 16, 16, 128, true, 4 },
    { "70b", 4096, 64, 8, 128, false, 4 },
    { "llama3-8b", 8192, 32, 8, 128, false, 8 },
    { "one head of keys", 8192, 32, 1, 128, false, 0 },
    { "slopes that no slice has aligned", 8192, 10, 10, 128, true, 0 },
    { "one head that is too long", 65536, 8, 8, 128, false, 0 },
};

static void check_long(size_t i)
{
    struct cuda_attention_choice *choice = choice_create();
    int64_t seq = long_ones[i].seq, heads = long_ones[i].heads;
    int64_t kv_heads = long_ones[i].kv_heads, d = long_ones[i].head_dim;
    int64_t slices = long_ones[i].slices, each = slices > 0 ? slices : 1;
    const struct attention shape = {
        .batch = 2,
        .seq = seq,
        .heads = heads,
        .kv_heads = kv_heads,
        .head_dim = d,
        .scale = 0.125f,
        .alibi_slopes = long_ones[i].alibi ? slopes : NULL,
    };
    const struct kernel_limits limits = { .batch = 2,
                                          .seq = seq,
                                          .heads = heads,
                                          .kv_heads = kv_heads,
                                          .head_dim = d };
    struct kernel_ctx roomy = ctx;
    struct cuda_attention_count count;
    roomy.scratch_bytes = cuda_dnn_attention_cut_scratch(&limits);
    fake_dnn.workspace = heads / each * seq * seq * 2 + (1 << 19);
    cuda_fallback_allow(false);
    bool good = takes_dnn_backward(choice, &roomy, &shape);
    cuda_fallback_allow(true);
    cuda_attention_choice_count(choice, &count);
    if (slices == 0)
        tap_ok(good && own_runs == 1 && fake_dnn.runs == 0 &&
                   strcmp(count.unfit, "samples of this length") == 0,
               "%s, %lld tokens: the own kernels, refused by nobody",
               long_ones[i].what, (long long)seq);
    else
        tap_ok(good && own_runs == 0 && fake_dnn.runs >= slices &&
                   roomy.scratch_bytes <= CUDA_DNN_ATTENTION_SCRATCH_MAX,
               "%s, %lld tokens: %d runs, %zu MiB of scratch: %s",
               long_ones[i].what, (long long)seq, fake_dnn.runs,
               roomy.scratch_bytes >> 20, good ? "good" : err_text());
    if (slices > 1) { /* the last slice of the second sequence */
        int64_t at = heads - heads / slices,
                kv_at = kv_heads - kv_heads / slices;
        int64_t qkv = seq * (heads + 2 * kv_heads) * d;
        tap_ok(fake_dnn.runs == 2 * slices &&
                   past(given(1), memory) == 2 * (qkv + at * d) &&
                   past(given(2), memory) == 2 * (qkv + (heads + kv_at) * d) &&
                   past(given(3), memory) ==
                       2 * (qkv + (heads + kv_heads + kv_at) * d) &&
                   past(given(4), memory) == 2 * (seq * heads + at) * d &&
                   past(given(5), scratch) == 4 * (seq * heads + at * seq) &&
                   past(given(8), memory) == 2 * (qkv + (heads + kv_at) * d) &&
                   (!long_ones[i].alibi || past(given(11), slopes) == 4 * at),
               "... each where it lies");
    }
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
    check_kept("too little scratch", &plain, DTYPE_BF16, 2, 3, 8192, MEMORY);
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
    check_refused("little scratch", 3, 8192, MEMORY, "KiB of scratch");
    check_refused("little memory", 3, 512, 4096, "does not fit");
    fake_dnn.engines = 3;
    fake_dnn.version = 9;
    cuda_fallback_allow(false);
    bool good =
        cuda_attention_choice_read(
            choice, "cudnn 9\ncudnn forward 2 16 4 2 64 plain\n") == ERR_OK &&
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

static void check_text(void)
{
    struct cuda_attention_choice *one = choice_create(), *two = NULL;
    struct attention biased = plain;
    char *text = NULL, *again = NULL;
    biased.alibi_slopes = slopes;
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
               "cudnn 9\ncudnn forward 2 16 4 2 64 plain\n"
               "cudnn forward 2 16 4 2 64 alibi\n"
               "cudnn backward 2 16 4 2 64 plain\n",
               "a line each");
    if (cuda_attention_choice_create(&fake_dnn_library, &own, &two) != ERR_OK)
        abort();
    own_runs = 0;
    tap_ok(cuda_attention_choice_read(two, text) == ERR_OK &&
               cuda_attention_choice_write(two, &again) == ERR_OK &&
               strcmp(text, again) == 0 &&
               forward(two, DTYPE_BF16, &biased) == ERR_OK && own_runs == 0,
           "another rank takes them");
    static const char *const damaged[] = {
        "",
        "cudnn\n",
        "cudnn 9",
        "cudnn 9\nmine forward 2 16 4 2 64 plain\n",
        "cudnn 9\ncudnn sideways 2 16 4 2 64 plain\n",
        "cudnn 9\ncudnn forward 2 16 4 2 64\n",
        "cudnn 9\ncudnn forward 2 16 4 2 64 plain",
        "cudnn 9\ncudnn forward 2 -16 4 2 64 plain\n",
        "cudnn 9\ncudnn forward 2 16 4 2 64 plain more\n",
        "cudnn 9\ncudnn backward 1 16 4 2 64 plain 1\n",
        "cudnn 9\ncudnn backward 1 16 4 2 64 plain 3\n",
        "cudnn 9\ncudnn backward 2 16 4 2 64 plain 2\n",
        "cudnn 9\ncudnn backward 1 16 4 2 64 plain 2 more\n"
    };
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++)
        tap_ok(cuda_attention_choice_read(two, damaged[i]) == ERR_DATA,
               "damaged text %zu: %s", i, err_text());
    fake_dnn.version = 10;
    tap_ok(cuda_attention_choice_read(two, text) == ERR_UNSUPPORTED,
           "another version: %s", err_text());
    fake_dnn.version = 9;
    free(again);
    again = NULL;
    tap_ok(cuda_attention_choice_read(
               two, "cudnn 9\ncudnn backward 1 8192 32 8 128 plain 8\n") ==
                   ERR_OK &&
               cuda_attention_choice_write(two, &again) == ERR_OK &&
               strstr(again, "backward 1 8192 32 8 128 plain 8\n") != NULL,
           "a choice keeps its slices");
    fake_dnn.version = 10;
    tap_ok(cuda_attention_choice_read(
               two, "cudnn 9\nown forward 2 16 4 2 64 plain\n") == ERR_OK,
           "for the own ones any version will do");
    cuda_attention_choice_destroy(one);
    cuda_attention_choice_destroy(two);
    free(text);
    free(again);
}

static void check_real(const struct cuda_dnn_library *library)
{
    static const struct attention shapes[] = {
        { .batch = 2,
          .seq = 1024,
          .heads = 12,
          .kv_heads = 12,
          .head_dim = 64 },
        { .batch = 1,
          .seq = 2000,
          .heads = 16,
          .kv_heads = 4,
          .head_dim = 128 },
        { .batch = 1,
          .seq = 4096,
          .heads = 32,
          .kv_heads = 32,
          .head_dim = 128,
          .alibi_slopes = slopes },
        { .batch = 1,
          .seq = 8192,
          .heads = 32,
          .kv_heads = 8,
          .head_dim = 128 },
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int back = 0; back < 2; back++) {
            struct cuda_dnn_attention *plan = NULL;
            int64_t slices =
                back ? cuda_dnn_attention_cut_of(&shapes[i]).slices : 1;
            enum err rc = cuda_dnn_attention_create(
                library, NULL, h200, &shapes[i], back != 0, slices, &plan);
            size_t mib =
                rc == ERR_OK ? cuda_dnn_attention_scratch(plan) >> 20 : 0;
            tap_ok(rc == ERR_OK && mib <= CUDA_DNN_ATTENTION_SCRATCH_MAX >> 20,
                   "cuDNN plans shape %zu, %s, in %lld slices of %zu MiB: %s",
                   i, back ? "backward" : "forward", (long long)slices, mib,
                   rc == ERR_OK ? "yes" : err_text());
            cuda_dnn_attention_destroy(plan);
        }
}

/* Programs with a sanitizer's runtime are not what cuDNN was built for. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PLANS false
#else
#define PLANS true
#endif

int main(void)
{
    struct cuda_dnn_library library;
    check_measured();
    check_parts();
    for (size_t i = 0; i < sizeof long_ones / sizeof *long_ones; i++)
        check_long(i);
    check_own();
    check_untold();
    check_fallback();
    check_text();
    bool driver = PLANS && dlopen(DRIVER_DOUBLE, RTLD_NOW | RTLD_GLOBAL);
    if (!driver || cuda_dnn_library_open(&library) != ERR_OK) {
        tap_skip("plans of cuDNN: %s",
                 PLANS ? (driver ? err_text() : dlerror()) : "sanitizer");
        return tap_done();
    }
    check_real(&library);
    return tap_done();
}
