/* tessera-bench NAME [--json] [--dir DIR]: the command line; what each benchmark
 * prints stands in bench.h. */
#include <sched.h>

#include "kernels/kernels.h"
#include "src/base/fsio.h"
#include "src/base/log.h"
#include "src/cmd/cmd_main.h"
#include "tests/bench/bench.h"
#include "tests/bench/bench_ranks.h"

#define SECONDS_MAX 1e6
#define THREADS_MAX 4096
#define TOKENS_MAX 65536
#define NODES_MAX 64
#define MBIT_MAX 1000000

static const struct options_row rows[] = {
    OPTION_FLAG(struct bench_options, json, "json", "one object on stdout"),
    OPTION_PATH(struct bench_options, dir, "dir", "DIR",
                "where a new folder is made, and removed afterwards (TMPDIR "
                "or /tmp)"),
    OPTION_WHOLE(struct bench_options, threads, "threads", "N", 1, THREADS_MAX,
                 "of the processors, or 2"),
    OPTION_REAL(struct bench_options, seconds, "seconds", "S", OPTION_ABOVE_0,
                SECONDS_MAX, "in which rounds start (60)"),
    OPTION_PATH(struct bench_options, model, "model", "NAME",
                "125m, 10m or moe; of infer a preset, or a model; of --plan a "
                "preset (mpt-7b)"),
    OPTION_TAKE("plan", "NODESxRANKS", bench_plan_take,
                "instead: what such a machine would send between its nodes"),
    OPTION_WHOLE(struct bench_options, nodes, "nodes", "N", 2, NODES_MAX,
                 "instead: steps over so many nodes of this machine (root)"),
    OPTION_WHOLE(struct bench_options, node_ranks, "node-ranks", "N", 1,
                 THREADS_MAX, "of --nodes, ranks of each (2)"),
    OPTION_WHOLE(struct bench_options, mbit, "mbit", "N", 0, MBIT_MAX,
                 "of --nodes, bits a second of a link (1000; 0: no bound)"),
    OPTION_FLAG(struct bench_options, parallel, "parallel", "by two ranks"),
    OPTION_WHOLE(struct bench_options, tokens, "tokens", "N", 1, TOKENS_MAX,
                 "of a leaf, instead of several numbers of them"),
    OPTION_PATH(struct bench_options, kernel_set, "kernel-set", "NAME",
                "instead of the best one here"),
    { 0 },
};

#define USUAL "json dir threads seconds "

static const struct bench_row {
    struct options_command command;
    /* NULL: bench_ranks() with this name */
    enum err (*run)(const struct bench_options *options, json_t **result);
    const char *model; /* unless --model says it; NULL: the benchmark knows */
    bool rank;         /* bench_ranks() starts it */
} benches[] = {
    { { "step", "", "an optimizer step against the processor's peak", rows,
        USUAL "model parallel", 0, 0 },
      bench_step,
      "125m",
      false },
    { { "gemm", "", "matrix products by shape, against the peak", rows,
        USUAL "model tokens kernel-set", 0, 0 },
      bench_gemm,
      NULL,
      false },
    { { "infer", "", "decoding and prompts against memory's rate and the peak",
        rows, USUAL "model", 0, 0 },
      bench_infer,
      NULL,
      false },
    { { "data", "", "reading ahead, from files and from a slow server", rows,
        USUAL, 0, 0 },
      bench_data,
      "125m",
      false },
    { { "ckpt", "", "saving and loading against the bare disk", rows, USUAL, 0,
        0 },
      NULL,
      "125m",
      false },
    { { "comm", "", "two ranks' sum against MPI_Allreduce", rows,
        USUAL "model plan nodes node-ranks mbit", 0, 0 },
      bench_comm,
      NULL,
      false },
    { { "ckpt-rank", "", "what ckpt starts", rows, USUAL "model", 0, 0 },
      bench_ckpt_rank,
      "125m",
      true },
    { { "comm-rank", "", "what comm starts", rows, USUAL "model", 0, 0 },
      bench_comm_rank,
      "125m",
      true },
    { { "nodes-rank", "", "what comm --nodes starts", rows, USUAL "model", 0,
        0 },
      bench_nodes_rank,
      "125m",
      true },
    { { "parallel-rank", "", "what step --parallel starts", rows, USUAL "model",
        0, 0 },
      bench_parallel_rank,
      "125m",
      true },
};

static int processors(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return 1;
    return CPU_COUNT(&set);
}

static void print_value(const char *name, int width, const json_t *value)
{
    if (json_is_real(value))
        printf("%-*s %.4g", width, name, json_real_value(value));
    else if (json_is_integer(value))
        printf("%-*s %lld", width, name, (long long)json_integer_value(value));
    else
        printf("%-*s %s", width, name, json_string_value(value));
}

/* A line for each figure, and for each object of a list. */
static void print_table(json_t *result)
{
    const char *key, *name;
    json_t *value, *item, *figure;
    size_t i;
    json_object_foreach(result, key, value)
    {
        json_array_foreach(value, i, item)
        {
            printf("%s:", key);
            json_object_foreach(item, name, figure)
            {
                putchar(' ');
                print_value(name, 0, figure);
            }
            putchar('\n');
        }
        if (json_is_array(value))
            continue;
        print_value(key, 24, value);
        putchar('\n');
    }
}

static enum err run_bench(const struct bench_row *bench,
                          const struct bench_options *options, json_t **result)
{
    return bench->run != NULL
               ? bench->run(options, result)
               : bench_ranks(bench->command.name, options, result);
}

/* Everything is written in a fresh folder, which goes afterwards: nothing else
 * in DIR is touched. A rank works in the folder that its parent has made. */
static enum err run_in_folder(const struct bench_row *bench,
                              struct bench_options *options, json_t **result)
{
    enum err rc = ERR_OK;
    char prefix[FSIO_PATH_MAX], folder[FSIO_PATH_MAX] = "";
    if (options->dir == NULL)
        options->dir = getenv("TMPDIR");
    if (options->dir == NULL || options->dir[0] == '\0')
        options->dir = "/tmp";
    if (bench->rank) {
        TRY(bench_ranks_check(options));
        return run_bench(bench, options, result);
    }
    TRY(fsio_path(prefix, "%s/tessera-bench", options->dir));
    TRY(fsio_mkdir_new(prefix, folder));
    options->dir = folder;
    rc = run_bench(bench, options, result);
    if (fsio_remove_tree(folder) != ERR_OK)
        log_warn("%s stays: it cannot be removed", folder);
    return rc;
}

static enum err run(const struct options *line, int *exit_code)
{
    struct bench_options *options = line->into;
    const struct bench_row *bench = (const void *)line->command;
    json_t *result = NULL;
    (void)exit_code;
    if (options->model == NULL)
        options->model = bench->model;
    enum err rc = run_in_folder(bench, options, &result);
    if (rc == ERR_OK && !bench->rank && options->json)
        json_dumpf(result, stdout, JSON_REAL_PRECISION(6)), putchar('\n');
    else if (rc == ERR_OK && !bench->rank)
        print_table(result);
    json_decref(result);
    return rc;
}

int main(int argc, char **argv)
{
    static const struct options_program program = {
        .name = "bench",
        .about = "Prints ratios to what this machine allows; all that is no "
                 "figure goes to stderr.\n",
        OPTIONS_COMMANDS(benches),
    };
    struct bench_options options = {
        .threads = processors() < 2 ? processors() : 2,
        .seconds = 60.0,
        .node_ranks = 2,
        .mbit = 1000,
    };
    kernels_wait_passively(argv);
    return cmd_main(&(struct cmd_main){ &program, &options, run }, argc, argv);
}
