/* tessera-health: is this node fit for a job? See docs/man/tessera-health.1. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "healthcheck/health.h"
#include "healthcheck/health_pair.h"
#include "kernels/kernels.h"
#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/comm/comm.h"

#define HEALTH_EXIT_USAGE 64
#define HEALTH_EXIT_BUDGET 76
#define HEALTH_PAIRS_BUDGET_S 60.0
#define HEALTH_PAIRS_BYTES ((size_t)8 << 20)

struct arguments {
    bool json, pairs, allow_inject, help;
    double budget_s; /* 0: the phase's own */
    const char *out, *root, *config, *phase;
};

static const char usage_text[] =
    "usage: tessera-health quick|prolog|epilog|job [options]\n"
    "       srun -N4 --ntasks-per-node=1 tessera-health job --pairs ...\n"
    "  --json          the verdict as one line of JSON instead of a table\n"
    "  --budget S      seconds that all checks together may take\n"
    "  --out FILE      also write the JSON line into FILE (or FILE/HOST.json)\n"
    "  --root DIR      look at the files below DIR, for tests\n"
    "  --config FILE   thresholds (default PREFIX/etc/health.cfg)\n"
    "  --allow-inject  obey TESSERA_INJECT although run by root\n"
    "exit: 0 ok, 1 warn, 2 bad, 3 unknown, 64 usage, 76 budget exceeded\n";

static enum err parse_budget(const char *text, double *seconds)
{
    char *end;
    *seconds = 0;
    if (text == NULL)
        return ERR_OK;
    *seconds = strtod(text, &end);
    if (end == text || *end != '\0' || !(*seconds > 0 && *seconds <= 86400))
        return err_set(ERR_USAGE, "--budget '%s': give seconds, more than 0",
                       text);
    return ERR_OK;
}

static enum err parse(int argc, char **argv, struct arguments *out)
{
    const char *budget = NULL;
    bool *const flags[] = { &out->json, &out->pairs, &out->allow_inject,
                            &out->help };
    const char **const texts[] = { &budget, &out->out, &out->root,
                                   &out->config };
    static const struct option options[] = {
        { "json", no_argument, NULL, 0 },
        { "pairs", no_argument, NULL, 1 },
        { "allow-inject", no_argument, NULL, 2 },
        { "help", no_argument, NULL, 3 },
        { "budget", required_argument, NULL, 4 },
        { "out", required_argument, NULL, 5 },
        { "root", required_argument, NULL, 6 },
        { "config", required_argument, NULL, 7 },
        { NULL, 0, NULL, 0 },
    };
    int which;
    *out = (struct arguments){ .root = "" };
    opterr = 0;
    while ((which = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (which == '?')
            return err_set(ERR_USAGE, "unknown or incomplete option '%s'",
                           argv[optind - 1]);
        if (which < 4)
            *flags[which] = true;
        else
            *texts[which - 4] = optarg;
    }
    out->phase = argv[optind];
    if (argc - optind > 1)
        return err_set(ERR_USAGE, "too many arguments: '%s'", argv[optind + 1]);
    return parse_budget(budget, &out->budget_s);
}

static const char *injection(bool allow)
{
    const char *inject = getenv("TESSERA_INJECT");
    if (inject != NULL && geteuid() == 0 && !allow) {
        log_warn("TESSERA_INJECT is ignored for root; see --allow-inject");
        return NULL;
    }
    return inject;
}

/* Prints and stores verdicts; steals them. They are out before a sick shared
 * file system can stop us. */
static enum err publish(const struct arguments *arguments, json_t *verdicts)
{
    enum err rc = ERR_OK;
    fflush(stdout);
    if (verdicts == NULL)
        rc = err_set(ERR_MEMORY, "no memory for the verdict");
    if (rc == ERR_OK && arguments->json)
        rc = health_report_dump(verdicts, stdout);
    if (rc == ERR_OK && arguments->out != NULL)
        rc = health_report_write(verdicts, arguments->out);
    json_decref(verdicts);
    return rc;
}

static int run_phase(const struct arguments *arguments,
                     const struct health_env *env)
{
    struct health_verdict verdict;
    int count;
    double budget_s =
        arguments->budget_s > 0 ? arguments->budget_s : health_budget_s(env);
    const struct health_check *table = health_table(&count);
    health_run(table, count, env, budget_s, &verdict);
    if (!arguments->json)
        health_report_print(&verdict, stdout);
    if (publish(arguments, health_report_json(&verdict)) != ERR_OK)
        log_error("%s", err_text());
    if (verdict.cut && verdict.state != HEALTH_BAD)
        return HEALTH_EXIT_BUDGET;
    return (int)verdict.state;
}

static int run_pairs(const struct arguments *arguments,
                     const struct health_env *env, int argc, char **argv)
{
    enum err rc = ERR_OK;
    enum health_state state = HEALTH_UNKNOWN;
    struct comm *comm = NULL;
    struct health_pairs *pairs = NULL;
    double budget_s =
        arguments->budget_s > 0 ? arguments->budget_s : HEALTH_PAIRS_BUDGET_S;
    struct health_pair_options options = {
        .bytes = HEALTH_PAIRS_BYTES,
        .repeats = 4,
        .timeout_s = budget_s / 4,
        .min_gbps = env->limits.pair_min_gbps,
        .ratio_min = env->limits.pair_ratio_min,
        .inject = env->inject,
    };
    TRY(comm_create("auto", &argc, &argv, budget_s / 4, &comm));
    TRY(health_pair_run(comm, &options, &pairs));
    state = health_pair_state(pairs);
    if (comm_rank(comm) == 0) {
        if (!arguments->json)
            health_pair_print(pairs, stdout);
        TRY(publish(arguments, health_pair_json(pairs)));
    }
out:
    if (rc != ERR_OK)
        log_error("%s", err_text());
    health_pair_destroy(pairs);
    if (rc == ERR_COMM && comm != NULL) {
        /* Let every rank say whom it missed before the first one leaves. */
        clock_sleep(1);
        comm_abort(comm, HEALTH_UNKNOWN);
    }
    comm_destroy(comm);
    return (int)state;
}

int main(int argc, char **argv)
{
    struct arguments arguments;
    char host[64];
    struct health_env env = { .host = host, .phase = HEALTH_JOB };
    kernels_wait_passively(argv);
    log_init("health", -1, LOG_INFO);
    if (parse(argc, argv, &arguments) != ERR_OK)
        goto usage;
    if (arguments.help) {
        fputs(usage_text, stdout);
        return 0;
    }
    if (!arguments.pairs && arguments.phase == NULL) {
        err_set(ERR_USAGE, "give a phase, or --pairs");
        goto usage;
    }
    if (arguments.phase != NULL &&
        !health_phase_parse(arguments.phase, &env.phase)) {
        err_set(ERR_USAGE, "no phase '%s'", arguments.phase);
        goto usage;
    }
    if ((arguments.config != NULL
             ? health_limits_load(arguments.config, &env.limits)
             : health_limits_default(&env.limits)) != ERR_OK) {
        log_error("%s", err_text());
        return HEALTH_EXIT_USAGE;
    }
    health_host_name(host, sizeof host);
    env.root = arguments.root;
    env.inject = injection(arguments.allow_inject);
    return arguments.pairs ? run_pairs(&arguments, &env, argc, argv)
                           : run_phase(&arguments, &env);
usage:
    fprintf(stderr, "tessera-health: %s\n%s", err_text(), usage_text);
    return HEALTH_EXIT_USAGE;
}
