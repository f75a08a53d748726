/* What the checks say of GPUs that a fake NVML shows, of GPUs on a PCI bus made
 * of files, and of a kernel log written down. */
#include "healthcheck/health_checks.h"
#include "healthcheck/health_gpu.h"

#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>

#include "src/base/fsio.h"
#include "tests/tap.h"

#define LONG_S 60.0

static const char *folder;
static char fakes[PATH_MAX + 32];

/* Makes its folders, too. */
static void write_file(const char *name, const char *text)
{
    char path[FSIO_PATH_MAX], parent[FSIO_PATH_MAX];
    snprintf(path, sizeof path, "%.800s/%s", folder, name);
    FILE *file = NULL;
    if (fsio_parent(path, parent) == ERR_OK && fsio_mkdirs(parent) == ERR_OK)
        file = fopen(path, "w");
    if (file == NULL)
        return;
    fputs(text, file);
    fclose(file);
}

static void run_check(enum err (*run)(const struct health_env *,
                                      struct health_result *),
                      const struct health_env *env, struct health_result *out)
{
    struct health_check check = { "probe", "gpu", HEALTH_PROLOG,
                                  LONG_S,  run,   NULL };
    struct health_verdict verdict;
    health_run(&check, 1, env, LONG_S, &verdict);
    *out = verdict.results[0];
}

static struct health_env env_here(void)
{
    struct health_env env = { .root = folder,
                              .host = "n7",
                              .phase = HEALTH_PROLOG };
    health_limits_load(NULL, &env.limits);
    env.limits.gpu_count = 2;
    return env;
}

/* --- states --- */

static void test_states(void)
{
    static const struct {
        const char *fake;
        enum health_state state;
        const char *code, *text;
    } cases[] = {
        { "", HEALTH_OK, "", "" },
        { "count=3", HEALTH_OK, "", "" },
        { "count=1", HEALTH_BAD, "GPU_MISSING", "1 of 2" },
        { "hidden=1", HEALTH_BAD, "GPU_MISSING", "1 of 2" },
        { "lost=1", HEALTH_BAD, "GPU_LOST", "GPU 1 ?: NVML: looking" },
        { "count_code=999", HEALTH_BAD, "GPU_DRIVER", "counting GPUs" },
        { "init=9", HEALTH_BAD, "GPU_DRIVER", "Driver Not Loaded" },
        { "ecc=3", HEALTH_BAD, "GPU_ECC", "GPU 1 0000:10:00.0: 3 uncorr" },
        { "past=3", HEALTH_WARN, "GPU_ECC_PAST", "GPU 1" },
        { "past=3,failed=1", HEALTH_BAD, "GPU_REMAP_FAILED", "replace" },
        { "pending=1", HEALTH_BAD, "GPU_REMAP_PENDING", "reset" },
        { "pages_pending=1", HEALTH_BAD, "GPU_PAGES_PENDING", "reset" },
        { "pages=62", HEALTH_OK, "", "" },
        { "pages=63", HEALTH_BAD, "GPU_PAGES", "63 retired" },
        { "recovery=1", HEALTH_BAD, "GPU_RECOVERY", "asks for a reset" },
        { "recovery=4,ecc=1", HEALTH_BAD, "GPU_RECOVERY", "drain and reset" },
        { "recovery=9", HEALTH_BAD, "GPU_RECOVERY", "asks for a recovery" },
        { "throttle=1", HEALTH_OK, "", "" },
        { "throttle=8", HEALTH_WARN, "GPU_SLOWED", "0x8" },
        { "throttle=0x40", HEALTH_WARN, "GPU_SLOWED", "0x40" },
        { "throttle=0x80", HEALTH_WARN, "GPU_SLOWED", "0x80" },
        { "throttle=0x20,celsius=91", HEALTH_WARN, "GPU_HOT", "91 C" },
        { "generation=1", HEALTH_OK, "", "" },
        { "width=8", HEALTH_WARN, "GPU_PCIE_WIDTH", "x8 of x16" },
        { "links=11", HEALTH_BAD, "GPU_NVLINK", "11 of 12" },
        { "link_errors=4", HEALTH_OK, "", "" },
        { "link_errors=5", HEALTH_WARN, "GPU_NVLINK_ERRORS", "5 errors" },
        { "persistence=0", HEALTH_WARN, "GPU_PERSISTENCE", "persistenced" },
    };
    struct health_env env = env_here();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct health_result result;
        setenv("NVML_FAKE", cases[i].fake, 1);
        run_check(health_gpu_state, &env, &result);
        tap_is_int(result.state, cases[i].state, "'%s': state", cases[i].fake);
        tap_is_str(result.code, cases[i].code, "'%s': code", cases[i].fake);
        tap_ok(strstr(result.text, cases[i].text) != NULL, "'%s': '%s'",
               cases[i].fake, result.text);
    }
}

static void test_settings(void)
{
    struct health_env env = env_here();
    struct health_result result;
    setenv("NVML_FAKE", "", 1);
    env.limits.gpu_nvlinks = 18;
    run_check(health_gpu_state, &env, &result);
    tap_is_str(result.code, "GPU_NVLINK", "12 links where 18 were set");
    env = env_here();
    env.inject = "gpu:n7:lost";
    run_check(health_gpu_state, &env, &result);
    tap_is_str(result.code, "GPU_MISSING", "an injected loss");
    tap_ok(result.value == 1 && result.limit == 2, "with its numbers");
    env = env_here();
    env.phase = HEALTH_JOB;
    setenv("NVML_FAKE", "count=1", 1);
    setenv("SLURM_GPUS_ON_NODE", "1", 1);
    struct health_result here = { .state = HEALTH_OK };
    health_gpu_state(&env, &here);
    tap_is_int(here.state, HEALTH_OK, "a job has the GPUs that it was given");
    setenv("SLURM_GPUS_ON_NODE", "2", 1);
    health_gpu_state(&env, &here);
    tap_is_str(here.code, "GPU_MISSING", "or not");
    unsetenv("SLURM_GPUS_ON_NODE");
    tap_is_int(health_gpu_expected(&env), 2, "without a limit it has all");
    env.gpus = 3;
    tap_is_int(health_gpu_expected(&env), 2, "a threshold is above Slurm");
    env.limits.gpu_count = 0;
    env.phase = HEALTH_PROLOG;
    setenv("NVML_FAKE", "", 1);
    run_check(health_gpu_state, &env, &result);
    tap_is_str(result.code, "GPU_MISSING", "a GPU that only Slurm knows");
    tap_ok(result.value == 2 && result.limit == 3, "is one of three");
    env = env_here();
    env.phase = HEALTH_JOB;
    setenv("CUDA_VISIBLE_DEVICES", "NoDevFiles", 1);
    tap_is_int(health_gpu_expected(&env), 0, "a job without GPUs");
    env.phase = HEALTH_PROLOG;
    tap_is_int(health_gpu_expected(&env), 2, "is not the node");
    unsetenv("CUDA_VISIBLE_DEVICES");
}

static void test_used(void)
{
    static const struct {
        const char *fake, *code;
    } cases[] = {
        { "", "" },
        { "used=2048", "" },
        { "used=2049", "GPU_USED" },
        { "processes=1", "GPU_USED" },
        { "processes=100", "GPU_USED" },
    };
    struct health_env env = env_here();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct health_result result;
        setenv("NVML_FAKE", cases[i].fake, 1);
        run_check(health_gpu_used, &env, &result);
        tap_is_str(result.code, cases[i].code, "'%s': %s", cases[i].fake,
                   result.text);
        tap_is_int(result.state,
                   cases[i].code[0] != '\0' ? HEALTH_WARN : HEALTH_OK,
                   "'%s': state", cases[i].fake);
    }
}

static void test_library(void)
{
    struct health_nvml library;
    struct health_nvml_state state;
    char path[PATH_MAX + 64];
    bool hidden;
    int index;
    setenv("NVML_FAKE", "", 1);
    tap_is_int(health_nvml_open("libtessera-none.so", &library),
               ERR_UNSUPPORTED, "no library");
    tap_is_int(health_nvml_open("libm.so.6", &library), ERR_UNSUPPORTED,
               "a library that is another");
    tap_ok(strstr(err_text(), "lacks nvmlInit_v2") != NULL, "%s", err_text());
    tap_ok(library.opened == NULL, "nothing stays open");
    health_nvml_close(&library);
    snprintf(path, sizeof path, "%s/libnvidia-ml-old.so", fakes);
    tap_is_int(health_nvml_open(path, &library), ERR_OK, "an old driver");
    tap_is_int(health_nvml_look(&library, 1, true, &state, &hidden), ERR_OK,
               "its GPU");
    tap_ok(state.ecc_volatile == -1 && state.links == -1 &&
               state.recovery == -1 && state.pages_retired == -1 &&
               state.persistence == -1 && state.width == -1,
           "does not know much");
    struct health_result result = { .state = HEALTH_OK };
    struct health_env env = env_here();
    health_gpu_judge(&env, &state, 1, &result);
    tap_is_int(result.state, HEALTH_OK, "which is no fault");
    tap_is_int(health_nvml_find(&library, "0000:10:00.0", &index), ERR_OK,
               "a GPU by its address");
    tap_is_int(index, 1, "is the second");
    tap_is_int(health_nvml_find(&library, "0000:11:00.0", &index), ERR_DATA,
               "no GPU there");
    health_nvml_close(&library);
}

/* --- the bus --- */

static void test_bus(void)
{
    static const struct {
        const char *device, *vendor, *class;
    } devices[] = {
        { "0000:0f:00.0", "0x10de\n", "0x030200\n" }, /* GPU */
        { "0000:10:00.0", "0x10de\n", "0x030000\n" }, /* GPU with a display */
        { "0000:11:00.0", "0x10de\n", "0x068000\n" }, /* NVSwitch */
        { "0000:12:00.0", "0x15b3\n", "0x030200\n" }, /* another vendor */
    };
#ifdef KERNELS_CUDA
    int built = 1;
#else
    int built = 0;
#endif
    struct health_env env = env_here();
    struct health_check check = {
        "gpu", "gpu", HEALTH_PROLOG, LONG_S, health_gpu_state, NULL
    };
    struct health_check probe = { "hbm",  "probe",          HEALTH_PROLOG,
                                  LONG_S, health_gpu_state, NULL };
    struct health_verdict verdict;
    env.limits.gpu_count = 0;
    tap_is_int(health_gpu_expected(&env), 0, "no bus, no GPUs");
    health_run(&check, 1, &env, LONG_S, &verdict);
    tap_is_int(verdict.count, 0, "so no check of them");
    health_run(&probe, 1, &env, LONG_S, &verdict);
    tap_is_int(verdict.count, 0, "and no probe");
    for (size_t i = 0; i < sizeof devices / sizeof devices[0]; i++) {
        char name[128];
        snprintf(name, sizeof name, "sys/bus/pci/devices/%s/vendor",
                 devices[i].device);
        write_file(name, devices[i].vendor);
        snprintf(name, sizeof name, "sys/bus/pci/devices/%s/class",
                 devices[i].device);
        write_file(name, devices[i].class);
    }
    tap_is_int(health_gpu_expected(&env), built * 2,
               "GPUs count, if this build uses any");
    setenv("NVML_FAKE", "count=1", 1);
    health_run(&check, 1, &env, LONG_S, &verdict);
    tap_is_str(verdict.code, built ? "GPU_MISSING" : "NO_CHECKS",
               "one of them is missing");
    env.limits.gpu_count = 8;
    tap_is_int(health_gpu_expected(&env), 8, "a number that was set");
    tap_is_int((int64_t)health_budget_s(&env), 8, "a prolog has no more time");
    env.phase = HEALTH_JOB;
    tap_is_int((int64_t)health_budget_s(&env), 90 + 8 * 10,
               "a job's check has, for each of 8 GPUs");
}

/* --- the kernel's log --- */

#define XID(number, bus, second)                                               \
    "4,77," second "000000,-;NVRM: Xid (PCI:" bus "): " number                 \
    ", pid='<unknown>', name=<unknown>\n SUBSYSTEM=pci\n"

#define ACTION(from, to)                                                       \
    ", GPU recovery action changed from 0x" from " (x) to 0x" to " (y)"

/* Whoever repairs a GPU says so: older records do not count any more. */
static void test_repaired(struct health_env *env)
{
    struct health_result result;
    write_file("dev/kmsg", XID("79", "0000:0f:00", "99000"));
    tap_is_int(health_repaired(folder), ERR_OK, "a repair: %s", err_text());
    run_check(health_xid_log, env, &result);
    tap_is_int(result.state, HEALTH_OK, "is believed");
    write_file(
        "dev/kmsg",
        XID("79", "0000:0f:00",
            "99000") "4,78,99001000000,-;NVRM: Xid (PCI:0000:0f:00): 48, x\n");
    run_check(health_xid_log, env, &result);
    tap_ok(strstr(result.text, "Xid 48 ") != NULL, "until the next: '%s'",
           result.text);
    write_file("var/lib/tessera/repaired", "another-boot 1000\n");
    run_check(health_xid_log, env, &result);
    tap_is_str(result.code, "XID", "and not in another boot");
    write_file("var/lib/tessera/repaired", "nonsense");
    run_check(health_xid_log, env, &result);
    tap_is_int(result.state, HEALTH_UNKNOWN, "nonsense is said: '%s'",
               result.text);
}

static void test_log(void)
{
    static const struct {
        const char *log;
        enum health_state state;
        const char *code, *text;
    } cases[] = {
        { "", HEALTH_OK, "", "" },
        { "6,1,0,-;Linux version 6.1.0\n6,2,1,-;Xid 79\n", HEALTH_OK, "", "" },
        { XID("79", "0000:0f:00", "99000"), HEALTH_BAD, "XID",
          "Xid 79 of the GPU at 0000:0f:00" },
        { XID("48", "0000:0f:00", "99000"), HEALTH_BAD, "XID", "48" },
        { XID("79", "0000:0f:00", "13000"), HEALTH_OK, "", "" },
        { XID("31", "0000:0f:00", "99000") XID("43", "0000:0f:00", "99001"),
          HEALTH_OK, "", "" },
        { XID("63", "0000:0f:00", "99000"), HEALTH_WARN, "XID_ONCE", "63" },
        { XID("63", "0000:0f:00", "99000") XID("92", "0000:10:00", "99000"),
          HEALTH_WARN, "XID_ONCE", "63" },
        { XID("63", "0000:0f:00", "99000") XID("92", "0000:0f:00", "99000"),
          HEALTH_BAD, "XID_AGAIN", "92" },
        { XID("94", "0000:0f:00", "99000") XID("119", "0000:10:00", "99000"),
          HEALTH_BAD, "XID", "119" },
        { XID("154" ACTION("0", "1"), "0000:0f:00", "99000"), HEALTH_BAD, "XID",
          "154" },
        { XID("79", "0000:0f:00", "99000")
              XID("154" ACTION("0", "1"), "0000:0f:00", "99001")
                  XID("154" ACTION("1", "0"), "0000:0f:00", "99002"),
          HEALTH_OK, "", "" },
        { XID("154" ACTION("1", "0"), "0000:0f:00", "99002")
              XID("154" ACTION("0", "2"), "0000:0f:00", "99003"),
          HEALTH_BAD, "XID", "154" },
        { XID("79", "0000:10:00", "99000")
              XID("154" ACTION("1", "0"), "0000:0f:00", "99002"),
          HEALTH_BAD, "XID", "79" },
        { XID("94", "0000:0f:00", "99000") XID("94", "0000:0f:00", "99000"),
          HEALTH_WARN, "XID_ONCE", "94" },
        { XID("94", "0000:0f:00", "99000") XID("94", "0000:0f:00", "99060"),
          HEALTH_BAD, "XID_AGAIN", "94" },
        /* one event and its followers */
        { XID("94", "0000:0f:00", "99000") XID("43", "0000:0f:00", "99000")
              XID("94", "0000:0f:00", "99000") XID("43", "0000:0f:00", "99001"),
          HEALTH_WARN, "XID_ONCE", "94" },
        { XID("94", "0000:0f:00", "99000") XID("43", "0000:0f:00", "99005")
              XID("94", "0000:0f:00", "99011"),
          HEALTH_BAD, "XID_AGAIN", "94" },
        /* what a program can cause */
        { XID("68", "0000:0f:00", "99000") XID("69", "0000:0f:00", "99060") XID(
              "68", "0000:0f:00", "99120") XID("109", "0000:0f:00", "99180"),
          HEALTH_OK, "", "" },
        { XID("145", "0000:0f:00", "99000"), HEALTH_WARN, "XID_ONCE", "145" },
        { XID("149", "0000:0f:00", "99000"), HEALTH_WARN, "XID_ONCE", "149" },
        { XID("167", "0000:0f:00", "99000"), HEALTH_BAD, "XID", "167" },
        { XID("171", "0000:0f:00", "99000"), HEALTH_BAD, "XID", "171" },
        /* what a program of root's writes, as facility 1 says */
        { "12,1,99000000000,-;NVRM: Xid (PCI:0000:0f:00): 79, x\n", HEALTH_OK,
          "", "" },
        /* what a user can have the kernel write */
        { "4,1,99000000000,-;process '/tmp/NVRM: Xid (PCI:0000:0f:00): 79,' "
          "started with executable stack\n",
          HEALTH_OK, "", "" },
        { "4,1,99000000000,-;nvidia-nvswitch[7]: segfault at 0 in SXid "
          "(PCI:0000:05:00.0): 19084, Fatal[400000]\n",
          HEALTH_OK, "", "" },
        { "4,1,99000000000,-;nvidia-nvswitch1: SXid (PCI:0000:05:00.0): "
          "19084, Fatal, Link 3\n",
          HEALTH_BAD, "SXID", "19084" },
        { "4,1,99000000000,-;nvidia-nvswitch1: SXid (PCI:0000:05:00.0): "
          "11004, Non-fatal, Link 3\n",
          HEALTH_OK, "", "" },
    };
    struct health_env env = env_here();
    struct health_result result;
    run_check(health_xid_log, &env, &result);
    tap_is_str(result.code, "CHECK_FAILED", "no log");
    write_file("proc/uptime", "100000.25 12345.6\n");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_file("dev/kmsg", cases[i].log);
        run_check(health_xid_log, &env, &result);
        tap_is_int(result.state, cases[i].state, "log %zu: state", i);
        tap_is_str(result.code, cases[i].code, "log %zu: code", i);
        tap_ok(strstr(result.text, cases[i].text) != NULL, "log %zu: '%s'", i,
               result.text);
    }
    env.limits.gpu_xid_hours = 30;
    write_file("dev/kmsg", XID("79", "0000:0f:00", "13000"));
    run_check(health_xid_log, &env, &result);
    tap_is_str(result.code, "XID", "an old one, where old ones count");
    env = env_here();
    snprintf(env.limits.gpu_xid_fatal, sizeof env.limits.gpu_xid_fatal,
             "7, 31");
    write_file("dev/kmsg", XID("31", "0000:0f:00", "99000"));
    run_check(health_xid_log, &env, &result);
    tap_is_str(result.code, "XID", "numbers that were set");
    env = env_here();
    test_repaired(&env);
}

int main(void)
{
    char self[PATH_MAX] = "", path[PATH_MAX + 64];
    if (readlink("/proc/self/exe", self, sizeof self - 1) <= 0)
        return 1;
    snprintf(fakes, sizeof fakes, "%s/../fake", dirname(self));
    /* Once it is loaded, its name finds it wherever it lies. */
    snprintf(path, sizeof path, "%s/libnvidia-ml.so.1", fakes);
    if (dlopen(path, RTLD_NOW | RTLD_LOCAL) == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    folder = tap_folder();
    unsetenv("SLURM_GPUS_ON_NODE");
    unsetenv("CUDA_VISIBLE_DEVICES");
    test_states();
    test_settings();
    test_used();
    test_library();
    test_bus();
    test_log();
    return tap_done();
}
