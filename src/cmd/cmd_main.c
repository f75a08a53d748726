/* Mains: from the command line to the exit code. What is the same in all programs
 * is here: that a call without arguments shows the usage, that --help is a result
 * and goes to standard output while a mistake is none and goes to standard error,
 * that an error is one line with the program's name, and which code it ends with.
 * The exit codes are a contract with the launch script (src/base/exit_code.h): they
 * say whether another attempt may help. */
#include "src/cmd/cmd_main.h"

#include <assert.h>

#include "src/base/log.h"
#include "src/base/exit_code.h"

#define TIMEOUT_S 86400.0 /* ranks may end at different times, ... */
#define LOST_S 20.0       /* ... but live until then */

int cmd_main_end(const struct cmd_main *cmd, enum err rc, int exit_code)
{
    /* before the error, so that the two come in order on one terminal */
    assert(exit_code >= 0 && exit_code < 256);
    bool printed = fflush(stdout) == 0 && !ferror(stdout);
    if (rc == ERR_OK && !printed)
        rc = err_errno("standard output");
    if (rc != ERR_OK)
        fprintf(stderr, "tessera-%s: %s\n", cmd->program->name, err_text());
    return rc != ERR_OK ? err_exit_code(rc) : exit_code;
}

bool cmd_main_options(const struct cmd_main *cmd, int argc, char **argv,
                      struct options *options, int *exit_code)
{
    assert(argc > 0 && cmd->into != NULL);
    *exit_code = EXIT_USAGE;
    if (argc < 2 && !cmd->program->bare) {
        options_usage(cmd->program, stderr);
        return true;
    }
    enum err rc = options_parse(cmd->program, argc, argv, cmd->into, options);
    if (rc == ERR_OK && !options->help && !options->version)
        return false;
    if (rc == ERR_OK && options->help)
        options_usage(cmd->program, stdout);
    else if (rc == ERR_OK)
        puts("tessera " TESSERA_VERSION);
    *exit_code = cmd_main_end(cmd, rc, EXIT_DONE);
    return true;
}

int cmd_main(const struct cmd_main *cmd, int argc, char **argv)
{
    struct options options;
    int exit_code = EXIT_DONE;
    log_init(cmd->program->name, -1, LOG_INFO);
    if (cmd_main_options(cmd, argc, argv, &options, &exit_code))
        return exit_code;
    exit_code = EXIT_DONE;
    assert(cmd->run != NULL && !options.help && !options.version);
    enum err rc = cmd->run(&options, &exit_code);
    return cmd_main_end(cmd, rc, exit_code);
}

int cmd_main_ranks(const struct cmd_main *cmd, int argc, char **argv,
                   enum err (*run)(const void *into, struct comm *comm))
{
    enum err rc = ERR_OK;
    struct comm *comm = NULL;
    TRY_OUT(comm_create("auto", &argc, &argv, TIMEOUT_S, &comm));
    TRY_OUT(comm_beat_start(comm, LOST_S));
    int rank = comm_rank(comm);
    log_init(cmd->program->name, comm_size(comm) > 1 ? rank : -1,
             rank == 0 ? LOG_INFO : LOG_ERROR);
    rc = run(cmd->into, comm);
out:;
    int code = err_exit_code(rc);
    if (comm == NULL || comm_rank(comm) == 0 || rc == ERR_COMM)
        code = cmd_main_end(cmd, rc, EXIT_DONE);
    if (rc == ERR_COMM && comm != NULL)
        comm_abort(comm, code);
    comm_destroy(comm);
    return code;
}
