/* Finding a table, threads, and what the tables say about themselves. */
#include "tests/kernel_check.h"

#include <omp.h>
#include <sched.h>

#include "src/base/clock.h"

static void check_find(void)
{
    const struct kernels *table = NULL;
    const struct kernels *const *all = kernels_all();
    tap_ok(all[0] != NULL, "this processor runs at least one kernel set");
    tap_ok(kernels_find("cpu", "auto", &table) == ERR_OK && table == all[0],
           "auto is the best table");
    for (; *all != NULL; all++) {
        tap_ok(kernels_find((*all)->backend, (*all)->kernel_set, &table) ==
                       ERR_OK &&
                   table == *all,
               "%s/%s is found by name", (*all)->backend, (*all)->kernel_set);
    }
}

static void check_find_failures(void)
{
    static const struct {
        const char *backend, *kernel_set, *says;
    } failures[] = {
        { "cpu", "sse9", "'sse9'" },   { "cpu", "", "generic" },
        { "rocm", "auto", "'rocm'" },  { "cuda", "auto", "CUDA" },
        { "cuda", "sm_20", "'cuda'" },
    };
    for (size_t i = 0; i < sizeof(failures) / sizeof(*failures); i++) {
        const struct kernels *table = NULL;
        enum err rc =
            kernels_find(failures[i].backend, failures[i].kernel_set, &table);
        if (rc == ERR_OK) {
            tap_skip("backend %s is in this build", failures[i].backend);
            continue;
        }
        tap_ok(rc == ERR_UNSUPPORTED && table == NULL &&
                   strstr(err_text(), failures[i].says) != NULL,
               "%s/%s: %s", failures[i].backend, failures[i].kernel_set,
               err_text());
    }
}

static void check_threads(void)
{
    cpu_set_t before, one;
    sched_getaffinity(0, sizeof(before), &before);
    unsetenv("SLURM_CPUS_PER_TASK");
    tap_is_int(kernels_threads_default(1), CPU_COUNT(&before),
               "all processors of the mask");
    tap_is_int(kernels_threads_default(1 << 20), 1, "never less than 1");
    tap_is_int(kernels_threads_default(0), CPU_COUNT(&before),
               "nobody shares is like one");
    setenv("SLURM_CPUS_PER_TASK", "1", 1);
    tap_is_int(kernels_threads_default(1), 1, "what Slurm gave one task");
    setenv("SLURM_CPUS_PER_TASK", "4096", 1);
    tap_is_int(kernels_threads_default(1), CPU_COUNT(&before),
               "no more than the mask");
    setenv("SLURM_CPUS_PER_TASK", "lots", 1);
    tap_is_int(kernels_threads_default(1), CPU_COUNT(&before),
               "nonsense is passed over");
    unsetenv("SLURM_CPUS_PER_TASK");
    CPU_ZERO(&one);
    for (size_t i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &before))
            CPU_SET(i, &one);
    sched_setaffinity(0, sizeof(one), &one);
    tap_is_int(kernels_threads_default(1), 1, "a mask of one processor");
    sched_setaffinity(0, sizeof(before), &before);
}

/* Two processors at most, and how many of the team's threads keep to one. */
static int keep_to_one(int processors, int threads)
{
    cpu_set_t before, mask;
    int bound = 0, own = 0;
    sched_getaffinity(0, sizeof(before), &before);
    CPU_ZERO(&mask);
    for (size_t i = 0; i < CPU_SETSIZE && CPU_COUNT(&mask) < processors; i++)
        if (CPU_ISSET(i, &before))
            CPU_SET(i, &mask);
    sched_setaffinity(0, sizeof(mask), &mask);
    kernels_spread_threads(threads);
#pragma omp parallel num_threads(threads) reduction(+ : bound, own)
    {
        cpu_set_t set;
        sched_getaffinity(0, sizeof(set), &set);
        bound += CPU_COUNT(&set) == 1;
        own += CPU_EQUAL(&set, &mask) && omp_get_thread_num() == 0;
        sched_setaffinity(0, sizeof(before), &before);
    }
    return own == 1 ? bound : -1;
}

static void check_spread(void)
{
    int processors = kernels_threads_default(1);
    if (processors < 2) {
        tap_skip("threads on processors of their own: one processor");
        return;
    }
    tap_is_int(keep_to_one(2, 2), 1,
               "the added thread keeps to a processor, the caller to its mask");
    tap_is_int(keep_to_one(2, 3), 0, "not where threads share processors");
    if (processors > 2)
        tap_is_int(keep_to_one(3, 2), 0, "nor where some are left over");
}

/* Every op that takes a dtype must refuse one that its table lacks, before it
 * touches anything. */
static void check_dtype(const struct kernels *table, enum dtype dtype)
{
    struct kernel_limits limits = {
        .threads = 1, .tokens = 1, .seq = 1, .width = 1
    };
    struct kernel_ctx c = check_ctx(table, limits, 1);
    const struct gemm gemm = { .m = 1, .n = 1, .k = 1 };
    const struct attention shape = {
        .batch = 1, .seq = 1, .heads = 1, .kv_heads = 1, .head_dim = 1
    };
    const struct attention_chunk chunk = { .shape = shape };
    const struct route route = { .n = 1, .experts = 1, .top_k = 1 };
    const int64_t offsets[] = { 0, 1 };
    const struct grouped_gemm groups = {
        .groups = 1, .offsets = offsets, .m = 1, .n = 1, .k = 1
    };
    const struct norm norm = {
        .n = 1, .groups = 1, .d = 1, .stride = 1, .shared = true
    };
    const struct random_place random = { .seed = 1 };
    const struct adamw step = { .correction1 = 1, .correction2 = 1 };
    const enum err codes[] = {
        table->gemm(&c, dtype, &gemm),
        table->embedding_forward(&c, dtype, 1, 1, 1, NULL, NULL, NULL, NULL),
        table->embedding_backward(&c, dtype, 1, 1, 1, NULL, NULL, NULL, NULL),
        table->norm_forward(&c, dtype, &norm, NULL, NULL, NULL, NULL, NULL,
                            NULL),
        table->add_norm_forward(&c, dtype, &norm, NULL, 1, NULL, NULL, NULL,
                                NULL, NULL, NULL, NULL),
        table->norm_backward(&c, dtype, &norm, NULL, NULL, NULL, NULL, NULL,
                             true, NULL, NULL, NULL),
        table->activation_forward(&c, dtype, ACTIVATION_GELU, 1, NULL, NULL),
        table->activation_backward(&c, dtype, ACTIVATION_GELU, 1, NULL, NULL,
                                   NULL),
        table->glu_forward(&c, dtype, ACTIVATION_GELU, 1, 1, 1, NULL, NULL,
                           NULL),
        table->glu_backward(&c, dtype, ACTIVATION_GELU, 1, 1, 1, NULL, NULL,
                            NULL, NULL, NULL),
        table->clip_forward(&c, dtype, 1, 1, NULL),
        table->clip_backward(&c, dtype, 1, 1, NULL, NULL),
        table->rope(&c, dtype, 1, 1, 1, 1, 2, NULL, false, NULL),
        table->dropout(&c, dtype, 1, 1, 0.5f, &random, 1, NULL, NULL),
        table->jitter(&c, dtype, 1, 1, 0.5f, &random, NULL, NULL),
        table->attention_forward(&c, dtype, &shape, NULL, NULL, NULL),
        table->attention_backward(&c, dtype, &shape, NULL, NULL, NULL, NULL,
                                  NULL),
        table->attention_chunk_forward(&c, dtype, &chunk, NULL, NULL, true,
                                       NULL, NULL),
        table->attention_chunk_backward(&c, dtype, &chunk, NULL, NULL, NULL,
                                        NULL, NULL, NULL, NULL),
        table->cross_entropy(&c, dtype, 1, 1, 1, &(struct target){ 0 }, NULL,
                             NULL, true, NULL),
        table->expert_gather(&c, dtype, &route, 1, NULL, NULL, NULL),
        table->expert_combine(&c, dtype, &route, 1, NULL, NULL, NULL, NULL),
        table->expert_weigh(&c, dtype, &route, 1, NULL, NULL, NULL, NULL, NULL),
        table->grouped_gemm(&c, dtype, &groups),
        table->bias_backward(&c, dtype, 1, 1, NULL, NULL),
        table->accumulate(&c, dtype, 1, NULL, NULL),
        table->add(&c, dtype, 1, NULL, 1, NULL, NULL),
        table->chunk_sum_squares(&c, dtype, KERNEL_CHUNK, NULL, NULL),
        table->adamw(&c, dtype, 1, &step, NULL, NULL,
                     (float *[UPDATE_MOMENTS]){ NULL }),
    };
    size_t count = sizeof(codes) / sizeof(*codes);
    size_t refused = 0;
    for (size_t i = 0; i < count; i++)
        refused += codes[i] == ERR_UNSUPPORTED;
    tap_ok(refused == count, "%s/%s: %s is refused: %s", table->backend,
           table->kernel_set, dtype_name(dtype), err_text());
    check_release();
}

static void check_describe(const struct kernels *table)
{
    char text[128], cut[8], wanted[32];
    snprintf(wanted, sizeof wanted, "arithmetic %d", KERNEL_ARITHMETIC);
    table->describe(text, sizeof(text));
    table->describe(cut, sizeof(cut));
    tap_ok(strcmp(text, wanted) == 0 && strlen(cut) == 7, "%s/%s: '%s'",
           table->backend, table->kernel_set, text);
}

/* No product can be faster than the best kernel set's multiply-adds alone. */
static void check_peak(void)
{
    enum { N = 384, TRIES = 5 };
    const struct kernels *best = kernels_all()[0];
    struct kernel_ctx ctx = check_ctx_of(best, 1);
    const char *source = "";
    double most = best->peak_flops(&ctx, DTYPE_F32, false, &source), rate = 0.0;
    tap_ok(most > 0.0 && strcmp(source, "measured") == 0,
           "the peak is measured: %.3g FLOP/s", most);
    float *x = aligned_alloc(64, 3 * N * N * sizeof *x);
    memset(x, 0, 3 * N * N * sizeof *x);
    struct gemm gemm = { .form = GEMM_NT,
                         .m = N,
                         .n = N,
                         .k = N,
                         .a = x,
                         .b = x + N * N,
                         .c = x + 2 * N * N };
    for (int i = 0; i < TRIES; i++) {
        double begin_s = clock_now();
        best->gemm(&ctx, DTYPE_F32, &gemm);
        double one = 2.0 * N * N * N / (clock_now() - begin_s);
        rate = one > rate ? one : rate;
    }
    tap_ok(rate > 0.0 && rate <= most, "a product takes %.2f of it",
           rate / most);
    free(x);
    check_release();
}

int main(void)
{
    check_find();
    check_find_failures();
    check_threads();
    check_spread();
    check_peak();
    for (const struct kernels *const *t = kernels_all(); *t != NULL; t++) {
        if (strcmp((*t)->backend, "cpu") != 0) {
            check_dtype(*t, DTYPE_I32);
            continue;
        }
        check_dtype(*t, DTYPE_BF16);
        check_describe(*t);
    }
    return tap_done();
}
