/* tessera-health: is this node fit for a job? It reads options and prints
 * verdicts; the checks are in healthcheck/. See docs/man/tessera-health.1. A bad
 * verdict counts more than any trouble in telling it: a node that is sick and cannot
 * write its file ends as sick.
 *
 * The file is compiled twice. With HEALTH_NODE it is the program that Slurm's prolog
 * and epilog run as root, before anything of a job is there: it must start on a node
 * without MPI and without the shared file system, so it links neither, and cmd_main()
 * with its exit codes of training is not for it. Its own are states of a node, which
 * src/node knows by number; other scripts read --words. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "src/base/log.h"
#include "src/base/output.h"
#include "src/base/settings/options.h"
#include "src/cmd/health_args.h"
#ifdef HEALTH_NODE
#include "src/node/node.h"
#else
#include "healthcheck/health_history.h"
#include "kernels/kernels.h"
#endif

#define HEALTH_EXIT_USAGE 64
#define HEALTH_EXIT_BUDGET 76

static const struct options_row rows[] = {
    OPTION_FLAG(struct health_args, json, "json",
                "the verdict as one line of JSON instead of a table"),
    OPTION_FLAG(struct health_args, words, "words",
                "the same as words, for scripts"),
    OPTION_TEXT(struct health_args, read, "read", "FILE",
                "check nothing: the verdicts in FILE as words"),
    OPTION_REAL(struct health_args, budget_s, "budget", "S", OPTION_ABOVE_0,
                86400, "seconds that all checks together may take"),
    OPTION_WHOLE(struct health_args, gpus, "gpus", "N", 1, 64,
                 "GPUs that the node must have, unless gpu.count says it"),
    OPTION_TEXT(struct health_args, only, "only", "CHECKS",
                "of the phase's checks only these"),
    OPTION_FLAG(struct health_args, shared, "shared",
                "others compute here: nothing that takes all processors"),
    OPTION_TEXT(struct health_args, out, "out", "FILE",
                "also write the JSON line into FILE (or FILE/HOST.json)"),
    OPTION_TEXT(struct health_args, root, "root", "DIR",
                "look at the files below DIR, for tests"),
    OPTION_TEXT(struct health_args, config, "config", "FILE",
                "thresholds (default PREFIX/etc/health.cfg)"),
    OPTION_FLAG(struct health_args, allow_inject, "allow-inject",
                "obey TESSERA_INJECT although run by root"),
    OPTION_FLAG(struct health_args, repaired, "repaired",
                "what the kernel's log and counters tell up to now is settled"),
#ifndef HEALTH_NODE
    OPTION_FLAG(struct health_args, pairs, "pairs",
                "of a job's ranks, one on each node: exchanges by twos"),
    OPTION_TEXT(struct health_args, run, "run", "RUN",
                "of watch: the run whose ledger hears of alerts"),
    OPTION_WHOLE(struct health_args, attempt, "attempt", "N", 1, 1000000,
                 "of watch: its attempt"),
    OPTION_REAL(struct health_args, every_s, "every", "S", 0.1, 86400,
                "of watch: seconds between two looks at the GPUs (10)"),
    OPTION_TEXT(struct health_args, since, "since", "AGE",
                "of report: not what is older, as 30d or 12h (default all)"),
#else
    OPTION_TEXT(struct health_args, act, "act", "PHASE",
                "be Slurm's prolog, epilog or (quick) HealthCheckProgram, with "
                "etc/tessera.conf; or recheck, undrain, selftest"),
#endif
    { 0 },
};

static void tell_checks(FILE *out)
{
    fputs("\nchecks, and the phases that run them:\n", out);
    health_print_checks(out);
}

static const struct options_command commands[] = {
#ifdef HEALTH_NODE
    { .operands = "[quick|prolog|epilog|job]",
#else
    { .operands = "[quick|prolog|epilog|job] | watch | report EVENTS",
#endif
      .rows = rows,
      .operands_max = -1 }
};
static const struct options_program program = {
    .name = "health",
#ifdef HEALTH_NODE
    .about = "Judges this node, as root may: is it fit to train?\n",
#else
    .about = "Judges this node, or under srun with --pairs all of a job: "
             "is it fit to train?\n",
#endif
    .end = "exit: 0 ok, 1 warn, 2 bad, 3 unknown or --out not written, 64 "
           "usage,\n76 budget exceeded\n",
    .more = tell_checks,
    OPTIONS_COMMANDS(commands),
};

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
    if (rc == ERR_OK && arguments->words)
        health_report_words(verdicts, stdout);
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
    if (!arguments->json && !arguments->words)
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
    if (health_repaired(root) == ERR_OK)
        return 0;
    log_error("%s", err_text());
    return HEALTH_UNKNOWN;
}

static int run_read(const char *path)
{
    json_t *verdicts = NULL;
    if (health_report_read(path, &verdicts) != ERR_OK) {
        log_error("%s", err_text());
        return HEALTH_UNKNOWN;
    }
    health_report_words(verdicts, stdout);
    json_decref(verdicts);
    return 0;
}

#ifndef HEALTH_NODE
/* What nodes have said of themselves. */
static int run_history(const struct health_args *arguments,
                       const struct options *options)
{
    struct health_history *history = NULL;
    struct timespec now;
    double age_s = 0;
    enum err rc = arguments->since != NULL
                      ? health_history_age(arguments->since, &age_s)
                      : ERR_OK;
    clock_gettime(CLOCK_REALTIME, &now);
    if (rc == ERR_OK && options->operand_count != 2)
        rc = err_set(ERR_USAGE, "report: give one folder or file of events");
    if (rc == ERR_OK)
        rc = health_history_create(options->operands[1],
                                   age_s > 0 ? (double)now.tv_sec - age_s : 0,
                                   &history);
    if (rc == ERR_OK)
        rc = health_history_print(history, arguments->json, stdout);
    health_history_destroy(history);
    if (rc != ERR_OK)
        log_error("%s", err_text());
    return rc == ERR_OK
               ? 0
               : (rc == ERR_USAGE ? HEALTH_EXIT_USAGE : (int)HEALTH_UNKNOWN);
}
#else
/* The settings are those of this program's tree, as install-node puts them. */
static int run_act(const char *phase)
{
    struct node node;
    char path[1100];
    if (!health_site_file("tessera.conf", path, sizeof path))
        path[0] = '\0';
    if (strcmp(phase, "quick") == 0 && !node_quick_alone())
        return 0;
    return node_begin(&node, phase, path) ? node_act(&node) : 0;
}
#endif

#ifndef HEALTH_NODE
/* For jobs/lib/rank.sh. */
static enum err check_watch(const struct options *options,
                            const struct health_args *arguments)
{
    if (options->operand_count > 1 || arguments->run == NULL ||
        arguments->attempt == 0)
        return err_set(ERR_USAGE, "watch: give --run and --attempt");
    return ERR_OK;
}
#endif

/* What there is to do must be said, once. */
static enum err check_arguments(const struct options *options,
                                struct health_args *arguments,
                                struct health_env *env)
{
    if (options->operand_count > 1)
        return err_set(ERR_USAGE, "too many arguments: '%s'",
                       options->operands[1]);
    if (options->operand_count > 0)
        arguments->phase = options->operands[0];
#ifndef HEALTH_NODE
    if (arguments->phase != NULL && strcmp(arguments->phase, "watch") == 0) {
        arguments->phase = "quick";
        return check_watch(options, arguments);
    }
    if (arguments->run != NULL || arguments->attempt > 0)
        return err_set(ERR_USAGE, "--run and --attempt are of watch");
#endif
    const char *list = arguments->only, *id;
    for (size_t bytes; list != NULL && health_item(&list, &id, &bytes);)
        if (!health_known(id, bytes))
            return err_set(ERR_USAGE, "--only: no check '%.*s'", (int)bytes,
                           id);
#ifdef HEALTH_NODE
    if (arguments->act != NULL && !node_known_act(arguments->act))
        return err_set(ERR_USAGE,
                       "--act %s: give prolog, epilog, quick, recheck, "
                       "undrain or selftest",
                       arguments->act);
#endif
    if (arguments->phase == NULL && !arguments->pairs && !arguments->repaired &&
        arguments->read == NULL && arguments->act == NULL)
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
    struct options options;
    struct health_args arguments = { .root = "" };
    char host[64];
    struct health_env env = { .host = host, .phase = HEALTH_JOB };
#ifndef HEALTH_NODE
    kernels_wait_passively(argv);
#endif
    log_init("health", -1, LOG_INFO);
    if (options_parse(&program, argc, argv, &arguments, &options) != ERR_OK)
        goto usage;
    if (options.help) {
        options_usage(&program, stdout);
        return 0;
    }
    if (options.version) {
        puts("tessera " TESSERA_VERSION);
        return 0;
    }
#ifndef HEALTH_NODE
    if (options.operand_count > 0 && strcmp(options.operands[0], "report") == 0)
        return run_history(&arguments, &options);
#endif
    if (check_arguments(&options, &arguments, &env) != ERR_OK)
        goto usage;
    if (arguments.read != NULL)
        return run_read(arguments.read);
#ifdef HEALTH_NODE
    if (arguments.act != NULL)
        return run_act(arguments.act);
#endif
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
    env.only = arguments.only;
    env.shared = arguments.shared;
    env.inject = injection(arguments.allow_inject);
#ifndef HEALTH_NODE
    if (arguments.run != NULL)
        return health_watch(&arguments, &env);
    if (arguments.pairs)
        return health_pairs(&arguments, &env, argc, argv);
#endif
    return run_phase(&arguments, &env);
usage:
    fprintf(stderr, "tessera-health: %s\n", err_text());
    options_usage(&program, stderr);
    return HEALTH_EXIT_USAGE;
}
