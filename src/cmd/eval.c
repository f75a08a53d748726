/* tessera-eval: tasks, gauntlets and perplexity of a model, alone or on ranks. */
#include "kernels/kernels.h"
#include "src/base/exit_code.h"
#include "src/base/log.h"
#include "src/cmd/cmd_main.h"
#include "src/eval/eval_options.h"

static enum err run(const void *options, struct comm *comm)
{
    return eval_run(options, comm);
}

/* Options are read before, by each rank alone: a mistake in them is told by all, as
 * nobody could say yet who is first. */
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
                        : cmd_main_ranks(&cmd, argc, argv, run);
}
