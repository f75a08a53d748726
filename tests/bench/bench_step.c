/* tessera-bench step: the time of an optimizer step beside what the machine
 * allows. Triad and steps are measured in turns, each in a process of its own,
 * so that no more than 2 GiB are in use at any time; 2.5 GiB
 * with experts, where both models are there. */
#include "tests/bench/bench.h"

#include <sys/wait.h>
#include <unistd.h>

#include "kernels/kernels.h"
#include "src/base/arena.h"
#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/base/new.h"
#include "src/base/real.h"
#include "tests/bench/bench_flops.h"
#include "tests/bench/bench_model.h"
#include "tests/bench/bench_ranks.h"

/* Phases take turns: triad, steps, triad, steps, ... */
#define PHASES_MAX 12
#define PHASES_MIN 2
#define STEPS_MAX 20 /* of a phase and kind */
#define TIMES_MAX (PHASES_MAX * STEPS_MAX)
#define TRIAD_ROUNDS 3 /* of a phase */
#define TRIAD_ELEMENTS (8 << 20)
#define TRIAD_TRIES 4
#define CHILD_VALUES_MAX 96

/* What a phase's child returns: after the faults (minor page faults while steps
 * were measured), kind->steps values of each. */
enum { OF_STEP, OF_ELASTIC, OF_DENSE, OF_PEAK, OF_COUNT };
#define STEP_VALUES (1 + OF_COUNT * STEPS_MAX)

struct step_phase {
    const struct bench_model_kind *kind;
    const struct bench_model_kind *dense; /* equal active FLOPs, no experts;
                                             kind if that has none */
    int threads;
};

struct step_times {
    double values[OF_COUNT][TIMES_MAX];      /* seconds; FLOP/s */
    double triad[PHASES_MAX * TRIAD_ROUNDS]; /* bytes per second */
    double faults;
    int phases;
};

struct child_reply {
    enum err rc;
    char text[512];
    double values[CHILD_VALUES_MAX];
};

/* Runs work(arg, values) in a forked child and copies values[count] back; an
 * error of the child is returned with its text. The calling process must not
 * have used OpenMP. */
static enum err in_child(enum err (*work)(const void *arg, double *values),
                         const void *arg, double *values, int count)
{
    struct child_reply reply = { 0 };
    int ends[2];
    assert(count <= CHILD_VALUES_MAX);
    if (pipe(ends) != 0)
        return err_errno("pipe");
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        reply.rc = work(arg, reply.values);
        snprintf(reply.text, sizeof reply.text, "%s", err_text());
        /* smaller than PIPE_BUF: all of it or nothing */
        ssize_t n = write(ends[1], &reply, sizeof reply);
        _exit(n == (ssize_t)sizeof reply ? 0 : 1);
    }
    close(ends[1]);
    if (child < 0) {
        close(ends[0]);
        return err_errno("fork");
    }
    ssize_t n = read(ends[0], &reply, sizeof reply);
    close(ends[0]);
    waitpid(child, NULL, 0);
    if (n != (ssize_t)sizeof reply)
        return err_set(ERR_MEMORY, "a measuring process has died: are 2 GiB of "
                                   "memory free?");
    if (reply.rc != ERR_OK)
        return err_set(reply.rc, "%s", reply.text);
    memcpy(values, reply.values, (size_t)count * sizeof values[0]);
    return ERR_OK;
}

/* In a child: in turns the seconds of kind->steps steps as one leaf, those of
 * as many with one leaf for each sample and those of the dense model, and the
 * peak. */
static enum err measure_steps(const void *arg, double *values)
{
    enum err rc = ERR_OK;
    const struct step_phase *phase = arg;
    const struct bench_model_kind *kind = phase->kind;
    struct kernel_ctx ctx = { .threads = phase->threads };
    const struct kernels *kernels;
    const char *source;
    struct bench_model *bench = NULL, *elastic = NULL, *dense = NULL;
    int steps = kind->steps;
    double loss;
    TRY_OUT(kernels_find("cpu", "auto", &kernels));
    TRY_OUT(bench_model_create(kind, phase->threads, 1, &bench));
    TRY_OUT(bench_model_create(kind, phase->threads, kind->samples, &elastic));
    if (phase->dense != kind)
        TRY_OUT(bench_model_create(phase->dense, phase->threads, 1, &dense));
    for (int i = -1; i < steps; i++) {
        /* the first time, which touches memory, is not counted */
        double *at = &values[1 + (i < 0 ? 0 : i)];
        if (i == 0)
            values[0] = (double)(bench_model_faults(bench) +
                                 bench_model_faults(elastic));
        /* one leaf and several, then several and one: neither always follows
         * the other, nor the peak's load */
        bool one_first = i % 2 == 0;
        TRY_OUT(
            bench_model_step(one_first ? bench : elastic, &loss,
                             at + (one_first ? OF_STEP : OF_ELASTIC) * steps));
        at[OF_PEAK * steps] =
            kernels->peak_flops(&ctx, DTYPE_F32, false, &source);
        TRY_OUT(
            bench_model_step(one_first ? elastic : bench, &loss,
                             at + (one_first ? OF_ELASTIC : OF_STEP) * steps));
        if (dense != NULL)
            TRY_OUT(bench_model_step(dense, &loss, at + OF_DENSE * steps));
    }
    values[0] =
        (double)(bench_model_faults(bench) + bench_model_faults(elastic)) -
        values[0];
out:
    bench_model_destroy(dense);
    bench_model_destroy(elastic);
    bench_model_destroy(bench);
    return rc;
}

static double triad_pass(int threads, float *a)
{
    float *b = a + TRIAD_ELEMENTS;
    float *c = b + TRIAD_ELEMENTS;
    double best = 1e30;
    for (int i = 0; i < TRIAD_TRIES; i++) {
        double begin = clock_now();
#pragma omp parallel for simd num_threads(threads) schedule(static)
        for (int e = 0; e < TRIAD_ELEMENTS; e++)
            a[e] = b[e] + 0.5f * c[e];
        double seconds = clock_now() - begin;
        if (seconds < best)
            best = seconds;
    }
    return 12.0 * TRIAD_ELEMENTS / best;
}

/* In a child: bytes per second. */
static enum err measure_triad(const void *arg, double *values)
{
    enum err rc = ERR_OK;
    const struct step_phase *phase = arg;
    struct arena arena = { 0 };
    size_t bytes = 3 * (size_t)TRIAD_ELEMENTS * sizeof(float);
    TRY_OUT(arena_create(bytes, &arena));
    float *a = arena_take(&arena, bytes);
    for (int64_t i = 0; i < 3 * TRIAD_ELEMENTS; i++)
        a[i] = (float)(i % 97 - 48) * 1e-4f; /* no subnormal numbers */
    for (int round = 0; round < TRIAD_ROUNDS; round++)
        values[round] = triad_pass(phase->threads, a);
out:
    arena_destroy(&arena);
    return rc;
}

static enum err one_phase(const struct step_phase *step,
                          struct step_times *times)
{
    double values[STEP_VALUES];
    int steps = step->kind->steps;
    int p = times->phases;
    TRY(in_child(measure_triad, step, times->triad + p * TRIAD_ROUNDS,
                 TRIAD_ROUNDS));
    TRY(in_child(measure_steps, step, values, STEP_VALUES));
    for (int of = 0; of < OF_COUNT; of++)
        memcpy(times->values[of] + p * steps, values + 1 + of * steps,
               (size_t)steps * sizeof values[0]);
    times->faults += values[0] / steps;
    log_info("phase %d: triad %.1f GB/s, peak %.0f GFLOP/s, step %.0f ms, %d "
             "leaves %.0f ms",
             p + 1, times->triad[p * TRIAD_ROUNDS] * 1e-9,
             times->values[OF_PEAK][p * steps] * 1e-9,
             times->values[OF_STEP][p * steps] * 1e3, step->kind->samples,
             times->values[OF_ELASTIC][p * steps] * 1e3);
    times->phases++;
    return ERR_OK;
}

static void set_real(json_t *result, const char *key, double value)
{
    json_object_set_new(result, key, json_real(value));
}

static json_t *report(const struct step_phase *step, struct step_times *times)
{
    const struct bench_model_kind *kind = step->kind;
    double median[OF_COUNT];
    int count = times->phases * kind->steps;
    for (int of = 0; of < OF_COUNT; of++)
        median[of] = real_median(times->values[of], count);
    double triad = real_median(times->triad, times->phases * TRIAD_ROUNDS);
    double flops = bench_flops_step(kind);
    json_t *result =
        json_pack("{s:s, s:s, s:i, s:i}", "bench", "step", "model", kind->name,
                  "threads", step->threads, "rounds", count);
    set_real(result, "step_ms", median[OF_STEP] * 1e3);
    set_real(result, "gflop", flops * 1e-9);
    set_real(result, "peak_gflops", median[OF_PEAK] * 1e-9);
    set_real(result, "ratio_peak", flops / median[OF_PEAK] / median[OF_STEP]);
    set_real(result, "triad_gbps", triad * 1e-9);
    set_real(result, "elastic_ms", median[OF_ELASTIC] * 1e3);
    set_real(result, "elastic_ratio", median[OF_STEP] / median[OF_ELASTIC]);
    set_real(result, "faults", times->faults / times->phases);
    if (step->dense != kind) {
        set_real(result, "dense_ms", median[OF_DENSE] * 1e3);
        set_real(result, "moe_ratio", median[OF_DENSE] / median[OF_STEP]);
    }
    return result;
}

enum err bench_step(const struct bench_options *options, json_t **result)
{
    enum err rc = ERR_OK;
    struct bench_model_kind kind, dense;
    double begin = clock_now();
    struct step_times *times = NULL;
    TRY(new_zeroed(&times, 1));
    TRY_OUT(bench_model_find(options->model, &kind));
    if (options->parallel) {
        rc = bench_ranks("parallel", options, result);
        goto out;
    }
    dense = kind;
    if (kind.config.experts > 0)
        bench_model_densify(&dense);
    struct step_phase phase = { &kind, kind.config.experts > 0 ? &dense : &kind,
                                options->threads };
    while (
        times->phases < PHASES_MAX &&
        (times->phases < PHASES_MIN || clock_now() - begin < options->seconds))
        TRY_OUT(one_phase(&phase, times));
    *result = report(&phase, times);
out:
    free(times);
    return rc;
}
