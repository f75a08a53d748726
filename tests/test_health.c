/* The runner with checks that misbehave in every way, and the built-in checks
 * on recorded machines and on small file systems of their own. */
#include "healthcheck/health_checks.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "src/base/clock.h"
#include "src/base/fsio.h"
#include "tests/tap.h"

/* Far more than any check here needs, and far less than "for ever". */
#define LONG_S 60.0

static const char *folder;
static int pipe_of_parent[2];

/* --- checks that misbehave --- */

static enum err run_fine(const struct health_env *env,
                         struct health_result *out)
{
    (void)env;
    out->value = 42;
    snprintf(out->unit, sizeof out->unit, "apples");
    return ERR_OK;
}

static enum err run_sleep(const struct health_env *env,
                          struct health_result *out)
{
    (void)env;
    (void)out;
    signal(SIGTERM, SIG_IGN);
    while (getpid() > 0)
        pause();
    return ERR_OK;
}

static enum err run_spin(const struct health_env *env,
                         struct health_result *out)
{
    (void)env;
    for (volatile int i = 0; i >= 0; i = (i + 1) % 1000)
        out->value = i;
    return ERR_OK;
}

/* Asleep at nearly any time, and not hanging. */
static enum err run_by_bits(const struct health_env *env,
                            struct health_result *out)
{
    (void)env;
    while (out->value >= 0) {
        double end_s = clock_now() + 0.003;
        clock_sleep(0.012);
        while (clock_now() < end_s + 0.012)
            out->value += 1;
    }
    return ERR_OK;
}

static enum err run_die(const struct health_env *env, struct health_result *out)
{
    (void)env;
    (void)out;
    raise(SIGKILL);
    return ERR_OK;
}

static enum err run_leave(const struct health_env *env,
                          struct health_result *out)
{
    (void)env;
    (void)out;
    _exit(0);
}

static enum err run_fail(const struct health_env *env,
                         struct health_result *out)
{
    (void)env;
    (void)out;
    return err_set(ERR_IO, "the \"sensor\" has no answer");
}

static enum err run_warn(const struct health_env *env,
                         struct health_result *out)
{
    (void)env;
    out->state = HEALTH_WARN;
    snprintf(out->code, sizeof out->code, "WARM");
    return ERR_OK;
}

static enum err run_bad(const struct health_env *env, struct health_result *out)
{
    (void)env;
    out->state = HEALTH_BAD;
    out->value = 1.5;
    out->limit = 3;
    snprintf(out->unit, sizeof out->unit, "GB");
    snprintf(out->code, sizeof out->code, "TOO_SMALL");
    return ERR_OK;
}

static enum err run_slow(const struct health_env *env,
                         struct health_result *out)
{
    out->retest = true;
    return run_bad(env, out);
}

/* Slow the first time only: a file remembers. */
static enum err run_glitch(const struct health_env *env,
                           struct health_result *out)
{
    int fd = open(env->root, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    return fd < 0 ? run_fine(env, out) : run_slow(env, out);
}

/* Hangs the first time only. */
static enum err run_freeze(const struct health_env *env,
                           struct health_result *out)
{
    char path[FSIO_PATH_MAX];
    snprintf(path, sizeof path, "%.900s.freeze", env->root);
    int fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    return fd < 0 ? run_fine(env, out) : run_sleep(env, out);
}

static enum err run_descriptors(const struct health_env *env,
                                struct health_result *out)
{
    (void)env;
    out->value = (fcntl(pipe_of_parent[0], F_GETFD) != -1) +
                 (fcntl(pipe_of_parent[1], F_GETFD) != -1);
    if (write(STDOUT_FILENO, "not ok - a check wrote to our output\n", 37) !=
        37)
        out->value += 100;
    return ERR_OK;
}

static void run_table(const struct health_check *table, int count,
                      const char *root, double budget_s,
                      struct health_verdict *out)
{
    struct health_env env = { .root = root,
                              .host = "n7",
                              .phase = HEALTH_PROLOG };
    health_run(table, count, &env, budget_s, out);
}

static void test_one_check(void)
{
    static const struct {
        const char *name;
        enum err (*run)(const struct health_env *, struct health_result *);
        double timeout_s;
        enum health_state state;
        const char *code;
        int tries;
    } cases[] = {
        { "fine", run_fine, LONG_S, HEALTH_OK, "", 1 },
        { "warns", run_warn, LONG_S, HEALTH_WARN, "WARM", 1 },
        { "bad", run_bad, LONG_S, HEALTH_BAD, "TOO_SMALL", 1 },
        { "slow twice", run_slow, LONG_S, HEALTH_BAD, "TOO_SMALL", 2 },
        { "slow once", run_glitch, LONG_S, HEALTH_OK, "", 2 },
        { "hangs", run_sleep, 0.3, HEALTH_BAD, "HANG_PROBE", 2 },
        { "hangs long", run_sleep, 5, HEALTH_BAD, "HANG_PROBE", 1 },
        { "stands still once", run_freeze, 0.3, HEALTH_OK, "", 2 },
        { "computes too long", run_spin, 0.3, HEALTH_UNKNOWN, "TIMEOUT", 1 },
        { "computes by bits", run_by_bits, 0.3, HEALTH_UNKNOWN, "TIMEOUT", 1 },
        { "dies", run_die, LONG_S, HEALTH_UNKNOWN, "CHECK_DIED", 1 },
        { "leaves early", run_leave, LONG_S, HEALTH_UNKNOWN, "CHECK_DIED", 1 },
        { "fails", run_fail, LONG_S, HEALTH_UNKNOWN, "CHECK_FAILED", 1 },
    };
    char mark[FSIO_PATH_MAX];
    snprintf(mark, sizeof mark, "%.900s/mark", folder);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct health_check check = { "probe",       "test",
                                      HEALTH_PROLOG, cases[i].timeout_s,
                                      cases[i].run,  NULL };
        struct health_verdict verdict;
        run_table(&check, 1, mark, LONG_S, &verdict);
        tap_is_int(verdict.state, cases[i].state, "%s: state", cases[i].name);
        tap_is_str(verdict.code, cases[i].code, "%s: code", cases[i].name);
        tap_is_int(verdict.results[0].tries, cases[i].tries, "%s: tries",
                   cases[i].name);
        bool prefixed =
            strncmp(verdict.reason, HEALTH_PREFIX, strlen(HEALTH_PREFIX)) == 0;
        tap_ok(prefixed == (cases[i].state != HEALTH_OK), "%s: reason '%s'",
               cases[i].name, verdict.reason);
        tap_ok(strpbrk(verdict.reason, "\n\"") == NULL, "%s: a plain reason",
               cases[i].name);
        tap_ok(!verdict.cut, "%s: not cut by the budget", cases[i].name);
    }
}

static void test_isolation(void)
{
    struct health_check check = { "fds",  "test",          HEALTH_PROLOG,
                                  LONG_S, run_descriptors, NULL };
    struct health_verdict verdict;
    int low[2];
    if (pipe(low) != 0)
        return;
    /* the check's own pipe has one of the low numbers */
    for (int i = 0; i < 2; i++)
        pipe_of_parent[i] = fcntl(low[i], F_DUPFD, 40);
    run_table(&check, 1, "", LONG_S, &verdict);
    tap_is_int((int)verdict.results[0].value, 0,
               "a check has none of our descriptors");
    for (int i = 0; i < 2; i++) {
        close(pipe_of_parent[i]);
        close(low[i]);
    }
}

static void test_clean(void)
{
    char text[400];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    text[1] = '\n';
    text[2] = '"';
    text[3] = (char)0xe4;
    health_report_clean(text);
    tap_is_int((long long)strlen(text), HEALTH_REASON_MAX, "a reason is cut");
    tap_ok(strncmp(text, "x???x", 5) == 0, "and printable");
}

static void test_budget(void)
{
    static const struct health_check table[] = {
        { "first", "test", HEALTH_PROLOG, LONG_S, run_fine, NULL },
        { "hangs", "test", HEALTH_PROLOG, 1000 * LONG_S, run_sleep, NULL },
        { "last", "test", HEALTH_PROLOG, LONG_S, run_fine, NULL },
    };
    struct health_verdict verdict;
    run_table(table, 3, "", 0.5, &verdict);
    tap_is_int(verdict.count, 3, "every check has a result");
    tap_is_int(verdict.results[0].state, HEALTH_OK, "the first fits");
    tap_is_str(verdict.results[1].code, "BUDGET", "the second is cut");
    tap_is_str(verdict.results[2].code, "BUDGET", "the third is not begun");
    tap_is_int(verdict.results[2].tries, 0, "not even once");
    tap_ok(verdict.cut, "the verdict says so");
    tap_is_int(verdict.state, HEALTH_UNKNOWN, "a cut check proves nothing");
}

static void test_many(void)
{
    static const struct health_check table[] = {
        { "fine", "test", HEALTH_PROLOG, LONG_S, run_fine, NULL },
        { "warn", "test", HEALTH_PROLOG, LONG_S, run_warn, NULL },
        { "fail", "test", HEALTH_PROLOG, LONG_S, run_fail, NULL },
        { "bad", "test", HEALTH_PROLOG, LONG_S, run_bad, NULL },
        { "other", "test", HEALTH_JOB, LONG_S, run_bad, NULL },
    };
    struct health_verdict verdict;
    run_table(table, 3, "", LONG_S, &verdict);
    tap_is_int(verdict.state, HEALTH_UNKNOWN, "unknown is graver than warn");
    run_table(table, 5, "", LONG_S, &verdict);
    tap_is_int(verdict.state, HEALTH_BAD, "bad is gravest");
    tap_is_int(verdict.count, 4, "checks of other phases do not run");
    tap_is_str(verdict.reason, "tessera: TOO_SMALL bad 1.5GB/3 job=0",
               "the reason names code, check, value and limit");

    json_t *list = health_report_json(&verdict);
    json_t *object = json_array_get(list, 0);
    tap_is_str(json_string_value(json_object_get(object, "schema")),
               "tessera-health/1", "schema");
    tap_is_str(json_string_value(json_object_get(object, "action")), "drain",
               "action");
    tap_is_str(json_string_value(json_object_get(object, "host")), "n7",
               "host");
    json_t *checks = json_object_get(object, "checks");
    tap_is_int((long long)json_array_size(checks), 4, "results in JSON");
    tap_is_str(
        json_string_value(json_object_get(json_array_get(checks, 2), "text")),
        "the \"sensor\" has no answer", "a text survives JSON");
    tap_is_int(health_report_write(list, folder), ERR_OK,
               "write into a folder");
    json_decref(list);
    char path[FSIO_PATH_MAX];
    snprintf(path, sizeof path, "%.900s/n7.json", folder);
    object = json_load_file(path, 0, NULL);
    tap_is_str(json_string_value(json_object_get(object, "verdict")), "bad",
               "the file holds the verdict");
    json_decref(object);

    struct health_env env = { .root = "",
                              .host = "n7",
                              .phase = HEALTH_PROLOG,
                              .limits.disable = "warn, fail,bad" };
    health_run(table, 5, &env, LONG_S, &verdict);
    tap_is_int(verdict.state, HEALTH_OK, "disabled checks do not run");
    tap_is_int(verdict.count, 1, "only one is left");
    health_run(table, 0, &env, LONG_S, &verdict);
    tap_is_int(verdict.state, HEALTH_UNKNOWN, "no checks, no verdict");
}

/* --- the built-in checks --- */

/* Runs one built-in check; false: there is none. */
static bool run_builtin(const char *id, const char *root, const char *inject,
                        const struct health_limits *limits,
                        struct health_result *out)
{
    int count;
    const struct health_check *table = health_table(&count);
    struct health_env env = { .root = root,
                              .host = "n7",
                              .phase = HEALTH_PROLOG,
                              .limits = *limits,
                              .inject = inject };
    struct health_verdict verdict;
    for (int i = 0; i < count; i++) {
        struct health_check check = table[i];
        if (strcmp(check.id, id) != 0)
            continue;
        check.phases = HEALTH_PROLOG;
        if (inject == NULL || strstr(inject, "hang") == NULL)
            check.timeout_s = LONG_S;
        health_run(&check, 1, &env, LONG_S, &verdict);
        *out = verdict.results[0];
        return true;
    }
    return false;
}

static void test_machines(void)
{
    static const struct {
        const char *root, *id;
        double value;
        enum health_state state;
        const char *code;
    } cases[] = {
        { "tests/machines/busy", "load", 97.5, HEALTH_OK, "" },
        { "tests/machines/busy", "memory", 512, HEALTH_WARN, "MEMORY_LOW" },
        { "tests/machines/busy", "blocked", 2, HEALTH_OK, "" },
        { "tests/machines/busy", "zombies", 1, HEALTH_OK, "" },
        { "tests/machines/broken", "load", 0, HEALTH_UNKNOWN, "CHECK_FAILED" },
        { "tests/machines/broken", "memory", 0, HEALTH_UNKNOWN,
          "CHECK_FAILED" },
        { "tests/machines/broken", "blocked", 0, HEALTH_OK, "" },
        { "tests/machines/none", "blocked", 0, HEALTH_UNKNOWN, "CHECK_FAILED" },
        { "tests/machines/none", "load", 0, HEALTH_UNKNOWN, "CHECK_FAILED" },
    };
    struct health_limits limits;
    char boot_id[64];
    health_limits_load(NULL, &limits);
    limits.memory_available_min_mib = 1024;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct health_result result;
        if (!run_builtin(cases[i].id, cases[i].root, NULL, &limits, &result))
            continue;
        tap_is_close(result.value, cases[i].value, 1e-9, "%s %s: value",
                     cases[i].root, cases[i].id);
        tap_is_int(result.state, cases[i].state, "%s %s: state", cases[i].root,
                   cases[i].id);
        tap_is_str(result.code, cases[i].code, "%s %s: code", cases[i].root,
                   cases[i].id);
    }
    health_host_boot_id("tests/machines/busy", boot_id, sizeof boot_id);
    tap_is_str(boot_id, "2f0c6f6e-91c1-4f6e-9d6a-0d6f5f0f7a11", "boot id");
    health_host_boot_id("tests/machines/none", boot_id, sizeof boot_id);
    tap_is_str(boot_id, "unknown", "no boot id");
}

static void test_injection(void)
{
    static const struct {
        const char *inject, *id;
        enum health_state state;
        const char *code;
    } cases[] = {
        { NULL, "gemm", HEALTH_OK, "" },
        { NULL, "triad", HEALTH_OK, "" },
        { "gemm:n7:wrong", "gemm", HEALTH_BAD, "GEMM_WRONG" },
        { "shm:n8:full,gemm:*:wrong", "gemm", HEALTH_BAD, "GEMM_WRONG" },
        { "gemm:n8:wrong", "gemm", HEALTH_OK, "" },
        { "shm:n7:full", "shm", HEALTH_BAD, "SHM_FULL" },
        { "tmp:n7:full", "tmp", HEALTH_BAD, "TMP_FULL" },
        { "hang:fs", "tmp", HEALTH_BAD, "HANG_TMP" },
        { "hang:shm", "shm", HEALTH_BAD, "HANG_SHM" },
        { "hang:fs", "load", HEALTH_OK, "" },
    };
    struct health_limits limits;
    health_limits_load(NULL, &limits);
    limits.shm_free_min_mib = limits.tmp_free_min_mib = 0.001;
    limits.gemm_peak_ratio_min = 0; /* sanitizers are slow */
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct health_result result = { .state = HEALTH_UNKNOWN };
        run_builtin(cases[i].id, "", cases[i].inject, &limits, &result);
        const char *inject = cases[i].inject ? cases[i].inject : "nothing";
        tap_is_int(result.state, cases[i].state, "%s, %s: state", inject,
                   cases[i].id);
        tap_is_str(result.code, cases[i].code, "%s, %s: code", inject,
                   cases[i].id);
    }
    struct health_result result;
    limits.gemm_min_gflops = 1e9;
    run_builtin("gemm", "", NULL, &limits, &result);
    tap_is_str(result.code, "GEMM_SLOW", "below a floor that was set");
    tap_is_int(result.tries, 2, "speeds are tested twice");
    tap_ok(result.value > 0, "the speed is reported");
    tap_ok(result.peak_ratio > 0 && result.peak_ratio < 1.2,
           "products reach %.2f of the peak", result.peak_ratio);
    limits.gemm_min_gflops = 0;
    limits.gemm_peak_ratio_min = 1.2; /* a busy machine may count above 1 */
    run_builtin("gemm", "", NULL, &limits, &result);
    tap_is_str(result.code, "GEMM_BELOW_PEAK", "%s", result.text);
    tap_is_int(result.state, HEALTH_WARN, "which is never bad");
    tap_is_int(result.tries, 2, "and is tested twice");
}

/* In a folder of `owner`: files of that many bytes, with two names each. */
static void fill(const char *path, uid_t owner, int files, size_t bytes)
{
    char name[FSIO_PATH_MAX], link_name[FSIO_PATH_MAX];
    char *zeros = calloc(1, bytes + 1);
    snprintf(name, sizeof name, "%.900s/%d", path, (int)owner);
    if (mkdir(name, 0700) != 0 || chown(name, owner, owner) != 0)
        files = 0;
    for (int i = 0; i < files && zeros != NULL; i++) {
        snprintf(name, sizeof name, "%.900s/%d/%d", path, (int)owner, i);
        snprintf(link_name, sizeof link_name, "%.1000s.too", name);
        int fd = open(name, O_CREAT | O_WRONLY, 0600);
        tap_ok(write(fd, zeros, bytes) == (ssize_t)bytes &&
                   fchown(fd, owner, owner) == 0 && link(name, link_name) == 0,
               "file %d of user %d", i, (int)owner);
        close(fd);
    }
    free(zeros);
}

static void test_file_systems(void)
{
    static const struct {
        const char *name, *options;
        unsigned long flags;
        uid_t owner; /* of files */
        int files;
        size_t bytes;
        enum health_state state;
        const char *code;
    } cases[] = {
        { "large enough", "size=64m", 0, 0, 0, 0, HEALTH_OK, "" },
        { "too small", "size=16m", 0, 0, 0, 0, HEALTH_BAD, "SHM_FULL" },
        { "few inodes", "size=64m,nr_inodes=20", 0, 0, 0, 0, HEALTH_BAD,
          "SHM_INODES" },
        { "read-only", "size=64m", MS_RDONLY, 0, 0, 0, HEALTH_BAD,
          "SHM_WRITE" },
        { "a user's", "size=40m", 0, 60011, 1, 9 << 20, HEALTH_WARN,
          "SHM_USED" },
        { "root's", "size=40m", 0, 0, 1, 9 << 20, HEALTH_BAD, "SHM_FULL" },
        { "root's, but little", "size=64m", 0, 0, 1, 9 << 20, HEALTH_OK, "" },
        { "many files of a user", "size=64m,nr_inodes=80", 0, 60011, 20, 1,
          HEALTH_WARN, "SHM_USED" },
        { "many files of root", "size=64m,nr_inodes=80", 0, 0, 20, 1,
          HEALTH_BAD, "SHM_INODES" },
    };
    char path[FSIO_PATH_MAX];
    struct health_limits limits;
    struct health_result result = { .state = HEALTH_OK };
    health_limits_load(NULL, &limits);
    run_builtin("shm", folder, NULL, &limits, &result);
    tap_is_str(result.code, "SHM_MISSING", "no /dev/shm");
    snprintf(path, sizeof path, "%.900s/dev/shm", folder);
    fsio_mkdirs(path);
    /* A mount namespace of our own: mounts end with this process. */
    if (unshare(CLONE_NEWNS) != 0 ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) {
        tap_skip("file systems of known size: mounting needs root");
        return;
    }
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (mount("tessera", path, "tmpfs", cases[i].flags, cases[i].options) !=
            0) {
            tap_skip("%s: cannot mount a tmpfs", cases[i].name);
            continue;
        }
        fill(path, cases[i].owner, cases[i].files, cases[i].bytes);
        run_builtin("shm", folder, NULL, &limits, &result);
        tap_is_int(result.state, cases[i].state, "%s: state", cases[i].name);
        tap_is_str(result.code, cases[i].code, "%s: code", cases[i].name);
        tap_note("%s: %s", cases[i].name, result.text);
        struct health_env job = {
            .root = folder, .host = "n7", .phase = HEALTH_JOB, .limits = limits
        };
        struct health_result of_job = { .state = HEALTH_OK };
        health_fs_shm(&job, &of_job);
        tap_ok((of_job.state == HEALTH_OK) == (cases[i].state == HEALTH_OK) &&
                   of_job.state != HEALTH_WARN,
               "%s: a job cannot use it", cases[i].name);
        umount(path);
    }
}

static void test_limits(void)
{
    struct health_limits limits;
    char path[FSIO_PATH_MAX];
    tap_is_int(health_limits_load(NULL, &limits), ERR_OK, "default limits");
    tap_ok(limits.shm_free_min_mib == 32 && limits.tmp_free_min_mib == 64 &&
               limits.gemm_min_gflops == 0 && limits.triad_min_gbps == 0 &&
               limits.gemm_peak_ratio_min == 0.5,
           "floors for space, none for speed, half of the peak");
    snprintf(path, sizeof path, "%.900s/health.cfg", folder);
    FILE *file = fopen(path, "w");
    fputs("shm: { free_min_mib = 5; };\ngemm: { min_gflops = 1.5; };\n"
          "disable = \"triad\";\n",
          file);
    fclose(file);
    tap_is_int(health_limits_load(path, &limits), ERR_OK, "limits of a file");
    tap_ok(limits.shm_free_min_mib == 5 && limits.gemm_min_gflops == 1.5,
           "values of a file");
    tap_is_str(limits.disable, "triad", "disabled checks");
    file = fopen(path, "w");
    fputs("gemm: { min_gflop = 1.5; };\n", file);
    fclose(file);
    tap_is_int(health_limits_load(path, &limits), ERR_USAGE,
               "a misspelt threshold");
    file = fopen(path, "w");
    fputs("disable = \"triad,gem\";\n", file);
    fclose(file);
    tap_is_int(health_limits_load(path, &limits), ERR_USAGE,
               "a misspelt check: %s", err_text());
}

int main(void)
{
    folder = tap_folder();
    unsetenv("SLURM_JOB_ID");
    test_one_check();
    test_isolation();
    test_clean();
    test_budget();
    test_many();
    test_machines();
    test_injection();
    test_limits();
    test_file_systems();
    return tap_done();
}
