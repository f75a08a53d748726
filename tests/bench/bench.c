/* tessera-bench NAME [--json] [--dir DIR]: the command line; what each benchmark
 * prints stands in bench.h. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "src/base/fsio.h"
#include "src/base/log.h"
#include "src/base/settings/options.h"
#include "src/job/exit_code.h"
#include "tests/bench/bench.h"
#include "tests/bench/bench_ranks.h"

#define NAMES "step, gemm, infer, data, ckpt and comm"
#define SECONDS_MAX 1e6
#define THREADS_MAX 4096
#define TOKENS_MAX 65536

static const struct {
    const char *name;
    /* NULL: bench_ranks() with this name */
    enum err (*run)(const struct bench_options *options, json_t **result);
    const char *help;
    void (*print)(const json_t *result); /* NULL: name and value, a line each */
} benches[] = {
    { "step", bench_step, "an optimizer step against the processor's peak",
      NULL },
    { "gemm", bench_gemm, "matrix products by shape, against the peak",
      bench_gemm_print },
    { "infer", bench_infer,
      "decoding and prompts against memory's rate and the peak", NULL },
    { "data", bench_data, "reading ahead, from files and from a slow server",
      NULL },
    { "ckpt", NULL, "saving and loading against the bare disk", NULL },
    { "comm", NULL, "two ranks' sum against MPI_Allreduce", NULL },
    { "ckpt-rank", bench_ckpt_rank, NULL, NULL }, /* what ckpt starts */
    { "comm-rank", bench_comm_rank, NULL, NULL },
    { "parallel-rank", bench_parallel_rank, NULL, NULL }, /* what step starts */
};

static void usage(FILE *out)
{
    fprintf(out,
            "usage: tessera-bench NAME [--json] [--dir DIR] [--threads N] "
            "[--seconds S]\n"
            "       tessera-bench step [--model 125m|10m|moe] [--parallel] "
            "...\n"
            "       tessera-bench gemm [--model 125m|10m|moe] [--tokens N] "
            "[--kernel-set NAME] ...\n"
            "       tessera-bench infer [--model PRESET|MODEL] ...\n\n"
            "Files are made in a new folder in DIR (TMPDIR or /tmp), "
            "which is removed\nafterwards. --json prints one object on "
            "stdout; everything else goes to stderr.\n\n");
    for (size_t i = 0; i < sizeof benches / sizeof benches[0]; i++)
        if (benches[i].help != NULL)
            fprintf(out, "  %-7s %s\n", benches[i].name, benches[i].help);
}

static int processors(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return 1;
    return CPU_COUNT(&set);
}

static void print_table(json_t *result)
{
    const char *key;
    json_t *value;
    json_object_foreach(result, key, value)
    {
        if (json_is_real(value))
            printf("%-24s %.4g\n", key, json_real_value(value));
        else if (json_is_integer(value))
            printf("%-24s %lld\n", key, (long long)json_integer_value(value));
        else if (json_is_string(value))
            printf("%-24s %s\n", key, json_string_value(value));
    }
}

static enum err find_bench(const char *name)
{
    for (size_t i = 0; i < sizeof benches / sizeof benches[0]; i++)
        if (strcmp(name, benches[i].name) == 0)
            return ERR_OK;
    return err_set(ERR_USAGE, "no benchmark '%s'; there are " NAMES, name);
}

static enum err run_bench(const char *name, const struct bench_options *options,
                          json_t **result)
{
    size_t i = 0;
    while (strcmp(name, benches[i].name) != 0)
        i++;
    return benches[i].run != NULL ? benches[i].run(options, result)
                                  : bench_ranks(name, options, result);
}

struct arguments {
    const char *name;
    const char *dir; /* NULL: a temporary one */
    bool json, help;
    struct bench_options options;
};

static enum err bad_value(const char *option, const char *value)
{
    if (value == NULL)
        return err_set(ERR_USAGE, "%s needs a value; see --help", option);
    return err_set(ERR_USAGE, "%s cannot be '%s'; see --help", option, value);
}

static enum err parse_number(const char *option, const char *text, double max,
                             double *out)
{
    char *end = NULL;
    if (text != NULL)
        *out = strtod(text, &end);
    if (text == NULL || end == text || *end != '\0' ||
        !(*out > 0 && *out <= max))
        return bad_value(option, text);
    return ERR_OK;
}

/* An option with a value; `value` is what follows, NULL if nothing does. */
static enum err set_value(struct arguments *out, const char *option,
                          const char *value)
{
    double number = 1;
    if (strcmp(option, "--dir") == 0) {
        out->dir = value;
    } else if (strcmp(option, "--model") == 0) {
        out->options.model = value;
    } else if (strcmp(option, "--kernel-set") == 0) {
        out->options.kernel_set = value;
    } else if (strcmp(option, "--seconds") == 0) {
        return parse_number(option, value, SECONDS_MAX, &out->options.seconds);
    } else if (strcmp(option, "--threads") == 0) {
        TRY(parse_number(option, value, THREADS_MAX, &number));
        out->options.threads = (int)number;
        return number == (int)number ? ERR_OK : bad_value(option, value);
    } else if (strcmp(option, "--tokens") == 0) {
        TRY(parse_number(option, value, TOKENS_MAX, &number));
        out->options.tokens = (int)number;
        return number == (int)number ? ERR_OK : bad_value(option, value);
    } else {
        return options_unknown(
            "no option ", option,
            (const char *const[]){ "dir", "model", "kernel-set", "seconds",
                                   "threads", "tokens", "json", "parallel",
                                   "help", NULL });
    }
    if (value == NULL || value[0] == '\0')
        return bad_value(option, value);
    return ERR_OK;
}

static enum err parse(int argc, char **argv, struct arguments *out)
{
    for (int i = 1; i < argc; i++) {
        const char *argument = argv[i];
        if (strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0) {
            out->help = true;
        } else if (strcmp(argument, "--json") == 0) {
            out->json = true;
        } else if (strcmp(argument, "--parallel") == 0) {
            out->options.parallel = true;
        } else if (argument[0] == '-') {
            TRY(set_value(out, argument, i + 1 < argc ? argv[i + 1] : NULL));
            i++;
        } else if (out->name == NULL) {
            out->name = argument;
        } else {
            return err_set(ERR_USAGE,
                           "'%s': one benchmark at a time, and %s "
                           "was named before",
                           argument, out->name);
        }
    }
    if (out->name == NULL && !out->help)
        return err_set(ERR_USAGE, "no benchmark was named; there are " NAMES
                                  "; see --help");
    return ERR_OK;
}

/* Options that would be ignored. */
static enum err check_options(const struct arguments *arguments)
{
    const struct bench_options *options = &arguments->options;
    bool gemm = strcmp(arguments->name, "gemm") == 0;
    if ((options->kernel_set != NULL || options->tokens > 0) && !gemm)
        return err_set(ERR_USAGE,
                       "--kernel-set and --tokens are for gemm, not for %s",
                       arguments->name);
    return ERR_OK;
}

/* Everything is written in a fresh folder, which goes afterwards: nothing else
 * in DIR is touched. A rank works in the folder that its parent has made. */
static enum err run_in_folder(const struct arguments *arguments,
                              json_t **result)
{
    enum err rc = ERR_OK;
    char prefix[FSIO_PATH_MAX], folder[FSIO_PATH_MAX] = "";
    struct bench_options options = arguments->options;
    const char *dir = arguments->dir;
    if (dir == NULL)
        dir = getenv("TMPDIR");
    if (dir == NULL || dir[0] == '\0')
        dir = "/tmp";
    options.dir = dir;
    /* gemm has all models' shapes, and infer one of its own */
    if (options.model == NULL && strcmp(arguments->name, "gemm") != 0 &&
        strcmp(arguments->name, "infer") != 0)
        options.model = "125m";
    if (strstr(arguments->name, "-rank") != NULL) {
        TRY(bench_ranks_check(&options));
        return run_bench(arguments->name, &options, result);
    }
    TRY(fsio_path(prefix, "%s/tessera-bench", dir));
    TRY(fsio_mkdir_new(prefix, folder));
    options.dir = folder;
    rc = run_bench(arguments->name, &options, result);
    if (fsio_remove_tree(folder) != ERR_OK)
        log_warn("%s stays: it cannot be removed", folder);
    return rc;
}

static void print_result(const struct arguments *arguments, json_t *result)
{
    size_t i = 0;
    while (strcmp(arguments->name, benches[i].name) != 0)
        i++;
    if (benches[i].help == NULL)
        return; /* its parent prints */
    if (arguments->json)
        json_dumpf(result, stdout, JSON_REAL_PRECISION(6)), putchar('\n');
    else if (benches[i].print != NULL)
        benches[i].print(result);
    else
        print_table(result);
}

int main(int argc, char **argv)
{
    struct arguments arguments = {
        .options = { .threads = processors() < 2 ? processors() : 2,
                     .seconds = 60.0 },
    };
    json_t *result = NULL;
    kernels_wait_passively(argv);
    log_init("bench", -1, LOG_INFO);
    enum err rc = parse(argc, argv, &arguments);
    if (rc == ERR_OK && arguments.help) {
        usage(stdout);
        return EXIT_DONE;
    }
    if (rc == ERR_OK)
        rc = find_bench(arguments.name);
    if (rc == ERR_OK)
        rc = check_options(&arguments);
    if (rc == ERR_OK)
        rc = run_in_folder(&arguments, &result);
    if (rc == ERR_OK)
        print_result(&arguments, result);
    else
        log_error("%s", err_text());
    json_decref(result);
    return err_exit_code(rc);
}
