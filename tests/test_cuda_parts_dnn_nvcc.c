/* Attention by cuDNN in parts, without a GPU: they give what the whole does, by a
 * fake library that puts something of every operand into every result; and the
 * real library makes plans of them for a described H200, over a driver that only
 * loads (cuda_driver_double.c). */
#include <dlfcn.h>

#include "kernels/cuda/libraries/cuda_dnn_attention.h"
#include "kernels/cuda/libraries/cuda_dnn_graph.h"
#include "tests/cuda_dnn_fake.h"
#include "tests/tap.h"

static char scratch[4096] __attribute__((aligned(256)));
static const struct kernel_ctx ctx = { .threads = 1,
                                       .scratch = scratch,
                                       .scratch_bytes = sizeof scratch };

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

/* Tensors of the table, of numbers by chance. */
struct numbers {
    uint16_t qkv[4096], out[2048], dout[2048], dqkv[4096];
    float lse[512];
};

static void fill(struct numbers *n)
{
    uint32_t word = 1;
    memset(n, 0, sizeof *n);
    for (size_t i = 0; i < sizeof n->qkv / sizeof *n->qkv; i++)
        n->qkv[i] = (uint16_t)((word = word * 1664525 + 1013904223) >> 16);
    for (size_t i = 0; i < sizeof n->dout / sizeof *n->dout; i++)
        n->dout[i] = (uint16_t)((word = word * 1664525 + 1013904223) >> 16);
}

static enum err run_cut(const struct attention *s,
                        struct cuda_dnn_attention_cut cut, struct numbers *n)
{
    enum err rc = ERR_OK;
    struct cuda_dnn_attention *plans[2] = { NULL };
    cudnnHandle_t handle = (cudnnHandle_t)&fake_dnn;
    char engine[CUDA_DNN_ENGINE_BYTES] = CUDA_DNN_ENGINE_ANY;
    fill(n);
    for (int back = 0; back < 2; back++)
        TRY_OUT(cuda_dnn_attention_create(&fake_dnn_library, handle, NULL, s,
                                          back != 0, cut, engine,
                                          &plans[back]));
    TRY_OUT(cuda_dnn_attention_forward(plans[0], handle, &ctx, s, n->qkv,
                                       n->out, n->lse));
    TRY_OUT(cuda_dnn_attention_backward(plans[1], handle, &ctx, s, n->qkv,
                                        n->out, n->lse, n->dout, n->dqkv));
out:
    cuda_dnn_attention_destroy(plans[0]);
    cuda_dnn_attention_destroy(plans[1]);
    return rc;
}

/* Every cut of a batch gives what the whole does. */
static void check_cuts(int64_t batch, int64_t heads, int64_t kv_heads,
                       bool alibi, int cuts)
{
    static struct numbers whole, parts;
    static const float steps[12] = { 1, 2, 4, 8, 16, 32, 64, 128, 256 };
    const struct attention s = { .batch = batch,
                                 .seq = 4,
                                 .heads = heads,
                                 .kv_heads = kv_heads,
                                 .head_dim = 8,
                                 .scale = 1.0f,
                                 .alibi_slopes = alibi ? steps : NULL };
    struct cuda_dnn_attention_cut cut = { batch, heads };
    int tried = 0, same = 0;
    fake_dnn =
        (struct fake_dnn){ .engines = 3, .version = 9, .computes = true };
    bool good = run_cut(&s, cut, &whole) == ERR_OK;
    while (good && cuda_dnn_attention_cut_finer(&s, &cut)) {
        fake_dnn.runs = 0;
        good = run_cut(&s, cut, &parts) == ERR_OK &&
               fake_dnn.runs == 2 * batch / cut.sequences * (heads / cut.heads);
        tried++;
        same += memcmp(&whole, &parts, sizeof whole) == 0;
    }
    tap_ok(good && tried == cuts && same == cuts && whole.dqkv[0] != 0,
           "%d of %d cuts of %lld x %lld heads for %lld%s give the same", same,
           tried, (long long)batch, (long long)heads, (long long)kv_heads,
           alibi ? ", ALiBi" : "");
}

static const struct {
    int64_t batch, seq, heads, kv_heads, head_dim;
    bool alibi;
} shapes[] = {
    { 2, 1024, 12, 12, 64, false }, { 1, 2000, 16, 4, 128, false },
    { 1, 4096, 32, 32, 128, true }, { 1, 8192, 32, 8, 128, false },
    { 1, 8192, 10, 10, 128, true },
};

static void check_real(const struct cuda_dnn_library *library, size_t i,
                       bool back)
{
    static const float slopes[64];
    struct cuda_dnn_attention *plan = NULL, *again = NULL;
    const struct attention s = {
        .batch = shapes[i].batch,
        .seq = shapes[i].seq,
        .heads = shapes[i].heads,
        .kv_heads = shapes[i].kv_heads,
        .head_dim = shapes[i].head_dim,
        .alibi_slopes = shapes[i].alibi ? slopes : NULL,
    };
    const struct kernel_limits limits = { .batch = s.batch,
                                          .seq = s.seq,
                                          .heads = s.heads,
                                          .kv_heads = s.kv_heads,
                                          .head_dim = s.head_dim };
    struct cuda_dnn_attention_cut cut = { s.batch, s.heads };
    char engine[CUDA_DNN_ENGINE_BYTES] = CUDA_DNN_ENGINE_ANY;
    size_t planned = cuda_dnn_attention_cut_scratch(&limits);
    if (back)
        (void)cuda_dnn_attention_cut_of(&s, planned, &cut);
    enum err rc = cuda_dnn_attention_create(library, NULL, h200, &s, back, cut,
                                            engine, &plan);
    size_t bytes = rc == ERR_OK ? cuda_dnn_attention_scratch(plan) : 0;
    tap_ok(rc == ERR_OK && bytes <= planned && engine[0] != '?',
           "cuDNN plans shape %zu, %s, in parts of %lld x %lld heads: %zu of "
           "%zu MiB, engine %s",
           i, back ? "backward" : "forward", (long long)cut.sequences,
           (long long)cut.heads, bytes >> 20, planned >> 20,
           rc == ERR_OK ? engine : err_text());
    tap_ok(cuda_dnn_attention_create(library, NULL, h200, &s, back, cut, engine,
                                     &again) == ERR_OK &&
               cuda_dnn_attention_scratch(again) == bytes,
           "... which is found by its name");
    cuda_dnn_attention_destroy(plan);
    cuda_dnn_attention_destroy(again);
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
    check_cuts(2, 12, 6, true, 4);
    check_cuts(4, 10, 5, false, 3);
    check_cuts(1, 7, 1, true, 0);
    check_cuts(3, 6, 6, true, 4);
    bool driver = PLANS && dlopen(DRIVER_DOUBLE, RTLD_NOW | RTLD_GLOBAL);
    if (!driver || cuda_dnn_library_open(&library) != ERR_OK) {
        tap_skip("plans of cuDNN: %s",
                 PLANS ? (driver ? err_text() : dlerror()) : "sanitizer");
        return tap_done();
    }
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int back = 0; back < 2; back++)
            check_real(&library, i, back != 0);
    return tap_done();
}
