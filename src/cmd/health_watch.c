/* tessera-health watch: the GPUs of a node while a job trains on them. Beside the first
 * rank's parent (jobs/lib/rank.sh), and not in the rank: NVML hangs with its GPU, the
 * kernel's log is long, and neither may hold a step up. Looks are the checks "gpu" and
 * "xid", as between jobs; what was so at the first look is no alert.
 *
 * A fault is a code of a card: another card's is another one, and so is a graver state of
 * it. What is bad at one look and not at the next one is told as a warning, and is fatal
 * when it comes to stay. What only several looks tell is kept in memory, since the files
 * of health_past.h are root's. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "healthcheck/health_gpu.h"
#include "healthcheck/health_past.h"
#include "src/base/array.h"
#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/base/process.h"
#include "src/cmd/health_args.h"
#include "src/job/ledger.h"

#define EVERY_S 10.0
#define LEDGER_S 20    /* a file system that stands keeps nobody from leaving */
#define PATIENCE_S 2.0 /* nor from looking */
#define FINDINGS_MAX 256

struct finding {
    enum health_state state;
    char code[24], text[80];
};

struct watch {
    const struct health_args *arguments;
    const struct health_env *env;
    bool looked;
    struct finding *known; /* with the gravest state that is sure */
    int count, capacity;
};

/* By code and card, behind whose name ("GPU 3: ", "Xid 48 of the GPU at BUS, ") stands what
 * changes from look to look. */
static bool same(const struct finding *a, const struct finding *b)
{
    const char *end =
        strstr(a->text, strncmp(a->text, "GPU ", 4) == 0 ? ": " : ", ");
    size_t card = end != NULL ? (size_t)(end - a->text) + 1 : sizeof a->text;
    return strcmp(a->code, b->code) == 0 &&
           strncmp(a->text, b->text, card) == 0;
}

/* The result of each check, then the other lines of its table. */
static int look(const struct watch *watch, struct finding *out)
{
    struct health_verdict verdict;
    int count, bytes, n = 0;
    char state[8];
    const struct health_check *table = health_table(&count);
    health_run(table, count, watch->env, health_budget_s(watch->env), &verdict);
    for (int i = 0; i < verdict.count && n < FINDINGS_MAX; i++) {
        const struct health_result *result = &verdict.results[i];
        const struct finding *first = &out[n];
        bool unseen = result->state == HEALTH_OK && result->text[0] != '\0';
        out[n].state = unseen ? HEALTH_UNKNOWN : result->state;
        memcpy(out[n].code, result->code, sizeof out[n].code);
        memcpy(out[n++].text, result->text, sizeof out->text);
        for (const char *at = result->table;
             n < FINDINGS_MAX && sscanf(at, "%7s %23s %79[^\n]%n", state,
                                        out[n].code, out[n].text, &bytes) == 3;
             at += bytes + 1) {
            out[n].state = strcmp(state, "bad") == 0    ? HEALTH_BAD
                           : strcmp(state, "warn") == 0 ? HEALTH_WARN
                                                        : HEALTH_UNKNOWN;
            n += !same(&out[n], first);
        }
    }
    return n;
}

/* NULL: no memory, so that it is told again. */
static struct finding *known_of(struct watch *watch,
                                const struct finding *finding)
{
    for (int i = 0; i < watch->count; i++)
        if (same(finding, &watch->known[i]))
            return &watch->known[i];
    if (array_room(&watch->known, &watch->capacity, watch->count + 1) != ERR_OK)
        return NULL;
    struct finding *known = &watch->known[watch->count++];
    *known = *finding;
    known->state = HEALTH_OK;
    return known;
}

/* One bad moment ends no attempt. */
static bool still_bad(const struct watch *watch, const struct finding *finding)
{
    struct finding again[FINDINGS_MAX];
    int count = look(watch, again);
    for (int i = 0; i < count; i++)
        if (again[i].state == HEALTH_BAD && same(finding, &again[i]))
            return true;
    return false;
}

/* What a job may not see is so on all nodes, of which one says it. */
static void tell_unseen(const struct watch *watch,
                        const struct finding *finding)
{
    const char *node = getenv("SLURM_NODEID");
    if (finding->code[0] != '\0')
        log_warn("GPU alerts of %s are not seen: %s: %s", watch->env->host,
                 finding->code, finding->text);
    else if (node == NULL || strcmp(node, "0") == 0)
        log_warn("Xids are not seen: %s; root's prolog and epilog look, and "
                 "jobs may with kernel.dmesg_restrict=0",
                 finding->text);
}

/* Words for who started us (jobs/lib/rank.sh), then for people. A child writes: who
 * waits for our last words does not wait for storage. */
static void tell(const struct watch *watch, const struct finding *finding,
                 bool fatal)
{
    const struct health_args *arguments = watch->arguments;
    printf("%s %s %s\n", fatal ? "fatal" : "alert", finding->code,
           finding->text);
    fflush(stdout);
    log_warn("GPU alert on %s: %s: %s%s", watch->env->host, finding->code,
             finding->text, fatal ? "; the attempt ends" : "");
    pid_t writer = fork();
    if (writer > 0)
        (void)process_reap(writer, fatal ? LEDGER_S : PATIENCE_S);
    if (writer != 0)
        return;
    close(STDOUT_FILENO);
    alarm(LEDGER_S);
    if (ledger_append(arguments->run, "gpu-alert", arguments->attempt,
                      json_pack("{s:s, s:s, s:s, s:b}", "node",
                                watch->env->host, "code", finding->code,
                                "reason", finding->text, "fatal", fatal)) !=
        ERR_OK)
        log_warn("%s", err_text());
    _exit(0);
}

/* True: the GPU is not fit to go on. */
static bool judge(struct watch *watch, const struct finding *finding)
{
    struct finding *known = known_of(watch, finding);
    enum health_state was = known != NULL ? known->state : HEALTH_OK;
    if (health_worse(was, finding->state) == was)
        return false;
    bool bad = finding->state == HEALTH_BAD;
    bool fatal = bad && still_bad(watch, finding);
    if (known != NULL)
        known->state = bad && !fatal ? HEALTH_WARN : finding->state;
    if (finding->state == HEALTH_UNKNOWN)
        tell_unseen(watch, finding);
    else if (watch->looked && (was == HEALTH_OK || fatal))
        tell(watch, finding, fatal);
    return watch->looked && fatal;
}

static bool look_once(struct watch *watch)
{
    struct finding found[FINDINGS_MAX];
    int count = look(watch, found);
    for (int i = 0; i < count; i++)
        if (judge(watch, &found[i]))
            return true;
    watch->looked = true;
    return false;
}

/* The kernel's log tells of other jobs' GPUs, too. */
static const char *checks_of(const struct health_env *env, int gpus)
{
    const char *given = getenv("SLURM_GPUS_ON_NODE");
    int ours = given != NULL ? atoi(given) : 0;
    if (ours <= 0 || ours >= gpus)
        return "gpu,xid";
    log_warn("Xids are not seen: %d of the %d GPUs of %s are not the job's",
             gpus - ours, gpus, env->host);
    return "gpu";
}

int health_watch(const struct health_args *arguments, struct health_env *env)
{
    struct watch watch = { .arguments = arguments, .env = env };
    bool unfit = false;
    pid_t parent = getppid();
    double every_s = arguments->every_s > 0 ? arguments->every_s : EVERY_S;
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    env->phase = HEALTH_QUICK;
    int gpus = health_gpu_expected(env);
    if (gpus == 0)
        return HEALTH_OK;
    env->only = checks_of(env, gpus);
    void *past = mmap(NULL, HEALTH_PAST_BYTES, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    env->past = past != MAP_FAILED ? past : NULL;
    while (getppid() == parent && !(unfit = look_once(&watch)))
        clock_sleep(every_s);
    free(watch.known);
    return unfit ? HEALTH_BAD : HEALTH_OK;
}
