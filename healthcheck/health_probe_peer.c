/* Copies between all pairs of GPUs, over NVLink where there is one. A sick link
 * shows on both its ends, a sick GPU in all its pairs. Each GPU is judged by the
 * slowest of its pairs, against the slowest of the others'; the table of all
 * pairs is printed, for people see at a glance whether it is a row, a column or
 * one entry that stands out. */
#include <assert.h>
#include <string.h>

#include "healthcheck/health_checks.h"
#include "healthcheck/health_probe.h"
#include "src/base/clock.h"

#define PEER_SEED 41
#define PEER_PASSES 3

struct peer_probe {
    const struct health_probe *probe;
    int count;
    struct health_probe_gpu gpus[HEALTH_PROBE_GPUS];
    struct health_measure measures[HEALTH_PROBE_GPUS];
    double gbps[HEALTH_PROBE_GPUS][HEALTH_PROBE_GPUS]; /* from, to */
};

static uint32_t *words_from(const struct health_probe_gpu *gpu)
{
    return (uint32_t *)(void *)gpu->tensors.base;
}

static uint32_t *words_to(const struct health_probe *probe,
                          const struct health_probe_gpu *gpu)
{
    return words_from(gpu) + probe->copy_bytes / 4;
}

static enum err peer_open(struct peer_probe *test, int i)
{
    struct health_probe_gpu *gpu = &test->gpus[i];
    const struct health_probe *probe = test->probe;
    assert(probe->copy_bytes > 0 && probe->copy_bytes % 4 == 0);
    test->measures[i].gpu = i;
    TRY(health_probe_open(probe->gpus, i, gpu));
    memcpy(test->measures[i].bus, gpu->bus, sizeof test->measures[i].bus);
    TRY(gpu->memory->tensors_create(2 * (size_t)probe->copy_bytes,
                                    &gpu->tensors));
    TRY(gpu->gpus->fill(&gpu->ctx, probe->copy_bytes / 4,
                        PEER_SEED + (uint32_t)i, words_from(gpu)));
    return gpu->memory->wait(gpu->ctx.stream);
}

static enum err peer_pair(struct peer_probe *test, int from, int to)
{
    const struct health_probe *probe = test->probe;
    const struct health_env *env = probe->env;
    struct health_probe_gpu *a = &test->gpus[from];
    struct health_probe_gpu *b = &test->gpus[to];
    uint64_t wrong = 0;
    bool direct;
    assert(from != to && from < test->count && to < test->count);
    TRY(a->memory->use(from));
    TRY(a->gpus->peer(to, &direct));
    for (int i = 0; i < PEER_PASSES; i++) {
        double start = clock_now();
        TRY(a->memory->copy(a->ctx.stream, (size_t)probe->copy_bytes,
                            words_from(a), words_to(probe, b)));
        TRY(a->memory->wait(a->ctx.stream));
        double got = (double)probe->copy_bytes / (clock_now() - start) / 1e9;
        if (got > test->gbps[from][to])
            test->gbps[from][to] = got;
    }
    TRY(b->memory->use(to));
    if (from == 0 && to == 1 &&
        health_injected(env->inject, "peer", env->host, "wrong"))
        TRY(b->gpus->fill(&b->ctx, 1, 1, words_to(probe, b)));
    TRY(b->gpus->wrong(&b->ctx, probe->copy_bytes / 4,
                       PEER_SEED + (uint32_t)from, words_to(probe, b),
                       (uint64_t *)(void *)b->counts.base));
    TRY(health_probe_counted(b, &wrong));
    struct health_measure *m = &test->measures[from];
    if (wrong > 0 && m->state == HEALTH_OK)
        health_say(m, HEALTH_BAD, "PEER_WRONG",
                   "%llu words changed on the way to %d",
                   (unsigned long long)wrong, to);
    return ERR_OK;
}

static void peer_slowest(struct peer_probe *test)
{
    for (int i = 0; i < test->count; i++)
        for (int j = 0; j < test->count; j++) {
            double *least = &test->measures[i].values[0];
            if (j != i && (*least == 0 || test->gbps[i][j] < *least))
                *least = test->gbps[i][j];
            if (j != i && test->gbps[j][i] < *least)
                *least = test->gbps[j][i];
        }
}

static void peer_table(const struct peer_probe *test, struct health_result *out)
{
    health_probe_print(out, "# copies between GPUs, GB/s, from row to column\n"
                            "#    ");
    for (int i = 0; i < test->count; i++)
        health_probe_print(out, " %7d", i);
    for (int i = 0; i < test->count; i++) {
        health_probe_print(out, "\n  %3d", i);
        for (int j = 0; j < test->count; j++)
            if (i == j)
                health_probe_print(out, " %7s", "-");
            else
                health_probe_print(out, " %7.1f", test->gbps[i][j]);
    }
    health_probe_print(out, "\n");
}

enum err health_probe_peer_run(const struct health_probe *probe,
                               struct health_result *out)
{
    enum err rc = ERR_OK;
    struct peer_probe test = { .probe = probe };
    snprintf(out->unit, sizeof out->unit, "GB/s");
    TRY_OUT(probe->gpus->count(&test.count));
    if (test.count > HEALTH_PROBE_GPUS)
        test.count = HEALTH_PROBE_GPUS;
    if (test.count < 2)
        goto out;
    for (int i = 0; i < test.count; i++)
        TRY_OUT(peer_open(&test, i));
    for (int i = 0; i < test.count; i++)
        for (int j = 0; j < test.count; j++)
            if (i != j)
                TRY_OUT(peer_pair(&test, i, j));
    peer_slowest(&test);
    health_probe_result(probe, "peer", "GB/s to a peer",
                        probe->env->limits.gpu_peer_min_gbps, test.measures,
                        test.count, 0, out);
    peer_table(&test, out);
out:
    for (int i = 0; i < test.count; i++)
        health_probe_close(&test.gpus[i]);
    return rc;
}

HEALTH_PROBE_CHECK(peer)
