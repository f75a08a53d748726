/* tessera-health watch: the GPUs of a node while a job trains on them. Beside the first
 * rank's parent (jobs/lib/rank.sh), and not in the rank: NVML hangs with its GPU, the
 * kernel's log is long, and neither may hold a step up. Looks are the checks "gpu" and
 * "xid", as between jobs; what was so at the first look is no alert. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "healthcheck/health_gpu.h"
#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/cmd/health_args.h"
#include "src/job/ledger.h"

#define EVERY_S 10.0
#define LEDGER_S 20 /* a file system that stands keeps nobody from leaving */
#define TOLD_MAX 32

struct watch {
    const struct health_args *arguments;
    const struct health_env *env;
    int told_count;
    char told[TOLD_MAX][sizeof((struct health_result *)NULL)->code];
};

static void look(const struct health_env *env, struct health_verdict *out)
{
    int count;
    const struct health_check *table = health_table(&count);
    health_run(table, count, env, health_budget_s(env), out);
}

/* Each code once: a card that is slowed now and then is one alert. */
static bool is_new(struct watch *watch, const struct health_result *result)
{
    if (result->state != HEALTH_WARN && result->state != HEALTH_BAD)
        return false;
    for (int i = 0; i < watch->told_count; i++)
        if (strcmp(watch->told[i], result->code) == 0)
            return false;
    if (watch->told_count == TOLD_MAX)
        return false;
    memcpy(watch->told[watch->told_count++], result->code, sizeof result->code);
    return true;
}

/* One bad moment ends no attempt. */
static bool still_bad(const struct watch *watch,
                      const struct health_result *result)
{
    struct health_verdict again;
    look(watch->env, &again);
    for (int i = 0; i < again.count; i++)
        if (strcmp(again.results[i].id, result->id) == 0 &&
            again.results[i].state == HEALTH_BAD)
            return true;
    return false;
}

/* Words for whoever ends the attempt first, then for people. */
static void tell(const struct watch *watch, const struct health_result *result,
                 bool fatal)
{
    const struct health_args *arguments = watch->arguments;
    if (fatal) {
        printf("%s %s\n", result->code, result->text);
        fflush(stdout);
    }
    log_warn("GPU alert on %s: %s: %s%s", watch->env->host, result->code,
             result->text, fatal ? "; the attempt ends" : "");
    alarm(LEDGER_S);
    if (ledger_append(arguments->run, "gpu-alert", arguments->attempt,
                      json_pack("{s:s, s:s, s:s, s:b}", "node",
                                watch->env->host, "code", result->code,
                                "reason", result->text, "fatal", fatal)) !=
        ERR_OK)
        log_warn("%s", err_text());
    alarm(0);
}

/* True: a GPU is not fit to go on. */
static bool judge(struct watch *watch, const struct health_verdict *verdict,
                  bool first)
{
    for (int i = 0; i < verdict->count; i++) {
        const struct health_result *result = &verdict->results[i];
        if (!is_new(watch, result) || first)
            continue;
        bool fatal = result->state == HEALTH_BAD && still_bad(watch, result);
        tell(watch, result, fatal);
        if (fatal)
            return true;
    }
    return false;
}

/* The kernel's log tells of other jobs' GPUs, too. */
static const char *checks_of(int gpus)
{
    const char *given = getenv("SLURM_GPUS_ON_NODE");
    int ours = given != NULL ? atoi(given) : 0;
    return ours > 0 && ours < gpus ? "gpu" : "gpu,xid";
}

int health_watch(const struct health_args *arguments, struct health_env *env)
{
    struct watch watch = { .arguments = arguments, .env = env };
    struct health_verdict verdict;
    pid_t parent = getppid();
    double every_s = arguments->every_s > 0 ? arguments->every_s : EVERY_S;
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    env->phase = HEALTH_QUICK;
    int gpus = health_gpu_expected(env);
    if (gpus == 0)
        return HEALTH_OK;
    env->only = checks_of(gpus);
    look(env, &verdict);
    (void)judge(&watch, &verdict, true);
    while (getppid() == parent) {
        clock_sleep(every_s);
        look(env, &verdict);
        if (judge(&watch, &verdict, false))
            return HEALTH_BAD;
    }
    return HEALTH_OK;
}
