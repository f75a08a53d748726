/* tessera-health: is this node fit for a job? It reads options and prints
 * verdicts; the checks are in healthcheck/. See docs/man/tessera-health.1. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "src/base/log.h"
#include "src/base/output.h"
#include "src/cmd/cmd_main.h"
#include "src/cmd/health_args.h"
#ifndef HEALTH_NODE
#include "kernels/kernels.h"
#endif

#define HEALTH_EXIT_USAGE 64
#define HEALTH_EXIT_BUDGET 76

static const char usage_text[] =
    "usage: tessera-health quick|prolog|epilog|job [options]\n"
#ifndef HEALTH_NODE
    "       srun -N4 --ntasks-per-node=1 tessera-health job --pairs ...\n"
#endif
    "       tessera-health --repaired | -h | --help | --version\n"
    "  --json          the verdict as one line of JSON instead of a table\n"
    "  --budget S      seconds that all checks together may take\n"
    "  --gpus N        GPUs that the node must have, unless gpu.count says it\n"
    "  --out FILE      also write the JSON line into FILE (or FILE/HOST.json)\n"
    "  --root DIR      look at the files below DIR, for tests\n"
    "  --config FILE   thresholds (default PREFIX/etc/health.cfg)\n"
    "  --allow-inject  obey TESSERA_INJECT although run by root\n"
    "  --repaired      GPU faults in the kernel's log up to now are settled\n"
    "exit: 0 ok, 1 warn, 2 bad, 3 unknown or --out not written, 64 usage,\n"
    "76 budget exceeded\n";

static void help(void)
{
    fputs(usage_text, stdout);
    puts("\nchecks, and the phases that run them:");
    health_print_checks(stdout);
}

static enum err parse_number(const char *name, const char *text, double max,
                             double *number)
{
    char *end;
    *number = 0;
    if (text == NULL)
        return ERR_OK;
    *number = strtod(text, &end);
    if (end == text || *end != '\0' || !(*number > 0 && *number <= max))
        return err_set(ERR_USAGE,
                       "--%s '%s': give a number above 0, at most %g", name,
                       text, max);
    return ERR_OK;
}

static enum err parse(int argc, char **argv, struct health_args *out)
{
    const char *budget = NULL, *gpus = NULL;
    bool *const flags[] = { &out->json,     &out->pairs, &out->allow_inject,
                            &out->repaired, &out->help,  &out->version };
    const char **const texts[] = { &budget, &gpus, &out->out, &out->root,
                                   &out->config };
    static const struct option options[] = {
        { "json", no_argument, NULL, 0 },
        { "pairs", no_argument, NULL, 1 },
        { "allow-inject", no_argument, NULL, 2 },
        { "repaired", no_argument, NULL, 3 },
        { "help", no_argument, NULL, 4 },
        { "version", no_argument, NULL, 5 },
        { "budget", required_argument, NULL, 6 },
        { "gpus", required_argument, NULL, 7 },
        { "out", required_argument, NULL, 8 },
        { "root", required_argument, NULL, 9 },
        { "config", required_argument, NULL, 10 },
        { NULL, 0, NULL, 0 },
    };
    double count;
    int which;
    *out = (struct health_args){ .root = "" };
    opterr = 0;
    while ((which = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
        if (which == '?')
            return cmd_main_no_option("no option ", argv[optind - 1], options);
        if (which == ':')
            return err_set(ERR_USAGE, "%s needs a value; see --help",
                           argv[optind - 1]);
        if (which == 'h')
            out->help = true;
        else if (which < 6)
            *flags[which] = true;
        else
            *texts[which - 6] = optarg;
    }
    out->phase = argv[optind];
    if (argc - optind > 1)
        return err_set(ERR_USAGE, "too many arguments: '%s'", argv[optind + 1]);
    TRY(parse_number("budget", budget, 86400, &out->budget_s));
    TRY(parse_number("gpus", gpus, 64, &count));
    out->gpus = (int)count;
    return ERR_OK;
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

enum err health_publish(const struct health_args *arguments, json_t *verdicts)
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

static int run_phase(const struct health_args *arguments,
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
    if (health_publish(arguments, health_report_json(&verdict)) != ERR_OK) {
        log_error("%s", err_text());
        return verdict.state == HEALTH_BAD ? HEALTH_BAD : HEALTH_UNKNOWN;
    }
    if (verdict.cut && verdict.state != HEALTH_BAD)
        return HEALTH_EXIT_BUDGET;
    return (int)verdict.state;
}

static int run_repaired(const char *root)
{
    if (health_xid_repaired(root) == ERR_OK)
        return 0;
    log_error("%s", err_text());
    return HEALTH_UNKNOWN;
}

/* What there is to do must be said, once. */
static enum err check_arguments(const struct health_args *arguments,
                                struct health_env *env)
{
#ifdef HEALTH_NODE
    if (arguments->pairs)
        return err_set(ERR_USAGE, "--pairs: this program has no MPI; use "
                                  "tessera-health");
#endif
    if (arguments->phase == NULL && !arguments->pairs && !arguments->repaired)
        return err_set(ERR_USAGE, "give a phase: quick, prolog, epilog or job");
    if (arguments->phase != NULL &&
        !health_phase_parse(arguments->phase, &env->phase))
        return err_set(ERR_USAGE,
                       "no phase '%s': give quick, prolog, epilog or job",
                       arguments->phase);
    return arguments->out != NULL
               ? output_check(arguments->out, &arguments->config, 1)
               : ERR_OK;
}

int main(int argc, char **argv)
{
    struct health_args arguments;
    char host[64];
    struct health_env env = { .host = host, .phase = HEALTH_JOB };
#ifndef HEALTH_NODE
    kernels_wait_passively(argv);
#endif
    log_init("health", -1, LOG_INFO);
    if (parse(argc, argv, &arguments) != ERR_OK)
        goto usage;
    if (arguments.help) {
        help();
        return 0;
    }
    if (arguments.version) {
        puts("tessera " TESSERA_VERSION);
        return 0;
    }
    if (check_arguments(&arguments, &env) != ERR_OK)
        goto usage;
    if (arguments.repaired)
        return run_repaired(arguments.root);
    if ((arguments.config != NULL
             ? health_limits_load(arguments.config, &env.limits)
             : health_limits_default(&env.limits)) != ERR_OK) {
        log_error("%s", err_text());
        return HEALTH_EXIT_USAGE;
    }
    health_host_name(host, sizeof host);
    env.root = arguments.root;
    env.gpus = arguments.gpus;
    env.inject = injection(arguments.allow_inject);
#ifndef HEALTH_NODE
    if (arguments.pairs)
        return health_pairs(&arguments, &env, argc, argv);
#endif
    return run_phase(&arguments, &env);
usage:
    fprintf(stderr, "tessera-health: %s\n%s", err_text(), usage_text);
    return HEALTH_EXIT_USAGE;
}
