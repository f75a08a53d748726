/* An all-reduce over the GPUs of the node, in nccl-tests' columns and by its
 * conventions: a size is the bytes of one GPU's vector, a time the mean of many
 * calls; algbw = size / time and busbw = algbw * 2 (n - 1) / n, in 1e9 bytes
 * per second; #wrong is counted after a separate call on fresh numbers, whose
 * sums are whole and so exact in any order.
 *
 * busbw is the speed of the slowest link that a ring would need for such an
 * algbw, each of whose n links carries 2 (n - 1) / n of the vector, so it can be
 * compared with what the hardware should have, whatever n is. */
#include <assert.h>

#include "healthcheck/health_checks.h"
#include "healthcheck/health_probe.h"
#include "src/base/clock.h"

#define REDUCE_SEED 51
#define REDUCE_WARM 5
#define REDUCE_STEP 8

struct reduce_probe {
    const struct health_probe *probe;
    struct comm_nccl_library nccl;
    int count;
    struct health_probe_gpu gpus[HEALTH_PROBE_GPUS];
    void *comms[HEALTH_PROBE_GPUS];
    uint64_t wrong;
    double busbw_sum, busbw_most;
    int measured;
};

struct reduce_side {
    double us, algbw, busbw;
    uint64_t wrong;
};

static float *reduce_to(const struct reduce_probe *test, int gpu, bool in_place)
{
    return (float *)(void *)(test->gpus[gpu].tensors.base +
                             (in_place ? 0 : test->probe->reduce_bytes_max));
}

static enum err reduce_error(const struct reduce_probe *test, int result,
                             const char *what)
{
    return comm_nccl_library_error(&test->nccl, NULL, result, what);
}

static enum err reduce_once(struct reduce_probe *test, int64_t elements,
                            bool in_place)
{
    const struct comm_nccl_library *nccl = &test->nccl;
    assert(elements * (int64_t)sizeof(float) <= test->probe->reduce_bytes_max);
    TRY(reduce_error(test, nccl->group_start(), "beginning a group"));
    for (int i = 0; i < test->count; i++) {
        TRY(test->gpus[i].memory->use(i));
        TRY(reduce_error(test,
                         nccl->all_reduce(test->gpus[i].tensors.base,
                                          reduce_to(test, i, in_place),
                                          (size_t)elements, COMM_NCCL_FLOAT,
                                          COMM_NCCL_SUM, test->comms[i],
                                          test->gpus[i].ctx.stream),
                         "an all-reduce"));
    }
    return reduce_error(test, nccl->group_end(), "an all-reduce");
}

static enum err reduce_wait(struct reduce_probe *test)
{
    for (int i = 0; i < test->count; i++) {
        TRY(test->gpus[i].memory->use(i));
        TRY(test->gpus[i].memory->wait(test->gpus[i].ctx.stream));
    }
    return ERR_OK;
}

static enum err reduce_fill(struct reduce_probe *test, int64_t elements)
{
    for (int i = 0; i < test->count; i++) {
        struct health_probe_gpu *gpu = &test->gpus[i];
        TRY(gpu->memory->use(i));
        TRY(gpu->gpus->numbers(&gpu->ctx, DTYPE_F32, elements,
                               REDUCE_SEED + (uint32_t)i, gpu->tensors.base));
    }
    return reduce_wait(test);
}

static enum err reduce_check(struct reduce_probe *test, int64_t elements,
                             bool in_place, uint64_t *wrong)
{
    const struct health_env *env = test->probe->env;
    *wrong = 0;
    TRY(reduce_fill(test, elements));
    TRY(reduce_once(test, elements, in_place));
    TRY(reduce_wait(test));
    for (int i = 0; i < test->count; i++) {
        struct health_probe_gpu *gpu = &test->gpus[i];
        float *to = reduce_to(test, i, in_place);
        uint64_t now;
        TRY(gpu->memory->use(i));
        if (i == 0 &&
            health_injected(env->inject, "allreduce", env->host, "wrong"))
            TRY(gpu->gpus->fill(&gpu->ctx, 1, 1, (uint32_t *)(void *)to));
        TRY(gpu->gpus->wrong_sum(&gpu->ctx, elements, REDUCE_SEED, test->count,
                                 to, (uint64_t *)(void *)gpu->counts.base));
        TRY(health_probe_counted(gpu, &now));
        *wrong += now;
    }
    return ERR_OK;
}

static enum err reduce_side(struct reduce_probe *test, int64_t bytes,
                            bool in_place, struct reduce_side *out)
{
    int64_t elements = bytes / (int64_t)sizeof(float);
    double n = test->count;
    TRY(reduce_fill(test, elements));
    for (int i = 0; i < REDUCE_WARM; i++)
        TRY(reduce_once(test, elements, in_place));
    TRY(reduce_wait(test));
    double start = clock_now();
    for (int i = 0; i < test->probe->repeats; i++)
        TRY(reduce_once(test, elements, in_place));
    TRY(reduce_wait(test));
    out->us = (clock_now() - start) * 1e6 / test->probe->repeats;
    out->algbw = (double)bytes / out->us / 1e3;
    out->busbw = out->algbw * 2 * (n - 1) / n;
    TRY(reduce_check(test, elements, in_place, &out->wrong));
    test->wrong += out->wrong;
    test->busbw_sum += out->busbw;
    test->busbw_most =
        out->busbw > test->busbw_most ? out->busbw : test->busbw_most;
    test->measured++;
    return ERR_OK;
}

static void reduce_head(struct health_result *out)
{
    health_probe_print(
        out,
        "# %56s %32s\n"
        "# %10s %12s %8s %6s %6s %7s %7s %7s %6s %7s %7s %7s %6s\n"
        "# %10s %12s %8s %6s %6s %7s %7s %7s %6s %7s %7s %7s %6s\n",
        "out-of-place", "in-place", "size", "count", "type", "redop", "root",
        "time", "algbw", "busbw", "#wrong", "time", "algbw", "busbw", "#wrong",
        "(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)",
        "(GB/s)", "(GB/s)", "");
}

static enum err reduce_sizes(struct reduce_probe *test,
                             struct health_result *out)
{
    assert(test->probe->reduce_bytes_min > 0);
    reduce_head(out);
    for (int64_t bytes = test->probe->reduce_bytes_min;
         bytes <= test->probe->reduce_bytes_max; bytes *= REDUCE_STEP) {
        struct reduce_side sides[2];
        for (int i = 0; i < 2; i++)
            TRY(reduce_side(test, bytes, i == 1, &sides[i]));
        health_probe_print(out, "  %10lld %12lld %8s %6s %6d", (long long)bytes,
                           (long long)bytes / 4, "float", "sum", -1);
        for (int i = 0; i < 2; i++)
            health_probe_print(out, " %7.1f %7.2f %7.2f %6llu", sides[i].us,
                               sides[i].algbw, sides[i].busbw,
                               (unsigned long long)sides[i].wrong);
        health_probe_print(out, "\n");
    }
    health_probe_print(out,
                       "# Out of bounds values : %llu %s\n"
                       "# Avg bus bandwidth    : %g\n",
                       (unsigned long long)test->wrong,
                       test->wrong == 0 ? "OK" : "FAILED",
                       test->busbw_sum / test->measured);
    return ERR_OK;
}

static void reduce_judge(const struct reduce_probe *test,
                         struct health_result *out)
{
    const struct health_env *env = test->probe->env;
    out->value = test->busbw_most;
    if (health_injected(env->inject, "allreduce", env->host, "slow"))
        out->value /= 2;
    out->limit = env->limits.gpu_allreduce_min_gbps;
    if (test->wrong > 0) {
        health_say(out, HEALTH_BAD, "ALLREDUCE_WRONG", "%llu sums are wrong",
                   (unsigned long long)test->wrong);
    } else if (out->value < out->limit) {
        out->state = HEALTH_BAD;
        out->retest = true;
        snprintf(out->code, sizeof out->code, "ALLREDUCE_SLOW");
    }
}

static enum err reduce_open(struct reduce_probe *test)
{
    int devices[HEALTH_PROBE_GPUS];
    assert(test->count <= HEALTH_PROBE_GPUS);
    for (int i = 0; i < test->count; i++) {
        struct health_probe_gpu *gpu = &test->gpus[i];
        devices[i] = i;
        TRY(health_probe_open(test->probe->gpus, i, gpu));
        TRY(gpu->memory->tensors_create(
            2 * (size_t)test->probe->reduce_bytes_max, &gpu->tensors));
    }
    return reduce_error(test,
                        test->nccl.init_all(test->comms, test->count, devices),
                        "joining the node's GPUs");
}

enum err health_probe_allreduce_run(const struct health_probe *probe,
                                    struct health_result *out)
{
    enum err rc = ERR_OK;
    struct reduce_probe test = { .probe = probe };
    snprintf(out->unit, sizeof out->unit, "GB/s");
    if (probe->nccl != NULL) {
        test.nccl = *probe->nccl;
    } else if (comm_nccl_library_open(&test.nccl) != ERR_OK) {
        /* Training goes without it, slower. */
        health_say(out, HEALTH_WARN, "NCCL_MISSING", "%.79s", err_text());
        return ERR_OK;
    }
    TRY_OUT(probe->gpus->count(&test.count));
    if (test.count > HEALTH_PROBE_GPUS)
        test.count = HEALTH_PROBE_GPUS;
    if (test.count < 2)
        goto out;
    TRY_OUT(reduce_open(&test));
    TRY_OUT(reduce_sizes(&test, out));
    reduce_judge(&test, out);
out:
    for (int i = 0; i < test.count; i++)
        if (test.comms[i] != NULL && rc == ERR_OK)
            (void)test.nccl.destroy(test.comms[i]);
    for (int i = 0; i < test.count; i++)
        health_probe_close(&test.gpus[i]);
    if (test.nccl.opened != NULL)
        comm_nccl_library_close(&test.nccl);
    return rc;
}

HEALTH_PROBE_CHECK(allreduce)
