/* Starts ranks of this program under mpirun and brings their result back. */
#include "tests/bench/bench_ranks.h"

#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/fsio.h"

#define RESULT "result.json"
#define RESULT_BYTES_MAX 65536

/* In the child: what the ranks print goes to stderr. */
static void become(char *const *argv)
{
    dup2(STDERR_FILENO, STDOUT_FILENO);
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    execvp(argv[0], argv);
    fprintf(stderr, "%s cannot be started\n", argv[0]);
    _exit(127);
}

static enum err run(char *const *argv)
{
    int status;
    pid_t child = fork();
    if (child < 0)
        return err_errno("fork");
    if (child == 0)
        become(argv);
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return err_errno("wait for mpirun");
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return err_set(ERR_UNSUPPORTED,
                       "the ranks under mpirun have failed; see above");
    return ERR_OK;
}

static enum err run_ranks(const char *name, const char *dir,
                          const struct bench_options *options)
{
    char program[FSIO_PATH_MAX], parent[FSIO_PATH_MAX], nodes[FSIO_PATH_MAX];
    char rank_name[32];
    char seconds[32], counts[3][16], *model = strdup(options->model);
    char *folder = strdup(dir);
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length < 0 || model == NULL || folder == NULL)
        return err_errno("/proc/self/exe");
    program[length] = '\0';
    TRY(fsio_parent(program, parent));
    TRY(fsio_path(nodes, "%s/nodes", parent));
    snprintf(rank_name, sizeof rank_name, "%s-rank", name);
    snprintf(seconds, sizeof seconds, "%g", options->seconds);
    snprintf(counts[0], sizeof counts[0], "%d", options->nodes);
    snprintf(counts[1], sizeof counts[1], "%d", options->node_ranks);
    snprintf(counts[2], sizeof counts[2], "%d", options->mbit);
    char *const two[] = {
        "mpirun",    "--oversubscribe", "--bind-to", "none",  "-np",
        "2",         program,           rank_name,   "--dir", folder,
        "--seconds", seconds,           "--model",   model,   NULL
    };
    char *const many[] = { nodes,  counts[0],   counts[1], counts[2],
                           folder, program,     rank_name, "--dir",
                           folder, "--seconds", seconds,   "--model",
                           model,  NULL };
    enum err rc = run(options->nodes > 0 ? many : two);
    free(folder);
    free(model);
    return rc;
}

enum err bench_ranks(const char *name, const struct bench_options *options,
                     json_t **result)
{
    enum err rc = ERR_OK;
    char dir[FSIO_PATH_MAX] = "", path[FSIO_PATH_MAX];
    char *text = NULL;
    size_t bytes;
    TRY_OUT(fsio_path(dir, "%s/%s", options->dir, name));
    TRY_OUT(fsio_mkdirs(dir));
    TRY_OUT(fsio_path(path, "%s/" BENCH_RANKS_MARK, dir));
    TRY_OUT(fsio_write_hint(path, "", 0));
    TRY_OUT(fsio_path(path, "%s/" RESULT, dir));
    TRY_OUT(run_ranks(name, dir, options));
    TRY_OUT(fsio_read_file(path, RESULT_BYTES_MAX, &text, &bytes));
    *result = json_loadb(text, bytes, 0, NULL);
    if (*result == NULL)
        rc = err_set(ERR_INTERNAL, "%s: is not JSON", path);
out:
    free(text);
    return rc;
}

enum err bench_ranks_check(const struct bench_options *options)
{
    char path[FSIO_PATH_MAX];
    TRY(fsio_path(path, "%s/" BENCH_RANKS_MARK, options->dir));
    if (!fsio_exists(path))
        return err_set(
            ERR_USAGE,
            "the benchmarks *-rank are started by tessera-bench ckpt, "
            "comm and step --parallel only");
    return ERR_OK;
}

enum err bench_ranks_open(double timeout_s, int ranks, struct comm **comm)
{
    TRY(comm_create("mpi", NULL, NULL, timeout_s, comm));
    return ranks == 0 || comm_size(*comm) == ranks
               ? ERR_OK
               : err_set(ERR_USAGE, "this is for %d ranks under mpirun", ranks);
}

enum err bench_ranks_write(const struct bench_options *options,
                           const json_t *result)
{
    char path[FSIO_PATH_MAX];
    if (result == NULL)
        return err_set(ERR_MEMORY, "out of memory");
    TRY(fsio_path(path, "%s/" RESULT, options->dir));
    if (json_dump_file(result, path, 0) != 0)
        return err_set(ERR_IO, "%s: cannot be written", path);
    return ERR_OK;
}
