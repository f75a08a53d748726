/* tessera-bench NAME [--json] [--dir DIR]: figures that do not depend on how
 * fast the machine happens to be today: ratios within one run, interleaved
 * medians. Formulas stand in bench_step.h. */
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "src/base/fsio.h"
#include "src/base/log.h"
#include "src/cmd/bench_ckpt.h"
#include "src/cmd/bench_comm.h"
#include "src/cmd/bench_memory.h"
#include "src/cmd/bench_parallel.h"
#include "src/cmd/bench_step.h"
#include "src/job/exit_code.h"

static const struct {
    const char *name;
    enum err (*run)(const struct bench_options *options, json_t **result);
    const char *help;
} benches[] = {
    { "step", bench_step,
      "an optimizer step against GEMM and bandwidth (--model 125m|10m|moe)" },
    { "data", bench_data, "the data loader's share of a step" },
    { "mfu", bench_mfu,
      "tokens per second by these settings, against a large matrix product" },
    { "ckpt", bench_ckpt, "saving and loading against the bare disk" },
    { "memory", bench_memory,
      "what checkpointing and compression of activations save and cost" },
    { "context", bench_memory_context, "memory and time of long sequences" },
    { "comm", bench_comm, "two ranks' sum against MPI_Allreduce" },
    { "ckpt-rank", bench_ckpt_rank, NULL }, /* what ckpt starts */
    { "comm-rank", bench_comm_rank, NULL },
    { "parallel-rank", bench_parallel_rank, NULL }, /* what step starts */
};

static void usage(FILE *out)
{
    fprintf(out, "usage: tessera-bench NAME [--json] [--dir DIR] [--threads N] "
                 "[--seconds S]\n"
                 "       tessera-bench step [--model 125m|10m|moe] [--parallel] "
                 "...\n"
                 "       tessera-bench mfu [key=value ...] ...\n\n"
                 "Data is synthesised in DIR (default: a temporary folder). "
                 "--json prints one\nobject on stdout; everything else goes to "
                 "stderr.\n\n");
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

static enum err run_bench(const char *name, const struct bench_options *options,
                          json_t **result)
{
    for (size_t i = 0; i < sizeof benches / sizeof benches[0]; i++)
        if (strcmp(name, benches[i].name) == 0)
            return benches[i].run(options, result);
    return err_set(ERR_USAGE, "no benchmark '%s'; there are step, data, mfu, "
                   "ckpt, memory, context and comm",
                   name);
}

/* The value of an option; NULL when it is missing. */
static const char *option_value(int argc, char **argv, int *at)
{
    return *at + 1 < argc ? argv[++*at] : NULL;
}

int main(int argc, char **argv)
{
    bool json = false;
    char folder[256];
    const char *tmp = getenv("TMPDIR");
    struct bench_options options = {
        .threads = processors() < 2 ? processors() : 2,
        .seconds = 60.0,
        .model = "125m",
        .overrides = argv + 2, /* moved to the front */
    };
    kernels_wait_passively(argv);
    log_init("bench", -1, LOG_INFO);
    signal(SIGPIPE, SIG_IGN); /* a child that ended is an error with a text */
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        usage(stdout);
        return EXIT_DONE;
    }
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        puts("tessera " TESSERA_VERSION);
        return EXIT_DONE;
    }
    if (argc < 2 || argv[1][0] == '-') {
        usage(stderr);
        return EXIT_USAGE;
    }
    for (int i = 2; i < argc; i++) {
        const char *value = "";
        if (strcmp(argv[i], "--json") == 0)
            json = true;
        else if (strcmp(argv[i], "--parallel") == 0)
            options.parallel = true;
        else if (strcmp(argv[i], "--dir") == 0)
            options.dir = value = option_value(argc, argv, &i);
        else if (strcmp(argv[i], "--threads") == 0)
            options.threads =
                (value = option_value(argc, argv, &i)) ? atoi(value) : 0;
        else if (strcmp(argv[i], "--seconds") == 0)
            options.seconds =
                (value = option_value(argc, argv, &i)) ? atof(value) : 0;
        else if (strcmp(argv[i], "--model") == 0)
            options.model = value = option_value(argc, argv, &i);
        else if (argv[i][0] != '-' && strchr(argv[i], '=') != NULL)
            options.overrides[options.override_count++] = argv[i];
        else
            value = NULL;
        if (value == NULL || options.threads < 1 || !(options.seconds > 0)) {
            log_error("bad option or value '%s'; see --help", argv[i]);
            return EXIT_USAGE;
        }
    }
    snprintf(folder, sizeof folder, "%.200s/tessera-bench.XXXXXX",
             tmp != NULL ? tmp : "/tmp");
    if (options.dir == NULL && (options.dir = mkdtemp(folder)) == NULL) {
        log_error("%s: cannot make a temporary folder; give --dir", folder);
        return EXIT_STOP;
    }
    json_t *result = NULL;
    enum err rc = run_bench(argv[1], &options, &result);
    if (rc != ERR_OK)
        log_error("%s", err_text());
    else if (strstr(argv[1], "-rank") != NULL)
        ; /* its parent prints */
    else if (json)
        json_dumpf(result, stdout, JSON_REAL_PRECISION(6)), putchar('\n');
    else
        print_table(result);
    json_decref(result);
    if (options.dir == folder)
        (void)fsio_remove_tree(folder);
    return err_exit_code(rc);
}
