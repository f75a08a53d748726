/* tessera-eval: tasks, gauntlets and perplexity of a model, alone or on the
 * ranks that mpirun or srun starts. Each rank reads the command line, and rank 0
 * speaks for all; only one that has lost the others speaks for itself, and ends
 * them all, since nobody can be asked any more. */
#include "kernels/kernels.h"
#include "src/base/log.h"
#include "src/cmd/cmd_main.h"
#include "src/eval/eval_options.h"
#include "src/base/exit_code.h"

#define TIMEOUT_S 86400.0 /* ranks may end at different times, ... */
#define LOST_S 20.0       /* ... but live until then */

/* Options were read before, by each rank alone: a mistake in them is told by all, as
 * nobody could say yet who is first.
 *
 * Ranks wait for each other as long as it takes: one may have the long examples. */
static int run(int argc, char **argv, const struct eval_options *options)
{
    enum err rc = ERR_OK;
    struct comm *comm = NULL;
    TRY_OUT(comm_create("auto", &argc, &argv, TIMEOUT_S, &comm));
    TRY_OUT(comm_beat_start(comm, LOST_S));
    int rank = comm_rank(comm);
    log_init("eval", comm_size(comm) > 1 ? rank : -1,
             rank == 0 ? LOG_INFO : LOG_ERROR);
    rc = eval_run(options, comm);
out:
    if (rc != ERR_OK &&
        (comm == NULL || comm_rank(comm) == 0 || rc == ERR_COMM))
        fprintf(stderr, "tessera-eval: %s\n", err_text());
    if (rc == ERR_COMM && comm != NULL)
        comm_abort(comm, err_exit_code(rc));
    comm_destroy(comm);
    return err_exit_code(rc);
}

int main(int argc, char **argv)
{
    int exit_code;
    struct options line;
    static struct eval_options options;
    const struct cmd_main cmd = { &eval_options_program, &options, NULL };
    kernels_wait_passively(argv);
    log_init("eval", -1, LOG_INFO);
    eval_options_default(&options);
    if (cmd_main_options(&cmd, argc, argv, &line, &exit_code))
        return exit_code;
    enum err rc = eval_options_check(&line);
    return rc != ERR_OK ? cmd_main_end(&cmd, rc, EXIT_DONE)
                        : run(argc, argv, &options);
}
