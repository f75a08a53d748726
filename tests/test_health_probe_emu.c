/* The probes on GPUs that are made of the emulated kernels and of memory that
 * lies, stops or breaks; and how speeds are judged. */
#define CUDA_EMULATED
#include "healthcheck/health_checks.h"
#include "healthcheck/health_probe.h"

#include <libgen.h>
#include <limits.h>

#include "src/base/clock.h"
#include "tests/probe_fixture.h"
#include "tests/tap.h"

/* --- the probes --- */

typedef enum err probe_run(const struct health_probe *, struct health_result *);

static void test_ill(void)
{
    static const struct {
        const char *name;
        probe_run *run;
        enum ill ill;
        enum health_state state;
        const char *code;
    } cases[] = {
        { "gemm", health_probe_gemm_run, SOUND, HEALTH_OK, "" },
        { "gemm, a flip", health_probe_gemm_run, PRODUCT_ONCE, HEALTH_BAD,
          "GPUGEMM_WRONG" },
        { "gemm, always wrong", health_probe_gemm_run, PRODUCT_ALWAYS,
          HEALTH_BAD, "GPUGEMM_WRONG" },
        { "gemm, a wrong row", health_probe_gemm_run, PRODUCT_ROW, HEALTH_BAD,
          "GPUGEMM_WRONG" },
        { "gemm, dies", health_probe_gemm_run, DIES, HEALTH_UNKNOWN,
          "CHECK_DIED" },
        { "gemm, breaks", health_probe_gemm_run, BREAKS, HEALTH_BAD,
          "GPU_ILL" },
        { "gemm, no memory", health_probe_gemm_run, NO_MEMORY, HEALTH_UNKNOWN,
          "CHECK_FAILED" },
        { "hbm", health_probe_hbm_run, SOUND, HEALTH_OK, "" },
        { "hbm, a lost bit", health_probe_hbm_run, COPY, HEALTH_BAD,
          "HBM_WRONG" },
        { "pcie", health_probe_pcie_run, SOUND, HEALTH_OK, "" },
        { "pcie, a lost bit", health_probe_pcie_run, UPLOAD, HEALTH_BAD,
          "PCIE_WRONG" },
        { "peer", health_probe_peer_run, SOUND, HEALTH_OK, "" },
        { "peer, a lost bit", health_probe_peer_run, COPY, HEALTH_BAD,
          "PEER_WRONG" },
        { "allreduce", health_probe_allreduce_run, SOUND, HEALTH_OK, "" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct health_result result = { .state = HEALTH_OK };
        ill = cases[i].ill;
        products = 0;
        tap_is_int(cases[i].run(&small, &result), ERR_OK, "%s runs",
                   cases[i].name);
        tap_is_int(result.state, cases[i].state, "%s: state", cases[i].name);
        tap_is_str(result.code, cases[i].code, "%s: code", cases[i].name);
        tap_ok(result.value > 0, "%s: a speed", cases[i].name);
        if (ill != SOUND)
            tap_ok(strncmp(result.text, "GPU 1 ", 6) == 0, "%s: '%s'",
                   cases[i].name, result.text);
        tap_ok(!result.retest, "%s: facts need no second try", cases[i].name);
        ill = SOUND;
    }
}

static enum err use_run(const struct health_probe *probe, int gpu,
                        struct health_measure *out)
{
    (void)out;
    return probe->gpus->kernels->memory->use(gpu);
}

static void test_late(void)
{
    static const struct {
        const char *name;
        enum ill ill;
        bool at_once;
        enum health_state last;
    } cases[] = {
        { "sleeps", SLEEPS, true, HEALTH_OK },
        { "computes while others answer", SPINS, true, HEALTH_OK },
        { "sleeps in its turn", SLEEPS, false, HEALTH_UNKNOWN },
    };
    struct health_probe probe = small;
    struct health_measure measures[GPUS];
    probe.timeout_s = 2;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ill = cases[i].ill;
        health_probe_each(&probe, GPUS, cases[i].at_once, use_run, measures);
        tap_is_int(measures[0].state, HEALTH_OK, "%s: GPU 0", cases[i].name);
        tap_is_int(measures[1].state, HEALTH_BAD, "%s: GPU 1", cases[i].name);
        tap_is_str(measures[1].code, "GPU_HANG", "%s: code", cases[i].name);
        tap_is_int(measures[2].state, cases[i].last, "%s: GPU 2",
                   cases[i].name);
    }
    ill = SOUND;
}

static enum err spin_run(const struct health_probe *probe, int gpu,
                         struct health_measure *out)
{
    (void)probe;
    for (volatile int i = 0; gpu >= 0; i = (i + 1) % 1000)
        out->gpu = i;
    return ERR_OK;
}

static void test_all_late(void)
{
    struct health_probe probe = small;
    struct health_measure measures[2];
    probe.timeout_s = 0.3;
    health_probe_each(&probe, 2, true, spin_run, measures);
    for (int i = 0; i < 2; i++) {
        tap_is_int(measures[i].state, HEALTH_UNKNOWN,
                   "all compute: the node may be busy");
        tap_is_str(measures[i].code, "TIMEOUT", "so it is a timeout");
    }
}

static enum err nap_run(const struct health_probe *probe, int gpu,
                        struct health_measure *out)
{
    (void)probe;
    clock_sleep(0.1);
    out->values[0] = gpu + 1;
    return ERR_OK;
}

/* Eight naps take longer than the time of one, and each has a turn more. */
static void test_turns(void)
{
    enum { GPUS_MANY = 8 };
    struct health_probe probe = small;
    struct health_measure measures[GPUS_MANY];
    probe.timeout_s = 0.2;
    health_probe_each(&probe, GPUS_MANY, false, nap_run, measures);
    tap_is_str(measures[GPUS_MANY - 1].code, "BUDGET",
               "eight GPUs in the time of two: not all are looked at");
    probe.turn_s = LONG_S;
    health_probe_each(&probe, GPUS_MANY, false, nap_run, measures);
    for (int i = 0; i < GPUS_MANY; i++)
        tap_ok(measures[i].state == HEALTH_OK && measures[i].values[0] == i + 1,
               "GPU %d has its turn", i);
}

static void test_injected(void)
{
    static const struct {
        probe_run *run;
        const char *inject, *code;
    } cases[] = {
        { health_probe_gemm_run, "gpugemm:n7:wrong", "GPUGEMM_WRONG" },
        { health_probe_hbm_run, "hbm:*:wrong", "HBM_WRONG" },
        { health_probe_pcie_run, "pcie:n7:wrong", "PCIE_WRONG" },
        { health_probe_peer_run, "peer:n7:wrong", "PEER_WRONG" },
        { health_probe_allreduce_run, "allreduce:n7:wrong", "ALLREDUCE_WRONG" },
        { health_probe_hbm_run, "hbm:n8:wrong", "" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct health_result result = { .state = HEALTH_OK };
        env.inject = cases[i].inject;
        tap_is_int(cases[i].run(&small, &result), ERR_OK, "%s runs",
                   cases[i].inject);
        tap_is_str(result.code, cases[i].code, "%s: code", cases[i].inject);
        env.inject = NULL;
    }
}

static void test_floors(void)
{
    struct health_limits none = env.limits;
    static const struct {
        probe_run *run;
        const char *code;
    } cases[] = {
        { health_probe_gemm_run, "GPUGEMM_SLOW" },
        { health_probe_hbm_run, "HBM_SLOW" },
        { health_probe_pcie_run, "PCIE_SLOW" },
        { health_probe_peer_run, "PEER_SLOW" },
        { health_probe_allreduce_run, "ALLREDUCE_SLOW" },
    };
    env.limits.gpu_gemm_min_tflops = env.limits.gpu_hbm_min_gbps =
        env.limits.gpu_pcie_min_gbps = env.limits.gpu_peer_min_gbps =
            env.limits.gpu_allreduce_min_gbps = 1e9;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct health_result result = { .state = HEALTH_OK };
        cases[i].run(&small, &result);
        tap_is_int(result.state, HEALTH_BAD, "%s: state", cases[i].code);
        tap_is_str(result.code, cases[i].code, "%s: code", cases[i].code);
        tap_ok(result.retest, "%s: needs a second try", cases[i].code);
        tap_ok(result.limit > 0 && result.value > 0, "%s: numbers",
               cases[i].code);
    }
    env.limits = none;
}

/* --- how speeds are judged --- */

static void test_among(void)
{
    static const struct {
        const char *name;
        double ratio_min;
        int count;
        double values[9];
        enum health_state first;
    } cases[] = {
        { "alone", 0.92, 1, TUPLE(1), HEALTH_OK },
        { "two, equal", 0.92, 2, TUPLE(100, 100), HEALTH_OK },
        { "two, slow", 0.92, 2, TUPLE(50, 100), HEALTH_WARN },
        { "two, a little slow", 0.92, 2, TUPLE(96, 100), HEALTH_OK },
        { "eight, slow", 0.92, 8, TUPLE(91, 100, 100, 100, 101, 99, 100, 100),
          HEALTH_BAD },
        { "eight, somewhat slow", 0.92, 8,
          TUPLE(94, 100, 100, 100, 100, 100, 100, 100), HEALTH_WARN },
        { "eight, spread out", 0.92, 8,
          TUPLE(85, 100, 90, 110, 80, 120, 100, 95), HEALTH_WARN },
        { "seven, slow", 0.92, 7, TUPLE(50, 100, 100, 100, 100, 100, 100),
          HEALTH_WARN },
        { "seven of eight answered", 0.92, 8,
          TUPLE(50, 100, 100, 100, 100, 100, 100, 0), HEALTH_WARN },
        { "fast", 0.92, 8, TUPLE(200, 100, 100, 100, 100, 100, 100, 100),
          HEALTH_OK },
        { "only reported", 0, 8, TUPLE(1, 100, 100, 100, 100, 100, 100, 100),
          HEALTH_OK },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        tap_is_int(health_probe_among(cases[i].values, cases[i].count, 0,
                                      cases[i].ratio_min),
                   cases[i].first, "%s", cases[i].name);
}

static void test_result(void)
{
    struct health_measure measures[3] = {
        { .gpu = 0, .bus = "a", .values = { 80, 100 } },
        { .gpu = 1, .bus = "b", .values = { 100, 100 } },
        { .gpu = 2, .bus = "c", .values = { 102, 100 } },
    };
    struct health_result result = { .state = HEALTH_OK };
    struct health_limits none = env.limits;
    env.limits.gpu_ratio_min = 0.92;
    health_probe_result(&small, "hbm", "GB/s", 0, measures, 3, 1, &result);
    tap_is_int(result.state, HEALTH_OK, "equal speeds");
    health_probe_result(&small, "hbm", "GB/s", 0, measures, 3, 0, &result);
    tap_is_str(result.code, "HBM_SLOW", "one is slow");
    tap_is_int(result.state, HEALTH_WARN, "which three cannot prove");
    tap_is_str(result.text, "GPU 0 a: GB/s 80 unlike others", "by name");
    tap_ok(result.retest && result.value == 80, "to be tested again");
    measures[2].state = HEALTH_BAD;
    snprintf(measures[2].code, sizeof measures[2].code, "HBM_WRONG");
    result = (struct health_result){ .state = HEALTH_OK };
    health_probe_result(&small, "hbm", "GB/s", 0, measures, 3, 0, &result);
    tap_is_str(result.code, "HBM_WRONG", "faults are graver than speeds");
    tap_ok(!result.retest, "and certain");
    measures[2].state = HEALTH_OK;
    measures[0].values[0] = 200;
    result = (struct health_result){ .state = HEALTH_OK };
    env.inject = "hbm:n7:slow";
    health_probe_result(&small, "hbm", "GB/s", 110, measures, 1, 0, &result);
    tap_is_str(result.code, "HBM_SLOW", "an injected slowness");
    env.inject = NULL;
    env.limits = none;
}

/* --- all-reduce --- */

static void test_allreduce(void)
{
    struct health_result result = { .state = HEALTH_OK };
    long long size, count, wrong[2];
    double us[2], algbw[2], busbw[2];
    nccl.alive = 0;
    health_probe_allreduce_run(&small, &result);
    tap_is_int(nccl.alive, 0, "communicators are destroyed");
    const char *row = strstr(result.table, "\n        4096");
    tap_ok(row != NULL, "a row for 4096 bytes");
    int fields =
        row == NULL
            ? 0
            : sscanf(row,
                     "%lld %lld float sum -1 %lf %lf %lf %lld %lf %lf %lf %lld",
                     &size, &count, &us[0], &algbw[0], &busbw[0], &wrong[0],
                     &us[1], &algbw[1], &busbw[1], &wrong[1]);
    tap_is_int(fields, 10, "which nccl-tests' readers can read");
    for (int i = 0; i < 2 && fields == 10; i++) {
        tap_ok(fabs(busbw[i] - algbw[i] * 4 / 3) <= 0.02, "busbw of 3");
        tap_is_int(wrong[i], 0, "nothing is wrong");
    }
    tap_ok(strstr(result.table, "# Out of bounds values : 0 OK\n"
                                "# Avg bus bandwidth    : ") != NULL,
           "their last lines");
    struct health_verdict verdict = { .host = "n7",
                                      .phase = "job",
                                      .count = 1 };
    char *text = NULL;
    size_t bytes;
    verdict.results[0] = result;
    FILE *file = open_memstream(&text, &bytes);
    health_report_print(&verdict, file);
    fclose(file);
    tap_ok(strstr(text, result.table) != NULL, "people see the table");
    free(text);
    nccl.wrong = true;
    result = (struct health_result){ .state = HEALTH_OK };
    health_probe_allreduce_run(&small, &result);
    nccl.wrong = false;
    tap_is_str(result.code, "ALLREDUCE_WRONG", "a wrong sum");
    tap_is_str(result.text, "6 sums are wrong", "in three sizes, both ways");
    tap_ok(strstr(result.table, ": 6 FAILED") != NULL, "and in the table");
    nccl.code = 1;
    result = (struct health_result){ .state = HEALTH_OK };
    tap_is_int(health_probe_allreduce_run(&small, &result), ERR_IO,
               "NCCL that cannot start");
    tap_ok(strstr(err_text(), "unhandled cuda error") != NULL, "%s",
           err_text());
    nccl.code = 0;
}

/* What the driver says under load. */
static void test_load(void)
{
    static const struct {
        const char *fake;
        probe_run *run;
        enum health_state state;
        const char *code, *text;
    } cases[] = {
        { "count=3", health_probe_gemm_run, HEALTH_OK, "", "" },
        { "count=3,throttle=4", health_probe_gemm_run, HEALTH_OK, "", "" },
        { "count=3,throttle=8", health_probe_gemm_run, HEALTH_BAD, "GPU_SLOWED",
          "GPU 1 0000:10:00.0: slowed in " },
        { "count=3,throttle=0x20", health_probe_gemm_run, HEALTH_WARN,
          "GPU_HOT", "GPU 1 0000:10:00.0: slowed in " },
        { "count=3", health_probe_pcie_run, HEALTH_OK, "", "" },
        { "count=3,generation=1", health_probe_pcie_run, HEALTH_BAD,
          "PCIE_LINK", "generation 1 x16 under load, of" },
        { "count=3,width=8", health_probe_pcie_run, HEALTH_BAD, "PCIE_LINK",
          "generation 5 x8 under load" },
        /* the driver knows other GPUs only, or does not work */
        { "count=1", health_probe_gemm_run, HEALTH_OK, "", "" },
        { "init=9", health_probe_pcie_run, HEALTH_OK, "", "" },
    };
    char path[PATH_MAX + 32] = "";
    struct health_probe probe = small;
    if (readlink("/proc/self/exe", path, PATH_MAX) <= 0)
        return;
    dirname(path);
    strcat(path, "/../fake/libnvidia-ml.so.1");
    probe.nvml = path;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct health_result result = { .state = HEALTH_OK };
        setenv("NVML_FAKE", cases[i].fake, 1);
        cases[i].run(&probe, &result);
        tap_is_int(result.state, cases[i].state, "'%s': state", cases[i].fake);
        tap_is_str(result.code, cases[i].code, "'%s': code", cases[i].fake);
        tap_ok(strstr(result.text, cases[i].text) != NULL, "'%s': '%s'",
               cases[i].fake, result.text);
        tap_ok(result.retest == (strcmp(result.code, "PCIE_LINK") == 0),
               "'%s': a bus is looked at again", cases[i].fake);
    }
    struct health_result result = { .state = HEALTH_OK };
    setenv("NVML_FAKE", "count=3", 1);
    health_probe_gemm_run(&probe, &result);
    tap_ok(strstr(result.table, "1980     40     90\n") != NULL,
           "clock, temperature and power are told");
}

static void test_none(void)
{
    struct health_probe probe = small;
    struct cuda_probe none = gpus;
    struct health_result result = { .state = HEALTH_OK };
    none.count = gpu_none;
    probe.gpus = &none;
    tap_is_int(health_probe_gemm_run(&probe, &result), ERR_OK,
               "no GPU to probe");
    tap_is_int(result.state, HEALTH_UNKNOWN, "is not known to be sound");
    tap_is_str(result.text, "no GPU here", "and says why");
    tap_is_int(health_probe_peer_run(&probe, &result), ERR_UNSUPPORTED,
               "nor peers");
}

/* --- as a program, for tests of who runs the probes --- */

#define PROBE_RUN(name)                                                        \
    static enum err name##_here(const struct health_env *e,                    \
                                struct health_result *out)                     \
    {                                                                          \
        (void)e;                                                               \
        return health_probe_##name##_run(&small, out);                         \
    }
PROBE_RUN(gemm)
PROBE_RUN(hbm)
PROBE_RUN(allreduce)

/* Called as tessera-health is: job --words --budget S [--gpus N] --only CHECKS,
 * with ILL in the environment: what GPU 1 suffers from, a number. */
static int probe_program(int argc, char **argv)
{
    static const struct health_check checks[] = {
        { "gpugemm", "probe", HEALTH_JOB, 60, gemm_here, "" },
        { "hbm", "probe", HEALTH_JOB, 60, hbm_here, "" },
        { "allreduce", "probe", HEALTH_JOB, 60, allreduce_here, "" },
    };
    struct health_verdict verdict;
    const char *word = getenv("ILL");
    ill = word != NULL ? (enum ill)atoi(word) : SOUND;
    env.gpus = GPUS;
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], "--only") == 0)
            env.only = argv[i + 1];
    health_run(checks, 3, &env, 60, &verdict);
    json_t *verdicts = health_report_json(&verdict);
    health_report_words(verdicts, stdout);
    json_decref(verdicts);
    return (int)verdict.state;
}

int main(int argc, char **argv)
{
    fixture_begin();
    if (argc > 1)
        return probe_program(argc, argv);
    test_ill();
    test_late();
    test_all_late();
    test_turns();
    test_injected();
    test_floors();
    test_among();
    test_result();
    test_allreduce();
    test_load();
    test_none();
    return tap_done();
}
