/* The runner: runs the checks of a phase, each in a process of its own, and
 * makes a verdict of their results. It trusts no check to end: see health.h.
 *
 * What can be said of a check, from the clearest on:
 *
 *     it wrote a whole result     that is it; an error of the check: unknown
 *     it ended without one        unknown: it crashed
 *     it is late and moves        unknown: the node is busy
 *     it is late and sleeps       bad: what it looks at does not answer
 *     the budget is over          unknown: it was not given its time
 *
 * A measure that is bad, or a short hang, is looked at twice, for one bad
 * moment of a node that computes for others must not drain it. Only what bad
 * luck cannot explain (wrong numbers) is bad the first time. Checks run one
 * after the other: a node is judged by what it does undisturbed. */
#include "healthcheck/health_checks.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "healthcheck/health_child.h"
#include "healthcheck/health_gpu.h"
#include "src/base/clock.h"

#define RUN_RETESTS 2
#define RUN_SKIP_S 0.05 /* with less than this left a check is not begun */
#define RUN_SHORT_S 5.0 /* a hang within less is looked at again */
#define RUN_PAUSE_S 1.0 /* before that */
/* A driver that hangs must show within the phase, and leave time to the others;
 * less than the second is no proof of a hang. */
#define RUN_DRIVER_SHARE 0.5
#define RUN_DRIVER_S 2.0

#define ROW(id, group, phases, timeout_s, run, about)                          \
    { id, group, phases, timeout_s, run, about },
#define NAME(id, group, phases, timeout_s, run, about) id,

static const struct health_check health_checks[] = { HEALTH_CHECK_LIST(ROW)
#ifdef HEALTH_PROBES
                                                         HEALTH_PROBE_LIST(ROW)
#endif
};

#define CHECK_COUNT (sizeof health_checks / sizeof health_checks[0])

/* The names of all builds: one file of thresholds is for all. */
static const char *const health_names[] = { HEALTH_CHECK_LIST(NAME)
                                                HEALTH_PROBE_LIST(NAME) };

static const struct {
    enum health_phase phase;
    const char *name;
    double budget_s;
    double gpu_s; /* more for each GPU that must be there */
} health_phases[] = {
    { HEALTH_QUICK, "quick", 10, 0 },
    { HEALTH_PROLOG, "prolog", 8, 0 },
    { HEALTH_EPILOG, "epilog", 20, 0 },
    { HEALTH_JOB, "job", 90, 10 },
};

#define PHASE_COUNT (sizeof health_phases / sizeof health_phases[0])

const struct health_check *health_table(int *count)
{
    *count = (int)CHECK_COUNT;
    return health_checks;
}

bool health_known(const char *id, size_t length)
{
    for (size_t i = 0; i < sizeof health_names / sizeof *health_names; i++)
        if (strlen(health_names[i]) == length &&
            strncmp(health_names[i], id, length) == 0)
            return true;
    return false;
}

void health_print_checks(FILE *file)
{
    for (size_t i = 0; i < CHECK_COUNT; i++) {
        const struct health_check *check = &health_checks[i];
        fprintf(file, "  %-9s  %-38s", check->id, check->about);
        for (size_t j = 0; j < PHASE_COUNT; j++)
            if ((check->phases & (unsigned)health_phases[j].phase) != 0)
                fprintf(file, " %s", health_phases[j].name);
        fputc('\n', file);
    }
}

static size_t health_phase_index(enum health_phase phase)
{
    size_t i = 0;
    while (i < PHASE_COUNT && health_phases[i].phase != phase)
        i++;
    assert(i < PHASE_COUNT);
    return i;
}

double health_budget_s(const struct health_env *env)
{
    size_t phase = health_phase_index(env->phase);
    return health_phases[phase].budget_s +
           health_phases[phase].gpu_s * health_gpu_expected(env);
}

bool health_phase_parse(const char *text, enum health_phase *out)
{
    for (size_t i = 0; i < PHASE_COUNT; i++) {
        if (strcmp(text, health_phases[i].name) == 0) {
            *out = health_phases[i].phase;
            return true;
        }
    }
    return false;
}

const char *health_state_name(enum health_state state)
{
    static const char *const names[] = { "ok", "warn", "bad", "unknown" };
    assert((unsigned)state < sizeof names / sizeof names[0]);
    return names[state];
}

/* Unknown is graver than a warning: a node of which something is not known gets
 * no job, one that is only worth a look does. */
enum health_state health_worse(enum health_state a, enum health_state b)
{
    static const int gravity[] = { [HEALTH_OK] = 0,
                                   [HEALTH_WARN] = 1,
                                   [HEALTH_UNKNOWN] = 2,
                                   [HEALTH_BAD] = 3 };
    assert((unsigned)a <= HEALTH_UNKNOWN && (unsigned)b <= HEALTH_UNKNOWN);
    return gravity[a] >= gravity[b] ? a : b;
}

bool health_item(const char **list, const char **item, size_t *length)
{
    *list += strspn(*list, ", ");
    if (**list == '\0')
        return false;
    *item = *list;
    *length = strcspn(*list, ", ");
    *list += *length;
    return true;
}

bool health_listed(const char *list, const char *word)
{
    const char *item;
    size_t length;
    while (health_item(&list, &item, &length))
        if (strlen(word) == length && strncmp(item, word, length) == 0)
            return true;
    return false;
}

/* Tests and drills must see every verdict on nodes that are well: each check asks
 * here whether it is to find a fault. */
bool health_injected(const char *inject, const char *kind, const char *name,
                     const char *what)
{
    char exact[256];
    char every[256];
    if (inject == NULL)
        return false;
    snprintf(exact, sizeof exact, "%s:%s:%s", kind, name, what);
    snprintf(every, sizeof every, "%s:*:%s", kind, what);
    return health_listed(inject, exact) || health_listed(inject, every);
}

bool health_drains(const struct health_env *env)
{
    return (env->phase & (HEALTH_PROLOG | HEALTH_EPILOG)) != 0 ||
           (env->phase == HEALTH_QUICK && geteuid() == 0);
}

void health_also(struct health_result *out, enum health_state state,
                 const char *code, const char *format, ...)
{
    size_t used = strlen(out->text);
    va_list arguments;
    if (used > 0)
        used +=
            (size_t)snprintf(out->text + used, sizeof out->text - used, ", ");
    va_start(arguments, format);
    if (used < sizeof out->text)
        vsnprintf(out->text + used, sizeof out->text - used, format, arguments);
    va_end(arguments);
    if (health_worse(out->state, state) == out->state)
        return;
    out->state = state;
    snprintf(out->code, sizeof out->code, "%s", code);
}

/* --- one child --- */

static bool hang_injected(const struct health_env *env,
                          const struct health_check *check)
{
    char word[64];
    const char *const names[] = { check->id, check->group };
    if (env->inject == NULL)
        return false;
    for (size_t i = 0; i < 2; i++) {
        snprintf(word, sizeof word, "hang:%s", names[i]);
        if (health_listed(env->inject, word))
            return true;
    }
    return false;
}

_Noreturn static void child_main(const struct health_check *check,
                                 const struct health_env *env, int fd)
{
    struct health_result result = { .state = HEALTH_OK };
    while (hang_injected(env, check))
        pause();
    if (check->run(env, &result) != ERR_OK)
        health_say(&result, HEALTH_UNKNOWN, "CHECK_FAILED", "%s", err_text());
    health_child_end(fd, &result, sizeof result);
}

static void child_late(const struct health_check *check, pid_t pid, bool cut,
                       struct health_result *out)
{
    char code[24];
    assert(pid > 0); /* others would be killed */
    bool computes = !cut && health_child_moves(pid);
    kill(pid, SIGKILL);
    bool gone = health_child_reap(pid) != -1;
    out->cut = cut;
    if (cut) {
        health_say(out, HEALTH_UNKNOWN, "BUDGET",
                   "not finished within the time budget");
    } else if (computes) {
        health_say(out, HEALTH_UNKNOWN, "TIMEOUT",
                   "still computing at its deadline; is the node busy?");
    } else {
        snprintf(code, sizeof code, "HANG_%s", check->id);
        for (char *p = code; *p != '\0'; p++)
            *p = *p >= 'a' && *p <= 'z' ? (char)(*p - 'a' + 'A') : *p;
        health_say(out, HEALTH_BAD, code, "%s",
                   gone ? "does not answer"
                        : "does not answer and cannot be killed");
        out->retest = check->timeout_s < RUN_SHORT_S;
        snprintf(out->unit, sizeof out->unit, "s");
    }
}

static void child_crashed(int status, struct health_result *out)
{
    if (status != -1 && WIFSIGNALED(status))
        health_say(out, HEALTH_UNKNOWN, "CHECK_DIED",
                   "the check died of signal %d (%s)", WTERMSIG(status),
                   strsignal(WTERMSIG(status)));
    else
        health_say(out, HEALTH_UNKNOWN, "CHECK_DIED",
                   "the check ended without a result");
}

static void run_once(const struct health_check *check,
                     const struct health_env *env, double timeout_s,
                     double end_s, struct health_result *out)
{
    struct health_result result;
    int fd;
    size_t bytes;
    double start = clock_now();
    double deadline = fmin(start + timeout_s, end_s);
    pid_t pid = health_child_start(&fd);
    if (pid == 0)
        child_main(check, env, fd);
    if (pid < 0) {
        health_say(out, HEALTH_UNKNOWN, "NO_FORK", "%s", strerror(errno));
        return;
    }
    if (!health_child_wait(fd, deadline, &result, sizeof result, &bytes)) {
        child_late(check, pid, end_s < start + timeout_s, out);
        if (strncmp(out->code, "HANG_", 5) == 0) {
            out->value = clock_now() - start;
            out->limit = timeout_s;
        }
    } else if (bytes == sizeof result) {
        *out = result;
        health_child_reap(pid);
    } else {
        child_crashed(health_child_reap(pid), out);
    }
    close(fd);
}

/* --- all --- */

/* Again only if it is worth it, and if there is time: what could not be confirmed
 * within the budget is unknown, not bad. */
static void run_check(const struct health_check *check,
                      const struct health_env *env, double budget_s,
                      double end_s, struct health_result *out)
{
    assert(check->timeout_s > 0 && strlen(check->id) < sizeof out->id);
    double start = clock_now(), timeout_s = check->timeout_s;
    int tries = 0;
    if (strcmp(check->group, "gpu") == 0)
        timeout_s =
            fmin(timeout_s, fmax(budget_s * RUN_DRIVER_SHARE, RUN_DRIVER_S));
    do {
        if (tries > 0 && strncmp(out->code, "HANG_", 5) == 0)
            clock_sleep(fmin(RUN_PAUSE_S, fmax(end_s - clock_now(), 0)));
        if (end_s - clock_now() < RUN_SKIP_S) {
            /* What could not be confirmed is not bad. */
            memset(out, 0, sizeof *out);
            out->cut = true;
            health_say(out, HEALTH_UNKNOWN, "BUDGET",
                       "no time left in the budget");
            break;
        }
        memset(out, 0, sizeof *out);
        run_once(check, env, timeout_s, end_s, out);
        tries++;
    } while (out->state != HEALTH_OK && out->retest && tries < RUN_RETESTS);
    snprintf(out->id, sizeof out->id, "%s", check->id);
    out->tries = tries;
    out->dur_s = clock_now() - start;
}

static void verdict_begin(const struct health_env *env,
                          struct health_verdict *out)
{
    const char *job = getenv("SLURM_JOB_ID");
    memset(out, 0, sizeof *out);
    snprintf(out->host, sizeof out->host, "%s", env->host);
    out->phase = health_phases[health_phase_index(env->phase)].name;
    out->job = job != NULL ? strtol(job, NULL, 10) : 0;
    out->t0 = clock_wall();
    health_host_boot_id(env->root, out->boot_id, sizeof out->boot_id);
}

static bool check_applies(const struct health_check *check,
                          const struct health_env *env, int gpus)
{
    bool needs_gpus = health_listed("gpu,xid,probe", check->group);
    return (check->phases & (unsigned)env->phase) != 0 &&
           (gpus > 0 || !needs_gpus) &&
           (env->only == NULL || health_listed(env->only, check->id)) &&
           !health_listed(env->limits.disable, check->id) &&
           !(env->shared && health_listed("gemm triad leftover", check->id));
}

/* A driver that did not answer once would take each other check's time as well,
 * and the time of who wants to do something about it. */
static void not_asked(const struct health_check *check,
                      struct health_result *out)
{
    memset(out, 0, sizeof *out);
    snprintf(out->id, sizeof out->id, "%s", check->id);
    health_say(out, HEALTH_UNKNOWN, "NOT_ASKED",
               "not asked, since the driver does not answer");
}

void health_run(const struct health_check *table, int count,
                const struct health_env *env, double budget_s,
                struct health_verdict *out)
{
    assert(count <= HEALTH_CHECKS_MAX && env->root != NULL);
    double start = clock_now();
    int gpus = health_gpu_expected(env);
    bool driver_hangs = false;
    verdict_begin(env, out);
    for (int i = 0; i < count; i++) {
        if (!check_applies(&table[i], env, gpus))
            continue;
        struct health_result *result = &out->results[out->count++];
        bool driver = health_listed("gpu,probe", table[i].group);
        if (driver && driver_hangs)
            not_asked(&table[i], result);
        else
            run_check(&table[i], env, budget_s, start + budget_s, result);
        driver_hangs |= driver && strncmp(result->code, "HANG_", 5) == 0;
        out->state = health_worse(out->state, result->state);
        out->cut |= result->cut;
    }
    if (out->count == 0)
        out->state = HEALTH_UNKNOWN;
    out->dur_s = clock_now() - start;
    health_report_reason(out);
}
